"""What every simulator must do, whatever its backend: a test class to derive from.

A derived class has a fixture `make_simulator`: called with the number of agents, the sensors and
the categories, it returns a simulator, and closes it in the end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from embodied_icrl.houses.spec import HouseError, HouseSpec
from embodied_icrl.simulators.base import (
    FIRST_CATEGORY,
    DetectorSensor,
    RaySensor,
    ReferenceCamera,
    Simulator,
    goal_points,
)
from tests.simulators.exact import ShortestPaths, clearance, free_lines, outlines
from tests.simulators.houses import CATEGORIES, generated, two_rooms

MakeSimulator = Callable[..., Simulator]
SENSORS: Mapping[str, Any] = {"rays": RaySensor(), "detector": DetectorSensor()}
# Obstacles may be entered by this much, metres.
GRAZE = 2.1e-3
RADIUS = 0.3


def arrays(simulator: Simulator) -> dict[str, np.ndarray]:
    """Somewhere to observe into."""
    return {
        key: np.full((simulator.num_envs, *spec.shape), 99, dtype=spec.dtype)
        for key, spec in simulator.observation_specs().items()
    }


def put(simulator: Simulator, row: int, point: Any, yaw: float = 0.0, tilt: float = 0.0) -> None:
    """One agent at (x, z), angles in degrees."""
    place = np.array([[point[0], 0.0, point[-1]]])
    angles = np.radians([yaw]), np.radians([tilt])
    simulator.place(np.array([row]), place, *angles)


def everywhere(simulator: Simulator, rng: np.random.Generator) -> None:
    """All agents at random places."""
    for row in range(simulator.num_envs):
        point = simulator.random_points(row, rng, 1)[0]
        put(simulator, row, point, float(rng.uniform(0, 360)), float(rng.uniform(-60, 10)))


class SimulatorSuite:
    """Derive `class TestX(SimulatorSuite)` with a fixture `make_simulator`.

    Attributes:
        graze: obstacles may be entered by this much, metres.
        early: agents may be stopped so much before an obstacle, metres.
        error: of distances, as a part of them.
        further: how much farther than asked an agent may slide, metres.
    """

    graze = GRAZE
    early = 0.0
    error = 0.02
    further = 0.0

    def test_observations_are_as_announced(self, make_simulator: MakeSimulator) -> None:
        simulator = make_simulator(4, SENSORS, CATEGORIES)
        for row in range(4):
            simulator.load(row, generated(row % 2, 2))
        rng, out, classes = np.random.default_rng(0), arrays(simulator), set()
        for _ in range(5):
            everywhere(simulator, rng)
            simulator.observe(out)
            classes |= set(out["rays.class"].ravel().tolist())
            for key, spec in simulator.observation_specs().items():
                assert out[key].min() >= spec.low and out[key].max() <= spec.high, key
                assert not spec.classes or spec.high == spec.classes - 1
        assert len(classes) >= 3

    def test_points_are_free_and_connected(self, make_simulator: MakeSimulator) -> None:
        simulator = make_simulator(1, {}, CATEGORIES)
        spec = generated(0, 2)
        simulator.load(0, spec)
        points = simulator.random_points(0, np.random.default_rng(3), 300)
        again = simulator.random_points(0, np.random.default_rng(3), 300)
        np.testing.assert_array_equal(points, again)
        assert clearance(points[:, ::2], outlines(spec)).min() >= RADIUS - self.graze
        simulator.set_goals(0, [points[:1]])
        assert np.isfinite(simulator.distances_from(0, 0, points)).all()
        around = simulator.points_around(0, points[5], 1.0, 0.1)
        assert np.hypot(*(around - points[5])[:, ::2].T).max() <= 1.0
        assert clearance(around[:, ::2], outlines(spec)).min() >= RADIUS - self.graze

    def test_random_points_cover_the_area_evenly(self, make_simulator: MakeSimulator) -> None:
        simulator = make_simulator(1, {}, CATEGORIES)
        simulator.load(0, two_rooms())
        points = simulator.random_points(0, np.random.default_rng(0), 4000)
        # The free part of the first room is a square from 0.35 to 3.65 m.
        room = points[points[:, 0] < 3.65][:, ::2]
        assert len(room) > 1000
        counts, _, _ = np.histogram2d(*room.T, bins=3, range=[[0.35, 3.65]] * 2)
        np.testing.assert_allclose(counts / len(room), 1 / 9, atol=0.03)

    def test_walks_stay_outside_obstacles(self, make_simulator: MakeSimulator) -> None:
        simulator = make_simulator(24, {}, CATEGORIES)
        specs = [generated(seed, 2) for seed in range(2)]
        for row in range(24):
            simulator.load(row, specs[row % 2])
        rng = np.random.default_rng(1)
        everywhere(simulator, rng)
        corners = [outlines(spec) for spec in specs]
        collisions, slides = 0, 0
        for _ in range(25):
            before, asked = simulator.positions.copy(), rng.uniform(0, 0.3, 24)
            asked[::6] = 0.0
            moved = simulator.forward(asked)
            way = simulator.positions - before
            np.testing.assert_allclose(moved, np.sqrt((way**2).sum(axis=1)), atol=1e-6)
            assert (moved <= asked + 1e-6 + self.further).all()
            straight = np.stack([-np.sin(simulator.yaw), 0 * asked, -np.cos(simulator.yaw)], axis=1)
            missed = np.abs(way - straight * asked[:, None]).max(axis=1)
            np.testing.assert_array_equal(simulator.collided, missed > 1e-5)
            collisions += int(simulator.collided.sum())
            slides += int((simulator.collided & (moved > 0.1 * asked)).sum())
            for k in range(2):
                begin, end = before[k::2, ::2], (before + straight * asked[:, None])[k::2, ::2]
                room = clearance(simulator.positions[k::2, ::2], corners[k])
                assert room.min() > RADIUS - self.graze
                free = free_lines(begin, end, corners[k], RADIUS + self.early)
                assert not simulator.collided[k::2][free].any()
            simulator.turn(rng.uniform(-0.6, 0.6, 24), np.zeros(24))
        assert collisions > 80 and slides > 30

    def test_a_wall_stops_what_goes_into_it_and_lets_the_rest_go_on(
        self, make_simulator: MakeSimulator
    ) -> None:
        simulator = make_simulator(3, {}, CATEGORIES)
        for row in range(3):
            simulator.load(row, two_rooms())
        put(simulator, 0, (0.4, 2.0), yaw=90)
        put(simulator, 1, (0.4, 2.0), yaw=30)
        put(simulator, 2, (2.0, 2.0), yaw=90)
        moved = simulator.forward(np.full(3, 0.25))
        # The wall is 5 cm thick, so the agent stops at 0.35.
        near = 3e-3 + self.early
        assert simulator.positions[0] == pytest.approx([0.35, 0.0, 2.0], abs=near)
        assert simulator.positions[1, 0] == pytest.approx(0.35, abs=near)
        assert simulator.positions[1, 2] == pytest.approx(2.0 - 0.25 * np.cos(np.pi / 6), abs=3e-3)
        assert moved[2] == pytest.approx(0.25, abs=1e-6)
        assert simulator.collided.tolist() == [True, True, False]
        put(simulator, 0, (2.0, 2.0))
        assert simulator.collided.tolist() == [False, True, False]

    def test_agents_get_stuck_in_corners_not_out_of_the_house(
        self, make_simulator: MakeSimulator
    ) -> None:
        simulator = make_simulator(4, {}, CATEGORIES)
        for row in range(4):
            simulator.load(row, two_rooms())
            put(simulator, row, (2.0, 3.0), yaw=(35, 140, 220, 100)[row])
        for _ in range(60):
            simulator.forward(np.full(4, 0.25))
        at = simulator.positions[:, ::2]
        least = 0.347 - self.graze
        assert (at > least).all() and (at < [8 - least, 4 - least]).all()
        assert at[0] == pytest.approx([0.35, 0.35], abs=5e-3 + self.early)
        assert at[1] == pytest.approx([0.35, 3.65], abs=5e-3 + self.early)

    def test_turning_moves_nothing_else(self, make_simulator: MakeSimulator) -> None:
        simulator = make_simulator(2, {}, CATEGORIES)
        for row in range(2):
            simulator.load(row, two_rooms())
            put(simulator, row, (1.0 + row, 2.0))
        before = simulator.positions.copy()
        simulator.turn(np.radians([90.0, 0.0]), np.radians([0.0, -30.0]))
        np.testing.assert_array_equal(simulator.positions, before)
        assert np.degrees(simulator.tilt) == pytest.approx([0, -30])
        simulator.forward(np.full(2, 0.2))
        way = simulator.positions - before
        np.testing.assert_allclose(way, [[-0.2, 0, 0], [0, 0, -0.2]], atol=1e-6)

    @pytest.mark.parametrize("spec", [two_rooms, lambda: generated(0, 1)], ids=["two", "one"])
    def test_distances_are_those_of_shortest_paths(
        self, make_simulator: MakeSimulator, spec: Callable[[], HouseSpec]
    ) -> None:
        simulator = make_simulator(1, {}, CATEGORIES)
        simulator.load(0, spec())
        rng = np.random.default_rng(0)
        goals = [simulator.random_points(0, rng, 1 + k) for k in range(3)]
        simulator.set_goals(0, goals)
        points = simulator.random_points(0, rng, 60)
        wide, narrow = (
            ShortestPaths(spec(), RADIUS + self.early),
            ShortestPaths(spec(), RADIUS - self.graze),
        )
        for k, goal in enumerate(goals):
            found = simulator.distances_from(0, k, points)
            longest = wide.distances(points[:, ::2], goal[:, ::2])
            shortest = narrow.distances(points[:, ::2], goal[:, ::2])
            assert (found <= (1 + self.error) * longest + 0.01).all()
            assert (found >= (1 - self.error) * shortest - 0.01).all()

    def test_distance_goes_with_the_agent_and_its_goal(self, make_simulator: MakeSimulator) -> None:
        simulator = make_simulator(2, {}, CATEGORIES)
        goals = [np.array([[1.0, 0.0, 1.0]]), np.zeros((0, 3)), np.array([[7.0, 0.0, 1.0]])]
        for row in range(2):
            simulator.load(row, two_rooms())
            simulator.set_goals(row, goals)
            put(simulator, row, (2.0, 1.0))
        assert simulator.distance(np.array([0, 2])) == pytest.approx([1.0, 5.0], rel=self.error)
        assert np.isinf(simulator.distance(np.array([1, 1]))).all()
        put(simulator, 0, (3.0, 1.0))
        assert simulator.distance(np.array([0, 0])) == pytest.approx([2.0, 1.0], rel=self.error)
        np.testing.assert_allclose(
            simulator.distances_from(0, 0, simulator.positions),
            simulator.distance(np.zeros(2, int)),
        )
        simulator.set_goals(0, goals[::-1])
        assert simulator.distance(np.array([0, 0])) == pytest.approx([4.0, 1.0], rel=self.error)

    def test_pixels_of_what_stands_before_the_camera(self, make_simulator: MakeSimulator) -> None:
        simulator = make_simulator(1, {}, CATEGORIES)
        simulator.load(0, two_rooms())
        found = simulator.instances(0)
        assert found.names == ("suitcase",) and found.categories.tolist() == [2]
        assert found.centres[0, ::2] == pytest.approx([7.0, 3.0], abs=0.05)
        camera = ReferenceCamera()
        put(simulator, 0, (7.0, 1.2), yaw=180, tilt=-22)
        near = simulator.visible_pixels(0, camera)
        assert near[0] > 300
        assert simulator.shows(0, camera, np.array([0]), int(near[0]))
        assert not simulator.shows(0, camera, np.array([0]), int(near[0]) + 1)
        put(simulator, 0, (7.0, 1.2), yaw=0, tilt=-22)
        assert simulator.visible_pixels(0, camera).tolist() == [0]
        put(simulator, 0, (2.0, 3.0), yaw=-90, tilt=-22)
        assert simulator.visible_pixels(0, camera).tolist() == [0], "a wall is between"

    def test_what_is_called_in_sight_shows_pixels(self, make_simulator: MakeSimulator) -> None:
        simulator = make_simulator(1, {}, CATEGORIES)
        simulator.load(0, generated(1, 2))
        centres, camera = simulator.instances(0).centres, ReferenceCamera()
        claimed, most = [], []
        for i in range(len(centres)):
            points = simulator.points_around(0, centres[i], 1.9, 0.5)
            claimed += simulator.in_sight(0, i, points).tolist()
            for point in points:
                x, _, z = centres[i] - point
                seen = 0
                for tilt, least in ((-22, 10), (-52, 10), (-22, 100), (-52, 100)):
                    put(simulator, 0, point, np.degrees(np.arctan2(-x, -z)), tilt)
                    if least > seen and simulator.shows(0, camera, np.array([i]), least):
                        seen = least
                most.append(seen)
        in_sight, pixels = np.array(claimed), np.array(most)
        assert in_sight.sum() > 30 and (~in_sight).sum() > 10
        assert (pixels[in_sight] >= 10).mean() > 0.98
        assert (pixels[~in_sight] < 100).mean() > 0.95

    def test_detector_sees_what_the_rays_see(self, make_simulator: MakeSimulator) -> None:
        simulator = make_simulator(2, SENSORS, CATEGORIES)
        for row in range(2):
            simulator.load(row, two_rooms())
        # Straight ahead and 45 degrees to the left; then behind.
        put(simulator, 0, (6.0, 1.75), yaw=180 + 39, tilt=-22)
        put(simulator, 1, (7.0, 1.2), yaw=0)
        out = arrays(simulator)
        simulator.observe(out)
        assert out["detector.visible"].tolist() == [[0, 0, 1], [0, 0, 0]]
        assert not out["detector.where"][1].any() and not out["detector.where"][0, :2].any()
        sine, cosine, distance = out["detector.where"][0, 2]
        eye = np.array([6.0, 1.75]) + 0.25 * np.array([-np.sin(np.radians(219)), 0.777146])
        x, z = np.array([7.0, 3.0]) - eye
        off = np.arctan2(-x, -z) - np.radians(219)
        assert (sine, cosine) == pytest.approx((np.sin(off), np.cos(off)), abs=0.05)
        assert distance * 5.0 == pytest.approx(np.hypot(x, z), abs=0.05)
        assert (out["rays.class"][0] == FIRST_CATEGORY + 2).any()
        assert not (out["rays.class"][1] == FIRST_CATEGORY + 2).any()

    def test_rays_measure_the_room(self, make_simulator: MakeSimulator) -> None:
        level = RaySensor(columns=3, rows=1, fov=180.0, vertical_fov=0.0, max_distance=5.0)
        simulator = make_simulator(1, {"rays": level}, CATEGORIES)
        simulator.load(0, two_rooms())
        put(simulator, 0, (1.0, 2.5))
        out = arrays(simulator)
        simulator.observe(out)
        # To the left, ahead and to the right, from a camera 0.25 m before the agent's middle.
        assert out["rays.distance"][0] * 5 == pytest.approx([0.95, 2.2, 2.95], abs=0.01)
        assert out["rays.class"][0].tolist() == [1, 1, 1]

    def test_neighbours_change_nothing(self, make_simulator: MakeSimulator) -> None:
        """An agent sees and does the same alone and among others in other houses."""

        def run(rows: list[int]) -> list[np.ndarray]:
            simulator = make_simulator(len(rows), SENSORS, CATEGORIES)
            for i, row in enumerate(rows):
                simulator.load(i, generated(row, 1 + row))
                rng = np.random.default_rng(row)
                start = simulator.random_points(i, rng, 2)
                put(simulator, i, start[0], 70.0 * row, -22)
                simulator.set_goals(i, [start[1:]])
            seen, out = [], arrays(simulator)
            for step in range(12):
                simulator.forward(np.full(len(rows), 0.25))
                simulator.turn(
                    np.full(len(rows), 0.5 if step % 3 == 0 else 0.0), 0 * simulator.tilt
                )
                simulator.observe(out)
                seen += [
                    simulator.positions[0].copy(),
                    simulator.distance(np.zeros(len(rows), int))[:1],
                ]
                seen += [value[0].copy() for value in out.values()]
            return seen

        for alone, among in zip(run([1]), run([1, 0, 2])):
            np.testing.assert_array_equal(alone, among)

    def test_goals_of_the_last_house_are_forgotten(self, make_simulator: MakeSimulator) -> None:
        simulator = make_simulator(1, {}, CATEGORIES)
        for _ in range(2):
            simulator.load(0, two_rooms())
            instances = np.arange(1)
            points = goal_points(simulator, 0, instances, 1.8)
            assert len(points) > 20 and (points[:, 0] > 4.0).all()
            simulator.set_goals(0, [points])
            put(simulator, 0, points[0])
            assert simulator.distance(np.zeros(1, int))[0] == pytest.approx(0, abs=0.03)

    def test_pictures_and_maps(self, make_simulator: MakeSimulator) -> None:
        simulator = make_simulator(1, {}, CATEGORIES)
        simulator.load(0, two_rooms())
        put(simulator, 0, (7.0, 1.5), yaw=180, tilt=-22)
        picture = simulator.picture(0, 96, 64)
        assert picture.shape == (64, 96, 3) and picture.dtype == np.uint8
        assert len(np.unique(picture.reshape(-1, 3), axis=0)) > 5
        top = simulator.top_down(0)
        inside = top.picture[int((2 - top.z0) * top.scale), int((2 - top.x0) * top.scale)]
        outside = top.picture[1, 1]
        assert not np.array_equal(inside, outside)

    def test_what_is_no_scene_is_refused(self, make_simulator: MakeSimulator) -> None:
        simulator = make_simulator(1, {}, CATEGORIES)
        with pytest.raises(HouseError):
            simulator.load(0, 7)

    def test_closing_twice_does_no_harm(self, make_simulator: MakeSimulator) -> None:
        simulator = make_simulator(1, {}, CATEGORIES)
        simulator.close()
        simulator.close()
