"""House files: JSON that a person can read and edit, one item per line."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any, Union

from embodied_icrl.common.config import build
from embodied_icrl.common.errors import ConfigError
from embodied_icrl.common.files import atomic_write_text
from embodied_icrl.houses.check import check_house
from embodied_icrl.houses.spec import FORMAT, HouseError, HouseSpec


def house_text(spec: HouseSpec) -> str:
    """A house as JSON text; the same house gives the same text."""
    lines = []
    for field in dataclasses.fields(spec):
        value = getattr(spec, field.name)
        if isinstance(value, tuple):
            items = ",\n".join("    " + json.dumps(dataclasses.asdict(item)) for item in value)
            text = f"[\n{items}\n  ]" if value else "[]"
        else:
            text = json.dumps(value)
        lines.append(f'  "{field.name}": {text}')
    return "{\n" + ",\n".join(lines) + "\n}\n"


def save_house(spec: HouseSpec, path: Union[str, Path]) -> None:
    """Write a house file."""
    atomic_write_text(path, house_text(spec))


def load_house(path: Union[str, Path]) -> HouseSpec:
    """Read a house file and check the house.

    Paths of models are relative to the file.

    Raises:
        HouseError: the file can't be read, or the house is not valid; the message names the field.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise HouseError(f"{path}: can't read the house file ({error})") from error
    try:
        node = json.loads(text)
    except ValueError as error:
        raise HouseError(f"{path}: not JSON ({error})") from error
    try:
        spec = house_from_dict(node, folder=path.parent)
        check_house(spec)
    except HouseError as error:
        raise HouseError(f"{path}: {error}") from error
    return spec


def house_from_dict(node: Any, folder: Union[str, Path] = ".") -> HouseSpec:
    """A plain mapping as a house; types and keys are checked, the geometry is not (`check_house`).

    Args:
        node: what `json.loads` gives.
        folder: what relative paths of models start from.

    Raises:
        HouseError: a wrong key, type or format version; the message names the field.
    """
    if isinstance(node, dict) and node.get("format", FORMAT) != FORMAT:
        raise HouseError(
            f"format: {node['format']!r} is not supported; this release reads {FORMAT}"
        )
    try:
        spec = build(node, HouseSpec)
    except ConfigError as error:
        raise HouseError(str(error)) from error
    return dataclasses.replace(
        spec,
        furniture=tuple(_anchored(item, Path(folder)) for item in spec.furniture),
        objects=tuple(_anchored(item, Path(folder)) for item in spec.objects),
    )


def _anchored(item: Any, folder: Path) -> Any:
    """An item whose model, if it is a file, has an absolute path."""
    if not item.model.endswith(".glb"):
        return item
    return dataclasses.replace(item, model=str((folder / item.model).resolve()))
