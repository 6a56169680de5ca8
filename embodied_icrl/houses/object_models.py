"""The target objects: 24 categories, one model each, unlike one another in colour and shape."""

from __future__ import annotations

import math

from embodied_icrl.houses.parts import (
    Ball,
    Lathe,
    Part,
    Rod,
    arc,
    box,
    cylinder,
    frustum,
    square,
)

Parts = tuple[Part, ...]


def _around(count: int, radius: float) -> list[tuple[float, float]]:
    """Points (x, z) on a circle, to the millimetre."""
    angles = [2 * math.pi * i / count for i in range(count)]
    return [(round(radius * math.cos(a), 3), round(radius * math.sin(a), 3)) for a in angles]


def _pineapple() -> Parts:
    leaves = tuple(
        Rod((x, 0.24, z), (3.2 * x, 0.36, 3.2 * z), 0.014, "dark_green", sides=5)
        for x, z in _around(6, 0.022)
    )
    spike = frustum(0, 0, 0.23, 0.40, 0.035, 0.0, "dark_green", sides=6)
    profile = ((0.0, 0.0), (0.06, 0.0), (0.1, 0.06), (0.105, 0.13), (0.085, 0.21), (0.0, 0.25))
    bands = tuple(cylinder(0, 0, y, y + 0.012, 0.108, "brown", 10) for y in (0.06, 0.1, 0.14))
    return (Lathe(profile, 0, 0, "yellow", sides=10), *bands, spike, *leaves)


def _mug() -> Parts:
    body = Lathe(
        ((0, 0), (0.075, 0), (0.085, 0.18), (0.073, 0.18), (0.068, 0.03), (0, 0.03)), 0, 0, "cyan"
    )
    stripe = cylinder(0, 0, 0.07, 0.11, 0.0835, "snow")
    return (body, stripe, *arc((0.08, 0.09, 0), 0.055, -80, 80, 0.012, "cyan"))


def _bowl() -> Parts:
    profile = ((0, 0), (0.06, 0), (0.065, 0.02), (0.13, 0.07), (0.16, 0.13), (0.148, 0.13),
               (0.11, 0.07), (0, 0.035))  # fmt: skip
    fruit = tuple(Ball((x, 0.105, z), (0.045,) * 3, "lime", 8) for x, z in _around(4, 0.065))
    return (Lathe(profile, 0, 0, "orange"), *fruit)


def _bottle() -> Parts:
    profile = ((0, 0), (0.06, 0), (0.06, 0.22), (0.022, 0.3), (0.022, 0.38), (0, 0.38))
    label = cylinder(0, 0, 0.07, 0.17, 0.062, "snow")
    return (Lathe(profile, 0, 0, "dark_green"), label, cylinder(0, 0, 0.36, 0.4, 0.026, "red"))


def _teapot() -> Parts:
    profile = ((0, 0), (0.07, 0), (0.12, 0.06), (0.12, 0.11), (0.06, 0.17), (0, 0.17))
    spout = (Rod((-0.1, 0.06, 0), (-0.19, 0.16, 0), 0.02, "silver"),)
    knob = (Ball((0, 0.195, 0), (0.025, 0.025, 0.025), "black", 8),)
    handle = arc((0.11, 0.095, 0), 0.06, -75, 75, 0.013, "black")
    return (Lathe(profile, 0, 0, "silver"), *spout, *knob, *handle)


def _cake() -> Parts:
    cherries = tuple(Ball((x, 0.185, z), (0.02,) * 3, "red", 8) for x, z in _around(7, 0.09))
    return (
        cylinder(0, 0, 0, 0.015, 0.18, "snow"),
        cylinder(0, 0, 0.015, 0.08, 0.14, "chocolate"),
        cylinder(0, 0, 0.08, 0.1, 0.142, "snow"),
        cylinder(0, 0, 0.1, 0.17, 0.14, "pink"),
        *cherries,
    )


