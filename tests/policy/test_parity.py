"""Stepping with the cache, filling it in chunks and one full forward give the same numbers."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from embodied_icrl.policy import KVCache, Policy, StepBatch
from tests.policy.toy import SINKS, TOLERANCE, make_batch, make_policy, random_actions

ENVS, STEPS = 3, 20
SPANS: dict[str, dict[str, Any]] = {
    "trial": {},
    "episode": {"inter_episode": False},
    "ring": {"window": 6},
    "wide window": {"window": 50},
    "ring, episode": {"window": 6, "inter_episode": False},
}


DEVICES = [
    "cpu",
    pytest.param(
        "cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
    ),
]


def act_through(
    policy: Policy, batch: StepBatch, cache: KVCache, first: int = 0, last: int | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Actions, log-probabilities and values `[env, step]` of acting on tokens `first:last`."""
    generator = torch.Generator(policy.device).manual_seed(3)
    steps = range(first, batch.shape[1] if last is None else last)
    results = [policy.act(batch.steps(t, t + 1), cache, generator) for t in steps]
    actions, log_probs, values = (torch.stack(part, dim=1) for part in zip(*results, strict=True))
    return actions, log_probs, values


def assert_steps_equal_forward(policy: Policy, envs: int = ENVS, steps: int = STEPS) -> None:
    batch = make_batch(policy, envs, steps)
    actions, log_probs, values = act_through(policy, batch, policy.new_cache(envs, steps))
    with torch.no_grad():
        expected, _, expected_values = policy.evaluate_actions(batch, actions)
    tolerance = TOLERANCE[values.dtype]
    assert (log_probs - expected).abs().max() <= tolerance
    assert (values - expected_values).abs().max() <= tolerance


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("span", SPANS.values(), ids=SPANS.keys())
@pytest.mark.parametrize("sink", SINKS)
def test_acting_equals_the_full_forward_at_every_step(
    sink: str, span: dict[str, Any], dtype: torch.dtype, device: str
) -> None:
    for attention in ("sdpa", "math"):
        policy = make_policy(dtype=dtype, sink=sink, attention=attention, **span)
        assert_steps_equal_forward(policy.to(device))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("span", SPANS.values(), ids=SPANS.keys())
def test_the_number_format_for_gpus_is_close(span: dict[str, Any], device: str) -> None:
    """All that the experiments with pictures combine: autocast, half-precision memory, rotary
    positions and a sink's key."""
    pictures = spaces.Dict(
        {"camera": spaces.Box(0, 255, (16, 16, 3), np.uint8), "target": spaces.Discrete(4)}
    )
    policy = make_policy(
        dtype=torch.float32, observations=pictures, sink="k", rope="episode",
        cache_dtype="bfloat16", **span,
    ).to(device)  # fmt: skip
    batch = make_batch(policy, ENVS, STEPS)
    batch.stored["camera"] *= 60
    cache = policy.new_cache(ENVS, STEPS)
    with torch.autocast(device, torch.bfloat16), torch.no_grad():
        actions, *acted = act_through(policy, batch, cache)
        refilled = policy.prefill(batch, policy.new_cache(ENVS, STEPS), chunk=7)
        log_prob, _, value = policy.evaluate_actions(batch, actions)
    with torch.no_grad():
        exact_log_prob, _, exact_value = policy.evaluate_actions(batch, actions)
    assert cache.data.dtype == torch.bfloat16
    for got, want in (
        (acted[0], exact_log_prob), (log_prob, exact_log_prob),
        (acted[1], exact_value), (refilled, exact_value), (value, exact_value),
    ):  # fmt: skip
        assert got.dtype == torch.float32
        assert 0 < (got - want).abs().max() < 0.1  # about 0.02 of values between -4 and 4


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("rope", ["episode", "trial"])
def test_with_rotary_positions(rope: str, dtype: torch.dtype) -> None:
    for span, sink in itertools.product(SPANS.values(), ("none", "token", "kv")):
        assert_steps_equal_forward(make_policy(dtype=dtype, rope=rope, sink=sink, **span))


