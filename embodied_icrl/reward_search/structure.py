"""The part of layer 1 that looks at the shape of reward code: top level, functions, loops."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from embodied_icrl.reward_search.extract import MAIN
from embodied_icrl.reward_search.facade import BUILTIN_NAMES
from embodied_icrl.reward_search.findings import Finding

MAX_NESTED_LOOPS = 3
GROWING = {"append", "extend", "update"}

_Function = ast.FunctionDef | ast.Lambda


def check_structure(tree: ast.Module) -> Iterator[Finding]:
    """Findings about top level, signature, definitions, loops and recursion."""
    for statement in tree.body:
        yield from _top_level(statement)
    yield from _signature(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.Lambda):
            yield from _definition(node)
        if isinstance(node, ast.For):
            yield from _growing_loop(node.iter, node.body)
        elif isinstance(node, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
            for generator in node.generators:
                yield from _growing_loop(generator.iter, [node])
    yield from _nested_loops(tree, 0)
    yield from _recursion(tree)


def _top_level(node: ast.stmt) -> Iterator[Finding]:
    """Only imports, functions, constants and a docstring; nothing that runs code of its own."""
    if isinstance(node, ast.FunctionDef | ast.Import | ast.ImportFrom):
        return
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return
    if not isinstance(node, ast.Assign | ast.AnnAssign):
        yield Finding("module", node.lineno, "outside functions only constants may stand")
        return
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    if any(not isinstance(target, ast.Name | ast.Tuple) for target in targets):
        yield Finding("module", node.lineno, "outside functions only names may be given a value")
    for call in ast.walk(node.value) if node.value is not None else ():
        if isinstance(call, ast.GeneratorExp):
            yield Finding("module", call.lineno, "a generator keeps a state; make it a tuple")
        if isinstance(call, ast.Call) and not _is_harmless(call.func):
            yield Finding("module", call.lineno, "this would run while the code is loaded")


def _is_harmless(function: ast.expr) -> bool:
    """A builtin, or a function of NumPy or math: other attributes can't be called usefully."""
    if isinstance(function, ast.Name):
        return function.id in BUILTIN_NAMES
    return isinstance(function, ast.Attribute)


def _signature(tree: ast.Module) -> Iterator[Finding]:
    mains = [n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == MAIN]
    if len(mains) != 1:
        count = "no" if not mains else str(len(mains))
        line = mains[-1].lineno if mains else 0
        yield Finding("signature", line, f"{count} function {MAIN}(state) at the top level")
        return
    arguments = mains[0].args
    required = len(arguments.posonlyargs) + len(arguments.args) - len(arguments.defaults)
    if required != 1 or arguments.vararg or arguments.kwarg or arguments.kwonlyargs:
        yield Finding("signature", mains[0].lineno, f"{MAIN} takes one argument, the state")


def _definition(node: _Function) -> Iterator[Finding]:
    """Nothing runs and nothing is kept when a function is defined."""
    if isinstance(node, ast.FunctionDef):
        for decorator in node.decorator_list:
            yield Finding("decorator", decorator.lineno, "a decorator runs while code is loaded")
    defaults = [*node.args.defaults, *(d for d in node.args.kw_defaults if d is not None)]
    for default in defaults:
        if not _is_literal(default):
            yield Finding("default", default.lineno, "a default is a number, text or tuple")


def _is_literal(node: ast.expr) -> bool:
    if isinstance(node, ast.Tuple):
        return all(_is_literal(element) for element in node.elts)
    if isinstance(node, ast.UnaryOp):
        return _is_literal(node.operand)
    return isinstance(node, ast.Constant)


def _growing_loop(iterated: ast.expr, body: Sequence[ast.AST]) -> Iterator[Finding]:
    if not isinstance(iterated, ast.Name):
        return
    for statement in body:
        for node in ast.walk(statement):
            if (
                isinstance(node, ast.Attribute)
                and node.attr in GROWING
                and isinstance(node.value, ast.Name)
                and node.value.id == iterated.id
            ):
                message = f"{iterated.id!r} grows while a loop runs over it"
                yield Finding("loop", node.lineno, message)


def _nested_loops(node: ast.AST, depth: int) -> Iterator[Finding]:
    comprehensions = getattr(node, "generators", [])
    depth += isinstance(node, ast.For) + len(comprehensions)
    if depth > MAX_NESTED_LOOPS:
        message = f"loops nested more than {MAX_NESTED_LOOPS} deep"
        yield Finding("loop", getattr(node, "lineno", 0), message)
        return
    for child in ast.iter_child_nodes(node):
        yield from _nested_loops(child, depth)


def _recursion(tree: ast.Module) -> Iterator[Finding]:
    """A function that reaches itself by name is a loop without a bound."""
    functions: dict[str, ast.AST] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            functions[node.name] = node
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Lambda):
            functions.update({t.id: node for t in node.targets if isinstance(t, ast.Name)})
    uses = {
        name: {
            inner.id
            for inner in ast.walk(node)
            if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Load)
        }
        & functions.keys()
        for name, node in functions.items()
    }
    for name, node in functions.items():
        reached: set[str] = set()
        front = set(uses[name])
        while front:
            reached |= front
            front = {used for other in front for used in uses[other]} - reached
        if name in reached:
            message = f"{name} calls itself; use a for loop"
            yield Finding("recursion", getattr(node, "lineno", 0), message)
