"""Object navigation in the MuJoCo backend: walls, the oracle, baselines, processes and pictures."""

from __future__ import annotations

import dataclasses
import hashlib
import subprocess
import sys

import numpy as np
import pytest

from embodied_icrl.common.errors import ConfigError
from embodied_icrl.envs.object_nav_config import ObjectNavConfig
from embodied_icrl.envs.object_nav_frontier import FrontierExplorer
from embodied_icrl.envs.vector import make_envs
from embodied_icrl.evaluation.in_context import EvaluationConfig, measure_references
from embodied_icrl.houses.generate import HouseConfig
from embodied_icrl.houses.json_io import save_house
from embodied_icrl.simulators.base import DetectorSensor, RaySensor
from embodied_icrl.simulators.mujoco import MujocoConfig
from tests.envs import protocol
from tests.simulators.houses import two_rooms

NAMES = ("plant", "ball", "guitar", "suitcase", "backpack", "basket")
CONFIG = ObjectNavConfig(
    MujocoConfig(refine=1),
    sensors={"rays": RaySensor(), "detector": DetectorSensor()},
    categories=NAMES,
    houses=HouseConfig(n_rooms=1, n_objects=4, categories=NAMES),
    actions=("forward", "turn_left", "turn_right", "stop"),
    horizon=12,
    n_houses=3,
)
CHECKS = [
    protocol.check_spaces_and_types,
    protocol.check_slots_are_part_of_the_job,
    protocol.check_state_is_exact,
    protocol.check_pictures,
]


@pytest.mark.parametrize("check", CHECKS, ids=lambda c: c.__name__.removeprefix("check_"))
def test_protocol(check):
    check(CONFIG.build)


@pytest.fixture(scope="module")
def two_rooms_file(tmp_path_factory):
    """Two rooms of 4 m x 4 m, a suitcase in the second at (7, 3)."""
    path = tmp_path_factory.mktemp("houses") / "two_rooms.json"
    save_house(two_rooms(), path)
    return str(path)


@pytest.mark.parametrize(
    ("place", "yaw", "found"),
    [
        ((5.2, 0.0, 3.0), -np.pi / 2, True),
        ((4.4, 0.0, 3.0), -np.pi / 2, False),  # 2.35 m from the camera
        ((5.2, 0.0, 3.0), np.pi / 2, False),  # its back to it
        ((7.0, 0.0, 1.4), np.pi, True),
    ],
)
def test_stop_in_a_house_made_by_hand(two_rooms_file, place, yaw, found):
    env = dataclasses.replace(CONFIG, n_houses=0, house_files=(two_rooms_file,)).build(1)
    obs, _ = env.reset()
    assert obs["target"][0] == NAMES.index("suitcase")
    env.simulator.place(np.array([0]), np.array([place]), np.array([yaw]), np.radians([-22.0]))
    *_, info = env.step(np.array([3]))
    assert info["episode"]["success"][0] == found
    env.close()


def test_what_is_behind_a_wall_has_not_been_found(tmp_path):
    house = two_rooms()
    suitcase = dataclasses.replace(house.objects[0], position=(4.6, 0.0, 3.0))
    path = tmp_path / "house.json"
    save_house(dataclasses.replace(house, objects=(suitcase,)), path)
    env = dataclasses.replace(CONFIG, n_houses=0, house_files=(str(path),)).build(1)
    for place, yaw, found in [((3.2, 0, 3.0), -np.pi / 2, False), ((6.2, 0, 3.0), np.pi / 2, True)]:
        env.reset()
        env.simulator.place(np.array([0]), np.array([place]), np.array([yaw]), np.radians([-22.0]))
        assert env.may_succeed()[0], "near enough and ahead"
        *_, info = env.step(np.array([3]))
        assert info["episode"]["success"][0] == found
    env.close()


