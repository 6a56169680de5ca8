"""First-person pictures of a house: rendered with OpenGL, or drawn from rays without it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Optional, Tuple

import numpy as np

from embodied_icrl.common.errors import MissingDependencyError, require
from embodied_icrl.houses.frames import to_mujoco
from embodied_icrl.houses.free_space import free_space
from embodied_icrl.houses.gl import gl_context
from embodied_icrl.houses.mujoco_export import FURNITURE, OBJECTS
from embodied_icrl.houses.spec import CAMERA_HEIGHT, HouseSpec

SKY = (0.62, 0.74, 0.86)
_LIGHT = np.array([-0.35, -0.55, 0.75])


@dataclass(frozen=True)
class Camera:
    """A camera in the frame of the house: metres, degrees; positive pitch looks up."""

    position: Tuple[float, float, float]
    yaw: float
    pitch: float = -15.0

    def directions(self) -> np.ndarray:
        """Unit vectors to the right, up and ahead, in MuJoCo's frame: float64 `[3, 3]`."""
        yaw, pitch = np.radians([self.yaw, self.pitch])
        ahead = np.array(
            [-np.sin(yaw) * np.cos(pitch), np.sin(pitch), -np.cos(yaw) * np.cos(pitch)]
        )
        right = np.array([np.cos(yaw), 0.0, -np.sin(yaw)])
        return to_mujoco(np.stack([right, np.cross(right, ahead), ahead]))


def first_person(model: Any, camera: Camera, width: int, height: int) -> Tuple[np.ndarray, str]:
    """A picture of a compiled house, the best there is.

    Returns:
        uint8 RGB `[height, width, 3]`, and "" or, where it had to be drawn from rays, one line that
        says how to get a rendered one.
    """
    try:
        return rendered(model, camera, width, height), ""
    except MissingDependencyError as error:
        return ray_picture(model, camera, width, height), f"drawn from rays, {error}"


def rendered(model: Any, camera: Camera, width: int, height: int) -> np.ndarray:
    """Render with MuJoCo: uint8 RGB `[height, width, 3]`, at most the model's offscreen size.

    Raises:
        MissingDependencyError: there is no OpenGL library.
    """
    mujoco = require("mujoco", "pip install 'mujoco>=3.5,<3.12'")
    context = gl_context(width, height)
    try:
        scene = mujoco.MjvScene(model, maxgeom=4000)
        gpu = mujoco.MjrContext(model, int(mujoco.mjtFontScale.mjFONTSCALE_100))
        mujoco.mjr_setBuffer(int(mujoco.mjtFramebuffer.mjFB_OFFSCREEN), gpu)
        data = mujoco.MjData(model)
        mujoco.mj_forward(model, data)
        option = mujoco.MjvOption()
        option.geomgroup[:] = 1
        option.geomgroup[4:] = 0
        everything = int(mujoco.mjtCatBit.mjCAT_ALL)
        view = _mjv_camera(mujoco, camera)
        mujoco.mjv_updateScene(model, data, option, None, view, everything, scene)
        picture = np.empty((height, width, 3), dtype=np.uint8)
        area = mujoco.MjrRect(0, 0, width, height)
        mujoco.mjr_render(area, scene, gpu)
        mujoco.mjr_readPixels(picture, None, area, gpu)
        gpu.free()
    finally:
        context.free()
    return picture[::-1].copy()


def _mjv_camera(mujoco: Any, camera: Camera) -> Any:
    view = mujoco.MjvCamera()
    view.type = int(mujoco.mjtCamera.mjCAMERA_FREE)
    view.distance = 1.0
    view.lookat[:] = to_mujoco(np.array(camera.position)) + camera.directions()[2]
    view.azimuth = 90.0 + camera.yaw
    view.elevation = camera.pitch
    return view


def pixel_rays(model: Any, camera: Camera, width: int, height: int) -> np.ndarray:
    """Unit vectors through the pixels, row by row, in MuJoCo's frame: `[height * width, 3]`."""
    reach = np.tan(np.radians(float(model.vis.global_.fovy)) / 2)
    across = (np.arange(width) + 0.5 - width / 2) / (height / 2) * reach
    down = (np.arange(height) + 0.5 - height / 2) / (height / 2) * reach
    right, up, ahead = camera.directions()
    rays = ahead + across[None, :, None] * right - down[:, None, None] * up
    rays = rays / np.linalg.norm(rays, axis=-1, keepdims=True)
    return np.ascontiguousarray(rays.reshape(-1, 3))


