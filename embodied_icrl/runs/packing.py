"""Nested state (dicts, lists, numbers, NumPy arrays, tensors) as JSON beside named tensors."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

_KIND = "$stored"


def pack(state: Any) -> tuple[Any, dict[str, Tensor]]:
    """Split a nested state into JSON and the tensors that it refers to.

    Arrays and tensors keep their dtype and shape; NumPy scalars too. Tuples become lists. Keys of
    dicts must be strings.

    Raises:
        TypeError: a value can be stored in neither way; the message names where it lies.
    """
    tensors: dict[str, Tensor] = {}
    return _pack(state, "state", tensors), tensors


def unpack(data: Any, tensors: Mapping[str, Tensor]) -> Any:
    """The state that `pack` split; arrays are NumPy arrays again, tensors tensors."""
    if isinstance(data, dict):
        if _KIND in data:
            return _restore(data[_KIND], data["name"], tensors)
        return {key: unpack(value, tensors) for key, value in data.items()}
    if isinstance(data, list):
        return [unpack(value, tensors) for value in data]
    return data


def _pack(value: Any, path: str, tensors: dict[str, Tensor]) -> Any:
    if isinstance(value, (np.ndarray, np.generic)):  # before float: np.float64 is one too
        kind = "scalar" if isinstance(value, np.generic) else "array"
        return {_KIND: kind, "name": _add(_from_numpy(np.asarray(value), path), path, tensors)}
    if isinstance(value, Tensor):
        return {_KIND: "tensor", "name": _add(value, path, tensors)}
    if isinstance(value, float) and not math.isfinite(value):  # JSON has no word for these
        return {_KIND: "float", "name": str(value)}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str) or key == _KIND:
                raise TypeError(f"{path}: the key {key!r} can't be stored; use another string")
        return {key: _pack(item, f"{path}.{key}", tensors) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_pack(item, f"{path}.{i}", tensors) for i, item in enumerate(value)]
    raise TypeError(f"{path}: a {type(value).__name__} can't be stored; use numbers or arrays")


def _add(tensor: Tensor, path: str, tensors: dict[str, Tensor]) -> str:
    """Add a tensor under a name of its own: keys with dots can make two paths alike."""
    name = path
    while name in tensors:
        name += "'"
    tensors[name] = tensor
    return name


def _from_numpy(array: np.ndarray, path: str) -> Tensor:
    try:
        return torch.from_numpy(np.array(array))
    except (TypeError, ValueError) as error:
        raise TypeError(f"{path}: an array of {array.dtype} can't be stored") from error


def _restore(kind: str, name: str, tensors: Mapping[str, Tensor]) -> Any:
    if kind == "float":
        return float(name)
    if kind == "tensor":
        return tensors[name]
    array = tensors[name].numpy()
    return array[()] if kind == "scalar" else array
