"""Houses and scene datasets in habitat-sim: the same tasks, another simulator.

Agents glide over habitat-sim's navigation mesh, which keeps up to a cell more distance from
obstacles than the MuJoCo backend does.
"""

from __future__ import annotations

import dataclasses
import importlib.util
from dataclasses import dataclass
from typing import Any, Dict, List, Literal, Mapping, Optional, Sequence, Set, Tuple, Union

import numpy as np

from embodied_icrl.common.config import option
from embodied_icrl.common.errors import ConfigError
from embodied_icrl.houses.frames import to_mujoco
from embodied_icrl.houses.spec import HouseSpec
from embodied_icrl.houses.top_down import MARGIN, PAPER, top_down
from embodied_icrl.simulators.base import (
    FIRST_CATEGORY,
    NOTHING,
    AgentBody,
    ArraySpec,
    CameraSensor,
    Instances,
    ReferenceCamera,
    Simulator,
    TopDown,
    check_sensors,
)
from embodied_icrl.simulators.habitat_files import SceneFiles
from embodied_icrl.simulators.habitat_ground import Goal, NavGround
from embodied_icrl.simulators.habitat_probes import Probes
from embodied_icrl.simulators.habitat_stages import Stage, Stages
from embodied_icrl.simulators.habitat_world import Rig, Shot, World, device_number, habitat
from embodied_icrl.simulators.poses import camera_axes, eyes
from embodied_icrl.simulators.remote import RemoteSimulator
from embodied_icrl.simulators.scenes import read_categories

_MAP_SCALE, _FREE_SCALE = 60.0, 20.0
_FLOOR = (203, 192, 172)
# The picture that decides what is in sight: as many pixels per angle as the reference camera's
# middle has, and more pixels of the instance than success needs, since the agent may aim badly.
_SIGHT_SIZE, _PIXELS_PER_RADIAN, _PIXELS_NEEDED = 48, 128.0, 20
# A step that ends so near to where it was going has met nothing, metres.
_EXACT = 1e-4
# The cameras that observe, and those that tell what is in sight.
_OBSERVER, _SIGHT = 0, 1


