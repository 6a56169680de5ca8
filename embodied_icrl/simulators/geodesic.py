"""Distances along shortest paths: the eikonal equation on a grid, solved by sweeps over rows.

A node is reached from the straight line between two neighbours, one beside and one across it (a
triangle of an eight-neighbour stencil), which gives directions between those of the grid. Each
sweep takes one row after the other, for all goals at once, from the top, from the bottom, and over
columns from both sides, until nothing changes any more.
"""

from __future__ import annotations

from typing import Sequence, Tuple

import numpy as np

from embodied_icrl.houses.free_space import FreeSpace

# Stands for "no way"; sums of a few of them still fit into float32.
FAR = np.float32(1e6)
# Around a goal's points, nodes begin with their distance as the crow flies: less than the radius of
# the agent, so that no obstacle fits between.
_START = 0.16
_SETTLED = 1e-4
_ROUNDS = 200


def distance_fields(
    space: FreeSpace, region: np.ndarray, goals: Sequence[np.ndarray]
) -> np.ndarray:
    """Distances of all nodes to the nearest point of each goal.

    Args:
        space: the map whose cells' points are the nodes.
        region: bool, the shape of the map: where there is a way.
        goals: points `[point, 2 (x, z)]` of each goal.

    Returns:
        float32 `[goal, row, column]`, metres. Nodes that are not free but near the region have the
        distance from its edge, so that lookups can interpolate there; FAR elsewhere.
    """
    rows, columns = region.shape
    fields = np.full((rows, len(goals), columns), FAR, dtype=np.float32)
    for goal, points in enumerate(goals):
        _start(fields[:, goal], space, region, np.asarray(points, dtype=np.float64))
    closed = np.where(region, np.float32(0), FAR)
    fields = _settle(fields, closed, closed, space.cell, _ROUNDS)
    # Into the obstacles: only nodes that are not free take values; the region keeps its own.
    walls = np.where(space.free, FAR, np.float32(0))
    either = np.minimum(walls, closed)
    fields = _settle(fields, either, walls, space.cell, 1)
    return np.ascontiguousarray(fields.transpose(1, 0, 2))


def _start(field: np.ndarray, space: FreeSpace, region: np.ndarray, points: np.ndarray) -> None:
    """Give the nodes around a goal's points their distances."""
    if not len(points):
        return
    h = space.cell
    n = int(_START / h)
    span = np.arange(-n, n + 1)
    origin = np.array([space.x0 + 0.5 * h, space.z0 + 0.5 * h])
    place = (points - origin) / h
    near = np.rint(place).astype(np.int64)
    column = near[:, 0, None, None] + span[None, None, :]
    row = near[:, 1, None, None] + span[None, :, None]
    dx, dz = (column - place[:, 0, None, None]) * h, (row - place[:, 1, None, None]) * h
    distance = np.sqrt(dx * dx + dz * dz)
    row, column, distance = (a.ravel() for a in np.broadcast_arrays(row, column, distance))
    ok = (row >= 0) & (column >= 0) & (row < region.shape[0]) & (column < region.shape[1])
    ok &= distance <= _START
    row, column, distance = row[ok], column[ok], distance[ok]
    ok = region[row, column]
    np.minimum.at(field, (row[ok], column[ok]), distance[ok].astype(np.float32))


def _settle(
    fields: np.ndarray, passable: np.ndarray, takes: np.ndarray, h: float, rounds: int
) -> np.ndarray:
    """Sweep in four directions until nothing changes: fields `[row, goal, column]`.

    Args:
        fields: distances so far.
        passable: 0 where a path may go, FAR elsewhere, `[row, column]`.
        takes: 0 where values may change, FAR elsewhere.
        h: grid spacing.
        rounds: at most.
    """
    turned = (np.ascontiguousarray(passable.T), np.ascontiguousarray(takes.T))
    for _ in range(rounds):
        before = fields.copy()
        _sweep(fields, passable, takes, h)
        _sweep(fields[::-1], passable[::-1], takes[::-1], h)
        columns = np.ascontiguousarray(fields.transpose(2, 1, 0))
        _sweep(columns, *turned, h)
        _sweep(columns[::-1], turned[0][::-1], turned[1][::-1], h)
        fields = np.ascontiguousarray(columns.transpose(2, 1, 0))
        if not (before - fields > _SETTLED).any():
            break
    return fields


def _sweep(fields: np.ndarray, passable: np.ndarray, takes: np.ndarray, h: float) -> None:
    """Carry distances from each row to the next, in place."""
    rows, goals, columns = fields.shape
    diagonal = np.float32(h / np.sqrt(2))
    square = np.float32(h * h)
    padded = np.full((goals, columns + 2), FAR, dtype=np.float32)
    middle = padded[:, 1:-1]
    beside = np.empty((goals, columns), dtype=np.float32)
    for row in range(1, rows):
        middle[:] = fields[row - 1]
        np.minimum(padded[:, :-2], padded[:, 2:], out=beside)
        # A path from beside may use the node before only where that is open.
        near = np.minimum(middle, beside + (passable[row - 1] + diagonal))
        gain = np.maximum(near - beside, 0)
        np.multiply(gain, gain, out=gain)
        np.subtract(square, gain, out=gain)
        np.sqrt(np.maximum(gain, 0, out=gain), out=gain)
        near += gain
        near += takes[row]
        np.minimum(fields[row], near, out=fields[row])


def look_up(
    fields: np.ndarray, slot: np.ndarray, place: np.ndarray, shape: np.ndarray
) -> np.ndarray:
    """Distances between nodes, bilinear: float64 `[...]`, inf where there is no way.

    Args:
        fields: `[slot, row, column]`.
        slot: which field, int `[...]`.
        place: columns and rows, fractional, `[..., 2]`.
        shape: rows and columns of each field that count, `[..., 2]`.
    """
    limit = shape[..., ::-1] - 1
    place = np.minimum(np.maximum(place, 0), limit)
    low = np.minimum(place.astype(np.int64), np.maximum(limit - 1, 0))
    part = place - low
    step = (limit > 0).astype(np.int64)
    total, weights = np.zeros(place.shape[:-1]), np.zeros(place.shape[:-1])
    for right in (0, 1):
        for down in (0, 1):
            weight = part[..., 0] if right else 1 - part[..., 0]
            weight = weight * (part[..., 1] if down else 1 - part[..., 1])
            row, column = low[..., 1] + down * step[..., 1], low[..., 0] + right * step[..., 0]
            value = fields[slot, row, column]
            weight = weight * (value < FAR / 2)
            total += weight * value
            weights += weight
    return np.where(weights > 0.25, total / np.maximum(weights, 1e-9), np.inf)


def place_of(points: np.ndarray, origin: np.ndarray, cell: float) -> np.ndarray:
    """Fractional columns and rows of points `[..., 2 (x, z)]`; `origin` is x0, z0 of the map."""
    return np.asarray((points - origin) / cell - 0.5)


def corner(space: FreeSpace) -> Tuple[float, float]:
    """x0, z0 of a map."""
    return space.x0, space.z0
