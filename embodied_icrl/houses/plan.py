"""Floor plans: rectangles that fill a rectangle, with doorways that connect them all.

All coordinates are multiples of 0.1 m.
"""

from __future__ import annotations

from typing import Dict, List, Optional, Sequence, Tuple

import numpy as np

from embodied_icrl.houses.materials import FLOORS, WALLS
from embodied_icrl.houses.spec import Bounds, Doorway, Room

# Floor area of a room, and the least length of its shorter side: metres squared, metres.
AREA = {
    "living": 21.0,
    "kitchen": 12.5,
    "bedroom": 13.5,
    "bath": 7.5,
    "dining": 13.0,
    "study": 10.5,
}
NARROWEST = {
    "living": 3.4,
    "kitchen": 2.8,
    "bedroom": 3.0,
    "bath": 2.4,
    "dining": 3.0,
    "study": 2.6,
}
CORRIDOR = 1.8
LONGEST = 2.3  # ratio of a room's sides
_TRIES = 60  # layouts of one sort, before the other sort gets its chance
DOOR_WIDTHS = (0.9, 1.0, 1.1)
WIDE = 1.6
CORNER = 0.25  # between a doorway and the end of the common edge, metres
# In this order rooms come into a house.
ORDER = ("living", "kitchen", "bedroom", "bath", "bedroom", "study", "dining", "bedroom", "bath",
         "study", "bedroom", "living")  # fmt: skip


def floor_plan(
    rng: np.random.Generator, n_rooms: int
) -> Optional[Tuple[Tuple[Room, ...], Tuple[Doorway, ...]]]:
    """A plan with that many rooms, or None where the draw led nowhere (then draw again)."""
    corridor = n_rooms >= 5 and rng.random() < 0.6
    for _ in range(_TRIES):
        kinds = _kinds(rng, n_rooms - 1 if corridor else n_rooms)
        layout = _corridor_layout(rng, kinds) if corridor else _sliced_layout(rng, kinds)
        if layout is None:
            continue
        rooms = _name_rooms(rng, layout)
        doorways = _doorways(rng, rooms)
        if doorways is not None:
            return rooms, doorways
    return None


def _kinds(rng: np.random.Generator, count: int) -> List[str]:
    if count == 1:
        return [("living", "bedroom", "kitchen", "study")[int(rng.integers(4))]]
    kinds = list(ORDER[:count])
    if count in (2, 3) and rng.random() < 0.5:
        kinds[1] = "bedroom"
    return [kinds[i] for i in rng.permutation(count)]


def _round(value: float) -> float:
    return round(float(value), 1)


Layout = List[Tuple[str, Bounds]]


def _sliced_layout(rng: np.random.Generator, kinds: Sequence[str]) -> Optional[Layout]:
    """A rectangle cut again and again, each part as large as its rooms need."""
    area = sum(AREA[kind] for kind in kinds) * float(rng.uniform(0.95, 1.3))
    width = _round(np.sqrt(area * float(rng.uniform(1.0, 2.0))))
    depth = _round(area / width)
    if rng.random() < 0.5:
        width, depth = depth, width
    layout: Layout = []

    def cut(bounds: Bounds, part: Sequence[str]) -> None:
        if len(part) == 1:
            layout.append((part[0], bounds))
            return
        x0, z0, x1, z1 = bounds
        middle = len(part) // 2 if len(part) % 2 == 0 or rng.random() < 0.5 else len(part) // 2 + 1
        first, second = part[:middle], part[middle:]
        share = sum(AREA[k] for k in first) / sum(AREA[k] for k in part)
        if x1 - x0 >= z1 - z0:
            at = _round(x0 + share * (x1 - x0))
            halves = (x0, z0, at, z1), (at, z0, x1, z1)
        else:
            at = _round(z0 + share * (z1 - z0))
            halves = (x0, z0, x1, at), (x0, at, x1, z1)
        cut(halves[0], first)
        cut(halves[1], second)

    cut((0.0, 0.0, width, depth), kinds)
    return layout if all(_fits(kind, bounds) for kind, bounds in layout) else None


def _fits(kind: str, bounds: Bounds) -> bool:
    x0, z0, x1, z1 = bounds
    short, long = sorted((x1 - x0, z1 - z0))
    return short >= NARROWEST[kind] - 1e-6 and long <= LONGEST * short


def _corridor_layout(rng: np.random.Generator, kinds: Sequence[str]) -> Optional[Layout]:
    """Two rows of rooms with a corridor between them."""
    total = sum(AREA[kind] for kind in kinds)
    first: List[str] = []
    for kind in kinds:
        if sum(AREA[k] for k in first) + AREA[kind] / 2 <= total / 2:
            first.append(kind)
    second = list(kinds)
    for kind in first:
        second.remove(kind)
    if not first or not second:
        return None
    depth = float(rng.uniform(3.3, 4.5))
    scale = float(rng.uniform(0.95, 1.15))
    depths = [_round(depth * float(rng.uniform(0.92, 1.08))) for _ in range(2)]
    rows = [_row_widths(row, scale, d) for row, d in zip((first, second), depths)]
    width = _round(max(sum(row) for row in rows))
    layout: Layout = []
    z = 0.0
    for row, widths, row_depth in zip((first, second), rows, depths):
        edges = [
            _round(width * share / sum(widths)) for share in np.cumsum([0.0, *widths]).tolist()
        ]
        far = _round(z + row_depth)
        layout += [(row[i], (edges[i], z, edges[i + 1], far)) for i in range(len(row))]
        z = far
        if row is first:
            layout.append(("corridor", (0.0, z, width, _round(z + CORRIDOR))))
            z = _round(z + CORRIDOR)
    rooms = [item for item in layout if item[0] != "corridor"]
    if not all(_fits(kind, bounds) for kind, bounds in rooms):
        return None
    return _transposed(layout) if rng.random() < 0.5 else layout


