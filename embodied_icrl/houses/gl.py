"""An offscreen OpenGL context: EGL, else OSMesa, else an error that says what to install."""

from __future__ import annotations

import ctypes.util
import importlib
import os
from typing import Any, List

from embodied_icrl.common.errors import MissingDependencyError
from embodied_icrl.houses.egl import egl_devices

ADVICE = "install a software renderer: apt-get install libegl1 libgl1 (or libosmesa6)"
_EGL_DEVICE = "MUJOCO_EGL_DEVICE_ID"
_LIBRARIES = {"egl": ("EGL", "GL"), "osmesa": ("OSMesa",)}


def gl_context(width: int, height: int) -> Any:
    """A current OpenGL context for MuJoCo; call its `free()` when done.

    The backend is that of the environment variable MUJOCO_GL (egl or osmesa) if it is set, else
    the first that works. One process can use one backend only. Of several training processes on
    one machine each draws on the GPU that it trains on, unless MUJOCO_EGL_DEVICE_ID is set.

    Raises:
        MissingDependencyError: neither works; the message names the system packages.
    """
    reasons: List[str] = []
    for backend in _backends():
        missing = [name for name in _LIBRARIES[backend] if ctypes.util.find_library(name) is None]
        if missing:
            reasons.append(f"{backend}: no lib{missing[0]}")
            continue
        if backend == "egl":
            _choose_egl_device()
        try:
            context = importlib.import_module(f"mujoco.{backend}").GLContext(width, height)
            context.make_current()
        except (ImportError, RuntimeError, AttributeError, OSError) as error:
            reasons.append(f"{backend}: {error}")
            continue
        return context
    raise MissingDependencyError(f"no OpenGL without a display ({'; '.join(reasons)}): {ADVICE}")


def _choose_egl_device() -> None:
    """Draw on this rank's GPU: left to itself, MuJoCo draws on EGL's first device in every rank.

    Worker processes have the rank's environment, and so its GPU.
    """
    rank = os.environ.get("LOCAL_RANK")
    if rank is None or _EGL_DEVICE in os.environ:
        return
    for device in egl_devices():
        if device.cuda == int(rank):
            os.environ[_EGL_DEVICE] = str(device.index)


def _backends() -> List[str]:
    asked = os.environ.get("MUJOCO_GL", "").lower()
    if asked in _LIBRARIES:
        return [asked]
    if asked in ("disable", "disabled", "off", "false", "0"):
        raise MissingDependencyError(
            "OpenGL is switched off by MUJOCO_GL: unset it, or set it to egl"
        )
    platform = os.environ.get("PYOPENGL_PLATFORM", "").lower()
    return [platform] if platform in _LIBRARIES else list(_LIBRARIES)
