"""Furniture for a room: what its kind asks for, placed where it belongs and where it fits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, List, Optional, Sequence, Tuple

import numpy as np

from embodied_icrl.houses.furniture_models import FLAT_KINDS, FURNITURE_MODELS
from embodied_icrl.houses.room_space import RoomSpace, footprint, intersects, turned
from embodied_icrl.houses.spec import Bounds, Furniture

# Yaws with the back to the wall at z0, x0, z1, x1; fronts then point into the room.
SIDES = (180, 270, 0, 90)
TRIES = 10


@dataclass(frozen=True)
class Companion:
    """An item that comes with another: its place in the other's frame (x, z), and its yaw there."""

    models: Tuple[str, ...]
    x: float
    z: float
    yaw: int = 0
    chance: float = 1.0


@dataclass(frozen=True)
class Want:
    """An item that a kind of room asks for."""

    models: Tuple[str, ...]
    where: str = "wall"  # wall, corner, middle, run (side by side with the last run item), hung
    chance: float = 1.0
    companions: Tuple[Companion, ...] = ()


def _chairs(width: float, depth: float, ends: bool) -> Tuple[Companion, ...]:
    """Chairs around a table, pushed a little under its top."""
    z, x = depth / 2 + 0.02, width / 2 + 0.02
    sides = [Companion(("chair",), 0.0, -z, 180), Companion(("chair",), 0.0, z, 0)]
    if width > 1.3:
        sides = [Companion(("chair",), dx, s * z, 180 if s < 0 else 0)
                 for dx in (-0.4, 0.4) for s in (-1, 1)]  # fmt: skip
    if ends:
        sides += [Companion(("chair",), x, 0.0, 90), Companion(("chair",), -x, 0.0, 270)]
    return tuple(sides)


_DINING = Want(("dining_table",), "middle", 1.0, _chairs(1.6, 0.9, False))
_SMALL_DINING = Want(("small_table",), "middle", 1.0, _chairs(1.0, 0.8, False))
_ROUND = Want(("round_table",), "middle", 1.0, _chairs(1.0, 1.0, True))
_NIGHTSTANDS = (
    Companion(("nightstand",), 1.1, 0.81),
    Companion(("nightstand",), -1.1, 0.81, 0, 0.8),
)
_BED = Want(("double_bed",), "wall", 1.0, _NIGHTSTANDS)
_SINGLE = Want(("single_bed",), "wall", 1.0, (Companion(("nightstand",), 0.78, 0.81),))
_DESK = Want(("desk",), "wall", 1.0, (Companion(("office_chair",), -0.17, -0.5, 180),))
_SOFA = Want(
    ("sofa", "small_sofa"), "wall", 1.0,
    (Companion(("large_rug",), 0.0, -1.1), Companion(("coffee_table",), 0.0, -1.15)),
)  # fmt: skip
_PICTURE = Want(("picture",), "hung", 0.8)
_WINDOW = Want(("window",), "hung", 0.9)
_SHELVES = Want(("tall_bookshelf", "low_bookshelf"))

WANTED = {
    "living": (_WINDOW, _SOFA, Want(("tv_stand",)), Want(("armchair",), "wall"), _SHELVES,
               Want(("floor_lamp",), "corner", 0.8), Want(("sideboard", "console"), "wall", 0.7),
               _PICTURE, _WINDOW, Want(("round_table",), "middle", 0.3, _chairs(1.0, 1.0, False))),
    "kitchen": (_WINDOW, Want(("fridge",), "run"), Want(("counter",), "run"),
                Want(("sink",), "run"), Want(("stove",), "run"), Want(("counter",), "run", 0.7),
                _SMALL_DINING, Want(("stool",), "wall", 0.4), _PICTURE),
    "bedroom": (_WINDOW, _BED, Want(("wardrobe",)), Want(("dresser",), "wall", 0.8),
                Want(("small_rug",), "middle", 0.6), Want(("desk",), "wall", 0.4),
                Want(("armchair",), "wall", 0.3), Want(("floor_lamp",), "corner", 0.4), _PICTURE),
    "bath": (Want(("bathtub",)), Want(("washbasin",)), Want(("toilet",)),
             Want(("washing_machine",), "wall", 0.7), Want(("small_rug",), "middle", 0.7),
             Want(("stool",), "wall", 0.3)),
    "dining": (_WINDOW, _DINING, Want(("sideboard",)), _PICTURE,
               Want(("floor_lamp",), "corner", 0.6), Want(("console",), "wall", 0.5), _PICTURE),
    "study": (_WINDOW, _DESK, _SHELVES, Want(("low_bookshelf", "tall_bookshelf"), "wall", 0.7),
              Want(("armchair",), "wall", 0.6), Want(("small_rug",), "middle", 0.6),
              Want(("floor_lamp",), "corner", 0.5), _PICTURE),
    "corridor": (Want(("shoe_cabinet",)), Want(("console",), "wall", 0.6),
                 Want(("coat_rack",), "corner", 0.8), _PICTURE, _PICTURE),
}  # fmt: skip
_ALTERNATIVES = {_DINING: (_DINING, _ROUND), _SMALL_DINING: (_SMALL_DINING, _ROUND),
                 _BED: (_BED, _BED, _SINGLE)}  # fmt: skip
