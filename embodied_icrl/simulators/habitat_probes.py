"""Ray and detector sensors for a backend that draws: read from depth and semantic pictures.

The pictures cover the fan of rays; for wide fans several cameras stand side by side. Each ray is
looked up where it crosses its picture.
"""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Tuple

import numpy as np

from embodied_icrl.common.errors import ConfigError
from embodied_icrl.houses.frames import to_mujoco
from embodied_icrl.simulators.base import NOTHING, ArraySpec, DetectorSensor, RaySensor
from embodied_icrl.simulators.poses import fan

# Largest horizontal angle of one camera, degrees, and largest vertical angle of a sensor.
_WIDEST, _HIGHEST = 100.0, 140.0
# Neighbouring pixels whose depths differ by more than this factor are of two surfaces.
_EDGE = 1.25


class Probes:
    """Where the rays and detectors of an agent find their pixels.

    Args:
        sensors: of all kinds; the ray and detector sensors are taken.
        n_categories: of the task.
        n_classes: of what a ray may meet.
        pixels: per 90 degrees of a picture.

    Attributes:
        active: whether there is such a sensor.
        width, height, fov: of each picture; fov is horizontal, in degrees.
        turns: yaw of each camera relative to the agent's, radians, to the right positive.

    Raises:
        ConfigError: a sensor looks farther up and down than a picture can.
    """

    def __init__(
        self, sensors: Mapping[str, Any], n_categories: int, n_classes: int, pixels: int
    ) -> None:
        self._n_categories, self._n_classes = n_categories, n_classes
        self._fans = [(k, s) for k, s in sensors.items() if isinstance(s, RaySensor)]
        self._detectors = [(k, s) for k, s in sensors.items() if isinstance(s, DetectorSensor)]
        self.active = bool(self._fans or self._detectors)
        self.width = self.height = 0
        self.fov, self.turns = 90.0, np.zeros(0)
        if not self.active:
            return
        both: List[Tuple[str, Any]] = [*self._fans, *self._detectors]
        for name, sensor in both:
            if sensor.vertical_fov > _HIGHEST:
                raise ConfigError(
                    f"{name}.vertical_fov: Habitat draws at most {_HIGHEST:g} degrees"
                )
        self._arrange(np.radians(max(sensor.fov for _, sensor in both)), pixels)
        self._rays = [self._places(sensor) for _, sensor in self._fans]

    def _arrange(self, span: float, pixels: int) -> None:
        """Choose cameras and their size, for rays over so many radians."""
        count = max(1, int(np.ceil(span / np.radians(_WIDEST) - 1e-9)))
        self._half = max(span / count / 2, np.radians(2.0))
        self.turns = (np.arange(count) - (count - 1) / 2) * 2 * self._half
        upward = [np.tan(np.radians(s.vertical_fov / 2)) for _, s in self._detectors]
        for _, sensor in self._fans:
            rays = _fan(sensor)
            camera = self._camera_of(np.arctan2(rays[:, 0], rays[:, 2]))
            local = _turned(rays, self.turns[camera])
            upward.append(float(np.abs(local[:, 1] / local[:, 2]).max()))
        across = np.tan(self._half)
        self.width = max(16, int(round(pixels * 2 * self._half / (np.pi / 2))))
        # One pixel more on each side, so that every ray has its neighbours.
        self._scale = (self.width / 2 - 1) / across
        spread = max(upward) / np.cos(self._half if count > 1 else 0.0)
        self.height = 2 * int(np.ceil(spread * self._scale + 1))
        self.fov = float(np.degrees(2 * np.arctan(self.width / 2 / self._scale)))

    def _camera_of(self, azimuth: np.ndarray) -> np.ndarray:
        place = np.floor((azimuth - self.turns[0] + self._half) / (2 * self._half))
        return np.asarray(np.clip(place, 0, len(self.turns) - 1).astype(np.int64))

    def _places(self, sensor: RaySensor) -> _Rays:
        rays = _fan(sensor)
        camera = self._camera_of(np.arctan2(rays[:, 0], rays[:, 2]))
        local = _turned(rays, self.turns[camera])
        column, row = self._pixel(local)
        left = np.clip(np.floor(column), 0, self.width - 2).astype(np.int64)
        top = np.clip(np.floor(row), 0, self.height - 2).astype(np.int64)
        right, low = column - left, row - top
        first = (camera * self.height + top) * self.width + left
        corners = np.stack([first, first + 1, first + self.width, first + self.width + 1], axis=1)
        weights = np.stack(
            [(1 - right) * (1 - low), right * (1 - low), (1 - right) * low, right * low], axis=1
        )
        nearest = corners[np.arange(len(rays)), weights.argmax(axis=1)]
        return _Rays(corners, weights, nearest, 1.0 / local[:, 2])

    def _pixel(self, local: np.ndarray) -> Tuple[np.ndarray, np.ndarray]:
        """Column and row, in parts of pixels, of directions `[n, 3]` in a camera's axes."""
        column = self.width / 2 - 0.5 + self._scale * local[:, 0] / local[:, 2]
        row = self.height / 2 - 0.5 - self._scale * local[:, 1] / local[:, 2]
        return column, row

    def specs(self) -> Dict[str, ArraySpec]:
        """What the sensors give, by key."""
        found = {}
        for name, sensor in self._fans:
            shape = (sensor.columns * sensor.rows,)
            found[f"{name}.distance"] = ArraySpec(shape, "float32", 0.0, 1.0)
            last = self._n_classes - 1
            found[f"{name}.class"] = ArraySpec(shape, "int8", 0, last, self._n_classes)
        for name, _ in self._detectors:
            n = self._n_categories
            found[f"{name}.visible"] = ArraySpec((n,), "int8", 0, 1, 2)
            found[f"{name}.where"] = ArraySpec((n, 3), "float32", -1.0, 1.0)
        return found

    def observe(
        self, env: int, depth: np.ndarray, ids: np.ndarray, scene: Any,
        eye: np.ndarray, axes: np.ndarray, out: Dict[str, np.ndarray],
    ) -> None:  # fmt: skip
        """Write the observations of one agent.

        Args:
            env: its row in `out`.
            depth: float32 `[camera, height, width]`, metres along the camera's axis, 0: nothing.
            ids: semantic ids `[camera, height, width]`.
            scene: has `classes` (class by semantic id), `ids` (of the instances), `kinds` (their
                categories) and `centres`.
            eye, axes: as from `poses.views`, `[3]` and `[3, 3]`.
            out: arrays `[env, ...]` by key.
        """
        flat, numbers = depth.ravel(), ids.ravel()
        for (name, sensor), rays in zip(self._fans, self._rays):
            distance, number = rays.read(flat, numbers)
            nothing = (distance <= 0) | (distance > sensor.max_distance)
            out[f"{name}.class"][env] = np.where(nothing, NOTHING, scene.classes[number])
            out[f"{name}.distance"][env] = np.where(nothing, 1.0, distance / sensor.max_distance)
        for name, detector in self._detectors:
            visible, where = out[f"{name}.visible"][env], out[f"{name}.where"][env]
            self._detect(detector, ids, scene, eye, axes, visible, where)

    def _detect(
        self, sensor: DetectorSensor, ids: np.ndarray, scene: Any, eye: np.ndarray,
        axes: np.ndarray, visible: np.ndarray, where: np.ndarray,
    ) -> None:  # fmt: skip
        visible[...], where[...] = 0, 0.0
        offset = to_mujoco(scene.centres) - eye
        local = offset @ axes.T
        apart = np.hypot(offset[:, 0], offset[:, 1])
        azimuth = np.arctan2(local[:, 0], local[:, 2])
        inside = (scene.kinds >= 0) & (apart <= sensor.max_distance) & (local[:, 2] > 0)
        inside &= np.abs(azimuth) <= np.radians(sensor.fov) / 2
        upward = np.abs(np.arctan2(local[:, 1], local[:, 2]))
        inside &= upward <= np.radians(sensor.vertical_fov) / 2
        candidates = np.flatnonzero(inside)
        if not candidates.size:
            return
        camera = self._camera_of(azimuth[candidates])
        column, row = self._pixel(_turned(local[candidates], self.turns[camera]))
        column = np.clip(np.rint(column), 0, self.width - 1).astype(np.int64)
        row = np.clip(np.rint(row), 0, self.height - 1).astype(np.int64)
        seen = candidates[ids[camera, row, column] == scene.ids[candidates]]
        # The farthest first, so that the nearest of a category remains.
        seen = seen[np.argsort(-apart[seen], kind="stable")]
        right = axes[0]
        across = offset[seen] @ right
        ahead = offset[seen, 1] * right[0] - offset[seen, 0] * right[1]
        scale = np.maximum(apart[seen], 1e-9)
        values = np.stack([-across / scale, ahead / scale, apart[seen] / sensor.max_distance], 1)
        for kind, value in zip(scene.kinds[seen], values):
            visible[kind], where[kind] = 1, value


