"""The protocol of a simulator: some agents, each in a scene of its own, moved and seen together.

Frame: x right, y up, -z forward, metres, as in Habitat. A yaw is an angle about y in radians,
counter-clockwise from above; at yaw 0 the agent faces -z. A tilt is the camera's, in radians,
positive upwards.
"""

from __future__ import annotations

import abc
from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Sequence, Tuple

import numpy as np

from embodied_icrl.common.config import option
from embodied_icrl.common.errors import ConfigError

# What a ray or a pixel of a semantic sensor shows; the i-th category of the task is FIRST + i.
NOTHING, STRUCTURE, FURNITURE, FIRST_CATEGORY = range(4)


@dataclass(frozen=True)
class AgentBody:
    """An upright cylinder with a camera on top: by default Fetch, as in arXiv 2410.02751."""

    radius: float = option(0.3, "metres")
    height: float = option(1.5, "metres")
    camera_height: float = option(1.2, "of the camera above the floor, metres")
    camera_ahead: float = option(0.25, "of the camera before the middle of the body, metres")
    max_climb: float = option(0.2, "highest step it drives over, metres; only Habitat has steps")


@dataclass(frozen=True)
class CameraSensor:
    """A picture from the agent's camera."""

    kind: str = option("rgb", "rgb, depth or semantic")
    width: int = option(128, "pixels")
    height: int = option(128, "pixels")
    fov: float = option(90.0, "horizontal field of view, degrees")
    max_depth: float = option(10.0, "depth: metres, what is farther is cut to it")


@dataclass(frozen=True)
class RaySensor:
    """Distance and class of what a fan of rays from the camera meets, `columns * rows` rays.

    Gives two observations: "NAME.distance" float32 `[ray]` in [0, 1], parts of `max_distance`, and
    "NAME.class" int8 `[ray]`: NOTHING, STRUCTURE, FURNITURE, or FIRST_CATEGORY + category. Rays are
    ordered row by row from the top, left to right, evenly spread in angle, and turn with the
    camera's tilt.
    """

    columns: int = option(16, "rays side by side")
    rows: int = option(4, "rays one above the other")
    fov: float = option(90.0, "horizontal angle from the first to the last ray, degrees")
    vertical_fov: float = option(45.0, "vertical angle from the first to the last ray, degrees")
    max_distance: float = option(5.0, "metres; beyond, a ray meets nothing")


@dataclass(frozen=True)
class DetectorSensor:
    """A perfect object detector: for each category the nearest instance in sight.

    Gives "NAME.visible" int8 `[category]`, 0 or 1, and "NAME.where" float32 `[category, 3]`: sine
    and cosine of the bearing (positive: to the left), and the horizontal distance in parts of
    `max_distance`; zeros where no instance is in sight. In sight: within the field of view and
    `max_distance`, and a ray from the camera to the middle of the instance meets the instance.
    """

    fov: float = option(90.0, "horizontal field of view, degrees")
    vertical_fov: float = option(90.0, "degrees")
    max_distance: float = option(5.0, "metres from the camera")


def check_sensors(sensors: Mapping[str, Any], backend: str) -> None:
    """Refuse sensors that no backend can make.

    Raises:
        ConfigError: the message names the sensor's key.
    """
    for name, sensor in sensors.items():
        if isinstance(sensor, CameraSensor):
            if sensor.kind not in ("rgb", "depth", "semantic"):
                raise ConfigError(f"{name}.kind: use rgb, depth or semantic, not {sensor.kind!r}")
            _at_least(name, sensor, 1, "width", "height")
        elif isinstance(sensor, RaySensor):
            _at_least(name, sensor, 1, "columns", "rows")
        elif not isinstance(sensor, DetectorSensor):
            raise ConfigError(f"{name}: the {backend} backend has no {type(sensor).__name__}")
        if isinstance(sensor, (CameraSensor, DetectorSensor)) and not 1 <= sensor.fov <= 170:
            raise ConfigError(f"{name}.fov: use 1 to 170 degrees, not {sensor.fov}")
        if isinstance(sensor, (RaySensor, DetectorSensor)) and sensor.max_distance <= 0:
            raise ConfigError(f"{name}.max_distance: use more than 0 m, not {sensor.max_distance}")


def _at_least(name: str, sensor: Any, least: int, *fields: str) -> None:
    for field in fields:
        if getattr(sensor, field) < least:
            raise ConfigError(f"{name}.{field}: use at least {least}, not {getattr(sensor, field)}")


@dataclass(frozen=True)
class ReferenceCamera:
    """The camera that decides whether an instance is seen, whatever the policy sees."""

    width: int = option(256, "pixels")
    height: int = option(256, "pixels")
    fov: float = option(90.0, "horizontal field of view, degrees")


@dataclass(frozen=True)
class ArraySpec:
    """Shape, type and range of one environment's observation under one key.

    `classes` is the number of values of a categorical array, 0 for numbers.
    """

    shape: Tuple[int, ...]
    dtype: str
    low: float
    high: float
    classes: int = 0


@dataclass(frozen=True)
class Instances:
    """The target objects of a scene.

    Attributes:
        categories: int64 `[instance]`, index into the simulator's categories; -1: none of them.
        centres: float64 `[instance, 3]`, metres.
        names: for people.
    """

    categories: np.ndarray
    centres: np.ndarray
    names: Tuple[str, ...]


@dataclass(frozen=True)
class TopDown:
    """A map: uint8 RGB `[height, width, 3]`, and where a point of the house lies on it.

    Point (x, z) is at column `(x - x0) * scale` and row `(z - z0) * scale`, pixels.
    """

    picture: np.ndarray
    x0: float
    z0: float
    scale: float


