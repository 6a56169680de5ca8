"""From a house to boxes: walls, floors, furniture and objects, for checks, maps and exports."""

from __future__ import annotations

from dataclasses import dataclass
from typing import List, Sequence, Tuple

import numpy as np

from embodied_icrl.houses.frames import cosine_sine, rotate
from embodied_icrl.houses.models import model_boxes
from embodied_icrl.houses.spec import Bounds, Doorway, HouseSpec, Item, Room

TOUCH = 1e-6

# Objects may float or sink by this much, metres.
REST = 0.02


@dataclass(frozen=True)
class WallPiece:
    """A solid piece of one room's wall: an axis-aligned box from `low` to `high`."""

    room: str
    low: Tuple[float, float, float]
    high: Tuple[float, float, float]


@dataclass(frozen=True)
class Boxes:
    """Boxes that stand upright, each turned about its own vertical axis.

    `centre` and `half` are float64 `[box, 3]` in metres, `yaw` `[box]` in degrees.
    """

    centre: np.ndarray
    half: np.ndarray
    yaw: np.ndarray

    def __len__(self) -> int:
        return len(self.yaw)

    def select(self, index: np.ndarray) -> Boxes:
        return Boxes(self.centre[index], self.half[index], self.yaw[index])

    @property
    def reach(self) -> np.ndarray:
        """Half sizes of the axis-aligned boxes around them: `[box, 3]`."""
        c, s = cosine_sine(self.yaw)
        c, s = np.abs(c), np.abs(s)
        x = c * self.half[:, 0] + s * self.half[:, 2]
        z = s * self.half[:, 0] + c * self.half[:, 2]
        return np.stack([x, self.half[:, 1], z], axis=1)


def join_boxes(groups: Sequence[Boxes]) -> Boxes:
    """Several sets of boxes as one."""
    return Boxes(
        np.concatenate([group.centre for group in groups] or [np.zeros((0, 3))]),
        np.concatenate([group.half for group in groups] or [np.zeros((0, 3))]),
        np.concatenate([group.yaw for group in groups] or [np.zeros(0)]),
    )


def item_boxes(item: Item) -> Boxes:
    """The boxes of a piece of furniture or an object, where it stands in the house."""
    boxes = model_boxes(item.model)
    centre = rotate((boxes[:, 0] + boxes[:, 1]) / 2, item.yaw) + np.array(item.position)
    return Boxes(centre, (boxes[:, 1] - boxes[:, 0]) / 2, np.full(len(boxes), float(item.yaw)))


def rests_on(item: Item, boxes: Boxes, tolerance: float) -> bool:
    """Whether an item's foot is at the top of one of `boxes` right under it, within metres."""
    x, y, z = item.position
    under = np.all(np.abs(boxes.centre - (x, y, z))[:, ::2] <= boxes.reach[:, ::2], axis=1)
    tops = (boxes.centre + boxes.half)[under, 1]
    return bool(np.any(np.abs(tops - y) <= tolerance))


def wall_boxes(spec: HouseSpec) -> Boxes:
    """All wall pieces as boxes."""
    pieces = wall_pieces(spec)
    low = np.array([piece.low for piece in pieces], dtype=np.float64).reshape(-1, 3)
    high = np.array([piece.high for piece in pieces], dtype=np.float64).reshape(-1, 3)
    return Boxes((low + high) / 2, (high - low) / 2, np.zeros(len(pieces)))


def wall_pieces(spec: HouseSpec) -> List[WallPiece]:
    """The walls of all rooms with the openings cut out; above a doorway its lintel stays."""
    return [piece for room in spec.rooms for piece in _room_walls(spec, room)]


def _room_walls(spec: HouseSpec, room: Room) -> List[WallPiece]:
    x0, z0, x1, z1 = room.bounds
    t, pieces = spec.wall_thickness, []
    # (along x?, coordinate of the edge, span of the slab across, span along)
    sides = (
        (True, z0, (z0, z0 + t), (x0, x1)),
        (True, z1, (z1 - t, z1), (x0, x1)),
        (False, x0, (x0, x0 + t), (z0 + t, z1 - t)),
        (False, x1, (x1 - t, x1), (z0 + t, z1 - t)),
    )
    for along_x, edge, across, along in sides:
        openings = _openings(spec.doorways, room, along_x, edge)
        for start, end, bottom, top in _solid_spans(along, openings, spec.wall_height):
            low = (start, bottom, across[0]) if along_x else (across[0], bottom, start)
            high = (end, top, across[1]) if along_x else (across[1], top, end)
            pieces.append(WallPiece(room.name, low, high))
    return pieces


def _openings(
    doorways: Sequence[Doorway], room: Room, along_x: bool, edge: float
) -> List[Tuple[float, float, float]]:
    """Start, end and height of the openings in one side of a room, in order."""
    found = []
    for door in doorways:
        along, across = door.position if along_x else door.position[::-1]
        if (
            room.name in door.rooms
            and abs(across - edge) < 1e-3
            and door_along_x(door, room) == along_x
        ):
            found.append((along - door.width / 2, along + door.width / 2, door.height))
    return sorted(found)


