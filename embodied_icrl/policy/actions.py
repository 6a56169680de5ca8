"""Actions as the policy stores them, and as the environment takes them.

Stored: Discrete int64 `[...]` from 0, MultiDiscrete int64 `[..., k]` from 0, a Box float32
`[..., k]`, flattened. "No action" is -1, for a Box 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor


def no_action(space: spaces.Space[Any]) -> int:
    """What stands for "no previous action"."""
    return 0 if isinstance(space, spaces.Box) else -1


def empty_actions(space: spaces.Space[Any], *shape: int) -> Tensor:
    """The "no action" of `[env]` or `[env, step]`, with the action's own axis if it has one."""
    dtype = torch.float32 if isinstance(space, spaces.Box) else torch.int64
    inner = () if isinstance(space, spaces.Discrete) else (int(np.prod(space.shape or ())),)
    return torch.full((*shape, *inner), no_action(space), dtype=dtype)


def to_env_action(space: spaces.Space[Any], action: Tensor) -> np.ndarray:
    """Stored actions `[env, ...]` as the environment takes them; a Box is clipped."""
    array: np.ndarray = action.detach().cpu().numpy().copy()
    if isinstance(space, spaces.Discrete):
        array += space.start
        return array
    if isinstance(space, spaces.MultiDiscrete):
        return (array + space.start).astype(space.dtype)
    assert isinstance(space, spaces.Box)
    shaped = array.reshape(len(array), *space.shape)
    clipped: np.ndarray = np.clip(shaped, space.low, space.high).astype(space.dtype)
    return clipped


def from_env_action(space: spaces.Space[Any], action: Any) -> Tensor:
    """Environment actions `[env, ...]` (an oracle's) as stored, on the CPU."""
    array = np.asarray(action)
    if isinstance(space, spaces.Box):
        return torch.tensor(array.reshape(len(array), -1), dtype=torch.float32)
    start = space.start  # type: ignore[attr-defined]
    return torch.tensor(array - start, dtype=torch.int64)
