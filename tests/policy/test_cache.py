"""The memory's own rules: cutting back, forgetting, rebuilding, rings, saving."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from embodied_icrl.policy import Policy
from embodied_icrl.policy.cache import Scratch
from tests.policy.test_parity import SPANS, act_through
from tests.policy.toy import make_batch, make_policy

ENVS, STEPS = 3, 20


@pytest.mark.parametrize("span", ["trial", "episode"])
@pytest.mark.parametrize("length", [0, 1, 7, 12])
def test_truncated_memory_continues_as_if_the_rest_had_never_been(span: str, length: int) -> None:
    policy = make_policy(rope="episode", **SPANS[span])
    batch = make_batch(policy, ENVS, STEPS)
    straight = policy.new_cache(ENVS, STEPS)
    _, _, expected = act_through(policy, batch, straight)
    cache = policy.new_cache(ENVS, STEPS)
    act_through(policy, batch, cache, 0, 12)
    cache.truncate(length)
    assert cache.length == length
    _, _, values = act_through(policy, batch, cache, length)
    torch.testing.assert_close(values, expected[:, length:], rtol=0, atol=1e-12)
    for name in ("episode", "episode_from", "visible_from"):
        assert torch.equal(getattr(cache, name), getattr(straight, name)), name


def test_reset_begins_a_new_trial() -> None:
    policy = make_policy(rope="episode", inter_episode=False)
    first, second = (make_batch(policy, ENVS, STEPS, seed=seed) for seed in (0, 1))
    cache = policy.new_cache(ENVS, STEPS)
    act_through(policy, first, cache)
    cache.forget([1])
    cache.reset()
    _, _, values = act_through(policy, second, cache)
    _, _, expected = act_through(policy, second, policy.new_cache(ENVS, STEPS))
    assert torch.equal(values, expected)


def test_a_full_cache_refuses() -> None:
    policy = make_policy()
    batch = make_batch(policy, ENVS, STEPS)
    cache = policy.new_cache(ENVS, 5)
    policy.prefill(batch.steps(0, 5), cache)
    with pytest.raises(ValueError, match=r"full: 5 \+ 1 tokens, capacity 5"):
        policy.act(batch.steps(5, 6), cache)
    with pytest.raises(ValueError, match="full"):
        policy.prefill(batch.steps(5, 7), cache)
    assert cache.length == 5


def test_bad_arguments() -> None:
    policy, windowed = make_policy(), make_policy(window=4)
    batch = make_batch(policy, ENVS, STEPS)
    with pytest.raises(ValueError, match="window"):
        policy.new_cache(ENVS, STEPS, ring=True)
    with pytest.raises(ValueError, match="capacity"):
        policy.new_cache(ENVS, 0)
    cache = policy.new_cache(ENVS, STEPS)
    policy.prefill(batch.steps(0, 6), cache)
    with pytest.raises(ValueError, match="can't cut a cache of 6 tokens to 7"):
        cache.truncate(7)
    with pytest.raises(ValueError, match="holds 6 tokens, not 7"):
        cache.past(7)
    with pytest.raises(ValueError, match=r"act takes \[3, 1\] tokens, got \[3, 2\]"):
        policy.act(batch.steps(6, 8), cache)
    with pytest.raises(ValueError, match="2 environments, the cache 3"):
        policy.prefill(batch.rows(slice(0, 2)), cache)
    ring = windowed.new_cache(ENVS, STEPS)
    assert ring.ring and ring.capacity == 4
    windowed.prefill(batch.steps(0, 6), ring)
    with pytest.raises(ValueError, match="ring=False"):
        ring.past(2)
    with pytest.raises(ValueError, match="kept only the newest 4"):
        ring.truncate(5)


def test_a_ring_is_chosen_only_where_the_window_is_shorter() -> None:
    policy = make_policy(window=8)
    assert not policy.new_cache(2, 8).ring
    assert policy.new_cache(2, 9).ring
    plain = policy.new_cache(2, 9, ring=False)
    assert not plain.ring and plain.capacity == 9


@pytest.mark.parametrize("span", SPANS.values(), ids=SPANS.keys())
@pytest.mark.parametrize("refill", [False, True], ids=["act", "prefill"])
def test_forgetting_equals_an_attention_span_without_those_tokens(
    span: dict[str, Any], refill: bool
) -> None:
    """Environment 1 forgets at token 9: as if its trial had begun there, the others as before.

    That is in the middle of an episode, so that forgetting is not what the episode hides anyway.
    """
    policy = make_policy(**span)
    batch = make_batch(policy, ENVS, STEPS)
    batch.episode_start[1, 8:10] = torch.tensor([True, False])
    _, _, remembering = act_through(policy, batch, policy.new_cache(ENVS, STEPS))
    late = batch.steps(9, STEPS)
    _, _, forgotten = act_through(policy, late, policy.new_cache(ENVS, STEPS))
    cache = policy.new_cache(ENVS, STEPS)
    policy.prefill(batch.steps(0, 9), cache)
    cache.forget(np.array([False, True, False]))
    if refill:
        values = policy.prefill(late, cache, chunk=4)
    else:
        values = act_through(policy, batch, cache, 9)[2]
    torch.testing.assert_close(values[1], forgotten[1], rtol=0, atol=1e-10)
    for other in (0, 2):
        torch.testing.assert_close(values[other], remembering[other, 9:], rtol=0, atol=1e-10)


def test_what_was_forgotten_stays_so_after_cutting_back() -> None:
    policy = make_policy()
    batch = make_batch(policy, ENVS, STEPS)
    cache = policy.new_cache(ENVS, STEPS)
    policy.prefill(batch.steps(0, 12), cache)
    cache.forget([1])
    cache.truncate(7)
    _, _, values = act_through(policy, batch, cache, 7)
    _, _, remembering = act_through(policy, batch, policy.new_cache(ENVS, STEPS))
    _, _, fresh = act_through(policy, batch.steps(7, STEPS), policy.new_cache(ENVS, STEPS))
    torch.testing.assert_close(values[1], fresh[1], rtol=0, atol=1e-10)
    torch.testing.assert_close(values[0], remembering[0, 7:], rtol=0, atol=1e-10)


def test_training_on_a_forgetful_past() -> None:
    policy = make_policy()
    batch = make_batch(policy, ENVS, STEPS)
    cache = policy.new_cache(ENVS, STEPS)
    policy.prefill(batch.steps(0, 9), cache)
    cache.forget([1])
    past = cache.past(9)
    actions, _, values = act_through(policy, batch, cache, 9)
    with torch.no_grad():
        _, _, trained = policy.evaluate_actions(batch.steps(9, STEPS), actions, past)
    torch.testing.assert_close(trained, values, rtol=0, atol=1e-10)


def test_forgetting_at_every_episode_is_the_episode_only_policy() -> None:
    whole, episodic = make_policy(), make_policy(inter_episode=False)
    batch = make_batch(whole, ENVS, STEPS)
    cache = whole.new_cache(ENVS, STEPS)
    values = []
    for step in range(STEPS):
        token = batch.steps(step, step + 1)
        cache.forget(token.episode_start[:, 0].numpy())
        values.append(whole.act(token, cache, deterministic=True)[2])
    _, _, expected = act_through(episodic, batch, episodic.new_cache(ENVS, STEPS))
    torch.testing.assert_close(torch.stack(values, dim=1), expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("span", SPANS.values(), ids=SPANS.keys())
def test_rebuilt_rows_continue_with_another_past(span: dict[str, Any]) -> None:
    policy = make_policy(rope="episode", **span)
    old, new = (make_batch(policy, ENVS, STEPS, seed=seed) for seed in (0, 1))
    rows = torch.tensor([2, 0])
    mixed = old.map(torch.clone)
    for mine, theirs in zip(tensors(mixed), tensors(new), strict=True):
        mine[rows, :12] = theirs[rows, :12]
    expected = policy.new_cache(ENVS, STEPS)
    expected_past = policy.prefill(mixed.steps(0, 12), expected)
    cache = policy.new_cache(ENVS, STEPS)
    policy.prefill(old.steps(0, 12), cache)
    cache.forget(rows)
    values = policy.rebuild_rows(new.steps(0, 12).rows(rows), cache, rows, chunk=5)
    torch.testing.assert_close(values, expected_past[rows], rtol=0, atol=1e-10)
    got, want = (act_through(policy, mixed, memory, 12, 15)[2] for memory in (cache, expected))
    torch.testing.assert_close(got, want, rtol=0, atol=1e-10)
    got, want = (policy.prefill(mixed.steps(15, STEPS), memory) for memory in (cache, expected))
    torch.testing.assert_close(got, want, rtol=0, atol=1e-10)
    with pytest.raises(ValueError, match=r"must be \[2, 20\]"):
        policy.rebuild_rows(new.steps(0, 12).rows(rows), cache, rows)


def tensors(batch: Any) -> list[torch.Tensor]:
    found: list[torch.Tensor] = []
    batch.map(lambda tensor: found.append(tensor) or tensor)
    return found


@pytest.mark.parametrize("span", ["trial", "ring, episode"])
def test_saved_memory_continues(span: str) -> None:
    policy = make_policy(rope="episode", **SPANS[span])
    batch = make_batch(policy, ENVS, STEPS)
    cache = policy.new_cache(ENVS, STEPS)
    act_through(policy, batch, cache, 0, 11)
    cache.forget([2])
    saved = {name: tensor.clone() for name, tensor in cache.state_dict().items()}
    loaded = policy.new_cache(ENVS, STEPS)
    loaded.load_state_dict(saved)
    got, want = (act_through(policy, batch, memory, 11)[2] for memory in (loaded, cache))
    assert torch.equal(got, want)
    with pytest.raises(ValueError, match="doesn't fit"):
        policy.new_cache(ENVS + 1, STEPS).load_state_dict(saved)


def test_the_memory_may_take_part_in_training_after_acting() -> None:
    policy = make_policy()
    batch = make_batch(policy, ENVS, STEPS)
    cache = policy.new_cache(ENVS, STEPS)
    actions, log_probs, _ = act_through(policy, batch, cache)
    new, _, value = policy.evaluate_actions(batch.steps(10, STEPS), actions[:, 10:], cache.past(10))
    ((new - log_probs[:, 10:]).exp() * value).sum().backward()
    assert policy.critic.weight.grad is not None


def allocated_bytes(policy: Policy, at: int, capacity: int) -> int:
    """Bytes that one `act` allocates on a memory of `at` tokens."""
    envs = 2
    cache = policy.new_cache(envs, capacity)
    cache.data.zero_()
    cache.append_id(torch.ones(envs, dtype=torch.bool))
    cache.length = at
    token = make_batch(policy, envs, 1)
    token.episode_start.fill_(False)
    policy.act(token, cache)
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
    ) as profile:
        policy.act(token, cache)
    return sum(
        max(0, event.nbytes()) for event in memory_events(profile.profiler.kineto_results.events())
    )


def memory_events(events: Any) -> list[Any]:
    return [event for event in events if event.name() == "[memory]"]


@pytest.mark.parametrize(
    "config", [{}, {"inter_episode": False}, {"cache_dtype": "float16"}], ids=str
)
def test_acting_allocates_nothing_that_grows_with_the_context(config: dict[str, Any]) -> None:
    policy = make_policy(dtype=torch.float32, **config)
    short = allocated_bytes(policy, 256, 5000)
    assert short > 0
    assert allocated_bytes(policy, 4096, 5000) == short


@pytest.mark.parametrize(
    ("device", "capacity", "numbers"),
    [
        ("cpu", 4096, 1 << 20),
        ("cpu", 100, 160 * 100 * 32),
        ("meta", 4096, 160 * 4096 * 32),
        ("meta", 65_537, 1 << 28),
    ],
)
def test_a_half_precision_memory_is_widened_in_few_blocks_off_the_cpu(
    device: str, capacity: int, numbers: int
) -> None:
    """Every block costs a GPU the start of two kernels, in every layer of every step."""
    data = torch.empty(1, 2, 20, 8, capacity, 32, dtype=torch.bfloat16, device=device)
    assert Scratch(data, torch.float32).wide.numel() == numbers
    assert Scratch(data, torch.bfloat16).wide.numel() == 0
