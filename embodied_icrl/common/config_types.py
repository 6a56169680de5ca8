"""What the config builder needs to know about types: hints, names for messages, `_target_`."""

from __future__ import annotations

import dataclasses
import difflib
import importlib
import types
import typing
from typing import Any, Iterable, Literal, Union

from embodied_icrl.common.errors import ConfigError

TARGET = "_target_"

_UNION_ORIGINS = (Union, getattr(types, "UnionType", Union))


def union_members(hint: Any) -> tuple[Any, ...]:
    """The members of a Union (Optional included), or the hint itself as the only one."""
    return typing.get_args(hint) if typing.get_origin(hint) in _UNION_ORIGINS else (hint,)


def strip_optional(hint: Any) -> Any:
    """The hint without its `None`."""
    members = tuple(member for member in union_members(hint) if member is not type(None))
    return Union[members] if members else type(None)


def is_config_class(hint: Any) -> bool:
    """Whether the hint is a dataclass type."""
    return isinstance(hint, type) and dataclasses.is_dataclass(hint)


def config_fields(cls: type) -> list[tuple[dataclasses.Field[Any], Any]]:
    """The settable fields of a config dataclass with their resolved type hints."""
    hints = typing.get_type_hints(cls)
    fields = dataclasses.fields(cls)
    return [(field, hints[field.name]) for field in fields if field.init]


def type_text(hint: Any) -> str:
    """A type as users should read it: `int`, `float or null`, `'none' or 'kv'`, `[int, int]`."""
    members = union_members(hint)
    if len(members) > 1:
        ordered = sorted(members, key=lambda member: member is type(None))
        return " or ".join(type_text(member) for member in ordered)
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is type(None):
        return "null"
    if origin is Literal:
        return " or ".join(repr(value) for value in arguments)
    if origin is tuple and not (len(arguments) == 2 and arguments[1] is Ellipsis):
        return "[" + ", ".join(type_text(argument) for argument in arguments) + "]"
    if origin in (tuple, list):
        return f"list of {type_text(arguments[0])}"
    if isinstance(origin, type) and issubclass(origin, typing.Mapping):
        return f"mapping to {type_text(arguments[1])}"
    if hint is Any:
        return "any value"
    return getattr(hint, "__name__", str(hint))


def suggest(name: str, names: Iterable[str]) -> str:
    """The end of an error message about an unknown name: the nearest one, or all there are."""
    known = list(names)
    nearest = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    if nearest:
        return f"did you mean {nearest[0]!r}?"
    return "there is " + (", ".join(repr(other) for other in known) or "none")


def target_name(cls: type) -> str:
    """The dotted name that `_target_` gives for a class."""
    return f"{cls.__module__}.{cls.__qualname__}"


def resolve_target(name: Any, path: str) -> type:
    """The config dataclass that a `_target_` names.

    Raises:
        ConfigError: no such module or name, or it isn't a dataclass.
    """
    module_name, _, class_name = name.rpartition(".") if isinstance(name, str) else ("", "", "")
    if not module_name:
        raise ConfigError(
            f"{path}: expected the dotted name of a config dataclass (module.Class), got {name!r}"
        )
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # a user's module may raise anything while it is imported
        raise ConfigError(
            f"{path}: cannot import {module_name!r} ({type(error).__name__}: {error})"
        ) from error
    found = getattr(module, class_name, None)
    if found is None:
        classes = [key for key, value in vars(module).items() if is_config_class(value)]
        raise ConfigError(
            f"{path}: no {class_name!r} in {module_name!r}; {suggest(class_name, classes)}"
        )
    if not is_config_class(found):
        raise ConfigError(f"{path}: {name!r} is not a dataclass")
    return found  # type: ignore[no-any-return]


def accepts(hint: Any, cls: type) -> bool:
    """Whether a field of this type may hold a config of class `cls`."""
    for member in union_members(hint):
        if member is Any or member is object:
            return True
        if not isinstance(member, type):
            continue
        if getattr(member, "_is_protocol", False):
            methods = [key for key, value in vars(member).items() if callable(value)]
            if all(hasattr(cls, key) for key in methods if not key.startswith("_")):
                return True
        elif issubclass(cls, member):
            return True
    return False
