"""Furniture: the parts of every model, and the surfaces on which objects can lie.

Sizes are metres. A model faces -z; its back, at +z, goes to the wall.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Tuple

import numpy as np

from embodied_icrl.houses.materials import FABRICS, WOODS
from embodied_icrl.houses.parts import (
    TINT,
    Ball,
    Lathe,
    Part,
    Rod,
    box,
    cylinder,
    frustum,
    legs,
    part_boxes,
)

OPEN = 10.0


@dataclass(frozen=True)
class Surface:
    """A horizontal rectangle (x0, z0, x1, z1) at height `y` with `clear` metres of air above it."""

    x0: float
    z0: float
    x1: float
    z1: float
    y: float
    clear: float = OPEN


@dataclass(frozen=True)
class FurnitureModel:
    """A model of a furniture kind; `tints` are the colours its part material "tint" may take."""

    kind: str
    parts: Tuple[Part, ...]
    surfaces: Tuple[Surface, ...] = ()
    tints: Tuple[str, ...] = WOODS

    @cached_property
    def boxes(self) -> np.ndarray:
        """The boxes around its parts: float64 `[part, 2, 3]`."""
        return part_boxes(self.parts)

    @cached_property
    def size(self) -> tuple[float, float, float]:
        """Width, height, depth of the smallest box around the origin's axis that holds it."""
        low, high = self.boxes[:, 0].min(axis=0), self.boxes[:, 1].max(axis=0)
        reach = np.maximum(-low, high)
        return 2 * float(reach[0]), float(high[1]), 2 * float(reach[2])


def _top(width: float, depth: float, y: float, edge: float = 0.04) -> Surface:
    return Surface(-width / 2 + edge, -depth / 2 + edge, width / 2 - edge, depth / 2 - edge, y)


def _table(kind: str, w: float, d: float, h: float, edge: float = 0.04) -> FurnitureModel:
    top = box(-w / 2, h - 0.04, -d / 2, w / 2, h, d / 2, TINT)
    parts = (top, *legs(w - 0.08, d - 0.08, h - 0.04, 0.06, TINT))
    return FurnitureModel(kind, parts, (_top(w, d, h, edge),))


def _round_table() -> FurnitureModel:
    parts: Tuple[Part, ...] = (
        cylinder(0, 0, 0.71, 0.75, 0.5, TINT, 20),
        cylinder(0, 0, 0.03, 0.71, 0.05, TINT, 8),
        frustum(0, 0, 0, 0.05, 0.28, 0.2, TINT),
    )
    return FurnitureModel("table", parts, (Surface(-0.32, -0.32, 0.32, 0.32, 0.75),))


def _chest(kind: str, w: float, d: float, h: float, rows: int, columns: int) -> FurnitureModel:
    """A body with drawers or doors in front."""
    parts: list[Part] = [box(-w / 2, 0.05, -d / 2 + 0.02, w / 2, h, d / 2, TINT)]
    parts.append(box(-w / 2 + 0.04, 0, -d / 2 + 0.06, w / 2 - 0.04, 0.05, d / 2, "black"))
    cw, ch = (w - 0.02) / columns, (h - 0.1) / rows
    for i in range(columns):
        for j in range(rows):
            x, y = -w / 2 + 0.01 + i * cw, 0.07 + j * ch
            parts.append(
                box(x + 0.01, y, -d / 2, x + cw - 0.01, y + ch - 0.02, -d / 2 + 0.02, TINT)
            )
            m, n = x + cw / 2, y + ch / 2
            parts.append(
                box(m - 0.05, n - 0.01, -d / 2 - 0.02, m + 0.05, n + 0.01, -d / 2, "dark_steel")
            )
    surfaces = (_top(w, d - 0.04, h),) if h < 1.15 else ()
    return FurnitureModel(kind, tuple(parts), surfaces)


