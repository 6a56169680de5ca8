"""Darkroom: rewards, splits, and the optimal return against value iteration."""

from __future__ import annotations

import numpy as np
import pytest

from embodied_icrl.common.config import build
from embodied_icrl.common.errors import ConfigError
from embodied_icrl.envs.darkroom import DarkroomConfig

UP, DOWN, LEFT, RIGHT, STAY = range(5)


def best_return(dim: int, start: tuple[int, int], goal: tuple[int, int], horizon: int) -> float:
    """Value iteration over (column, row), written without the environment's tables."""
    value = np.zeros((dim, dim))
    for _ in range(horizon):
        paid = value.copy()
        paid[goal] += 1
        padded = np.pad(paid, 1, constant_values=-1)
        value = np.max(
            [paid, padded[:-2, 1:-1], padded[2:, 1:-1], padded[1:-1, :-2], padded[1:-1, 2:]], axis=0
        )
    return float(value[start])


def cell_xy(dim: int, cell: int) -> tuple[int, int]:
    return int(cell) % dim, int(cell) // dim


@pytest.mark.parametrize(
    "config",
    [DarkroomConfig(), DarkroomConfig(dim=5, horizon=3), DarkroomConfig(dim=4, split_by="goals")],
)
def test_optimal_return_is_that_of_value_iteration(config):
    env = config.build(40)
    env.reset()
    starts, goals = env._start, env._goal
    expected = [
        best_return(config.dim, cell_xy(config.dim, s), cell_xy(config.dim, g), config.horizon)
        for s, g in zip(starts, goals, strict=True)
    ]
    np.testing.assert_array_equal(env.optimal_return(), expected)


def test_moves_and_rewards_of_one_episode():
    env = DarkroomConfig(dim=3, horizon=6, split_by="goals", start=(0, 2)).build(7)
    obs, _ = env.reset()
    assert (obs["position"] == [0, 2]).all()
    places = []
    rewards = []
    for step, action in enumerate((DOWN, LEFT, UP, RIGHT, STAY, UP), start=1):
        obs, reward, terminated, truncated, _ = env.step(np.full(7, action))
        places.append(obs["position"][0].tolist())
        rewards.append(reward.copy())
        assert terminated.any() == (step == 6)
    assert terminated.all() and not truncated.any()  # the horizon is part of the task
    assert places == [[0, 2], [0, 2], [0, 1], [1, 1], [1, 1], [1, 0]]
    goals = [cell_xy(3, goal) for goal in env._goal]
    for row, goal in enumerate(goals):
        assert [r[row] for r in rewards] == [float(tuple(place) == goal) for place in places]


def test_pairs_are_split_without_overlap_and_without_loss():
    splits = {}
    for split in ("train", "test"):
        starts, goals = DarkroomConfig(dim=5).build(1, split=split).split_pairs()
        assert (starts != goals).all()
        splits[split] = set(zip(starts.tolist(), goals.tolist(), strict=True))
    assert not splits["train"] & splits["test"]
    assert len(splits["test"]) == 120 and len(splits["train"] | splits["test"]) == 600


def test_goals_are_split_80_to_20_around_the_fixed_start():
    config = DarkroomConfig(split_by="goals")
    train, test = (config.build(1, split=split).split_pairs() for split in ("train", "test"))
    assert set(train[0]) == set(test[0]) == {40}
    assert len(train[1]) == 64 and len(test[1]) == 16
    assert sorted([*train[1], *test[1]]) == [cell for cell in range(81) if cell != 40]


def test_which_pairs_are_held_out_depends_on_the_split_seed_only():
    def held_out(seed, split_seed):
        env = DarkroomConfig(split_seed=split_seed).build(1, split="test", seed=seed)
        return set(zip(*(cells.tolist() for cells in env.split_pairs()), strict=True))

    assert held_out(0, 0) == held_out(1, 0)
    assert held_out(0, 0) != held_out(0, 1)


def test_environments_play_the_pairs_of_their_split():
    config = DarkroomConfig(dim=4)
    for split in ("train", "test"):
        env = config.build(16, split=split)
        allowed = set(zip(*(cells.tolist() for cells in env.split_pairs()), strict=True))
        for _ in range(5):
            env.reset(options={"new_trial": True})
            assert set(zip(env._start.tolist(), env._goal.tolist(), strict=True)) <= allowed


def test_every_pair_comes_up_once_per_round():
    env = DarkroomConfig(dim=3).build(29, split="train")
    pairs = []
    for _ in range(4):  # 2 rounds of 58 pairs
        env.reset(options={"new_trial": True})
        pairs += list(zip(env._start.tolist(), env._goal.tolist(), strict=True))
    assert len(set(pairs[:58])) == len(set(pairs[58:])) == 58
    assert pairs[:58] != pairs[58:]


def test_success_is_having_been_on_the_goal_in_this_episode():
    env = DarkroomConfig(dim=2, horizon=3, split_by="goals", held_out=0.34).build(2)
    env.reset()
    goal = [cell_xy(2, cell) for cell in env._goal]
    for episode in range(2):
        for _ in range(3):
            action = np.array([STAY, STAY]) if episode else env.oracle_action()
            *_, info = env.step(action)
        np.testing.assert_array_equal(info["episode"]["success"], [not episode] * 2)
        env.step(np.array([STAY, STAY]))
    assert all(place != (1, 1) for place in goal)


@pytest.mark.parametrize(
    ("node", "message"),
    [
        ({"dim": 1}, "dim=1"),
        ({"horizon": 0}, "horizon=0"),
        ({"start": [1, 1]}, "split_by=goals"),
        ({"start": [9, 0], "split_by": "goals"}, "outside the 9 x 9 grid"),
        ({"held_out": 0.0}, "held_out=0.0"),
        ({"held_out": 1.2}, "held_out=1.2"),
        ({"split_by": "goal"}, "split_by"),
        ({"horizn": 3}, "horizon"),
    ],
)
def test_bad_configs_say_what_to_change(node, message):
    with pytest.raises(ConfigError, match=message):
        build(node, DarkroomConfig).build(2)
