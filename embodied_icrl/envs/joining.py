"""Infos and states of a vector environment, put together from its parts and taken apart again.

Both are dictionaries (nested ones allowed) whose arrays and lists have one row per environment;
in a state, anything else is common to all environments.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np


def join_infos(infos: Sequence[Mapping[str, Any]], counts: Sequence[int]) -> dict[str, Any]:
    """Put the infos of parts with `counts` environments together; absent rows become zeros."""
    joined: dict[str, Any] = {}
    for key in dict.fromkeys(key for info in infos for key in info):
        values = [info.get(key) for info in infos]
        if any(isinstance(value, Mapping) for value in values):
            joined[key] = join_infos([value or {} for value in values], counts)
            continue
        arrays = [None if value is None else np.asarray(value) for value in values]
        like = next(array for array in arrays if array is not None)
        joined[key] = np.concatenate(
            [
                np.zeros((count, *like.shape[1:]), like.dtype)
                if array is None
                else _rows(array, count, key)
                for array, count in zip(arrays, counts, strict=True)
            ]
        )
    return joined


def join_states(states: Sequence[Mapping[str, Any]], counts: Sequence[int]) -> dict[str, Any]:
    """Put the states of parts with `counts` environments together.

    Raises:
        ValueError: an array or list has not one row per environment, or parts disagree on a
            value that is common to all.
    """
    return {key: _join([state[key] for state in states], counts, key) for key in states[0]}


def split_state(state: Mapping[str, Any], counts: Sequence[int]) -> list[dict[str, Any]]:
    """Undo `join_states`, for parts of any `counts` with the same sum."""
    bounds = np.cumsum([0, *counts])
    parts: list[dict[str, Any]] = []
    for start, stop in zip(bounds[:-1], bounds[1:], strict=True):
        parts.append({key: _part(value, int(start), int(stop)) for key, value in state.items()})
    return parts


def _join(values: Sequence[Any], counts: Sequence[int], key: str) -> Any:
    first = values[0]
    if isinstance(first, Mapping):
        return join_states(values, counts)
    if isinstance(first, np.ndarray):
        parts = [_rows(value, count, key) for value, count in zip(values, counts, strict=True)]
        return np.concatenate(parts)
    if isinstance(first, list):
        for value, count in zip(values, counts, strict=True):
            _rows(value, count, key)
        return [item for value in values for item in value]
    if any(value != first for value in values):
        raise ValueError(f"the environments disagree on {key!r} of their state: {values}")
    return first


def _part(value: Any, start: int, stop: int) -> Any:
    if isinstance(value, Mapping):
        return {key: _part(inner, start, stop) for key, inner in value.items()}
    return value[start:stop] if isinstance(value, (np.ndarray, list)) else value


def _rows(value: Any, count: int, key: str) -> Any:
    if (isinstance(value, np.ndarray) and value.ndim == 0) or len(value) != count:
        raise ValueError(f"{key!r} must have one row for each of {count} environments")
    return value
