"""Dark key-to-door: rewards, splits, starts, and the optimal return against a search."""

from __future__ import annotations

import numpy as np
import pytest

from embodied_icrl.common.config import build
from embodied_icrl.common.errors import ConfigError
from embodied_icrl.envs.key_to_door import KeyToDoorConfig

STAY = 4


def best_return(dim: int, start: int, key: int, door: int, horizon: int) -> int:
    """Breadth-first search over (cell, has key), written without the environment's tables."""
    level, seen, best = {(start, False)}, set(), 0
    for _ in range(horizon):
        reached = set()
        for cell, has_key in level:
            x, y = cell % dim, cell // dim
            for nx, ny in ((x - 1, y), (x + 1, y), (x, y - 1), (x, y + 1), (x, y)):
                if not (0 <= nx < dim and 0 <= ny < dim):
                    continue
                place = ny * dim + nx
                if has_key and place == door:
                    return 2
                reached.add((place, has_key or place == key))
        seen |= level
        level = reached - seen
        best = max(best, *(int(has_key) for _, has_key in reached))
    return best


@pytest.mark.parametrize("start", ["centre", "trial", "episode"])
@pytest.mark.parametrize("horizon", [3, 6, 30])
def test_optimal_return_is_that_of_a_search(start, horizon):
    env = KeyToDoorConfig(dim=5, horizon=horizon, start=start).build(25)
    env.reset()
    expected = [
        best_return(5, int(cell), int(key), int(door), horizon)
        for cell, key, door in zip(env._cell, env._key, env._door, strict=True)
    ]
    np.testing.assert_array_equal(env.optimal_return(), expected)


def walk(env, goal, limit=20):
    """Walk the only environment to a cell; the rewards on the way, and whether it ended there."""
    rewards = []
    while env._cell[0] != goal:
        _, reward, terminated, truncated, info = env.step(env.grid.toward(env._cell, goal))
        rewards.append(float(reward[0]))
        assert not truncated.any() and len(rewards) < limit
    return rewards, bool(terminated[0]), info


@pytest.mark.parametrize("task", range(6))
def test_key_pays_once_then_the_door_pays_and_ends(task):
    env = KeyToDoorConfig(dim=5).build(1)
    env.reset(options={"task_ids": np.array([task])})
    key, door = env._key.copy(), env._door.copy()
    rewards, ended, _ = walk(env, key)
    assert rewards == [0.0] * (len(rewards) - 1) + [1.0] and not ended
    for _ in range(3):
        _, reward, *_ = env.step(np.array([STAY]))
        assert reward[0] == 0
    more, ended, info = walk(env, door)
    assert more == [0.0] * (len(more) - 1) + [1.0] and ended
    assert info["episode"]["r"][0] == 2 and info["episode"]["success"][0]
    assert info["episode"]["l"][0] == len(rewards) + 3 + len(more)
    env.step(np.array([STAY]))
    assert env._cell[0] == env.grid.centre and not env._has_key[0]


def test_the_door_without_the_key_pays_nothing():
    env = KeyToDoorConfig(dim=5, horizon=30).build(1)
    tried = 0
    for task in range(20):
        env.reset(options={"new_trial": True, "task_ids": np.array([task])})
        if env._door[0] == env.grid.centre:
            continue
        rewards, ended, _ = walk(env, env._door.copy())
        if sum(rewards) == 0:  # the way to the door did not lead over the key
            tried += 1
            assert not ended
            rewards, ended, _ = walk(env, env._key.copy())
            assert sum(rewards) == 1 and not ended
    assert tried >= 10


def test_the_observation_does_not_tell_whether_the_key_was_found():
    env = KeyToDoorConfig().build(2)
    assert list(env.single_observation_space) == ["position"]


def test_pairs_are_split_without_overlap_and_without_loss():
    for start, count in (("centre", 24 * 24), ("episode", 25 * 24)):
        config = KeyToDoorConfig(dim=5, start=start)
        pairs = {}
        for split in ("train", "test"):
            keys, doors = config.build(1, split=split).split_pairs()
            assert (keys != doors).all()
            assert start != "centre" or (keys != 12).all()
            pairs[split] = set(zip(keys.tolist(), doors.tolist(), strict=True))
        assert not pairs["train"] & pairs["test"]
        assert len(pairs["train"] | pairs["test"]) == count
        assert len(pairs["test"]) == round(0.2 * count)


def test_starts():
    starts = {}
    for start in ("centre", "trial", "episode"):
        env = KeyToDoorConfig(dim=5, start=start).build(6)
        env.reset()
        seen = [env._cell.copy()]
        for _ in range(7):
            env.reset()
            seen.append(env._cell.copy())
            assert (env._cell != env._key).all()
        starts[start] = np.array(seen)
    assert (starts["centre"] == 12).all()
    assert (starts["trial"] == starts["trial"][0]).all()
    assert len(set(starts["trial"][0])) > 1
    assert (starts["episode"] != starts["episode"][0]).any(axis=0).all()


@pytest.mark.parametrize(
    ("node", "message"),
    [({"horizon": 0}, "horizon=0"), ({"start": "corner"}, "start"), ({"held_out": 0}, "held_out")],
)
def test_bad_configs_say_what_to_change(node, message):
    with pytest.raises(ConfigError, match=message):
        build(node, KeyToDoorConfig).build(2)
