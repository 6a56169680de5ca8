"""From a config dataclass back to plain data, and to the lines of `--help`."""

from __future__ import annotations

import dataclasses
import typing
from typing import Any, Mapping, NamedTuple

from embodied_icrl.common.config_types import (
    TARGET,
    config_fields,
    is_config_class,
    strip_optional,
    target_name,
    type_text,
)


class KeyDoc(NamedTuple):
    """One line of `--help`: `default` is plain data, or `dataclasses.MISSING` if required."""

    key: str
    type: str
    default: Any
    doc: str


def to_dict(config: Any, *, target: bool = False) -> dict[str, Any]:
    """A config as JSON-able data, every key present.

    `build(to_dict(config), type(config)) == config`. A nested config whose class isn't fixed by
    the type of its field carries its `_target_`.

    Args:
        config: a config dataclass instance.
        target: write the `_target_` of the outermost config too, so that `build` needs no class.
    """
    if not is_config_class(type(config)):
        raise TypeError(f"expected a config dataclass instance, got {config!r}")
    data: dict[str, Any] = {TARGET: target_name(type(config))} if target else {}
    for field, hint in config_fields(type(config)):
        data[field.name] = _plain(getattr(config, field.name), hint)
    return data


def describe(cls: type) -> list[KeyDoc]:
    """Every key of a config class, nested ones with dotted names, for `--help`.

    A field that may hold one of several classes is one line; its keys depend on the choice.
    """
    return _describe(cls, dataclasses.MISSING, "")


def _describe(cls: type, instance: Any, prefix: str) -> list[KeyDoc]:
    """Lines for `cls`; defaults come from `instance` where the field above holds one."""
    lines: list[KeyDoc] = []
    for field, hint in config_fields(cls):
        key, inner = f"{prefix}{field.name}", strip_optional(hint)
        missing = instance is dataclasses.MISSING
        default = _default(field) if missing else getattr(instance, field.name)
        if is_config_class(inner) and (default is dataclasses.MISSING or type(default) is inner):
            lines += _describe(inner, default, key + ".")
        else:
            plain = default if default is dataclasses.MISSING else _plain(default, hint)
            lines.append(KeyDoc(key, type_text(hint), plain, field.metadata.get("doc", "")))
    return lines


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


def _plain(value: Any, hint: Any) -> Any:
    if is_config_class(type(value)):
        return to_dict(value, target=strip_optional(hint) is not type(value))
    inner = _element_hint(hint)
    if isinstance(value, Mapping):
        return {key: _plain(item, inner) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        hints = inner if isinstance(inner, tuple) else (inner,) * len(value)
        return [_plain(item, item_hint) for item, item_hint in zip(value, hints)]
    return value


def _element_hint(hint: Any) -> Any:
    """The hint of a container's elements: one for all, or a tuple of one for each."""
    inner = strip_optional(hint)
    origin, arguments = typing.get_origin(inner), typing.get_args(inner)
    if origin is tuple:
        return arguments[0] if arguments[-1] is Ellipsis else arguments
    if origin is list:
        return arguments[0]
    return arguments[1] if isinstance(origin, type) and issubclass(origin, Mapping) else Any
