"""A house from above: every piece drawn as it is, roofless, with labels for people."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, List, Tuple

import numpy as np

from embodied_icrl.common.errors import require
from embodied_icrl.houses.frames import rotate
from embodied_icrl.houses.geometry import house_bounds, wall_pieces
from embodied_icrl.houses.materials import rgb
from embodied_icrl.houses.models import item_surfaces, tint_of
from embodied_icrl.houses.spec import HouseSpec

MARGIN = 0.3
PAPER, WALL, INK = (250, 249, 246), (70, 73, 80), (25, 27, 31)
RING = (214, 32, 44)
_SUPERSAMPLE = 2
_SHIFT = 4


@dataclass(frozen=True)
class TopDown:
    """A picture of a house from above: uint8 RGB `[height, width, 3]`, x to the right, z down."""

    image: np.ndarray
    x0: float
    z0: float
    pixels_per_metre: float

    def pixel(self, x: float, z: float) -> Tuple[float, float]:
        """Column and row of a point of the house."""
        return (x - self.x0) * self.pixels_per_metre, (z - self.z0) * self.pixels_per_metre


def top_down(spec: HouseSpec, pixels_per_metre: float = 60.0, *, labels: bool = True) -> TopDown:
    """Draw a house from above.

    Args:
        spec: a valid house.
        pixels_per_metre: scale.
        labels: write the names of rooms and ring the target objects with their categories.

    Raises:
        MissingDependencyError: opencv-python-headless is not installed.
    """
    cv2: Any = require("cv2", "pip install opencv-python-headless")
    x0, z0, x1, z1 = house_bounds(spec)
    width = round((x1 - x0 + 2 * MARGIN) * pixels_per_metre)
    height = round((z1 - z0 + 2 * MARGIN) * pixels_per_metre)
    canvas = np.full((height * _SUPERSAMPLE, width * _SUPERSAMPLE, 3), PAPER, dtype=np.uint8)
    frame = TopDown(canvas, x0 - MARGIN, z0 - MARGIN, pixels_per_metre * _SUPERSAMPLE)
    for room in spec.rooms:
        _rectangle(frame, room.bounds, rgb(room.floor))
    _draw_items(cv2, frame, spec)
    for piece in wall_pieces(spec):
        if piece.low[1] == 0.0:
            _rectangle(frame, (piece.low[0], piece.low[2], piece.high[0], piece.high[2]), WALL)
    image = cv2.resize(canvas, (width, height), interpolation=cv2.INTER_AREA)
    result = TopDown(image, frame.x0, frame.z0, pixels_per_metre)
    if labels:
        _label(cv2, result, spec)
    return result


def _rectangle(
    frame: TopDown, bounds: Tuple[float, float, float, float], colour: Tuple[int, int, int]
) -> None:
    left, top = (round(v) for v in frame.pixel(bounds[0], bounds[1]))
    right, bottom = (round(v) for v in frame.pixel(bounds[2], bounds[3]))
    frame.image[top:bottom, left:right] = colour


def _draw_items(cv2: Any, frame: TopDown, spec: HouseSpec) -> None:
    """All triangles that face up or sideways, the highest last."""
    triangles, colours = [], []
    for item in spec.items:
        for surface in item_surfaces(item.model, tint_of(item)):
            up = surface.normals[:, 1]
            shown = up > 0.05
            placed = rotate(surface.triangles[shown].astype(np.float64), item.yaw) + item.position
            shade = (0.6 + 0.4 * up[shown])[:, None]
            triangles.append(placed)
            colours.append(shade * np.array(surface.colour) * 255)
    if not triangles:
        return
    corners, colour = np.concatenate(triangles), np.concatenate(colours)
    order = np.argsort(corners[:, :, 1].mean(axis=1), kind="stable")
    x = (corners[order, :, 0] - frame.x0) * frame.pixels_per_metre
    z = (corners[order, :, 2] - frame.z0) * frame.pixels_per_metre
    points = np.round(np.stack([x, z], axis=-1) * 2**_SHIFT).astype(np.int32)
    for polygon, paint in zip(points, colour[order].tolist()):
        cv2.fillConvexPoly(frame.image, polygon, paint, cv2.LINE_AA, _SHIFT)


def _label(cv2: Any, frame: TopDown, spec: HouseSpec) -> None:
    taken: List[Tuple[float, float, float, float]] = []
    for item in spec.objects:
        column, row = frame.pixel(item.position[0], item.position[2])
        radius = round(0.22 * frame.pixels_per_metre)
        cv2.circle(frame.image, (round(column), round(row)), radius, RING, 1, cv2.LINE_AA)
        text = item.category.replace("_", " ")
        _text(cv2, frame.image, text, column, row + radius + 10, 0.36, taken)
    for room in spec.rooms:
        x0, z0, x1, z1 = room.bounds
        column, row = frame.pixel((x0 + x1) / 2, (z0 + z1) / 2)
        _text(cv2, frame.image, room.kind, column, row, 0.62, taken)


def _text(
    cv2: Any, image: np.ndarray, text: str, column: float, row: float, scale: float,
    taken: List[Tuple[float, float, float, float]],
) -> None:  # fmt: skip
    """Centred text on a pale plate, moved down past what is written already."""
    font = cv2.FONT_HERSHEY_SIMPLEX
    (width, height), _ = cv2.getTextSize(text, font, scale, 1)
    left = min(max(column - width / 2, 4), image.shape[1] - width - 4)
    for _ in range(8):
        area = (left - 3, row - height - 3, left + width + 3, row + 4)
        if not any(_meet(area, other) for other in taken):
            break
        row += height / 2
    taken.append(area)
    plate = image[max(0, round(area[1])) : round(area[3]), max(0, round(area[0])) : round(area[2])]
    plate[:] = (plate * 0.3 + np.array(PAPER) * 0.7).astype(np.uint8)
    cv2.putText(image, text, (round(left), round(row)), font, scale, INK, 1, cv2.LINE_AA)


def _meet(a: Tuple[float, float, float, float], b: Tuple[float, float, float, float]) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]
