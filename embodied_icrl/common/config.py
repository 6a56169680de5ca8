"""Typed configurations without a store: one function turns a plain node into its dataclass.

A component has a frozen dataclass beside it, each field made with `option(default, doc)`. `build`
takes what Hydra composed (or any mapping), checks every key and every type, and fills defaults.
Where a field may hold one of several classes, the node's `_target_` names the one: the dotted
name of a config dataclass, ours or a user's.

Conversions that lose nothing are made: int to float, list to tuple. All others are refused; a
bool isn't an int, and a float isn't an int.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import math
import typing
from typing import Any, Callable, Literal, Mapping, Optional, TypeVar

from embodied_icrl.common.config_dump import KeyDoc, describe, to_dict
from embodied_icrl.common.config_types import (
    TARGET,
    accepts,
    config_fields,
    is_config_class,
    resolve_target,
    suggest,
    type_text,
    union_members,
)
from embodied_icrl.common.errors import ConfigError

__all__ = ["KeyDoc", "build", "describe", "option", "suggest", "to_dict"]

T = TypeVar("T")


def option(default: Any = dataclasses.MISSING, doc: str = "") -> Any:
    """A field of a config dataclass.

    Args:
        default: the default value. A class or function is called for each new config; a list,
            dict or set is copied. Without it, the key is required.
        doc: one line with the unit, shown by `--help`.
    """
    metadata = {"doc": doc}
    if isinstance(default, (list, dict, set)):
        return dataclasses.field(default_factory=lambda: copy.deepcopy(default), metadata=metadata)
    if callable(default) and not is_config_class(type(default)):
        return dataclasses.field(default_factory=default, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


@typing.overload
def build(node: Any, cls: type[T], path: str = "") -> T: ...


@typing.overload
def build(node: Any, cls: None = None, path: str = "") -> Any: ...


def build(node: Any, cls: Optional[type] = None, path: str = "") -> Any:
    """Turn a plain or OmegaConf mapping into the config dataclass it describes.

    Args:
        node: the mapping; an instance of `cls` is returned as it is.
        cls: the expected class (a dataclass, a base class, a protocol or a Union); without it,
            the node's `_target_` decides.
        path: dotted name of the node, for messages.

    Raises:
        ConfigError: an unknown or missing key, a value of the wrong type, an unusable `_target_`,
            or a refusal by the dataclass's own `__post_init__`.
    """
    plain = _plain_node(node, path)
    hint = Any if cls is None else cls
    if not isinstance(plain, Mapping) and not is_config_class(type(plain)):
        raise ConfigError(f"{_at(path)}expected a mapping, got {plain!r}")
    if cls is None and isinstance(plain, Mapping) and TARGET not in plain:
        raise ConfigError(f"{_key(path, TARGET)} is missing: name the config dataclass to build")
    return _convert(plain, hint, path)


def _plain_node(node: Any, path: str) -> Any:
    """OmegaConf containers as plain ones; everything else unchanged."""
    if not type(node).__module__.startswith("omegaconf"):
        return node
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    try:
        return OmegaConf.to_container(node, resolve=True, throw_on_missing=False)
    except OmegaConfBaseException as error:
        raise ConfigError(f"{_at(path)}{str(error).splitlines()[0]}") from error


def _convert(value: Any, hint: Any, path: str) -> Any:
    """`value` as the type `hint`, or a ConfigError that names `path`."""
    value = _plain_node(value, path)
    members = union_members(hint)
    if len(members) > 1:
        return _convert_union(value, members, hint, path)
    if is_config_class(type(value)):
        if accepts(hint, type(value)):
            return value
        raise _type_error(value, hint, path)
    if isinstance(value, Mapping):
        cls = _class_of_node(value, hint, path)
        if cls is not None:
            return _construct(value, cls, path)
    converter = _CONTAINERS.get(typing.get_origin(hint) or hint)
    if converter is not None:
        return converter(value, hint, path)
    return _convert_scalar(value, hint, path)


def _class_of_node(node: Mapping[str, Any], hint: Any, path: str) -> Optional[type]:
    """The dataclass that a mapping describes, or None where a plain mapping is wanted."""
    if TARGET in node:
        target_path = _key(path, TARGET)
        cls = resolve_target(node[TARGET], target_path)
        if not accepts(hint, cls):
            raise ConfigError(f"{target_path}: {cls.__name__} is not a {type_text(hint)}")
        return cls
    if is_config_class(hint):
        return hint  # type: ignore[no-any-return]
    if isinstance(hint, type) and hint not in _SCALARS and hint not in _CONTAINERS:
        raise ConfigError(f"{_key(path, TARGET)} is missing: name the {type_text(hint)} to build")
    return None


def _construct(node: Mapping[str, Any], cls: type, path: str) -> Any:
    fields = config_fields(cls)
    names = [field.name for field, _ in fields]
    for key in node:
        if key != TARGET and key not in names:
            raise ConfigError(f"unknown key {_key(path, key)!r}; {suggest(str(key), names)}")
    values: dict[str, Any] = {}
    for field, hint in fields:
        key = _key(path, field.name)
        if field.name in node and node[field.name] != "???":
            values[field.name] = _convert(node[field.name], hint, key)
        elif _is_required(field) or field.name in node:
            doc = field.metadata.get("doc")
            about = type_text(hint) + (f": {doc}" if doc else "")
            raise ConfigError(f"missing key {key!r} ({about})")
    try:
        return cls(**values)
    except (ConfigError, ValueError) as error:
        message = str(error)
        named = f"{path}." in message if path else True
        raise ConfigError(message if named else f"{path}: {message}") from error


def _convert_union(value: Any, members: tuple[Any, ...], hint: Any, path: str) -> Any:
    if value is None and type(None) in members:
        return None
    rest = tuple(member for member in members if member is not type(None))
    if len(rest) == 1:
        return _convert_or_null(value, rest[0], hint, path)
    if isinstance(value, Mapping) and TARGET in value:
        cls = _class_of_node(value, hint, path)
        return _construct(value, cls, path) if cls is not None else None
    if isinstance(value, Mapping):
        return _convert_ambiguous_mapping(value, rest, hint, path)
    results = _conversions(value, rest, path)
    if not results:
        raise _type_error(value, hint, path)
    return next((result for result in results if type(result) is type(value)), results[0])


def _convert_ambiguous_mapping(
    value: Mapping[str, Any], members: tuple[Any, ...], hint: Any, path: str
) -> Any:
    """A mapping without `_target_` where several types are allowed: one alone must fit."""
    fitting = [m for m in members if m not in _SCALARS and typing.get_origin(m) is not Literal]
    if len(fitting) == 1:
        return _convert(value, fitting[0], path)
    results = _conversions(value, tuple(fitting), path)
    if len(results) != 1:
        count = "more than one" if results else "none"
        raise ConfigError(
            f"{_key(path, TARGET)} is missing: the keys fit {count} of {type_text(hint)}"
        )
    return results[0]


def _conversions(value: Any, members: tuple[Any, ...], path: str) -> list[Any]:
    """The results for those members of a Union that take the value."""
    results = []
    for member in members:
        with contextlib.suppress(ConfigError):
            results.append(_convert(value, member, path))
    return results


def _convert_or_null(value: Any, inner: Any, hint: Any, path: str) -> Any:
    """Convert to the one type of an Optional; a wrong scalar's message names null too."""
    is_scalar = inner in _SCALARS or typing.get_origin(inner) is Literal
    try:
        return _convert(value, inner, path)
    except ConfigError:
        if not is_scalar or (inner is float and isinstance(value, float)):
            raise
        raise _type_error(value, hint, path) from None


