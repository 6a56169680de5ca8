"""Observations in the trial's frame say where things are in the house."""

import dataclasses

import gymnasium as gym
import numpy as np
import pytest

from embodied_icrl.common.errors import ConfigError
from embodied_icrl.envs.object_nav_config import ObjectNavConfig
from embodied_icrl.envs.object_nav_frame import TrialFrame
from embodied_icrl.houses.generate import HouseConfig
from embodied_icrl.simulators.base import DetectorSensor, RaySensor

ENVS = 4
KINDS = ("plant", "ball", "guitar")


def config(**changes):
    base = ObjectNavConfig(
        sensors={"detector": DetectorSensor(fov=120.0, max_distance=6.0)},
        houses=HouseConfig(n_rooms=1, n_objects=3, categories=KINDS),
        actions=("forward", "turn_left", "turn_right"),
        stop="automatic",
        horizon=30,
        frame=TrialFrame(heading_parts=12, cell=0.5, cells=20),
    )
    return dataclasses.replace(base, **changes)


@pytest.fixture(scope="module")
def env():
    env = config().build(ENVS, seed=3)
    yield env
    env.close()


def walk(env, steps=120):
    obs, _ = env.reset(seed=3)
    origin = env.simulator.positions[:, ::2].copy(), env.simulator.yaw.copy()
    rng = np.random.default_rng(0)
    yield origin, obs
    for _ in range(steps):
        yield origin, env.step(rng.integers(3, size=ENVS))[0]


def in_frame(points, origin):
    """House points (x, z) `[point, 2]` to the right and ahead of a pose."""
    (x, z), yaw = origin
    dx, dz = points[:, 0] - x, points[:, 1] - z
    right = dx * np.cos(yaw) - dz * np.sin(yaw)
    ahead = -dx * np.sin(yaw) - dz * np.cos(yaw)
    return np.stack([right, ahead], axis=1)


def test_what_is_seen_is_where_it_stands(env):
    seen, asked = 0, 0
    for (places, yaws), obs in walk(env):
        for i in range(ENVS):
            visible, target = obs["detector.visible"][i], obs["target"][i]
            if not visible.any():
                assert obs["seen"][i] == 0
                assert (obs["seen_cell"][i] == 0).all() and (obs["seen_at"][i] == 0).all()
                continue
            category = obs["seen"][i] - 1
            distance = np.where(visible, obs["detector.where"][i, :, 2], np.inf)
            assert category == (target if visible[target] else distance.argmin())
            instances = env.simulator.instances(i)
            truth = in_frame(instances.centres[:, ::2], (places[i], yaws[i]))
            given = obs["seen_at"][i] * env.config.gps_range
            of_kind = truth[instances.categories == category]
            assert np.linalg.norm(of_kind - given, axis=1).min() < 1e-4
            low = (obs["seen_cell"][i] - 1 - 10) * 0.5
            assert ((given >= low - 1e-5) & (given <= low + 0.5 + 1e-5)).all()
            seen, asked = seen + 1, asked + int(category == target)
    assert seen > 50 and 10 < asked < seen


def test_classes_agree_with_the_numbers(env):
    for _, obs in walk(env):
        angle = np.arctan2(obs["heading"][:, 0], obs["heading"][:, 1])
        centre = obs["heading_part"] * (2 * np.pi / 12)
        off = np.abs((angle - centre + np.pi) % (2 * np.pi) - np.pi)
        assert (off <= np.pi / 12 + 1e-5).all()
        metres = obs["gps"] * env.config.gps_range
        low = (obs["cell"] - 10) * 0.5
        assert ((metres >= low - 1e-5) & (metres <= low + 0.5 + 1e-5)).all()


def test_far_from_the_first_pose_the_cell_is_the_last():
    frame = TrialFrame(cell=0.5, cells=4, detector=None)
    found = frame.observe(
        np.array([[-9.0, 9.0]]), np.zeros(1), np.zeros(1, dtype=int), {}, {}, None
    )
    np.testing.assert_array_equal(found["cell"], [[0, 3]])
    assert found.keys() == frame.spaces({}, 3).keys()


def test_the_spaces_hold_the_observations(env):
    space = env.single_observation_space
    assert isinstance(space["heading_part"], gym.spaces.Discrete)
    for _, obs in walk(env, 5):
        assert env.observation_space.contains(obs)


def test_a_frame_without_its_detector():
    with pytest.raises(ConfigError, match=r"frame\.detector: there is no DetectorSensor called"):
        config(sensors={"rays": RaySensor()}).build(1)
    with pytest.raises(ConfigError, match="at least 2"):
        TrialFrame(heading_parts=1)


def test_start_headings_are_whole_parts():
    env = config(start_headings=12).build(ENVS, seed=3)
    yaws = []
    for _, obs in walk(env, 90):
        angle = np.arctan2(obs["heading"][:, 0], obs["heading"][:, 1])
        yaws.append(angle / (2 * np.pi) * 12)
    env.close()
    off = np.abs(np.concatenate(yaws) - np.round(np.concatenate(yaws)))
    assert off.max() < 1e-5
    assert len(np.unique(np.round(np.concatenate(yaws)))) > 6
    with pytest.raises(ConfigError, match="start_headings=0 must be at least 1"):
        config(start_headings=0)