class _Rays:
    """The pixels around each ray of a fan: which, their weights, the nearest; and the length of the
    ray per metre of depth."""

    def __init__(
        self, corners: np.ndarray, weights: np.ndarray, nearest: np.ndarray, stretch: np.ndarray
    ) -> None:
        self.corners, self.weights = corners, weights
        self.nearest, self.stretch = nearest, stretch

    def read(self, depth: np.ndarray, ids: np.ndarray) -> Tuple[np.ndarray, np.ndarray]:
        """Lengths (metres, 0 where nothing is met) and semantic ids, `[ray]`.

        On a plane the inverse of the depth is linear in the picture, so that interpolating it gives
        exact lengths; at the edge of a surface the nearest pixel decides.
        """
        around, nearest, number = depth[self.corners], depth[self.nearest], ids[self.nearest]
        one = (ids[self.corners] == number[:, None]).all(axis=1)
        low, high = around.min(axis=1), around.max(axis=1)
        smooth = one & (low > 0) & (high < _EDGE * low)
        with np.errstate(divide="ignore", invalid="ignore"):
            blended = 1.0 / (self.weights / around).sum(axis=1)
        return np.where(smooth, blended, nearest) * self.stretch, number


def _fan(sensor: RaySensor) -> np.ndarray:
    return fan(sensor.columns, sensor.rows, sensor.fov, sensor.vertical_fov)


def _turned(directions: np.ndarray, turn: np.ndarray) -> np.ndarray:
    """Directions `[n, 3]` (right, up, ahead) in the axes of cameras turned to the right."""
    c, s = np.cos(turn), np.sin(turn)
    x, y, z = directions.T
    return np.stack([c * x - s * z, y, s * x + c * z], axis=1)
