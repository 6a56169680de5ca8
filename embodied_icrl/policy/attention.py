"""Causal attention with a sink key and value (ReLIC, arXiv 2410.02751).

For a query q_t, visible keys k_j and values v_j, and the sink's k_s and v_s:

    o_t = (exp(q_t.k_s / sqrt(d)) v_s + sum_j exp(q_t.k_j / sqrt(d)) v_j)
          / (exp(q_t.k_s / sqrt(d)) + sum_j exp(q_t.k_j / sqrt(d)))

The sink belongs to no time step and is visible to every query, whatever the window or episode.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

QUERY_CHUNK = 512
"""Queries per masked kernel call, so that no mask grows with the square of the context."""

NARROW_CHUNK = 128
"""The same where a window or episodes limit the sight: small chunks skip more keys."""

KEPT_NUMBERS = 1 << 24
"""Masks and copies larger than this in total are made again in the backward pass, not kept."""


def sink_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    sink_k: Tensor | None,
    sink_v: Tensor | None,
    *,
    query_start: int = 0,
    episode_ids: Tensor | None = None,
    window: int | None = None,
    backend: str = "auto",
) -> Tensor:
    """Causal attention with an optional sink.

    Args:
        q: queries `[batch, heads, Tq, head_dim]`; query i stands at position `query_start + i`.
        k, v: keys and values `[batch, heads, Tk, head_dim]`; key j stands at position j. A query
            sees the keys at positions up to its own.
        sink_k, sink_v: `[heads, head_dim]`, or both None for no sink.
        query_start: position of the first query; `query_start + Tq <= Tk`.
        episode_ids: `[batch, Tk]`; if given, a query sees keys of its own episode only.
        window: if given, a query sees the last `window` positions only, its own counted.
        backend: `sdpa` (fused), `math` (the equation in plain operations, memory Tq * Tk) or
            `auto` (sdpa).

    Returns:
        `[batch, heads, Tq, head_dim]` in the type of `q`.

    Raises:
        ValueError: shapes that don't fit, an empty input, or an unknown backend.
    """
    _check_arguments(q, k, v, sink_k, sink_v, query_start, episode_ids, window)
    k, v = k.to(q.dtype), v.to(q.dtype)
    span = _Span(query_start, episode_ids, window)
    if backend == "math":
        # Autocast would round the very numbers that the fast forms are measured against.
        with torch.autocast(q.device.type, enabled=False):
            return _math(q, k, v, sink_k, sink_v, span)
    if backend not in ("auto", "sdpa"):
        raise ValueError(f"unknown attention backend {backend!r}; use auto, sdpa or math")
    if query_start == 0 and q.shape[2] == k.shape[2] and span.sees_whole_past(k.shape[2]):
        return _square(q, k, v, sink_k, sink_v)
    return _chunked(q, k, v, sink_k, sink_v, span)


@dataclass(frozen=True)
class _Chunk:
    """Queries `first:last` and the range of keys, `low:high`, that they can see at most."""

    first: int
    last: int
    low: int
    high: int


@dataclass(frozen=True)
class _Span:
    """Which positions a query sees."""

    query_start: int
    episode_ids: Tensor | None
    window: int | None

    def sees_whole_past(self, length: int) -> bool:
        return self.episode_ids is None and (self.window is None or self.window >= length)

    def chunks(self, queries: int) -> list[_Chunk]:
        """All queries in chunks, smaller ones where that may leave out many keys."""
        narrow = self.window is not None or self.episode_ids is not None
        size = NARROW_CHUNK if narrow else QUERY_CHUNK
        chunks = []
        for first in range(0, queries, size):
            last = min(first + size, queries)
            low, high = 0, self.query_start + last
            if self.window is not None:
                low = max(0, self.query_start + first + 1 - self.window)
            chunks.append(_Chunk(first, last, low, high))
        if self.episode_ids is None:
            return chunks
        lows = torch.stack([self._first_key(chunk, self.episode_ids) for chunk in chunks]).tolist()
        return [replace(chunk, low=low) for chunk, low in zip(chunks, lows, strict=True)]

    def _first_key(self, chunk: _Chunk, ids: Tensor) -> Tensor:
        """The first key that one of the queries may see, whatever the order of the ids."""
        keys = ids[:, chunk.low : chunk.high]
        own = ids[:, self.query_start + chunk.first : chunk.high]
        possible = (keys >= own.amin(1, keepdim=True)) & (keys <= own.amax(1, keepdim=True))
        return chunk.low + possible.any(dim=0).to(torch.uint8).argmax()

    def mask(self, chunk: _Chunk, device: torch.device) -> Tensor:
        """True where a query sees a key: `[1 or batch, 1, queries, keys]`."""
        first, last = self.query_start + chunk.first, self.query_start + chunk.last
        position = torch.arange(first, last, device=device)[:, None]
        key = torch.arange(chunk.low, chunk.high, device=device)[None, :]
        visible = key <= position
        if self.window is not None:
            visible &= key > position - self.window
        if self.episode_ids is None:
            return visible[None, None]
        ids = self.episode_ids
        same = ids[:, first:last, None] == ids[:, None, chunk.low : chunk.high]
        return (visible & same)[:, None]


def _check_arguments(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    sink_k: Tensor | None,
    sink_v: Tensor | None,
    query_start: int,
    episode_ids: Tensor | None,
    window: int | None,
) -> None:
    if q.dim() != 4 or k.dim() != 4 or k.shape != v.shape:
        raise ValueError(
            "q, k and v must be [batch, heads, time, head_dim], k and v of one shape; got "
            f"{tuple(q.shape)}, {tuple(k.shape)}, {tuple(v.shape)}"
        )
    if q.shape[:2] != k.shape[:2] or q.shape[3] != k.shape[3]:
        raise ValueError(
            "q and k must agree in batch, heads and head_dim; got "
            f"{tuple(q.shape)} and {tuple(k.shape)}"
        )
    if q.numel() == 0:
        raise ValueError(f"q is empty: {tuple(q.shape)}")
    if query_start < 0 or query_start + q.shape[2] > k.shape[2]:
        raise ValueError(
            f"queries at positions {query_start} to {query_start + q.shape[2] - 1} need as many "
            f"keys, got {k.shape[2]}"
        )
    if (sink_k is None) != (sink_v is None):
        raise ValueError("give both sink_k and sink_v, or neither")
    expected = (q.shape[1], q.shape[3])
    for name, sink in (("sink_k", sink_k), ("sink_v", sink_v)):
        if sink is not None and tuple(sink.shape) != expected:
            raise ValueError(
                f"{name} must be [heads, head_dim] = {expected}, got {tuple(sink.shape)}"
            )
    if episode_ids is not None and tuple(episode_ids.shape) != (k.shape[0], k.shape[2]):
        raise ValueError(
            f"episode_ids must be [batch, Tk] = {(k.shape[0], k.shape[2])}, "
            f"got {tuple(episode_ids.shape)}"
        )
    if window is not None and window < 1:
        raise ValueError(f"window must be at least 1, got {window}")


def _math(
    q: Tensor, k: Tensor, v: Tensor, sink_k: Tensor | None, sink_v: Tensor | None, span: _Span
) -> Tensor:
    """The equation as it is written; the reference for the fast forms."""
    wide = torch.promote_types(q.dtype, torch.float32)
    query = q.to(wide) / math.sqrt(q.shape[-1])
    scores = query @ k.to(wide).transpose(-1, -2)
    visible = span.mask(_Chunk(0, q.shape[2], 0, k.shape[2]), q.device)
    scores = scores.masked_fill(~visible, -math.inf)
    if sink_k is None or sink_v is None:
        return (scores.softmax(-1) @ v.to(wide)).to(q.dtype)
    sink_score = torch.einsum("bhtd,hd->bht", query, sink_k.to(wide))
    weights = torch.cat([sink_score[..., None], scores], dim=-1).softmax(-1)
    out = weights[..., 1:] @ v.to(wide) + weights[..., :1] * sink_v.to(wide)[None, :, None]
    return out.to(q.dtype)


def _square(
    q: Tensor, k: Tensor, v: Tensor, sink_k: Tensor | None, sink_v: Tensor | None
) -> Tensor:
    """As many queries as keys, no mask but causality: the plain causal kernel.

    The sink is the first key. A zero query before the first keeps the square causal and is
    dropped from the result.
    """
    if sink_k is None or sink_v is None:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)
    query = F.pad(q, (0, 0, 1, 0))
    key, value = _with_sink(k, sink_k), _with_sink(v, sink_v)
    return F.scaled_dot_product_attention(query, key, value, is_causal=True)[:, :, 1:]


def _with_sink(tokens: Tensor, sink: Tensor | None) -> Tensor:
    """The sink in front of `[batch, heads, time, head_dim]`."""
    if sink is None:
        return tokens
    batch, heads, _, size = tokens.shape
    first = sink.to(tokens.dtype)[None, :, None].expand(batch, heads, 1, size)
    return torch.cat([first, tokens], dim=2)


def _chunked(
    q: Tensor, k: Tensor, v: Tensor, sink_k: Tensor | None, sink_v: Tensor | None, span: _Span
) -> Tensor:
    """Explicit masks, a chunk of queries at a time, with the range of keys that those can see.

    `is_causal` aligns to the upper left when there are fewer queries than keys, so the mask is
    spelled out.
    """
    chunks = span.chunks(q.shape[2])
    # Where every chunk starts at key 0, the sink is put in front once, and all share the result.
    shared = all(chunk.low == 0 for chunk in chunks)
    if shared:
        k, v = _with_sink(k, sink_k), _with_sink(v, sink_v)
    sinks = 0 if sink_k is None else 1

    def attend(
        chunk: _Chunk, q: Tensor, k: Tensor, v: Tensor, sink_k: Tensor | None, sink_v: Tensor | None
    ) -> Tensor:
        low, high = chunk.low, chunk.high
        if shared:
            key, value = k[:, :, : sinks + high], v[:, :, : sinks + high]
        else:
            key = _with_sink(k[:, :, low:high], sink_k)
            value = _with_sink(v[:, :, low:high], sink_v)
        mask = F.pad(span.mask(chunk, q.device), (sinks, 0), value=True)
        query = q[:, :, chunk.first : chunk.last]
        return F.scaled_dot_product_attention(query, key, value, attn_mask=mask)

    if len(chunks) == 1:
        return attend(chunks[0], q, k, v, sink_k, sink_v)
    needs_gradient = any(
        tensor is not None and tensor.requires_grad for tensor in (q, k, v, sink_k, sink_v)
    )
    if not (torch.is_grad_enabled() and needs_gradient) or _kept(q, chunks, span) <= KEPT_NUMBERS:
        parts = [attend(chunk, q, k, v, sink_k, sink_v) for chunk in chunks]
        return torch.cat(parts, dim=2)
    parts = [
        checkpoint(
            attend, chunk, q, k, v, sink_k, sink_v, use_reentrant=False, preserve_rng_state=False
        )
        for chunk in chunks
    ]
    return torch.cat(parts, dim=2)


def _kept(q: Tensor, chunks: list[_Chunk], span: _Span) -> int:
    """Numbers in the masks, keys and values that a backward pass over the chunks would keep."""
    batch, heads, _, head_dim = q.shape
    keys = sum(chunk.high - chunk.low for chunk in chunks)
    masks = 1 if span.episode_ids is None else batch
    return keys * (masks * (chunks[0].last - chunks[0].first) + 2 * batch * heads * head_dim)
