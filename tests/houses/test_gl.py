from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import pytest

from embodied_icrl.houses import gl
from embodied_icrl.houses.egl import EglDevice

CHOSEN = "MUJOCO_EGL_DEVICE_ID"


@pytest.mark.parametrize(
    ("cuda", "environment", "backend", "chosen"),
    [
        ([2, 0, 1, None], {}, "egl", [None]),
        ([2, 0, 1, None], {"LOCAL_RANK": "0"}, "egl", ["1"]),
        ([2, 0, 1, None], {"LOCAL_RANK": "2"}, "egl", ["0"]),
        ([2, 0, 1, None], {"LOCAL_RANK": "2", CHOSEN: "3"}, "egl", ["3"]),
        ([2, 0, 1, None], {"LOCAL_RANK": "3"}, "egl", [None]),  # more processes than GPUs
        ([None], {"LOCAL_RANK": "0"}, "egl", [None]),
        ([2, 0, 1, None], {"LOCAL_RANK": "0"}, "osmesa", [None]),
    ],
)
def test_every_rank_draws_on_the_gpu_that_it_trains_on(
    cuda: list[int | None],
    environment: dict[str, str],
    backend: str,
    chosen: list[str | None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[str | None] = []

    def context(width: int, height: int) -> Any:
        seen.append(os.environ.get(CHOSEN))
        return SimpleNamespace(make_current=lambda: None)

    devices = [EglDevice(i, number, "", number is None, "") for i, number in enumerate(cuda)]
    monkeypatch.setattr(gl, "egl_devices", lambda: devices)
    monkeypatch.setattr(gl.ctypes.util, "find_library", lambda name: name)
    monkeypatch.setattr(
        gl.importlib, "import_module", lambda name: SimpleNamespace(GLContext=context)
    )
    # Set and removed, so that whatever is chosen here is forgotten afterwards.
    for name in ("LOCAL_RANK", CHOSEN):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    for name, value in {"MUJOCO_GL": backend, **environment}.items():
        monkeypatch.setenv(name, value)
    gl.gl_context(8, 8)
    assert seen == chosen
