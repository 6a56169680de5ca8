"""Which tokens of its memory the policy looks at, for pictures."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from embodied_icrl.policy.batch import StepBatch
from embodied_icrl.policy.cache import KVCache
from embodied_icrl.policy.policy import Policy
from embodied_icrl.policy.transformer import Block, KeysValues, rotate


@dataclass(frozen=True)
class AttentionMap:
    """Attention of the newest token, averaged over layers and heads.

    Attributes:
        tokens: `[env, token]`, the share of each remembered token, oldest first, the newest
            itself last; 0 for those that it doesn't see.
        sink: `[env]`, the share of the sink, 0 without one. With `tokens` it sums to 1.
        positions: int64 `[token]`, the tokens' places in the trial.
        value: `[env]`, the value estimate on this way through the layers: that of `Policy.act`.
    """

    tokens: Tensor
    sink: Tensor
    positions: Tensor
    value: Tensor


@torch.no_grad()
def newest_attention(policy: Policy, token: StepBatch, cache: KVCache) -> AttentionMap:
    """Recomputes where the newest token looked.

    Args:
        token: the newest token `[env, 1]`, which `Policy.act` has just put into the cache.
        cache: the memory; it is read only.
    """
    if cache.length == 0:
        raise ValueError("the memory is empty: let the policy act first")
    transformer, config = policy.transformer, policy.config
    held = min(cache.length, cache.capacity)
    order = cache.newest(held)
    hidden = _hidden(policy, cache, order)
    now = cache.episode[:, None]
    rotation = policy._rotation(now, cache.length - 1)
    x = policy.encoder(token)[:, 0]
    tokens = torch.zeros_like(hidden, dtype=x.dtype)
    sink_share = torch.zeros_like(tokens[:, 0])
    for index, sink in enumerate(transformer.sinks()):
        block = cast(Block, transformer.blocks[index])
        query = block.project(x)[:, 0]
        if rotation is not None:
            query = rotate(query[:, None], *rotation)[:, 0]
        keys, values = (part[:, :, order].to(x.dtype) for part in cache.data[index])
        weights = _weights(query, keys, sink, hidden)
        attended = torch.einsum("eht,ehtd->ehd", weights[..., 1:], values)
        if sink is not None:
            attended = attended + weights[..., :1] * sink[1]
        x = x + block.attention_out(attended.flatten(1))
        x = x + block.mlp(x)
        share = weights.mean(dim=1) / config.layers
        tokens += share[:, 1:]
        sink_share += share[:, 0]
    value = policy.critic(transformer.norm(x)).squeeze(-1)
    return AttentionMap(tokens, sink_share, cache.positions[order].clone(), value)


def _hidden(policy: Policy, cache: KVCache, order: slice | Tensor) -> Tensor:
    """True for remembered tokens that the newest one doesn't see, bool `[env, token]`."""
    positions = cache.positions[order]
    first = cache.visible_from
    if not policy.config.inter_episode:
        first = torch.maximum(first, cache.episode_from)
    if policy.config.window is not None:
        first = first.clamp(min=cache.length - policy.config.window)
    return positions[None] < first[:, None]


def _weights(query: Tensor, keys: Tensor, sink: KeysValues | None, hidden: Tensor) -> Tensor:
    """Softmax over the sink (first, weight 0 if there is none) and tokens: `[env, head, 1 + n]`."""
    query = query / math.sqrt(query.shape[-1])
    scores = torch.einsum("ehd,ehtd->eht", query, keys).masked_fill(hidden[:, None], -math.inf)
    sink_score = torch.full_like(scores[..., :1], -math.inf)
    if sink is not None:
        sink_score = (query * sink[0]).sum(dim=-1, keepdim=True)
    return torch.cat([sink_score, scores], dim=-1).softmax(dim=-1)
