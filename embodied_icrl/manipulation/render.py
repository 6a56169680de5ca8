"""Pictures of a task: rendered with OpenGL, or drawn from rays where there is none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from embodied_icrl.common.errors import ConfigError, MissingDependencyError
from embodied_icrl.houses.gl import gl_context
from embodied_icrl.houses.view import flat_shaded

Picture = NDArray[np.uint8]
Point = tuple[float, float, float]
MAX_SIDE = 4096  # pixels


@dataclass(frozen=True)
class View:
    """Where a task is filmed from.

    Attributes:
        look_at: the point in the middle of the picture, metres.
        distance: of the camera from it, metres.
        azimuth: degrees about the vertical; 90 looks along +y.
        elevation: degrees; -90 looks straight down.
        sites: whether the model's sites are shown (marks without substance).
    """

    look_at: Point
    distance: float
    azimuth: float = 90.0
    elevation: float = -30.0
    sites: bool = False

    def axes(self) -> NDArray[np.float64]:
        """Unit vectors to the right, up and ahead, [3, 3]."""
        azimuth, elevation = np.radians((self.azimuth, self.elevation))
        flat = np.array((np.cos(azimuth), np.sin(azimuth), 0.0))
        ahead = flat * np.cos(elevation) + (0.0, 0.0, np.sin(elevation))
        right = np.array((np.sin(azimuth), -np.cos(azimuth), 0.0))
        return np.stack((right, np.cross(right, ahead), ahead))


@dataclass(frozen=True)
class Marker:
    """A ball drawn into a picture, such as a target that the model itself doesn't show.

    Attributes:
        position, radius: metres.
        rgba: each part in [0, 1].
    """

    position: Point
    radius: float
    rgba: tuple[float, float, float, float] = (0.25, 0.65, 0.35, 0.6)


@dataclass(frozen=True)
class Scene:
    """What a picture shows: MuJoCo's model and data, and marks drawn over them."""

    model: Any
    data: Any
    markers: tuple[Marker, ...] = ()


class RenderWindow:
    """Makes pictures of one model's states. Holds an OpenGL context from the first to `close`.

    Pictures change nothing that the simulation reads: marks are drawn into the picture, not put
    into the model. Without OpenGL the pictures are drawn from rays, flat and slowly.

    Attributes:
        note: "" or, where pictures are drawn from rays, one line that says how to get better ones.
    """

    def __init__(self, view: View) -> None:
        self.note = ""
        self._view = view
        self._renderer: _Renderer | None = None

    def picture(self, scene: Scene, width: int, height: int) -> Picture:
        """The scene as uint8 RGB, [height, width, 3].

        Raises:
            ConfigError: the size is not positive or too large.
        """
        if not (0 < width <= MAX_SIDE and 0 < height <= MAX_SIDE):
            raise ConfigError(f"a picture of {width} x {height}: sides are 1 to {MAX_SIDE} pixels")
        if self.note:
            return ray_picture(scene, self._view, width, height)
        held = self._renderer
        if held is None or held.size != (width, height) or held.model is not scene.model:
            self.close()
            try:
                held = self._renderer = _Renderer(scene.model, self._view, width, height)
            except MissingDependencyError as error:
                self.note = f"drawn from rays, {error}"
                return ray_picture(scene, self._view, width, height)
        return held.picture(scene)

    def close(self) -> None:
        """Free the context; the next picture makes a new one."""
        if self._renderer is not None:
            self._renderer.close()
        self._renderer = None