def cast(
    model: Any, data: Any, camera: Camera, rays: np.ndarray
) -> Tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What rays from a camera hit: geom (-1: nothing), distance in metres, surface normal."""
    mujoco = require("mujoco", "pip install 'mujoco>=3.5,<3.12'")
    count = len(rays)
    geom = np.full(count, -1, dtype=np.int32)
    distance, normal = np.zeros(count), np.zeros((count, 3))
    groups = np.array([1, 1, 1, 1, 0, 0], dtype=np.uint8)
    origin = to_mujoco(np.array(camera.position, dtype=np.float64))
    mujoco.mj_multiRay(
        model, data, origin, rays.reshape(-1), groups, True, -1,
        geom, distance, normal.reshape(-1), count, 1e3,
    )  # fmt: skip
    return geom, distance, normal


def ray_picture(model: Any, camera: Camera, width: int, height: int) -> np.ndarray:
    """A flat-shaded picture from one ray per pixel: uint8 RGB `[height, width, 3]`, no OpenGL."""
    mujoco = require("mujoco", "pip install 'mujoco>=3.5,<3.12'")
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    rays = pixel_rays(model, camera, width, height)
    geom, _, normal = cast(model, data, camera, rays)
    colour = flat_shaded(np.asarray(model.geom_rgba)[:, :3], geom, normal, rays)
    picture: np.ndarray = (np.clip(colour, 0, 1) * 255).round().astype(np.uint8)
    return picture.reshape(height, width, 3)


def flat_shaded(
    colours: np.ndarray, geom: np.ndarray, normal: np.ndarray, rays: np.ndarray
) -> np.ndarray:
    """Colours of rays that hit geoms, sky where they hit nothing: `[rays, 3]`, about 0 to 1.

    Args:
        colours: of each geom, `[geoms, 3]`.
        geom, normal: what the rays hit, as `cast` gives it.
        rays: unit vectors `[rays, 3]`.
    """
    facing = np.where((normal * rays).sum(axis=1, keepdims=True) > 0, -normal, normal)
    shade = 0.62 + 0.3 * np.clip(facing @ _LIGHT, 0, 1) + 0.12 * np.abs((facing * rays).sum(axis=1))
    return np.where(geom[:, None] >= 0, colours[geom] * shade[:, None], SKY)


def interesting_camera(spec: HouseSpec, model: Any, pitch: float = -15.0) -> Camera:
    """The place and direction, of some the agent can take, with the most to see."""
    mujoco = require("mujoco", "pip install 'mujoco>=3.5,<3.12'")
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    space = free_space(spec)
    points = space.points(space.main_region())
    best: Tuple[float, Optional[Camera]] = (-1.0, None)
    for x, z in points[np.arange(32) * len(points) // 32]:
        for yaw in range(0, 360, 30):
            camera = Camera((float(x), CAMERA_HEIGHT, float(z)), float(yaw), pitch)
            geom, distance, _ = cast(model, data, camera, pixel_rays(model, camera, 24, 18))
            score = _interest(model, geom, distance)
            if score > best[0]:
                best = (score, camera)
    assert best[1] is not None
    return best[1]


def _interest(model: Any, geom: np.ndarray, distance: np.ndarray) -> float:
    """How many things are in sight, objects counting double, each by the room it takes."""
    hit = geom[geom >= 0]
    group = np.asarray(model.geom_group)[hit]
    body = np.asarray(model.geom_bodyid)[hit]
    score = 0.0
    for kind, weight, enough in ((OBJECTS, 2.0, 2), (FURNITURE, 1.0, 8)):
        counts = np.bincount(body[group == kind]) if (group == kind).any() else np.zeros(1)
        score += weight * float(np.minimum(counts, enough).sum()) / enough
    near = float((distance[geom >= 0] < 1.4).mean()) if len(hit) else 1.0
    return score - 8.0 * near