def _shelf(w: float, h: float, levels: int) -> FurnitureModel:
    """Open boards with books on some of them; objects lie on the others."""
    d, t = 0.34, 0.03
    parts: list[Part] = [
        box(-w / 2, 0, -d / 2, -w / 2 + t, h, d / 2, TINT),
        box(w / 2 - t, 0, -d / 2, w / 2, h, d / 2, TINT),
        box(-w / 2, 0, d / 2 - 0.02, w / 2, h, d / 2, TINT),
        box(-w / 2, h - t, -d / 2, w / 2, h, d / 2, TINT),
    ]
    surfaces = []
    step = (h - 0.08) / levels
    x0, x1 = -w / 2 + t, w / 2 - t
    for level in range(levels):
        y = 0.05 + level * step
        parts.append(box(x0, y, -d / 2, x1, y + t, d / 2, TINT))
        y += t
        if level % 2:
            surfaces.append(Surface(x0 + 0.01, -d / 2, x1 - 0.01, d / 2 - 0.02, y, step - t))
            continue
        x = x0 + 0.01
        spines = ("rust", "navy", "sand", "forest", "plum", "grey", "mustard")
        for i in range(int((x1 - x0) / 0.075)):
            top = y + step - t - 0.05 - 0.03 * ((3 * i + level) % 4)
            parts.append(box(x, y, -0.08, x + 0.065, top, d / 2 - 0.02, spines[(i + level) % 7]))
            x += 0.073
    if h < 1.15:
        surfaces.append(_top(w, d, h))
    return FurnitureModel("bookshelf", tuple(parts), tuple(surfaces))


def _bed(w: float) -> FurnitureModel:
    pillows = [-w / 4, w / 4] if w > 1.2 else [0.0]
    pw = 0.3 if w > 1.2 else 0.33
    parts: list[Part] = [
        box(-w / 2 - 0.03, 0, 0.98, w / 2 + 0.03, 1.0, 1.03, "wood"),
        box(-w / 2 - 0.03, 0.12, -1.03, w / 2 + 0.03, 0.32, 0.98, "wood"),
        *legs(w, 2.0, 0.12, 0.08, "dark_wood"),
        box(-w / 2, 0.32, -1.0, w / 2, 0.48, 0.98, "linen"),
        box(-w / 2 - 0.02, 0.34, -1.02, w / 2 + 0.02, 0.52, 0.35, TINT),
        box(-w / 2 - 0.02, 0.5, 0.25, w / 2 + 0.02, 0.535, 0.42, "linen"),
    ]
    parts += [box(x - pw, 0.48, 0.52, x + pw, 0.6, 0.9, "ceramic") for x in pillows]
    surface = Surface(-w / 2 + 0.06, -0.9, w / 2 - 0.06, 0.2, 0.52)
    return FurnitureModel("bed", tuple(parts), (surface,), FABRICS)


def _sofa(w: float, kind: str = "sofa") -> FurnitureModel:
    seats = max(1, round((w - 0.4) / 0.65))
    sw = (w - 0.4) / seats
    parts: list[Part] = [
        box(-w / 2 + 0.06, 0, -0.36, w / 2 - 0.06, 0.08, 0.38, "dark_wood"),
        box(-w / 2, 0.08, -0.42, w / 2, 0.3, 0.45, TINT),
        box(-w / 2, 0.3, 0.22, w / 2, 0.85, 0.45, TINT),
        box(-w / 2, 0.3, -0.42, -w / 2 + 0.2, 0.62, 0.22, TINT),
        box(w / 2 - 0.2, 0.3, -0.42, w / 2, 0.62, 0.22, TINT),
    ]
    for i in range(seats):
        x = -w / 2 + 0.2 + i * sw
        parts.append(box(x + 0.01, 0.3, -0.44, x + sw - 0.01, 0.44, 0.22, TINT))
        parts.append(box(x + 0.02, 0.46, 0.12, x + sw - 0.02, 0.8, 0.22, TINT))
    surface = Surface(-w / 2 + 0.22, -0.4, w / 2 - 0.22, 0.11, 0.44)
    return FurnitureModel(kind, tuple(parts), (surface,), FABRICS)


