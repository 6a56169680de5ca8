"""What is made of the way to success counts: from where the episode began, half of it at most."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import mujoco
import numpy as np
import pytest

from embodied_icrl.manipulation.adroit import AdroitDoor, AdroitHammer
from embodied_icrl.manipulation.fetch import FetchPickAndPlace, FetchPush, FetchReach, FetchSlide
from embodied_icrl.manipulation.graded import GradedTask
from embodied_icrl.manipulation.shadow_hand import HandBlock, HandReach, _turn
from tests.manipulation.episodes import name_of

# Puts the moment at a share of the way from the episode's start to the goal.
Put = Callable[[Any, Any, float], Any]


def put_achieved(env: Any, start: Any, share: float) -> Any:
    """An object, a gripper or fingertips at a point of the line to their target."""
    moved = copy.deepcopy(start)
    moved["achieved_goal"] += share * (start["desired_goal"] - start["achieved_goal"])
    return moved


def put_latch(env: Any, start: Any, share: float) -> Any:
    """A latch that is turned, and a door still shut."""
    env.unwrapped.data.joint("latch").qpos[:] = 1.3 * share
    return start


def put_door(env: Any, start: Any, share: float) -> Any:
    env.unwrapped.data.joint("latch").qpos[:] = 1.3
    env.unwrapped.data.joint("door_hinge").qpos[:] = 1.35 * share
    return start


def put_nail(env: Any, start: Any, share: float) -> Any:
    simulator: Any = env.unwrapped
    simulator.data.joint("nail_dir").qpos[:] = 0.091 * share
    mujoco.mj_forward(simulator.model, simulator.data)
    return start


def put_hammer(env: Any, start: Any, share: float) -> Any:
    """The hammer's head on its way to a nail that is still outside."""
    simulator: Any = env.unwrapped
    data, sites = simulator.data, simulator.data.site_xpos
    joints = [data.joint(f"OBJT{axis}") for axis in "xyz"]
    for joint in joints:
        joint.qpos[:] = 0.0
    mujoco.mj_forward(simulator.model, data)
    way = sites[simulator.target_obj_site_id] - sites[simulator.tool_site_id]
    for joint in joints:
        joint.qpos[:] = share * float(way @ joint.xaxis)
    mujoco.mj_forward(simulator.model, data)
    return start


def put_block(env: Any, start: Any, share: float) -> Any:
    """The block turned in the hand."""
    turn = _turn(start["achieved_goal"][3:], start["desired_goal"][3:])
    angle = float(np.linalg.norm(turn))
    step, moved = np.empty(4), copy.deepcopy(start)
    mujoco.mju_axisAngle2Quat(step, turn / angle, share * angle)
    mujoco.mju_mulQuat(moved["achieved_goal"][3:], step, start["achieved_goal"][3:])
    return moved


# With it: what the start and the end of the way are worth.
WAYS: tuple[tuple[GradedTask, Put, float, float], ...] = (
    (FetchReach(), put_achieved, 0.0, 1.0),
    (FetchPush(), put_achieved, 0.0, 1.0),
    (FetchPickAndPlace(), put_achieved, 0.0, 1.0),
    (FetchSlide(), put_achieved, 0.0, 1.0),
    (HandReach(), put_achieved, 0.0, 1.0),
    (HandBlock(), put_block, 0.0, 1.0),
    (AdroitDoor(), put_latch, 0.0, 0.1),
    (AdroitDoor(), put_door, 0.1, 1.0),
    (AdroitHammer(), put_hammer, 0.0, 0.12),
    (AdroitHammer(), put_nail, 0.0, 1.0),
)


@pytest.mark.parametrize(
    ("task", "put", "first", "last"), WAYS, ids=[f"{w[0].name}-{w[1].__name__}" for w in WAYS]
)
def test_progress_counts_from_the_start_of_the_episode(task, put, first, last):
    env = task.make_env()
    start, _ = env.reset(seed=4)
    assert env.left_at_start > 0.0
    shares = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0)
    measures = [task.measure(env, put(env, start, share)) for share in shares]
    assert measures[0] == pytest.approx(first, abs=1e-6)
    assert measures[-1] == pytest.approx(last, abs=0.02)
    assert all(before <= after for before, after in zip(measures, measures[1:]))
    assert all(before < after for before, after in zip(measures[:5], measures[1:5]))
    assert all(value <= 0.5 or value == 1.0 for value in measures)
    env.close()


@pytest.mark.parametrize("task", [FetchPush(), FetchReach(), HandReach()], ids=name_of)
def test_leaving_is_worth_nothing(task):
    env = task.make_env()
    start, _ = env.reset(seed=4)
    assert [task.measure(env, put_achieved(env, start, -away)) for away in (0.2, 3.0)] == [0.0, 0.0]
    env.close()


def test_a_block_on_the_floor_has_made_no_progress():
    task = HandBlock()
    env = task.make_env()
    start, _ = env.reset(seed=4)
    turned = put_block(env, start, 0.6)
    assert task.measure(env, turned) > 0.25
    turned["achieved_goal"][2] = 0.05
    assert task.measure(env, turned) == 0.0
    env.close()


def test_what_is_left_of_a_goal_that_was_met_at_the_start_is_worth_nothing():
    task = FetchPush()
    env = task.make_env()
    seed = 0
    while env.left_at_start > 0.0 or seed == 0:
        start, _ = env.reset(seed=seed)
        seed += 1
    assert task.measure(env, start) == 1.0
    start["achieved_goal"] = start["desired_goal"] + (0.0, 0.06, 0.0)
    assert task.measure(env, start) == 0.0
    env.close()


def test_a_state_that_is_no_number_is_worth_nothing():
    task = FetchPush()
    env = task.make_env()
    start, _ = env.reset(seed=4)
    start["achieved_goal"][:] = np.nan
    assert task.measure(env, start) == 0.0
    env.close()