class Simulator(abc.ABC):
    """`num_envs` agents, each in its own scene.

    Attributes:
        num_envs: how many.
        body: of the agents.
        sensors: by name.
        categories: names of the categories of target objects, in the order of the task.
        positions: float64 `[env, 3]`, middle of the agent's base. Read only, as are the next three.
        yaw, tilt: float64 `[env]`.
        collided: bool `[env]`, whether the last `forward` was cut short or deflected.
        picture_note: "" or, where `picture` is only a makeshift, a line that says how to get a
            better one.
    """

    num_envs: int
    body: AgentBody
    sensors: Mapping[str, Any]
    categories: Tuple[str, ...]
    positions: np.ndarray
    yaw: np.ndarray
    tilt: np.ndarray
    collided: np.ndarray
    picture_note: str = ""

    @abc.abstractmethod
    def observation_specs(self) -> Dict[str, ArraySpec]:
        """The observations of the sensors by key, of one environment."""

    @abc.abstractmethod
    def load(self, row: int, scene: Any) -> None:
        """Put environment `row` into a scene; its goals are forgotten, its pose is undefined.

        Args:
            scene: a `HouseSpec`, or whatever else the backend can load.

        Raises:
            HouseError, AssetError: the scene can't be used; the message names it.
        """

    @abc.abstractmethod
    def instances(self, row: int) -> Instances:
        """The target objects of the scene of `row`."""

    @abc.abstractmethod
    def random_points(self, row: int, rng: np.random.Generator, count: int) -> np.ndarray:
        """Points of the main navigable region, evenly over its area: float64 `[count, 3]`."""

    @abc.abstractmethod
    def points_around(
        self, row: int, centre: np.ndarray, radius: float, spacing: float
    ) -> np.ndarray:
        """Points of the main navigable region within a horizontal `radius` (metres) of a point,
        on a grid of about `spacing`: float64 `[point, 3]`, maybe none."""

    @abc.abstractmethod
    def in_sight(self, row: int, instance: int, points: np.ndarray) -> np.ndarray:
        """From which points the instance can be seen by an agent that faces it: bool `[point]`.

        The camera is where the body puts it, with any tilt. Furniture, walls and other objects
        hide it.
        """

    @abc.abstractmethod
    def place(
        self, rows: np.ndarray, positions: np.ndarray, yaw: np.ndarray, tilt: np.ndarray
    ) -> None:
        """Put agents `rows` (int64 `[row]`) at poses `[row, 3]`, `[row]`, `[row]`; clears
        `collided`."""

    @abc.abstractmethod
    def forward(self, distance: np.ndarray) -> np.ndarray:
        """Move every agent straight ahead by up to `distance` `[env]` (metres, 0: it stays),
        sliding along what it meets.

        Returns:
            float64 `[env]`, the distance between the old and the new position.
        """

    @abc.abstractmethod
    def turn(self, yaw: np.ndarray, tilt: np.ndarray) -> None:
        """Add `yaw` and `tilt` `[env]`; the task keeps tilts within its limits."""

    @abc.abstractmethod
    def observe(self, out: Dict[str, np.ndarray]) -> None:
        """Write every sensor's observation into `out`, arrays `[env, ...]` by key."""

    @abc.abstractmethod
    def set_goals(self, row: int, goals: Sequence[np.ndarray]) -> None:
        """Name the goals of a scene: goal g is a set of navigable points `[point, 3]`, maybe empty.

        Distances to a goal are computed when first asked for.
        """

    @abc.abstractmethod
    def distance(self, goal: np.ndarray) -> np.ndarray:
        """Geodesic distance of every agent to the nearest point of goal `goal` `[env]`: float64
        `[env]`, metres; inf where there is no way."""

    @abc.abstractmethod
    def distances_from(self, row: int, goal: int, points: np.ndarray) -> np.ndarray:
        """The same from any points `[point, 3]` of one scene: float64 `[point]`."""

    @abc.abstractmethod
    def visible_pixels(self, row: int, camera: ReferenceCamera) -> np.ndarray:
        """How many pixels of each instance the reference camera sees from the pose of `row`, at the
        current tilt: int64 `[instance]`."""

    def shows(self, row: int, camera: ReferenceCamera, instances: np.ndarray, pixels: int) -> bool:
        """Whether one of some instances `[n]` has at least so many of the `visible_pixels`.

        A backend may find out faster than by counting all of them.
        """
        return bool((self.visible_pixels(row, camera)[instances] >= pixels).any())

    @abc.abstractmethod
    def top_down(self, row: int) -> TopDown:
        """A map of the scene, without the agent."""

    @abc.abstractmethod
    def picture(self, row: int, width: int, height: int, fov: float = 90.0) -> np.ndarray:
        """What the agent's camera sees, for people: uint8 RGB `[height, width, 3]`."""

    @abc.abstractmethod
    def close(self) -> None:
        """Free everything, graphics memory included. Calling it twice does no harm."""


def goal_points(
    simulator: Simulator,
    row: int,
    instances: Sequence[int],
    reach: float,
    spacing: float = 0.15,
) -> np.ndarray:
    """Navigable points from which one of some instances is within reach and in sight: `[point, 3]`.

    Args:
        instances: indices into `simulator.instances(row)`.
        reach: greatest horizontal distance between the point and an instance's middle, metres.
        spacing: of the grid of points tried, metres.
    """
    centres = simulator.instances(row).centres
    found: List[np.ndarray] = [np.empty((0, 3))]
    for instance in instances:
        points = simulator.points_around(row, centres[instance], reach, spacing)
        found.append(points[simulator.in_sight(row, instance, points)])
    return np.concatenate(found)
