"""The files that a task is made of: a search whose task has changed would mix numbers."""

from __future__ import annotations

import ast
import hashlib
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import embodied_icrl
from embodied_icrl.common.errors import RunError
from embodied_icrl.common.paths import assets_dir
from embodied_icrl.manipulation.task import Task

PACKAGE = Path(embodied_icrl.__file__).resolve().parent
MODELS = (".xml", ".mjcf", ".urdf")
DEPTH = 3  # of the folders below a task's own in which its models are looked for
INSTALLED = ("site-packages", "dist-packages")


def code_files(task: Task) -> dict[str, Path]:
    """What can be edited of a task, by a name that stays when folders move.

    For the package's tasks the modules of the class and its bases, with the models in
    `assets/manipulation` that they name; the rest of the package is its version. For a task of
    one's own the module, what it imports from beside it, and all models in its folder and below.

    Modules that are imported by a computed name are not found.
    """
    found: dict[str, Path] = {}
    for kind in type(task).__mro__:
        if not issubclass(kind, Task) or kind is Task:
            continue
        file = getattr(sys.modules.get(kind.__module__), "__file__", None)
        if file is None:
            continue
        path = Path(file).resolve()
        own = path.is_relative_to(PACKAGE)
        root = PACKAGE.parent if own else import_root(kind.__module__, path)
        paths = _ours(path) if own else _users(kind.__module__, root, path)
        for each in paths:
            base = root if each.is_relative_to(root) else assets_dir().parent
            name = each.relative_to(base).as_posix()
            # The same name below another root: then the whole path is one.
            found[name if found.get(name, each) == each else str(each)] = each
    return found


def digests(task: Task) -> dict[str, str]:
    """SHA-256 of each of its `code_files`, by name.

    Raises:
        RunError: one can't be read.
    """
    try:
        return {
            name: hashlib.sha256(path.read_bytes()).hexdigest()
            for name, path in sorted(code_files(task).items())
        }
    except OSError as error:
        raise RunError(f"{error.filename}: {error.strerror}; it belongs to the task") from error


def changed_file(task: Task, before: Mapping[str, str], now: Mapping[str, str]) -> str | None:
    """The first file whose `digests` differ before and now, and what became of it, in words.

    Files that have come to the task are no change: one that was there would have to use them.
    """
    for name, digest in before.items():
        if now.get(name) != digest:
            what = "changed" if name in now else "is no longer part of the task"
            return f"{code_files(task).get(name, name)} {what}"
    return None


def import_root(module: str, file: Path) -> Path:
    """The directory that a module of this dotted name is imported from."""
    return file.parents[module.count(".") + (file.name == "__init__.py")]


def _ours(module: Path) -> Iterator[Path]:
    yield module
    source = module.read_text(encoding="utf-8")
    for path in (assets_dir() / "manipulation").glob("*.xml"):
        if path.name in source:
            yield path


def _users(module: str, root: Path, file: Path) -> Iterator[Path]:
    yield from _imported(module, root, file)
    for folder in {root, file.parent}:
        if folder.name not in INSTALLED:
            yield from _models(folder)


def _models(folder: Path) -> Iterator[Path]:
    for at, folders, files in os.walk(folder):
        here = Path(at)
        deep = len(here.relative_to(folder).parts) >= DEPTH
        folders[:] = [] if deep else [name for name in folders if not name.startswith(".")]
        for name in files:
            path = here / name
            if path.suffix.lower() in MODELS and path.is_file():
                yield path


def _imported(module: str, root: Path, file: Path) -> Iterator[Path]:
    """The module's file, and those below `root` that it imports, or that these import."""
    waiting, seen = [(module, file)], set()
    while waiting:
        name, path = waiting.pop()
        if path in seen:
            continue
        seen.add(path)
        yield path
        for other in _imports(name, path):
            top = other.partition(".")[0]
            beside = root.name not in INSTALLED or top == module.partition(".")[0]
            found = _module_file(root, other)
            if beside and found is not None and not found.is_relative_to(PACKAGE):
                waiting.append((other, found))


def _imports(module: str, file: Path) -> Iterator[str]:
    """Dotted names of all modules that a file may import, anywhere in it, packages first."""
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError):
        return  # nothing can import it either
    parts = module.split(".")
    package = parts if file.name == "__init__.py" else parts[:-1]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) + 1 - node.level] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            names = [f"{base}.{alias.name}".lstrip(".") for alias in node.names]
        else:
            continue
        for name in names:
            steps = name.split(".")
            yield from (".".join(steps[: end + 1]) for end in range(len(steps)))


def _module_file(root: Path, name: str) -> Path | None:
    path = root.joinpath(*name.split("."))
    for file in (path / "__init__.py", path.with_name(f"{path.name}.py")):
        if file.is_file():
            return file
    return None
