"""Slow and exact answers for tests: distances to boxes, and shortest paths around them."""

from __future__ import annotations

import numpy as np

from embodied_icrl.houses.frames import cosine_sine
from embodied_icrl.houses.free_space import obstacles
from embodied_icrl.houses.spec import HouseSpec

ARC = np.radians(20.0)


def outlines(spec: HouseSpec, height: float = 1.5) -> np.ndarray:
    """The corners of all obstacles in the plan, going round: `[box, 4, 2 (x, z)]`."""
    boxes = obstacles(spec, height)
    c, s = (part[:, None] for part in cosine_sine(boxes.yaw))
    sign = np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]])
    x, z = sign[:, 0] * boxes.half[:, :1], sign[:, 1] * boxes.half[:, 2:]
    turned = np.stack([c * x + s * z, c * z - s * x], axis=-1)
    corners = turned + boxes.centre[:, None, ::2]
    # Boxes one above the other: the larger hides the smaller.
    inside = np.ones((len(corners), len(corners)), dtype=bool)
    for k in range(4):
        edge = corners[:, (k + 1) % 4] - corners[:, k]
        offset = corners[:, None] - corners[None, :, None, k]
        beside = edge[None, :, None, 0] * offset[..., 1] - edge[None, :, None, 1] * offset[..., 0]
        inside &= (beside >= -1e-9).all(axis=2)
    inside &= ~(inside & inside.T & (np.arange(len(corners)) >= np.arange(len(corners))[:, None]))
    return corners[~inside.any(axis=1)]


def clearance(points: np.ndarray, corners: np.ndarray) -> np.ndarray:
    """Distance of points `[n, 2]` to the nearest of some rectangles `[box, 4, 2]`, 0 inside."""
    i, j = (index.ravel() for index in np.indices((len(points), len(corners))))
    distance = _line_distance(points[i], points[i], corners[j])
    return distance.reshape(len(points), len(corners)).min(axis=1)


def free_lines(begin: np.ndarray, end: np.ndarray, corners: np.ndarray, r: float) -> np.ndarray:
    """Which segments stay at least `r` away from all rectangles: bool `[n]`."""
    free = np.ones(len(begin), dtype=bool)
    low, high = np.minimum(begin, end) - r, np.maximum(begin, end) + r
    for box in corners:
        near = free & np.all((low <= box.max(axis=0)) & (high >= box.min(axis=0)), axis=1)
        near = np.flatnonzero(near)
        shape = np.broadcast_to(box, (len(near), 4, 2))
        free[near] = _line_distance(begin[near], end[near], shape) >= r
    return free


def _line_distance(begin: np.ndarray, end: np.ndarray, corners: np.ndarray) -> np.ndarray:
    """Distances of segments `[n, 2]` to rectangles `[n, 4, 2]`, one to one: `[n]`."""
    best = np.full(len(begin), np.inf)
    inside = np.ones(len(begin), dtype=bool)
    for k in range(4):
        a, b = corners[:, k], corners[:, (k + 1) % 4]
        for distance in (
            _to_segment(begin, a, b), _to_segment(end, a, b), _to_segment(a, begin, end),
        ):  # fmt: skip
            best = np.minimum(best, distance)
        best[_cross(begin, end, a, b)] = 0.0
        edge, offset = b - a, begin - a
        inside &= edge[:, 0] * offset[:, 1] - edge[:, 1] * offset[:, 0] >= 0
    best[inside] = 0.0
    return best


def _to_segment(point: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    way = b - a
    length = np.maximum((way * way).sum(axis=-1), 1e-18)
    t = np.clip(((point - a) * way).sum(axis=-1) / length, 0, 1)
    return np.sqrt(((point - a - t[..., None] * way) ** 2).sum(axis=-1))


def _cross(a: np.ndarray, b: np.ndarray, c: np.ndarray, d: np.ndarray) -> np.ndarray:
    def side(p: np.ndarray, q: np.ndarray, r: np.ndarray) -> np.ndarray:
        u, v = q - p, r - p
        return u[..., 0] * v[..., 1] - u[..., 1] * v[..., 0]

    return (side(a, b, c) * side(a, b, d) < 0) & (side(c, d, a) * side(c, d, b) < 0)


class ShortestPaths:
    """Shortest paths of a disc among rectangles, by a visibility graph.

    Its nodes are the corners of the rectangles grown by the radius, the round ends as polygons that
    lie just outside; so a path may be longer than the shortest by 1.5% of what goes round corners.
    """

    def __init__(self, spec: HouseSpec, radius: float) -> None:
        self.corners, self.radius = outlines(spec), radius - 1e-6
        angle = np.arange(0, 2 * np.pi - 1e-9, ARC)
        ring = radius / np.cos(ARC / 2) * np.stack([np.cos(angle), np.sin(angle)], axis=1)
        nodes = (self.corners.reshape(-1, 1, 2) + ring).reshape(-1, 2)
        nodes = np.unique(nodes.round(9), axis=0)
        self.nodes = nodes[clearance(nodes, self.corners) >= self.radius]
        self.between = self._lengths(self.nodes, self.nodes)

    def _lengths(self, begin: np.ndarray, end: np.ndarray) -> np.ndarray:
        """Lengths of the free straight lines, inf where there is none: `[begin, end]`."""
        i, j = (index.ravel() for index in np.indices((len(begin), len(end))))
        length = np.sqrt(((begin[i] - end[j]) ** 2).sum(axis=1))
        length[~free_lines(begin[i], end[j], self.corners, self.radius)] = np.inf
        return length.reshape(len(begin), len(end))

    def distances(self, points: np.ndarray, goal: np.ndarray) -> np.ndarray:
        """From points `[n, 2]` to the nearest of `goal` `[m, 2]`: `[n]`."""
        left = self._lengths(self.nodes, goal).min(axis=1)
        done = np.zeros(len(left), dtype=bool)
        for _ in range(len(left)):
            nearest = np.where(done, np.inf, left).argmin()
            done[nearest] = True
            left = np.minimum(left, left[nearest] + self.between[nearest])
        direct = self._lengths(points, goal).min(axis=1)
        around = (self._lengths(points, self.nodes) + left).min(axis=1)
        return np.minimum(direct, around)
