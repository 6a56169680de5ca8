"""Where an agent can go in habitat-sim: points, steps and shortest ways on a navigation mesh."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, List, Tuple

import numpy as np

from embodied_icrl.common.errors import AssetError
from embodied_icrl.simulators.habitat_world import habitat

# A point counts as being on the mesh if the nearest point of the mesh is so near, metres.
_ON_MESH = 0.01
# How far above the floor beneath it a thing may be, metres.
_STOREY = 2.2
# So near to a point, metres, an agent counts as being there.
_THERE = 1e-3


@dataclass(frozen=True)
class Goal:
    """A set of points, prepared for shortest ways.

    Attributes:
        points: float64 `[point, 3]`.
        ends: those that a way from outside can end at, in habitat-sim's own type.
        spacing: distance of neighbours, metres; 0 if they are no dense set.
    """

    points: np.ndarray
    ends: List[Any]
    spacing: float


class NavGround:
    """The main region of a navigation mesh.

    Args:
        pathfinder: has the mesh.
        level: whether the floor is at height 0 everywhere: points then get that height, not the
            mesh's, which lies some centimetres above the floor.
        name: of the scene, for messages.

    Raises:
        AssetError: there is nowhere to go.
    """

    def __init__(self, pathfinder: Any, level: bool, name: str) -> None:
        habitat_sim, magnum = habitat()
        self._pathfinder, self._level = pathfinder, level
        self._path_type, self._vector = habitat_sim.MultiGoalShortestPath, magnum.Vector3
        count = pathfinder.num_islands if pathfinder.is_loaded else 0
        if not count:
            raise AssetError(f"scene {name}: there is no floor that an agent of this size fits on")
        self.island = int(np.argmax([pathfinder.island_area(i) for i in range(count)]))
        corners = np.array([tuple(v) for v in pathfinder.build_navmesh_vertices(self.island)])
        order = np.array(pathfinder.build_navmesh_vertex_indices(self.island), dtype=np.int64)
        self._triangles = corners[order].reshape(-1, 3, 3).astype(np.float64)
        edges = self._triangles[:, 1:] - self._triangles[:, :1]
        self._areas = np.linalg.norm(np.cross(edges[:, 0], edges[:, 1]), axis=1) / 2
        self._height = float(np.median(corners[:, 1]))

    @property
    def area(self) -> float:
        """Square metres."""
        return float(self._areas.sum())

    @property
    def bounds(self) -> Tuple[np.ndarray, np.ndarray]:
        """Lowest and highest x, y, z."""
        flat = self._triangles.reshape(-1, 3)
        return flat.min(axis=0), flat.max(axis=0)

    def random_points(self, rng: np.random.Generator, count: int) -> np.ndarray:
        """Evenly over the area: float64 `[count, 3]`."""
        chosen = rng.choice(len(self._areas), size=count, p=self._areas / self._areas.sum())
        u, v = rng.random((2, count, 1))
        fold = u + v > 1
        u, v = np.where(fold, 1 - u, u), np.where(fold, 1 - v, v)
        a, b, c = (self._triangles[chosen, i] for i in range(3))
        return self._lowered(a + u * (b - a) + v * (c - a))

    def points_around(self, centre: np.ndarray, radius: float, spacing: float) -> np.ndarray:
        """As `Simulator.points_around`; of several floors the one below the centre counts."""
        # On one grid for the whole scene, so that neighbours find the same points.
        n = int(np.ceil(radius / spacing)) + 1
        first = np.round(np.asarray(centre)[[0, 2]] / spacing)
        z, x = np.meshgrid(*(first[i] + np.arange(-n, n + 1) for i in (1, 0)), indexing="ij")
        plan = np.stack([x.ravel(), z.ravel()], axis=1) * spacing
        near = ((plan - np.asarray(centre)[[0, 2]]) ** 2).sum(axis=1) <= radius**2
        found = []
        for x_, z_ in plan[near]:
            at = self._on_mesh(float(x_), self._above(centre), float(z_))
            if at is not None and (self._level or -0.5 <= centre[1] - at[1] <= _STOREY):
                found.append((x_, at[1], z_))
        return self._lowered(np.array(found, dtype=np.float64).reshape(-1, 3))

    def is_free(self, x: float, z: float) -> bool:
        """Whether an agent can be at a point of a level floor."""
        return self._on_mesh(x, self._height, z) is not None

    def _above(self, centre: np.ndarray) -> float:
        return self._height if self._level else float(centre[1])

    def _on_mesh(self, x: float, y: float, z: float) -> Any:
        point = self._vector(x, y, z)
        at = self._pathfinder.snap_point(point)
        if not abs(at[0] - x) + abs(at[2] - z) <= _ON_MESH:  # NaN, if there is nothing near
            return None
        return at if self._pathfinder.get_island(at) == self.island else None

    def step(self, start: np.ndarray, end: np.ndarray) -> np.ndarray:
        """Where an agent gets that goes straight from one point towards another, sliding."""
        at = self._pathfinder.try_step(self._point(start), self._point(end))
        return np.array([at[0], 0.0 if self._level else at[1], at[2]])

    def goal(self, points: np.ndarray) -> Goal:
        """Prepare points `[point, 3]`; a way that comes from outside ends at their border."""
        points = np.unique(np.asarray(points, dtype=np.float64).reshape(-1, 3), axis=0)
        border, spacing = _border(points)
        return Goal(points, [self._point(point) for point in points[border]], spacing)

    def distance(self, start: np.ndarray, goal: Goal) -> float:
        """Length of the shortest way to the nearest point, metres; inf if there is none."""
        if not len(goal.points):
            return np.inf
        offset = goal.points - start
        apart = np.sqrt((offset * offset).sum(axis=1))
        nearest = float(apart.min())
        if nearest <= max(goal.spacing, _THERE):
            return nearest
        path = self._path_type()
        path.requested_start = self._point(start)
        path.requested_ends = goal.ends
        if not self._pathfinder.find_path(path):
            return np.inf
        return float(path.geodesic_distance)

    def _point(self, point: np.ndarray) -> Any:
        height = self._height if self._level else float(point[1])
        return self._vector(float(point[0]), height, float(point[2]))

    def _lowered(self, points: np.ndarray) -> np.ndarray:
        if self._level:
            points[:, 1] = 0.0
        return points


def _border(points: np.ndarray) -> Tuple[np.ndarray, float]:
    """Which points of a dense set have no neighbour on some side, and how dense it is.

    A set is dense if most of its points have their nearest neighbour at the same distance; of any
    other set all points are at the border.

    Returns:
        bool `[point]`, and the distance of neighbours, metres; 0 if the set isn't dense.
    """
    everything = np.ones(len(points), dtype=bool)
    if len(points) < 9:
        return everything, 0.0
    offset = points[None] - points[:, None]
    apart = np.sqrt((offset * offset).sum(axis=-1))
    np.fill_diagonal(apart, np.inf)
    nearest = apart.min(axis=1)
    spacing = float(np.median(nearest))
    if (np.abs(nearest - spacing) < 0.05 * spacing).mean() < 0.8:
        return everything, 0.0
    beside = apart < 1.2 * spacing
    sides = [
        (beside & (sign * offset[..., axis] > 0.5 * spacing)).any(axis=1)
        for axis in (0, 2)
        for sign in (1, -1)
    ]
    return ~np.all(sides, axis=0), spacing
