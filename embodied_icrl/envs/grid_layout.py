"""Floor plans for grid houses: rooms, walls, doorways and objects, all in different splits.

A plan is made by splitting the floor in two with a wall until there are enough rooms. Each wall
gets one doorway, so the rooms form a tree and every free cell can be reached.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import numpy as np

from embodied_icrl.common.errors import ConfigError

SPLIT_SHARES = {"train": range(0, 60), "validation": range(60, 80), "test": range(80, 100)}

PLANS_PER_TASK, PLACINGS_PER_PLAN = 100, 100

Rectangle = tuple[int, int, int, int]  # top, left, bottom, right; the last two exclusive


@dataclass(frozen=True)
class Layout:
    """One house.

    Attributes:
        walls: bool `[row, column]`.
        doors: bool `[row, column]`, doorways, which are free to walk and to see through.
        objects: int8 `[row, column]`, the type of the object that lies there, or -1.
    """

    walls: np.ndarray
    doors: np.ndarray
    objects: np.ndarray


def room_capacity(height: int, width: int, min_room: int) -> int:
    """How many rooms of at least `min_room` x `min_room` cells fit into a rectangle."""
    return ((height + 1) // (min_room + 1)) * ((width + 1) // (min_room + 1))


def make_layout(
    rng: np.random.Generator,
    split: str,
    *,
    size: int,
    n_rooms: int,
    n_types: int,
    instances: int = 1,
    min_room: int = 2,
) -> Layout:
    """Draw a house that belongs to `split`.

    Whatever the streams of the splits, no house (plan and objects together) is in two of them: a
    checksum of the house says which split it belongs to, and the objects (in the end, the walls
    too) are placed anew until it is the wanted one.

    Args:
        rng: the stream of this task.
        split: a key of SPLIT_SHARES.
        size: side of the square floor in cells, without the outer wall.
        n_rooms: number of rooms, at most `room_capacity(size, size, min_room)`.
        n_types: number of object types, each with `instances` objects.
        min_room: smallest side of a room in cells.

    Raises:
        ConfigError: houses are so small that the split has none.
    """
    types = np.repeat(np.arange(n_types, dtype=np.int8), instances)
    for _ in range(PLANS_PER_TASK):
        walls, doors = floor_plan(rng, size, n_rooms, min_room)
        places = np.flatnonzero(~(walls | doors))
        for _ in range(PLACINGS_PER_PLAN):
            objects = np.full(size * size, -1, dtype=np.int8)
            objects[rng.permutation(places)[: len(types)]] = types
            layout = Layout(walls, doors, objects.reshape(size, size))
            if split_of(layout) == split:
                return layout
    raise ConfigError(
        f"houses of size={size} with n_types={n_types} are so few that the split {split!r} has "
        "none; raise size or n_types"
    )


def split_of(layout: Layout) -> str:
    """The one split that a house belongs to."""
    plan = layout.walls + 2 * layout.doors.astype(np.int8)
    share = zlib.crc32(layout.objects.tobytes(), zlib.crc32(plan.tobytes())) % 100
    return next(split for split, shares in SPLIT_SHARES.items() if share in shares)


def floor_plan(
    rng: np.random.Generator, size: int, n_rooms: int, min_room: int
) -> tuple[np.ndarray, np.ndarray]:
    """Walls and doorways of a floor of `size` x `size` cells: bool `[row, column]` each."""
    walls = np.zeros((size, size), dtype=bool)
    doors = np.zeros((size, size), dtype=bool)
    segments: list[tuple[Rectangle, bool]] = []
    _divide(rng, (0, 0, size, size), n_rooms, min_room, segments)
    for (top, left, bottom, right), _ in segments:
        walls[top:bottom, left:right] = True
    # Doorways come after all walls, so that no wall ends in front of one, and in the order of the
    # walls, so that none opens into the doorway of a wall that ends there.
    for segment, lies_along_row in segments:
        row, column = _doorway(rng, walls, segment, lies_along_row)
        walls[row, column] = False
        doors[row, column] = True
    return walls, doors


def _divide(
    rng: np.random.Generator,
    area: Rectangle,
    n_rooms: int,
    min_room: int,
    segments: list[tuple[Rectangle, bool]],
) -> None:
    """Split `area` into `n_rooms` rooms; append each wall and whether it lies along a row."""
    if n_rooms == 1:
        return
    options = _divisions(area, n_rooms, min_room)
    first, wall, second, n_first = options[rng.integers(len(options))]
    wall_is_below_first = wall[0] == first[2]
    segments.append((wall, wall_is_below_first))
    _divide(rng, first, n_first, min_room, segments)
    _divide(rng, second, n_rooms - n_first, min_room, segments)


def _divisions(
    area: Rectangle, n_rooms: int, min_room: int
) -> list[tuple[Rectangle, Rectangle, Rectangle, int]]:
    """All ways to cut `area` in two: first part, wall, second part, rooms in the first part."""
    top, left, bottom, right = area
    cuts: list[tuple[Rectangle, Rectangle, Rectangle]] = []
    for row in range(top + min_room, bottom - min_room):
        upper, lower = (top, left, row, right), (row + 1, left, bottom, right)
        cuts.append((upper, (row, left, row + 1, right), lower))
    for column in range(left + min_room, right - min_room):
        before, after = (top, left, bottom, column), (top, column + 1, bottom, right)
        cuts.append((before, (top, column, bottom, column + 1), after))
    divisions = []
    for first, wall, second in cuts:
        most_first, most_second = _capacity(first, min_room), _capacity(second, min_room)
        for n_first in range(max(1, n_rooms - most_second), min(most_first, n_rooms - 1) + 1):
            divisions.append((first, wall, second, n_first))
    return divisions


def _capacity(area: Rectangle, min_room: int) -> int:
    top, left, bottom, right = area
    return room_capacity(bottom - top, right - left, min_room)


def _doorway(
    rng: np.random.Generator, walls: np.ndarray, segment: Rectangle, lies_along_row: bool
) -> tuple[int, int]:
    """A cell of a wall with free cells on both sides (the wall's ends always are such cells)."""
    top, left, bottom, right = segment
    if lies_along_row:
        beside = walls[top - 1, left:right] | walls[top + 1, left:right]
        return top, left + int(rng.choice(np.flatnonzero(~beside)))
    beside = walls[top:bottom, left - 1] | walls[top:bottom, left + 1]
    return top + int(rng.choice(np.flatnonzero(~beside))), left
