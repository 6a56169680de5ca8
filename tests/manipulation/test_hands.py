"""Adroit and Shadow hand. Few have a script: most successes are put into the simulator."""

from __future__ import annotations

from typing import Any

import hypothesis.extra.numpy as arrays
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from embodied_icrl.manipulation.adroit import AdroitDoor, AdroitHammer
from embodied_icrl.manipulation.shadow_hand import HandBlock, HandReach, _turn
from embodied_icrl.manipulation.task_env import TaskEnv
from embodied_icrl.reward_search.loading import load_reward
from tests.manipulation.episodes import episode, fitness, name_of

HANDS = (AdroitDoor(), AdroitHammer(), HandReach(), HandBlock())


def open_door(env: TaskEnv) -> None:
    env.simulator.unwrapped.data.joint("door_hinge").qpos[:] = 1.5


def drive_nail(env: TaskEnv) -> None:
    simulator: Any = env.simulator.unwrapped
    sites = simulator.data.site_xpos
    left = sites[simulator.target_obj_site_id] - sites[simulator.goal_site_id]
    simulator.data.joint("nail_dir").qpos[:] += np.linalg.norm(left)


def turn_block(env: TaskEnv) -> None:
    joint = env.simulator.unwrapped.data.joint("object:joint")
    joint.qpos[3:] = -env._raw["desired_goal"][3:]  # the quaternion's other sign
    joint.qvel[:] = 0.0


DONE = ((AdroitDoor(), open_door), (AdroitHammer(), drive_nail), (HandBlock(), turn_block))


@pytest.mark.parametrize("task", HANDS, ids=name_of)
def test_noise_and_idleness_have_no_fitness(task):
    assert fitness(task, 8, "random") < 0.05
    assert fitness(task, 3, "idle") < 0.02


@pytest.mark.parametrize(("task", "finish"), DONE, ids=[task.name for task, _ in DONE])
def test_a_solved_state_has_fitness_one_and_more_reward(task, finish):
    def run(solve: bool) -> tuple[float, float]:
        env = TaskEnv(task, load_reward(task.human_reward))
        env.reset(seed=3)
        rewards, terminated, truncated = [], False, False
        idle = np.zeros(env.action_space.shape, np.float32)
        while not (terminated or truncated):
            if solve:
                finish(env)
            _, reward, terminated, truncated, info = env.step(idle)
            rewards.append(reward)
        env.close()
        return info["fitness"], float(np.mean(rewards))

    solved, idle = run(True), run(False)
    assert solved[0] > 0.9
    assert idle[0] < 0.02
    assert solved[1] > idle[1]


def test_fingertips_that_the_script_brings_together():
    # Some targets cannot be reached to the centimetre by straight joint motions.
    env = TaskEnv(HandReach())
    found = [episode(env, seed, "scripted")[-1]["fitness"] for seed in range(8)]
    assert np.mean(found) > 0.5
    assert max(found) == 1.0


@pytest.mark.parametrize("task", [AdroitDoor(), AdroitHammer()], ids=name_of)
def test_the_reward_grows_as_the_palm_comes_near(task):
    """The environment's own has the wrong sign here."""
    env = TaskEnv(task)
    env.reset(seed=0)
    env.step(np.zeros(env.action_space.shape, np.float32))
    state = env.layout.record(env.state_vector)
    aim = state.handle_position if task.name == "adroit_door" else state.hammer_position
    reward = load_reward(task.human_reward)
    near = reward(state._replace(palm_position=aim + (0.0, 0.0, 0.02)))[0]
    assert near > reward(state)[0]


@pytest.mark.parametrize(
    ("task", "point"),
    [(AdroitDoor(), "palm"), (AdroitHammer(), "palm"), (HandBlock(), "block")],
    ids=["adroit_door", "adroit_hammer", "hand_block"],
)
def test_velocities_are_those_of_the_positions(task, point):
    env = TaskEnv(task)
    env.reset(seed=0)
    dt = env.simulator.unwrapped.dt
    action = np.full(env.action_space.shape, 0.4, np.float32)
    places, speeds = [], []
    for _ in range(12):
        env.step(action)
        state = env.layout.record(env.state_vector)
        places.append(getattr(state, f"{point}_position"))
        speeds.append(getattr(state, f"{point}_velocity"))
    moved = np.diff(places, axis=0) / dt
    middle = (np.array(speeds[1:]) + np.array(speeds[:-1])) / 2
    error = np.linalg.norm(moved - middle, axis=1)
    assert np.median(error) < 0.2 * np.linalg.norm(moved, axis=1).max()


QUATERNIONS = arrays.arrays(np.float64, 4, elements=st.floats(-1, 1)).filter(
    lambda values: np.linalg.norm(values) > 0.1
)


@given(QUATERNIONS, QUATERNIONS)
def test_the_turn_between_two_orientations_is_the_shortest_one(start, end):
    import mujoco

    start, end = start / np.linalg.norm(start), end / np.linalg.norm(end)
    turn = _turn(start, end)
    assert np.linalg.norm(turn) < np.pi + 1e-6
    angle = np.linalg.norm(turn)
    step, reached = np.empty(4), np.empty(4)
    mujoco.mju_axisAngle2Quat(step, turn / max(angle, 1e-12), angle)
    mujoco.mju_mulQuat(reached, step, start)
    assert abs(reached @ end) == pytest.approx(1.0, abs=1e-6)
    np.testing.assert_allclose(np.abs(_turn(-start, end)), np.abs(turn), atol=1e-6)
