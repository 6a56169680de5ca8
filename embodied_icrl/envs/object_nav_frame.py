"""Observations in the trial's frame: what an agent with odometry and a detector knows, in a form
that is easy to remember in one place and to use in another.

Nothing here is hidden from an agent that has GPS, heading and the detector: it could work it out.
But poses come as classes, and objects one at a time, so that looking for what is asked for among
what was seen is plain attention, of the target to "seen".
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

    With a detector, the object that it attends to: what is asked for where that is in sight, the
    nearest object in sight otherwise.

    - "seen": its category + 1; 0 where nothing is in sight.
    - "seen_cell": column and row of the square that it is on, as in "cell", + 1; 0 as above.
    - "seen_at": how far it is to the right and ahead of the first pose, in parts of `gps_range`:
      float32 `[2]`; zeros as above.
    """

    heading_parts: int = option(24, "parts of the circle")
    cell: float = option(0.5, "side of a square, metres")
    cells: int = option(48, "squares side by side, half of them on each side of the first pose")
    detector: str | None = option(
        "detector", "name of the sensor for what is seen; null: the pose alone"
    )

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
            spaces["seen"] = gym.spaces.Discrete(n_categories + 1)
            spaces["seen_cell"] = gym.spaces.MultiDiscrete([self.cells + 1, self.cells + 1])
            spaces["seen_at"] = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)
        return spaces

    def observe(
        self,
        gps: np.ndarray,
        turned: np.ndarray,
        targets: np.ndarray,
        observed: Mapping[str, np.ndarray],
        sensors: Mapping[str, Any],
        body: AgentBody,
    ) -> dict[str, np.ndarray]:
        """The observations.

        Args:
            gps: to the right and ahead of the first pose, metres `[env, 2]`.
            turned: yaw since the first pose, radians `[env]`.
            targets: categories that are asked for, `[env]`.
            observed: what the sensors observe.
            sensors: by name.
            body: of the agents.

        Returns:
            arrays by key, "seen_at" in metres.
        """
        part = np.floor(turned / (2 * np.pi) * self.heading_parts + 0.5) % self.heading_parts
        found = {"heading_part": part.astype(np.int64), "cell": self._cell(gps)}
        if self.detector is not None:
            where = observed[f"{self.detector}.where"]
            visible = np.asarray(observed[f"{self.detector}.visible"], dtype=bool)
            reach = sensors[self.detector].max_distance
            found |= self._attend(gps, turned, targets, where, visible, reach, body)
        return found

    def _cell(self, places: np.ndarray) -> np.ndarray:
        square = np.floor(places / self.cell) + self.cells // 2
        return np.asarray(np.clip(square, 0, self.cells - 1), dtype=np.int64)

    def _attend(
        self, gps: np.ndarray, turned: np.ndarray, targets: np.ndarray, where: np.ndarray,
        visible: np.ndarray, reach: float, body: AgentBody,
    ) -> dict[str, np.ndarray]:  # fmt: skip
        rows = np.arange(len(gps))
        distance = np.where(visible, where[..., 2], np.inf)
        chosen = np.where(visible[rows, targets], targets, distance.argmin(axis=1))
        any_seen = np.asarray(visible.any(axis=1))
        left, ahead, part = where[rows, chosen].astype(np.float64).T
        sine, cosine = np.sin(turned), np.cos(turned)
        forward = body.camera_ahead + part * reach * ahead
        sideways = part * reach * left
        place = gps.astype(np.float64)
        place[:, 0] -= forward * sine + sideways * cosine
        place[:, 1] += forward * cosine - sideways * sine
        return {
            "seen": np.where(any_seen, chosen + 1, 0),
            "seen_cell": np.where(any_seen[:, None], self._cell(place) + 1, 0),
            "seen_at": (place * any_seen[:, None]).astype(np.float32),
        }