def _books() -> Parts:
    rows = (("red", 0.0, 0.06), ("snow", 0.06, 0.1), ("blue", 0.1, 0.15), ("yellow", 0.15, 0.2))
    shift = (0.0, 0.012, -0.01, 0.008)
    covers = []
    for (colour, y0, y1), dx in zip(rows, shift):
        covers.append(box(-0.14 + dx, y0, -0.1, 0.14 + dx, y1, 0.1, colour))
        covers.append(box(-0.125 + dx, y0 + 0.01, -0.105, 0.125 + dx, y1 - 0.01, -0.1, "linen"))
    return tuple(covers)


def _laptop() -> Parts:
    return (
        box(-0.2, 0, -0.15, 0.2, 0.02, 0.12, "dark_steel"),
        box(-0.17, 0.02, -0.06, 0.17, 0.026, 0.08, "black"),
        box(-0.2, 0.02, 0.12, 0.2, 0.29, 0.14, "dark_steel"),
        box(-0.18, 0.04, 0.115, 0.18, 0.27, 0.12, "screen"),
    )


def _lamp() -> Parts:
    shade = Lathe(
        ((0.0, 0.4), (0.125, 0.25), (0.14, 0.25), (0.07, 0.42), (0.0, 0.42)), 0, 0, "yellow"
    )
    return (cylinder(0, 0, 0, 0.025, 0.09, "black"), cylinder(0, 0, 0.02, 0.4, 0.013, "black", 8),
            Ball((0, 0.3, 0), (0.045, 0.045, 0.045), "snow", 8), shade)  # fmt: skip


def _vase() -> Parts:
    profile = ((0, 0), (0.05, 0), (0.09, 0.09), (0.075, 0.17), (0.04, 0.22), (0.05, 0.25),
               (0.0, 0.24))  # fmt: skip
    flowers: list[Part] = [Lathe(profile, 0, 0, "blue")]
    for i, (x, z) in enumerate([*_around(5, 0.085), (0.0, 0.0)]):
        top = 0.4 + 0.04 * (i % 2)
        flowers.append(Rod((x / 4, 0.22, z / 4), (x, top, z), 0.006, "green", sides=5))
        flowers.append(Ball((x, top, z), (0.045, 0.04, 0.045), "magenta", 8))
    return tuple(flowers)


def _plant() -> Parts:
    leaves: list[Part] = [frustum(0, 0, 0, 0.2, 0.1, 0.15, "terracotta_pot")]
    leaves.append(cylinder(0, 0, 0.19, 0.215, 0.16, "terracotta_pot"))
    leaves.append(Rod((0, 0.2, 0), (0, 0.45, 0), 0.02, "brown"))
    for i, (x, z) in enumerate(_around(6, 0.11)):
        leaves.append(Ball((x, 0.4 + 0.09 * (i % 2), z), (0.1, 0.09, 0.1), "green", 8))
    leaves.append(Ball((0, 0.57, 0), (0.12, 0.11, 0.12), "green", 8))
    return tuple(leaves)


def _cushion() -> Parts:
    profile = ((0, 0), (0.2, 0.02), (0.28, 0.085), (0.2, 0.15), (0, 0.17))
    button = Ball((0, 0.168, 0), (0.025, 0.012, 0.025), "yellow", 8)
    return (Lathe(profile, 0, 0, "magenta", sides=4, turn=45.0), button)


def _teddy() -> Parts:
    parts: list[Part] = [Ball((0, 0.13, 0), (0.11, 0.13, 0.1), "brown")]
    parts.append(Ball((0, 0.13, -0.055), (0.075, 0.09, 0.06), "tan"))
    parts.append(Ball((0, 0.31, 0), (0.095, 0.09, 0.09), "brown"))
    parts.append(Ball((0, 0.285, -0.08), (0.042, 0.035, 0.035), "tan", 8))
    parts.append(Ball((0, 0.3, -0.115), (0.014, 0.012, 0.01), "black", 6))
    for side in (-1, 1):
        parts.append(Ball((0.08 * side, 0.39, 0), (0.038, 0.038, 0.02), "brown", 8))
        parts.append(Ball((0.033 * side, 0.335, -0.083), (0.012, 0.013, 0.01), "black", 6))
        parts.append(Ball((0.13 * side, 0.19, -0.03), (0.045, 0.08, 0.045), "brown", 8))
        parts.append(Ball((0.085 * side, 0.05, -0.12), (0.05, 0.05, 0.09), "brown", 8))
    return tuple(parts)