def test_stop_by_itself_comes_as_soon_as_the_action_would_succeed():
    asked = dataclasses.replace(CONFIG, horizon=60)
    config = dataclasses.replace(asked, stop="automatic")
    env, twin = config.build(4), asked.build(4)
    env.reset()
    twin.reset()
    finished = np.zeros(4, dtype=bool)
    for _ in range(60):
        actions = twin.oracle_action()
        would = np.array([twin.would_succeed(row) for row in range(4)])
        np.testing.assert_array_equal((actions == 3)[~finished], would[~finished])
        _, _, terminated, _, info = env.step(np.where(actions == 3, 1, actions))
        twin.step(np.where(actions == 3, 1, actions))
        now = np.array([twin.would_succeed(row) for row in range(4)])
        np.testing.assert_array_equal(terminated[~finished], now[~finished])
        if terminated.any():
            assert info["episode"]["success"][terminated & ~finished].all()
        finished |= terminated
        if finished.all():
            return
    pytest.fail("the oracle did not get there")


def test_nothing_that_the_reference_camera_sees_is_passed_over():
    env = CONFIG.build(1)
    env.reset()
    middles = env.houses[0].centres[env.houses[0].instances_of(int(env.targets[0]))]
    rng, shown = np.random.default_rng(0), 0
    for _ in range(300):
        # Around the object, with it somewhere near the picture's edge, the camera tilted steeply.
        bearing, distance = rng.uniform(0, 2 * np.pi), rng.uniform(0.2, 2.2)
        place = middles[0] + distance * np.array([np.sin(bearing), 0.0, np.cos(bearing)])
        yaw = bearing + rng.uniform(-2.5, 2.5)
        tilt = np.radians(rng.choice([-70.0, -52.0, -22.0, 8.0]))
        env.simulator.place(
            np.array([0]), np.array([[place[0], 0.0, place[2]]]), np.array([yaw]), np.array([tilt])
        )
        if env.would_succeed(0):
            shown += 1
            assert env.may_succeed()[0]
    assert shown > 30
    env.close()


def test_a_restored_oracle_and_map_forget_what_came_after():
    env = dataclasses.replace(CONFIG, horizon=60).build(1)
    env.reset()
    state = env.get_state()
    before = env.render_state(0).map
    first = []
    for _ in range(30):
        first.append(int(env.oracle_action()[0]))
        env.step(np.array(first[-1:]) % 3)
        env.render_state(0)
    env.set_state(state)
    np.testing.assert_array_equal(env.render_state(0).map, before)
    for action in first:
        assert env.oracle_action()[0] == action
        env.step(np.array([action]) % 3)
    env.close()


PLAY = """
import hashlib, numpy as np
from tests.envs.test_object_nav_mujoco import CONFIG, digest_of_a_play
print(digest_of_a_play())
"""


def digest_of_a_play() -> str:
    """All observations and rewards of a few episodes, as one number."""
    env = dataclasses.replace(CONFIG, horizon=10).build(3, seed=4, split="validation")
    digest = hashlib.sha256()
    obs, _ = env.reset()
    rng = np.random.default_rng(0)
    for _ in range(25):
        for key in sorted(obs):
            digest.update(np.ascontiguousarray(obs[key]).tobytes())
        obs, reward, *_ = env.step(rng.choice(4, size=3, p=[0.6, 0.17, 0.2, 0.03]))
        digest.update(reward.tobytes())
    env.close()
    return digest.hexdigest()


