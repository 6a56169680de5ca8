"""The frame of a house, and the one place where it becomes MuJoCo's.

House frame: x right, y up, -z forward, metres, the floor at y = 0. A yaw is an angle about y in
degrees, counter-clockwise seen from above; at yaw 0 an item's front (or an agent's view) points
to -z, at 90 to -x. MuJoCo's frame has z up: the house's (x, y, z) is MuJoCo's (x, -z, y).
"""

from __future__ import annotations

import math

import numpy as np


def to_mujoco(points: np.ndarray) -> np.ndarray:
    """House points or vectors `[..., 3]` in MuJoCo's frame."""
    points = np.asarray(points)
    return np.stack([points[..., 0], -points[..., 2], points[..., 1]], axis=-1)


def mujoco_quaternion(yaw: float) -> tuple[float, float, float, float]:
    """A yaw in degrees as MuJoCo's (w, x, y, z)."""
    half = math.radians(yaw) / 2
    return (math.cos(half), 0.0, 0.0, math.sin(half))


def house_quaternion(yaw: float) -> tuple[float, float, float, float]:
    """A yaw in degrees as (w, x, y, z) in the frame of the house, which is also Habitat's."""
    half = math.radians(yaw) / 2
    return (math.cos(half), 0.0, math.sin(half), 0.0)


def cosine_sine(yaw: np.ndarray | float) -> tuple[np.ndarray, np.ndarray]:
    """Cosine and sine of yaws in degrees; exact at multiples of 90."""
    angle = np.asarray(yaw, dtype=np.float64) % 360.0
    quarter, rest = np.divmod(angle, 90.0)
    c, s = np.cos(np.radians(rest)), np.sin(np.radians(rest))
    c, s = np.where(rest == 0, 1.0, c), np.where(rest == 0, 0.0, s)
    quarter = quarter.astype(np.int64) % 4  # just below 0, the remainder rounds to 360
    cosine = np.choose(quarter, [c, -s, -c, s])
    sine = np.choose(quarter, [s, c, -s, -c])
    return cosine, sine


def rotate(points: np.ndarray, yaw: float) -> np.ndarray:
    """Points or vectors `[..., 3]` turned about the y axis."""
    c, s = cosine_sine(yaw)
    x, z = points[..., 0], points[..., 2]
    return np.stack([c * x + s * z, points[..., 1], c * z - s * x], axis=-1)
