"""Pictures of tasks: with and without OpenGL, and without a trace in the simulation."""

from __future__ import annotations

import numpy as np
import pytest

from embodied_icrl.common.errors import ConfigError, MissingDependencyError
from embodied_icrl.manipulation import render
from embodied_icrl.manipulation.adroit import AdroitDoor
from embodied_icrl.manipulation.fetch import FetchPush
from embodied_icrl.manipulation.planar_push import PlanarPush
from embodied_icrl.manipulation.planar_reach import PlanarReach
from embodied_icrl.manipulation.render import Marker, Scene, View, ray_picture
from embodied_icrl.manipulation.shadow_hand import HandBlock, HandReach
from embodied_icrl.manipulation.task_env import TaskEnv
from embodied_icrl.manipulation.valve_turn import ValveTurn
from tests.manipulation.episodes import name_of

TASKS = (PlanarReach(), PlanarPush(), ValveTurn(), FetchPush(), AdroitDoor(), HandBlock())


@pytest.fixture
def no_opengl(monkeypatch):
    def refuse(width, height):
        raise MissingDependencyError("no OpenGL here: install libegl1")

    monkeypatch.setattr(render, "gl_context", refuse)


def opened(task) -> TaskEnv:
    env = TaskEnv(task)
    env.reset(seed=2)
    env.step(np.zeros(env.action_space.shape, np.float32))
    return env


def rendered(env: TaskEnv, width: int, height: int) -> np.ndarray:
    picture = env.render(width, height)
    if env.window.note:
        pytest.skip(env.window.note)
    return picture


@pytest.mark.parametrize("task", TASKS, ids=name_of)
def test_both_ways_show_the_same_things(task):
    env = opened(task)
    picture = rendered(env, 96, 64)
    assert picture.shape == (64, 96, 3) and picture.dtype == np.uint8
    rays = ray_picture(task.scene(env.simulator, env._raw), task.view, 96, 64)
    assert rays.shape == picture.shape
    edges = []
    for image in (picture, rays):  # colours differ, outlines don't
        grey = image.mean(axis=2)
        slope = np.abs(np.diff(grey, axis=0))[:, 1:] + np.abs(np.diff(grey, axis=1))[1:]
        edges.append(np.minimum(slope, 60.0).ravel())
        assert len(np.unique(image.reshape(-1, 3), axis=0)) > 10
    assert np.corrcoef(edges)[0, 1] > 0.3
    env.close()


@pytest.mark.parametrize("task", [PlanarPush(), FetchPush(), HandReach(), HandBlock()], ids=name_of)
def test_a_filmed_episode_is_the_same_episode(task):
    def run(filmed: bool) -> np.ndarray:
        env = TaskEnv(task)
        rng = np.random.default_rng(0)
        seen = [env.reset(seed=1)[0]]
        for _ in range(6):
            if filmed:
                env.render(48, 32)
            seen.append(env.step(rng.uniform(-1, 1, env.action_space.shape))[0])
        env.close()
        return np.array(seen)

    np.testing.assert_array_equal(run(True), run(False))


def test_the_picture_follows_the_motion_and_the_size():
    env = opened(PlanarReach())
    before = rendered(env, 64, 48)
    np.testing.assert_array_equal(env.render(64, 48), before)
    for _ in range(6):
        env.step(np.ones(2, np.float32))
    assert np.any(env.render(64, 48) != before)
    assert env.render(100, 40).shape == (40, 100, 3)
    env.close()
    assert env.render(64, 48).shape == before.shape  # a closed window opens again
    env.close()


def test_two_windows_do_not_disturb_each_other():
    first, second = opened(PlanarReach()), opened(ValveTurn())
    alone = rendered(first, 64, 48)
    other = rendered(second, 40, 60)
    np.testing.assert_array_equal(first.render(64, 48), alone)
    second.close()
    np.testing.assert_array_equal(first.render(64, 48), alone)
    assert other.shape == (60, 40, 3)
    first.close()


def test_without_opengl_there_is_a_picture_and_a_line_that_says_why(no_opengl):
    env = opened(FetchPush())
    picture = env.render(60, 40)
    assert picture.shape == (40, 60, 3) and picture.std() > 10
    assert env.window.note == "drawn from rays, no OpenGL here: install libegl1"
    env.close()


@pytest.mark.parametrize("size", [(0, 40), (40, -1), (5000, 40)])
def test_sizes_that_no_picture_has(size):
    env = opened(PlanarReach())
    with pytest.raises(ConfigError, match="pixels"):
        env.render(*size)


def test_a_marker_is_where_it_was_put(no_opengl):
    env = opened(PlanarPush())
    scene = env.task.scene(env.simulator, env._raw)
    red = Marker((0.25, 0.0, 0.0), 0.03, (1.0, 0.0, 0.0, 1.0))
    view = View((0.0, 0.0, 0.0), 1.0, azimuth=90.0, elevation=-90.0)
    picture = ray_picture(Scene(scene.model, scene.data, (red,)), view, 80, 60)
    rows, columns = np.nonzero((picture == (255, 0, 0)).all(axis=2))
    half = 30 / np.tan(np.radians(scene.model.vis.global_.fovy) / 2)  # pixels per metre
    assert np.mean(columns) + 0.5 == pytest.approx(40 + 0.25 * half, abs=1.0)
    assert np.mean(rows) + 0.5 == pytest.approx(30, abs=1.0)


def test_markers_lie_alike_in_both_kinds_of_picture():
    env = opened(PlanarPush())
    rendered(env, 80, 60)
    env.close()
    scene = env.task.scene(env.simulator, env._raw)
    red = Marker((0.2, 0.1, 0.0), 0.04, (1.0, 0.0, 0.0, 1.0))
    scene = Scene(scene.model, scene.data, (red,))
    window = render.RenderWindow(env.task.view)
    centres = []
    for image in (window.picture(scene, 80, 60), ray_picture(scene, env.task.view, 80, 60)):
        strong = (image[..., 0] > 90) & (image[..., 1] < 60) & (image[..., 2] < 60)
        centres.append(np.mean(np.nonzero(strong), axis=1))
    window.close()
    np.testing.assert_allclose(centres[0], centres[1], atol=1.0)


def test_our_small_simulators_render_by_themselves():
    simulator = PlanarReach().make_env()
    simulator.reset(seed=0)
    assert simulator.render(64, 48).shape == (48, 64, 3)
    simulator.close()


def test_an_environment_without_a_model_is_named():
    class Other(PlanarReach):
        def make_env(self):
            import gymnasium as gym

            return gym.make("Pendulum-v1")

    env = TaskEnv.__new__(TaskEnv)
    env.task, env.simulator, env._raw = Other(), Other().make_env(), None
    env.window = render.RenderWindow(Other.view)
    with pytest.raises(ConfigError, match="override `scene`"):
        env.render()
