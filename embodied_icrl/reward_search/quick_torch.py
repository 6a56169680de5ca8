"""torch without its compiler: a short training would spend a third of its time on importing it.

Optimisers import `torch._dynamo` only to be left alone by it. For child processes that train and
compile nothing; whoever needs more of the compiler than that still gets the real one. Where torch
is loaded already, it stays as it is.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any

_IS_FIRST = "torch" not in sys.modules

import torch  # noqa: E402

__all__ = ["torch"]

_NAME = "torch._dynamo"


class _NoCompiler(ModuleType):
    @staticmethod
    def disable(function: Any = None, *_: Any, **__: Any) -> Any:
        return function if function is not None else (lambda inner: inner)

    @staticmethod
    def graph_break(*_: Any, **__: Any) -> None:
        return None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name != "__path__":  # asked for when a submodule is imported
            raise AttributeError(name)
        if sys.modules.get(_NAME) is self:
            del sys.modules[_NAME]
            del torch._dynamo
        return getattr(importlib.import_module(_NAME), name)


def _replace_compiler() -> None:
    stand_in: Any = _NoCompiler(_NAME)
    sys.modules[_NAME] = stand_in
    torch._dynamo = stand_in  # type: ignore[attr-defined,unused-ignore]
    # stable-baselines3's logger would import TensorBoard, which nobody looks at here.
    sys.modules["torch.utils.tensorboard"] = None  # type: ignore[assignment]


if _IS_FIRST:
    _replace_compiler()
# torch looks up the processor's abilities when it first needs them, which is too late in a confined
# process: it would find none, and compute slowly and with other rounding.
torch.backends.cpu.get_cpu_capability()
