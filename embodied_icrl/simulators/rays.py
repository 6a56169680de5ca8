"""Ray and detector sensors: one call of `mj_multiRay` per agent for all of them together."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Sequence, Tuple

import numpy as np

from embodied_icrl.common.errors import require
from embodied_icrl.houses.frames import to_mujoco
from embodied_icrl.simulators.base import ArraySpec, DetectorSensor, RaySensor
from embodied_icrl.simulators.poses import fan
from embodied_icrl.simulators.scene import Scene

# Floors, walls, furniture and objects; no collision boxes.
SEEN_GROUPS = np.array([1, 1, 1, 1, 0, 0], dtype=np.uint8)
# A detector's range is horizontal, a ray's cut-off isn't: objects are at most this far up or down.
_HEIGHTS = 3.0


class RayCaster:
    """Casts the rays of all agents into buffers made beforehand, and reads the sensors from them.

    Args:
        num_envs: agents.
        sensors: the ray and detector sensors by name.
        n_categories: of the task.
    """

    def __init__(
        self, num_envs: int, sensors: Mapping[str, Any], n_categories: int, n_classes: int
    ) -> None:
        self._num_envs, self._n_categories, self._n_classes = num_envs, n_categories, n_classes
        self._fans: List[Tuple[str, RaySensor, slice]] = []
        self._detectors: List[Tuple[str, DetectorSensor]] = []
        directions, at, cutoff = [np.zeros((0, 3))], 0, 0.0
        for name, sensor in sensors.items():
            if isinstance(sensor, RaySensor):
                own = fan(sensor.columns, sensor.rows, sensor.fov, sensor.vertical_fov)
                self._fans.append((name, sensor, slice(at, at + len(own))))
                directions.append(own)
                at += len(own)
                cutoff = max(cutoff, sensor.max_distance)
            elif isinstance(sensor, DetectorSensor):
                self._detectors.append((name, sensor))
                cutoff = max(cutoff, sensor.max_distance + _HEIGHTS)
        self._directions, self._cutoff = np.concatenate(directions), cutoff
        self.active = bool(self._fans or self._detectors)
        if self.active:
            self._cast = require("mujoco", "pip install 'mujoco>=3.5,<3.12'").mj_multiRay
        self._scenes: List[Any] = [None] * num_envs
        self._classes = np.zeros((num_envs, 1), dtype=np.int8)
        self._owners = np.full((num_envs, 1), -1, dtype=np.int32)
        self._centres = np.zeros((num_envs, 0, 3))
        self._kinds = np.full((num_envs, 0), -1, dtype=np.int64)
        self._allocate()

    def specs(self) -> Dict[str, ArraySpec]:
        """What the sensors give, by key."""
        found = {}
        for name, _, rays in self._fans:
            shape = (rays.stop - rays.start,)
            found[f"{name}.distance"] = ArraySpec(shape, "float32", 0.0, 1.0)
            last = self._n_classes - 1
            found[f"{name}.class"] = ArraySpec(shape, "int8", 0, last, self._n_classes)
        for name, _ in self._detectors:
            n = self._n_categories
            found[f"{name}.visible"] = ArraySpec((n,), "int8", 0, 1, 2)
            found[f"{name}.where"] = ArraySpec((n, 3), "float32", -1.0, 1.0)
        return found

    def load(self, row: int, scene: Scene) -> None:
        """Agent `row` is in that scene from now on."""
        geoms, instances = len(scene.classes), len(scene.instances.categories)
        self._scenes[row] = (scene.model, scene.data)
        if geoms > self._classes.shape[1]:
            self._classes = _wider(self._classes, geoms)
            self._owners = _wider(self._owners, geoms)
        # Geom -1 is the last column.
        self._classes[row, : geoms - 1], self._classes[row, -1] = scene.classes[:-1], 0
        self._owners[row, : geoms - 1], self._owners[row, -1] = scene.owners[:-1], -1
        if self._detectors:
            if instances > self._centres.shape[1]:
                self._centres = _wider(self._centres, instances)
                self._kinds = _wider(self._kinds, instances)
                self._allocate()
            self._kinds[row] = -1
            self._kinds[row, :instances] = scene.instances.categories
            self._centres[row, :instances] = to_mujoco(scene.instances.centres)

    def _allocate(self) -> None:
        """Buffers for the fans and for one ray to every instance from every detector."""
        self._n_fan = len(self._directions)
        most = self._n_fan + self._centres.shape[1] * len(self._detectors)
        n = self._num_envs
        self._vectors = np.zeros((n, most, 3))
        self._geoms = np.full((n, most), -1, dtype=np.int32)
        self._distances = np.zeros((n, most))
        self._flat = [vectors.reshape(-1) for vectors in self._vectors]
        self._fan_views = [
            (self._flat[i][: 3 * self._n_fan], self._geoms[i, : self._n_fan],
             self._distances[i, : self._n_fan])
            for i in range(n)
        ]  # fmt: skip

    def observe(self, eyes: np.ndarray, axes: np.ndarray, out: Dict[str, np.ndarray]) -> None:
        """Write all observations.

        Args:
            eyes: cameras' places, MuJoCo's frame, `[env, 3]`.
            axes: right, up, ahead of the cameras, `[env, 3, 3]`.
            out: arrays `[env, ...]` by key.
        """
        np.matmul(self._directions, axes, out=self._vectors[:, : self._n_fan])
        asked = [self._aim(sensor, eyes, axes) for _, sensor in self._detectors]
        if not asked:
            self._cast_fans(eyes)
        else:
            self._cast_all(eyes, asked)
        if self._fans:
            self._read_fans(out)
        for (name, sensor), candidates in zip(self._detectors, asked):
            self._read_detector(name, sensor, candidates, out)

    def _cast_fans(self, eyes: np.ndarray) -> None:
        cast, groups, n, cutoff = self._cast, SEEN_GROUPS, self._n_fan, self._cutoff
        for (model, data), eye, (vectors, geoms, distances) in zip(
            self._scenes, eyes, self._fan_views
        ):
            cast(model, data, eye, vectors, groups, True, -1, geoms, distances, None, n, cutoff)

    def _cast_all(self, eyes: np.ndarray, asked: Sequence[_Candidates]) -> None:
        """The fans, and behind them one ray to each candidate of each detector."""
        count = np.full(self._num_envs, self._n_fan)
        for candidates in asked:
            env = candidates.env
            own = np.bincount(env, minlength=self._num_envs)
            candidates.slot = count[env] + np.arange(len(env)) - (np.cumsum(own) - own)[env]
            self._vectors[env, candidates.slot] = candidates.direction
            count += own
        for i, n in enumerate(count.tolist()):
            if n:
                model, data = self._scenes[i]
                self._cast(
                    model, data, eyes[i], self._flat[i][: 3 * n], SEEN_GROUPS, True, -1,
                    self._geoms[i, :n], self._distances[i, :n], None, n, self._cutoff,
                )  # fmt: skip

    def _read_fans(self, out: Dict[str, np.ndarray]) -> None:
        for name, sensor, rays in self._fans:
            geoms, distances = self._geoms[:, rays], self._distances[:, rays]
            nothing = (geoms < 0) | (distances > sensor.max_distance)
            seen = np.take_along_axis(self._classes, geoms.astype(np.intp), axis=1)
            seen[nothing] = 0
            out[f"{name}.class"][...] = seen
            part = distances / sensor.max_distance
            part[nothing] = 1.0
            out[f"{name}.distance"][...] = part

    def _aim(self, sensor: DetectorSensor, eyes: np.ndarray, axes: np.ndarray) -> _Candidates:
        """The instances in the field of view and within range."""
        offset = self._centres - eyes[:, None]
        local = np.matmul(offset, axes.transpose(0, 2, 1))
        horizontal = np.sqrt(offset[..., 0] ** 2 + offset[..., 1] ** 2)
        inside = (self._kinds >= 0) & (horizontal <= sensor.max_distance) & (local[..., 2] > 0)
        inside &= np.abs(np.arctan2(local[..., 0], local[..., 2])) <= np.radians(sensor.fov) / 2
        upward = np.abs(np.arctan2(local[..., 1], local[..., 2]))
        inside &= upward <= np.radians(sensor.vertical_fov) / 2
        env, instance = np.nonzero(inside)
        way = offset[env, instance]
        length = np.sqrt((way * way).sum(axis=1, keepdims=True))
        right = axes[env, 0]
        # Turned from the right, a quarter to the left is straight ahead, whatever the tilt.
        across = (way * right).sum(axis=1)
        forward = way[:, 1] * right[:, 0] - way[:, 0] * right[:, 1]
        return _Candidates(env, instance, way / np.maximum(length, 1e-9), across, forward)

    def _read_detector(
        self, name: str, sensor: DetectorSensor, found: _Candidates, out: Dict[str, np.ndarray]
    ) -> None:
        visible, where = out[f"{name}.visible"], out[f"{name}.where"]
        visible[...], where[...] = 0, 0.0
        hit = self._owners[found.env, self._geoms[found.env, found.slot]] == found.instance
        env, instance = found.env[hit], found.instance[hit]
        kind = self._kinds[env, instance]
        across, forward = found.across[hit], found.forward[hit]
        distance = np.sqrt(across * across + forward * forward)
        nearest = np.full((self._num_envs, self._n_categories), np.inf)
        np.minimum.at(nearest, (env, kind), distance)
        first = distance == nearest[env, kind]
        env, kind, distance = env[first], kind[first], distance[first]
        scale = np.maximum(distance, 1e-9)
        visible[env, kind] = 1
        where[env, kind, 0] = -across[first] / scale
        where[env, kind, 1] = forward[first] / scale
        where[env, kind, 2] = distance / sensor.max_distance


class _Candidates:
    """Instances that a detector may see; `slot` is the place of each one's ray."""

    def __init__(
        self, env: np.ndarray, instance: np.ndarray, direction: np.ndarray, across: np.ndarray,
        forward: np.ndarray,
    ) -> None:  # fmt: skip
        self.env, self.instance, self.direction = env, instance, direction
        self.across, self.forward = across, forward
        self.slot = np.zeros(len(env), dtype=np.int64)


def _wider(array: np.ndarray, columns: int) -> np.ndarray:
    """The array with more columns, its last one repeated."""
    if not array.shape[1]:
        fill = -1 if array.dtype == np.int64 else 0
        return np.full((array.shape[0], columns, *array.shape[2:]), fill, dtype=array.dtype)
    more = np.repeat(array[:, -1:], columns - array.shape[1], axis=1)
    return np.concatenate([array, more], axis=1)
