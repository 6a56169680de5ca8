"""A simulator of a house without walls and furniture, to test a task's own rules fast.

The agent walks in the rectangle around the house; distances are straight lines; an instance in the
field of view shows `PIXELS` pixels, whatever stands between.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from embodied_icrl.common.config import option
from embodied_icrl.houses.geometry import house_bounds
from embodied_icrl.simulators.base import ArraySpec, Instances, Simulator, TopDown
from embodied_icrl.simulators.poses import eyes

PIXELS = 100


@dataclass(frozen=True)
class PlainConfig:
    pixels: int = option(PIXELS, "that an instance in view shows")

    def build(self, num_envs, sensors, categories, body):
        return PlainSimulator(num_envs, sensors, categories, body, self.pixels)


class PlainSimulator(Simulator):
    def __init__(self, num_envs, sensors, categories, body, pixels):
        self.num_envs, self.sensors, self.body = num_envs, sensors, body
        self.categories, self.pixels = tuple(categories), pixels
        self.positions = np.zeros((num_envs, 3))
        self.yaw, self.tilt = np.zeros(num_envs), np.zeros(num_envs)
        self.collided = np.zeros(num_envs, dtype=bool)
        self.specs: list[Any] = [None] * num_envs
        self.goals: list[Any] = [None] * num_envs
        self.closed = False

    def observation_specs(self):
        return {"pose": ArraySpec((4,), "float32", -np.inf, np.inf)}

    def load(self, row, scene):
        self.specs[row], self.goals[row] = scene, None

    def instances(self, row):
        objects = self.specs[row].objects
        names = self.categories
        return Instances(
            np.array([names.index(o.category) if o.category in names else -1 for o in objects]),
            np.array([o.position for o in objects]) + [0.0, 0.1, 0.0],
            tuple(o.name for o in objects),
        )

    def _bounds(self, row):
        x0, z0, x1, z1 = house_bounds(self.specs[row])
        r = self.body.radius
        return np.array([x0 + r, 0.0, z0 + r]), np.array([x1 - r, 0.0, z1 - r])

    def random_points(self, row, rng, count):
        low, high = self._bounds(row)
        return low + rng.random((count, 3)) * (high - low)

    def points_around(self, row, centre, radius, spacing):
        offsets = np.arange(-radius, radius + spacing, spacing)
        x, z = np.meshgrid(centre[0] + offsets, centre[2] + offsets)
        points = np.stack([x.ravel(), np.zeros(x.size), z.ravel()], axis=1)
        near = np.hypot(points[:, 0] - centre[0], points[:, 2] - centre[2]) <= radius
        return points[near & self._inside(row, points)]

    def _inside(self, row, points):
        low, high = self._bounds(row)
        return ((points >= low) & (points <= high)).all(axis=1)

    def in_sight(self, row, instance, points):
        return np.ones(len(points), dtype=bool)

    def place(self, rows, positions, yaw, tilt):
        self.positions[rows], self.yaw[rows], self.tilt[rows] = positions, yaw, tilt
        self.collided[rows] = False

    def forward(self, distance):
        aim = np.stack([-np.sin(self.yaw), np.zeros(self.num_envs), -np.cos(self.yaw)], axis=1)
        wanted = self.positions + distance[:, None] * aim
        reached = wanted.copy()
        for row in np.flatnonzero(distance):
            reached[row] = np.clip(wanted[row], *self._bounds(row))
        moved = np.linalg.norm(reached - self.positions, axis=1)
        self.collided[:] = np.abs(reached - wanted).max(axis=1) > 1e-9
        self.positions[:] = reached
        return moved

    def turn(self, yaw, tilt):
        self.yaw += yaw
        self.tilt += tilt

    def observe(self, out):
        out["pose"][:, :2] = self.positions[:, ::2]
        out["pose"][:, 2], out["pose"][:, 3] = self.yaw, self.tilt

    def set_goals(self, row, goals):
        self.goals[row] = [points[::6] for points in goals]

    def distance(self, goal):
        pairs = enumerate(zip(goal, self.positions, strict=True))
        return np.array([self.distances_from(row, g, p[None])[0] for row, (g, p) in pairs])

    def distances_from(self, row, goal, points):
        places = self.goals[row][goal]
        if not len(places):
            return np.full(len(points), np.inf)
        far = np.linalg.norm(points[:, None] - places[None], axis=2).min(axis=1)
        return np.where(self._inside(row, points), far, np.inf)

    def visible_pixels(self, row, camera):
        offsets = self.instances(row).centres - eyes(self.positions, self.yaw, self.body)[row]
        bearing = np.arctan2(-offsets[:, 0], -offsets[:, 2]) - self.yaw[row]
        off = np.abs((bearing + np.pi) % (2 * np.pi) - np.pi)
        return np.where(off <= np.radians(camera.fov / 2), self.pixels, 0)

    def top_down(self, row):
        x0, z0, x1, z1 = house_bounds(self.specs[row])
        picture = np.full((int((z1 - z0) * 20) + 1, int((x1 - x0) * 20) + 1, 3), 200, np.uint8)
        picture[:1] = 0
        return TopDown(picture, x0, z0, 20.0)

    def picture(self, row, width, height, fov=90.0):
        picture = np.full((height, width, 3), 90, dtype=np.uint8)
        picture[: height // 2] = 200
        return picture

    def close(self):
        self.closed = True