def _chair() -> FurnitureModel:
    parts: Tuple[Part, ...] = (
        box(-0.21, 0.42, -0.21, 0.21, 0.46, 0.21, TINT),
        *legs(0.42, 0.42, 0.42, 0.04, TINT),
        box(-0.21, 0.46, 0.17, -0.17, 0.9, 0.21, TINT),
        box(0.17, 0.46, 0.17, 0.21, 0.9, 0.21, TINT),
        box(-0.17, 0.62, 0.18, 0.17, 0.86, 0.2, TINT),
    )
    return FurnitureModel("chair", parts)


def _office_chair() -> FurnitureModel:
    spokes = ((0.26, 0.0), (-0.26, 0.0), (0.0, 0.26), (0.0, -0.26))
    parts: Tuple[Part, ...] = (
        *(Rod((0, 0.08, 0), (x, 0.05, z), 0.025, "dark_steel") for x, z in spokes),
        cylinder(0, 0, 0.06, 0.42, 0.03, "dark_steel", 8),
        box(-0.23, 0.42, -0.23, 0.23, 0.5, 0.23, TINT),
        box(-0.21, 0.58, 0.19, 0.21, 1.02, 0.25, TINT),
        box(-0.03, 0.46, 0.23, 0.03, 0.7, 0.26, "dark_steel"),
    )
    return FurnitureModel("office_chair", parts, (), FABRICS)


def _stool() -> FurnitureModel:
    parts = (cylinder(0, 0, 0.41, 0.46, 0.18, TINT), *legs(0.26, 0.26, 0.41, 0.04, "dark_wood"))
    return FurnitureModel("stool", parts, (Surface(-0.12, -0.12, 0.12, 0.12, 0.46),))


def _desk() -> FurnitureModel:
    parts: Tuple[Part, ...] = (
        box(-0.65, 0.71, -0.32, 0.65, 0.75, 0.32, TINT),
        box(-0.63, 0, -0.3, -0.59, 0.71, 0.3, TINT),
        box(0.25, 0.02, -0.3, 0.63, 0.71, 0.3, TINT),
        *(box(0.27, y, -0.32, 0.61, y + 0.19, -0.3, "linen") for y in (0.06, 0.28, 0.5)),
        box(-0.59, 0.35, 0.27, 0.25, 0.71, 0.3, TINT),
    )
    return FurnitureModel("desk", parts, (_top(1.3, 0.64, 0.75),))


def _counter(kind: str, extra: tuple[Part, ...], surface: Surface) -> FurnitureModel:
    """A kitchen unit 0.6 m deep with doors and a worktop 0.9 m high."""
    parts: Tuple[Part, ...] = (
        box(-0.4, 0.08, -0.28, 0.4, 0.86, 0.3, TINT),
        box(-0.4, 0, -0.22, 0.4, 0.08, 0.3, "black"),
        box(-0.4, 0.86, -0.31, 0.4, 0.9, 0.3, "dark_steel"),
        *extra,
    )
    return FurnitureModel(kind, parts, (surface,), ("painted", "light_wood", "sage", "navy"))


