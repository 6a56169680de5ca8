"""Moving discs among boxes: straight where the way is free, else sliding along what is met."""

from __future__ import annotations

from typing import List, Tuple

import numpy as np

from embodied_icrl.simulators.ground import LEG, Ground, nearest_box, tile_of

# While sliding, this is the longest step between two corrections, metres.
STEP = 0.05
# How deep an agent may be in an obstacle's margin without being pushed out, metres.
TOUCH = 1e-7
_CORRECTIONS = 12
# A step that would have to be cut to less than this part after the corrections is not made.
_PINCHED = 0.9
# The moving disc is this much smaller than the agent, metres: maps of free space are grids, whose
# straight lines between free points cut round corners by up to so much, and the agent must fit.
SLACK = 0.002


class Movers:
    """The grounds under all agents, stacked so that one array operation serves them all."""

    def __init__(self, num_envs: int, radius: float) -> None:
        self.radius = radius
        self._origin = np.zeros((num_envs, 2))
        self._shape = np.ones((num_envs, 2), dtype=np.int64)
        self._near = np.zeros((num_envs, 1, 1), dtype=np.int32)
        self._boxes = np.full((num_envs, 1, 6), 0.0)
        self._boxes[..., :3] = 1e6, 1e6, 1.0

    def load(self, row: int, ground: Ground) -> None:
        """Put agent `row` on a ground."""
        self._origin[row] = ground.x0, ground.z0
        self._shape[row] = ground.shape
        tiles, k = ground.near.shape
        nowhere = len(ground.boxes) - 1
        self._near = _grown(self._near, (tiles, k))
        self._boxes = _grown(self._boxes, (len(ground.boxes), 6))
        self._near[row, :tiles, :k] = ground.near
        self._near[row, :tiles, k:] = nowhere
        self._boxes[row, : len(ground.boxes)] = ground.boxes

    def move(self, points: np.ndarray, direction: np.ndarray, distance: np.ndarray) -> np.ndarray:
        """Where agents get to: float64 `[env, 2 (x, z)]`.

        Args:
            points: where they are, `[env, 2]`.
            direction: unit vectors, `[env, 2]`.
            distance: how far they try to go, metres, `[env]`.
        """
        points = np.array(points)
        left = np.array(distance, dtype=np.float64)
        rows = np.flatnonzero(left > 0)
        while len(rows):
            leg = np.minimum(left[rows], LEG)
            points[rows] = self._leg(rows, points[rows], direction[rows] * leg[:, None])
            left[rows] -= leg
            rows = rows[left[rows] > 0]
        return points

    def _leg(self, rows: np.ndarray, points: np.ndarray, way: np.ndarray) -> np.ndarray:
        tile = tile_of(points, self._origin[rows], self._shape[rows])
        boxes = self._boxes[rows[:, None], self._near[rows, tile]]
        end = points + way
        met = np.flatnonzero(self._meets(points, way, boxes))
        if len(met):
            end[met] = self._slide(points[met], way[met], boxes[met])
        return np.asarray(end)

    def _meets(self, points: np.ndarray, way: np.ndarray, boxes: np.ndarray) -> np.ndarray:
        """Which straight moves touch a box grown by the radius; a few at corners only seem to."""
        dx, dz = points[:, None, 0] - boxes[..., 0], points[:, None, 1] - boxes[..., 1]
        c, s = boxes[..., 2], boxes[..., 3]
        wx, wz = way[:, None, 0], way[:, None, 1]
        enter, leave = np.zeros(dx.shape), np.ones(dx.shape)
        for at, speed, half in (
            (c * dx - s * dz, c * wx - s * wz, boxes[..., 4]),
            (s * dx + c * dz, s * wx + c * wz, boxes[..., 5]),
        ):
            inverse = 1.0 / np.where(np.abs(speed) < 1e-12, 1e-12, speed)
            middle, reach = -at * inverse, (half + self.radius - TOUCH) * np.abs(inverse)
            enter = np.maximum(enter, middle - reach)
            leave = np.minimum(leave, middle + reach)
        return np.asarray(np.any(enter < leave, axis=1))

    def _slide(self, points: np.ndarray, way: np.ndarray, boxes: np.ndarray) -> np.ndarray:
        """Small steps, each pushed back out of what it runs into."""
        longest = np.sqrt((way * way).sum(axis=1)).max()
        steps = int(np.ceil(longest / min(STEP, self.radius / 2) - 1e-9))
        step = way / steps
        length = np.sqrt((step * step).sum(axis=1))
        points, rows = points.copy(), np.arange(len(points))
        for _ in range(steps):
            before = points[rows]
            after, free = self._push_out(before + step[rows], boxes[rows])
            moved = np.sqrt(((after - before) ** 2).sum(axis=1))
            # The way out makes a step hardly longer, except between obstacles that pinch.
            share = np.minimum(length[rows] / np.maximum(moved, 1e-12), 1.0)
            after = before + share[:, None] * (after - before)
            free &= share > _PINCHED
            # Who stays where it was stays there at the next step too.
            free &= moved > 1e-7
            rows = rows[free]
            if not len(rows):
                break
            points[rows] = after[free]
        return points

    def _push_out(self, points: np.ndarray, boxes: np.ndarray) -> Tuple[np.ndarray, np.ndarray]:
        """Points moved to where every box is at least a radius away, and where that was possible.

        Each correction leaves the nearest box. Where that leads back towards the box left before,
        the correction goes along that one instead, which ends in the corner between the two.
        """
        free = np.zeros(len(points), dtype=bool)
        rows, before = np.arange(len(points)), np.zeros(points.shape)
        for _ in range(_CORRECTIONS):
            at = points[rows]
            distance, away = nearest_box(at, boxes[rows])
            inside = distance < self.radius - TOUCH
            free[rows[~inside]] = True
            # In the box itself there is no way out.
            inside &= distance > 1e-9
            if not inside.any():
                break
            rows, distance, at = rows[inside], distance[inside], at[inside]
            normal, last = away[inside] / distance[:, None], before[inside]
            along = np.minimum((normal * last).sum(axis=1), 0.0)
            room = 1.0 - along * along
            out = normal - along[:, None] * last
            depth = (self.radius - distance) / np.maximum(room, 1e-3)
            points[rows] = at + out * depth[:, None]
            before = normal
        return points, free


def _grown(array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """The array, enlarged with zeros where `shape` (without the first axis) asks for more."""
    wanted: List[int] = [max(have, want) for have, want in zip(array.shape[1:], shape)]
    if tuple(wanted) == array.shape[1:]:
        return array
    larger = np.zeros((array.shape[0], *wanted), dtype=array.dtype)
    larger[tuple(slice(0, n) for n in array.shape)] = array
    return larger
