"""The EGL devices of this machine, and which GPU each of them is."""

from __future__ import annotations

import ctypes
import ctypes.util
from dataclasses import dataclass
from typing import Any, List, Optional

from embodied_icrl.common.errors import MissingDependencyError

ADVICE = "install EGL: apt-get install libegl1 libgl1"

# EGL's and its extensions' numbers, from the Khronos registry.
_VENDOR, _EXTENSIONS, _RENDERER = 0x3053, 0x3055, 0x335F
_CUDA_DEVICE, _DRM_FILE = 0x323A, 0x3233
_MOST = 32


@dataclass(frozen=True)
class EglDevice:
    """One device that EGL can draw with.

    Attributes:
        index: its number for EGL.
        cuda: its number for CUDA; None where it is no NVIDIA GPU.
        file: its device file, "" if it has none.
        software: whether it draws on the processor.
        name: of the renderer or the vendor, "" if it doesn't say.
    """

    index: int
    cuda: Optional[int]
    file: str
    software: bool
    name: str


def egl_devices() -> List[EglDevice]:
    """All devices, in EGL's order; none if the library can't list them.

    Raises:
        MissingDependencyError: there is no EGL library.
    """
    name = ctypes.util.find_library("EGL")
    if name is None:
        raise MissingDependencyError(f"there is no libEGL: {ADVICE}")
    egl = ctypes.CDLL(name)
    egl.eglGetProcAddress.restype = ctypes.c_void_p
    query_devices = _function(egl, "eglQueryDevicesEXT", ctypes.c_uint)
    query_string = _function(egl, "eglQueryDeviceStringEXT", ctypes.c_char_p)
    query_number = _function(egl, "eglQueryDeviceAttribEXT", ctypes.c_uint)
    if query_devices is None or query_string is None or query_number is None:
        return []
    found, count = (ctypes.c_void_p * _MOST)(), ctypes.c_int(0)
    if not query_devices(_MOST, found, ctypes.byref(count)):
        return []
    devices = []
    for index in range(count.value):
        handle = ctypes.c_void_p(found[index])
        extensions = _text(query_string, handle, _EXTENSIONS).split()
        number = ctypes.c_ssize_t(0)
        is_cuda = "EGL_NV_device_cuda" in extensions and query_number(
            handle, _CUDA_DEVICE, ctypes.byref(number)
        )
        devices.append(
            EglDevice(
                index=index,
                cuda=int(number.value) if is_cuda else None,
                file=_text(query_string, handle, _DRM_FILE, "EGL_EXT_device_drm" in extensions),
                software="EGL_MESA_device_software" in extensions,
                name=_name(query_string, handle, extensions),
            )
        )
    return devices


def _function(egl: Any, name: str, result: Any) -> Any:
    address = egl.eglGetProcAddress(name.encode())
    return ctypes.CFUNCTYPE(result)(address) if address else None


def _name(query: Any, handle: Any, extensions: List[str]) -> str:
    known = "EGL_EXT_device_query_name" in extensions
    return _text(query, handle, _RENDERER, known) or _text(query, handle, _VENDOR, known)


def _text(query: Any, handle: Any, name: int, known: bool = True) -> str:
    value = query(handle, name) if known else None
    return value.decode(errors="replace") if value else ""
