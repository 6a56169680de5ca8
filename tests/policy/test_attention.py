"""Sink attention against its equation, written out in loops, in value and gradient."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from embodied_icrl.policy import attention, sink_attention

BACKENDS = ("auto", "sdpa", "math")


@dataclass
class Inputs:
    q: Tensor
    k: Tensor
    v: Tensor
    sink_k: Tensor | None
    sink_v: Tensor | None

    def leaves(self) -> list[Tensor]:
        tensors = (self.q, self.k, self.v, self.sink_k, self.sink_v)
        return [tensor for tensor in tensors if tensor is not None and tensor.requires_grad]


def make_inputs(
    sink: str, queries: int, keys: int, *, batch: int = 2, heads: int = 2, size: int = 3
) -> Inputs:
    generator = torch.Generator().manual_seed(queries * 1000 + keys)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    q, k, v = (draw(batch, heads, n, size).requires_grad_() for n in (queries, keys, keys))
    if sink == "none":
        return Inputs(q, k, v, None, None)
    sink_k, sink_v = draw(heads, size) * 2, draw(heads, size) * 2
    if sink in ("v", "zero"):
        sink_k = torch.zeros_like(sink_k)
    if sink in ("k", "zero"):
        sink_v = torch.zeros_like(sink_v)
    # "token" hands over computed keys and values: to this function the same as "kv".
    sink_k.requires_grad_(sink in ("token", "kv", "k"))
    sink_v.requires_grad_(sink in ("token", "kv", "v"))
    return Inputs(q, k, v, sink_k, sink_v)


def equation(
    inputs: Inputs, query_start: int, episode_ids: Tensor | None, window: int | None
) -> Tensor:
    """One query and one key at a time: no matrix product, no softmax, no mask."""
    q, k, v = inputs.q, inputs.k, inputs.v
    root = math.sqrt(q.shape[3])
    outs = []
    for i in range(q.shape[2]):
        t = query_start + i
        total = torch.zeros(*q.shape[:2], 1, dtype=q.dtype)
        weighted = torch.zeros_like(q[:, :, 0])
        if inputs.sink_k is not None and inputs.sink_v is not None:
            share = ((q[:, :, i] * inputs.sink_k).sum(-1, keepdim=True) / root).exp()
            total, weighted = total + share, weighted + share * inputs.sink_v
        for j in range(t + 1):
            if window is not None and j <= t - window:
                continue
            share = ((q[:, :, i] * k[:, :, j]).sum(-1, keepdim=True) / root).exp()
            if episode_ids is not None:
                share = share * (episode_ids[:, j] == episode_ids[:, t])[:, None, None]
            total, weighted = total + share, weighted + share * v[:, :, j]
        outs.append(weighted / total)
    return torch.stack(outs, dim=2)


def gradients(out: Tensor, inputs: Inputs) -> list[Tensor]:
    weight = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view(out.shape)
    return list(torch.autograd.grad((out * weight).sum(), inputs.leaves()))


def assert_equal_to_equation(
    inputs: Inputs, backends: tuple[str, ...] = BACKENDS, **span: Any
) -> None:
    expected = equation(
        inputs, span.get("query_start", 0), span.get("episode_ids"), span.get("window")
    )
    expected_gradients = gradients(expected, inputs)
    for backend in backends:
        actual = sink_attention(
            inputs.q, inputs.k, inputs.v, inputs.sink_k, inputs.sink_v, backend=backend, **span
        )
        assert actual.shape == expected.shape and actual.dtype == expected.dtype
        torch.testing.assert_close(actual, expected, rtol=1e-12, atol=1e-12)
        for got, want in zip(gradients(actual, inputs), expected_gradients, strict=True):
            torch.testing.assert_close(got, want, rtol=1e-11, atol=1e-12)


EPISODES = torch.tensor([[0, 0, 0, 1, 1, 2, 2, 2], [0, 1, 1, 1, 1, 2, 3, 3]])


@pytest.mark.parametrize("sink", ["none", "token", "kv", "k", "v", "zero"])
@pytest.mark.parametrize("query_start", [0, 4, 7])
@pytest.mark.parametrize(
    "span",
    [{}, {"window": 3}, {"episode_ids": EPISODES}, {"window": 3, "episode_ids": EPISODES}],
    ids=["whole", "window", "episodes", "both"],
)
def test_equals_the_equation_in_value_and_gradient(
    sink: str, query_start: int, span: dict[str, Any]
) -> None:
    inputs = make_inputs(sink, queries=8 - query_start, keys=8)
    assert_equal_to_equation(inputs, query_start=query_start, **span)


@pytest.mark.parametrize("kept", [0, 1 << 30], ids=["rebuilt", "kept"])
@pytest.mark.parametrize("sink", ["none", "kv"])
@pytest.mark.parametrize(
    "span",
    [{}, {"window": 4}, {"episode_ids": EPISODES}, {"episode_ids": EPISODES, "window": 2}],
    ids=["whole", "window", "episodes", "both"],
)
def test_chunks_change_nothing(
    monkeypatch: pytest.MonkeyPatch, sink: str, span: dict[str, Any], kept: int
) -> None:
    monkeypatch.setattr(attention, "QUERY_CHUNK", 3)
    monkeypatch.setattr(attention, "NARROW_CHUNK", 2)
    monkeypatch.setattr(attention, "KEPT_NUMBERS", kept)
    for query_start in (0, 3):
        inputs = make_inputs(sink, queries=8 - query_start, keys=8)
        assert_equal_to_equation(inputs, ("sdpa",), query_start=query_start, **span)


@settings(max_examples=40)
@given(data=st.data())
def test_any_shape_span_and_order_of_episodes(data: st.DataObject) -> None:
    keys = data.draw(st.integers(1, 9), "keys")
    query_start = data.draw(st.integers(0, keys - 1), "query_start")
    # Keys after the last query may be there: nobody sees them.
    queries = data.draw(st.integers(1, keys - query_start), "queries")
    window = data.draw(st.none() | st.integers(1, keys + 2), "window")
    numbers = st.lists(st.integers(-2, 3), min_size=2 * keys, max_size=2 * keys)
    ids = data.draw(st.none() | numbers, "episode ids, in any order")
    episode_ids = None if ids is None else torch.tensor(ids).view(2, keys)
    inputs = make_inputs(data.draw(st.sampled_from(["none", "kv"]), "sink"), queries, keys)
    assert_equal_to_equation(
        inputs, query_start=query_start, window=window, episode_ids=episode_ids
    )


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("query_start", [0, 5])
@pytest.mark.parametrize(
    "span", [{}, {"window": 4}, {"episode_ids": EPISODES}], ids=["whole", "window", "episodes"]
)
def test_the_past_does_not_change_with_the_future(
    backend: str, query_start: int, span: dict[str, Any]
) -> None:
    inputs = make_inputs("kv", queries=8 - query_start, keys=8)
    cut = 6 - query_start

    def past(changed: Inputs) -> tuple[Tensor, list[Tensor]]:
        out = sink_attention(
            changed.q,
            changed.k,
            changed.v,
            changed.sink_k,
            changed.sink_v,
            query_start=query_start,
            backend=backend,
            **span,
        )[:, :, :cut]
        return out, gradients(out, changed)

    before, before_gradients = past(inputs)
    with torch.no_grad():
        future = make_inputs("kv", queries=8 - query_start, keys=8)
        future.q[:, :, cut:] += 7.0
        future.k[:, :, 6:] -= 5.0
        future.v[:, :, 6:] *= -3.0
    after, after_gradients = past(future)
    torch.testing.assert_close(after, before, rtol=0, atol=1e-14)
    for got, want in zip(after_gradients, before_gradients, strict=True):
        torch.testing.assert_close(got, want, rtol=0, atol=1e-13)
    _, k_gradient, v_gradient, *_ = after_gradients
    assert not k_gradient[:, :, 6:].any() and not v_gradient[:, :, 6:].any()


def test_a_query_with_the_sink_alone_in_its_window_still_sees_the_sink() -> None:
    inputs = make_inputs("kv", queries=6, keys=6)
    out = sink_attention(inputs.q, inputs.k, inputs.v, inputs.sink_k, inputs.sink_v, window=1)
    assert inputs.sink_k is not None and inputs.sink_v is not None
    score = torch.einsum("bhtd,hd->bht", inputs.q, inputs.sink_k) / math.sqrt(3)
    own = (inputs.q * inputs.k).sum(-1) / math.sqrt(3)
    share = torch.sigmoid(score - own)[..., None]
    expected = share * inputs.sink_v[None, :, None] + (1 - share) * inputs.v
    torch.testing.assert_close(out, expected, rtol=1e-12, atol=1e-12)


def test_an_empty_sink_is_softmax_plus_one() -> None:
    inputs = make_inputs("zero", queries=1, keys=1)
    out = sink_attention(inputs.q, inputs.k, inputs.v, inputs.sink_k, inputs.sink_v)
    own = ((inputs.q * inputs.k).sum(-1, keepdim=True) / math.sqrt(3)).exp()
    torch.testing.assert_close(out, own / (1 + own) * inputs.v)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("query_start", [0, 4])
def test_lower_precision_stays_close(dtype: torch.dtype, query_start: int, backend: str) -> None:
    inputs = make_inputs("kv", queries=10 - query_start, keys=10)
    expected = equation(inputs, query_start, None, None)
    low = [tensor.to(dtype) for tensor in (inputs.q, inputs.k, inputs.v)]
    # The sink stays in the weights' type, as under autocast.
    out = sink_attention(
        *low, inputs.sink_k, inputs.sink_v, query_start=query_start, backend=backend
    )
    assert out.dtype == dtype
    bound = {torch.float32: 1e-6, torch.bfloat16: 5e-2, torch.float16: 5e-3}[dtype]
    assert (out.double() - expected).abs().max() < bound


def test_autocast() -> None:
    inputs = make_inputs("kv", queries=6, keys=10)
    q, k, v = (tensor.float() for tensor in (inputs.q, inputs.k, inputs.v))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = sink_attention(q, k, v, inputs.sink_k, inputs.sink_v, query_start=4)
        exact = sink_attention(q, k, v, inputs.sink_k, inputs.sink_v, query_start=4, backend="math")
    assert (out.double() - equation(inputs, 4, None, None)).abs().max() < 5e-2
    assert exact.dtype == torch.float32
    assert (exact.double() - equation(inputs, 4, None, None)).abs().max() < 1e-6


@pytest.mark.parametrize("span", ["short episodes", "one long episode", "window", "past"])
def test_memory_of_masked_attention_grows_with_the_context_not_its_square(
    monkeypatch: pytest.MonkeyPatch, span: str
) -> None:
    monkeypatch.setattr(attention, "KEPT_NUMBERS", 1 << 20)

    def kept(length: int) -> int:
        start = length if span == "past" else 0
        q, k, v = (
            torch.randn(1, 1, n, 4, requires_grad=True) for n in [length] + 2 * [start + length]
        )
        ids = (torch.arange(length) // (50 if span == "short episodes" else length))[None]
        storages: dict[int, torch.UntypedStorage] = {}

        def keep(tensor: Tensor) -> Tensor:
            storages[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            sink_attention(
                q,
                k,
                v,
                None,
                None,
                query_start=start,
                episode_ids=ids if "episode" in span else None,
                window=60 if span == "window" else None,
            )
        return sum(storage.nbytes() for storage in storages.values())

    assert kept(3072) < 2.5 * kept(1536)


BAD = {
    "three axes": ({"q": torch.zeros(2, 3, 4)}, "must be"),
    "k unlike v": ({"v": torch.zeros(2, 2, 5, 4)}, "one shape"),
    "other heads": ({"q": torch.zeros(2, 3, 6, 4)}, "agree"),
    "other size": ({"q": torch.zeros(2, 2, 6, 5)}, "agree"),
    "no queries": ({"q": torch.zeros(2, 2, 0, 4)}, "empty"),
    "too few keys": ({"query_start": 1}, "need as many keys"),
    "before the start": ({"query_start": -1}, "need as many keys"),
    "half a sink": ({"sink_v": None}, "both"),
    "sink of one head": ({"sink_k": torch.zeros(4)}, "sink_k"),
    "window of nothing": ({"window": 0}, "window"),
    "ids of queries only": ({"episode_ids": torch.zeros(2, 5)}, "episode_ids"),
    "unknown backend": ({"backend": "flex"}, "backend"),
}


@pytest.mark.parametrize(("change", "message"), BAD.values(), ids=BAD.keys())
def test_bad_input(change: dict[str, Any], message: str) -> None:
    arguments: dict[str, Any] = {name: torch.zeros(2, 2, 6, 4) for name in "qkv"}
    arguments.update(sink_k=torch.zeros(2, 4), sink_v=torch.zeros(2, 4))
    with pytest.raises(ValueError, match=message):
        sink_attention(**{**arguments, **change})