def _row_widths(kinds: Sequence[str], scale: float, depth: float) -> List[float]:
    """How wide the rooms of a row would like to be; none narrower than its kind allows."""
    return [max(AREA[kind] * scale / depth, NARROWEST[kind] + 0.1) for kind in kinds]


def _transposed(layout: Layout) -> Layout:
    return [(kind, (z0, x0, z1, x1)) for kind, (x0, z0, x1, z1) in layout]


def _name_rooms(rng: np.random.Generator, layout: Layout) -> Tuple[Room, ...]:
    counts: Dict[str, int] = {}
    rooms = []
    walls = rng.permutation(len(WALLS))
    for i, (kind, bounds) in enumerate(layout):
        number = counts.get(kind, 0)
        counts[kind] = number + 1
        floors = FLOORS[kind]
        floor = floors[int(rng.integers(len(floors)))]
        wall = WALLS[int(walls[i % len(WALLS)])]
        rooms.append(Room(f"{kind}_{number}", kind, bounds, floor, wall))
    return tuple(rooms)


def common_edge(a: Bounds, b: Bounds) -> Optional[Tuple[bool, float, float, float]]:
    """Where two rectangles touch: (along x?, coordinate of the edge, start, end), or None."""
    for along_x, edge in ((True, a[1]), (True, a[3]), (False, a[0]), (False, a[2])):
        other = (b[1], b[3]) if along_x else (b[0], b[2])
        if min(abs(edge - value) for value in other) > 1e-6:
            continue
        start, end = (
            (max(a[0], b[0]), min(a[2], b[2])) if along_x else (max(a[1], b[1]), min(a[3], b[3]))
        )
        apart = (
            (a[1] + a[3]) / 2 - (b[1] + b[3]) / 2
            if along_x
            else (a[0] + a[2]) / 2 - (b[0] + b[2]) / 2
        )
        if end - start > 1e-6 and abs(apart) > 1e-6:
            return along_x, edge, start, end
    return None


def _doorways(rng: np.random.Generator, rooms: Sequence[Room]) -> Optional[Tuple[Doorway, ...]]:
    """Doorways along a random spanning tree and some more; None if rooms stay unconnected."""
    pairs = []
    for i in range(len(rooms)):
        for j in range(i + 1, len(rooms)):
            edge = common_edge(rooms[i].bounds, rooms[j].bounds)
            if edge is not None and edge[3] - edge[2] >= DOOR_WIDTHS[0] + 2 * CORNER + 1e-6:
                cost = float(rng.random()) + _reluctance(rooms[i].kind, rooms[j].kind)
                pairs.append((cost, i, j, edge))
    group = list(range(len(rooms)))
    doors, others = [], []
    for cost, i, j, edge in sorted(pairs):
        if group[i] != group[j]:
            group = [group[i] if g == group[j] else g for g in group]
            doors.append(_doorway(rng, rooms[i], rooms[j], edge))
        else:
            others.append((cost, i, j, edge))
    if len(set(group)) > 1:
        return None
    for cost, i, j, edge in others:
        if cost < 1.0 and rng.random() < 0.35:
            doors.append(_doorway(rng, rooms[i], rooms[j], edge))
    return tuple(doors)


def _reluctance(a: str, b: str) -> float:
    """What a doorway between two kinds of rooms costs: nobody walks through a bath."""
    if "corridor" in (a, b):
        return -1.0
    if {a, b} in ({"living", "kitchen"}, {"living", "dining"}, {"kitchen", "dining"}):
        return -0.5
    if "bath" in (a, b):
        return 1.0 if "bedroom" in (a, b) else 1.5
    return 0.5 if a == b else 0.0


def _doorway(
    rng: np.random.Generator, a: Room, b: Room, edge: Tuple[bool, float, float, float]
) -> Doorway:
    along_x, coordinate, start, end = edge
    length = end - start - 2 * CORNER
    open_plan = {a.kind, b.kind} <= {"living", "kitchen", "dining"} and rng.random() < 0.5
    width = WIDE if open_plan and length >= WIDE else DOOR_WIDTHS[int(rng.integers(3))]
    if width > length:
        width = DOOR_WIDTHS[0]
    slack = length - width
    middle = round(start + CORNER + width / 2 + float(rng.random()) * slack, 2)
    position = (middle, coordinate) if along_x else (coordinate, middle)
    return Doorway((a.name, b.name), position, width)
