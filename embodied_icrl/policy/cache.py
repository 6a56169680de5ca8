"""The memory of a trial: keys and values of all tokens so far, allocated once."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from embodied_icrl.policy.past import Past

CONVERSION_BLOCK = 1 << 20
"""Numbers of a half-precision cache that are widened at a time (4 MiB in float32): they stay in a
CPU's own cache."""

DEVICE_BLOCK = 1 << 28
"""The same on other devices (1 GiB), where each block costs the start of its kernels."""


class Scratch:
    """Memory for acting on a cache, so that a step allocates nothing that grows with the context.

    Attributes:
        scores: `[envs * heads * capacity]`.
        hidden: bool `[envs * capacity]`.
        out: `[envs * heads, 1, head_dim]`.
        rows: keys and values of each layer as views `[envs * heads, capacity, head_dim]`.
        wide: a block of keys or values in the type of the scores; empty where they have it.
    """

    def __init__(self, data: Tensor, dtype: torch.dtype) -> None:
        _, _, envs, heads, capacity, head_dim = data.shape
        rows, device = envs * heads, data.device
        self.scores = torch.empty(rows * capacity, dtype=dtype, device=device)
        self.hidden = torch.empty(envs * capacity, dtype=torch.bool, device=device)
        self.out = torch.empty(rows, 1, head_dim, dtype=dtype, device=device)
        self.rows = [tuple(part.flatten(0, 1) for part in layer) for layer in data]
        row = capacity * head_dim
        most = CONVERSION_BLOCK if device.type == "cpu" else DEVICE_BLOCK
        block = 0 if data.dtype == dtype else min(max(most, row), rows * row)
        self.wide = torch.empty(block, dtype=dtype, device=device)


