"""How a task's environment is made and read, as source, without how success is measured."""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap

from embodied_icrl.manipulation.task import Task

MAX_CHARACTERS = 8_000
_SHOWN = ("make_env", "read_state")
_HIDDEN = ("success", "measure", "fitness", "expert_action", "human_reward", "sparse_reward")


def environment_source(task: Task) -> str:
    """The methods that build the simulator and read the fields, with the functions and constants
    of their module that these use; cut to `MAX_CHARACTERS`."""
    methods = [getattr(type(task), name) for name in _SHOWN]
    texts = [textwrap.dedent(inspect.getsource(method)).rstrip() for method in methods]
    helpers: list[str] = []
    for method, text in zip(methods, texts, strict=True):
        module = inspect.getsource(sys.modules[method.__module__])
        helpers += [helper for helper in _used(module, text) if helper not in helpers]
    source = "\n\n".join([*helpers, *texts])
    if len(source) > MAX_CHARACTERS:
        source = source[:MAX_CHARACTERS].rsplit("\n", 1)[0] + "\n# ... the rest is left out"
    return source


def _used(module: str, text: str) -> list[str]:
    """Top-level functions and constants of a module that a text uses, directly or through others,
    in the module's order."""
    definitions: dict[str, str] = {}
    for node in ast.parse(module).body:
        segment = ast.get_source_segment(module, node) or ""
        if isinstance(node, ast.FunctionDef):
            definitions[node.name] = segment
        elif isinstance(node, ast.Assign):
            targets = [target.id for target in node.targets if isinstance(target, ast.Name)]
            definitions.update(dict.fromkeys(targets, segment))
    needed: set[str] = set()
    front = [text]
    while front:
        names = {n.id for n in ast.walk(ast.parse(front.pop())) if isinstance(n, ast.Name)}
        new = (names & definitions.keys()) - needed - set(_HIDDEN)
        needed |= new
        front += [definitions[name] for name in sorted(new)]
    return list(dict.fromkeys(segment for name, segment in definitions.items() if name in needed))