def _counters() -> dict[str, FurnitureModel]:
    doors = tuple(box(x, 0.1, -0.3, x + 0.37, 0.84, -0.28, TINT) for x in (-0.39, 0.02))
    knobs = tuple(box(x, 0.6, -0.32, x + 0.02, 0.75, -0.3, "steel") for x in (-0.06, 0.04))
    sink: Tuple[Part, ...] = (
        box(-0.35, 0.9, -0.22, 0.05, 0.915, 0.2, "silver"),
        box(-0.31, 0.915, -0.18, 0.01, 0.918, 0.12, "dark_steel"),
        Rod((-0.15, 0.9, 0.22), (-0.15, 1.15, 0.22), 0.015, "silver"),
        Rod((-0.15, 1.15, 0.22), (-0.15, 1.13, 0.04), 0.015, "silver"),
    )
    stove: Tuple[Part, ...] = (
        box(-0.32, 0.2, -0.3, 0.32, 0.66, -0.28, "black"),
        Rod((-0.28, 0.7, -0.33), (0.28, 0.7, -0.33), 0.012, "silver"),
        *(cylinder(x, z, 0.9, 0.912, 0.09, "red" if x < 0 else "black")
          for x in (-0.17, 0.17) for z in (-0.13, 0.14)),
        *(Rod((x, 0.79, -0.33), (x, 0.79, -0.3), 0.025, "silver")
          for x in (-0.24, -0.08, 0.08, 0.24)),
        box(-0.4, 0.9, 0.27, 0.4, 1.05, 0.3, "steel"),
    )  # fmt: skip
    return {
        "counter": _counter("counter", doors + knobs, Surface(-0.37, -0.28, 0.37, 0.27, 0.9)),
        "sink": _counter("sink", doors + knobs + sink, Surface(0.08, -0.28, 0.38, 0.27, 0.9)),
        "stove": _counter("stove", stove, Surface(-0.3, -0.25, 0.3, 0.25, 0.912)),
    }


def _fridge() -> FurnitureModel:
    parts: Tuple[Part, ...] = (
        box(-0.34, 0.03, -0.3, 0.34, 1.8, 0.33, TINT),
        box(-0.33, 0.06, -0.33, 0.33, 0.7, -0.3, TINT),
        box(-0.33, 0.73, -0.33, 0.33, 1.78, -0.3, TINT),
        box(-0.29, 0.85, -0.37, -0.26, 1.35, -0.33, "dark_steel"),
        box(-0.29, 0.3, -0.37, -0.26, 0.62, -0.33, "dark_steel"),
        box(-0.3, 0, -0.28, 0.3, 0.03, 0.3, "black"),
    )
    return FurnitureModel("fridge", parts, (), ("ceramic", "steel", "silver"))


def _washing_machine() -> FurnitureModel:
    parts: Tuple[Part, ...] = (
        box(-0.3, 0.02, -0.28, 0.3, 0.86, 0.3, "ceramic"),
        Rod((0, 0.42, -0.3), (0, 0.42, -0.28), 0.2, "steel", sides=18),
        Rod((0, 0.42, -0.31), (0, 0.42, -0.3), 0.15, "black", sides=18),
        box(-0.28, 0.72, -0.29, 0.28, 0.84, -0.28, "steel"),
    )
    return FurnitureModel("washing_machine", parts, (_top(0.6, 0.58, 0.86),), ("ceramic",))


def _toilet() -> FurnitureModel:
    bowl = ((0, 0), (0.11, 0), (0.12, 0.15), (0.19, 0.36), (0.21, 0.4), (0, 0.4))
    parts: Tuple[Part, ...] = (
        Lathe(bowl, 0, -0.12, "ceramic"),
        box(-0.12, 0, -0.1, 0.12, 0.38, 0.14, "ceramic"),
        cylinder(0, -0.12, 0.4, 0.43, 0.215, TINT, 18),
        box(-0.22, 0.36, 0.12, 0.22, 0.8, 0.33, "ceramic"),
        cylinder(0, 0.22, 0.8, 0.82, 0.03, "steel", 8),
    )
    return FurnitureModel("toilet", parts, (), ("ceramic", "silver", "sand"))


