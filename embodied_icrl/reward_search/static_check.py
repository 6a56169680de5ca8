"""Layer 1: reward code is read before anything runs it. What is not on a list of allowed things is
refused.

The lists: kinds of statements and expressions, names, attributes (the task's fields and a few
methods of arrays and containers), and functions of NumPy and math. With attributes on a list, no
walk through `__class__`, frames, tracebacks, `str.format` or `ctypes` starts.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from embodied_icrl.common.config import suggest
from embodied_icrl.reward_search.extract import MAIN, MAX_SOURCE
from embodied_icrl.reward_search.facade import (
    BUILTIN_NAMES,
    MATH_NAMES,
    MAX_RANGE,
    NUMPY_NAMES,
    words,
)
from embodied_icrl.reward_search.findings import Finding
from embodied_icrl.reward_search.structure import check_structure

MAX_NODES = 5_000
MAX_DEPTH = 60
MAX_NUMBER = 10**12
MAX_TEXT = 1_000
MAX_FINDINGS = 20

FACADES = {"np": NUMPY_NAMES, "numpy": NUMPY_NAMES, "math": MATH_NAMES}
METHODS = words("""
    T all any append argmax argmin astype clip copy cumsum dot extend flatten get item items keys
    max mean min ndim prod ravel reshape round shape size squeeze std sum tolist transpose
    update values var
""")
HARMLESS_IMPORTS = {"typing", "__future__"}

_ALLOWED: tuple[type[ast.AST], ...] = (
    ast.Module, ast.FunctionDef, ast.arguments, ast.arg, ast.Return, ast.Assign, ast.AugAssign,
    ast.AnnAssign, ast.For, ast.If, ast.Expr, ast.Pass, ast.Break, ast.Continue, ast.BoolOp,
    ast.BinOp, ast.UnaryOp, ast.Lambda, ast.IfExp, ast.Dict, ast.Set, ast.ListComp, ast.SetComp,
    ast.DictComp, ast.GeneratorExp, ast.comprehension, ast.Compare, ast.Call, ast.keyword,
    ast.JoinedStr, ast.FormattedValue, ast.Constant, ast.Attribute, ast.Subscript, ast.Starred,
    ast.Name, ast.List, ast.Tuple, ast.Slice, ast.Load, ast.Store, ast.And, ast.Or, ast.Add,
    ast.Sub, ast.Mult, ast.MatMult, ast.Div, ast.Mod, ast.Pow, ast.FloorDiv, ast.BitAnd, ast.BitOr,
    ast.BitXor, ast.Invert, ast.Not, ast.UAdd, ast.USub, ast.Eq, ast.NotEq, ast.Lt, ast.LtE,
    ast.Gt, ast.GtE, ast.Is, ast.IsNot, ast.In, ast.NotIn, ast.Import, ast.ImportFrom, ast.alias,
)  # fmt: skip

_REASONS: dict[str, tuple[str, str]] = {
    "While": ("loop", "a while loop may never end; use for ... in range(...)"),
    "AsyncFor": ("loop", "write an ordinary for loop"),
    "Try": ("exception", "try hides errors that the check should see"),
    "TryStar": ("exception", "try hides errors that the check should see"),
    "Raise": ("exception", "return a number instead of raising"),
    "Assert": ("exception", "return a number instead of asserting"),
    "Global": ("state", "nothing may be kept between calls"),
    "Nonlocal": ("state", "nothing may be kept between calls"),
    "ClassDef": ("statement", "classes are not part of reward code; use functions"),
    "With": ("statement", "there is nothing to open or close in a reward"),
    "Yield": ("statement", "generators are not part of reward code; return a list"),
    "YieldFrom": ("statement", "generators are not part of reward code; return a list"),
    "Delete": ("statement", "del is not part of reward code"),
    "LShift": ("operator", "bit shifts make numbers without bound"),
    "RShift": ("operator", "bit shifts are not part of reward code"),
}


def check_source(source: str, fields: Sequence[str]) -> list[Finding]:
    """Everything in the source that reward code may not have; empty if it may run in the sandbox.

    Args:
        source: Python source with the function `compute_reward(state)`.
        fields: the names that `state` has.
    """
    if len(source) > MAX_SOURCE:
        return [Finding("size", 0, f"more than {MAX_SOURCE} characters")]
    deep = _deep_line(source)
    if deep:
        return [Finding("size", deep, "brackets or signs nested too deeply")]
    try:
        tree = ast.parse(source)
    except SyntaxError as error:
        return [Finding("syntax", error.lineno or 0, error.msg)]
    except (ValueError, RecursionError, MemoryError) as error:
        return [Finding("syntax", 0, str(error) or "nested too deeply")]
    size = _size_finding(tree)
    if size is not None:
        return [size]
    found = dict.fromkeys((*_nodes(tree, fields), *check_structure(tree)))
    return sorted(found, key=lambda finding: finding.line)[:MAX_FINDINGS]


def _deep_line(source: str) -> int:
    """The first line with nesting that could exhaust the parser's own stack; 0 for none."""
    depth = run = 0
    for line_number, line in enumerate(source.splitlines(), start=1):
        for character in line:
            depth += (character in "([{") - (character in ")]}")
            run = run + 1 if character in "-+~ " else 0
            if depth > MAX_DEPTH or run > 200:
                return line_number
    return 0


