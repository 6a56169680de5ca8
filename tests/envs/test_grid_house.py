"""GridHouse: episodes, rewards, observations and the optimal return on whole trials."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from embodied_icrl.common.config import build
from embodied_icrl.common.errors import ConfigError
from embodied_icrl.envs.grid_house import GridHouse, GridHouseConfig
from embodied_icrl.envs.grid_layout import split_of
from tests.envs.test_grid_vision import plain_distances

MIXED = GridHouseConfig(size=9, n_rooms=(1, 2, 4), n_types=4)


def agent_cells(obs: dict[str, np.ndarray]) -> list[tuple[int, int]]:
    return [(int(row), int(column)) for column, row in obs["position"]]


def goal_distances(env: GridHouse, index: int, goal: int) -> np.ndarray:
    layout = env.layout(index)
    goals = [tuple(place) for place in np.argwhere(layout.objects == goal)]
    return plain_distances(layout.walls, goals)


@pytest.mark.parametrize(
    "config",
    [MIXED, GridHouseConfig(instances=3, min_distance=2), GridHouseConfig(size=13, horizon=9)],
)
def test_optimal_return_is_that_of_a_search(config):
    env = config.build(20)
    for _ in range(4):
        obs, _ = env.reset()
        expected = []
        for index, cell in enumerate(agent_cells(obs)):
            shortest = goal_distances(env, index, int(obs["goal"][index]))[cell]
            assert shortest >= config.min_distance
            found = shortest <= config.horizon
            expected.append(found - config.step_cost * min(shortest, config.horizon))
        np.testing.assert_allclose(env.optimal_return(), expected, atol=1e-12)


@given(st.integers(0, 10**6), st.sampled_from(["train", "validation", "test"]), st.integers(1, 9))
@settings(deadline=None, max_examples=40)
def test_every_object_can_be_reached_from_everywhere(seed, split, n_rooms):
    env = GridHouseConfig(n_rooms=n_rooms, n_types=5).build(1, split=split, seed=seed)
    env.reset()
    layout = env.layout(0)
    assert split_of(layout) == split
    for kind in range(5):
        distance = goal_distances(env, 0, kind)
        assert distance[~layout.walls].max() < 81


def test_reaching_the_goal_pays_one_less_the_cost_and_ends_with_spl():
    env = GridHouseConfig(step_cost=0.02).build(5)
    obs, _ = env.reset()
    cells, goals = agent_cells(obs), obs["goal"].copy()
    shortest = np.array(
        [goal_distances(env, i, int(goals[i]))[cell] for i, cell in enumerate(cells)]
    )
    # Two steps wasted: there and back again by the oracle, or against a wall.
    left = env.oracle_action()
    env.step(left)
    env.step(np.array([1, 0, 3, 2])[left])
    finished = np.zeros(5, dtype=bool)
    for _ in range(40):
        obs, reward, terminated, truncated, info = env.step(env.oracle_action())
        new = terminated & ~finished
        np.testing.assert_allclose(reward[new], 0.98, atol=1e-6)
        for index in np.flatnonzero(new):
            row, column = agent_cells(obs)[index]
            assert env.layout(index).objects[row, column] == goals[index] == obs["goal"][index]
            length = shortest[index] + 2
            assert info["episode"]["l"][index] == length
            assert info["episode"]["success"][index]
            assert info["episode"]["spl"][index] == pytest.approx(shortest[index] / length)
            assert info["episode"]["r"][index] == pytest.approx(1 - 0.02 * length, abs=1e-6)
        finished |= terminated
        if finished.all():
            break
    assert finished.all() and not truncated.any()


def test_a_failed_episode_has_no_success_and_no_spl():
    env = GridHouseConfig(horizon=2).build(6)
    env.reset()
    env.step(np.zeros(6, dtype=int))
    _, reward, terminated, truncated, info = env.step(np.ones(6, dtype=int))
    assert terminated.all() and not truncated.any()
    np.testing.assert_allclose(reward, -0.01)
    assert not info["episode"]["success"].any() and not info["episode"]["spl"].any()


def test_reaching_the_goal_with_the_last_step_is_a_success():
    env = GridHouseConfig(horizon=3).build(60)
    env.reset()
    for _ in range(3):
        _, reward, terminated, truncated, info = env.step(env.oracle_action())
    assert terminated.all() and not truncated.any()
    success = info["episode"]["success"]
    assert success.any() and not success.all()
    np.testing.assert_array_equal(success, reward > 0)


def test_starts_do_not_depend_on_the_goal_type():
    """For each goal type, starts come from all over the house (not from one part of the draw)."""
    env = GridHouseConfig(min_distance=1).build(1)
    starts: dict[int, list[int]] = {kind: [] for kind in range(4)}
    for _ in range(400):
        obs, _ = env.reset()
        row, _ = agent_cells(obs)[0]
        starts[int(obs["goal"][0])].append(row)
    for rows in starts.values():
        assert min(rows) == 0 and max(rows) == 8
        assert 2.5 < np.mean(rows) < 5.5


def test_goal_and_start_change_from_episode_to_episode_and_the_house_stays():
    env = GridHouseConfig().build(2)
    obs, _ = env.reset()
    house = [env.layout(index) for index in range(2)]
    goals, starts = [], []
    for _ in range(60):
        obs, _ = env.reset()
        goals.append(obs["goal"].copy())
        starts.append(agent_cells(obs))
    for index in range(2):
        for key in ("walls", "doors", "objects"):
            now, then = env.layout(index), house[index]
            np.testing.assert_array_equal(getattr(now, key), getattr(then, key))
        counts = np.bincount([int(goal[index]) for goal in goals], minlength=4)
        assert (counts >= 5).all() and len(counts) == 4
        assert len({start[index] for start in starts}) > 20


def test_new_trials_bring_new_houses_and_numbers_of_rooms():
    env = MIXED.build(30)
    env.reset()
    layouts = [env.layout(index) for index in range(30)]
    assert len({(x.walls.tobytes(), x.objects.tobytes()) for x in layouts}) == 30
    assert {int(layout.doors.sum()) + 1 for layout in layouts} == {1, 2, 4}


def test_splits_share_no_house():
    houses = {}
    for split in ("train", "validation", "test"):
        env = GridHouseConfig(size=5, n_types=2).build(50, split=split)
        houses[split] = set()
        for _ in range(4):
            env.reset(options={"new_trial": True})
            layouts = [env.layout(index) for index in range(50)]
            houses[split] |= {
                x.walls.tobytes() + x.doors.tobytes() + x.objects.tobytes() for x in layouts
            }
    for a in houses:
        for b in houses:
            assert a == b or not houses[a] & houses[b]


def test_view_bits_show_what_lies_around_the_agent():
    env = GridHouseConfig(n_types=3, max_types=6, instances=4, view_size=5).build(4)
    rng = np.random.default_rng(0)
    obs, _ = env.reset()
    unseen_share = []
    for _ in range(50):
        view = obs["view"].reshape(4, 5, 5, 3 + 6)
        assert (view.sum(axis=-1) <= 1).all()
        for index, (row, column) in enumerate(agent_cells(obs)):
            layout = env.layout(index)
            walls = np.pad(layout.walls, 2, constant_values=True)[
                row : row + 5, column : column + 5
            ]
            doors = np.pad(layout.doors, 2)[row : row + 5, column : column + 5]
            objects = np.pad(layout.objects, 2, constant_values=-1)
            objects = objects[row : row + 5, column : column + 5]
            wall, door, unseen, *types = np.moveaxis(view[index], -1, 0).astype(bool)
            np.testing.assert_array_equal(wall, walls & ~unseen)
            np.testing.assert_array_equal(door, doors & ~unseen)
            for kind in range(6):
                np.testing.assert_array_equal(types[kind], (objects == kind) & ~unseen)
                assert obs["visible"][index, kind] == types[kind].any()
            assert not unseen[1:4, 1:4].any()
            unseen_share.append(unseen.mean())
        obs, *_ = env.step(rng.integers(4, size=4))
    assert 0.05 < np.mean(unseen_share) < 0.6


def test_rooms_and_types_do_not_change_the_spaces():
    two = GridHouseConfig(n_rooms=2, n_types=4).build(1)
    four = GridHouseConfig(n_rooms=[2, 3, 4], n_types=5).build(1)
    assert two.single_observation_space == four.single_observation_space


def test_random_play_is_far_from_optimal():
    env = GridHouseConfig().build(50)
    env.reset()
    rng = np.random.default_rng(0)
    success, spl = [], []
    for _ in range(41 * 4):
        *_, info = env.step(rng.integers(4, size=50))
        if "_episode" in info:
            success += info["episode"]["success"][info["_episode"]].tolist()
            spl += info["episode"]["spl"][info["_episode"]].tolist()
    assert 0.1 < np.mean(success) < 0.7
    assert np.mean(spl) < 0.4


@pytest.mark.parametrize(
    ("node", "message"),
    [
        ({"n_rooms": 10}, "n_rooms=10 is out of range.*1 to 9"),
        ({"n_rooms": [2, 0]}, "n_rooms=0"),
        ({"n_rooms": []}, "empty list"),
        ({"n_types": 6}, "max_types=5 must lie between n_types=6 and 8"),
        ({"max_types": 9}, "max_types=9"),
        ({"view_size": 4}, "view_size=4"),
        ({"size": 3, "n_rooms": 1, "n_types": 5, "instances": 2}, "10 objects"),
        ({"instances": 8, "min_distance": 4}, "min_distance=4"),
        ({"min_distance": 99}, "min_distance=99"),
        ({"step_cost": -0.01}, "step_cost"),
        ({"horizon": 0}, "horizon=0"),
        ({"n_room": 2}, "n_rooms"),
    ],
)
def test_bad_configs_say_what_to_change(node, message):
    with pytest.raises(ConfigError, match=message):
        build(node, GridHouseConfig).build(2)
