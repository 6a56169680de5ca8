"""What networks are given: numbers of the order of 1, by constants, and nothing else changes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from embodied_icrl.manipulation.adroit import AdroitDoor, AdroitHammer
from embodied_icrl.manipulation.fetch import FetchPickAndPlace, FetchPush, FetchReach, FetchSlide
from embodied_icrl.manipulation.planar_reach import PlanarReach
from embodied_icrl.manipulation.shadow_hand import HandBlock, HandReach
from embodied_icrl.manipulation.task_env import TaskEnv
from tests.manipulation.episodes import seen_by_policies

# With it: what hardly varies while an object lies flat, or the hammer on its table. It is of the
# order of 1 once that changes.
TASKS = (
    (FetchReach(), ()),
    (FetchPush(), (8, 15, 16, 17)),
    (FetchSlide(), (8, 15, 16, 17)),
    (FetchPickAndPlace(), (15, 16, 17, 18, 19, 20)),
    (AdroitDoor(), ()),
    (AdroitHammer(), (39, 40, 41, 42, 43, 44)),
    (HandReach(), ()),
    (HandBlock(), ()),
)


@pytest.mark.parametrize(("task", "resting"), TASKS, ids=[task.name for task, _ in TASKS])
def test_what_a_policy_sees_is_of_the_order_of_one(task, resting):
    seen = seen_by_policies(task, 4)
    spread = seen.std(axis=0)
    assert np.abs(seen.mean(axis=0)).max() < 5.0
    assert spread.max() < 20.0
    # A door that stays shut and a nail that stays outside don't vary.
    small = [i for i, value in enumerate(spread) if 0.005 < value < 0.05 and i not in resting]
    assert small == []
    assert np.mean(spread > 0.1) > 0.7


def test_the_reward_still_reads_metres():
    env = TaskEnv(FetchPush())
    env.reset(seed=0)
    observation = env.step(np.zeros(4, np.float32))[0]
    state = env.layout.record(env.state_vector)
    np.testing.assert_array_equal(state.object_position, env._raw["observation"][3:6])
    way = 10.0 * (state.object_position - state.gripper_position)
    np.testing.assert_allclose(observation[3:6], way, rtol=1e-5)
    np.testing.assert_allclose(observation[9:12], 5.0 * state.gripper_velocity, atol=1e-6)
    np.testing.assert_allclose(observation[12:15], 5.0 * state.object_velocity, atol=1e-6)
    env.close()


def test_equal_observations_are_seen_as_equal_in_any_episode():
    """No statistics are kept: weights mean the same in the evaluator."""
    env = TaskEnv(HandReach())
    first, _ = env.reset(seed=3)
    for seed in range(3):
        env.reset(seed=seed)
        env.step(np.ones(env.action_space.shape, np.float32))
    np.testing.assert_array_equal(env.reset(seed=3)[0], first)
    np.testing.assert_array_equal(TaskEnv(HandReach()).reset(seed=3)[0], first)
    env.close()


@dataclass(frozen=True)
class Doubled(PlanarReach):
    def policy_observation(self, observation):
        return np.append(2.0 * observation, 1.0)


def test_a_task_may_show_its_policies_anything():
    plain, doubled = TaskEnv(PlanarReach()), TaskEnv(Doubled())
    assert doubled.observation_space.shape == (plain.observation_space.shape[0] + 1,)
    seen, shown = plain.reset(seed=1)[0], doubled.reset(seed=1)[0]
    np.testing.assert_array_equal(shown, np.append(2.0 * seen, 1.0).astype(np.float32))
    assert doubled.observation_space.contains(shown)
