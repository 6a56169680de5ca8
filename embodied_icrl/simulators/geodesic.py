"""Distances along shortest paths: the eikonal equation on a grid, solved by sweeps over rows.

A node is reached from the straight line between two neighbours, one beside and one across it (a
triangle of an eight-neighbour stencil), which gives directions between those of the grid. Each
sweep takes one row after the other, for all goals at once, from the top, from the bottom, and over
columns from both sides, until nothing changes any more.
"""

from __future__ import annotations

from typing import Sequence

import numpy as np

from embodied_icrl.houses.free_space import FreeSpace

# Stands for "no way"; sums of a few of them still fit into float32.
FAR = np.float32(1e6)
# Around a goal's points, nodes begin with their distance as the crow flies: less than the radius of
# the agent, so that no obstacle fits between.
_START = 0.16
_SETTLED = 3e-4
_ROUNDS = 200
# How far into obstacles, grown by the agent's radius, lookups may reach, metres: between nodes an
# agent may stand where none of them is free. Less than half of the radius.
_EDGE = 0.13


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
    given = [goal for goal, points in enumerate(goals) if len(points)]
    result = np.full((len(goals), rows, columns), FAR, dtype=np.float32)
    if not given:
        return result
    fields = np.full((rows, len(given), columns), FAR, dtype=np.float32)
    for i, goal in enumerate(given):
        _start(fields[:, i], space, region, np.asarray(goals[goal], dtype=np.float64))
    closed = np.where(region, np.float32(0), FAR)
    _settle(fields, closed, closed, space.cell, _ROUNDS)
    # A little into the obstacles, from the side where they are met; never through them.
    edge = _around(region, int(_EDGE / space.cell)) & ~space.free
    either = np.where(region | edge, np.float32(0), FAR)
    _settle(fields, either, np.where(edge, np.float32(0), FAR), space.cell, 1)
    result[given] = fields.transpose(1, 0, 2)
    return result


def _around(mask: np.ndarray, layers: int) -> np.ndarray:
    """A mask grown by so many nodes, diagonally too."""
    padded = np.pad(mask, 1)
    for _ in range(layers):
        padded[:, 1:-1] |= padded[:, :-2] | padded[:, 2:]
        padded[1:-1] |= padded[:-2] | padded[2:]
    return padded[1:-1, 1:-1]


def _start(field: np.ndarray, space: FreeSpace, region: np.ndarray, points: np.ndarray) -> None:
    """Give the nodes around a goal's points their distances."""
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
) -> None:
    """Sweep in four directions, in place, until nothing changes.

    Args:
        fields: distances so far, `[row, goal, column]`.
        passable: 0 where a path may go, FAR elsewhere, `[row, column]`.
        takes: 0 where values may change, FAR elsewhere.
        h: grid spacing.
        rounds: at most.
    """
    rows, goals, columns = fields.shape
    reached: np.ndarray = np.any(fields < FAR, axis=1)
    # For each direction, the lines that changed since they were last carried on in it.
    fresh_rows = np.tile(np.any(reached, axis=1), (2, 1))
    fresh_columns = np.tile(np.any(reached, axis=0), (2, 1))
    padded_row = np.full((goals, columns + 2), FAR, dtype=np.float32)
    padded_column = np.full((rows + 2, goals), FAR, dtype=np.float32)
    for _ in range(rounds):
        for way, step in enumerate((1, -1)):
            for row in range(rows)[::step]:
                following = row + step
                if not fresh_rows[way, row] or not 0 <= following < rows:
                    continue
                fresh_rows[way, row] = False
                padded_row[:, 1:-1] = fields[row]
                near = _carry(
                    padded_row[:, 1:-1], padded_row[:, :-2], padded_row[:, 2:],
                    passable[row], takes[following], h,
                )  # fmt: skip
                changed = near < fields[following] - _SETTLED
                if changed.any():
                    np.minimum(fields[following], near, out=fields[following])
                    fresh_rows[:, following] = True
                    fresh_columns |= changed.any(axis=0)
        for way, step in enumerate((1, -1)):
            for column in range(columns)[::step]:
                following = column + step
                if not fresh_columns[way, column] or not 0 <= following < columns:
                    continue
                fresh_columns[way, column] = False
                padded_column[1:-1] = fields[:, :, column]
                near = _carry(
                    padded_column[1:-1], padded_column[:-2], padded_column[2:],
                    passable[:, column, None], takes[:, following, None], h,
                )  # fmt: skip
                line = fields[:, :, following]
                changed = near < line - _SETTLED
                if changed.any():
                    np.minimum(line, near, out=line)
                    fresh_columns[:, following] = True
                    fresh_rows |= changed.any(axis=1)
        if not (fresh_rows.any() or fresh_columns.any()):
            break


def _carry(
    middle: np.ndarray, before: np.ndarray, after: np.ndarray, passable: np.ndarray,
    takes: np.ndarray, h: float,
) -> np.ndarray:  # fmt: skip
    """Distances that a line of nodes gets from the line beside it.

    Args:
        middle, before, after: distances of the nodes right beside, one before and one after.
        passable: of the line beside; takes: of the line itself.
        h: grid spacing.
    """
    aside = np.minimum(before, after)
    # A path from aside may use the node beside only where that is open.
    aside += passable + np.float32(h / np.sqrt(2))
    near = np.minimum(middle, aside)
    gain = aside
    np.subtract(near, gain, out=gain)
    gain += np.float32(h / np.sqrt(2))
    np.maximum(gain, 0, out=gain)
    np.multiply(gain, gain, out=gain)
    np.subtract(np.float32(h * h), gain, out=gain)
    np.sqrt(np.maximum(gain, 0, out=gain), out=gain)
    near += gain
    near += takes
    return np.asarray(near)


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
