"""The MuJoCo backend: what every simulator does, and what only this one promises."""

from __future__ import annotations

import dataclasses
import hashlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from embodied_icrl.common.config import build
from embodied_icrl.common.errors import ConfigError, MissingDependencyError
from embodied_icrl.houses.spec import HouseError
from embodied_icrl.simulators.base import (
    AgentBody,
    CameraSensor,
    RaySensor,
    ReferenceCamera,
    Simulator,
)
from embodied_icrl.simulators.cameras import Cameras
from embodied_icrl.simulators.mujoco import MujocoConfig, MujocoSimulator
from embodied_icrl.simulators.poses import pixel_directions
from embodied_icrl.simulators.scene import Scene
from embodied_icrl.simulators.sight import cast
from tests.simulators.houses import CATEGORIES, generated, two_rooms
from tests.simulators.suite import SENSORS, MakeSimulator, SimulatorSuite, arrays, everywhere, put


@pytest.fixture
def make_simulator() -> Iterator[MakeSimulator]:
    made: list[Simulator] = []

    def make(num_envs: int, sensors: dict, categories: tuple, **config: object) -> Simulator:
        made.append(MujocoConfig(**config).build(num_envs, sensors, categories))
        return made[-1]

    yield make
    for simulator in made:
        simulator.close()


class TestMujoco(SimulatorSuite):
    pass


def has_gl() -> bool:
    try:
        from embodied_icrl.houses.gl import gl_context

        gl_context(8, 8).free()
    except MissingDependencyError:
        return False
    return True


needs_gl = pytest.mark.skipif(not has_gl(), reason="no OpenGL library (make system-deps)")


def walk_digest() -> str:
    """A fingerprint of everything that some agents see and do."""
    simulator = MujocoConfig().build(3, SENSORS, CATEGORIES)
    rng = np.random.default_rng(0)
    for row in range(3):
        simulator.load(row, generated(row, 2))
        simulator.set_goals(row, [simulator.random_points(row, rng, 5)])
    everywhere(simulator, rng)
    out, digest = arrays(simulator), hashlib.sha256()
    for step in range(20):
        digest.update(simulator.forward(np.full(3, 0.25)).tobytes())
        simulator.turn(np.full(3, 0.4 * (step % 2)), np.zeros(3))
        simulator.observe(out)
        for array in (*out.values(), simulator.positions, simulator.distance(np.zeros(3, int))):
            digest.update(array.tobytes())
        digest.update(simulator.visible_pixels(step % 3, ReferenceCamera()).tobytes())
    simulator.close()
    return digest.hexdigest()


def test_two_processes_see_and_do_the_same() -> None:
    root = Path(__file__).resolve().parents[2]
    code = "from tests.simulators.test_mujoco import walk_digest; print(walk_digest())"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == walk_digest()


def test_pixel_counts_are_those_of_all_pixels(make_simulator: MakeSimulator) -> None:
    simulator = make_simulator(1, {}, CATEGORIES)
    assert isinstance(simulator, MujocoSimulator)
    simulator.load(0, generated(1, 2))
    camera = ReferenceCamera(width=96, height=64, fov=100.0)
    rows, columns = (index.ravel() for index in np.indices((64, 96)))
    local = pixel_directions(columns, rows, 96, 64, 100.0)
    rng, seen = np.random.default_rng(0), 0
    scene, n = simulator._scene(0), len(simulator.instances(0).names)
    for k in range(25):
        # Half of the time close to an instance, which may then reach behind the camera.
        everywhere(simulator, rng)
        if k % 2:
            near = simulator.points_around(0, simulator.instances(0).centres[k % n], 0.6, 0.05)
            if len(near):
                put(simulator, 0, near[0], rng.uniform(0, 360), rng.uniform(-70, 10))
        eye, axes = simulator._view(0)
        owners = scene.owners[cast(scene, eye, local @ axes)[0]]
        expected = np.bincount(owners[owners >= 0], minlength=n)
        np.testing.assert_array_equal(simulator.visible_pixels(0, camera), expected)
        seen += int(expected.sum())
        for i in np.flatnonzero(expected):
            assert simulator.shows(0, camera, np.array([i]), int(expected[i]))
            assert not simulator.shows(0, camera, np.array([i]), int(expected[i]) + 1)
    assert seen > 500


