"""Meta-World's tasks where the package is there; what is said where it is not."""

from __future__ import annotations

import importlib.util
import sys

import numpy as np
import pytest

from embodied_icrl.common.errors import ConfigError, MissingDependencyError
from embodied_icrl.manipulation.meta_world import (
    MetaWorldDoorOpen,
    MetaWorldDrawerOpen,
    MetaWorldPickPlace,
    MetaWorldPush,
    MetaWorldReach,
)
from embodied_icrl.manipulation.task_env import TaskEnv
from embodied_icrl.reward_search.loading import load_reward
from embodied_icrl.reward_search.static_check import check_source
from tests.manipulation.episodes import episode, fitness, name_of, seen_by_policies

TASKS = (
    MetaWorldReach(),
    MetaWorldPush(),
    MetaWorldPickPlace(),
    MetaWorldDoorOpen(),
    MetaWorldDrawerOpen(),
)
installed = pytest.mark.skipif(
    importlib.util.find_spec("metaworld") is None, reason="metaworld: make metaworld"
)


def test_without_the_package_the_error_says_how_to_get_it(monkeypatch):
    for name in [name for name in sys.modules if name.split(".")[0] == "metaworld"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [_Hide(), *sys.meta_path])
    with pytest.raises(MissingDependencyError, match="make metaworld"):
        TaskEnv(MetaWorldReach())


class _Hide:
    """A finder that finds no metaworld."""

    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "metaworld":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


@pytest.mark.parametrize("task", TASKS, ids=name_of)
def test_declarations_and_baselines_are_sound_without_the_package(task):
    names = [field.name for field in task.fields]
    for source in (task.human_reward, task.sparse_reward):
        assert check_source(source, names) == []


def test_episodes_are_no_longer_than_meta_worlds():
    with pytest.raises(ConfigError, match="500"):
        MetaWorldReach(horizon=501)


@installed
@pytest.mark.parametrize("task", TASKS, ids=name_of)
def test_fitness_tells_success_from_noise(task):
    assert fitness(task, 5, "scripted") > 0.7
    assert fitness(task, 6, "random") < 0.1
    assert fitness(task, 2, "idle") < 0.01


@installed
@pytest.mark.parametrize("task", TASKS, ids=name_of)
def test_the_human_reward_prefers_success(task):
    means = []
    for policy in ("scripted", "random"):
        rewards = []
        human = load_reward(task.human_reward)

        def recorded(state, human=human, rewards=rewards):
            total, components = human(state)
            rewards.append(total)
            return total, components

        env = TaskEnv(task, recorded)
        episode(env, 0, policy)
        env.close()
        means.append(np.mean(rewards))
    assert means[0] > means[1]


@installed
@pytest.mark.parametrize("task", TASKS, ids=name_of)
def test_success_is_that_of_the_package(task):
    env = TaskEnv(task)
    env.reset(seed=1)
    for _ in range(120):
        action = env.expert_action()
        _, _, _, _, info = env.step(action)
        theirs = env.simulator.unwrapped.evaluate_state(env._raw, action)[1]["success"]
        assert info["success"] == bool(theirs)
    env.close()


@installed
def test_a_seed_makes_the_episode():
    first, second = TaskEnv(MetaWorldPush()), TaskEnv(MetaWorldPush())
    start = first.reset(seed=5)[0]
    np.testing.assert_array_equal(second.reset(seed=5)[0], start)
    assert not np.array_equal(second.reset()[0], start)
    np.testing.assert_array_equal(second.reset(seed=5)[0], start)
    action = np.array([0.3, -0.2, 0.1, 0.5], np.float32)
    np.testing.assert_array_equal(first.step(action)[0], second.step(action)[0])
    assert np.any(first._raw[-3:] != 0.0)  # the target is in the observation


@installed
@pytest.mark.parametrize("task", TASKS, ids=name_of)
def test_progress_counts_from_the_start_of_the_episode(task):
    env = task.make_env()
    start, _ = env.reset(seed=4)
    simulator = env.unwrapped
    place = slice(4, 7) if task.object_field else slice(36, 39)
    goal = start[36:39] if task.object_field else simulator.tcp_center
    measures = []
    for share in (-0.5, 0.0, 0.2, 0.4, 0.6, 0.8, 1.0):
        moved = start.copy()
        moved[place] += share * (goal - start[place])
        measures.append(task.measure(env, moved))
    assert measures[:2] == [0.0, 0.0] and measures[-1] == 1.0
    assert all(before <= after for before, after in zip(measures, measures[1:]))
    assert 0.0 < measures[2] < measures[3] < 0.5
    env.close()


@installed
@pytest.mark.parametrize("task", TASKS, ids=name_of)
def test_the_first_observation_is_of_this_episode(task):
    env = task.make_env()
    for seed in range(3):
        start, _ = env.reset(seed=seed)
        following = env.step(np.zeros(4, np.float32))[0]
        np.testing.assert_allclose(following[:18], start[:18], atol=0.005)
        np.testing.assert_allclose(following[18:36], start[:18], atol=1e-9)
    env.close()


@installed
@pytest.mark.parametrize("task", TASKS, ids=name_of)
def test_what_a_policy_sees_is_of_the_order_of_one(task):
    seen = seen_by_policies(task, 2)
    spread = seen.std(axis=0)
    assert np.abs(seen.mean(axis=0)).max() < 5.0 and spread.max() < 20.0
    small = [i for i, value in enumerate(spread) if 0.005 < value < 0.05]
    assert set(small) <= {20, 21, 22, 23}  # the quaternion of an object that keeps lying flat
    assert spread[:9].min() > 0.2
