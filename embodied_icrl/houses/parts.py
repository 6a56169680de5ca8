"""What models are made of: boxes, turned shapes, balls and rods, each with a material.

A model's frame: the origin at the middle of its underside, y up, the front at -z. The parts are the
one source for the mesh files (`make_meshes`) and for the boxes that the generator reasons with.
Materials are names of colours; the name "tint" is replaced by the tint of the item in the house.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Sequence, Tuple, Union

import numpy as np

TINT = "tint"
Point = Tuple[float, float, float]


@dataclass(frozen=True)
class Box:
    """An axis-aligned box from `low` to `high`."""

    low: Point
    high: Point
    material: str


@dataclass(frozen=True)
class Lathe:
    """A profile of (radius, y) turned about the vertical axis through (x, z).

    With 4 sides and `turn` 45 degrees it is a square tube, frustum or cushion; the radius is then
    measured to the corners.
    """

    profile: Tuple[Tuple[float, float], ...]
    x: float
    z: float
    material: str
    sides: int = 14
    turn: float = 0.0


@dataclass(frozen=True)
class Ball:
    """An ellipsoid with half-axes `radii`."""

    centre: Point
    radii: Point
    material: str
    sides: int = 12


@dataclass(frozen=True)
class Rod:
    """A round bar between two points."""

    start: Point
    end: Point
    radius: float
    material: str
    sides: int = 8


Part = Union[Box, Lathe, Ball, Rod]


def part_bounds(part: Part) -> tuple[Point, Point]:
    """The axis-aligned box around a part; for round parts it is a little generous."""
    if isinstance(part, Box):
        return part.low, part.high
    if isinstance(part, Lathe):
        radius = max(r for r, _ in part.profile)
        if part.sides == 4 and part.turn == 45.0:
            radius *= math.sqrt(0.5)
        heights = [y for _, y in part.profile]
        low = (part.x - radius, min(heights), part.z - radius)
        return low, (part.x + radius, max(heights), part.z + radius)
    if isinstance(part, Ball):
        (x, y, z), (a, b, c) = part.centre, part.radii
        return (x - a, y - b, z - c), (x + a, y + b, z + c)
    ends = np.array([part.start, part.end])
    axis = ends[1] - ends[0]
    # A disc across the axis reaches sqrt(1 - cos^2) of its radius along each coordinate.
    reach = part.radius * np.sqrt(np.maximum(1 - axis * axis / (axis * axis).sum(), 0))
    low, high = ends.min(axis=0) - reach, ends.max(axis=0) + reach
    return tuple(low.tolist()), tuple(high.tolist())


def part_boxes(parts: Sequence[Part]) -> np.ndarray:
    """The boxes around the parts: float64 `[part, 2 (low, high), 3]`."""
    return np.array([part_bounds(part) for part in parts], dtype=np.float64)


def box(x0: float, y0: float, z0: float, x1: float, y1: float, z1: float, material: str) -> Box:
    """A box by its two corners."""
    return Box((x0, y0, z0), (x1, y1, z1), material)


def legs(
    width: float, depth: float, height: float, thickness: float, material: str, bottom: float = 0.0
) -> tuple[Part, ...]:
    """Four square legs under the corners of a top."""
    x, z, t = width / 2, depth / 2, thickness
    return tuple(
        box(a, bottom, b, a + t, height, b + t, material) for a in (-x, x - t) for b in (-z, z - t)
    )


def cylinder(
    x: float, z: float, y0: float, y1: float, radius: float, material: str, sides: int = 14
) -> Lathe:
    """An upright cylinder."""
    return frustum(x, z, y0, y1, radius, radius, material, sides)


def frustum(
    x: float, z: float, y0: float, y1: float, bottom: float, top: float, material: str,
    sides: int = 14, turn: float = 0.0,
) -> Lathe:  # fmt: skip
    """An upright cylinder, cone or (with 4 sides, turned 45 degrees) square frustum."""
    profile = ((0.0, y0), (bottom, y0), (top, y1), (0.0, y1))
    if top == 0.0:
        profile = profile[:3]  # type: ignore[assignment]
    return Lathe(profile, x, z, material, sides, turn)


def square(
    x: float, z: float, y0: float, y1: float, bottom: float, top: float, material: str
) -> Lathe:
    """An upright square frustum; `bottom` and `top` are half of the side lengths."""
    root = math.sqrt(2.0)
    return frustum(x, z, y0, y1, bottom * root, top * root, material, sides=4, turn=45.0)


def arc(
    centre: Point, radius: float, start: float, end: float, thickness: float, material: str,
    pieces: int = 5,
) -> tuple[Part, ...]:  # fmt: skip
    """A handle: rods along an arc in the plane z = const; angles in degrees, 0 at +x, 90 at +y."""
    x, y, z = centre
    angles = [math.radians(start + (end - start) * i / pieces) for i in range(pieces + 1)]
    points = [(x + radius * math.cos(a), y + radius * math.sin(a), z) for a in angles]
    return tuple(Rod(points[i], points[i + 1], thickness, material, sides=6) for i in range(pieces))