class KVCache:
    """Keys and values `[layers, 2, envs, heads, capacity, head_dim]`, written in place.

    All environments run in lockstep: `length` tokens each. As a ring, it holds the newest
    `capacity` tokens only.

    Args:
        layers, envs, heads, capacity, head_dim: sizes; capacity in tokens.
        dtype: number type of keys and values.
        scratch_dtype: number type of attention scores when acting.
        device: where they live.
        ring: overwrite the oldest token when full, instead of refusing.

    Attributes:
        length: tokens per environment so far.
        episode_ids: int64 `[envs, capacity]`; index of each token's episode in the trial.
        episode: int64 `[envs]`; index of the running episode, -1 before the first.
        episode_from: int64 `[envs]`; position of its first token.
        visible_from: int64 `[envs]`; position of the oldest token that isn't forgotten.
    """

    def __init__(
        self,
        *,
        layers: int,
        envs: int,
        heads: int,
        capacity: int,
        head_dim: int,
        dtype: torch.dtype,
        scratch_dtype: torch.dtype,
        device: torch.device,
        ring: bool = False,
    ) -> None:
        for name, size in (("envs", envs), ("capacity", capacity)):
            if size < 1:
                raise ValueError(f"a cache needs at least one of {name}, got {size}")
        # Made outside of inference mode, so that a training forward may read them.
        with torch.inference_mode(False):
            shape = (layers, 2, envs, heads, capacity, head_dim)
            self.data = torch.empty(shape, dtype=dtype, device=device)
            self.episode_ids = torch.zeros(envs, capacity, dtype=torch.int64, device=device)
            self.positions = torch.zeros(capacity, dtype=torch.int64, device=device)
            self.episode = torch.zeros(envs, dtype=torch.int64, device=device)
            self.episode_from = torch.zeros_like(self.episode)
            self.visible_from = torch.zeros_like(self.episode)
            self.scratch = Scratch(self.data, scratch_dtype)
        self.ring = ring
        self.length = 0
        self.forgets = False
        self.reset()

    @property
    def envs(self) -> int:
        """Number of environments."""
        return self.data.shape[2]

    @property
    def capacity(self) -> int:
        """Tokens that fit."""
        return self.data.shape[4]

    def reset(self) -> None:
        """Empty the memory of every environment: a new trial."""
        self.truncate(0)

    def truncate(self, length: int) -> None:
        """Drop all but the first `length` tokens, as if the later ones had never been.

        What was hidden by `forget` stays hidden.

        Raises:
            ValueError: there are fewer tokens, or a ring has overwritten some of them.
        """
        if not 0 <= length <= self.length:
            raise ValueError(f"can't cut a cache of {self.length} tokens to {length}")
        if self.ring and 0 < length < self.length and self.length > self.capacity:
            raise ValueError(
                f"can't go back to token {length}: the ring kept only the newest {self.capacity}"
            )
        if length == self.length and length > 0:
            return
        self.length = length
        if length == 0:
            self.episode.fill_(-1)
            self.episode_from.zero_()
            self.visible_from.zero_()
            self.forgets = False
            return
        ids = self.episode_ids[:, :length]
        self.episode.copy_(ids[:, -1])
        self.episode_from.copy_((ids != ids[:, -1:]).sum(dim=1))
        self.visible_from.clamp_(max=length)

    def forget(self, rows: Any) -> None:
        """Hide all tokens so far from the later ones of some environments.

        Args:
            rows: bool mask `[envs]` or indices (numpy array, tensor or list).
        """
        index = torch.as_tensor(rows, device=self.visible_from.device)
        self.visible_from[index] = self.length
        self.forgets = True

    def room_for(self, tokens: int) -> None:
        """Check that `tokens` more fit.

        Raises:
            ValueError: they don't.
        """
        if not self.ring and self.length + tokens > self.capacity:
            raise ValueError(
                f"the cache is full: {self.length} + {tokens} tokens, capacity {self.capacity}"
            )

    def append_ids(self, episode_start: Tensor) -> Tensor:
        """Count the episodes of new tokens, bool `[envs, n]`, without advancing `length`.

        Returns:
            int64 `[envs, n]`, their episode ids.
        """
        ids = self.episode[:, None] + episode_start.cumsum(dim=1)
        count = ids.shape[1]
        slots = self.slots(self.length, count)
        kept = len(slots) if isinstance(slots, Tensor) else count
        self.episode_ids[:, slots] = ids[:, count - kept :]
        self.positions[slots] = torch.arange(
            self.length + count - kept, self.length + count, device=ids.device
        )
        first = self.length + count - (ids == ids[:, -1:]).sum(dim=1)
        same = ids[:, -1] == self.episode
        self.episode_from.copy_(torch.where(same, self.episode_from, first))
        self.episode.copy_(ids[:, -1])
        return ids

    def append_id(self, episode_start: Tensor) -> None:
        """`append_ids` for one token, bool `[envs]`, in fewer operations."""
        slot = self.length % self.capacity
        self.episode.add_(episode_start)
        self.episode_ids[:, slot] = self.episode
        self.positions[slot] = self.length
        self.episode_from.masked_fill_(episode_start, self.length)

    def slots(self, start: int, count: int) -> slice | Tensor:
        """Where tokens `start` to `start + count` go; in a ring, the newest `capacity` of them."""
        if not self.ring or start + count <= self.capacity:
            return slice(start, start + count)
        first = max(start, start + count - self.capacity)
        return torch.arange(first, start + count, device=self.data.device) % self.capacity

    def newest(self, count: int) -> slice | Tensor:
        """Where the newest `count` tokens are, oldest first."""
        return self.slots(self.length - count, count)

    def past(self, start: int, rows: Tensor | slice | None = None) -> Past:
        """The first `start` tokens of some environments (all without `rows`) as constants.

        Raises:
            ValueError: the cache is a ring, or holds fewer tokens.
        """
        if self.ring:
            raise ValueError("a ring cache has no past to train on; make it with ring=False")
        if not 0 <= start <= self.length:
            raise ValueError(f"the cache holds {self.length} tokens, not {start}")
        return Past(self, start, slice(None) if rows is None else rows)

    def like(self, envs: int) -> KVCache:
        """An empty cache for another number of environments, the same in all else."""
        layers, _, _, heads, capacity, head_dim = self.data.shape
        return KVCache(
            layers=layers,
            envs=envs,
            heads=heads,
            capacity=capacity,
            head_dim=head_dim,
            dtype=self.data.dtype,
            scratch_dtype=self.scratch.scores.dtype,
            device=self.data.device,
            ring=self.ring,
        )

    def copy_rows(self, rows: Tensor, other: KVCache) -> None:
        """Take over all environments of `other`, which holds as many tokens, as `rows`."""
        held = min(self.length, self.capacity)
        self.data[:, :, rows, :, :held] = other.data[..., :held, :]
        self.episode_ids[rows, :held] = other.episode_ids[:, :held]
        for name in ("episode", "episode_from", "visible_from"):
            getattr(self, name)[rows] = getattr(other, name)

    def state_dict(self) -> dict[str, Tensor]:
        """Everything that `load_state_dict` needs, as tensors (views)."""
        held = min(self.length, self.capacity)
        return {
            "data": self.data[..., :held, :],
            "episode_ids": self.episode_ids[:, :held],
            "positions": self.positions[:held],
            "episode": self.episode,
            "episode_from": self.episode_from,
            "visible_from": self.visible_from,
            "length": torch.tensor([self.length, int(self.forgets)]),
        }

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Put back what `state_dict` returned; sizes and kind of cache must be the same.

        Raises:
            ValueError: the saved tokens don't fit.
        """
        self.length, forgets = (int(value) for value in state["length"])
        self.forgets = bool(forgets)
        held = min(self.length, self.capacity)
        if state["data"].shape != self.data[..., :held, :].shape:
            raise ValueError(
                f"the saved memory {tuple(state['data'].shape)} doesn't fit the cache "
                f"{tuple(self.data.shape)}"
            )
        self.data[..., :held, :].copy_(state["data"])
        self.episode_ids[:, :held].copy_(state["episode_ids"])
        self.positions[:held].copy_(state["positions"])
        for name in ("episode", "episode_from", "visible_from"):
            getattr(self, name).copy_(state[name])
