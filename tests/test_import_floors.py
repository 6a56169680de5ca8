"""The package is a house: an import may only go down. This test walks every import there is."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

PACKAGE = "embodied_icrl"
ROOT = Path(__file__).resolve().parents[1]

FLOORS = {
    "common": 0,
    "simulators": 1,
    "houses": 1,
    "envs": 2,
    "manipulation": 2,
    "policy": 3,
    "runs": 3,
    "training": 4,
    "evaluation": 4,
    "reward_search": 4,
    "cli": 5,
}
SIDEWAYS = {
    ("training", "evaluation"),
    ("reward_search", "evaluation"),
    ("simulators", "houses"),
}
# Modules of the package itself, beside the folders: what they may be imported from and import.
TOP_LEVEL = {"__init__": "", "__main__": "cli"}
LAZY_NAMES = {"load_agent": "evaluation"}

BRINGS_TORCH = {"torch", "torchvision", "torchrl", "tensordict", "stable_baselines3", "sb3_contrib"}
BRINGS_TORCH |= {"safetensors.torch", "transformers", "timm", "accelerate"}
OPTIONAL = {"habitat_sim", "habitat", "magnum", "metaworld", "openai", "ray", "wandb"}
NUMPY_ONLY = {"", "common", "simulators", "houses"}
OLD_SYNTAX = {"common", "simulators", "houses"}
OLD_STDLIB = sys.stdlib_module_names - {"tomllib"}


class Import(NamedTuple):
    """One imported module; `at_import_time` is False inside functions and under TYPE_CHECKING."""

    name: str
    line: int
    at_import_time: bool


def imports_of(tree: ast.AST, module: str, is_package: bool) -> Iterator[Import]:
    """Every module that a source file imports, literal `import_module` calls included."""

    def visit(node: ast.AST, at_import_time: bool) -> Iterator[Import]:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            outer = getattr(node, "decorator_list", []) + node.args.defaults
            for child in outer:
                yield from visit(child, at_import_time)
            body = node.body if isinstance(node.body, list) else [node.body]
            for child in body:
                yield from visit(child, False)
            return
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            for child in node.body:
                yield from visit(child, False)
            for child in node.orelse:
                yield from visit(child, at_import_time)
            return
        for name in names_in(node):
            yield Import(name, node.lineno, at_import_time)  # type: ignore[attr-defined]
        for child in ast.iter_child_nodes(node):
            yield from visit(child, at_import_time)

    def names_in(node: ast.AST) -> Iterator[str]:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = absolute(node)
            for alias in node.names:
                yield f"{base}.{alias.name}"
        elif isinstance(node, ast.Call) and node.args:
            function = ast.unparse(node.func)
            first = node.args[0]
            if (
                function.split(".")[-1] in ("import_module", "__import__")
                and isinstance(first, ast.Constant)
                and isinstance(first.value, str)
            ):
                yield first.value

    def absolute(node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        parts = module.split(".")
        parts = parts[: len(parts) - node.level + is_package]
        return ".".join(parts + ([node.module] if node.module else []))

    yield from visit(tree, True)


def folder_of(name: str) -> str | None:
    """The folder of the package that an imported name lies in; "" for the package itself, None
    for a name from elsewhere."""
    parts = name.split(".")
    if parts[0] != PACKAGE:
        return None
    if len(parts) == 1:
        return ""
    return (
        LAZY_NAMES.get(parts[1])
        or TOP_LEVEL.get(parts[1])
        or (parts[1] if parts[1] in FLOORS else "")
    )


def violations(source: str, module: str, is_package: bool = False) -> list[str]:
    """What a source file does against the rules of the house, one line each."""
    parts = module.split(".")
    folder = parts[1] if len(parts) > 1 and parts[1] not in TOP_LEVEL else ""
    if len(parts) > 1 and parts[1] in TOP_LEVEL:
        folder = TOP_LEVEL[parts[1]]
    if folder and folder not in FLOORS:
        return [f"{module}: {folder!r} is on no floor"]
    tree = ast.parse(source)
    found = [
        f"{module}:{item.line}: {problem}"
        for item in imports_of(tree, module, is_package)
        for problem in problems_of(item, folder)
    ]
    if folder in OLD_SYNTAX:
        found += [f"{module}:{line}: {problem}" for line, problem in newer_syntax(source)]
    return found


def problems_of(item: Import, folder: str) -> Iterator[str]:
    target = folder_of(item.name)
    if target is None:
        yield from outside_problems(item, folder)
    elif folder == "":
        if item.at_import_time and target != "":
            yield f"the package itself imports {item.name} at import time"
    elif target not in ("", folder) and (folder, target) not in SIDEWAYS:
        if FLOORS[target] > FLOORS[folder]:
            yield f"import of {item.name} goes up from {folder}"
        elif FLOORS[target] == FLOORS[folder]:
            yield f"import of {item.name} goes sideways from {folder}"


def outside_problems(item: Import, folder: str) -> Iterator[str]:
    top = item.name.split(".")[0]
    floor = FLOORS.get(folder, 0)
    if floor <= 2 and (top in BRINGS_TORCH or ".".join(item.name.split(".")[:2]) in BRINGS_TORCH):
        yield f"import of {item.name} brings torch to floor {floor}"
    if not item.at_import_time:
        return
    if top in OPTIONAL:
        yield f"optional {item.name} is imported at import time"
    elif folder in NUMPY_ONLY and top not in OLD_STDLIB and top != "numpy":
        yield f"{item.name} is imported at import time where only NumPy may be"


def newer_syntax(source: str) -> Iterator[tuple[int, str]]:
    """What Python 3.9 can't parse or can't evaluate."""
    try:
        tree = ast.parse(source, feature_version=(3, 9))
    except SyntaxError as error:
        yield error.lineno or 0, f"not Python 3.9: {error.msg}"
        return
    annotated = [node for node in ast.walk(tree) if isinstance(node, ast.AnnAssign | ast.arg)]
    if annotated and "from __future__ import annotations" not in source:
        yield 1, "not Python 3.9: annotations are evaluated without the __future__ import"
    for node in ast.walk(tree):
        if not isinstance(node, ast.ClassDef):
            continue
        for decorator in node.decorator_list:
            for keyword in getattr(decorator, "keywords", []):
                if keyword.arg in ("slots", "kw_only"):
                    yield node.lineno, f"not Python 3.9: dataclass({keyword.arg}=...)"
        if not any("dataclass" in ast.unparse(decorator) for decorator in node.decorator_list):
            continue
        for field in node.body:
            if isinstance(field, ast.AnnAssign) and any(
                isinstance(part, ast.BitOr) for part in ast.walk(field.annotation)
            ):
                yield field.lineno, "not Python 3.9: `X | Y` in a dataclass field"


def modules() -> dict[str, Path]:
    """Every module of the package by dotted name."""
    found = {}
    for path in sorted((ROOT / PACKAGE).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        if parts[-1] == "__init__" and len(parts) > 2:
            parts = parts[:-1]
        found[".".join(parts)] = path
    return found


def test_every_import_goes_down() -> None:
    found = modules()
    assert len(found) > 8
    problems = [
        problem
        for module, path in found.items()
        for problem in violations(path.read_text(), module, path.name == "__init__.py")
    ]
    assert problems == []


def run_imports(names: list[str], check: str) -> None:
    """Import modules in a fresh interpreter and run `check` there."""
    code = f"import importlib, sys\nfor name in {names!r}: importlib.import_module(name)\n{check}"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


def modules_in(*folders: str) -> list[str]:
    names = [name for name in modules() if name.split(".")[1] in folders]
    return [name.removesuffix(".__init__") for name in names]


def test_the_lower_floors_run_without_torch() -> None:
    lower = [folder for folder, floor in FLOORS.items() if floor <= 2]
    run_imports([PACKAGE, *modules_in(*lower)], "assert 'torch' not in sys.modules, 'torch'")


def test_what_an_older_worker_imports_needs_numpy_alone() -> None:
    check = (
        "names = {name.split('.')[0] for name, module in sys.modules.items()"
        " if 'site-packages' in (getattr(module, '__file__', None) or '')}\n"
        "assert names <= {'numpy', '_distutils_hack'}, names"
    )
    run_imports([PACKAGE, *modules_in("common", "simulators", "houses")], check)


@pytest.mark.parametrize(
    ("module", "source", "expected"),
    [
        ("common.a", "from embodied_icrl.envs.base import X", "goes up from common"),
        ("common.a", "def f():\n    import embodied_icrl.cli.main", "goes up from common"),
        ("common.a", "from embodied_icrl import load_agent", "goes up from common"),
        ("common.a", "from embodied_icrl import envs", "goes up from common"),
        ("common.a", "from .. import envs", "goes up from common"),
        ("common.a", "from ..envs import base", "goes up from common"),
        ("common.a", "import importlib\nimportlib.import_module('embodied_icrl.envs')", "goes up"),
        ("envs.a", "if TYPE_CHECKING:\n    from embodied_icrl.policy.policy import P", "goes up"),
        ("policy.a", "from embodied_icrl.runs.run import Run", "goes sideways from policy"),
        ("runs.a", "from embodied_icrl.policy.policy import Policy", "goes sideways from runs"),
        ("evaluation.a", "import embodied_icrl.training.trainer", "goes sideways"),
        ("houses.a", "from embodied_icrl.simulators import base", "goes sideways from houses"),
        ("envs.a", "from embodied_icrl.manipulation import tasks", "goes sideways from envs"),
        ("training.a", "from embodied_icrl import __main__", "goes up from training"),
        ("envs.a", "import torch", "brings torch to floor 2"),
        ("envs.a", "def f():\n    from torch import nn", "brings torch to floor 2"),
        ("simulators.a", "def f():\n    import stable_baselines3", "brings torch to floor 1"),
        ("common.a", "def f():\n    from safetensors.torch import load_file", "brings torch"),
        ("common.a", "import omegaconf", "only NumPy"),
        ("houses.a", "try:\n    import trimesh\nexcept ImportError:\n    pass", "only NumPy"),
        ("simulators.a", "class A:\n    import mujoco", "only NumPy"),
        ("common.a", "import tomllib", "only NumPy"),
        ("__init__", "from gymnasium import Env", "only NumPy"),
        ("__init__", "from embodied_icrl.common import errors", "at import time"),
        ("cli.a", "import wandb", "optional wandb"),
        ("runs.a", "try:\n    import wandb\nexcept ImportError:\n    wandb = None", "optional"),
        ("cli.a", "if x:\n    pass\nelse:\n    import ray.tune", "optional ray.tune"),
        ("simulators.a", "from habitat_sim import Simulator", "optional habitat_sim"),
        ("common.a", "match x:\n    case 1:\n        pass", "not Python 3.9"),
        ("houses.a", "try:\n    pass\nexcept* ValueError:\n    pass", "not Python 3.9"),
        ("common.a", "x: int = 1", "__future__"),
        (
            "simulators.a",
            "from __future__ import annotations\n@dataclass(frozen=True)\nclass A:\n"
            "    x: int | None = None",
            "`X | Y`",
        ),
        ("common.a", "@dataclass(slots=True)\nclass A:\n    pass", "slots"),
        ("attic.a", "import json", "on no floor"),
    ],
)
def test_offending_sources_are_found(module: str, source: str, expected: str) -> None:
    found = violations(source, f"{PACKAGE}.{module}")
    assert len(found) == 1, found
    assert expected in found[0]


def test_relative_imports_of_a_package_count_from_itself() -> None:
    assert violations("from . import errors", f"{PACKAGE}.common", is_package=True) == []
    assert violations("from .envs import a", f"{PACKAGE}.common", is_package=True) == []
    assert len(violations("from ..envs import a", f"{PACKAGE}.common", is_package=True)) == 1


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("training.a", "from embodied_icrl.evaluation.in_context import evaluate"),
        ("reward_search.a", "from embodied_icrl.evaluation import statistics"),
        ("simulators.a", "from embodied_icrl.houses.spec import House"),
        ("cli.a", "from embodied_icrl.training.trainer import Trainer"),
        ("envs.a", "from embodied_icrl import __version__\nimport gymnasium"),
        ("envs.a", "from .base import X\nfrom . import base"),
        ("runs.a", "import torch\ndef f():\n    import wandb"),
        ("runs.a", "if TYPE_CHECKING:\n    import wandb"),
        ("simulators.a", "import json, numpy as np\ndef f():\n    import mujoco, habitat_sim"),
        ("common.a", "from __future__ import annotations\nx: Optional[int] = None"),
        ("__init__", "def __getattr__(n):\n    from embodied_icrl.evaluation.agent import a"),
        ("__main__", "from embodied_icrl.cli.main import main"),
    ],
)
def test_clean_sources_pass(module: str, source: str) -> None:
    assert violations(source, f"{PACKAGE}.{module}") == []