@settings(max_examples=25)
@given(data=st.data())
def test_any_mix_of_filling_and_acting(data: st.DataObject) -> None:
    span = data.draw(st.sampled_from(list(SPANS.values())), "span")
    rope = data.draw(st.sampled_from(["none", "episode", "trial"]), "rope")
    policy = make_policy(rope=rope, sink=data.draw(st.sampled_from(SINKS), "sink"), **span)
    batch = make_batch(policy, ENVS, STEPS)
    with torch.no_grad():
        _, _, expected = policy.evaluate_actions(batch, policy.empty_actions(ENVS, STEPS) + 1)
    cache = policy.new_cache(ENVS, STEPS)
    values, first = [], 0
    while first < STEPS:
        last = first + data.draw(st.integers(1, STEPS - first), "tokens")
        if data.draw(st.booleans(), "act"):
            values.append(act_through(policy, batch, cache, first, last)[2])
        else:
            chunk = data.draw(st.integers(1, 9), "chunk")
            rows = data.draw(st.none() | st.integers(1, ENVS), "rows per group")
            values.append(policy.prefill(batch.steps(first, last), cache, chunk, rows))
        first = last
    assert cache.length == STEPS
    assert (torch.cat(values, dim=1) - expected).abs().max() <= 1e-10


@pytest.mark.parametrize("span", SPANS.values(), ids=SPANS.keys())
@pytest.mark.parametrize(
    ("sink", "rope"), [("none", "trial"), ("token", "episode"), ("kv", "none")]
)
def test_a_constant_past_gives_the_full_forward_s_numbers(
    sink: str, rope: str, span: dict[str, Any]
) -> None:
    policy = make_policy(sink=sink, rope=rope, **span)
    batch = make_batch(policy, ENVS, STEPS)
    actions = random_actions(policy, ENVS, STEPS, torch.Generator().manual_seed(1))
    full = torch.stack(policy.evaluate_actions(batch, actions))
    cache = policy.new_cache(ENVS, STEPS, ring=False)
    policy.prefill(batch, cache, chunk=7)
    rows = torch.tensor([2, 0])
    for start in (0, 1, 9, STEPS - 1):
        rest = batch.steps(start, STEPS)
        part = torch.stack(policy.evaluate_actions(rest, actions[:, start:], cache.past(start)))
        assert (part - full[:, :, start:]).abs().max() <= 1e-10
        some = policy.evaluate_actions(
            rest.rows(rows), actions[rows, start:], cache.past(start, rows)
        )
        assert (torch.stack(some) - full[:, rows, start:]).abs().max() <= 1e-10


def test_no_gradient_flows_into_a_constant_past() -> None:
    """Embeddings that only past tokens use get none; in a full forward they do."""
    policy = make_policy(layers=1)
    batch = make_batch(policy, ENVS, STEPS)
    actions = random_actions(policy, ENVS, STEPS, torch.Generator().manual_seed(1))
    cache = policy.new_cache(ENVS, STEPS)
    policy.prefill(batch, cache)
    start = 8

    def lookup_gradient(past: bool) -> Tensor:
        policy.zero_grad()
        rest = batch.steps(start, STEPS) if past else batch
        out = policy.evaluate_actions(
            rest, actions[:, start:] if past else actions, cache.past(start) if past else None
        )
        out[2][:, -1].sum().backward()
        gradient = policy.encoder.lookup.grad
        assert gradient is not None
        return gradient.clone()

    detached = lookup_gradient(past=True)
    used = torch.unique(policy.encoder._indices(batch.steps(start, STEPS)))
    unused = torch.ones(len(detached), dtype=torch.bool)
    unused[used] = False
    assert not detached[unused].any(), "a gradient for an embedding that only the past has"
    assert not torch.allclose(detached, lookup_gradient(past=False))


def outputs_and_gradient(policy: Policy, batch: StepBatch, steps: int) -> tuple[Tensor, Tensor]:
    """What `evaluate_actions` says of the first steps, and every weight's gradient from it."""
    policy.zero_grad()
    actions = policy.empty_actions(*batch.shape) + 2
    out = torch.stack(policy.evaluate_actions(batch, actions))[:, :, :steps]
    out.sum().backward()
    grads = [p.grad.flatten() for p in policy.parameters() if p.grad is not None]
    return out.detach(), torch.cat(grads)


def test_the_future_changes_nothing_in_the_past() -> None:
    for span, sink, rope in itertools.product(SPANS.values(), ("kv", "token"), ("none", "episode")):
        policy = make_policy(sink=sink, rope=rope, **span)
        batch = make_batch(policy, ENVS, STEPS)
        changed = make_batch(policy, ENVS, STEPS)
        for tensor in (changed.prev_reward, changed.stored["speed"]):
            tensor[:, 12:] += 3.0
        changed.stored["cell"][:, 12:] = 0
        changed.terminal[:, 12:] = True
        before = outputs_and_gradient(policy, batch, 12)
        after = outputs_and_gradient(policy, changed, 12)
        torch.testing.assert_close(after[0], before[0], rtol=0, atol=1e-12)
        torch.testing.assert_close(after[1], before[1], rtol=0, atol=1e-11)