class _Renderer:
    """MuJoCo's renderer with its dear settings off: no shadows, no multisampling, coarse balls."""

    def __init__(self, model: Any, view: View, width: int, height: int) -> None:
        import mujoco

        self._mujoco, self.model, self.size = mujoco, model, (width, height)
        self._gl = gl_context(width, height)
        quality, window = model.vis.quality, model.vis.global_
        quality.offsamples, quality.shadowsize = 0, 0
        quality.numslices, quality.numstacks, quality.numquads = 20, 12, 1
        window.offwidth, window.offheight = width, height
        self._gpu = mujoco.MjrContext(model, int(mujoco.mjtFontScale.mjFONTSCALE_100))
        mujoco.mjr_setBuffer(int(mujoco.mjtFramebuffer.mjFB_OFFSCREEN), self._gpu)
        self._scene = mujoco.MjvScene(model, maxgeom=model.ngeom + model.nsite + 200)
        for flag in ("mjRND_SHADOW", "mjRND_REFLECTION"):
            self._scene.flags[int(getattr(mujoco.mjtRndFlag, flag))] = 0
        self._option = mujoco.MjvOption()
        if not view.sites:
            self._option.sitegroup[:] = 0
        self._camera = mujoco.MjvCamera()
        self._camera.type = int(mujoco.mjtCamera.mjCAMERA_FREE)
        self._camera.lookat[:], self._camera.distance = view.look_at, view.distance
        self._camera.azimuth, self._camera.elevation = view.azimuth, view.elevation
        self._area = mujoco.MjrRect(0, 0, width, height)
        self._buffer = np.empty((height, width, 3), np.uint8)

    def picture(self, scene: Scene) -> Picture:
        mujoco, drawn = self._mujoco, self._scene
        self._gl.make_current()
        everything = int(mujoco.mjtCatBit.mjCAT_ALL)
        mujoco.mjv_updateScene(
            self.model, scene.data, self._option, None, self._camera, everything, drawn
        )
        for marker in scene.markers:
            mujoco.mjv_initGeom(
                drawn.geoms[drawn.ngeom],
                int(mujoco.mjtGeom.mjGEOM_SPHERE),
                np.full(3, marker.radius),
                np.array(marker.position, np.float64),
                np.eye(3).ravel(),
                np.array(marker.rgba, np.float32),
            )
            drawn.ngeom += 1
        mujoco.mjr_render(self._area, drawn, self._gpu)
        mujoco.mjr_readPixels(self._buffer, None, self._area, self._gpu)
        return self._buffer[::-1].copy()

    def close(self) -> None:
        self._gl.make_current()
        self._gpu.free()
        self._gl.free()


def ray_picture(scene: Scene, view: View, width: int, height: int) -> Picture:
    """A flat-shaded picture from one ray per pixel: uint8 RGB [height, width, 3], no OpenGL."""
    import mujoco

    model = scene.model
    rays = _pixel_rays(view, float(model.vis.global_.fovy), width, height)
    origin = np.array(view.look_at) - view.distance * view.axes()[2]
    count = len(rays)
    geom, distance = np.full(count, -1, np.int32), np.zeros(count)
    normal = np.zeros((count, 3))
    groups = np.array([1, 1, 1, 0, 0, 0], np.uint8)  # those that MuJoCo shows by default
    mujoco.mj_multiRay(
        model, scene.data, origin, rays.ravel(), groups, True, -1,
        geom, distance, normal.ravel(), count, 1e3,
    )  # fmt: skip
    distance[geom < 0] = np.inf
    colour: NDArray[np.float64] = flat_shaded(_geom_colours(model), geom, normal, rays)
    for marker in scene.markers:
        in_front = _ball_distance(marker, origin, rays) < distance
        alpha = marker.rgba[3]
        colour[in_front] = (1 - alpha) * colour[in_front] + alpha * np.array(marker.rgba[:3])
    picture: Picture = (np.clip(colour, 0, 1) * 255).round().astype(np.uint8)
    return picture.reshape(height, width, 3)


def _pixel_rays(view: View, fovy: float, width: int, height: int) -> NDArray[np.float64]:
    """Unit vectors through the pixels, row by row: [height * width, 3]."""
    reach = np.tan(np.radians(fovy) / 2)
    across = (np.arange(width) + 0.5 - width / 2) / (height / 2) * reach
    down = (np.arange(height) + 0.5 - height / 2) / (height / 2) * reach
    right, up, ahead = view.axes()
    rays = ahead + across[None, :, None] * right - down[:, None, None] * up
    rays = rays / np.linalg.norm(rays, axis=-1, keepdims=True)
    return np.ascontiguousarray(rays.reshape(-1, 3))


def _geom_colours(model: Any) -> NDArray[np.float64]:
    """Red, green and blue of each geom, [ngeom, 3]: its material's, if it has one."""
    colours = np.array(model.geom_rgba[:, :3], np.float64)
    material = np.asarray(model.geom_matid)
    if model.nmat:
        colours[material >= 0] = model.mat_rgba[material[material >= 0], :3]
    return colours


def _ball_distance(
    marker: Marker, origin: NDArray[np.float64], rays: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Along each ray to a marker's surface, metres; infinite where it misses. [rays]"""
    to_ball = np.array(marker.position) - origin
    along = rays @ to_ball
    inside = marker.radius**2 - (to_ball @ to_ball - along**2)
    near = along - np.sqrt(np.maximum(inside, 0.0))
    return np.where((inside >= 0) & (near > 0), near, np.inf)