def _ball() -> Parts:
    """A beach ball: three belts."""
    r, y = 0.15, 0.15
    cap = [(r * math.sin(a), y - r * math.cos(a)) for a in [math.pi * i / 12 for i in range(13)]]
    ring = tuple((round(abs(p), 4), round(q, 4)) for p, q in cap)

    def belt(first: int, last: int, colour: str) -> Lathe:
        part = ring[first : last + 1]
        return Lathe(((0.0, part[0][1]), *part, (0.0, part[-1][1])), 0, 0, colour)

    belts = ((0, 3, "blue"), (3, 5, "snow"), (5, 7, "red"), (7, 9, "snow"), (9, 12, "blue"))
    return tuple(belt(*row) for row in belts)


def _shoes() -> Parts:
    parts: list[Part] = []
    for x in (-0.075, 0.075):
        parts.append(box(x - 0.05, 0, -0.15, x + 0.05, 0.03, 0.14, "snow"))
        parts.append(box(x - 0.047, 0.03, -0.13, x + 0.047, 0.085, 0.13, "lime"))
        parts.append(box(x - 0.045, 0.085, -0.01, x + 0.045, 0.15, 0.125, "lime"))
        parts.append(box(x - 0.03, 0.085, -0.1, x + 0.03, 0.1, -0.01, "black"))
    return tuple(parts)


def _backpack() -> Parts:
    return (
        box(-0.17, 0, -0.08, 0.17, 0.36, 0.1, "purple"),
        Ball((0, 0.36, 0.01), (0.17, 0.1, 0.09), "purple"),
        box(-0.13, 0.04, -0.14, 0.13, 0.2, -0.08, "orange"),
        box(-0.1, 0.26, -0.09, 0.1, 0.28, -0.08, "snow"),
        *arc((0, 0.45, 0.03), 0.05, 0, 180, 0.012, "black"),
    )


def _basket() -> Parts:
    laundry = tuple(Ball((x, 0.3, z), (0.1, 0.07, 0.1), "snow", 8) for x, z in _around(3, 0.07))
    return (
        square(0, 0, 0, 0.3, 0.16, 0.2, "tan"),
        square(0, 0, 0.09, 0.11, 0.18, 0.182, "brown"),
        square(0, 0, 0.19, 0.21, 0.193, 0.195, "brown"),
        *laundry,
    )


def _guitar() -> Parts:
    return (
        Rod((-0.14, 0.01, -0.08), (0, 0.35, 0.06), 0.012, "black"),
        Rod((0.14, 0.01, -0.08), (0, 0.35, 0.06), 0.012, "black"),
        Rod((0, 0.01, 0.16), (0, 0.35, 0.06), 0.012, "black"),
        Ball((0, 0.3, 0), (0.2, 0.18, 0.05), "orange", 14),
        Ball((0, 0.5, 0), (0.15, 0.14, 0.045), "orange", 14),
        Rod((0, 0.42, -0.052), (0, 0.42, -0.04), 0.055, "black", sides=12),
        box(-0.025, 0.5, -0.055, 0.025, 1.0, -0.02, "chocolate"),
        box(-0.045, 0.98, -0.05, 0.045, 1.12, -0.02, "chocolate"),
    )


def _truck() -> Parts:
    wheels = tuple(
        Rod((x, 0.05, z), (x + 0.04, 0.05, z), 0.05, "black", sides=12)
        for x in (-0.12, 0.08)
        for z in (-0.12, 0.02, 0.13)
    )
    return (
        box(-0.09, 0.05, -0.19, 0.09, 0.09, 0.19, "black"),
        box(-0.1, 0.09, -0.19, 0.1, 0.24, -0.05, "red"),
        box(-0.085, 0.16, -0.195, 0.085, 0.22, -0.19, "screen"),
        box(-0.11, 0.09, -0.03, 0.11, 0.21, 0.2, "yellow"),
        *wheels,
    )


