"""From checked source to a function. Only for a confined process, or for baselines of our own."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from types import FunctionType, MappingProxyType, SimpleNamespace
from typing import Any

import numpy as np

from embodied_icrl.reward_search.extract import MAIN
from embodied_icrl.reward_search.facade import TEXT_OF, namespace

FILENAME = "<reward>"


def load_reward(source: str) -> Callable[[Any], Any]:
    """The function `compute_reward` of a source that the static check has passed.

    It sees the functions of `facade` and nothing else. Values at the top level of the source are
    frozen, so that nothing can be kept from one call to the next.

    Raises:
        TypeError: a top-level value is of a kind that can't be frozen.
        Exception: whatever the top level raises.
    """
    code = compile(_Stripped().visit(ast.parse(source)), FILENAME, "exec")
    names = namespace()
    given = set(names)
    exec(code, names)
    for name in names.keys() - given:
        names[name] = _frozen(names[name], name)
    function: Callable[[Any], Any] = names[MAIN]
    return function


class _Stripped(ast.NodeTransformer):
    """Without imports, which the facade stands for, and annotations, which would be evaluated;
    f-strings show numbers and texts only."""

    def visit_Import(self, node: ast.Import) -> ast.Pass:
        return ast.copy_location(ast.Pass(), node)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.Pass:
        return ast.copy_location(ast.Pass(), node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        node.returns = None
        self.generic_visit(node)
        return node

    def visit_FormattedValue(self, node: ast.FormattedValue) -> ast.FormattedValue:
        self.generic_visit(node)
        name = ast.Name(id=TEXT_OF, ctx=ast.Load())
        text = ast.Call(func=name, args=[node.value], keywords=[])
        return ast.fix_missing_locations(
            ast.copy_location(ast.FormattedValue(value=text, conversion=-1), node)
        )

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.annotation = None
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.stmt:
        if node.value is None:
            return ast.copy_location(ast.Pass(), node)
        self.generic_visit(node)
        plain = ast.Assign(targets=[node.target], value=node.value)
        return ast.copy_location(plain, node)


def _frozen(value: Any, name: str) -> Any:
    """A value that can't be changed any more."""
    if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "biuf":
        array = np.asarray(value)
        return np.frombuffer(array.tobytes(), array.dtype).reshape(array.shape)
    if isinstance(value, list | tuple):
        return tuple(_frozen(item, name) for item in value)
    if isinstance(value, Mapping):
        return MappingProxyType({key: _frozen(item, name) for key, item in value.items()})
    if isinstance(value, set | frozenset):
        return frozenset(_frozen(item, name) for item in value)
    if isinstance(value, FunctionType) and value.__closure__ is None:
        return value
    if isinstance(value, bool | int | float | str | range | type(None)):
        return value
    if isinstance(value, type | np.ufunc) or (callable(value) and value in _facade_functions()):
        return value
    raise TypeError(f"{name} is a {type(value).__name__}: it could keep a state between calls")


def _facade_functions() -> list[Any]:
    flat: list[Any] = []
    for group in namespace().values():
        if isinstance(group, SimpleNamespace):
            for value in vars(group).values():
                flat += vars(value).values() if isinstance(value, SimpleNamespace) else [value]
    return flat
