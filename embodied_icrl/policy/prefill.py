"""Writing many tokens to the cache at once."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from embodied_icrl.policy.cache import KVCache
from embodied_icrl.policy.past import sight_groups
from embodied_icrl.policy.transformer import KeysValues, Memory

GROUP_NUMBERS = 1 << 24
"""Keys and values of one layer that are gathered at a time (64 MiB in float32)."""


def row_groups(
    cache: KVCache, keys: int, rows_per_group: int | None, envs: int | None = None
) -> Iterator[slice]:
    """Environments in groups, so that copies of `keys` tokens each stay within a bound."""
    heads, head_dim = cache.data.shape[3], cache.data.shape[5]
    rows = rows_per_group or max(1, GROUP_NUMBERS // (2 * heads * keys * head_dim))
    total = cache.envs if envs is None else envs
    for first in range(0, total, rows):
        yield slice(first, min(first + rows, total))


class CacheWriter:
    """Writes the next `count` tokens and gives what they attend to.

    Args:
        cache: the memory; `cache.length` is advanced by the caller, after all layers.
        count: new tokens per environment.

    Attributes:
        keys: number of keys: earlier tokens still held, and the new ones.
    """

    def __init__(self, cache: KVCache, count: int) -> None:
        self.cache = cache
        self.count = count
        self.held = min(cache.length, cache.capacity)
        self.keys = self.held + count
        self._old = cache.newest(self.held)
        self._new = cache.slots(cache.length, count)
        self._old_ids = cache.episode_ids[:, self._old].clone()

    def memory(self, rows: slice) -> Memory:
        """Takes a layer's new keys and values `[row, heads, count, head_dim]`, returns all."""

        def write(layer: int, k: Tensor, v: Tensor) -> KeysValues:
            data = self.cache.data[layer, :, rows]
            if isinstance(self._new, slice):
                data[0, :, :, self._new] = k
                data[1, :, :, self._new] = v
                held = data[:, :, :, : self.keys]
                return held[0], held[1]
            kept = min(self.count, self.cache.capacity)
            old = data[:, :, :, self._old]
            joined = [
                torch.cat([past.to(new.dtype), new], dim=2)
                for past, new in zip(old, (k, v), strict=True)
            ]
            data[0, :, :, self._new] = k[:, :, -kept:].to(data.dtype)
            data[1, :, :, self._new] = v[:, :, -kept:].to(data.dtype)
            return joined[0], joined[1]

        return write

    def groups(self, ids: Tensor, inter_episode: bool) -> Tensor | None:
        """Attention groups `[env, keys]`, of new tokens with episode `ids`; None: all see all."""
        all_ids = torch.cat([self._old_ids, ids], dim=1)
        visible_from = self.cache.visible_from if self.cache.forgets else None
        first = self.cache.length - self.held
        return sight_groups(all_ids, inter_episode, visible_from, first)
