"""What can be seen of an instance: pixels of a reference camera, and from which points at all."""

from __future__ import annotations

from typing import Tuple

import numpy as np

from embodied_icrl.common.errors import require
from embodied_icrl.houses.frames import to_mujoco
from embodied_icrl.houses.mujoco_export import OBJECTS
from embodied_icrl.simulators.base import AgentBody, ReferenceCamera
from embodied_icrl.simulators.poses import pixel_directions
from embodied_icrl.simulators.rays import SEEN_GROUPS
from embodied_icrl.simulators.scene import Scene, surface_of

_FARTHEST = 1e3
# Points on an instance from which sight lines are drawn, and how far outside its surface they are.
_SAMPLES, _OFF = 24, 2e-3
# In sight: at least so many pixels of the reference camera, as estimated from the sample points.
# Success needs 10; the estimate may be wrong by some.
_PIXELS_NEEDED = 20.0
_PIXELS_PER_RADIAN = 128.0

_OBJECTS_ONLY = np.array([group == OBJECTS for group in range(6)], dtype=np.uint8)
# A box's corners as low or high along each axis, and its edges as pairs of corners.
_CORNERS = np.indices((2, 2, 2)).reshape(3, 8).T
_EDGES = np.array([(a, a | bit) for a in range(8) for bit in (1, 2, 4) if not a & bit])
# What is not farther than this before the camera's plane, metres, is beside the camera.
_AT_CAMERA = 1e-4


def cast(
    scene: Scene, origin: np.ndarray, directions: np.ndarray, groups: np.ndarray = SEEN_GROUPS
) -> Tuple[np.ndarray, np.ndarray]:
    """Geoms (int32 `[ray]`, -1: none) and distances (metres) of what rays from one point hit.

    Args:
        scene: the house.
        origin: `[3]`, MuJoCo's frame, as are
        directions: unit vectors `[ray, 3]`.
        groups: of geoms that a ray can hit, uint8 `[6]`.
    """
    mujoco = require("mujoco", "pip install 'mujoco>=3.5,<3.12'")
    count = len(directions)
    geoms, distances = np.full(count, -1, dtype=np.int32), np.full(count, -1.0)
    if count:
        mujoco.mj_multiRay(
            scene.model, scene.data, np.ascontiguousarray(origin),
            np.ascontiguousarray(directions).reshape(-1), groups, True, -1,
            geoms, distances, None, count, _FARTHEST,
        )  # fmt: skip
    return geoms, distances


def visible_pixels(
    scene: Scene, eye: np.ndarray, axes: np.ndarray, camera: ReferenceCamera
) -> np.ndarray:
    """How many pixels show each instance: int64 `[instance]`.

    Only pixels inside the projections of the instances' boxes are looked at; the others can't show
    one.

    Args:
        scene: the house.
        eye: the camera's place, MuJoCo's frame.
        axes: its right, up and ahead, `[3, 3]`.
        camera: size and field of view.
    """
    mask = _candidate_pixels(to_mujoco(scene.boxes) - eye, axes, camera)
    rows, columns = np.nonzero(mask)
    local = pixel_directions(columns, rows, camera.width, camera.height, camera.fov)
    return _count(scene, eye, local @ axes)


def _count(scene: Scene, eye: np.ndarray, directions: np.ndarray) -> np.ndarray:
    """How many rays end at each instance: int64 `[instance]`.

    Most miss all of them, which is found out fast: with nothing else in the way.
    """
    geoms, _ = cast(scene, eye, directions, _OBJECTS_ONLY)
    geoms, _ = cast(scene, eye, directions[geoms >= 0])
    owners = scene.owners[geoms]
    return np.bincount(owners[owners >= 0], minlength=len(scene.boxes)).astype(np.int64)


def shows(
    scene: Scene, eye: np.ndarray, axes: np.ndarray, camera: ReferenceCamera,
    instances: np.ndarray, pixels: int,
) -> bool:  # fmt: skip
    """Whether one of some instances `[n]` has at least so many of the `visible_pixels`.

    Exact, and mostly after a few pixels: it looks at every sixteenth candidate first, then at every
    fourth, and at all of them only where those have not been enough.
    """
    mask = _candidate_pixels(to_mujoco(scene.boxes[instances]) - eye, axes, camera)
    rows, columns = np.nonzero(mask)
    coarse = (rows % 4 == 0) & (columns % 4 == 0)
    medium = (rows % 2 == 0) & (columns % 2 == 0)
    count = np.zeros(len(scene.boxes), dtype=np.int64)
    for part in (coarse, medium & ~coarse, ~medium):
        local = pixel_directions(columns[part], rows[part], camera.width, camera.height, camera.fov)
        count += _count(scene, eye, local @ axes)
        if (count[instances] >= pixels).any():
            return True
    return False


