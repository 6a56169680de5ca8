"""An empty square grid: moves, distances and pictures, shared by Darkroom and key-to-door.

Cells are numbered row by row from the upper left: cell = row * dim + column.
"""

from __future__ import annotations

import gymnasium as gym
import numpy as np

from embodied_icrl.common.errors import ConfigError
from embodied_icrl.envs import pictures
from embodied_icrl.envs.base import RenderState

Mark = tuple[int, str, pictures.Colour, str]

UP, DOWN, LEFT, RIGHT, STAY = range(5)
NUM_ACTIONS = 5


class SquareGrid:
    """The tables of a `dim` x `dim` grid without walls.

    Attributes:
        cells: number of cells.
        xy: int64 `[cell, 2]`, column and row of each cell.
        moves: int64 `[cell, action]`, where an action leads; at the border it leads nowhere.
        centre: the middle cell (for an even `dim`, the one below and right of the middle).
    """

    def __init__(self, dim: int) -> None:
        if dim < 2:
            raise ConfigError(f"dim={dim} is too small a grid; use 2 or more")
        self.dim = dim
        self.cells = dim * dim
        self.xy = np.stack(np.divmod(np.arange(self.cells), dim)[::-1], axis=1)
        steps = np.array([[0, -1], [0, 1], [-1, 0], [1, 0], [0, 0]])
        reached = np.clip(self.xy[:, None] + steps, 0, dim - 1)
        self.moves = reached[..., 1] * dim + reached[..., 0]
        self.centre = (dim // 2) * dim + dim // 2

    def position_space(self) -> gym.spaces.Dict:
        """The observation of an agent that sees only where it is: column and row."""
        return gym.spaces.Dict({"position": gym.spaces.MultiDiscrete([self.dim, self.dim])})

    def distance(self, a: np.ndarray | int, b: np.ndarray | int) -> np.ndarray:
        """The fewest moves from cells `a` to cells `b`, elementwise."""
        distance: np.ndarray = np.abs(self.xy[a] - self.xy[b]).sum(axis=-1)
        return distance

    def toward(self, cells: np.ndarray, goals: np.ndarray) -> np.ndarray:
        """The first action of a shortest path from `cells` to `goals` `[row]`; STAY on the goal."""
        dx, dy = (self.xy[goals] - self.xy[cells]).T
        sideways = np.where(dx < 0, LEFT, RIGHT)
        vertical = np.where(dy < 0, UP, np.where(dy > 0, DOWN, STAY))
        return np.where(dx != 0, sideways, vertical)

    def ordered_pair(self, items: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The `items`-th ordered pairs of different cells, of `cells * (cells - 1)` in all."""
        first, other = np.divmod(items, self.cells - 1)
        return first, other + (other >= first)

    def render(self, cell: int, marks: list[Mark]) -> RenderState:
        """The grid from above with marks, and in the dark with only the agent's own cell.

        Args:
            cell: where the agent is.
            marks: (cell, shape, colour, label) of what lies in the grid.
        """
        size = pictures.cell_size(self.dim)
        from_above = pictures.blank(self.dim, self.dim, size)
        targets = []
        for place, shape, colour, label in marks:
            row, column = divmod(place, self.dim)
            pictures.stamp(from_above, row, column, size, shape, colour)
            targets.append((*pictures.centre(row, column, size), label))
        row, column = divmod(cell, self.dim)
        view = pictures.blank(self.dim, self.dim, size, pictures.DARK, pictures.DARK_LINE)
        pictures.stamp(view, row, column, size, "circle", pictures.AGENT)
        return RenderState(
            agent_view=view,
            map=from_above,
            pose=(*pictures.centre(row, column, size), None),
            targets=targets,
        )