def test_agents_in_one_house_share_it(make_simulator: MakeSimulator) -> None:
    simulator = make_simulator(3, {}, CATEGORIES, kept_houses=1)
    for row in range(3):
        simulator.load(row, generated(row // 2, 1))
    assert simulator._scene(0) is simulator._scene(1)
    assert len(simulator._kept) == 1
    simulator.load(1, dataclasses.replace(generated(1, 1)))
    assert simulator._scene(1) is simulator._scene(2), "equal houses are the same"


def test_a_house_with_a_missing_mesh_is_refused_and_the_next_one_loads(
    make_simulator: MakeSimulator,
) -> None:
    spec = two_rooms()
    broken = dataclasses.replace(spec.objects[0], model="/nowhere/thing.glb")
    simulator = make_simulator(1, {}, CATEGORIES)
    with pytest.raises(HouseError, match="thing.glb"):
        simulator.load(0, dataclasses.replace(spec, objects=(broken,)))
    simulator.load(0, spec)
    assert simulator.instances(0).names == ("suitcase",)


def test_a_house_with_an_unreachable_target_is_refused(make_simulator: MakeSimulator) -> None:
    closed = dataclasses.replace(two_rooms(), doorways=())
    with pytest.raises(HouseError, match="can't get into"):
        make_simulator(1, {}, CATEGORIES, check_houses=True).load(0, closed)


def test_no_room_for_the_agent_is_an_error() -> None:
    simulator = MujocoConfig().build(1, {}, CATEGORIES, AgentBody(radius=2.5))
    with pytest.raises(HouseError, match="no room for an agent of radius"):
        simulator.load(0, two_rooms())


def test_configurations_are_checked() -> None:
    target = {"_target_": "embodied_icrl.simulators.mujoco.MujocoConfig", "refine": 1}
    assert build(target) == MujocoConfig(refine=1)
    for config in ({"refine": 0}, {"kept_houses": 0}):
        with pytest.raises(ConfigError):
            MujocoConfig(**config)
    for sensor in (
        RaySensor(columns=0),
        RaySensor(max_distance=0.0),
        CameraSensor(kind="thermal"),
        CameraSensor(fov=190.0),
        AgentBody(),
    ):
        with pytest.raises(ConfigError, match="eye"):
            MujocoConfig().build(1, {"eye": sensor}, CATEGORIES)


def test_without_gl_cameras_are_refused_and_pictures_drawn(
    monkeypatch: pytest.MonkeyPatch, make_simulator: MakeSimulator
) -> None:
    monkeypatch.setattr("ctypes.util.find_library", lambda name: None)
    monkeypatch.delenv("MUJOCO_GL", raising=False)
    with pytest.raises(MissingDependencyError, match="apt-get install"):
        make_simulator(1, {"eye": CameraSensor()}, CATEGORIES)
    simulator = make_simulator(1, {}, CATEGORIES)
    simulator.load(0, two_rooms())
    put(simulator, 0, (7.0, 1.5), yaw=180, tilt=-22)
    assert simulator.picture(0, 48, 32).std() > 5
    assert "apt-get install" in simulator.picture_note


@needs_gl
def test_cameras_agree_with_rays(make_simulator: MakeSimulator) -> None:
    size = {"width": 48, "height": 32, "fov": 80.0}
    sensors = {kind: CameraSensor(kind=kind, **size) for kind in ("rgb", "depth", "semantic")}
    simulator = make_simulator(3, sensors, CATEGORIES)
    for row in range(3):
        simulator.load(row, generated(row % 2, 2))
    everywhere(simulator, np.random.default_rng(2))
    out = arrays(simulator)
    simulator.observe(out)
    rows, columns = (index.ravel() for index in np.indices((32, 48)))
    local = pixel_directions(columns, rows, 48, 32, 80.0)
    for row in range(3):
        eye, axes = simulator._view(row)
        scene = simulator._scene(row)
        geoms, distance = cast(scene, eye, local @ axes)
        # Where a ray passes an edge, the two may differ.
        assert (scene.classes[geoms] == out["semantic"][row].ravel()).mean() > 0.97
        deep = np.minimum(distance * local[:, 2], 10.0)
        assert np.median(np.abs(deep - out["depth"][row].ravel())) < 5e-3
        assert out["rgb"][row].std() > 5


@needs_gl
def test_a_house_is_sent_once_however_many_there_are(
    make_simulator: MakeSimulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[str] = []
    send = Cameras._send

    def counted(cameras: Cameras, scene: Scene) -> object:
        sent.append(scene.spec.name)
        return send(cameras, scene)

    monkeypatch.setattr(Cameras, "_send", counted)
    sensors = {"eye": CameraSensor(width=16, height=16)}
    simulator = make_simulator(3, sensors, CATEGORIES, kept_uploads=1)
    for row in range(3):
        simulator.load(row, generated(row, 1))
    everywhere(simulator, np.random.default_rng(0))
    out, again = arrays(simulator), arrays(simulator)
    simulator.observe(out)
    simulator.observe(again)
    np.testing.assert_array_equal(again["eye"], out["eye"])
    assert sent == ["house_0", "house_1", "house_2"]
    # A fourth house takes the place of the one that nobody is in any more.
    pose = simulator.positions[1:2].copy(), simulator.yaw[1:2].copy(), simulator.tilt[1:2].copy()
    simulator.load(1, generated(3, 1))
    everywhere(simulator, np.random.default_rng(0))
    simulator.observe(again)
    simulator.observe(again)
    assert sent[3:] == ["house_3"]
    simulator.load(1, generated(1, 1))
    simulator.place(np.array([1]), *pose)
    simulator.observe(again)
    assert sent[4:] == ["house_1"]
    np.testing.assert_array_equal(again["eye"][1], out["eye"][1])


@needs_gl
def test_a_picture_does_not_depend_on_what_was_drawn_before(make_simulator: MakeSimulator) -> None:
    simulator = make_simulator(2, {}, CATEGORIES)
    for row in range(2):
        simulator.load(row, generated(row, 2))
    everywhere(simulator, np.random.default_rng(0))
    fresh = simulator.picture(0, 64, 48)
    simulator.picture(1, 200, 120, 60.0)
    place = simulator.positions[0].copy()
    put(simulator, 0, simulator.random_points(0, np.random.default_rng(4), 1)[0], 200)
    assert not np.array_equal(simulator.picture(0, 64, 48), fresh)
    again = MujocoConfig().build(1, {}, CATEGORIES)
    again.load(0, generated(0, 2))
    everywhere(again, np.random.default_rng(0))
    np.testing.assert_array_equal(again.positions[0], place)
    np.testing.assert_array_equal(again.picture(0, 64, 48), fresh)
    again.close()
