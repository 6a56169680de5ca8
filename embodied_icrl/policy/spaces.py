"""Gymnasium spaces as JSON, so that a checkpoint can say what it acts on."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from embodied_icrl.common.errors import ConfigError


def describe_space(space: spaces.Space[Any]) -> dict[str, Any]:
    """A space as plain JSON data.

    Raises:
        ConfigError: a kind of space other than Dict, Box, Discrete, MultiDiscrete, MultiBinary.
    """
    if isinstance(space, spaces.Dict):
        return {"kind": "Dict", "spaces": {k: describe_space(s) for k, s in space.items()}}
    if isinstance(space, spaces.Box):
        return {
            "kind": "Box",
            "shape": list(space.shape),
            "dtype": str(space.dtype),
            "low": _bound(space.low),
            "high": _bound(space.high),
        }
    if isinstance(space, spaces.Discrete):
        return {
            "kind": "Discrete",
            "n": int(space.n),
            "start": int(space.start),
            "dtype": str(space.dtype),
        }
    if isinstance(space, spaces.MultiDiscrete):
        return {
            "kind": "MultiDiscrete",
            "nvec": space.nvec.tolist(),
            "start": space.start.tolist(),
            "dtype": str(space.dtype),
        }
    if isinstance(space, spaces.MultiBinary):
        return {"kind": "MultiBinary", "shape": list(space.shape)}
    raise ConfigError(f"a {type(space).__name__} space is not supported")


def space_from_description(data: dict[str, Any]) -> spaces.Space[Any]:
    """The space that `describe_space` described."""
    kind = data["kind"]
    if kind == "Dict":
        return spaces.Dict({k: space_from_description(s) for k, s in data["spaces"].items()})
    if kind == "Box":
        shape, dtype = tuple(data["shape"]), np.dtype(data["dtype"])
        low, high = (_read_bound(data[side], shape, dtype) for side in ("low", "high"))
        return spaces.Box(low, high, shape, dtype.type)
    if kind == "Discrete":
        # The first checkpoints did not say, and had Gymnasium's default.
        dtype = np.dtype(data["dtype"])
        return spaces.Discrete(data["n"], start=data["start"], dtype=dtype.type)
    if kind == "MultiDiscrete":
        dtype = np.dtype(data["dtype"])
        nvec, start = (np.asarray(data[name], dtype) for name in ("nvec", "start"))
        return spaces.MultiDiscrete(nvec, dtype=dtype.type, start=start)
    if kind == "MultiBinary":
        return spaces.MultiBinary(data["shape"])
    raise ConfigError(f"unknown kind of space {kind!r}; the checkpoint needs a newer version")


def _bound(values: np.ndarray) -> Any:
    """One side of a Box: a number if all are the same, infinities as text (JSON has none)."""
    flat = values.reshape(-1).tolist()
    if flat and all(value == flat[0] for value in flat):
        return _plain(flat[0])
    return [_plain(value) for value in flat]


def _plain(value: float) -> float | str:
    return value if np.isfinite(value) else str(value)


def _read_bound(data: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
    values = [float(v) if isinstance(v, str) else v for v in np.atleast_1d(data).tolist()]
    if len(values) == 1:
        return np.full(shape, values[0], dtype)
    return np.asarray(values, dtype).reshape(shape)
