"""The past of a trial as constants, and which of it is in sight."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from embodied_icrl.policy.cache import KVCache


def sight_groups(
    ids: Tensor, inter_episode: bool, visible_from: Tensor | None, first: int = 0
) -> Tensor | None:
    """Groups that limit attention: a token sees earlier ones of its own group only.

    Args:
        ids: episode of each token, int64 `[env, token]`, -1 or more.
        inter_episode: earlier episodes are in sight.
        visible_from: int64 `[env]`, position of the oldest token in sight; None: all are.
        first: position of the first token.

    Returns:
        int64 `[env, token]`, or None where every token sees all earlier ones.
    """
    if inter_episode and visible_from is None:
        return None
    groups = torch.zeros_like(ids) if inter_episode else ids
    if visible_from is None:
        return groups
    position = torch.arange(first, first + ids.shape[1], device=ids.device)
    return groups.masked_fill(position < visible_from[:, None], -2)


class Past:
    """A constant view of the first tokens of a cache, for training without a gradient into them.

    Attributes:
        length: tokens per environment.
        episode: int64 `[rows]`; index of the episode that runs at the end.
    """

    def __init__(self, cache: KVCache, length: int, rows: Tensor | slice) -> None:
        self.length = length
        self._cache = cache
        self._rows = rows
        self.episode_ids = cache.episode_ids[rows, :length]
        self.episode = (
            self.episode_ids[:, -1] if length else torch.full_like(cache.episode[rows], -1)
        )
        self.visible_from = cache.visible_from[rows] if cache.forgets else None

    def keys_values(self, layer: int) -> tuple[Tensor, Tensor]:
        """Keys and values of one layer, each `[rows, heads, length, head_dim]`."""
        keys, values = self._cache.data[layer]
        return keys[:, :, : self.length][self._rows], values[:, :, : self.length][self._rows]

    def join(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """The past's keys and values of a layer, followed by new ones `[rows, heads, n, ...]`."""
        keys, values = self.keys_values(layer)
        return torch.cat([keys.to(k.dtype), k], dim=2), torch.cat([values.to(v.dtype), v], dim=2)
