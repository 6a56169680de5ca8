"""Where the agent can be: a grid of points whose distance to every obstacle is at least its radius.

Regions are found with whole numbers as bit sets: one addition or shift moves the entire map.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional, Tuple

import numpy as np

from embodied_icrl.houses.frames import cosine_sine
from embodied_icrl.houses.geometry import Boxes, house_bounds, item_boxes, join_boxes, wall_boxes
from embodied_icrl.houses.spec import AGENT_HEIGHT, AGENT_RADIUS, Bounds, HouseSpec

# What is lower is driven over; rugs are, nothing else in a generated house.
STEP_HEIGHT = 0.05
CELL = 0.05


@dataclass(frozen=True)
class FreeSpace:
    """A map of the plan: bool `free[row, column]`, row along z, column along x.

    Cell (row, column) is the point `(x0 + (column + 0.5) * cell, z0 + (row + 0.5) * cell)`, metres.
    """

    x0: float
    z0: float
    cell: float
    free: np.ndarray

    def index(self, x: float, z: float) -> Tuple[int, int]:
        """Row and column of the cell that holds a point; may lie outside of the map."""
        return int((z - self.z0) // self.cell), int((x - self.x0) // self.cell)

    def points(self, mask: np.ndarray) -> np.ndarray:
        """The points of a mask's cells: float64 `[point, 2 (x, z)]`, row by row."""
        rows, columns = np.nonzero(mask)
        x = self.x0 + (columns + 0.5) * self.cell
        z = self.z0 + (rows + 0.5) * self.cell
        return np.stack([x, z], axis=1)

    def inside(self, bounds: Bounds) -> Tuple[slice, slice]:
        """The rows and columns whose points lie in a rectangle."""
        x0, z0, x1, z1 = bounds
        rows, columns = self.free.shape
        first = max(0, int(np.ceil((z0 - self.z0) / self.cell - 0.5)))
        last = min(rows, int(np.floor((z1 - self.z0) / self.cell - 0.5)) + 1)
        left = max(0, int(np.ceil((x0 - self.x0) / self.cell - 0.5)))
        right = min(columns, int(np.floor((x1 - self.x0) / self.cell - 0.5)) + 1)
        return slice(first, max(first, last)), slice(left, max(left, right))

    def main_region(self) -> np.ndarray:
        """The largest connected region of free cells: bool, the shape of `free`."""
        left, best, size = bits_of(self.free), 0, 0
        while _count(left) > size:
            region = flood(left, left & -left, self.free.shape[1])
            left &= ~region
            if _count(region) > size:
                best, size = region, _count(region)
        return mask_of(best, self.free.shape)


def empty_map(bounds: Bounds, cell: float) -> FreeSpace:
    """An all free map of a rectangle."""
    x0, z0, x1, z1 = bounds
    shape = (max(1, round((z1 - z0) / cell)), max(1, round((x1 - x0) / cell)))
    return FreeSpace(x0, z0, cell, np.ones(shape, dtype=bool))


def free_space(
    spec: HouseSpec, radius: float = AGENT_RADIUS, height: float = AGENT_HEIGHT, cell: float = CELL
) -> FreeSpace:
    """The free space of a house for an upright cylinder.

    Args:
        spec: the house.
        radius: of the agent, metres.
        height: of the agent; what hangs higher is no obstacle.
        cell: grid spacing, metres. Steps between neighbours may cut a rounded corner by less than
            1 mm at the default.
    """
    space = empty_map(house_bounds(spec), cell)
    space.free[:] = False
    for room in spec.rooms:
        space.free[space.inside(room.bounds)] = True
    block(space, obstacles(spec, height), radius)
    return space


def obstacles(spec: HouseSpec, height: float = AGENT_HEIGHT) -> Boxes:
    """All boxes that an agent of that height bumps into."""
    items = [item_boxes(item) for item in spec.items]
    return in_the_way(join_boxes([wall_boxes(spec), *items]), height)


def in_the_way(boxes: Boxes, height: float = AGENT_HEIGHT) -> Boxes:
    """The boxes that are higher than a step and start below the agent's top."""
    low, high = boxes.centre[:, 1] - boxes.half[:, 1], boxes.centre[:, 1] + boxes.half[:, 1]
    return boxes.select((high > STEP_HEIGHT) & (low < height))


def block(space: FreeSpace, boxes: Boxes, radius: float) -> None:
    """Mark the cells nearer than `radius` to a box as not free."""
    reach = boxes.reach
    cosine, sine = cosine_sine(boxes.yaw)
    for i in range(len(boxes)):
        (x, _, z), (w, _, d) = boxes.centre[i], reach[i]
        rows, columns = space.inside(
            (x - w - radius, z - d - radius, x + w + radius, z + d + radius)
        )
        dx = space.x0 + (np.arange(columns.start, columns.stop) + 0.5) * space.cell - x
        dz = space.z0 + (np.arange(rows.start, rows.stop) + 0.5) * space.cell - z
        c, s, half = cosine[i], sine[i], boxes.half[i]
        if s == 0 or c == 0:
            px = np.maximum(np.abs(dx) - w, 0)[None, :]
            pz = np.maximum(np.abs(dz) - d, 0)[:, None]
        else:
            px = np.maximum(np.abs(c * dx[None, :] - s * dz[:, None]) - half[0], 0)
            pz = np.maximum(np.abs(s * dx[None, :] + c * dz[:, None]) - half[2], 0)
        space.free[rows, columns] &= px * px + pz * pz >= (radius - 1e-9) ** 2


def _count(bits: int) -> int:
    return bin(bits).count("1")


def bits_of(mask: np.ndarray) -> int:
    """A mask as a whole number with one spare bit per row, so that rows don't touch."""
    padded = np.zeros((mask.shape[0], mask.shape[1] + 1), dtype=bool)
    padded[:, :-1] = mask
    return int.from_bytes(np.packbits(padded, axis=None, bitorder="little").tobytes(), "little")


def mask_of(bits: int, shape: Tuple[int, int]) -> np.ndarray:
    """The inverse of `bits_of`."""
    rows, columns = shape[0], shape[1] + 1
    raw = bits.to_bytes((rows * columns + 7) // 8, "little")
    flat = np.unpackbits(np.frombuffer(raw, dtype=np.uint8), bitorder="little")
    return flat[: rows * columns].reshape(rows, columns)[:, :-1].astype(bool)


def flood(free: int, start: int, width: int, until: Optional[int] = None) -> int:
    """All bits that are 4-connected to `start` through `free`, both as `bits_of` gives them.

    Args:
        free: the free cells.
        start: where to begin.
        width: columns of the map.
        until: stop early once all of these are reached.
    """
    stride, region = width + 1, start & free
    while True:
        # A carry runs through a whole stretch of free cells to the right in one addition.
        right = ((free + region) ^ free) & free | region
        grown = right | (right >> 1) & free
        grown |= ((grown << stride) | (grown >> stride)) & free
        if grown == region or (until is not None and grown & until == until):
            return grown
        region = grown
