"""The Habitat backend: on habitat_sim itself where there is one, and on a stand-in everywhere.

EMBODIED_ICRL_HABITAT_PYTHON names a Python that has habitat_sim, if this one hasn't.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from embodied_icrl.common.config import build
from embodied_icrl.common.errors import AssetError, ConfigError, MissingDependencyError
from embodied_icrl.houses.spec import HouseError
from embodied_icrl.simulators.base import (
    AgentBody,
    CameraSensor,
    DetectorSensor,
    RaySensor,
    ReferenceCamera,
    Simulator,
)
from embodied_icrl.simulators.habitat import HabitatConfig, HabitatSimulator
from embodied_icrl.simulators.habitat_files import made_once, scene_files
from embodied_icrl.simulators.habitat_ground import _border
from embodied_icrl.simulators.mujoco import MujocoConfig
from embodied_icrl.simulators.scenes import HabitatScene
from tests.simulators.houses import CATEGORIES, generated, two_rooms
from tests.simulators.stand_in_habitat import Simulator as StandIn
from tests.simulators.stand_in_habitat import modules
from tests.simulators.suite import SENSORS, MakeSimulator, SimulatorSuite, arrays, everywhere, put

PYTHON = os.environ.get("EMBODIED_ICRL_HABITAT_PYTHON")
HERE = importlib.util.find_spec("habitat_sim") is not None
needs_habitat = pytest.mark.skipif(
    not (HERE or PYTHON), reason="no habitat_sim (docs/habitat.md says how to get it)"
)


def maker(**changes: Any) -> Iterator[MakeSimulator]:
    made: list[Simulator] = []

    def make(num_envs: int, sensors: dict, categories: tuple, **config: Any) -> Simulator:
        config = HabitatConfig(**{**changes, **config})
        made.append(config.build(num_envs, sensors, categories))
        return made[-1]

    yield make
    for simulator in reversed(made):
        simulator.close()


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("habitat"))


@needs_habitat
class TestHabitat(SimulatorSuite):
    """On the real one. Its navigation mesh is made of cells of 5 cm."""

    graze, early, error, further = 0.065, 0.08, 0.05, 0.03

    @pytest.fixture
    def make_simulator(self, cache: str) -> Iterator[MakeSimulator]:
        yield from maker(cache=cache, python=None if HERE else PYTHON)


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, module in modules().items():
        monkeypatch.setitem(sys.modules, name, module)
    StandIn.loads.clear()


@pytest.fixture
def make_simulator(stand_in: None, cache: str) -> Iterator[MakeSimulator]:
    yield from maker(cache=cache)
    assert not StandIn.alive


class TestStandIn(SimulatorSuite):
    """The whole protocol, without habitat_sim."""

    graze, early, error = 3e-3, 3e-3, 0.03

    @pytest.fixture
    def make_simulator(self, stand_in: None, cache: str) -> Iterator[MakeSimulator]:
        yield from maker(cache=cache, probe_pixels=64)
        assert not StandIn.alive

    @pytest.mark.skip(reason="takes minutes with the rays of the stand-in")
    def test_what_is_called_in_sight_shows_pixels(self, make_simulator: MakeSimulator) -> None: ...


def test_rays_and_detector_agree_with_mujoco(make_simulator: MakeSimulator) -> None:
    sensors = {
        "rays": RaySensor(columns=24, rows=6),
        "wide": RaySensor(columns=19, rows=3, fov=200.0, vertical_fov=40.0),
        "detector": DetectorSensor(fov=120.0, vertical_fov=60.0),
    }
    pair = [
        make_simulator(6, sensors, CATEGORIES),
        MujocoConfig().build(6, sensors, CATEGORIES),
    ]
    seen = []
    for simulator in pair:
        for row in range(6):
            simulator.load(row, two_rooms() if row % 2 else generated(0, 2))
    for simulator in pair:
        rng = np.random.default_rng(3)
        for row in range(6):
            point = pair[1].random_points(row, rng, 1)[0]
            put(simulator, row, point, rng.uniform(0, 360), rng.uniform(-60, 10))
            if row % 2:
                centre = pair[1].instances(row).centres[0]
                point = pair[1].points_around(row, centre, 1.8, 0.1)[5 * row]
                x, _, z = centre - point
                put(simulator, row, point, np.degrees(np.arctan2(-x, -z)), -22)
        seen.append(arrays(simulator))
        simulator.observe(seen[-1])
    assert pair[0].observation_specs() == pair[1].observation_specs()
    for name in ("rays", "wide"):
        far = np.abs(seen[0][f"{name}.distance"] - seen[1][f"{name}.distance"]) * 5.0
        assert np.median(far) < 1e-3 and (far < 0.03).mean() > 0.93
        same = seen[0][f"{name}.class"] == seen[1][f"{name}.class"]
        assert same.mean() > 0.95
    visible = seen[0]["detector.visible"] == seen[1]["detector.visible"]
    assert visible.mean() > 0.9 and seen[1]["detector.visible"].sum() > 1
    both = (seen[0]["detector.visible"] & seen[1]["detector.visible"]).astype(bool)
    np.testing.assert_allclose(
        seen[0]["detector.where"][both], seen[1]["detector.where"][both], atol=1e-5
    )
    pair[1].close()


def test_cameras(make_simulator: MakeSimulator) -> None:
    size = {"width": 24, "height": 16, "fov": 80.0}
    sensors = {kind: CameraSensor(kind=kind, **size) for kind in ("rgb", "depth", "semantic")}
    simulator = make_simulator(1, sensors, CATEGORIES)
    simulator.load(0, two_rooms())
    put(simulator, 0, (7.0, 1.2), yaw=180, tilt=-22)
    out = arrays(simulator)
    simulator.observe(out)
    assert (out["semantic"] == 5).sum() > 5 and out["rgb"].std() > 5
    assert 0.5 < out["depth"].min() < out["depth"].max() <= 10.0
    put(simulator, 0, (7.0, 1.2), yaw=0, tilt=80)
    simulator.observe(out)
    sky = out["semantic"] == 0
    assert sky.any(), "there is no ceiling"
    assert (out["depth"][..., 0][sky] == 10.0).all()


def test_agents_in_one_house_share_a_simulator(make_simulator: MakeSimulator) -> None:
    simulator = make_simulator(4, {}, CATEGORIES)
    for row in range(4):
        simulator.load(row, generated(row // 2, 1))
    assert len(StandIn.alive) == 2 and len(StandIn.loads) == 2
    for row in range(4):
        simulator.load(row, generated(0, 1))
    assert len(StandIn.loads) == 2, "it is loaded already"
    simulator.load(0, two_rooms())
    assert len(StandIn.alive) == 2, "the simulator that nobody is in is taken"


def test_habitat_is_started_anew_now_and_then(make_simulator: MakeSimulator) -> None:
    simulator = make_simulator(1, SENSORS, CATEGORIES, scenes_per_start=3)
    goal = np.array([[1.0, 0.0, 1.0]])
    kept = make_simulator(1, {}, CATEGORIES)
    kept.load(0, two_rooms())
    made = []
    for turn in range(8):
        simulator.load(0, (two_rooms(), generated(0, 1))[turn % 2])
        made.append(StandIn.alive[-1])
    assert len({id(one) for one in made}) == 3 and len(StandIn.alive) <= 3
    simulator.load(0, two_rooms())
    simulator.set_goals(0, [goal])
    put(simulator, 0, (2.0, 1.0))
    before = simulator.distance(np.zeros(1, int))
    # A camera that wasn't there makes the scene load again; the goals stay.
    simulator.visible_pixels(0, ReferenceCamera(width=20, height=10))
    np.testing.assert_array_equal(simulator.distance(np.zeros(1, int)), before)
    simulator.picture(0, 16, 8)
    np.testing.assert_array_equal(simulator.distance(np.zeros(1, int)), before)


def test_the_oldest_simulator_is_closed_last(make_simulator: MakeSimulator) -> None:
    """The real one draws all pictures of a process in the context of the oldest."""
    simulators = [make_simulator(1, {}, CATEGORIES) for _ in range(3)]
    for simulator in simulators:
        simulator.load(0, two_rooms())
    oldest = StandIn.alive[0]
    simulators[0].close()
    assert StandIn.alive[0] is oldest and len(StandIn.alive) == 3
    put(simulators[1], 0, (7.0, 1.2), yaw=180, tilt=-22)
    assert simulators[1].visible_pixels(0, ReferenceCamera(16, 16))[0] > 0
    simulators[2].close()
    assert StandIn.alive[0] is oldest and len(StandIn.alive) == 2
    simulators[0].load(0, two_rooms())
    simulators[1].close()
    assert StandIn.alive[0] is oldest, "the first has begun again"
    simulators[0].close()
    assert not StandIn.alive


def test_houses_are_exported_once(make_simulator: MakeSimulator, cache: str) -> None:
    simulator = make_simulator(1, {}, CATEGORIES)
    simulator.load(0, two_rooms())
    files = scene_files(two_rooms(), Path(cache))
    stamp = Path(files.dataset).stat().st_mtime_ns
    again = make_simulator(1, {}, CATEGORIES)
    again.load(0, dataclasses.replace(two_rooms()))
    assert Path(files.dataset).stat().st_mtime_ns == stamp
    other = dataclasses.replace(two_rooms(), wall_height=2.6)
    assert scene_files(other, Path(cache)).key != files.key
    assert not list(Path(cache).rglob("*.tmp"))
    assert len(list(Path(cache, "navmeshes").glob("*.navmesh"))) >= 1


def test_a_folder_is_made_once_by_many(tmp_path: Path) -> None:
    gate = threading.Barrier(6)

    def write(folder: Path) -> None:
        (folder / "a.txt").write_text("a")
        gate.wait()
        (folder / "b.txt").write_text("b")

    threads = [threading.Thread(target=made_once, args=(tmp_path / "x", write)) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(p.name for p in (tmp_path / "x").iterdir()) == ["a.txt", "b.txt"]
    assert [p.name for p in tmp_path.iterdir()] == ["x"]


def test_a_failed_export_leaves_nothing(tmp_path: Path) -> None:
    item = dataclasses.replace(two_rooms().objects[0], model="/nowhere/thing.glb")
    with pytest.raises(HouseError, match=r"two_rooms.*thing\.glb"):
        scene_files(dataclasses.replace(two_rooms(), objects=(item,)), tmp_path)

    def write(folder: Path) -> None:
        raise RuntimeError("full")

    with pytest.raises(RuntimeError):
        made_once(tmp_path / "x", write)
    assert list(tmp_path.iterdir()) == []


def test_scenes_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(AssetError, match="there is no .*none.json"):
        scene_files(HabitatScene(str(tmp_path / "none.json"), "apt_0"), tmp_path)
    with pytest.raises(AssetError, match=r"there is no .*house\.glb"):
        scene_files(HabitatScene("", str(tmp_path / "house.glb")), tmp_path)
    with pytest.raises(HouseError, match="not a str"):
        scene_files("apt_0", tmp_path)


def test_only_the_border_of_a_dense_goal_matters() -> None:
    x, z = np.meshgrid(np.arange(9) * 0.15, np.arange(9) * 0.15)
    square = np.stack([x.ravel(), 0 * x.ravel(), z.ravel()], axis=1)
    border, spacing = _border(square)
    assert spacing == pytest.approx(0.15) and border.sum() == 32
    border, spacing = _border(np.random.default_rng(0).uniform(0, 5, (60, 3)))
    assert border.all() and spacing == 0.0
    assert _border(square[:5])[0].all()


def test_without_habitat_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "habitat_sim", None)
    with pytest.raises(MissingDependencyError, match=r"docs/habitat\.md"):
        HabitatConfig().build(1, {}, CATEGORIES)


def test_another_python_without_habitat_says_so_too() -> None:
    if importlib.util.find_spec("habitat_sim") is not None:
        pytest.skip("this Python has habitat_sim")
    with pytest.raises(MissingDependencyError, match=r"docs/habitat\.md"):
        HabitatConfig(python=sys.executable).build(1, SENSORS, CATEGORIES)


def test_configurations_are_checked(stand_in: None, monkeypatch: pytest.MonkeyPatch) -> None:
    target = {"_target_": "embodied_icrl.simulators.habitat.HabitatConfig"}
    assert build({**target, "gpu": 1}) == HabitatConfig(gpu=1)
    assert build({**target, "gpu": "per_rank"}).gpu == "per_rank"
    for wrong in ({"gpu": "first"}, {"gpu": -1}, {"cell_size": 0.0}, {"probe_pixels": 3}):
        with pytest.raises(ConfigError):
            build({**target, **wrong})
    for sensor in (
        RaySensor(columns=0),
        RaySensor(max_distance=0.0),
        RaySensor(vertical_fov=160.0),
        CameraSensor(kind="thermal"),
        CameraSensor(fov=190.0),
        AgentBody(),
    ):
        with pytest.raises(ConfigError, match="eye"):
            HabitatConfig().build(1, {"eye": sensor}, CATEGORIES)


def test_a_row_without_a_scene_is_a_mistake(make_simulator: MakeSimulator) -> None:
    simulator = make_simulator(1, {}, CATEGORIES)
    with pytest.raises(RuntimeError, match=r"call load\(0, scene\) first"):
        simulator.random_points(0, np.random.default_rng(0), 1)


def test_the_map_shows_the_free_floor(make_simulator: MakeSimulator) -> None:
    simulator = make_simulator(1, {}, CATEGORIES)
    assert isinstance(simulator, HabitatSimulator)
    simulator.load(0, two_rooms())
    top = simulator._free_floor(0)

    def colour(x: float, z: float) -> list[int]:
        row, column = int((z - top.z0) * top.scale), int((x - top.x0) * top.scale)
        return top.picture[row, column].tolist()

    assert colour(2.0, 2.0) == colour(6.0, 3.0) == colour(0.2, 2.0) != colour(-0.2, 2.0)
    everywhere(simulator, np.random.default_rng(0))
