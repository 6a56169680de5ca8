"""Pictures from the agents' cameras through MuJoCo's offscreen renderer.

All agents share one OpenGL context. A house is uploaded once, when it is first seen; what is in it
never moves, so that a picture costs a new camera and the drawing, nothing else.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Tuple

import numpy as np

from embodied_icrl.common.errors import require
from embodied_icrl.houses.gl import gl_context
from embodied_icrl.simulators.base import NOTHING, ArraySpec, CameraSensor
from embodied_icrl.simulators.poses import vertical_fov
from embodied_icrl.simulators.scene import Scene

_MAX_GEOMS = 4000
Shot = Tuple[int, int, float]


@dataclass(frozen=True)
class _Upload:
    """A house in graphics memory; `codes` maps a pixel's number to the class it shows."""

    scene: Any
    gpu: Any
    codes: np.ndarray


class Cameras:
    """The camera sensors of all agents.

    Args:
        sensors: the camera sensors by name.
        n_classes: of semantic pictures.
        kept: houses in graphics memory at most.

    Raises:
        MissingDependencyError: there are sensors but no OpenGL library; the message names the
            system package.
    """

    def __init__(self, sensors: Mapping[str, Any], n_classes: int, kept: int) -> None:
        self._sensors = {k: s for k, s in sensors.items() if isinstance(s, CameraSensor)}
        self._n_classes, self._kept = n_classes, kept
        self._context: Any = None
        self._mujoco: Any = None
        self._uploads: OrderedDict[int, Tuple[Scene, _Upload]] = OrderedDict()
        self._shots: Dict[Shot, List[Tuple[str, CameraSensor]]] = {}
        for name, sensor in self._sensors.items():
            shot = (sensor.width, sensor.height, sensor.fov)
            self._shots.setdefault(shot, []).append((name, sensor))
        if self._sensors:
            self._open()

    @property
    def active(self) -> bool:
        return bool(self._sensors)

    def specs(self) -> Dict[str, ArraySpec]:
        """What the sensors give, by key."""
        found = {}
        for name, sensor in self._sensors.items():
            size = (sensor.height, sensor.width)
            if sensor.kind == "rgb":
                found[name] = ArraySpec((*size, 3), "uint8", 0, 255)
            elif sensor.kind == "depth":
                found[name] = ArraySpec((*size, 1), "float32", 0.0, sensor.max_depth)
            else:
                found[name] = ArraySpec(size, "int8", 0, self._n_classes - 1, self._n_classes)
        return found

    def observe(
        self, scenes: List[Scene], eyes: np.ndarray, axes: np.ndarray, out: Dict[str, np.ndarray]
    ) -> None:
        """Write all pictures; eyes `[env, 3]` and axes `[env, 3, 3]` are in MuJoCo's frame."""
        self._context.make_current()
        for env, scene in enumerate(scenes):
            upload = self._upload(scene)
            for shot, sensors in self._shots.items():
                self._aim(scene, upload, eyes[env], axes[env], shot)
                self._shoot(scene, upload, shot, sensors, env, out)

    def picture(
        self, scene: Scene, eye: np.ndarray, axes: np.ndarray, width: int, height: int, fov: float
    ) -> np.ndarray:
        """One RGB picture: uint8 `[height, width, 3]`.

        Raises:
            MissingDependencyError: there is no OpenGL library.
        """
        if self._context is None:
            self._open()
        self._context.make_current()
        upload = self._upload(scene)
        shot = (width, height, fov)
        self._aim(scene, upload, eye, axes, shot)
        return self._colours(upload, shot)

    def close(self) -> None:
        """Free graphics memory and the context."""
        if self._context is None:
            return
        self._context.make_current()
        for _, upload in self._uploads.values():
            upload.gpu.free()
        self._uploads.clear()
        self._context.free()
        self._context = None

    def _open(self) -> None:
        self._mujoco = require("mujoco", "pip install 'mujoco>=3.5,<3.12'")
        # A software renderer starts a thread per core, which gains nothing at these sizes.
        os.environ.setdefault("LP_NUM_THREADS", "1")
        sizes = [(s.width, s.height) for s in self._sensors.values()] or [(64, 64)]
        self._context = gl_context(max(w for w, _ in sizes), max(h for _, h in sizes))

    def _upload(self, scene: Scene) -> _Upload:
        key = id(scene)
        if key in self._uploads:
            self._uploads.move_to_end(key)
            return self._uploads[key][1]
        while len(self._uploads) >= self._kept:
            _, (_, oldest) = self._uploads.popitem(last=False)
            oldest.gpu.free()
        # The scene is kept beside its upload: as long as it lives, nothing else has its id.
        self._uploads[key] = (scene, self._send(scene))
        return self._uploads[key][1]

    def _send(self, scene: Scene) -> _Upload:
        mujoco, model = self._mujoco, scene.model
        visual = model.vis
        visual.quality.offsamples = 0
        visual.quality.numslices, visual.quality.numstacks = 12, 8
        visual.quality.numquads = 1
        visual.global_.offwidth = max([s.width for s in self._sensors.values()] or [64])
        visual.global_.offheight = max([s.height for s in self._sensors.values()] or [64])
        gpu = mujoco.MjrContext(model, int(mujoco.mjtFontScale.mjFONTSCALE_100))
        gpu.readDepthMap = mujoco.mjtDepthMap.mjDEPTH_ZEROFAR
        drawn = mujoco.MjvScene(model, maxgeom=_MAX_GEOMS)
        option = mujoco.MjvOption()
        option.geomgroup[:] = (1, 1, 1, 1, 0, 0)
        mujoco.mjv_updateScene(
            model, scene.data, option, None, mujoco.MjvCamera(),
            int(mujoco.mjtCatBit.mjCAT_ALL), drawn,
        )  # fmt: skip
        drawn.flags[int(mujoco.mjtRndFlag.mjRND_SHADOW)] = 0
        drawn.flags[int(mujoco.mjtRndFlag.mjRND_REFLECTION)] = 0
        codes = np.full(drawn.ngeom + 2, NOTHING, dtype=np.int8)
        for geom in drawn.geoms[: drawn.ngeom]:
            if geom.segid >= 0 and int(geom.objtype) == int(mujoco.mjtObj.mjOBJ_GEOM):
                codes[geom.segid + 1] = scene.classes[geom.objid]
        return _Upload(drawn, gpu, codes)

    def _aim(
        self, scene: Scene, upload: _Upload, eye: np.ndarray, axes: np.ndarray, shot: Shot
    ) -> None:
        mujoco, model = self._mujoco, scene.model
        width, height, fov = shot
        model.vis.global_.fovy = vertical_fov(fov, width, height)
        view = mujoco.MjvCamera()
        view.type = int(mujoco.mjtCamera.mjCAMERA_FREE)
        view.distance = 1.0
        ahead = axes[2]
        view.lookat[:] = eye + ahead
        view.azimuth = np.degrees(np.arctan2(axes[0, 0], -axes[0, 1]))
        view.elevation = np.degrees(np.arcsin(np.clip(ahead[2], -1, 1)))
        mujoco.mjv_updateCamera(model, scene.data, view, upload.scene)
        mujoco.mjv_makeLights(model, scene.data, upload.scene)
        gpu = upload.gpu
        if width > gpu.offWidth or height > gpu.offHeight:
            mujoco.mjr_resizeOffscreen(max(width, gpu.offWidth), max(height, gpu.offHeight), gpu)
        mujoco.mjr_setBuffer(int(mujoco.mjtFramebuffer.mjFB_OFFSCREEN), gpu)

    def _shoot(
        self, scene: Scene, upload: _Upload, shot: Shot, sensors: List[Tuple[str, CameraSensor]],
        env: int, out: Dict[str, np.ndarray],
    ) -> None:  # fmt: skip
        kinds = {sensor.kind for _, sensor in sensors}
        made: Dict[str, np.ndarray] = {}
        if "rgb" in kinds:
            made["rgb"] = self._colours(upload, shot)
        if kinds - {"rgb"}:
            made["semantic"], made["depth"] = self._numbers(scene, upload, shot)
        for name, sensor in sensors:
            if sensor.kind == "depth":
                np.minimum(made["depth"], sensor.max_depth, out=out[name][env, ..., 0])
            else:
                out[name][env] = made[sensor.kind]

    def _colours(self, upload: _Upload, shot: Shot) -> np.ndarray:
        """uint8 RGB `[height, width, 3]`."""
        width, height, _ = shot
        picture = np.empty((height, width, 3), dtype=np.uint8)
        area = self._mujoco.MjrRect(0, 0, width, height)
        self._mujoco.mjr_render(area, upload.scene, upload.gpu)
        self._mujoco.mjr_readPixels(picture, None, area, upload.gpu)
        return picture[::-1]

    def _numbers(self, scene: Scene, upload: _Upload, shot: Shot) -> Tuple[np.ndarray, np.ndarray]:
        """Classes, int8 `[height, width]`, and depths along the camera's axis, metres, float32."""
        mujoco, drawn = self._mujoco, upload.scene
        width, height, _ = shot
        colours = np.empty((height, width, 3), dtype=np.uint8)
        raw = np.empty((height, width), dtype=np.float32)
        area = mujoco.MjrRect(0, 0, width, height)
        flags = [int(mujoco.mjtRndFlag.mjRND_SEGMENT), int(mujoco.mjtRndFlag.mjRND_IDCOLOR)]
        drawn.flags[flags] = 1
        mujoco.mjr_render(area, drawn, upload.gpu)
        mujoco.mjr_readPixels(colours, raw, area, upload.gpu)
        drawn.flags[flags] = 0
        code = colours[..., 0].astype(np.int32) + 256 * colours[..., 1].astype(np.int32)
        extent = float(scene.model.stat.extent)
        near, far = (
            extent * float(x) for x in (scene.model.vis.map.znear, scene.model.vis.map.zfar)
        )
        # The depth buffer holds 1 at the near plane and 0 at the far one.
        depth = near * far / (near + raw.astype(np.float64) * (far - near))
        return upload.codes[code[::-1]], depth[::-1].astype(np.float32)
