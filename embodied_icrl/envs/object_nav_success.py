"""When an agent has found what it is asked for."""

from __future__ import annotations

import numpy as np

from embodied_icrl.envs.object_nav_config import ObjectNavConfig
from embodied_icrl.envs.object_nav_houses import House
from embodied_icrl.simulators.base import Simulator
from embodied_icrl.simulators.poses import eyes

# Objects reach no farther than this from their middle, metres.
_EXTENT = 0.75


class SuccessRule:
    """The camera is within `success_distance` of the middle of an instance, in the plan, and the
    reference camera sees `min_pixels` of the same instance.

    Args:
        config: distance, pixels, camera and body.
        simulator: has the poses, and counts pixels.
        num_envs: agents.
    """

    def __init__(self, config: ObjectNavConfig, simulator: Simulator, num_envs: int) -> None:
        self._config, self._simulator = config, simulator
        # Instances that are asked for: their numbers, and their middles, infinite where there are
        # fewer than in other rows.
        self._instances = [np.zeros(0, dtype=np.int64) for _ in range(num_envs)]
        self._middles = np.full((num_envs, 1, 3), np.inf)
        # From the middle of the reference camera's picture to its corners.
        camera = config.reference_camera
        diagonal = np.hypot(1.0, camera.height / camera.width)
        self._corner = np.arctan(np.tan(np.radians(camera.fov) / 2) * diagonal)

    def aim(self, row: int, house: House, target: int) -> None:
        """Agent `row` is asked for that category, in that house, from now on."""
        instances = house.instances_of(target)
        more = len(instances) - self._middles.shape[1]
        if more > 0:
            pad = ((0, 0), (0, more), (0, 0))
            self._middles = np.pad(self._middles, pad, constant_values=np.inf)
        self._instances[row] = instances
        self._middles[row] = np.inf
        self._middles[row, : len(instances)] = house.centres[instances]

    def may_hold(self) -> np.ndarray:
        """Where an instance is near enough and may be in the picture: bool `[env]`.

        A cheap and necessary condition of `holds`.
        """
        near, offsets = self._near(slice(None))
        yaw, tilt = self._simulator.yaw, self._simulator.tilt
        level = np.cos(tilt)
        aim = np.stack([-np.sin(yaw) * level, np.sin(tilt), -np.cos(yaw) * level], axis=1)
        distance = np.sqrt((offsets * offsets).sum(axis=-1))
        spread = np.arcsin(np.minimum(_EXTENT / np.maximum(distance, _EXTENT), 1.0))
        with np.errstate(invalid="ignore"):
            along = (offsets * aim[:, None]).sum(axis=-1)
            seen = along >= np.cos(np.minimum(self._corner + spread, np.pi)) * distance
        return np.asarray((near & (seen | (distance < _EXTENT))).any(axis=1))

    def holds(self, row: int) -> bool:
        """Whether agent `row` has found what it is asked for."""
        near, _ = self._near(slice(row, row + 1))
        instances = self._instances[row]
        near_ones = instances[near[0, : len(instances)]]
        if not near_ones.size:
            return False
        config = self._config
        return self._simulator.shows(row, config.reference_camera, near_ones, config.min_pixels)

    def _near(self, rows: slice) -> tuple[np.ndarray, np.ndarray]:
        """Which instances are near enough to these agents, `[env, instance]`, and the ways from
        their cameras to the instances' middles, `[env, instance, 3]`."""
        simulator = self._simulator
        cameras = eyes(simulator.positions[rows], simulator.yaw[rows], self._config.body)
        offsets = self._middles[rows] - cameras[:, None]
        near = np.hypot(offsets[..., 0], offsets[..., 2]) <= self._config.success_distance
        return near, offsets
