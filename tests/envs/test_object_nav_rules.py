"""The rules of object navigation, counted by hand on a simulator without walls."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from embodied_icrl.common.config import build
from embodied_icrl.common.errors import ConfigError
from embodied_icrl.envs.object_nav import ObjectNav
from embodied_icrl.envs.object_nav_config import ObjectNavConfig
from embodied_icrl.houses.generate import (
    HouseConfig,
    TooManyObjectsError,
    generate_house,
    house_seed,
)
from tests.envs.plain_simulator import PlainConfig

CONFIG = ObjectNavConfig(
    PlainConfig(),
    sensors={},
    houses=HouseConfig(n_rooms=3, n_objects=2, categories=("ball", "plant")),
    start_points=40,
    horizon=80,
)
FORWARD, LEFT, RIGHT, UP, DOWN, STOP = range(6)


def at_target(config: ObjectNavConfig, distance: float, off: float = 0.0) -> ObjectNav:
    """An agent whose camera is `distance` metres from a target, and looks `off` radians aside."""
    env = config.build(1)
    env.reset()
    house, simulator = env.houses[0], env.simulator
    centre = house.centres[house.instances_of(int(env.targets[0]))[0]]
    yaw = 0.3
    aim = np.array([-np.sin(yaw), 0.0, -np.cos(yaw)])
    looks = np.array([-np.sin(yaw + off), 0.0, -np.cos(yaw + off)])
    place = centre - distance * aim - config.body.camera_ahead * looks
    place[1] = 0.0
    simulator.place(np.array([0]), place[None], np.array([yaw + off]), np.zeros(1))
    return env


def stop(env: ObjectNav) -> tuple[bool, float]:
    _, reward, terminated, _, info = env.step(np.array([STOP]))
    assert terminated[0]
    assert info["sparse_reward"][0] == 2.0 * info["episode"]["success"][0]
    return bool(info["episode"]["success"][0]), float(reward[0])


@pytest.mark.parametrize(
    ("distance", "off", "pixels", "found"),
    [
        (1.95, 0.0, 10, True),
        (2.05, 0.0, 10, False),
        (1.5, 0.0, 9, False),
        (1.5, 0.7, 100, True),
        (1.5, 0.95, 100, False),
        (1.5, np.pi, 100, False),
    ],
)
def test_stop_succeeds_within_two_metres_with_ten_pixels_in_view(distance, off, pixels, found):
    config = dataclasses.replace(CONFIG, simulator=PlainConfig(pixels))
    success, _ = stop(at_target(config, distance, off))
    assert success == found


def test_reward_is_metres_saved_and_success_less_the_cost_of_steps():
    env = CONFIG.build(4)
    env.reset()
    total, shortest = np.zeros(4), env.simulator.distance(env.targets)
    for _ in range(80):
        done = env._ended.copy()
        before = env.simulator.distance(env.targets)
        _, reward, terminated, _, info = env.step(env.oracle_action())
        after = env.simulator.distance(env.targets)
        expected = before - after - 0.001 + 2.0 * terminated
        np.testing.assert_allclose(reward[~done], expected[~done], atol=1e-5)
        total += np.where(done, 0.0, reward)
        if terminated.any():
            row = int(np.flatnonzero(terminated)[0])
            steps = info["episode"]["l"][row]
            left = info["episode"]["distance_to_goal"][row]
            assert total[row] == pytest.approx(shortest[row] - left + 2 - 0.001 * steps, abs=1e-4)
            assert info["episode"]["r"][row] == pytest.approx(total[row], abs=1e-4)
            return
    pytest.fail("nobody finished")


def test_spl_is_the_shortest_walk_over_the_walk():
    env = CONFIG.build(1)
    env.reset()
    shortest = float(env.simulator.distance(env.targets)[0])
    start = env.simulator.positions.copy()
    path, collisions = 0.0, 0
    # A detour first: there and back, counted by the places where the agent was.
    for action in 2 * [FORWARD, FORWARD, FORWARD, *[LEFT] * 6]:
        before = env.simulator.positions.copy()
        obs, *_ = env.step(np.array([action]))
        path += float(np.linalg.norm(env.simulator.positions - before))
        collisions += int(obs["collided"][0, 0])
    while True:
        before = env.simulator.positions.copy()
        obs, _, terminated, _, info = env.step(env.oracle_action())
        path += float(np.linalg.norm(env.simulator.positions - before))
        collisions += int(obs["collided"][0, 0])
        if terminated[0]:
            break
    episode = {name: values[0] for name, values in info["episode"].items()}
    assert np.linalg.norm(env.simulator.positions - start) > 0.5
    assert episode["success"]
    assert episode["path"] == pytest.approx(path, abs=1e-5)
    assert episode["shortest"] == pytest.approx(shortest, abs=1e-5)
    assert episode["spl"] == pytest.approx(shortest / max(path, shortest), abs=1e-5)
    assert episode["collisions"] == collisions
    assert episode["soft_spl"] == pytest.approx(episode["spl"])
    assert 0 < episode["spl"] < 1


def test_a_failure_has_soft_spl_by_its_progress():
    env = CONFIG.build(1)
    env.reset()
    for _ in range(3):
        env.step(env.oracle_action())
    env.step(np.array([STOP]))
    env.reset()
    shortest = float(env.simulator.distance(env.targets)[0])
    for _ in range(4):
        env.step(env.oracle_action())
    left = float(env.simulator.distance(env.targets)[0])
    while env.would_succeed(0):
        env.step(np.array([LEFT]))
    *_, info = env.step(np.array([STOP]))
    path = float(info["episode"]["path"][0])
    assert info["episode"]["spl"][0] == 0 and not info["episode"]["success"][0]
    progress = max(0.0, 1 - left / shortest)
    expected = progress * shortest / max(path, shortest)
    assert info["episode"]["soft_spl"][0] == pytest.approx(expected, abs=1e-5)
    assert info["episode"]["distance_to_goal"][0] == pytest.approx(left, abs=1e-5)


def test_gps_and_heading_are_relative_to_the_first_pose_of_the_trial():
    env = CONFIG.build(3, seed=5)
    obs, _ = env.reset()
    np.testing.assert_allclose(obs["gps"], 0.0, atol=1e-6)
    np.testing.assert_allclose(obs["heading"], np.tile([0.0, 1.0], (3, 1)), atol=1e-6)
    first, yaw = env.simulator.positions.copy(), env.simulator.yaw.copy()
    obs, *_ = env.step(np.full(3, LEFT))
    np.testing.assert_allclose(obs["heading"], np.tile([0.5, 0.8660254], (3, 1)), atol=1e-6)
    obs, *_ = env.step(np.full(3, FORWARD))
    free = ~env.simulator.collided
    assert free.any()
    moved = np.array([-0.125, 0.25 * 0.8660254]) / 10
    np.testing.assert_allclose(obs["gps"][free], np.tile(moved, (free.sum(), 1)), atol=1e-6)
    # The next episode starts elsewhere, and is told where by the first pose.
    obs, _ = env.reset()
    away = np.linalg.norm(env.simulator.positions - first, axis=1)
    assert away.min() > 0
    np.testing.assert_allclose(np.linalg.norm(obs["gps"], axis=1) * 10, away, atol=1e-5)
    turned = env.simulator.yaw - yaw
    np.testing.assert_allclose(obs["heading"][:, 0], np.sin(turned), atol=1e-6)


def test_the_horizon_ends_an_episode_as_configured():
    for ends in ("terminated", "truncated"):
        env = dataclasses.replace(CONFIG, horizon=3, horizon_ends=ends).build(2)
        env.reset()
        for _ in range(3):
            _, _, terminated, truncated, info = env.step(np.full(2, LEFT))
        assert terminated.all() == (ends == "terminated")
        assert truncated.all() == (ends == "truncated")
        assert not info["episode"]["success"].any()
        env.reset()
        *_, terminated, truncated, _ = env.step(np.full(2, STOP))
        assert terminated.all() and not truncated.any()


def test_looking_up_and_down_stays_within_the_limits():
    env = CONFIG.build(1)
    env.reset()
    tilts = []
    for action in [DOWN, DOWN, DOWN, UP, UP, UP, UP]:
        env.step(np.array([action]))
        tilts.append(float(np.degrees(env.simulator.tilt[0])))
    np.testing.assert_allclose(tilts, [-52, -70, -70, -40, -10, 10, 10], atol=1e-9)


def test_episodes_ask_for_different_things_from_different_places():
    env = CONFIG.build(2)
    targets, places = [], []
    for _ in range(12):
        obs, _ = env.reset()
        targets.append(obs["target"].tolist())
        places.append(env.simulator.positions[0].tolist())
        assert (env.simulator.distance(env.targets) >= CONFIG.min_distance).all()
    assert len({tuple(place) for place in places}) > 4
    assert {0, 1} == {row[0] for row in targets} == {row[1] for row in targets}


def test_few_houses_come_again_to_train_in():
    config = dataclasses.replace(CONFIG, n_houses=3)
    env = config.build(2)
    env.reset(options={"task_ids": np.array([1, 4])})
    assert env.houses[0].spec == env.houses[1].spec
    poses = env.simulator.positions.copy()
    assert np.abs(poses[0] - poses[1]).max() > 0, "another task of the same house starts elsewhere"


@pytest.mark.parametrize(("split", "digit"), [("validation", 8), ("test", 9)])
def test_held_out_tasks_are_in_a_new_house_each_whatever_there_is_to_train_in(split, digit):
    def houses(seed, **changes):
        env = dataclasses.replace(CONFIG, **changes).build(4, split=split, seed=seed)
        env.reset()
        return [house.spec.seed for house in env.houses]

    few = houses(0, n_houses=3)
    assert len(set(few)) == 4 and {seed % 10 for seed in few} == {digit}
    assert few == houses(0), "as without n_houses"
    assert not set(few) & set(houses(1, n_houses=3)), "another seed visits others"


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"actions": ("forward", "stop")}, "turn"),
        ({"actions": ("forward", "turn_left")}, "stop=automatic"),
        ({"actions": ("forward", "turn_lft", "stop")}, "turn_left"),
        ({"actions": ("forward", "forward", "turn_left", "stop")}, "twice"),
        ({"categories": ("ball",)}, "plant"),
        ({"categories": ("bal", "plant")}, "ball"),
        ({"min_distance": 0.0}, "min_distance"),
        ({"max_distance": 0.5}, "max_distance"),
        ({"tilt_start": 30.0}, "tilt_start"),
        ({"n_houses": 2, "house_files": ("a.json",)}, "house_files"),
        ({"horizon": 0}, "horizon"),
    ],
)
def test_wrong_configurations_are_refused(change, word):
    with pytest.raises(ConfigError, match=word):
        dataclasses.replace(CONFIG, **change)


def test_a_distance_that_no_house_has_is_refused():
    env = dataclasses.replace(CONFIG, min_distance=60.0).build(1)
    with pytest.raises(ConfigError, match="min_distance"):
        env.reset()


def test_a_house_without_place_for_its_objects_is_passed_over():
    names = ("plant", "ball", "guitar", "suitcase")
    houses = HouseConfig(n_rooms=None, max_rooms=3, n_objects=4, categories=names)
    with pytest.raises(TooManyObjectsError, match="only 3 of 4 objects find a place in house 444"):
        generate_house(house_seed("train", 356), houses)
    env = dataclasses.replace(CONFIG, houses=houses, n_houses=400).build(2)
    env.reset(options={"task_ids": np.array([355, 356])})
    assert env.houses[0].spec.seed == house_seed("train", 355)
    assert env.houses[1].spec.seed not in (444, house_seed("train", 355))
    assert len(env.houses[1].spec.objects) == 4


def test_a_number_of_objects_that_no_house_has_place_for_is_refused():
    houses = HouseConfig(n_rooms=1, n_objects=25, categories=("ball", "plant"))
    env = dataclasses.replace(CONFIG, houses=houses).build(1)
    with pytest.raises(ConfigError, match="n_objects: only .* of 25 objects find a place"):
        env.reset()


def test_the_simulator_is_closed_with_the_environment_and_after_a_failure():
    env = CONFIG.build(1)
    env.close()
    assert env.simulator.closed
    with pytest.raises(ConfigError, match="house"):
        build({"houses": {"n_rooms": 13}}, ObjectNavConfig)