def test_two_processes_see_exactly_the_same():
    done = subprocess.run([sys.executable, "-c", PLAY], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == digest_of_a_play()


def test_workers_return_what_one_process_returns():
    plain = make_envs(CONFIG, 3, seed=1)
    spread = make_envs(CONFIG, 3, seed=1, workers=2)
    try:
        protocol.assert_obs_equal(plain.reset()[0], spread.reset()[0])
        actions = protocol.random_actions(plain, 20)
        protocol.assert_same_play(protocol.play(plain, actions), protocol.play(spread, actions))
        np.testing.assert_array_equal(plain.oracle_action(), spread.oracle_action())
    finally:
        spread.close()
        plain.close()


def oracle_successes(
    config: ObjectNavConfig, episodes: int, num_envs: int
) -> tuple[float, float, float]:
    """Success and SPL of the oracle, over at least so many episodes of new houses, and the share of
    its ways to a success that are shorter than the shortest one, by more than 5 cm."""
    env = config.build(num_envs, split="validation")
    success, spl, shorter = [], [], []
    while len(success) < episodes:
        env.reset(options={"new_trial": True})
        counts = np.zeros(num_envs, dtype=int)
        while counts.min() < 3:
            *_, info = env.step(env.oracle_action())
            if "_episode" in info:
                ended = info["_episode"] & (counts < 3)
                success += info["episode"]["success"][ended].tolist()
                spl += info["episode"]["spl"][ended].tolist()
                done = ended & (info["episode"]["success"] > 0)
                less = info["episode"]["shortest"] - info["episode"]["path"]
                shorter += (less[done] > 0.05).tolist()
                counts += ended
    env.close()
    return float(np.mean(success)), float(np.mean(spl)), float(np.mean(shorter))


LADDER = dataclasses.replace(
    CONFIG, houses=HouseConfig(max_rooms=2, n_objects=6, categories=NAMES), n_houses=0, horizon=100
)


def test_the_oracle_finds_what_it_is_asked_for():
    success, spl, shorter = oracle_successes(LADDER, 24, 8)
    assert success >= 0.95
    # A step of 0.25 m overshoots, and turns of 30 degrees make ways a little longer.
    assert spl >= 0.85
    # Success and the shortest way mean the same places; where an object is half hidden, the places
    # that are found in advance are a little farther in.
    assert shorter < 0.1


@pytest.mark.slow
@pytest.mark.parametrize("rooms", [2, 4])
def test_the_oracle_hardly_ever_fails(rooms):
    houses = HouseConfig(max_rooms=rooms, n_objects=3 * rooms)
    config = dataclasses.replace(LADDER, categories=(), houses=houses, horizon=250)
    success, spl, shorter = oracle_successes(config, 300, 20)
    assert success >= 0.99
    assert spl >= 0.85
    assert shorter < 0.1


def test_references_have_the_baselines_in_their_order():
    config = dataclasses.replace(CONFIG, stop="automatic", horizon=60)
    # To train in there are three houses only, which makes it fast.
    settings = EvaluationConfig(split="train", n_trials=6, n_episodes=3, num_envs=6)
    means = measure_references(config, settings)
    assert set(means) == {"random", "frontier", "frontier_map", "oracle"}
    assert means["random"]["success"] < means["frontier"]["success"]
    assert means["frontier"]["success"] >= 0.8
    assert means["oracle"]["length"] < means["frontier"]["length"] < means["random"]["length"]
    assert set(means["oracle"]) >= {"soft_spl", "path", "distance_to_goal", "collisions"}


def test_an_explorer_needs_rays():
    with pytest.raises(ConfigError, match="RaySensor"):
        FrontierExplorer(dataclasses.replace(CONFIG, sensors={}), 1, "trial")
    assert dataclasses.replace(CONFIG, sensors={}).baselines(2) == {}


def test_pictures_drawn_from_rays_come_with_a_line_about_better_ones(monkeypatch):
    monkeypatch.setattr("ctypes.util.find_library", lambda name: None)
    monkeypatch.delenv("MUJOCO_GL", raising=False)
    env = CONFIG.build(1)
    env.reset()
    assert "apt-get install" in env.render_state(0).note
    env.close()


def test_what_has_been_seen_grows_within_a_trial_and_is_forgotten_after_it():
    env = CONFIG.build(1)
    env.reset()
    dark = [int(env.render_state(0).map.sum())]
    for _ in range(4):
        env.step(np.array([1]))
        dark.append(int(env.render_state(0).map.sum()))
    assert dark == sorted(dark) and dark[-1] > dark[0]
    env.reset()
    assert int(env.render_state(0).map.sum()) >= dark[-1]
    env.reset(options={"new_trial": True, "task_ids": np.array([3])})
    assert int(env.render_state(0).map.sum()) < dark[-1]