def _globe() -> Parts:
    land = [(0.1, 0.36, -0.08), (-0.08, 0.26, -0.11), (-0.1, 0.34, 0.07), (0.08, 0.22, 0.09),
            (0.02, 0.41, 0.03)]  # fmt: skip
    spots = tuple(Ball(p, (0.06, 0.055, 0.06), "lime", 8) for p in land)
    stand = (cylinder(0, 0, 0, 0.03, 0.1, "chocolate"), cylinder(0, 0, 0.03, 0.16, 0.02, "tan", 8))
    return (*stand, Ball((0, 0.3, 0), (0.15, 0.15, 0.15), "blue"), *spots)


def _watering_can() -> Parts:
    return (
        frustum(0.03, 0, 0, 0.22, 0.12, 0.105, "green"),
        Rod((-0.07, 0.07, 0), (-0.22, 0.26, 0), 0.018, "green"),
        Rod((-0.215, 0.255, 0), (-0.25, 0.29, 0), 0.04, "yellow"),
        *arc((0.1, 0.17, 0), 0.1, -60, 150, 0.014, "yellow"),
    )


def _suitcase() -> Parts:
    ribs = tuple(box(x, 0.06, -0.135, x + 0.03, 0.62, -0.13, "chocolate") for x in (-0.15, 0.12))
    return (
        box(-0.22, 0.05, -0.13, 0.22, 0.63, 0.13, "red"),
        *ribs,
        *(box(x, 0, z, x + 0.05, 0.05, z + 0.05, "black") for x in (-0.2, 0.15)
          for z in (-0.1, 0.05)),
        box(-0.1, 0.63, 0.04, -0.08, 0.8, 0.06, "silver"),
        box(0.08, 0.63, 0.04, 0.1, 0.8, 0.06, "silver"),
        box(-0.1, 0.8, 0.03, 0.1, 0.83, 0.07, "black"),
    )  # fmt: skip


def _duck() -> Parts:
    return (
        Ball((0, 0.08, 0.01), (0.1, 0.08, 0.13), "yellow"),
        Ball((0, 0.2, -0.06), (0.07, 0.07, 0.07), "yellow"),
        Ball((0, 0.19, -0.14), (0.035, 0.014, 0.035), "orange", 8),
        Rod((0, 0.11, 0.1), (0, 0.17, 0.16), 0.025, "yellow"),
        *(Ball((0.032 * s, 0.225, -0.115), (0.012, 0.014, 0.012), "black", 6) for s in (-1, 1)),
    )


def _gift() -> Parts:
    return (
        box(-0.14, 0, -0.14, 0.14, 0.22, 0.14, "purple"),
        box(-0.025, 0, -0.145, 0.025, 0.228, 0.145, "snow"),
        box(-0.145, 0, -0.025, 0.145, 0.226, 0.025, "snow"),
        Ball((-0.055, 0.255, 0), (0.055, 0.03, 0.03), "snow", 8),
        Ball((0.055, 0.255, 0), (0.055, 0.03, 0.03), "snow", 8),
    )


OBJECT_MODELS: dict[str, Parts] = {
    "pineapple": _pineapple(),
    "mug": _mug(),
    "bowl": _bowl(),
    "bottle": _bottle(),
    "teapot": _teapot(),
    "cake": _cake(),
    "books": _books(),
    "laptop": _laptop(),
    "lamp": _lamp(),
    "vase": _vase(),
    "plant": _plant(),
    "cushion": _cushion(),
    "teddy": _teddy(),
    "ball": _ball(),
    "shoes": _shoes(),
    "backpack": _backpack(),
    "basket": _basket(),
    "guitar": _guitar(),
    "truck": _truck(),
    "globe": _globe(),
    "watering_can": _watering_can(),
    "suitcase": _suitcase(),
    "duck": _duck(),
    "gift": _gift(),
}
