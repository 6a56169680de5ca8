"""Drawing cells: the few shapes that grid worlds need, in plain NumPy.

Pictures are uint8 RGB `[height, width, 3]`; a cell is `size` x `size` pixels.
"""

from __future__ import annotations

import numpy as np

Colour = tuple[int, int, int]

PAPER: Colour = (244, 241, 234)
LINE: Colour = (222, 217, 206)
DARK: Colour = (38, 41, 49)
DARK_LINE: Colour = (56, 60, 70)
WALL: Colour = (118, 124, 138)
AGENT: Colour = (33, 102, 204)
GOLD: Colour = (232, 167, 20)
GREEN: Colour = (46, 153, 88)


def cell_size(cells: int) -> int:
    """Pixels per cell that make a picture of `cells` cells about 256 pixels wide."""
    return min(max(256 // cells, 8), 32)


def blank(
    rows: int, columns: int, size: int, colour: Colour = PAPER, line: Colour = LINE
) -> np.ndarray:
    """A picture of `rows` x `columns` cells with grid lines."""
    picture = np.empty((rows * size, columns * size, 3), dtype=np.uint8)
    picture[:] = colour
    picture[::size] = line
    picture[:, ::size] = line
    return picture


def fill(picture: np.ndarray, row: int, column: int, size: int, colour: Colour) -> None:
    """Fill a whole cell."""
    picture[row * size : (row + 1) * size, column * size : (column + 1) * size] = colour


def stamp(
    picture: np.ndarray, row: int, column: int, size: int, shape: str, colour: Colour
) -> None:
    """Draw one of SHAPES into a cell, over what is there."""
    cell = picture[row * size : (row + 1) * size, column * size : (column + 1) * size]
    cell[_mask(shape, size)] = colour


def centre(row: int, column: int, size: int) -> tuple[float, float]:
    """Column and row, in pixels, of the middle of a cell."""
    return (column + 0.5) * size, (row + 0.5) * size


SHAPES = ("circle", "square", "triangle", "diamond", "cross", "ring", "bar", "key", "door", "dot")


def _mask(shape: str, size: int) -> np.ndarray:
    """Which pixels of a cell belong to the shape: bool `[size, size]`."""
    line = (np.arange(size) + 0.5) / size * 2 - 1
    x, y = line[None, :], line[:, None]
    radius = np.hypot(x, y)
    inside = np.maximum(abs(x), abs(y))
    masks = {
        "circle": radius < 0.66,
        "dot": radius < 0.4,
        "square": inside < 0.58,
        "triangle": (y < 0.6) & (y > -0.7) & (abs(x) < (y + 0.75) * 0.5),
        "diamond": abs(x) + abs(y) < 0.78,
        "cross": (np.minimum(abs(x), abs(y)) < 0.24) & (inside < 0.7),
        "ring": (radius < 0.72) & (radius > 0.36),
        "bar": (abs(x) < 0.74) & (abs(y) < 0.3),
        "key": (np.hypot(x + 0.4, y) < 0.36)
        | ((abs(y) < 0.13) & (x > -0.4) & (x < 0.78))
        | ((abs(x - 0.6) < 0.12) & (y > 0) & (y < 0.42)),
        "door": (abs(x) < 0.48) & (abs(y) < 0.8) & (np.hypot(x - 0.26, y) > 0.13),
    }
    return masks[shape]
