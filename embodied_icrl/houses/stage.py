"""The building of a house: floors and walls as boxes of one colour."""

from __future__ import annotations

from dataclasses import dataclass
from typing import List, Tuple

import numpy as np

from embodied_icrl.houses.geometry import wall_pieces
from embodied_icrl.houses.materials import rgb
from embodied_icrl.houses.spec import HouseSpec, Position

FLOOR_THICKNESS = 0.1


@dataclass(frozen=True)
class StageBox:
    """An axis-aligned box of the building, in the frame of the house."""

    name: str
    kind: str  # "floor" or "wall"
    low: Position
    high: Position
    colour: Tuple[float, float, float]


def stage_boxes(spec: HouseSpec) -> List[StageBox]:
    """Floors, their tops at y = 0, and all pieces of walls. There are no ceilings."""
    boxes = []
    for room in spec.rooms:
        x0, z0, x1, z1 = room.bounds
        low, high = (x0, -FLOOR_THICKNESS, z0), (x1, 0.0, z1)
        boxes.append(StageBox(f"floor/{room.name}", "floor", low, high, unit_rgb(room.floor)))
    colours = {room.name: unit_rgb(room.wall) for room in spec.rooms}
    for i, piece in enumerate(wall_pieces(spec)):
        name = f"wall/{piece.room}/{i}"
        boxes.append(StageBox(name, "wall", piece.low, piece.high, colours[piece.room]))
    return boxes


def unit_rgb(colour: str) -> Tuple[float, float, float]:
    """A colour as floats in [0, 1]."""
    r, g, b = rgb(colour)
    return r / 255, g / 255, b / 255


def box_triangles(low: Position, high: Position) -> np.ndarray:
    """The surface of a box: float32 `[12, 3 (corner), 3 (xyz)]`, counter-clockwise from outside."""
    a, b = np.array(low, dtype=np.float32), np.array(high, dtype=np.float32)
    corners = np.array([[(a, b)[i >> axis & 1][axis] for axis in range(3)] for i in range(8)])
    quads = ((0, 4, 6, 2), (1, 3, 7, 5), (0, 1, 5, 4), (2, 6, 7, 3), (0, 2, 3, 1), (4, 5, 7, 6))
    order = [(q[0], q[i], q[i + 1]) for q in quads for i in (1, 2)]
    return np.asarray(corners[np.array(order)])