def _bathtub() -> FurnitureModel:
    parts: Tuple[Part, ...] = (
        box(-0.8, 0, -0.36, 0.8, 0.3, 0.36, TINT),
        box(-0.8, 0.3, -0.36, -0.68, 0.55, 0.36, TINT),
        box(0.6, 0.3, -0.36, 0.8, 0.55, 0.36, TINT),
        box(-0.68, 0.3, -0.36, 0.6, 0.55, -0.28, TINT),
        box(-0.68, 0.3, 0.28, 0.6, 0.55, 0.36, TINT),
        box(-0.68, 0.3, -0.28, 0.6, 0.42, 0.28, "water"),
        Rod((-0.74, 0.55, 0), (-0.74, 0.72, 0), 0.02, "silver"),
        Rod((-0.74, 0.72, 0), (-0.6, 0.7, 0), 0.02, "silver"),
    )
    surfaces = (Surface(-0.5, -0.25, 0.5, 0.25, 0.42),)
    return FurnitureModel("bathtub", parts, surfaces, ("ceramic", "white"))


def _washbasin() -> FurnitureModel:
    parts: Tuple[Part, ...] = (
        box(-0.4, 0.1, -0.22, 0.4, 0.78, 0.24, TINT),
        box(-0.35, 0, -0.18, 0.35, 0.1, 0.24, "black"),
        box(-0.42, 0.78, -0.25, 0.42, 0.86, 0.24, "ceramic"),
        box(-0.38, 0.86, -0.18, 0.02, 0.868, 0.12, "water"),
        Rod((-0.18, 0.86, 0.18), (-0.18, 1.0, 0.18), 0.015, "silver"),
        Rod((-0.18, 1.0, 0.18), (-0.18, 0.98, 0.05), 0.015, "silver"),
        box(-0.35, 1.15, 0.21, 0.35, 1.85, 0.24, "glass"),
    )
    surface = Surface(0.06, -0.23, 0.4, 0.18, 0.86)
    return FurnitureModel("washbasin", parts, (surface,))


def _tv_stand() -> FurnitureModel:
    parts: Tuple[Part, ...] = (
        box(-0.8, 0.06, -0.2, 0.8, 0.45, 0.2, TINT),
        box(-0.75, 0, -0.15, 0.75, 0.06, 0.2, "black"),
        *(box(x, 0.1, -0.22, x + 0.5, 0.42, -0.2, "dark_wood") for x in (-0.77, -0.25, 0.27)),
        box(-0.15, 0.45, 0.02, 0.15, 0.47, 0.18, "black"),
        box(-0.04, 0.47, 0.08, 0.04, 0.56, 0.12, "black"),
        box(-0.52, 0.55, 0.08, 0.52, 1.15, 0.12, "black"),
        box(-0.49, 0.58, 0.075, 0.49, 1.12, 0.08, "dark_steel"),
    )
    left, right = (Surface(a, -0.18, b, 0.18, 0.45) for a, b in ((-0.78, -0.54), (0.54, 0.78)))
    return FurnitureModel("tv_stand", parts, (left, right))


def _floor_lamp() -> FurnitureModel:
    parts: Tuple[Part, ...] = (
        cylinder(0, 0, 0, 0.03, 0.15, "dark_steel"),
        cylinder(0, 0, 0.03, 1.4, 0.018, "dark_steel", 8),
        frustum(0, 0, 1.35, 1.65, 0.2, 0.13, TINT),
    )
    return FurnitureModel("floor_lamp", parts, (), ("shade", "cream", "blush"))


def _coat_rack() -> FurnitureModel:
    parts: Tuple[Part, ...] = (
        cylinder(0, 0, 0, 0.04, 0.17, TINT),
        cylinder(0, 0, 0.04, 1.75, 0.025, TINT, 8),
        *(Rod((0, 1.6, 0), (x, 1.7, z), 0.015, TINT)
          for x, z in ((0.14, 0), (-0.14, 0), (0, 0.14), (0, -0.14))),
        Ball((0.05, 1.25, -0.08), (0.11, 0.36, 0.08), "plum", 8),
    )  # fmt: skip
    return FurnitureModel("coat_rack", parts)