def _convert_sequence(value: Any, hint: Any, path: str) -> Any:
    kind = typing.get_origin(hint) or hint
    arguments = typing.get_args(hint) or (Any, Ellipsis)
    if not isinstance(value, (list, tuple)):
        raise _type_error(value, hint, path)
    if kind is tuple and arguments[-1] is not Ellipsis:
        if len(value) != len(arguments):
            raise ConfigError(
                f"{_at(path)}expected {len(arguments)} values {type_text(hint)}, got {value!r}"
            )
        hints = arguments
    else:
        hints = (arguments[0],) * len(value)
    items = [_convert(item, hints[i], f"{path}[{i}]") for i, item in enumerate(value)]
    return tuple(items) if kind is tuple else items


def _convert_mapping(value: Any, hint: Any, path: str) -> Any:
    key_hint, item_hint = typing.get_args(hint) or (str, Any)
    if not isinstance(value, Mapping):
        raise _type_error(value, hint, path)
    return {
        _convert(key, key_hint, path): _convert(item, item_hint, _key(path, key))
        for key, item in value.items()
    }


def _convert_any(value: Any, hint: Any, path: str) -> Any:
    if isinstance(value, Mapping):
        return {key: _convert(item, Any, _key(path, key)) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_convert(item, Any, f"{path}[{i}]") for i, item in enumerate(value)]
    return value if value is None else _convert_scalar(value, type(value), path)


_SCALARS = (bool, int, float, str, type(None))
_CONTAINERS: Mapping[Any, Callable[[Any, Any, str], Any]] = {
    tuple: _convert_sequence,
    list: _convert_sequence,
    dict: _convert_mapping,
    typing.get_origin(Mapping[str, int]): _convert_mapping,
    Any: _convert_any,
    object: _convert_any,
}


def _convert_scalar(value: Any, hint: Any, path: str) -> Any:
    if typing.get_origin(hint) is Literal:
        for allowed in typing.get_args(hint):
            if type(allowed) is type(value) and allowed == value:
                return value
        raise _type_error(value, hint, path)
    if hint is float and type(value) in (int, float):
        if not math.isfinite(value):
            raise ConfigError(f"{_at(path)}expected a finite number, got {value!r}")
        return float(value)
    if hint in _SCALARS and type(value) is hint:
        return value
    raise _type_error(value, hint, path)


def _type_error(value: Any, hint: Any, path: str) -> ConfigError:
    got = "null" if value is None else f"{value!r} ({type(value).__name__})"
    advice = ""
    members = union_members(hint)
    if isinstance(value, float) and int in members and value.is_integer():
        advice = f"; write {int(value)}"
    elif type(value) in (bool, int, float) and _wants_text(members):
        advice = "; put it in quotes if it is meant as text"
    return ConfigError(f"{_at(path)}expected {type_text(hint)}, got {got}{advice}")


def _wants_text(members: tuple[Any, ...]) -> bool:
    literals = [typing.get_args(m) for m in members if typing.get_origin(m) is Literal]
    return str in members or any(isinstance(value, str) for values in literals for value in values)


def _is_required(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _key(path: str, key: Any) -> str:
    return f"{path}.{key}" if path else str(key)


def _at(path: str) -> str:
    return f"{path}: " if path else ""
