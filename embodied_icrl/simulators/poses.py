"""Where the agents' cameras are and where they look, in MuJoCo's frame, all at once."""

from __future__ import annotations

from typing import Tuple

import numpy as np

from embodied_icrl.houses.frames import to_mujoco
from embodied_icrl.simulators.base import AgentBody


def eyes(positions: np.ndarray, yaw: np.ndarray, body: AgentBody) -> np.ndarray:
    """The cameras' places in the house's frame: float64 `[env, 3]`.

    Args:
        positions: of the agents, `[env, 3]`.
        yaw: radians, `[env]`.
        body: says where on the agent the camera is.
    """
    ahead = np.stack([-np.sin(yaw), np.zeros_like(yaw), -np.cos(yaw)], axis=-1)
    place = positions + body.camera_ahead * ahead
    place[..., 1] += body.camera_height
    return np.asarray(place)


def camera_axes(yaw: np.ndarray, tilt: np.ndarray) -> np.ndarray:
    """Unit vectors to the right, up and ahead of the cameras, MuJoCo's frame: `[env, 3, 3]`."""
    cy, sy, ct, st = np.cos(yaw), np.sin(yaw), np.cos(tilt), np.sin(tilt)
    zero = np.zeros_like(cy)
    right = np.stack([cy, sy, zero], axis=-1)
    up = np.stack([sy * st, -cy * st, ct], axis=-1)
    ahead = np.stack([-sy * ct, cy * ct, st], axis=-1)
    return np.stack([right, up, ahead], axis=-2)


def views(
    positions: np.ndarray, yaw: np.ndarray, tilt: np.ndarray, body: AgentBody
) -> Tuple[np.ndarray, np.ndarray]:
    """`eyes` in MuJoCo's frame, and `camera_axes`."""
    return to_mujoco(eyes(positions, yaw, body)), camera_axes(yaw, tilt)


def fan(columns: int, rows: int, fov: float, vertical_fov: float) -> np.ndarray:
    """Directions of a fan of rays, row by row from the top, left to right: `[ray, 3]`.

    In the camera's axes: to the right, up, ahead. Angles in degrees.
    """
    across = np.radians(np.linspace(-fov / 2, fov / 2, columns) if columns > 1 else np.zeros(1))
    upward = np.linspace(vertical_fov / 2, -vertical_fov / 2, rows) if rows > 1 else np.zeros(1)
    elevation, azimuth = np.meshgrid(np.radians(upward), across, indexing="ij")
    parts = (
        np.sin(azimuth) * np.cos(elevation),
        np.sin(elevation),
        np.cos(azimuth) * np.cos(elevation),
    )
    return np.stack(parts, axis=-1).reshape(-1, 3)


def pixel_directions(
    columns: np.ndarray, rows: np.ndarray, width: int, height: int, fov: float
) -> np.ndarray:
    """Unit vectors through the middles of pixels, in the camera's axes: float64 `[pixel, 3]`.

    Args:
        columns, rows: of the pixels, `[pixel]`.
        width, height: of the picture.
        fov: horizontal field of view, degrees.
    """
    scale = np.tan(np.radians(fov) / 2) / (width / 2)
    across = (columns + 0.5 - width / 2) * scale
    upward = (height / 2 - rows - 0.5) * scale
    directions = np.stack([across, upward, np.ones_like(across)], axis=-1)
    return np.asarray(directions / np.sqrt((directions**2).sum(axis=-1, keepdims=True)))


def vertical_fov(fov: float, width: int, height: int) -> float:
    """The vertical field of view of a picture with square pixels, degrees."""
    return float(np.degrees(2 * np.arctan(np.tan(np.radians(fov) / 2) * height / width)))
