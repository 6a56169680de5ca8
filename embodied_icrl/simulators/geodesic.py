"""Distances along shortest paths: the eikonal equation on a grid, solved by sweeps over rows.

A node is reached from the straight line between two neighbours, one beside and one across it (a
triangle of an eight-neighbour stencil), which gives directions between those of the grid. Each
sweep takes one row after the other, for all goals at once, from the top, from the bottom, and over
columns from both sides, until nothing changes any more. Of each line only the part that changed is
carried on.
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
# Smaller changes are not carried on, metres.
_SETTLED = 1e-3
_ROUNDS = 200
# How far into obstacles, grown by the agent's radius, lookups may reach, metres: between nodes an
# agent may stand where none of them is free. Less than half of the radius.
_EDGE = 0.13
# Rows down and columns right to a node's neighbours, around it, every other one beside it.
_CIRCLE = ((-1, 0), (-1, 1), (0, 1), (1, 1), (1, 0), (1, -1), (0, -1), (-1, -1))


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
    # A border all around, so that no line needs a special case.
    fields = np.full((rows + 2, len(given), columns + 2), FAR, dtype=np.float32)
    inside = fields[1:-1, :, 1:-1]
    for i, goal in enumerate(given):
        _start(inside[:, i], space, region, np.asarray(goals[goal], dtype=np.float64))
    _settle(
        fields, np.pad(np.where(region, np.float32(0), FAR), 1, constant_values=FAR), space.cell
    )
    _reach_into_obstacles(fields, region, space.free, int(_EDGE / space.cell), space.cell)
    result[given] = inside.transpose(1, 0, 2)
    return result


def _reach_into_obstacles(
    fields: np.ndarray, region: np.ndarray, free: np.ndarray, layers: int, h: float
) -> None:
    """Give nodes a little inside of obstacles the distances from the side where they are met.

    Args:
        fields: distances, `[row, goal, column]`, with a border.
        region, free: bool, without a border.
        layers: how many nodes deep.
        h: grid spacing.
    """
    known, obstacle = np.pad(region, 1), np.pad(~free, 1)
    for _ in range(layers):
        layer = _grown(known, diagonally=True) & obstacle
        for _ in range(2):
            # Those beside a known node, then those that have become so, at outer corners.
            _reach(fields, known, layer & ~known & _grown(known, diagonally=False), h)


def _grown(mask: np.ndarray, diagonally: bool) -> np.ndarray:
    """A mask grown by one node; the border stays as it is."""
    grown = mask.copy()
    grown[:, 1:-1] |= mask[:, :-2] | mask[:, 2:]
    wide = grown.copy() if diagonally else mask
    grown[1:-1] |= wide[:-2] | wide[2:]
    grown[[0, -1]], grown[:, [0, -1]] = mask[[0, -1]], mask[:, [0, -1]]
    return grown


def _reach(fields: np.ndarray, known: np.ndarray, nodes: np.ndarray, h: float) -> None:
    """Give some nodes distances, and make them known, both in place.

    Args:
        fields: distances, `[row, goal, column]`.
        known: which nodes a path may use, nodes: which are to be reached, bool `[row, column]`.
        h: grid spacing.
    """
    row, column = np.nonzero(nodes)
    around = [(row + down, column + right) for down, right in _CIRCLE]
    open_ones = [known[place] for place in around]
    values = [
        np.where(is_open, fields[i, :, j].T, FAR) for (i, j), is_open in zip(around, open_ones)
    ]
    best = np.full((fields.shape[1], len(row)), FAR, dtype=np.float32)
    for k in range(0, 8, 2):
        aside = np.minimum(values[k - 1], values[k + 1])
        aside += np.where(open_ones[k], np.float32(h / np.sqrt(2)), FAR)
        np.minimum(best, _between(values[k], aside, h), out=best)
    fields[row, :, column] = best.T
    known[row, column] = True


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


class _Stale:
    """Which part of each line changed since it was last carried on, for both ways: `[way, line]`.

    A line's part is from `low` up to but without `high`, empty where `low >= high`.
    """

    def __init__(self, reached: np.ndarray) -> None:
        """All of what is `reached`, bool `[line, place]`."""
        lines, self.width = reached.shape
        first = np.where(reached.any(axis=1), reached.argmax(axis=1), self.width)
        last = np.where(reached.any(axis=1), self.width - reached[:, ::-1].argmax(axis=1), 0)
        self.low, self.high = np.tile(first, (2, 1)), np.tile(last, (2, 1))

    def take(self, way: int, line: int) -> Tuple[int, int]:
        """The part of a line, which is up to date from now on."""
        part = int(self.low[way, line]), int(self.high[way, line])
        self.low[way, line], self.high[way, line] = self.width, 0
        return part

    def add(self, line: int, low: int, high: int) -> None:
        """A part of one line has changed."""
        np.minimum(self.low[:, line], low, out=self.low[:, line])
        np.maximum(self.high[:, line], high, out=self.high[:, line])

    def add_across(self, lines: slice, changed: np.ndarray, place: int) -> None:
        """One place has changed in those of some lines that `changed` `[line]` says."""
        low, high = self.low[:, lines], self.high[:, lines]
        np.minimum(low, place, out=low, where=changed)
        np.maximum(high, place + 1, out=high, where=changed)

    def any(self) -> bool:
        return bool((self.low < self.high).any())


def _settle(fields: np.ndarray, closed: np.ndarray, h: float) -> None:
    """Sweep in four directions, in place, until nothing changes.

    Args:
        fields: distances so far, `[row, goal, column]`, with a border that stays FAR.
        closed: 0 where a path may go, FAR elsewhere and in the border, `[row, column]`.
        h: grid spacing.
    """
    reached: np.ndarray = np.any(fields < FAR, axis=1)
    rows, columns = _Stale(reached), _Stale(reached.T)
    turned, closed_turned = fields.transpose(2, 1, 0), closed.T.copy()
    for _ in range(_ROUNDS):
        for way in (0, 1):
            _sweep(fields, closed, rows, columns, way, h)
        for way in (0, 1):
            _sweep(turned, closed_turned, columns, rows, way, h)
        if not (rows.any() or columns.any()):
            break


def _sweep(
    lines: np.ndarray, closed: np.ndarray, own: _Stale, across: _Stale, way: int, h: float
) -> None:
    """Carry every line's distances on to the next, forwards (way 0) or backwards (way 1).

    Args:
        lines: distances, `[line, goal, place]`, with a border.
        closed: 0 where a path may go, else FAR, `[line, place]`.
        own: what of these lines is stale; across: what of those that cross them is.
    """
    step = 1 - 2 * way
    aside = closed + np.float32(h / np.sqrt(2))
    for line in range(1, len(lines) - 1)[::step]:
        low, high = own.take(way, line)
        if low >= high:
            continue
        low, high = max(low - 1, 1), min(high + 1, own.width - 1)
        following = line + step
        source = np.ascontiguousarray(lines[line, :, low - 1 : high + 1])
        target = lines[following, :, low:high]
        before = np.ascontiguousarray(target)
        gain = np.minimum(source[:, :-2], source[:, 2:])
        # A path from aside may use the node beside only where that is open.
        gain += aside[line, low:high]
        near = _between(source[:, 1:-1], gain, h)
        near += closed[following, low:high]
        np.subtract(before, near, out=gain)
        changed = (gain > _SETTLED).any(axis=0)
        places = np.flatnonzero(changed)
        if places.size:
            target[...] = np.minimum(before, near, out=near)
            own.add(following, low + int(places[0]), low + int(places[-1]) + 1)
            across.add_across(slice(low, high), changed, following)


def _between(beside: np.ndarray, aside: np.ndarray, h: float) -> np.ndarray:
    """Distances of nodes that are reached from between two neighbours.

    Args:
        beside: distance of the neighbour right beside.
        aside: that of the neighbour across, plus `h / sqrt(2)`; it is overwritten.
        h: grid spacing.
    """
    near = np.minimum(beside, aside)
    # At most h / sqrt(2), since `near` is not larger.
    gain = np.subtract(near, aside, out=aside)
    gain += np.float32(h / np.sqrt(2))
    np.maximum(gain, 0, out=gain)
    np.multiply(gain, gain, out=gain)
    np.subtract(np.float32(h * h), gain, out=gain)
    near += np.sqrt(gain, out=gain)
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
