"""The scripts in `benchmarks/` that fill tables, as modules that write to a folder of the test."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


def script_module(
    name: str, folder: Path, monkeypatch: pytest.MonkeyPatch, page: str = "PAGE"
) -> ModuleType:
    """The script, with its results and its page (the name of that global) in `folder`."""
    spec = importlib.util.spec_from_file_location(f"{name}_script", BENCHMARKS / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    file = folder / getattr(module, page).name
    file.write_text(f"before\n{module.BEGIN}\nold\n{module.END}\nafter\n")
    monkeypatch.setattr(module, page, file)
    monkeypatch.setattr(module, "RESULTS", folder / "results")
    return module
