"""The map that an explorer draws of what its rays have met, and the ways that it finds on it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import cv2
import numpy as np

CELL = 0.1
# The map reaches so far from the trial's first place in each direction, metres.
HALF = 20.0
_SIDE = round(2 * HALF / CELL)
# Obstacles grow by this many cells: a little less than the agent's radius, so that no gap closes.
_GROWTH = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (5, 5))
_AROUND = np.ones((3, 3), dtype=np.uint8)

Cell = tuple[int, int]


def cells_of(points: np.ndarray) -> np.ndarray:
    """Cells (right, ahead) of points `[..., 2]` in metres; what is off the map is at its edge."""
    return np.clip(np.floor((points + HALF) / CELL).astype(np.int64), 0, _SIDE - 1)


def centre_of(cell: Cell) -> np.ndarray:
    """The middle of a cell, metres `[2]`."""
    return (np.array(cell) + 0.5) * CELL - HALF


@dataclass
class ExplorerMap:
    """What one agent knows of the plan.

    Attributes:
        seen, blocked: uint8 `[right, ahead]`, 0 or 1.
        objects: float64 `[category, 2]`, where an instance was seen, NaN if none was.
    """

    seen: np.ndarray
    blocked: np.ndarray
    objects: np.ndarray

    @classmethod
    def empty(cls, categories: int) -> ExplorerMap:
        """The map of one who knows nothing."""
        shape = (_SIDE, _SIDE)
        return cls(
            np.zeros(shape, np.uint8), np.zeros(shape, np.uint8), np.full((categories, 2), np.nan)
        )

    def mark(self, which: np.ndarray, points: np.ndarray) -> None:
        """Set `seen` or `blocked` at points `[point, 2]`."""
        cells = cells_of(points)
        which[cells[:, 0], cells[:, 1]] = 1

    def mark_body(self, place: np.ndarray, radius: float) -> None:
        """Where the agent stands there is nothing."""
        offsets = np.arange(-radius, radius + CELL, CELL)
        grid = np.stack(np.meshgrid(offsets, offsets), axis=-1).reshape(-1, 2)
        inside = grid[np.hypot(grid[:, 0], grid[:, 1]) <= radius]
        self.mark(self.seen, place + inside)

    def way_to_frontier(self, place: np.ndarray) -> list[Cell] | None:
        """Cells from the agent to the nearest known place beside an unknown one."""
        window, seen, free = self._window(place)
        unknown = cv2.dilate(1 - seen, _AROUND) & seen & free
        return self._way(place, window, free, unknown)

    def way_near(self, place: np.ndarray, point: np.ndarray, reach: float) -> list[Cell] | None:
        """Cells from the agent to the nearest known place within `reach` of a point."""
        window, _, free = self._window(place)
        rows, columns = np.indices(free.shape)
        x = (rows + window[0] + 0.5) * CELL - HALF - point[0]
        y = (columns + window[1] + 0.5) * CELL - HALF - point[1]
        return self._way(place, window, free, (np.hypot(x, y) <= reach).astype(np.uint8) & free)

    def _window(self, place: np.ndarray) -> tuple[Cell, np.ndarray, np.ndarray]:
        """The corner of the known part of the map, what is seen there, and where one can walk."""
        here = cells_of(place)
        rows = np.flatnonzero(self.seen.any(axis=1))
        columns = np.flatnonzero(self.seen.any(axis=0))
        low = max(min(rows[0], here[0]) - 2, 0), max(min(columns[0], here[1]) - 2, 0)
        part = (slice(low[0], max(rows[-1], here[0]) + 3), slice(low[1], columns[-1] + 3))
        seen = self.seen[part]
        free = seen & (1 - cv2.dilate(self.blocked[part], _GROWTH))
        # The agent is where it is, even if an obstacle that it touches is drawn a little too large.
        i, j = here[0] - low[0], here[1] - low[1]
        free[max(i - 2, 0) : i + 3, max(j - 2, 0) : j + 3] = seen[
            max(i - 2, 0) : i + 3, max(j - 2, 0) : j + 3
        ]
        return (int(low[0]), int(low[1])), seen, free

    def _way(
        self, place: np.ndarray, window: Cell, free: np.ndarray, goal: np.ndarray
    ) -> list[Cell] | None:
        """A breadth-first way to the nearest goal cell: a wave that starts at the agent."""
        here = cells_of(place) - np.array(window)
        wave = np.zeros_like(free)
        wave[here[0], here[1]] = 1
        when = np.full(free.shape, -1, dtype=np.int32)
        when[here[0], here[1]] = 0
        tick = 0
        while not (hit := wave & goal).any():
            tick += 1
            wave = cv2.dilate(wave, _AROUND) & free & (when < 0)
            if not wave.any():
                return None
            when[wave > 0] = tick
        end = np.argwhere(hit)[0]
        cells = [(int(end[0]), int(end[1]))]
        while when[cells[-1]] > 0:
            cells.append(next(_earlier(when, cells[-1])))
        return [(i + window[0], j + window[1]) for i, j in reversed(cells)]


def _earlier(when: np.ndarray, cell: Cell) -> Iterator[Cell]:
    """The neighbours of a cell that the wave reached one tick before, straight ones first."""
    i, j = cell
    steps = ((1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (1, -1), (-1, 1), (-1, -1))
    for di, dj in steps:
        near = i + di, j + dj
        inside = 0 <= near[0] < when.shape[0] and 0 <= near[1] < when.shape[1]
        if inside and when[near] == when[cell] - 1:
            yield near