@dataclass(frozen=True)
class HabitatConfig:
    """The Habitat backend."""

    python: Optional[str] = option(
        None, "path of a Python with habitat_sim; the simulator then runs in it; null: this one"
    )
    gpu: Union[int, str, None] = option(
        None, "CUDA number of the GPU that draws, or per_rank; null: draw on the processor"
    )
    cache: str = option(
        "", "folder for exported houses and navigation meshes; empty: in the user's cache"
    )
    cell_size: Optional[float] = option(
        None, "of the navigation mesh, metres; null: 0.02 in houses, 0.05 in scenes of datasets"
    )
    cell_height: float = option(0.05, "of the navigation mesh, metres")
    max_slope: float = option(45.0, "steepest ground that the agent goes on, degrees")
    lights: Literal["auto", "scene", "none"] = option(
        "auto", "scene: the scene's own; auto: none in houses, whose colours hold the light already"
    )
    light_maps: Optional[bool] = option(
        None, "image-based lighting, which takes 18 s per start without a GPU; null: with a GPU"
    )
    object_categories: str = option(
        "", "file with the category of each object of scenes (.json, or lines name,category)"
    )
    probe_pixels: int = option(
        128, "of the pictures that rays and detectors are read from, per 90 degrees"
    )
    scenes_per_start: int = option(
        20, "scene changes after which habitat-sim is started anew, since it keeps all it loaded"
    )
    timeout_s: float = option(300.0, "with python: longest time of one call, seconds")
    seed: int = option(0, "of habitat-sim's own random numbers, of which we use none")

    def __post_init__(self) -> None:
        device_number(self.gpu)
        for name in ("cell_size", "cell_height", "max_slope", "timeout_s"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise ConfigError(f"{name}={value} must be more than 0")
        if self.probe_pixels < 32 or self.scenes_per_start < 1:
            raise ConfigError("probe_pixels must be at least 32, and scenes_per_start at least 1")

    def build(
        self, num_envs: int, sensors: Mapping[str, Any], categories: Tuple[str, ...],
        body: Optional[AgentBody] = None,
    ) -> Simulator:  # fmt: skip
        """A simulator for `num_envs` agents, in this process or another Python.

        Raises:
            MissingDependencyError: there is no habitat_sim; the message says how to get it.
            ConfigError, WorkerError: as `RemoteSimulator` does, with `python`.
        """
        body = body or AgentBody()
        if self.python is None:
            return HabitatSimulator(num_envs, sensors, categories, body, self)
        here = dataclasses.replace(self, python=None)
        return RemoteSimulator(
            here, num_envs, sensors, categories, body,
            python=self.python, timeout_s=self.timeout_s,
        )  # fmt: skip


class HabitatSimulator(Simulator):
    """Agents in houses (`HouseSpec`) or scenes of datasets (`HabitatScene`).

    Every scene that an agent is in has a `habitat_sim.Simulator` of its own, made when it is first
    needed; agents in the same scene share it.

    Args:
        num_envs: agents.
        sensors: sensor configurations by name.
        categories: of target objects, in the order of the task.
        body: of the agents.
        config: of the backend.

    Raises:
        ConfigError: a sensor that this backend doesn't know or can't make.
        MissingDependencyError: there is no habitat_sim.
    """

    def __init__(
        self, num_envs: int, sensors: Mapping[str, Any], categories: Tuple[str, ...],
        body: AgentBody, config: HabitatConfig,
    ) -> None:  # fmt: skip
        check_sensors(sensors, "Habitat")
        habitat()
        self.num_envs, self.body, self.config = num_envs, body, config
        self.sensors, self.categories = dict(sensors), tuple(categories)
        self.positions = np.zeros((num_envs, 3))
        self.yaw, self.tilt = np.zeros(num_envs), np.zeros(num_envs)
        self.collided = np.zeros(num_envs, dtype=bool)
        file = config.object_categories
        names = read_categories(file) if file else None
        self._n_classes = FIRST_CATEGORY + len(self.categories)
        self._probes = Probes(self.sensors, len(categories), self._n_classes, config.probe_pixels)
        self._observer, self._slots = self._make_observer()
        rigs = (self._observer, (_sight_shot(),))
        self._stages = Stages(config, body, self.categories, names, rigs)
        self._rows = [_Row() for _ in range(num_envs)]

    def _make_observer(self) -> Tuple[Rig, Dict[str, int]]:
        """The cameras of all sensors, and the place of each sensor's among them.

        Behind a semantic picture comes the depth that tells where there is nothing; the probes'
        pictures come last.
        """
        shots: List[Shot] = []
        slots: Dict[str, int] = {}
        for name, sensor in self.sensors.items():
            if isinstance(sensor, CameraSensor):
                slots[name] = len(shots)
                kinds = [sensor.kind, *(["depth"] if sensor.kind == "semantic" else [])]
                shots += [Shot(kind, sensor.width, sensor.height, sensor.fov) for kind in kinds]
        probes = self._probes
        slots[""] = len(shots)
        for kind in ("depth", "semantic"):
            for turn in probes.turns:
                shots.append(Shot(kind, probes.width, probes.height, probes.fov, float(turn)))
        return tuple(shots), slots

    def observation_specs(self) -> Dict[str, ArraySpec]:
        found: Dict[str, ArraySpec] = {}
        probed = self._probes.specs()
        for name, sensor in self.sensors.items():
            if not isinstance(sensor, CameraSensor):
                found.update({k: s for k, s in probed.items() if k.rsplit(".", 1)[0] == name})
                continue
            size = (sensor.height, sensor.width)
            if sensor.kind == "rgb":
                found[name] = ArraySpec((*size, 3), "uint8", 0, 255)
            elif sensor.kind == "depth":
                found[name] = ArraySpec((*size, 1), "float32", 0.0, sensor.max_depth)
            else:
                found[name] = ArraySpec(size, "int8", 0, self._n_classes - 1, self._n_classes)
        return found

    def load(self, row: int, scene: Any) -> None:
        files, own = self._stages.files(scene), self._rows[row]
        own.points = []
        if own.files != files:
            own.scene, own.files, own.stage = scene, files, None
        self._entered(row).prepare([])
        self.collided[row] = False

    def _entered(self, row: int) -> _Row:
        """The row with its scene loaded, and every camera in it that was ever asked for."""
        own = self._rows[row]
        if own.files is None:
            raise RuntimeError(f"environment {row} has no scene yet: call load({row}, scene) first")
        stage = self._stages.get(own.scene, own.files, self._in_use)
        if stage is not own.stage:
            own.enter(stage)
        return own

    def _in_use(self) -> Set[str]:
        return {own.files.key for own in self._rows if own.files is not None}

    def instances(self, row: int) -> Instances:
        found: Instances = self._entered(row).contents.instances
        return found

    def random_points(self, row: int, rng: np.random.Generator, count: int) -> np.ndarray:
        return self._ground(row).random_points(rng, count)

    def points_around(
        self, row: int, centre: np.ndarray, radius: float, spacing: float
    ) -> np.ndarray:
        return self._ground(row).points_around(centre, radius, spacing)

    def in_sight(self, row: int, instance: int, points: np.ndarray) -> np.ndarray:
        place = self._entered(row)
        centre, number = place.contents.centres[instance], place.contents.ids[instance]
        seen = np.zeros(len(points), dtype=bool)
        for i, point in enumerate(np.asarray(points, dtype=np.float64)):
            x, _, z = centre - point
            yaw = np.array(np.arctan2(-x, -z))
            eye = eyes(point, yaw, self.body)
            line = centre - eye
            tilt = np.arctan2(line[1], np.hypot(line[0], line[2]))
            # A camera that is ahead of the agent may have passed a near instance.
            yaw = np.arctan2(-line[0], -line[2])
            (ids,) = place.world.draw(_SIGHT, eye, float(yaw), float(tilt))
            seen[i] = np.count_nonzero(ids == number) >= _PIXELS_NEEDED
        return seen

    def place(
        self, rows: np.ndarray, positions: np.ndarray, yaw: np.ndarray, tilt: np.ndarray
    ) -> None:
        self.positions[rows], self.yaw[rows], self.tilt[rows] = positions, yaw, tilt
        self.collided[rows] = False

    def forward(self, distance: np.ndarray) -> np.ndarray:
        before = self.positions.copy()
        direction = np.stack([-np.sin(self.yaw), 0 * self.yaw, -np.cos(self.yaw)], axis=1)
        wanted = before + direction * np.asarray(distance)[:, None]
        self.collided[:] = False
        for row in np.flatnonzero(distance):
            at = self._ground(int(row)).step(before[row], wanted[row])
            missed = np.abs(at - wanted[row])[[0, 2]].max()
            self.collided[row] = missed > _EXACT
            if missed <= _EXACT:
                at[0], at[2] = wanted[row, 0], wanted[row, 2]
            self.positions[row] = at
        moved = self.positions - before
        return np.asarray(np.sqrt((moved * moved).sum(axis=1)))

    def turn(self, yaw: np.ndarray, tilt: np.ndarray) -> None:
        self.yaw += yaw
        np.remainder(self.yaw, 2 * np.pi, out=self.yaw)
        self.tilt += tilt

    def observe(self, out: Dict[str, np.ndarray]) -> None:
        if not self._observer:
            return
        places = eyes(self.positions, self.yaw, self.body)
        axes = camera_axes(self.yaw, self.tilt)
        for env in range(self.num_envs):
            entered = self._entered(env)
            yaw, tilt = float(self.yaw[env]), float(self.tilt[env])
            seen = entered.world.draw(_OBSERVER, places[env], yaw, tilt)
            for name, sensor in self.sensors.items():
                if isinstance(sensor, CameraSensor):
                    self._write(sensor, self._slots[name], seen, entered, out[name][env])
            if self._probes.active:
                first = self._slots[""]
                half = first + len(self._probes.turns)
                depth, ids = np.stack(seen[first:half]), np.stack(seen[half:])
                eye = to_mujoco(places[env])
                self._probes.observe(env, depth, ids, entered.contents, eye, axes[env], out)

    def _write(
        self, sensor: CameraSensor, slot: int, seen: List[np.ndarray], entered: _Row,
        out: np.ndarray,
    ) -> None:  # fmt: skip
        picture = seen[slot]
        if sensor.kind == "rgb":
            out[...] = picture[..., :3]
        elif sensor.kind == "depth":
            np.minimum(picture, sensor.max_depth, out=out[..., 0])
            out[..., 0][picture == 0] = sensor.max_depth
        else:
            out[...] = entered.contents.classes[picture]
            out[seen[slot + 1] == 0] = NOTHING

    def set_goals(self, row: int, goals: Sequence[np.ndarray]) -> None:
        place = self._entered(row)
        place.prepare([np.array(goal, dtype=np.float64).reshape(-1, 3) for goal in goals])

    def distance(self, goal: np.ndarray) -> np.ndarray:
        return np.array([self._distance(row, int(goal[row])) for row in range(self.num_envs)])

    def distances_from(self, row: int, goal: int, points: np.ndarray) -> np.ndarray:
        place = self._entered(row)
        ground, target = self._ground(row), place.goals[goal]
        points = np.asarray(points, dtype=np.float64)
        return np.array([ground.distance(point, target) for point in points], dtype=np.float64)

    def _distance(self, row: int, goal: int) -> float:
        """Found once for a place: an agent that turns stays where it is."""
        place = self._entered(row)
        asked = (goal, *self.positions[row].tolist())
        if place.last is None or place.last[0] != asked:
            found = self._ground(row).distance(self.positions[row], place.goals[goal])
            place.last = (asked, found)
        return float(place.last[1])

    def visible_pixels(self, row: int, camera: ReferenceCamera) -> np.ndarray:
        (ids,) = self._photograph(row, Shot("semantic", camera.width, camera.height, camera.fov))
        contents = self._entered(row).contents
        counts = np.bincount(ids.ravel(), minlength=len(contents.classes))
        return np.asarray(counts[contents.ids], dtype=np.int64)

    def top_down(self, row: int) -> TopDown:
        """The house as it is drawn for every backend, or, of a dataset's scene, its free floor."""
        scene = self._entered(row).scene
        if isinstance(scene, HouseSpec) and importlib.util.find_spec("cv2") is not None:
            drawn = top_down(scene, _MAP_SCALE, labels=False)
            return TopDown(drawn.image, drawn.x0, drawn.z0, drawn.pixels_per_metre)
        return self._free_floor(row)

    def _free_floor(self, row: int) -> TopDown:
        """The main region, grown by the body's radius: the floor, as far as the agent gets."""
        place, scale = self._entered(row), _FREE_SCALE
        low, high = self._ground(row).bounds
        height = float((low[1] + high[1]) / 2)
        view = place.world.pathfinder.get_topdown_island_view(1 / scale, height, 10.0)
        first = place.world.pathfinder.get_bounds()[0]
        free = np.pad(np.asarray(view) == self._ground(row).island, _cells(MARGIN, scale))
        free = _grown(free, self.body.radius * scale)
        picture = np.empty((*free.shape, 3), dtype=np.uint8)
        picture[...] = PAPER
        picture[free] = _FLOOR
        edge = _cells(MARGIN, scale) / scale
        return TopDown(picture, float(first[0]) - edge, float(first[2]) - edge, scale)

    def picture(self, row: int, width: int, height: int, fov: float = 90.0) -> np.ndarray:
        (seen,) = self._photograph(row, Shot("rgb", width, height, fov))
        return np.ascontiguousarray(seen[..., :3])

    def close(self) -> None:
        self._stages.close()

    def _photograph(self, row: int, shot: Shot) -> List[np.ndarray]:
        """A picture from the pose of a row with a camera of its own."""
        if (shot,) not in self._stages.rigs:
            self._stages.rigs = (*self._stages.rigs, (shot,))
        place = self._entered(row)
        eye = eyes(self.positions[row], self.yaw[row], self.body)
        rig = self._stages.rigs.index((shot,))
        found: List[np.ndarray] = place.world.draw(
            rig, eye, float(self.yaw[row]), float(self.tilt[row])
        )
        return found

    def _ground(self, row: int) -> NavGround:
        return self._entered(row).ground


class _Row:
    """One agent's scene, the stage where it was last seen, and its goals.

    Attributes:
        scene, files: what was asked for.
        stage: the stage.
        points, goals: of each goal, as they were given and as the ground needs them.
        last: the distance asked for last: what was asked, and the answer.
    """

    def __init__(self) -> None:
        self.scene: Any = None
        self.files: Optional[SceneFiles] = None
        self.stage: Any = None
        self.points: List[np.ndarray] = []
        self.goals: List[Goal] = []
        self.last: Any = None

    @property
    def world(self) -> World:
        """The simulator that holds the scene."""
        found: World = self.stage.world
        return found

    @property
    def ground(self) -> NavGround:
        """Where the agent can go."""
        found: NavGround = self.stage.ground
        return found

    @property
    def contents(self) -> Any:
        """What is in the scene; see `habitat_world.Contents`."""
        return self.stage.contents

    def enter(self, stage: Stage) -> None:
        """Go to another stage with the same scene; goals are taken along."""
        self.stage = stage
        self.prepare(self.points)

    def prepare(self, points: List[np.ndarray]) -> None:
        """Take goals."""
        self.points, self.last = points, None
        self.goals = [self.ground.goal(found) for found in points]


def _sight_shot() -> Shot:
    fov = 2 * np.degrees(np.arctan(_SIGHT_SIZE / 2 / _PIXELS_PER_RADIAN))
    return Shot("semantic", _SIGHT_SIZE, _SIGHT_SIZE, float(fov))


def _cells(length: float, scale: float) -> int:
    return int(np.ceil(length * scale))


def _grown(mask: np.ndarray, radius: float) -> np.ndarray:
    """A mask grown by a disc, radius in cells."""
    n = int(radius)
    wide = np.pad(mask, n)
    result = np.zeros_like(mask)
    for dz, dx in np.argwhere(np.hypot(*np.indices((2 * n + 1, 2 * n + 1)) - n) <= radius):
        result |= wide[dz : dz + mask.shape[0], dx : dx + mask.shape[1]]
    return result