def _candidate_pixels(boxes: np.ndarray, axes: np.ndarray, camera: ReferenceCamera) -> np.ndarray:
    """Which pixels may show one of some boxes `[box, 2, 3]` about the camera: bool `[row, col]`."""
    mask = np.zeros((camera.height, camera.width), dtype=bool)
    if not len(boxes):
        return mask
    corners = np.stack([boxes[:, _CORNERS[:, k], k] for k in range(3)], axis=-1) @ axes.T
    scale = camera.width / 2 / np.tan(np.radians(camera.fov) / 2)
    for box in corners[(corners[..., 2] > _AT_CAMERA).any(axis=1)]:
        points = _before_camera(box)
        column = camera.width / 2 + scale * points[:, 0] / points[:, 2]
        row = camera.height / 2 - scale * points[:, 1] / points[:, 2]
        left, right = np.clip([column.min() - 1, column.max() + 2], 0, camera.width)
        top, bottom = np.clip([row.min() - 1, row.max() + 2], 0, camera.height)
        mask[int(top) : int(bottom), int(left) : int(right)] = True
    return mask


def _before_camera(box: np.ndarray) -> np.ndarray:
    """The corners of a box's part before the camera: `[point, 3]` in the camera's axes.

    Args:
        box: its corners `[8, 3]`, in the order of `_CORNERS`.
    """
    deep = box[:, 2]
    if (deep > _AT_CAMERA).all():
        return box
    begin, end = box[_EDGES[:, 0]], box[_EDGES[:, 1]]
    cut = (begin[:, 2] > _AT_CAMERA) != (end[:, 2] > _AT_CAMERA)
    begin, end = begin[cut], end[cut]
    part = (_AT_CAMERA - begin[:, 2]) / (end[:, 2] - begin[:, 2])
    crossings = begin + part[:, None] * (end - begin)
    crossings[:, 2] = _AT_CAMERA
    return np.concatenate([box[deep > _AT_CAMERA], crossings])


def in_sight(scene: Scene, instance: int, points: np.ndarray, body: AgentBody) -> np.ndarray:
    """From which points `[point, 3]` an agent that faces the instance sees it: bool `[point]`.

    Sight lines are drawn backwards, from sample points on the instance's surface to the cameras, so
    that one bundle of rays serves all points. Each sample stands for a piece of the surface; the
    pieces in sight, as large as they look from the camera, must add up to enough pixels.
    """
    if not len(points):
        return np.zeros(0, dtype=bool)
    samples, normals, area = _samples(scene, instance)
    way = scene.instances.centres[instance] - points
    way[:, 1] = 0.0
    length = np.sqrt((way * way).sum(axis=1, keepdims=True))
    cameras = points + body.camera_ahead * way / np.maximum(length, 1e-9)
    cameras[:, 1] += body.camera_height
    cameras = to_mujoco(cameras)
    pixels = np.zeros(len(points))
    for sample, normal in zip(samples, normals):
        origin = sample + _OFF * normal
        line = cameras - origin
        far = np.sqrt((line * line).sum(axis=1))
        direction = line / far[:, None]
        facing = direction @ normal
        front = np.flatnonzero(facing > 0.02)
        _, distance = cast(scene, origin, direction[front])
        clear = front[(distance < 0) | (distance >= far[front])]
        pixels[clear] += facing[clear] / far[clear] ** 2
    return np.asarray(pixels * (area / len(samples)) * _PIXELS_PER_RADIAN**2 >= _PIXELS_NEEDED)


def _samples(scene: Scene, instance: int) -> Tuple[np.ndarray, np.ndarray, float]:
    """Points on an instance, evenly over its surface, their normals, and its area in m^2."""
    corners = to_mujoco(surface_of(scene.spec, instance))
    cross = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    double = np.sqrt((cross * cross).sum(axis=1))
    total = np.cumsum(double)
    place = (np.arange(_SAMPLES) + 0.5) / _SAMPLES * total[-1]
    chosen = np.minimum(np.searchsorted(total, place), len(total) - 1)
    # A sequence that spreads evenly over the unit square, folded into the triangle.
    u = (0.5 + 0.7548776662466927 * np.arange(1, _SAMPLES + 1)) % 1.0
    v = (0.5 + 0.5698402909980532 * np.arange(1, _SAMPLES + 1)) % 1.0
    fold = u + v > 1
    u, v = np.where(fold, 1 - u, u)[:, None], np.where(fold, 1 - v, v)[:, None]
    a, b, c = corners[chosen, 0], corners[chosen, 1], corners[chosen, 2]
    return a + u * (b - a) + v * (c - a), cross[chosen] / double[chosen, None], float(total[-1] / 2)
