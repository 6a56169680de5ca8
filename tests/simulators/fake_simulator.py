"""A simulator that fits on a page: one square room, one object. Runs on Python 3.9 with NumPy."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from embodied_icrl.common.config import option
from embodied_icrl.common.errors import AssetError
from embodied_icrl.simulators.base import (
    AgentBody,
    ArraySpec,
    Instances,
    ReferenceCamera,
    Simulator,
    TopDown,
)


@dataclass(frozen=True)
class FakeConfig:
    half: float = option(3.0, "half the side of the room, metres")

    def build(
        self, num_envs: int, sensors: Mapping[str, Any], categories: Sequence[str], body: AgentBody
    ) -> FakeSimulator:
        return FakeSimulator(self, num_envs, sensors, categories, body)


class FakeSimulator(Simulator):
    """A scene is a text: "room", or a fault to show."""

    def __init__(
        self,
        config: FakeConfig,
        num_envs: int,
        sensors: Mapping[str, Any],
        categories: Sequence[str],
        body: AgentBody,
    ) -> None:
        self.half, self.num_envs, self.body = config.half, num_envs, body
        self.sensors, self.categories = sensors, tuple(categories)
        self.positions = np.zeros((num_envs, 3))
        self.yaw, self.tilt = np.zeros(num_envs), np.zeros(num_envs)
        self.collided = np.zeros(num_envs, dtype=bool)
        self.goals: dict[int, Sequence[np.ndarray]] = {}

    def observation_specs(self) -> dict[str, ArraySpec]:
        return {
            "where": ArraySpec((2,), "float32", -10.0, 10.0),
            "wall": ArraySpec((), "int8", 0, 1, classes=2),
        }

    def load(self, row: int, scene: Any) -> None:
        if scene == "missing":
            raise AssetError("scene missing: no such file")
        if scene == "die":
            print("last words", flush=True)
            os.kill(os.getpid(), 9)
        if scene == "hang":
            time.sleep(60)
        if scene == "raise":
            raise RuntimeError("a fault of the simulator")

    def instances(self, row: int) -> Instances:
        return Instances(np.array([0]), np.array([[1.0, 0.5, -1.0]]), ("mug_0",))

    def random_points(self, row: int, rng: np.random.Generator, count: int) -> np.ndarray:
        points = rng.uniform(-self.half, self.half, (count, 3))
        points[:, 1] = 0.0
        return points

    def points_around(
        self, row: int, centre: np.ndarray, radius: float, spacing: float
    ) -> np.ndarray:
        steps = np.arange(-radius, radius + 1e-9, spacing)
        x, z = np.meshgrid(steps, steps)
        near = x**2 + z**2 <= radius**2
        return np.stack([x[near] + centre[0], 0 * x[near], z[near] + centre[2]], axis=1)

    def in_sight(self, row: int, instance: int, points: np.ndarray) -> np.ndarray:
        return np.ones(len(points), dtype=bool)

    def place(
        self, rows: np.ndarray, positions: np.ndarray, yaw: np.ndarray, tilt: np.ndarray
    ) -> None:
        self.positions[rows], self.yaw[rows], self.tilt[rows] = positions, yaw, tilt
        self.collided[rows] = False

    def forward(self, distance: np.ndarray) -> np.ndarray:
        old = self.positions.copy()
        self.positions[:, 0] -= np.sin(self.yaw) * distance
        self.positions[:, 2] -= np.cos(self.yaw) * distance
        wanted = self.positions.copy()
        np.clip(self.positions, -self.half, self.half, out=self.positions)
        self.collided[:] = (wanted != self.positions).any(axis=1)
        moved: np.ndarray = np.linalg.norm(self.positions - old, axis=1)
        return moved

    def turn(self, yaw: np.ndarray, tilt: np.ndarray) -> None:
        self.yaw += yaw
        self.tilt += tilt

    def observe(self, out: dict[str, np.ndarray]) -> None:
        out["where"][...] = self.positions[:, ::2]
        out["wall"][...] = self.collided

    def set_goals(self, row: int, goals: Sequence[np.ndarray]) -> None:
        self.goals[row] = goals

    def distance(self, goal: np.ndarray) -> np.ndarray:
        rows = enumerate(goal)
        return np.array([self.distances_from(i, g, self.positions[i : i + 1])[0] for i, g in rows])

    def distances_from(self, row: int, goal: int, points: np.ndarray) -> np.ndarray:
        offsets = points[:, None] - self.goals[row][goal][None]
        nearest: np.ndarray = np.linalg.norm(offsets, axis=-1).min(axis=1)
        return nearest

    def visible_pixels(self, row: int, camera: ReferenceCamera) -> np.ndarray:
        return np.array([camera.width])

    def top_down(self, row: int) -> TopDown:
        return TopDown(np.zeros((8, 8, 3), np.uint8), -self.half, -self.half, 1.0)

    def picture(self, row: int, width: int, height: int, fov: float = 90.0) -> np.ndarray:
        return np.full((height, width, 3), row, np.uint8)

    def close(self) -> None:
        pass


def poses(simulator: Simulator) -> tuple[np.ndarray, ...]:
    return tuple(
        np.array(a)
        for a in (simulator.positions, simulator.yaw, simulator.tilt, simulator.collided)
    )
