"""What can be seen and reached in a grid house: tables for many houses at once.

Houses are `[house, row, column]` arrays of a square floor; cells are numbered row by row. In all
tables the cell is the one the agent stands on.
"""

from __future__ import annotations

import numpy as np

# Codes of a cell in view; an object of type t has code FIRST_TYPE + t.
FREE, WALL, DOOR, UNSEEN, FIRST_TYPE = range(5)
FAR = np.iinfo(np.int16).max
STEPS = np.array([[-1, 0], [1, 0], [0, -1], [0, 1]])  # row and column: up, down, left, right


def move_table(walls: np.ndarray) -> np.ndarray:
    """Where each move leads: int16 `[house, cell, move]`; a move into a wall leads nowhere.

    Args:
        walls: bool `[house, row, column]`.
    """
    size = walls.shape[1]
    blocked = np.pad(walls, ((0, 0), (1, 1), (1, 1)), constant_values=True)
    cells = np.arange(size * size).reshape(size, size)
    table = np.empty((len(walls), size, size, len(STEPS)), dtype=np.int16)
    for move, (down, right) in enumerate(STEPS):
        stops = blocked[:, 1 + down : 1 + down + size, 1 + right : 1 + right + size]
        table[..., move] = np.where(stops, cells, cells + down * size + right)
    return table.reshape(len(walls), size * size, len(STEPS))


def distance_table(walls: np.ndarray, goals: np.ndarray) -> np.ndarray:
    """Fewest moves from each cell to the nearest goal, FAR where there is no path.

    Args:
        walls: bool `[house, row, column]`.
        goals: bool `[house, kind, row, column]`, the goal cells of several kinds.

    Returns:
        int16 `[house, kind, cell]`.
    """
    houses, kinds, size, _ = goals.shape
    free = np.pad(~walls, ((0, 0), (1, 1), (1, 1)))[:, None]
    frontier = np.pad(goals, ((0, 0), (0, 0), (1, 1), (1, 1)))
    distance = np.full(frontier.shape, FAR, dtype=np.int16)
    distance[frontier] = 0
    unseen = free & ~frontier
    steps = 0
    while frontier.any():
        steps += 1
        spread = np.zeros_like(frontier)
        spread[:, :, 1:] |= frontier[:, :, :-1]
        spread[:, :, :-1] |= frontier[:, :, 1:]
        spread[..., 1:] |= frontier[..., :-1]
        spread[..., :-1] |= frontier[..., 1:]
        frontier = spread & unseen
        unseen &= ~frontier
        distance[frontier] = steps
    return distance[:, :, 1:-1, 1:-1].reshape(houses, kinds, size * size)


class LocalView:
    """A square window around the agent, north up, with walls that hide what is behind them.

    A cell is seen if one of the two straight lines of cells between it and the agent (drawn from
    either end, they may round differently) crosses no wall. So sight is symmetric: of two free
    cells, each sees the other or neither does.

    Args:
        size: side of the floor in cells.
        view_size: side of the window in cells, odd.
    """

    def __init__(self, size: int, view_size: int) -> None:
        self.size, self.view_size = size, view_size
        half = view_size // 2
        # Cells are looked up in a floor with a margin of walls as wide as the view reaches.
        wide = size + 2 * half
        offsets = [(r, c) for r in range(-half, half + 1) for c in range(-half, half + 1)]
        rows, columns = np.divmod(np.arange(size * size), size)
        here = (rows + half) * wide + columns + half
        self._window = here[:, None] + np.array([r * wide + c for r, c in offsets])
        lines = np.zeros((2, len(offsets), max(half - 1, 1)), dtype=np.int64)
        for index, (r, c) in enumerate(offsets):
            for side, line in enumerate((_between(r, c), _between(-r, -c))):
                for place, (down, right) in enumerate(line):
                    far_end = r * wide + c if side else 0
                    lines[side, index, place] = far_end + down * wide + right
        # Unused places stay 0, the agent's own cell, which is no wall.
        self._lines = here[:, None, None, None] + lines

    def table(self, walls: np.ndarray, doors: np.ndarray, objects: np.ndarray) -> np.ndarray:
        """The code of every cell in view: uint8 `[house, cell, view cell]`.

        Args:
            walls, doors: bool `[house, row, column]`.
            objects: object type or -1, int8 `[house, row, column]`.
        """
        codes = np.where(objects >= 0, objects + FIRST_TYPE, FREE)
        codes = np.where(doors & (objects < 0), DOOR, codes)
        codes = np.where(walls, WALL, codes).astype(np.uint8)
        half = self.view_size // 2
        margin = ((0, 0), (half, half), (half, half))
        flat = np.pad(codes, margin, constant_values=WALL).reshape(len(walls), -1)
        solid = flat == WALL
        hidden = solid[:, self._lines].any(axis=-1).all(axis=2)
        seen = np.where(hidden, np.uint8(UNSEEN), flat[:, self._window])
        return seen.reshape(len(walls), self.size**2, self.view_size**2)


def _between(down: int, right: int) -> list[tuple[int, int]]:
    """The cells strictly between (0, 0) and (down, right) on a straight line: (row, column).

    Halves round towards (0, 0), so a line drawn from the other end differs where there is a tie.
    """
    length = max(abs(down), abs(right))

    def along(end: int, step: int) -> int:
        size = -((length - 2 * abs(end) * step) // (2 * length))
        return size if end > 0 else -size

    return [(along(down, step), along(right, step)) for step in range(1, length)]