@pytest.mark.parametrize("span", ["ring", "ring, episode"])
def test_a_window_on_a_cache_that_keeps_everything(span: str) -> None:
    policy = make_policy(rope="trial", **SPANS[span])
    batch = make_batch(policy, ENVS, STEPS)
    whole, ring = policy.new_cache(ENVS, STEPS, ring=False), policy.new_cache(ENVS, STEPS)
    assert ring.ring and not whole.ring
    _, _, expected = act_through(policy, batch, ring)
    _, _, values = act_through(policy, batch, whole)
    torch.testing.assert_close(values, expected, rtol=0, atol=1e-10)


def test_a_context_longer_than_the_ring_and_than_any_capacity() -> None:
    policy = make_policy(window=5)
    batch = make_batch(policy, 2, 60)
    actions, _, values = act_through(policy, batch, policy.new_cache(2, 5, ring=True))
    with torch.no_grad():
        _, _, expected = policy.evaluate_actions(batch, actions)
    assert (values - expected).abs().max() <= 1e-10


@pytest.mark.parametrize(
    ("cache_dtype", "bound"), [("float16", 0.01), ("bfloat16", 0.08)], ids=["float16", "bfloat16"]
)
@pytest.mark.parametrize("span", SPANS.values(), ids=SPANS.keys())
def test_half_precision_memory_is_close(
    cache_dtype: str, bound: float, span: dict[str, Any]
) -> None:
    """Keys and values are rounded to 11 or 8 bits; all else is float32. Bounds: 5 to 10 times."""
    policy = make_policy(dtype=torch.float32, cache_dtype=cache_dtype, **span)
    batch = make_batch(policy, ENVS, STEPS)
    cache = policy.new_cache(ENVS, STEPS)
    assert str(cache.data.dtype) == f"torch.{cache_dtype}"
    actions, log_probs, values = act_through(policy, batch, cache)
    with torch.no_grad():
        expected, _, expected_values = policy.evaluate_actions(batch, actions)
    difference = max((log_probs - expected).abs().max(), (values - expected_values).abs().max())
    assert 0 < difference < bound
    refilled = policy.new_cache(ENVS, STEPS)
    assert (policy.prefill(batch, refilled, chunk=3) - expected_values).abs().max() < bound


def test_half_precision_memory_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = make_policy(dtype=torch.float32, cache_dtype="float16")
    batch = make_batch(policy, ENVS, STEPS)
    whole = act_through(policy, batch, policy.new_cache(ENVS, STEPS))
    monkeypatch.setattr("embodied_icrl.policy.cache.CONVERSION_BLOCK", 1)
    cache = policy.new_cache(ENVS, STEPS)
    assert cache.scratch.wide.numel() == STEPS * policy.config.head_dim, "one row at a time"
    blocks = act_through(policy, batch, cache)
    for got, want in zip(blocks, whole, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-6, atol=1e-6)


def test_the_sink_token_follows_the_weights_at_once() -> None:
    policy = make_policy(sink="token")
    batch = make_batch(policy, ENVS, STEPS)
    cache = policy.new_cache(ENVS, STEPS)
    before = policy.act(batch.steps(0, 1), cache)[2]
    with torch.no_grad():
        assert policy.transformer.sink_token is not None
        policy.transformer.sink_token += torch.linspace(-2, 2, policy.config.width)
    cache.reset()
    after = policy.act(batch.steps(0, 1), cache)[2]
    with torch.no_grad():
        _, _, expected = policy.evaluate_actions(batch, policy.empty_actions(ENVS, STEPS) + 1)
    assert (after - expected[:, 0]).abs().max() <= 1e-10
    assert (after - before).abs().max() > 1e-3


def test_the_sink_token_reads_no_other_token() -> None:
    """Put in front of a sequence as a token proper, seen by all, it gives the same features."""
    policy = make_policy(sink="token")
    transformer = policy.transformer
    x = torch.randn(1, 7, policy.config.width, dtype=torch.float64)
    from embodied_icrl.policy.transformer import Span

    with torch.no_grad():
        expected = transformer(x, Span())
        token, transformer.sink_token = transformer.sink_token, None
        assert token is not None
        joined = transformer(torch.cat([token.view(1, 1, -1), x], dim=1), Span())[:, 1:]
    torch.testing.assert_close(joined, expected, rtol=1e-10, atol=1e-10)
