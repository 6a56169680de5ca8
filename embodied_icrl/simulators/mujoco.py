"""Houses in MuJoCo: agents that glide, rays or pictures, shortest ways. No physics runs."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

import numpy as np

from embodied_icrl.common.config import option
from embodied_icrl.common.errors import ConfigError, MissingDependencyError, require
from embodied_icrl.houses.free_space import CELL
from embodied_icrl.houses.spec import HouseError, HouseSpec
from embodied_icrl.houses.top_down import top_down
from embodied_icrl.houses.view import Camera, ray_picture
from embodied_icrl.simulators.base import (
    FIRST_CATEGORY,
    AgentBody,
    ArraySpec,
    Instances,
    ReferenceCamera,
    Simulator,
    TopDown,
    check_sensors,
)
from embodied_icrl.simulators.cameras import Cameras
from embodied_icrl.simulators.geodesic import look_up, place_of
from embodied_icrl.simulators.motion import SLACK, Movers
from embodied_icrl.simulators.poses import eyes, vertical_fov, views
from embodied_icrl.simulators.rays import RayCaster
from embodied_icrl.simulators.scene import Scene, build_scene
from embodied_icrl.simulators.sight import in_sight, shows, visible_pixels

_MAP_SCALE = 60.0


@dataclass(frozen=True)
class MujocoConfig:
    """The MuJoCo backend."""

    refine: int = option(2, "distances: grid points per 0.05 m; more is more exact and slower")
    kept_houses: int = option(16, "compiled houses kept in memory for the next load")
    kept_uploads: int = option(32, "houses kept in graphics memory; at least one for each agent")
    check_houses: bool = option(False, "check houses of other origin than the generator or a file")

    def __post_init__(self) -> None:
        if not 1 <= self.refine <= 5:
            raise ConfigError(f"refine: use 1 to 5, not {self.refine}")
        for name in ("kept_houses", "kept_uploads"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name}: keep at least 1")

    def build(
        self, num_envs: int, sensors: Mapping[str, Any], categories: Tuple[str, ...],
        body: Optional[AgentBody] = None,
    ) -> MujocoSimulator:  # fmt: skip
        """A simulator for `num_envs` agents; see `MujocoSimulator`."""
        return MujocoSimulator(num_envs, sensors, categories, body or AgentBody(), self)


class MujocoSimulator(Simulator):
    """Agents in houses (`HouseSpec`); those that share a house share its model.

    Args:
        num_envs: agents.
        sensors: sensor configurations by name.
        categories: of target objects, in the order of the task.
        body: of the agents.
        config: of the backend.

    Raises:
        ConfigError: a sensor that this backend doesn't know or can't make.
        MissingDependencyError: a camera sensor, and no OpenGL library.
    """

    def __init__(
        self, num_envs: int, sensors: Mapping[str, Any], categories: Tuple[str, ...],
        body: AgentBody, config: MujocoConfig,
    ) -> None:  # fmt: skip
        require("mujoco", "pip install 'mujoco>=3.5,<3.12'")
        check_sensors(sensors, "MuJoCo")
        self.num_envs, self.body, self.config = num_envs, body, config
        self.sensors, self.categories = dict(sensors), tuple(categories)
        self.positions = np.zeros((num_envs, 3))
        self.yaw, self.tilt = np.zeros(num_envs), np.zeros(num_envs)
        self.collided = np.zeros(num_envs, dtype=bool)
        n_classes = FIRST_CATEGORY + len(self.categories)
        self._rays = RayCaster(num_envs, self.sensors, len(self.categories), n_classes)
        # With fewer than there are agents, every picture would need its house sent again.
        kept = max(config.kept_uploads, num_envs)
        self._cameras = Cameras(self.sensors, n_classes, kept)
        self._movers = Movers(num_envs, body.radius - SLACK)
        self._scenes: List[Optional[Scene]] = [None] * num_envs
        self._kept: OrderedDict[HouseSpec, Scene] = OrderedDict()
        self._goals: List[List[np.ndarray]] = [[] for _ in range(num_envs)]
        self._fields = np.zeros((num_envs, 1, 1), dtype=np.float32)
        self._field_goal = np.full(num_envs, -1)
        self._cell = CELL / config.refine
        self._origin = np.zeros((num_envs, 2))
        self._shape = np.ones((num_envs, 2), dtype=np.int64)

    def observation_specs(self) -> Dict[str, ArraySpec]:
        found = {**self._rays.specs(), **self._cameras.specs()}
        order = {name: i for i, name in enumerate(self.sensors)}
        keys = sorted(found, key=lambda key: order[key if key in order else key.rsplit(".", 1)[0]])
        return {key: found[key] for key in keys}

    def load(self, row: int, scene: Any) -> None:
        spec = _house(scene)
        built = self._kept.get(spec)
        if built is None:
            built = self._kept[spec] = self._build(spec)
        self._kept.move_to_end(spec)
        while len(self._kept) > self.config.kept_houses:
            self._kept.popitem(last=False)
        self._scenes[row] = built
        self._rays.load(row, built)
        self._movers.load(row, built.ground)
        space = built.ground.fine
        self._origin[row], self._shape[row] = (space.x0, space.z0), space.free.shape
        self._goals[row], self._field_goal[row] = [], -1
        self.collided[row] = False

    def _build(self, spec: HouseSpec) -> Scene:
        config = self.config
        return build_scene(spec, self.categories, self.body, config.refine, config.check_houses)

    def _scene(self, row: int) -> Scene:
        scene = self._scenes[row]
        if scene is None:
            raise RuntimeError(f"environment {row} has no house yet: call load({row}, spec) first")
        return scene

    def instances(self, row: int) -> Instances:
        return self._scene(row).instances

    def random_points(self, row: int, rng: np.random.Generator, count: int) -> np.ndarray:
        ground = self._scene(row).ground
        cells = ground.space.points(ground.region)
        found = np.empty((0, 2))
        while len(found) < count:
            missing = count - len(found)
            chosen = cells[rng.integers(len(cells), size=missing)]
            points = chosen + (rng.random((missing, 2)) - 0.5) * ground.space.cell
            fits = ground.clearance(points) >= ground.radius
            found = np.concatenate([found, points[fits]])
        return _on_floor(found)

    def points_around(
        self, row: int, centre: np.ndarray, radius: float, spacing: float
    ) -> np.ndarray:
        ground = self._scene(row).ground
        space = ground.space
        n = int(np.ceil(radius / spacing))
        # On one grid for the whole house, so that neighbours find the same points.
        first = np.round(np.array([centre[0], centre[2]]) / spacing)
        span = np.arange(-n - 1, n + 2)
        z, x = np.meshgrid(first[1] + span, first[0] + span, indexing="ij")
        points = np.stack([x.ravel(), z.ravel()], axis=1) * spacing
        near = ((points - (centre[0], centre[2])) ** 2).sum(axis=1) <= radius**2
        cell = np.floor((points - (space.x0, space.z0)) / space.cell).astype(np.int64)
        inside = np.all((cell >= 0) & (cell < ground.region.shape[::-1]), axis=1) & near
        points, cell = points[inside], cell[inside]
        points = points[ground.region[cell[:, 1], cell[:, 0]]]
        return _on_floor(points[ground.clearance(points) >= ground.radius])

    def in_sight(self, row: int, instance: int, points: np.ndarray) -> np.ndarray:
        points = np.ascontiguousarray(points, dtype=np.float64)
        return in_sight(self._scene(row), instance, points, self.body)

    def place(
        self, rows: np.ndarray, positions: np.ndarray, yaw: np.ndarray, tilt: np.ndarray
    ) -> None:
        self.positions[rows], self.yaw[rows], self.tilt[rows] = positions, yaw, tilt
        self.collided[rows] = False

    def forward(self, distance: np.ndarray) -> np.ndarray:
        direction = np.stack([-np.sin(self.yaw), -np.cos(self.yaw)], axis=1)
        before = self.positions[:, ::2]
        after = self._movers.move(before, direction, distance)
        moved = after - before
        missed = moved - direction * np.asarray(distance)[:, None]
        self.collided[:] = (missed * missed).sum(axis=1) > 1e-10
        self.positions[:, ::2] = after
        return np.asarray(np.sqrt((moved * moved).sum(axis=1)))

    def turn(self, yaw: np.ndarray, tilt: np.ndarray) -> None:
        self.yaw += yaw
        np.remainder(self.yaw, 2 * np.pi, out=self.yaw)
        self.tilt += tilt

    def observe(self, out: Dict[str, np.ndarray]) -> None:
        eye, axes = views(self.positions, self.yaw, self.tilt, self.body)
        if self._rays.active:
            self._rays.observe(eye, axes, out)
        if self._cameras.active:
            scenes = [self._scene(row) for row in range(self.num_envs)]
            self._cameras.observe(scenes, eye, axes, out)

    def set_goals(self, row: int, goals: Sequence[np.ndarray]) -> None:
        self._goals[row] = [np.array(goal, dtype=np.float64).reshape(-1, 3) for goal in goals]
        self._field_goal[row] = -1

    def distance(self, goal: np.ndarray) -> np.ndarray:
        self._choose(goal)
        place = place_of(self.positions[:, ::2], self._origin, self._cell)
        return look_up(self._fields, np.arange(self.num_envs), place, self._shape)

    def distances_from(self, row: int, goal: int, points: np.ndarray) -> np.ndarray:
        fields = self._scene(row).fields(self._goals[row])
        flat = np.asarray(points, dtype=np.float64)[:, ::2]
        place = place_of(flat, self._origin[row], self._cell)
        shape = np.broadcast_to(self._shape[row], place.shape)
        return look_up(fields, np.full(len(place), goal), place, shape)

    def _choose(self, goal: np.ndarray) -> None:
        """Bring the field of each agent's goal to where lookups find it."""
        for row in np.flatnonzero(np.asarray(goal) != self._field_goal).tolist():
            field = self._scene(row).fields(self._goals[row])[goal[row]]
            rows, columns = field.shape
            if rows > self._fields.shape[1] or columns > self._fields.shape[2]:
                have = self._fields
                size = (max(rows, have.shape[1]), max(columns, have.shape[2]))
                self._fields = np.zeros((self.num_envs, *size), dtype=np.float32)
                self._fields[:, : have.shape[1], : have.shape[2]] = have
            self._fields[row, :rows, :columns] = field
            self._field_goal[row] = goal[row]

    def visible_pixels(self, row: int, camera: ReferenceCamera) -> np.ndarray:
        eye, axes = self._view(row)
        return visible_pixels(self._scene(row), eye, axes, camera)

    def shows(self, row: int, camera: ReferenceCamera, instances: np.ndarray, pixels: int) -> bool:
        eye, axes = self._view(row)
        return shows(self._scene(row), eye, axes, camera, instances, pixels)

    def _view(self, row: int) -> Tuple[np.ndarray, np.ndarray]:
        one = slice(row, row + 1)
        eye, axes = views(self.positions[one], self.yaw[one], self.tilt[one], self.body)
        return eye[0], axes[0]

    def top_down(self, row: int) -> TopDown:
        drawn = top_down(self._scene(row).spec, _MAP_SCALE, labels=False)
        return TopDown(drawn.image, drawn.x0, drawn.z0, drawn.pixels_per_metre)

    def picture(self, row: int, width: int, height: int, fov: float = 90.0) -> np.ndarray:
        scene = self._scene(row)
        if not self.picture_note:
            try:
                return self._cameras.picture(scene, *self._view(row), width, height, fov).copy()
            except MissingDependencyError as error:
                self.picture_note = f"drawn from rays, {error}"
        place = eyes(self.positions[row], self.yaw[row], self.body)
        yaw, pitch = float(np.degrees(self.yaw[row])), float(np.degrees(self.tilt[row]))
        camera = Camera((float(place[0]), float(place[1]), float(place[2])), yaw, pitch)
        scene.model.vis.global_.fovy = vertical_fov(fov, width, height)
        return ray_picture(scene.model, camera, width, height)

    def close(self) -> None:
        self._cameras.close()


def _house(scene: Any) -> HouseSpec:
    if not isinstance(scene, HouseSpec):
        raise HouseError(
            f"the MuJoCo backend loads a HouseSpec, not a {type(scene).__name__}: "
            "read house files with houses.json_io.load_house"
        )
    return scene


def _on_floor(points: np.ndarray) -> np.ndarray:
    """Points `[point, 2 (x, z)]` of the plan at height 0: `[point, 3]`."""
    return np.stack([points[:, 0], np.zeros(len(points)), points[:, 1]], axis=1)
