"""The ground plan of a house as exact boxes: how far is a point from the nearest obstacle?

The plan is cut into square tiles; each lists the boxes that a move which begins in it can meet. So
the distance to every obstacle that matters costs a few dozen boxes, whatever the size of the house.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Tuple

import numpy as np

from embodied_icrl.houses.frames import cosine_sine
from embodied_icrl.houses.free_space import (
    CELL,
    FreeSpace,
    bits_of,
    block,
    empty_map,
    flood,
    mask_of,
    obstacles,
)
from embodied_icrl.houses.geometry import Boxes, house_bounds
from embodied_icrl.houses.spec import HouseError, HouseSpec

TILE = 0.25
# One leg of a move; tiles list all boxes that come nearer than the agent's radius within it.
LEG = 0.3
_MARGIN = 0.01
# A box: x, z of its middle, cosine and sine of its yaw, half width and half depth.
_COLUMNS = 6
_NOWHERE = (1e6, 1e6, 1.0, 0.0, 0.0, 0.0)


@dataclass(frozen=True)
class Ground:
    """Obstacles and free space of one house, for an agent of one radius.

    Attributes:
        x0, z0: corner of the first tile, metres.
        shape: rows (along z) and columns (along x) of tiles.
        boxes: float64 `[box, 6]`; the last is nowhere near.
        near: int32 `[tile, k]`, the boxes near each tile, filled up with the last box.
        space: the map of free space, a grid.
        region: bool, the shape of the map: its largest connected region.
        fine: a finer map for distances, with the points of `space` among its own. Connected points
            of `space` are connected here, so a gap that is too narrow by 1 mm is open.
        fine_region: bool, its part of the region.
        radius: of the agent, metres.
    """

    x0: float
    z0: float
    shape: Tuple[int, int]
    boxes: np.ndarray
    near: np.ndarray
    space: FreeSpace
    region: np.ndarray
    fine: FreeSpace
    fine_region: np.ndarray
    radius: float

    def clearance(self, points: np.ndarray) -> np.ndarray:
        """Distance of points `[point, 2 (x, z)]` to the nearest obstacle: float64 `[point]`.

        Exact up to the radius plus a leg, too large beyond.
        """
        tile = tile_of(points, np.array([self.x0, self.z0]), np.array(self.shape))
        return nearest_box(points, self.boxes[self.near[tile]])[0]


def build_ground(spec: HouseSpec, radius: float, height: float, refine: int) -> Ground:
    """The ground of a house.

    Args:
        spec: a valid house.
        radius, height: of the agent, metres.
        refine: how many points of the finer map there are for each of the other, along each axis.

    Raises:
        HouseError: there is no room for the agent.
    """
    x0, z0, x1, z1 = house_bounds(spec)
    shape = (int(np.ceil((z1 - z0) / TILE)), int(np.ceil((x1 - x0) / TILE)))
    solid = obstacles(spec, height)
    flat = _flat(solid)
    shown = ~_covered(flat)
    solid, boxes = solid.select(shown), np.concatenate([flat[shown], np.array([_NOWHERE])])
    space = _map_of_rooms(spec, empty_map((x0, z0, x1, z1), CELL))
    block(space, solid, radius)
    region = space.main_region()
    if not region.any():
        raise HouseError(f"rooms: no room for an agent of radius {radius} m in house {spec.name!r}")
    fine = _map_of_rooms(spec, _finer(space, refine))
    # What lies between two free points of the map is this near to an obstacle at least.
    block(fine, solid, float(np.sqrt(radius**2 - (CELL / 2) ** 2)))
    row, column = np.argwhere(region)[0] * refine
    stride = fine.free.shape[1]
    start = _bit(int(row), int(column), stride)
    fine_region = mask_of(flood(bits_of(fine.free), start, stride), fine.free.shape)
    near = _near(boxes, x0, z0, shape, radius)
    return Ground(x0, z0, shape, boxes, near, space, region, fine, fine_region, radius)


def _map_of_rooms(spec: HouseSpec, space: FreeSpace) -> FreeSpace:
    """A map with all rooms free, in place."""
    space.free[:] = False
    for room in spec.rooms:
        space.free[space.inside(room.bounds)] = True
    return space


def _finer(space: FreeSpace, refine: int) -> FreeSpace:
    """A map with `refine` times as many points, those of `space` among them."""
    cell = space.cell / refine
    rows, columns = ((n - 1) * refine + 1 for n in space.free.shape)
    shift = (space.cell - cell) / 2
    return FreeSpace(space.x0 + shift, space.z0 + shift, cell, np.zeros((rows, columns), bool))


def _bit(row: int, column: int, columns: int) -> int:
    """One point of a map as a bit set, see `free_space.bits_of`."""
    return 1 << (row * (columns + 1) + column)


def tile_of(points: np.ndarray, origin: np.ndarray, shape: np.ndarray) -> np.ndarray:
    """The tiles of points `[..., 2 (x, z)]`: int64; what is outside counts to the nearest tile.

    Args:
        points: metres.
        origin: x0, z0 of the ground, `[..., 2]`.
        shape: its rows and columns of tiles, `[..., 2]`.
    """
    place = ((points - origin) / TILE).astype(np.int64)
    column = np.clip(place[..., 0], 0, shape[..., 1] - 1)
    row = np.clip(place[..., 1], 0, shape[..., 0] - 1)
    return np.asarray(row * shape[..., 1] + column)


def nearest_box(points: np.ndarray, boxes: np.ndarray) -> Tuple[np.ndarray, np.ndarray]:
    """Distance to the nearest box, 0 inside, and the way from its nearest point: `[n]`, `[n, 2]`.

    Args:
        points: `[n, 2 (x, z)]`, metres.
        boxes: `[n, k, 6]`.
    """
    across, along = _excess(points, boxes)
    squared = across * across + along * along
    each = np.arange(len(points))
    nearest = squared.argmin(axis=1)
    across, along = across[each, nearest], along[each, nearest]
    c, s = boxes[each, nearest, 2], boxes[each, nearest, 3]
    away = np.empty((len(points), 2))
    away[:, 0] = c * across + s * along
    away[:, 1] = c * along - s * across
    return np.sqrt(squared[each, nearest]), away


def _excess(points: np.ndarray, boxes: np.ndarray) -> Tuple[np.ndarray, np.ndarray]:
    """How far points are beyond the sides of boxes, in the boxes' frames: `[n, k]` each."""
    dx = points[:, None, 0] - boxes[..., 0]
    dz = points[:, None, 1] - boxes[..., 1]
    c, s = boxes[..., 2], boxes[..., 3]
    across, along = c * dx - s * dz, s * dx + c * dz
    half_across, half_along = boxes[..., 4], boxes[..., 5]
    across -= np.minimum(np.maximum(across, -half_across), half_across)
    along -= np.minimum(np.maximum(along, -half_along), half_along)
    return across, along


