"""Arrays in a file in memory that two interpreters map, each by itself."""

from __future__ import annotations

import mmap
import os
import tempfile
from pathlib import Path
from typing import Dict, Mapping, Tuple

import numpy as np

Layout = Mapping[str, Tuple[str, Tuple[int, ...]]]
"""dtype and shape of each array by name."""

_ALIGNMENT = 64


def layout_size(layout: Layout) -> int:
    """Bytes that the arrays of a layout take, at least one."""
    return max(1, sum(_room(dtype, shape) for dtype, shape in layout.values()))


def create_shared(layout: Layout) -> Tuple[int, Dict[str, np.ndarray]]:
    """A new piece of shared memory, without a name, all zeros.

    Returns:
        its file descriptor, which the caller closes, and the arrays.

    Raises:
        OSError: there is no room for it.
    """
    folder = "/dev/shm" if Path("/dev/shm").is_dir() else None
    descriptor, name = tempfile.mkstemp(prefix="embodied-icrl-", dir=folder)
    os.unlink(name)
    os.posix_fallocate(descriptor, 0, layout_size(layout))  # full memory shows here, not as SIGBUS
    return descriptor, map_shared(descriptor, layout)


def map_shared(descriptor: int, layout: Layout) -> Dict[str, np.ndarray]:
    """The arrays in a piece of shared memory; they keep it mapped."""
    memory = mmap.mmap(descriptor, layout_size(layout))
    arrays, start = {}, 0
    for name, (dtype, shape) in layout.items():
        count = int(np.prod(shape))
        arrays[name] = np.frombuffer(memory, np.dtype(dtype), count, start).reshape(shape)
        start += _room(dtype, shape)
    return arrays


def _room(dtype: str, shape: Tuple[int, ...]) -> int:
    size = int(np.dtype(dtype).itemsize * np.prod(shape))
    return -(-size // _ALIGNMENT) * _ALIGNMENT
