"""Observations in the trial's frame: what an agent with odometry knows, in a form that is easy to
remember in one place and to use in another.

Nothing here is hidden from an agent that has GPS, heading and the detector: it could work it out.
With them as classes and in one frame, small policies learn to use their memory much sooner.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np

from embodied_icrl.common.config import option
from embodied_icrl.common.errors import ConfigError
from embodied_icrl.simulators.base import AgentBody, DetectorSensor


@dataclass(frozen=True)
class TrialFrame:
    """Further observations in the frame of the trial's first pose.

    - "heading_part": which of `heading_parts` equal parts of the circle the agent faces.
    - "cell": column and row of the square that it stands on; at the edge where it is beyond it.
    - "seen_at", with a detector: where the nearest instance in sight of each category is, to the
      right and ahead of the first pose, in parts of `gps_range`: float32 `[category, 2]`, zeros
      where none is in sight.
    """

    heading_parts: int = option(24, "parts of the circle")
    cell: float = option(0.5, "side of a square, metres")
    cells: int = option(48, "squares side by side, half of them on each side of the first pose")
    detector: str | None = option("detector", "name of the sensor for seen_at; null: no seen_at")

    def __post_init__(self) -> None:
        if self.heading_parts < 2 or self.cells < 2 or self.cell <= 0:
            raise ConfigError("frame: heading_parts and cells need at least 2, cell more than 0")

    def spaces(self, sensors: Mapping[str, Any], n_categories: int) -> dict[str, gym.Space[Any]]:
        """The spaces of these observations.

        Raises:
            ConfigError: `detector` is not a detector.
        """
        spaces: dict[str, gym.Space[Any]] = {
            "heading_part": gym.spaces.Discrete(self.heading_parts),
            "cell": gym.spaces.MultiDiscrete([self.cells, self.cells]),
        }
        if self.detector is not None:
            if not isinstance(sensors.get(self.detector), DetectorSensor):
                raise ConfigError(
                    f"frame.detector: there is no DetectorSensor called {self.detector!r}; "
                    "add one to sensors, or set it to null"
                )
            spaces["seen_at"] = gym.spaces.Box(-np.inf, np.inf, (n_categories, 2), np.float32)
        return spaces

    def observe(
        self,
        gps: np.ndarray,
        turned: np.ndarray,
        observed: Mapping[str, np.ndarray],
        sensors: Mapping[str, Any],
        body: AgentBody,
    ) -> dict[str, np.ndarray]:
        """The observations.

        Args:
            gps: to the right and ahead of the first pose, metres `[env, 2]`.
            turned: yaw since the first pose, radians `[env]`.
            observed: what the sensors observe.
            sensors: by name.
            body: of the agents.

        Returns:
            arrays by key, "seen_at" in metres.
        """
        part = np.floor(turned / (2 * np.pi) * self.heading_parts + 0.5) % self.heading_parts
        cell = np.floor(gps / self.cell) + self.cells // 2
        found = {
            "heading_part": part.astype(np.int64),
            "cell": np.clip(cell, 0, self.cells - 1).astype(np.int64),
        }
        if self.detector is not None:
            where = observed[f"{self.detector}.where"].astype(np.float64)
            visible = observed[f"{self.detector}.visible"]
            ahead = np.stack([-np.sin(turned), np.cos(turned)], axis=1)
            left = np.stack([-np.cos(turned), -np.sin(turned)], axis=1)
            metres = where[..., 2] * sensors[self.detector].max_distance
            along = body.camera_ahead + metres * where[..., 1]
            across = metres * where[..., 0]
            place = gps[:, None] + along[..., None] * ahead[:, None]
            place += across[..., None] * left[:, None]
            found["seen_at"] = (place * visible[..., None]).astype(np.float32)
        return found
