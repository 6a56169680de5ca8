"""Which way the shortest path begins, from a distance field."""

from __future__ import annotations

import numpy as np

from embodied_icrl.simulators.geodesic import FAR, look_up, place_of

_DIRECTIONS = 72
# How far along each direction to look, metres. Far ones even out the grid, near ones find the way
# at corners and at the goal.
_AHEAD = np.array([0.1, 0.25, 0.5, 0.8])
_STEP = 0.05


def steepest(
    fields: np.ndarray, points: np.ndarray, origin: np.ndarray, shape: np.ndarray, cell: float
) -> np.ndarray:
    """The yaw of the straight line with which a shortest path begins: float64 `[env]`.

    Of all free straight lines, the one whose length and distance left are least.

    Args:
        fields: distances, float32 `[env, row, column]`.
        points: where the agents are, `[env, 2 (x, z)]`.
        origin: x0, z0 of their maps, `[env, 2]`.
        shape: rows and columns of their maps, int `[env, 2]`.
        cell: grid spacing, metres.
    """
    yaw = np.arange(_DIRECTIONS) * (2 * np.pi / _DIRECTIONS)
    direction = np.stack([-np.sin(yaw), -np.cos(yaw)], axis=1)
    lengths = np.arange(1, int(round(_AHEAD[-1] / _STEP)) + 1) * _STEP
    env = np.arange(len(points))[:, None, None]
    line = points[:, None, None] + direction[:, None] * lengths[:, None]
    left = look_up(
        fields, np.broadcast_to(env, line.shape[:-1]),
        place_of(line, origin[:, None, None], cell),
        np.broadcast_to(shape[:, None, None], line.shape),
    )  # fmt: skip
    here = look_up(fields, env[:, 0, 0], place_of(points, origin, cell), shape)
    # A distance changes no faster than the way is long; where it does, something is between.
    begin = np.broadcast_to(here[:, None, None], (*left.shape[:-1], 1))
    with np.errstate(invalid="ignore"):
        jump = np.abs(np.diff(left, axis=-1, prepend=begin))
    blocked = np.maximum.accumulate(~(jump <= 1.2 * _STEP + 0.01), axis=-1)
    total = np.where(blocked, FAR, left + lengths)
    total = total[..., np.rint(_AHEAD / _STEP).astype(np.int64) - 1].min(axis=-1)
    return np.asarray(yaw[total.argmin(axis=1)])
