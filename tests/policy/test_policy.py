"""The policy as the trainer, the evaluation and a checkpoint see it."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from embodied_icrl.common.config import build
from embodied_icrl.common.errors import ConfigError
from embodied_icrl.policy import Policy, PolicyConfig
from embodied_icrl.policy.spaces import describe_space, space_from_description
from tests.policy.test_parity import act_through, assert_steps_equal_forward
from tests.policy.toy import OBSERVATIONS, make_batch, make_policy, random_actions

ACTIONS = {
    "discrete": spaces.Discrete(5, start=-2),
    "multi": spaces.MultiDiscrete([3, 4], start=[1, 0]),
    "box": spaces.Box(np.float32([[0, -2]]), np.float32([[10, np.inf]])),
}


@pytest.mark.parametrize("actions", ACTIONS.values(), ids=ACTIONS.keys())
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
def test_every_action_space(actions: spaces.Space[Any], dtype: torch.dtype) -> None:
    policy = make_policy(actions=actions, dtype=dtype)
    assert_steps_equal_forward(policy)
    batch = make_batch(policy, 3, 6)
    taken, log_prob, value = act_through(policy, batch, policy.new_cache(3, 6))
    assert log_prob.dtype == value.dtype == dtype
    assert taken.shape == policy.empty_actions(3, 6).shape
    for step in range(6):
        for action in policy.to_env_action(taken[:, step]):
            assert actions.contains(actions.dtype.type(action) if action.ndim == 0 else action)
    out = policy.evaluate_actions(batch, taken)
    assert all(part.shape == (3, 6) and part.dtype == dtype for part in out)


@pytest.mark.parametrize("actions", ACTIONS.values(), ids=ACTIONS.keys())
def test_an_oracle_s_actions_there_and_back(actions: spaces.Space[Any]) -> None:
    policy = make_policy(actions=actions)
    actions.seed(0)
    raw = np.stack([actions.sample() for _ in range(7)])
    stored = policy.from_env_action(raw)
    assert stored.shape == policy.empty_actions(7).shape
    assert stored.dtype == policy.empty_actions(7).dtype
    np.testing.assert_array_equal(policy.to_env_action(stored), raw)


def test_boxes_are_clipped_and_the_given_action_is_left_alone() -> None:
    policy = make_policy(actions=ACTIONS["box"])
    action = torch.tensor([[-5.0, 3.0], [20.0, -7.0]])
    assert policy.to_env_action(action).tolist() == [[[0.0, 3.0]], [[10.0, -2.0]]]
    assert action.tolist() == [[-5.0, 3.0], [20.0, -7.0]]
    shifted = make_policy(actions=ACTIONS["discrete"])
    chosen = torch.tensor([0, 4])
    assert shifted.to_env_action(chosen).tolist() == [-2, 2] and chosen.tolist() == [0, 4]


@pytest.mark.parametrize("sink", ["none", "token", "kv", "k", "v", "zero"])
def test_sinks_start_at_zero_and_only_trained_ones_are_parameters(sink: str) -> None:
    policy = Policy(PolicyConfig(sink=sink), OBSERVATIONS, spaces.Discrete(3), 5)
    trained = {name.split(".")[-1] for name, _ in policy.named_parameters() if "sink" in name}
    expected = {
        "none": set(),
        "token": {"sink_token"},
        "kv": {"sink_key", "sink_value"},
        "k": {"sink_key"},
        "v": {"sink_value"},
        "zero": set(),
    }[sink]
    assert trained == expected
    if sink in ("none", "token"):
        return
    for pair in policy.transformer.sinks():
        assert pair is not None
        for tensor in pair:
            assert tensor.shape == (4, 16) and not tensor.any()


def test_trained_sinks_get_a_gradient_from_the_first_update() -> None:
    torch.manual_seed(0)
    policy = Policy(PolicyConfig(), OBSERVATIONS, spaces.Discrete(5), 12)
    batch = make_batch(policy, 3, 10)
    actions = random_actions(policy, 3, 10, torch.Generator().manual_seed(0))
    log_prob, _, value = policy.evaluate_actions(batch, actions)
    (log_prob + value).sum().backward()
    for name, parameter in policy.named_parameters():
        if "sink" in name:
            assert parameter.grad is not None and parameter.grad.abs().max() > 0, name


def test_depth_dropout_acts_in_the_update_only() -> None:
    policy = make_policy(depth_dropout=0.5)
    batch = make_batch(policy, 40, 4)
    actions = random_actions(policy, 40, 4, torch.Generator().manual_seed(0))
    plain = policy.evaluate_actions(batch, actions)[2]
    policy.train()
    values = act_through(policy, batch, policy.new_cache(40, 4))[2]
    torch.testing.assert_close(values, plain)
    torch.testing.assert_close(policy.prefill(batch, policy.new_cache(40, 4)), plain)
    before = torch.get_rng_state()
    one, two, other = (
        policy.evaluate_actions(batch, actions, generator=torch.Generator().manual_seed(seed))[2]
        for seed in (5, 5, 6)
    )
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(one, two) and not torch.allclose(one, other)
    # Both layers of some environment are skipped: what remains is the token itself.
    bare = policy.critic(policy.transformer.norm(policy.encoder(batch))).squeeze(-1)
    skipped = torch.isclose(one, bare).all(dim=1).sum().item()
    assert 2 <= skipped <= 20, "about a quarter of 40"


def test_depth_dropout_keeps_the_expected_contribution() -> None:
    policy = make_policy(depth_dropout=0.3, layers=1)
    policy.train()
    x = torch.ones(20_000, 1, 1)
    keep = policy.transformer._keep(x, torch.Generator().manual_seed(0))
    assert sorted(set(keep.flatten().tolist())) == pytest.approx([0.0, 1 / 0.7])
    assert keep.mean() == pytest.approx(1.0, abs=0.02)


def test_numbers_are_float32_under_autocast() -> None:
    policy = make_policy(dtype=torch.float32)
    batch = make_batch(policy, 3, 10)
    actions, _, _ = act_through(policy, batch, policy.new_cache(3, 10))
    exact = policy.evaluate_actions(batch, actions)
    cache = policy.new_cache(3, 10)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rounded = policy.evaluate_actions(batch, actions)
        _, acted, value = act_through(policy, batch, cache)
        past = policy.evaluate_actions(batch.steps(4, 10), actions[:, 4:], cache.past(4))
    for got, want in zip((*rounded, acted, value), (*exact, *exact[::2]), strict=True):
        assert got.dtype == torch.float32
        assert (got - want).abs().max() < 0.15
        assert not torch.equal(got, want)
    assert (past[2] - exact[2][:, 4:]).abs().max() < 0.15
    sum(part.sum() for part in rounded).backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in policy.parameters())


def test_acting_is_repeatable_and_draws_nothing_global() -> None:
    policy = make_policy()
    batch = make_batch(policy, 3, 12)
    before = torch.get_rng_state()
    one, two = (act_through(policy, batch, policy.new_cache(3, 12)) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True))
    assert torch.equal(torch.get_rng_state(), before)
    assert len(set(one[0].flatten().tolist())) > 1


def test_an_environment_s_numbers_do_not_depend_on_its_neighbours() -> None:
    policy = make_policy()
    batch = make_batch(policy, 4, 8)
    alone = batch.rows(slice(2, 3))
    _, _, together = act_through(policy, batch, policy.new_cache(4, 8))
    _, _, single = act_through(policy, alone, policy.new_cache(1, 8))
    torch.testing.assert_close(together[2:3], single, rtol=0, atol=1e-12)


def test_a_description_makes_the_same_policy() -> None:
    policy = make_policy(
        dtype=torch.float32, actions=ACTIONS["box"], sink="token", rope="trial", window=7
    )
    text = json.dumps(policy.describe(), allow_nan=False)
    again = Policy.from_description(json.loads(text)).eval()
    assert again.config == policy.config
    assert again.observation_space == policy.observation_space
    assert again.action_space == policy.action_space
    again.load_state_dict(policy.state_dict())
    batch = make_batch(policy, 2, 9)
    got, want = (act_through(each, batch, each.new_cache(2, 9)) for each in (again, policy))
    assert all(torch.equal(a, b) for a, b in zip(got, want, strict=True))


SHAPES = hnp.array_shapes(max_dims=3, max_side=4)


@st.composite
def boxes(draw: st.DrawFn) -> spaces.Box:
    shape = draw(SHAPES)
    if draw(st.booleans()):
        return spaces.Box(0, 255, shape, np.uint8)
    bounds = st.floats(-1e6, 1e6, width=32) | st.just(-np.inf)
    low = draw(hnp.arrays(np.float32, shape, elements=bounds))
    return spaces.Box(low, np.where(low < 0, np.float32(np.inf), low + 1), dtype=np.float32)


@st.composite
def multi_discretes(draw: st.DrawFn) -> spaces.MultiDiscrete:
    nvec = draw(hnp.arrays(np.int64, SHAPES, elements=st.integers(1, 50)))
    return spaces.MultiDiscrete(nvec, start=nvec - draw(st.integers(0, 60)))


SPACES = (
    boxes()
    | multi_discretes()
    | st.builds(
        lambda n, start, dtype: spaces.Discrete(n, start=start, dtype=dtype),
        st.integers(1, 9),
        st.integers(-99, 99),
        st.sampled_from([np.int64, np.int8]),
    )
    | st.builds(spaces.MultiBinary, SHAPES)
)


@settings(max_examples=50)
@given(inner=st.dictionaries(st.text(min_size=1, max_size=5), SPACES, min_size=1, max_size=3))
def test_spaces_survive_json(inner: dict[str, Any]) -> None:
    space = spaces.Dict(inner)
    data = json.loads(json.dumps(describe_space(space), allow_nan=False))
    assert space_from_description(data) == space


def test_unsupported_spaces_say_so() -> None:
    with pytest.raises(ConfigError, match="Text"):
        describe_space(spaces.Text(3))
    with pytest.raises(ConfigError, match="newer version"):
        space_from_description({"kind": "Graph"})


@pytest.mark.parametrize(
    ("node", "message"),
    [
        ({"width": 30}, "width 30 must be a multiple of heads 4"),
        ({"width": 12, "rope": "trial"}, "even head size"),
        ({"layers": 0}, "layers must be at least 1"),
        ({"window": 0}, "window"),
        ({"depth_dropout": 1.0}, "depth_dropout"),
        ({"sink": "sometimes"}, "sink"),
        ({"hedas": 4}, "heads"),
    ],
)
def test_bad_configurations(node: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build(node, PolicyConfig)


def test_an_episode_needs_a_step() -> None:
    with pytest.raises(ConfigError, match="max_episode_steps"):
        Policy(PolicyConfig(), OBSERVATIONS, spaces.Discrete(3), 0)


def test_batches() -> None:
    policy = make_policy()
    batch = make_batch(policy, 3, 6)
    part = batch.steps(2, 4)
    part.prev_reward[:] = 7.0
    assert (batch.prev_reward[:, 2:4] == 7).all(), "a view"
    some = batch.rows(torch.tensor([2, 0]))
    assert some.shape == (2, 6) and torch.equal(some.stored["cell"][1], batch.stored["cell"][0])
    empty = policy.new_batch(3, 6)
    for step in range(6):
        empty.put(step, batch.steps(step, step + 1))
    same: list[bool] = []
    found: list[torch.Tensor] = []
    batch.map(lambda tensor: found.append(tensor) or tensor)
    empty.map(lambda tensor: same.append(torch.equal(tensor, found.pop(0))) or tensor)
    assert all(same) and len(same) == 7
    assert batch.to("cpu").shape == (3, 6)
