"""Causal attention with a sink key and value (ReLIC, arXiv 2410.02751).

For a query q_t, visible keys k_j and values v_j, and the sink's k_s and v_s:

    o_t = (exp(q_t.k_s / sqrt(d)) v_s + sum_j exp(q_t.k_j / sqrt(d)) v_j)
          / (exp(q_t.k_s / sqrt(d)) + sum_j exp(q_t.k_j / sqrt(d)))

The sink belongs to no time step and is visible to every query, whatever the window or episode.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

QUERY_CHUNK = 512
"""Queries per masked kernel call: bounds the mask to 512 rows, whatever the context."""


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
        return _math(q, k, v, sink_k, sink_v, span)
    if backend not in ("auto", "sdpa"):
        raise ValueError(f"unknown attention backend {backend!r}; use auto, sdpa or math")
    if query_start == 0 and q.shape[2] == k.shape[2] and span.sees_whole_past(k.shape[2]):
        return _square(q, k, v, sink_k, sink_v)
    return _chunked(q, k, v, sink_k, sink_v, span)


@dataclass(frozen=True)
class _Span:
    """Which positions a query sees."""

    query_start: int
    episode_ids: Tensor | None
    window: int | None

    def sees_whole_past(self, length: int) -> bool:
        return self.episode_ids is None and (self.window is None or self.window >= length)

    def mask(self, first: int, last: int, low: int, high: int, device: torch.device) -> Tensor:
        """True where query `first..last` sees key `low..high`: `[1 or batch, 1, Tq, Tk]`."""
        position = torch.arange(first, last, device=device)[:, None] + self.query_start
        key = torch.arange(low, high, device=device)[None, :]
        visible = key <= position
        if self.window is not None:
            visible &= key > position - self.window
        if self.episode_ids is None:
            return visible[None, None]
        of_query = self.episode_ids[:, self.query_start + first : self.query_start + last]
        same = of_query[:, :, None] == self.episode_ids[:, None, low:high]
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
    visible = span.mask(0, q.shape[2], 0, k.shape[2], q.device)
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
    """Explicit masks, `QUERY_CHUNK` queries at a time, with the keys that those can see.

    `is_causal` aligns to the upper left when there are fewer queries than keys, so the mask is
    spelled out. Masks of several chunks are rebuilt in the backward pass, not kept: kept, they
    would take memory that grows with the square of the context.
    """
    total = q.shape[2]
    sinks = 0 if sink_k is None else 1
    # The sink is put in front once where all chunks start at key 0, so that they share memory.
    shared = span.window is None
    if shared:
        k, v = _with_sink(k, sink_k), _with_sink(v, sink_v)

    def attend(first: int, q: Tensor, k: Tensor, v: Tensor, *sink: Tensor | None) -> Tensor:
        last = min(first + QUERY_CHUNK, total)
        high = span.query_start + last
        low = 0 if span.window is None else max(0, span.query_start + first + 1 - span.window)
        if shared:
            key, value = k[:, :, : sinks + high], v[:, :, : sinks + high]
        else:
            key = _with_sink(k[:, :, low:high], sink[0])
            value = _with_sink(v[:, :, low:high], sink[1])
        mask = F.pad(span.mask(first, last, low, high, q.device), (sinks, 0), value=True)
        return F.scaled_dot_product_attention(q[:, :, first:last], key, value, attn_mask=mask)

    if total <= QUERY_CHUNK:
        return attend(0, q, k, v, sink_k, sink_v)
    rebuild = torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad)
    chunks = []
    for first in range(0, total, QUERY_CHUNK):
        if rebuild:
            chunks.append(
                checkpoint(
                    attend,
                    first,
                    q,
                    k,
                    v,
                    sink_k,
                    sink_v,
                    use_reentrant=False,
                    preserve_rng_state=False,
                )
            )
        else:
            chunks.append(attend(first, q, k, v, sink_k, sink_v))
    return torch.cat(chunks, dim=2)