# If the room has no place for the first, the second may do.
_SECOND_CHOICE = {_BED: _SINGLE, _DINING: _SMALL_DINING}


def furnish(
    rng: np.random.Generator, space: RoomSpace, outer: Sequence[int], density: float
) -> List[Furniture]:
    """Place a room's furniture, most important first; what doesn't fit stays out.

    Args:
        rng: random stream of this room.
        space: the empty room; keeps what is placed.
        outer: sides of the room without a neighbour: 0 at z0, 1 at x0, 2 at z1, 3 at x1.
        density: probability that an item the room asks for comes at all.
    """
    placer = _Placer(rng, space, outer)
    wanted = WANTED[space.room.kind]
    # Walls are decorated last, so that windows don't take the place of wardrobes.
    for want in sorted(wanted, key=lambda want: want.where == "hung"):
        if rng.random() >= want.chance * density:
            continue
        options = _ALTERNATIVES.get(want, (want,))
        chosen = options[int(rng.integers(len(options)))]
        if not placer.place(chosen) and chosen in _SECOND_CHOICE:
            placer.place(_SECOND_CHOICE[chosen])
    return placer.items


class _Placer:
    """Places one wanted item after another."""

    def __init__(self, rng: np.random.Generator, space: RoomSpace, outer: Sequence[int]) -> None:
        self.rng = rng
        self.space = space
        self.items: List[Furniture] = []
        self.hung: List[Bounds] = []
        self.rugs: List[Bounds] = []
        self.outer = outer
        self.run: Optional[Tuple[int, float]] = None  # side and where the run goes on
        self.tints: Dict[Tuple[str, Tuple[str, ...]], str] = {}

    def place(self, want: Want) -> bool:
        model = want.models[int(self.rng.integers(len(want.models)))]
        if FURNITURE_MODELS[model].kind in FLAT_KINDS:
            return self._place_flat(model, want.where)
        if want.where == "run":
            return self._place_run(model)
        for _ in range(TRIES):
            spot = self._spot(model, want.where)
            if spot is not None and self._try(model, *spot, want.companions):
                return True
        return False

    def _spot(self, model: str, where: str) -> Optional[Tuple[float, float, int]]:
        """A random place (x, z, yaw) for an item, or None where it is too large for the room."""
        width, _, depth = FURNITURE_MODELS[model].size
        x0, z0, x1, z1 = self.space.inner
        if where == "middle":
            yaw = int(self.rng.integers(2)) * 90
            w, d = (depth, width) if yaw else (width, depth)
            x = (x0 + x1) / 2 + (x1 - x0 - w) * (float(self.rng.random()) - 0.5) * 0.6
            z = (z0 + z1) / 2 + (z1 - z0 - d) * (float(self.rng.random()) - 0.5) * 0.6
            return round(x, 2), round(z, 2), yaw
        side = int(self.rng.integers(4))
        share = float(self.rng.random())
        share = float(share > 0.5) if where == "corner" or share < 0.25 else share
        return self._at_wall(side, share, width, depth)

    def _at_wall(
        self, side: int, share: float, width: float, depth: float
    ) -> Optional[Tuple[float, float, int]]:
        """The place with the back to a wall, `share` of the way along it."""
        x0, z0, x1, z1 = self.space.inner
        length = x1 - x0 if side % 2 == 0 else z1 - z0
        slack = length - width - 0.04
        if slack < 0:
            return None
        along = 0.02 + width / 2 + share * slack
        back = depth / 2 + 0.01
        x, z = (
            (x0 + along, z0 + back), (x0 + back, z0 + along),
            (x0 + along, z1 - back), (x1 - back, z0 + along),
        )[side]  # fmt: skip
        return round(x, 2), round(z, 2), SIDES[side]

    def _try(
        self, model: str, x: float, z: float, yaw: int, companions: Sequence[Companion] = ()
    ) -> bool:
        """Place an item and those of its companions that fit."""
        width, _, depth = FURNITURE_MODELS[model].size
        rect = footprint(x, z, width, depth, yaw)
        if not self.space.fits(rect) or not self.space.add([rect]):
            return False
        self._add(model, x, z, yaw)
        for companion in companions:
            if self.rng.random() >= companion.chance:
                continue
            dx, dz = turned(companion.x, companion.z, yaw)
            other = companion.models[0]
            cx, cz, cyaw = round(x + dx, 2), round(z + dz, 2), (yaw + companion.yaw) % 360
            w, _, d = FURNITURE_MODELS[other].size
            beside = footprint(cx, cz, w, d, cyaw)
            if FURNITURE_MODELS[other].kind in FLAT_KINDS:
                self._add_rug(other, cx, cz, cyaw, beside)
            elif self.space.fits(beside, host=rect) and self.space.add([beside]):
                self._add(other, cx, cz, cyaw)
        return True

    def _place_run(self, model: str) -> bool:
        """Side by side with the last item of the run, else the start of a run at another wall."""
        width, _, depth = FURNITURE_MODELS[model].size
        x0, z0, x1, z1 = self.space.inner
        sides = [(int(side), 0.0) for side in self.rng.permutation(4)]
        for side, start in [self.run, *sides] if self.run else sides:
            length = x1 - x0 if side % 2 == 0 else z1 - z0
            slack = length - width - 0.04
            while slack > 0 and start <= slack + 1e-9:
                spot = self._at_wall(side, start / slack, width, depth)
                if spot is not None and self._try(model, *spot):
                    self.run = (side, start + width + 0.03)
                    return True
                start += 0.3
        return False

    def _place_flat(self, model: str, where: str) -> bool:
        """Rugs on free floor; windows and pictures on walls, off the doors and each other."""
        width, _, depth = FURNITURE_MODELS[model].size
        x0, z0, x1, z1 = self.space.inner
        for _ in range(TRIES):
            spot = self._spot(model, where)
            if spot is None:
                continue
            x, z, yaw = spot
            if where != "hung":
                rect = footprint(x, z, width, depth, yaw)
                apart = not any(intersects(rect, other) for other in self.space.taken)
                if apart and self._add_rug(model, x, z, yaw, rect):
                    return True
                continue
            side = SIDES.index(yaw)
            if model == "window" and side not in self.outer:
                continue
            x, z = ((x, z0 + 0.011), (x0 + 0.011, z), (x, z1 - 0.011), (x1 - 0.011, z))[side]
            rect = footprint(x, z, width + 0.2, 0.3, yaw)
            lowest = float(FURNITURE_MODELS[model].boxes[:, 0, 1].min())
            standing = (item for item in self.items if item.kind not in FLAT_KINDS)
            tall = [r for r, item in zip(self.space.taken, standing) if _height(item) > lowest]
            if any(intersects(rect, r) for r in [*self.hung, *self.space.doors, *tall]):
                continue
            self.hung.append(rect)
            self._add(model, round(x, 3), round(z, 3), yaw)
            return True
        return False

    def _add_rug(self, model: str, x: float, z: float, yaw: int, rect: Bounds) -> bool:
        """A rug, if it lies within the room and off other rugs; furniture may stand on it."""
        inner = self.space.inner
        within = (
            rect[0] > inner[0] and rect[1] > inner[1] and rect[2] < inner[2] and rect[3] < inner[3]
        )
        if not within or any(intersects(rect, other) for other in self.rugs):
            return False
        self.rugs.append(rect)
        self._add(model, x, z, yaw)
        return True

    def _add(self, model: str, x: float, z: float, yaw: int) -> None:
        kind = FURNITURE_MODELS[model].kind
        tints = FURNITURE_MODELS[model].tints
        # What is made of one material in a room matches; rugs have a colour of their own.
        key = (kind, tints) if kind in FLAT_KINDS else ("", tints)
        if key not in self.tints:
            self.tints[key] = tints[int(self.rng.integers(len(tints)))]
        room = self.space.room.name
        self.items.append(
            Furniture("", kind, model, room, (x, 0.0, z), float(yaw), self.tints[key])
        )


def _height(item: Furniture) -> float:
    return FURNITURE_MODELS[item.model].size[1]
