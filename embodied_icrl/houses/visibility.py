"""From where an object can be seen: sight lines from the agent's camera, past boxes."""

from __future__ import annotations

import numpy as np

from embodied_icrl.houses.free_space import FreeSpace
from embodied_icrl.houses.geometry import Boxes, blocked_rays
from embodied_icrl.houses.spec import CAMERA_AHEAD, CAMERA_HEIGHT

# Success asks for the camera within 2 m of the object's middle; the camera is 0.25 m ahead.
FARTHEST = 1.9
NEAREST = 0.45
# How many places must have the object in sight, and how many are tried.
VIEWS_NEEDED, VIEWS_TRIED = 3, 36
# Share of the sample points on the object that must be in sight.
SHARE = 0.5


def sample_points(position: np.ndarray, size: np.ndarray) -> np.ndarray:
    """Points in an object's box that stand for it: float64 `[6, 3]`.

    Args:
        position: middle of its underside.
        size: width, height and depth of its box.
    """
    offsets = np.array(
        [
            [0, 0.5, 0],
            [0, 0.85, 0],
            [0.35, 0.5, 0],
            [-0.35, 0.5, 0],
            [0, 0.5, 0.35],
            [0, 0.5, -0.35],
        ]
    )
    return np.asarray(position + offsets * size)


def viewpoints(
    space: FreeSpace, region: np.ndarray, position: np.ndarray, count: int = VIEWS_TRIED
) -> np.ndarray:
    """Free points around an object, spread evenly over those in reach: float64 `[point, 2]`."""
    x, z = float(position[0]), float(position[2])
    rows, columns = space.inside((x - FARTHEST, z - FARTHEST, x + FARTHEST, z + FARTHEST))
    near = np.zeros_like(region)
    near[rows, columns] = region[rows, columns]
    points = space.points(near)
    squared = (points[:, 0] - x) ** 2 + (points[:, 1] - z) ** 2
    points = points[(squared <= FARTHEST**2) & (squared >= NEAREST**2)]
    if len(points) <= count:
        return points
    return np.asarray(points[np.arange(count) * len(points) // count])


def views_of(
    space: FreeSpace, region: np.ndarray, position: np.ndarray, size: np.ndarray, around: Boxes,
    count: int = VIEWS_TRIED,
) -> np.ndarray:  # fmt: skip
    """The viewpoints from which at least half of an object is in sight: float64 `[view, 2 (x, z)]`.

    Args:
        space: the map; `region` says which of its cells the agent gets to.
        region: bool, the shape of the map.
        position: middle of the object's underside.
        size: width, height, depth of the object's box.
        around: everything else in the house, the object's receptacle included.
        count: viewpoints to try.
    """
    places = viewpoints(space, region, position, count)
    if not len(places):
        return places
    targets = sample_points(position, size)
    reach = FARTHEST + CAMERA_AHEAD
    near = np.all(np.abs(around.centre - position)[:, ::2] < around.reach[:, ::2] + reach, axis=1)
    way = position[::2] - places
    way = way / np.sqrt((way * way).sum(axis=1, keepdims=True))
    eyes = np.empty((len(places), 3))
    eyes[:, ::2] = places + CAMERA_AHEAD * way
    eyes[:, 1] = CAMERA_HEIGHT
    start = np.repeat(eyes, len(targets), axis=0)
    end = np.tile(targets, (len(places), 1))
    seen = ~blocked_rays(start, end, around.select(near))
    share = seen.reshape(len(places), len(targets)).mean(axis=1)
    return np.asarray(places[share >= SHARE])