def _rug(w: float, d: float) -> FurnitureModel:
    parts: Tuple[Part, ...] = (
        box(-w / 2, 0, -d / 2, w / 2, 0.012, d / 2, TINT),
        box(-w / 2 + 0.12, 0.012, -d / 2 + 0.12, w / 2 - 0.12, 0.016, d / 2 - 0.12, "linen"),
        box(-w / 2 + 0.2, 0.016, -d / 2 + 0.2, w / 2 - 0.2, 0.02, d / 2 - 0.2, TINT),
    )
    return FurnitureModel("rug", parts, (), FABRICS)


def _window() -> FurnitureModel:
    parts: Tuple[Part, ...] = (
        box(-0.6, 0.9, -0.005, 0.6, 2.05, 0.01, "glass"),
        box(-0.65, 0.85, -0.015, 0.65, 0.9, 0.01, "ceramic"),
        box(-0.65, 2.05, -0.015, 0.65, 2.1, 0.01, "ceramic"),
        box(-0.65, 0.9, -0.015, -0.6, 2.05, 0.01, "ceramic"),
        box(0.6, 0.9, -0.015, 0.65, 2.05, 0.01, "ceramic"),
        box(-0.02, 0.9, -0.012, 0.02, 2.05, 0.005, "ceramic"),
    )
    return FurnitureModel("window", parts, (), ("ceramic",))


def _picture() -> FurnitureModel:
    parts: Tuple[Part, ...] = (
        box(-0.4, 1.3, -0.01, 0.4, 1.85, 0.01, "dark_wood"),
        box(-0.36, 1.34, -0.012, 0.36, 1.81, -0.01, TINT),
        box(-0.36, 1.34, -0.014, 0.36, 1.5, -0.012, "forest"),
        box(0.1, 1.6, -0.014, 0.24, 1.74, -0.012, "shade"),
    )
    return FurnitureModel("picture", parts, (), ("sky", "blush", "mustard", "teal"))


FURNITURE_MODELS: dict[str, FurnitureModel] = {
    "double_bed": _bed(1.6),
    "single_bed": _bed(0.95),
    "nightstand": _chest("nightstand", 0.45, 0.4, 0.5, 2, 1),
    "wardrobe": _chest("wardrobe", 1.2, 0.6, 2.0, 1, 2),
    "dresser": _chest("dresser", 1.0, 0.45, 0.85, 3, 2),
    "sideboard": _chest("dresser", 1.5, 0.45, 0.8, 1, 3),
    "shoe_cabinet": _chest("console", 0.9, 0.3, 0.8, 2, 1),
    "tall_bookshelf": _shelf(0.9, 1.9, 5),
    "low_bookshelf": _shelf(1.1, 1.05, 3),
    "sofa": _sofa(2.1),
    "small_sofa": _sofa(1.6),
    "armchair": _sofa(0.95, "armchair"),
    "coffee_table": _table("coffee_table", 1.0, 0.55, 0.42),
    "dining_table": _table("table", 1.6, 0.9, 0.75),
    "small_table": _table("table", 1.0, 0.8, 0.75),
    "round_table": _round_table(),
    "console": _table("console", 1.0, 0.34, 0.8, 0.02),
    "chair": _chair(),
    "office_chair": _office_chair(),
    "stool": _stool(),
    "desk": _desk(),
    **_counters(),
    "fridge": _fridge(),
    "washing_machine": _washing_machine(),
    "toilet": _toilet(),
    "bathtub": _bathtub(),
    "washbasin": _washbasin(),
    "tv_stand": _tv_stand(),
    "floor_lamp": _floor_lamp(),
    "coat_rack": _coat_rack(),
    "large_rug": _rug(2.4, 1.6),
    "small_rug": _rug(0.9, 0.6),
    "window": _window(),
    "picture": _picture(),
}
FURNITURE_KINDS = tuple(dict.fromkeys(model.kind for model in FURNITURE_MODELS.values()))
# Kinds that a robot drives over, or that hang on a wall: nothing to bump into.
FLAT_KINDS = ("rug", "window", "picture")