def door_along_x(door: Doorway, room: Room) -> bool:
    """Whether a doorway lies in a side of the room that runs along x."""
    x0, z0, x1, z1 = room.bounds
    x, z = door.position
    return min(abs(z - z0), abs(z - z1)) < min(abs(x - x0), abs(x - x1))


def _solid_spans(
    along: Tuple[float, float], openings: Sequence[Tuple[float, float, float]], height: float
) -> List[Tuple[float, float, float, float]]:
    """Start, end, bottom and top of what is left of a wall."""
    spans, at = [], along[0]
    for start, end, top in openings:
        if start > at + TOUCH:
            spans.append((at, start, 0.0, height))
        if top < height - TOUCH:
            spans.append((start, end, top, height))
        at = max(at, end)
    if along[1] > at + TOUCH:
        spans.append((at, along[1], 0.0, height))
    return spans


def house_bounds(spec: HouseSpec) -> Bounds:
    """x0, z0, x1, z1 around all rooms."""
    bounds = np.array([room.bounds for room in spec.rooms])
    low, high = bounds[:, :2].min(axis=0), bounds[:, 2:].max(axis=0)
    return float(low[0]), float(low[1]), float(high[0]), float(high[1])


def overlaps(a: Boxes, b: Boxes, tolerance: float = 2e-3) -> np.ndarray:
    """Which boxes of `a` and `b` share more than `tolerance` metres of depth: bool `[a, b]`.

    Exact for upright boxes: separating axes in the plan, intervals in height.
    """
    gap = np.abs(a.centre[:, None] - b.centre[None])
    touching = np.all(gap < a.reach[:, None] + b.reach[None] - tolerance, axis=2)
    if not touching.any():
        return np.asarray(touching)
    rows, columns = np.nonzero(touching)
    offset = b.centre[columns] - a.centre[rows]
    hit = np.ones(len(rows), dtype=bool)
    for yaw in (a.yaw[rows], b.yaw[columns]):
        for quarter in (0.0, 90.0):
            c, s = cosine_sine(yaw + quarter)
            axis = np.stack([c, -s], axis=1)
            distance = np.abs(offset[:, 0] * axis[:, 0] + offset[:, 2] * axis[:, 1])
            room = _extent(a.select(rows), axis) + _extent(b.select(columns), axis)
            hit &= distance < room - tolerance
    touching[rows, columns] = hit
    return np.asarray(touching)


def _extent(boxes: Boxes, axis: np.ndarray) -> np.ndarray:
    """Half extents of boxes along unit vectors (x, z) `[box, 2]`."""
    c, s = cosine_sine(boxes.yaw)
    along_x = np.abs(c * axis[:, 0] - s * axis[:, 1])
    along_z = np.abs(s * axis[:, 0] + c * axis[:, 1])
    return np.asarray(along_x * boxes.half[:, 0] + along_z * boxes.half[:, 2])


def blocked_rays(start: np.ndarray, end: np.ndarray, boxes: Boxes) -> np.ndarray:
    """Which straight lines hit a box on the way: bool `[ray]`.

    Args:
        start: float `[ray, 3]`.
        end: float `[ray, 3]`; the last 1% of the way doesn't count.
        boxes: obstacles.
    """
    turned = boxes.yaw % 90.0 != 0
    straight = boxes.select(~turned)
    way = end - start
    hit = _hit_inside(
        [start[:, k, None] - straight.centre[None, :, k] for k in range(3)],
        [way[:, k, None] for k in range(3)],
        straight.reach,
    )
    if turned.any():
        rest = boxes.select(turned)
        c, s = cosine_sine(rest.yaw)
        x, y, z = (start[:, k, None] - rest.centre[None, :, k] for k in range(3))
        dx, dy, dz = (way[:, k, None] for k in range(3))
        # In the frames of the boxes: turned back by their yaws.
        origin, local = [c * x - s * z, y, s * x + c * z], [c * dx - s * dz, dy, s * dx + c * dz]
        hit |= _hit_inside(origin, local, rest.half)
    return hit


def _hit_inside(
    origin: Sequence[np.ndarray], way: Sequence[np.ndarray], half: np.ndarray
) -> np.ndarray:
    """Which rays hit a box around 0: per axis `[ray, box]` or `[ray, 1]`; bool `[ray]`."""
    enter, leave = np.float64(0.0), np.float64(0.99)
    for k in range(3):
        inverse = 1.0 / np.where(np.abs(way[k]) < 1e-12, 1e-12, way[k])
        middle, reach = -origin[k] * inverse, half[None, :, k] * np.abs(inverse)
        enter = np.maximum(enter, middle - reach)
        leave = np.minimum(leave, middle + reach)
    return np.asarray(np.any(enter < leave, axis=1))