def _flat(boxes: Boxes) -> np.ndarray:
    c, s = cosine_sine(boxes.yaw)
    parts = (boxes.centre[:, 0], boxes.centre[:, 2], c, s, boxes.half[:, 0], boxes.half[:, 2])
    return np.stack(parts, axis=1)


def _covered(boxes: np.ndarray) -> np.ndarray:
    """Which boxes lie inside another one that is turned the same way: bool `[box]`."""
    c, s = boxes[:, None, 2], boxes[:, None, 3]
    same = np.all(np.abs(boxes[:, None, 2:4] - boxes[None, :, 2:4]) < 1e-9, axis=2)
    gap = boxes[None, :, :2] - boxes[:, None, :2]
    across = np.abs(c * gap[..., 0] - s * gap[..., 1])
    along = np.abs(s * gap[..., 0] + c * gap[..., 1])
    inside = same & (across + boxes[:, None, 4] <= boxes[None, :, 4] + 1e-9)
    inside &= along + boxes[:, None, 5] <= boxes[None, :, 5] + 1e-9
    # Of two equal boxes the first stays.
    equal = inside & inside.T
    first = np.arange(len(boxes))[:, None] > np.arange(len(boxes))[None]
    return np.asarray((inside & (~equal | first)).any(axis=1))


def _near(
    boxes: np.ndarray, x0: float, z0: float, shape: Tuple[int, int], radius: float
) -> np.ndarray:
    rows, columns = np.divmod(np.arange(shape[0] * shape[1]), shape[1])
    middle = np.stack([x0 + (columns + 0.5) * TILE, z0 + (rows + 0.5) * TILE], axis=1)
    reach = TILE / np.sqrt(2) + LEG + radius + _MARGIN
    tiles, found = np.nonzero(_within(middle, boxes[:-1], reach))
    count = np.bincount(tiles, minlength=len(middle))
    rank = np.arange(len(tiles)) - np.repeat(np.cumsum(count) - count, count)
    near = np.full((len(middle), max(1, int(count.max(initial=0)))), len(boxes) - 1, np.int32)
    near[tiles, rank] = found
    return near


def _within(points: np.ndarray, boxes: np.ndarray, reach: float) -> np.ndarray:
    """Which boxes are nearer than `reach` to which points: bool `[point, box]`."""
    across, along = _excess(points, boxes[None])
    return np.asarray(across * across + along * along < reach * reach)