def _size_finding(tree: ast.Module) -> Finding | None:
    count, level = 0, [(tree, 0)]
    while level:
        node, depth = level.pop()
        count += 1
        if count > MAX_NODES:
            return Finding("size", 0, f"more than {MAX_NODES} parts of speech")
        if depth > MAX_DEPTH:
            return Finding("size", getattr(node, "lineno", 0), "nested too deeply")
        level += [(child, depth + 1) for child in ast.iter_child_nodes(node)]  # type: ignore[misc]
    return None


def _nodes(tree: ast.Module, fields: Sequence[str]) -> Iterator[Finding]:
    """Findings about single nodes."""
    known = _bound_names(tree) | BUILTIN_NAMES
    parameters = {
        node.args.args[0].arg
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and node.name == MAIN and node.args.args
    }
    facade_roots: set[ast.AST] = set()
    for node in _walk(tree):
        line = getattr(node, "lineno", 0)
        if not isinstance(node, _ALLOWED):
            kind = type(node).__name__
            rule, why = _REASONS.get(kind, ("statement", f"{kind} is not part of reward code"))
            yield Finding(rule, line, why)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from _import(node)
        elif isinstance(node, ast.Attribute):
            yield from _attribute(node, fields, parameters, facade_roots)
        elif isinstance(node, ast.Name) and node not in facade_roots:
            yield from _name(node, known)
        elif isinstance(node, ast.FunctionDef | ast.arg):
            name = node.name if isinstance(node, ast.FunctionDef) else node.arg
            yield from _binding(name, line)
        elif isinstance(node, ast.Constant):
            yield from _constant(node)
        elif isinstance(node, ast.FormattedValue) and node.format_spec is not None:
            yield Finding("text", line, "no format after a colon in an f-string")
        elif isinstance(node, ast.BinOp):
            yield from _operation(node)
        elif isinstance(node, ast.Call):
            yield from _call(node)


