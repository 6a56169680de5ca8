"""How one key of an observation is checked, stored and turned into numbers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from embodied_icrl.common.errors import ConfigError, ObservationError


class Observation(nn.Module, ABC):
    """The reader of one observation key.

    Attributes:
        key: name in the Dict space.
        stored_shape: shape of what the rollout keeps per environment and step.
        stored_dtype: its torch type.
    """

    stored_shape: tuple[int, ...]
    stored_dtype: torch.dtype

    def __init__(self, key: str, space: spaces.Space[Any]) -> None:
        super().__init__()
        self.key = key
        self.space_shape = tuple(space.shape or ())

    def prepare(self, array: Any, device: torch.device) -> Tensor:
        """A batch of raw observations `[env, *space]` as it is stored: `[env, *stored_shape]`.

        Raises:
            ObservationError: the shape is wrong.
        """
        raw = np.asarray(array)
        if raw.shape[1:] != self.space_shape or raw.ndim == 0:
            raise ObservationError(
                f"observation {self.key!r} has shape {raw.shape}, its space says "
                f"[environments, {', '.join(map(str, self.space_shape))}]"
            )
        # Torch takes no views that run backwards, such as BGR pictures turned to RGB.
        return self.store(np.ascontiguousarray(raw), device)

    @abstractmethod
    def store(self, raw: np.ndarray, device: torch.device) -> Tensor:
        """`prepare` after the shape has been checked; `raw` is contiguous."""

    def first_bad(self, array: Any) -> int | None:
        """The first environment whose value can't be used, or None."""
        raw = np.asarray(array)
        if raw.dtype.kind != "f" or np.isfinite(raw).all():
            return None
        return int(np.argmin(np.isfinite(raw).reshape(len(raw), -1).all(axis=1)))

    def what_is_bad(self) -> str:
        """The end of the message about such a value."""
        return "is not finite (NaN or infinite)"


class Categories(Observation):
    """One or several categories, each read through its own rows of a lookup table."""

    def __init__(self, key: str, space: spaces.Discrete | spaces.MultiDiscrete) -> None:
        super().__init__(key, space)
        if isinstance(space, spaces.Discrete):
            sizes, start = np.array([space.n]), np.array([space.start])
        else:
            sizes, start = space.nvec.reshape(-1), space.start.reshape(-1)
        self.sizes: tuple[int, ...] = tuple(int(size) for size in sizes)
        self._size = sizes.astype(np.int64)
        self._start = start.astype(np.int64)
        self.stored_shape = (len(self.sizes),)
        self.stored_dtype = torch.uint8 if max(self.sizes) <= 256 else torch.int32

    def store(self, raw: np.ndarray, device: torch.device) -> Tensor:
        index = raw.reshape(len(raw), -1) - self._start
        return torch.as_tensor(index, dtype=self.stored_dtype, device=device)

    def first_bad(self, array: Any) -> int | None:
        index = np.asarray(array).reshape(len(array), -1) - self._start
        good = (index >= 0) & (index < self._size)
        return None if good.all() else int(np.argmin(good.all(axis=1)))

    def what_is_bad(self) -> str:
        return "is outside of its space"


class Numbers(Observation):
    """A vector of numbers (or bits), read as it is; bytes are divided by 255."""

    def __init__(self, key: str, space: spaces.Box | spaces.MultiBinary) -> None:
        super().__init__(key, space)
        self.stored_shape = (int(np.prod(self.space_shape)),)
        is_byte = isinstance(space, spaces.Box) and space.dtype == np.uint8
        is_small = is_byte or isinstance(space, spaces.MultiBinary)
        self.stored_dtype = torch.uint8 if is_small else torch.float32
        self.scale = 1 / 255 if is_byte else None

    def store(self, raw: np.ndarray, device: torch.device) -> Tensor:
        return torch.as_tensor(
            raw.reshape(len(raw), -1), dtype=self.stored_dtype, device=device
        ).clone()

    def forward(self, stored: Tensor, dtype: torch.dtype) -> Tensor:
        """Stored numbers `[..., size]` in the network's type."""
        numbers = stored.to(dtype)
        return numbers if self.scale is None else numbers * self.scale


class Features(Observation):
    """A key that a network turns into a feature vector.

    Attributes:
        feature_size: length of the vector.
    """

    feature_size: int

    @abstractmethod
    def forward(self, stored: Tensor) -> Tensor:
        """Stored values `[n, *stored_shape]` to features `[n, feature_size]`."""


def read_dict_space(space: spaces.Space[Any]) -> dict[str, spaces.Space[Any]]:
    """The keys of a flat Dict space, sorted.

    Raises:
        ConfigError: another kind of space, an empty one, or a nested one.
    """
    if not isinstance(space, spaces.Dict) or not space.spaces:
        raise ConfigError(
            f"the policy needs a Dict observation space with at least one key, got {space}"
        )
    for key, inner in space.spaces.items():
        if isinstance(inner, (spaces.Dict, spaces.Tuple)):
            raise ConfigError(f"observation {key!r} is nested; flatten it into keys of its own")
    return {key: space.spaces[key] for key in sorted(space.spaces)}
