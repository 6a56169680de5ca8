"""A room while it is being filled: what is taken, and whether one can still walk through it."""

from __future__ import annotations

from typing import List, Optional, Sequence, Tuple

import numpy as np

from embodied_icrl.houses.free_space import bits_of, empty_map, flood
from embodied_icrl.houses.geometry import door_along_x
from embodied_icrl.houses.spec import AGENT_RADIUS, Bounds, Doorway, Room

CELL = 0.1
DOOR_DEPTH = 0.9  # kept clear in front of a doorway, metres
GAP = 0.02
# An item may cost at most this share of the floor that one can still walk to.
LOST = 0.12


def intersects(a: Bounds, b: Bounds, gap: float = 0.0) -> bool:
    """Whether two rectangles come nearer than `gap`."""
    return a[0] < b[2] + gap and b[0] < a[2] + gap and a[1] < b[3] + gap and b[1] < a[3] + gap


class RoomSpace:
    """The floor of a room: rectangles in use, and the cells where an agent's centre can be."""

    def __init__(self, room: Room, doorways: Sequence[Doorway], wall_thickness: float) -> None:
        t = wall_thickness
        x0, z0, x1, z1 = room.bounds
        self.room = room
        self.inner: Bounds = (x0 + t, z0 + t, x1 - t, z1 - t)
        self.taken: List[Bounds] = []
        self.doors = [_door_zone(room, door) for door in doorways if room.name in door.rooms]
        reach = t + AGENT_RADIUS
        self._space = empty_map(room.bounds, CELL)
        self._free = np.zeros_like(self._space.free)
        inside = self._space.inside((x0 + reach, z0 + reach, x1 - reach, z1 - reach))
        self._free[inside] = True
        self._doors = 0
        for zone in self.doors:
            cell = np.zeros_like(self._free)
            cell[self._space.index((zone[0] + zone[2]) / 2, (zone[1] + zone[3]) / 2)] = True
            self._doors |= bits_of(cell)

    def fits(self, rect: Bounds, gap: float = GAP, host: Optional[Bounds] = None) -> bool:
        """Whether a rectangle lies in the room and apart from doors and everything but `host`."""
        low, high = self.inner[:2], self.inner[2:]
        if rect[0] < low[0] or rect[1] < low[1] or rect[2] > high[0] or rect[3] > high[1]:
            return False
        if any(intersects(rect, zone) for zone in self.doors):
            return False
        return not any(intersects(rect, other, gap) for other in self.taken if other is not host)

    def add(self, rects: Sequence[Bounds]) -> bool:
        """Take rectangles together, unless one could then no longer walk through the room."""
        free = self._free.copy()
        for x0, z0, x1, z1 in rects:
            r = AGENT_RADIUS + 0.01
            free[self._space.inside((x0 - r, z0 - r, x1 + r, z1 + r))] = False
        region = self._region(free)
        size = _count(region)
        if region & self._doors != self._doors or size < (1 - LOST) * _count(bits_of(free)):
            return False
        if size < 6:
            return False
        self._free = free
        self.taken += rects
        return True

    def _region(self, free: np.ndarray) -> int:
        """The cells one can walk to from a doorway, or the largest region in a room without."""
        bits = bits_of(free)
        width = free.shape[1]
        if self._doors:
            return flood(bits, self._doors & -self._doors, width)
        best = 0
        while _count(bits) > _count(best):
            region = flood(bits, bits & -bits, width)
            bits &= ~region
            best = max(best, region, key=_count)
        return best


def _count(bits: int) -> int:
    return bin(bits).count("1")


def _door_zone(room: Room, door: Doorway) -> Bounds:
    """The floor in front of a doorway that stays clear."""
    x, z = door.position
    half = door.width / 2 + 0.05
    x0, z0, x1, z1 = room.bounds
    if door_along_x(door, room):
        inward = (z0, z0 + DOOR_DEPTH) if abs(z - z0) < abs(z - z1) else (z1 - DOOR_DEPTH, z1)
        return (x - half, inward[0], x + half, inward[1])
    inward = (x0, x0 + DOOR_DEPTH) if abs(x - x0) < abs(x - x1) else (x1 - DOOR_DEPTH, x1)
    return (inward[0], z - half, inward[1], z + half)


def turned(dx: float, dz: float, yaw: int) -> Tuple[float, float]:
    """A vector (x, z) turned by a multiple of 90 degrees."""
    for _ in range(yaw // 90 % 4):
        dx, dz = dz, -dx
    return dx, dz


def footprint(x: float, z: float, width: float, depth: float, yaw: int) -> Bounds:
    """The rectangle of an item of that size at (x, z), turned by a multiple of 90 degrees."""
    if yaw % 180:
        width, depth = depth, width
    return (x - width / 2, z - depth / 2, x + width / 2, z + depth / 2)