def _walk(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes, outer before inner, without annotations: nobody evaluates those."""
    yield node
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "type_comment"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _walk(child)


def _bound_names(tree: ast.Module) -> set[str]:
    bound = set()
    for node in _walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            bound.add(node.id)
        elif isinstance(node, ast.FunctionDef):
            bound.add(node.name)
        elif isinstance(node, ast.arg):
            bound.add(node.arg)
    return bound


def _import(node: ast.Import | ast.ImportFrom) -> Iterator[Finding]:
    if isinstance(node, ast.ImportFrom):
        if node.module not in HARMLESS_IMPORTS:
            advice = "write np.function or math.function" if node.module else "write it out"
            yield Finding("import", node.lineno, f"from {node.module} import: {advice}")
        return
    for alias in node.names:
        name = alias.asname or alias.name
        if alias.name not in ("numpy", "math", "typing") or (
            name not in FACADES and alias.name != "typing"
        ):
            yield Finding("import", node.lineno, "only numpy (as np) and math are there")


def _attribute(
    node: ast.Attribute, fields: Sequence[str], parameters: set[str], facade_roots: set[ast.AST]
) -> Iterator[Finding]:
    line = node.lineno
    if not isinstance(node.ctx, ast.Load):
        yield Finding("attribute", line, f"{node.attr!r} can't be set: there is no state")
    if node in facade_roots:
        return
    path, root = [node.attr], node.value
    chain: list[ast.AST] = [root]
    while isinstance(root, ast.Attribute):
        path.insert(0, root.attr)
        root = root.value
        chain.append(root)
    if isinstance(root, ast.Name) and root.id in FACADES:
        facade_roots.update(chain)
        allowed, name = FACADES[root.id], ".".join(path)
        if name not in allowed:
            near = suggest(name, sorted(allowed)) if len(name) > 2 else ""
            advice = f"; {near}" if near.startswith("did") else ""
            yield Finding("numpy", line, f"{root.id}.{name} is not among the functions{advice}")
    elif node.attr not in METHODS and node.attr not in fields:
        if isinstance(node.value, ast.Name) and node.value.id in parameters:
            message = f"{node.value.id} has no field {node.attr!r}; {suggest(node.attr, fields)}"
        else:
            message = f"attribute {node.attr!r} is not on the list"
        yield Finding("attribute", line, message)


def _name(node: ast.Name, known: set[str]) -> Iterator[Finding]:
    if isinstance(node.ctx, ast.Store):
        yield from _binding(node.id, node.lineno)
    elif node.id in FACADES:
        yield Finding("name", node.lineno, f"{node.id} is only used as {node.id}.function")
    elif node.id not in known:
        yield Finding("name", node.lineno, f"there is no {node.id!r} here")


def _binding(name: str, line: int) -> Iterator[Finding]:
    if name in FACADES:
        yield Finding("name", line, f"{name} can't be given another meaning")
    elif name.startswith("__"):
        yield Finding("name", line, f"{name!r}: no names with two leading underscores")


def _constant(node: ast.Constant) -> Iterator[Finding]:
    value = node.value
    if isinstance(value, bytes | complex):
        yield Finding("constant", node.lineno, f"no {type(value).__name__} in reward code")
    elif isinstance(value, int) and abs(value) > MAX_NUMBER:
        yield Finding("constant", node.lineno, "a whole number above 10**12; write it as a float")
    elif isinstance(value, str) and len(value) > MAX_TEXT:
        yield Finding("constant", node.lineno, f"a text of more than {MAX_TEXT} characters")


def _operation(node: ast.BinOp) -> Iterator[Finding]:
    def is_text(part: ast.expr) -> bool:
        return isinstance(part, ast.JoinedStr) or (
            isinstance(part, ast.Constant) and isinstance(part.value, str)
        )

    if isinstance(node.op, ast.Mod) and is_text(node.left):
        yield Finding("text", node.lineno, "no % formatting; use an f-string")
    if isinstance(node.op, ast.Mult) and (is_text(node.left) or is_text(node.right)):
        yield Finding("text", node.lineno, "no repeated texts")
    if isinstance(node.op, ast.Pow):
        exponent = node.right
        is_large = isinstance(exponent, ast.Constant) and (
            isinstance(exponent.value, int) and exponent.value > 100
        )
        if is_large or any(
            isinstance(part, ast.BinOp) and isinstance(part.op, ast.Pow)
            for part in ast.walk(exponent)
        ):
            yield Finding("operator", node.lineno, "a power this high is a number without bound")


def _call(node: ast.Call) -> Iterator[Finding]:
    for keyword in node.keywords:
        if keyword.arg == "out":
            yield Finding("numpy", node.lineno, "no out=: arrays are not written in place")
    if isinstance(node.func, ast.Name) and node.func.id == "range":
        numbers = [part.value for part in node.args if isinstance(part, ast.Constant)]
        if any(isinstance(number, int) and abs(number) > MAX_RANGE for number in numbers):
            yield Finding("loop", node.lineno, f"a range beyond {MAX_RANGE}")
