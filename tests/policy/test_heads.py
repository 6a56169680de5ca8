"""Action distributions against torch.distributions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import distributions

from embodied_icrl.common.errors import ConfigError
from embodied_icrl.policy.heads import LOG_STD_RANGE, CategoricalHead, GaussianHead, make_head

WIDTH, BATCH, STEPS = 6, 4, 3


def features(dtype: torch.dtype = torch.float64) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(BATCH, STEPS, WIDTH, generator=generator, dtype=dtype) * 30


def make(space: spaces.Space[Any]) -> Any:
    torch.manual_seed(0)
    head = make_head(space, WIDTH).double()
    with torch.no_grad():
        for parameter in head.parameters():
            parameter += 0.2 * torch.randn_like(parameter)
    return head


def reference(head: Any, params: torch.Tensor) -> distributions.Distribution:
    if isinstance(head, GaussianHead):
        return distributions.Independent(distributions.Normal(params, head.std()), 1)
    assert len(head.sizes) == 1
    return distributions.Categorical(logits=params)


@pytest.mark.parametrize("space", [spaces.Discrete(4), spaces.Box(-2.0, 6.0, (3,))], ids=str)
def test_one_distribution(space: spaces.Space[Any]) -> None:
    head = make(space)
    params = head.params(features())
    expected = reference(head, params)
    action, log_prob = head.sample(params, torch.Generator().manual_seed(1), False)
    torch.testing.assert_close(log_prob, expected.log_prob(action))
    log_prob, entropy = head.log_prob_entropy(params, action)
    torch.testing.assert_close(log_prob, expected.log_prob(action))
    torch.testing.assert_close(entropy, expected.entropy())
    assert log_prob.shape == entropy.shape == (BATCH, STEPS)


def test_a_product_of_categoricals() -> None:
    head = make(spaces.MultiDiscrete([2, 5, 3]))
    params = head.params(features())
    parts = [distributions.Categorical(logits=part) for part in params.split([2, 5, 3], dim=-1)]
    action, sampled = head.sample(params, torch.Generator().manual_seed(1), False)
    assert action.shape == (BATCH, STEPS, 3) and action.dtype == torch.int64
    expected = sum(part.log_prob(action[..., i]) for i, part in enumerate(parts))
    log_prob, entropy = head.log_prob_entropy(params, action)
    torch.testing.assert_close(log_prob, expected)
    torch.testing.assert_close(sampled, expected)
    torch.testing.assert_close(entropy, sum(part.entropy() for part in parts))


def test_gradients_of_the_log_probability_and_the_entropy() -> None:
    for space in (spaces.Discrete(4), spaces.Box(-2.0, 6.0, (3,))):
        head = make(space)
        params = head.params(features())
        action = head.sample(params, torch.Generator().manual_seed(1), False)[0].detach()
        expected = reference(head, params)
        weights = list(head.parameters())
        ours = torch.autograd.grad(
            sum(part.sum() for part in head.log_prob_entropy(params, action)),
            weights,
            retain_graph=True,
        )
        theirs = torch.autograd.grad(
            expected.log_prob(action).sum() + expected.entropy().sum(), weights
        )
        for got, want in zip(ours, theirs, strict=True):
            torch.testing.assert_close(got, want)


@pytest.mark.parametrize("source", ["generator", "noise"])
def test_samples_follow_the_distribution(source: str) -> None:
    count = 20_000
    generator = torch.Generator().manual_seed(0)
    for space in (spaces.Discrete(3), spaces.MultiDiscrete([3, 2]), spaces.Box(0.0, 4.0, (2,))):
        head = make(space)
        row = head.params(features()[0, 0])
        params = row.expand(count, -1)
        noise = torch.rand(count, head.noise_size, generator=generator, dtype=torch.float64)
        action, _ = head.sample(params, generator, False, noise if source == "noise" else None)
        if isinstance(head, GaussianHead):
            error = (action.mean(0) - row) / head.std() * count**0.5
            assert error.abs().max() < 4
            torch.testing.assert_close(action.std(0), head.std(), rtol=0.05, atol=0)
            continue
        columns = action.view(count, -1).unbind(-1)
        for column, logits in zip(columns, row.split(head.sizes), strict=True):
            frequency = torch.bincount(column, minlength=len(logits)) / count
            assert (frequency - logits.softmax(-1)).abs().max() < 0.02


def test_noise_decides_the_action() -> None:
    head = make(spaces.Discrete(4))
    params = torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64).log().expand(5, -1)
    noise = torch.tensor([[0.05], [0.25], [0.59], [0.61], [1.0 - 1e-16]], dtype=torch.float64)
    action, _ = head.sample(params, None, False, noise)
    assert action.tolist() == [0, 1, 2, 3, 3]


def test_deterministic_actions_are_the_most_likely_ones() -> None:
    discrete, pair, box = (
        make(space)
        for space in (spaces.Discrete(4), spaces.MultiDiscrete([4, 3]), spaces.Box(-1, 1, (2,)))
    )
    params = discrete.params(features())
    assert torch.equal(discrete.sample(params, None, True)[0], params.argmax(-1))
    params = pair.params(features())
    best = torch.stack([params[..., :4].argmax(-1), params[..., 4:].argmax(-1)], dim=-1)
    assert torch.equal(pair.sample(params, None, True)[0], best)
    params = box.params(features())
    assert torch.equal(box.sample(params, None, True)[0], params)


def test_a_generator_repeats_and_nothing_global_is_drawn() -> None:
    for space in (spaces.Discrete(4), spaces.MultiDiscrete([4, 3]), spaces.Box(-1, 1, (2,))):
        head = make(space)
        params = head.params(features())
        before = torch.get_rng_state()
        one, two = (head.sample(params, torch.Generator().manual_seed(5), False) for _ in range(2))
        assert torch.equal(one[0], two[0]) and torch.equal(one[1], two[1])
        assert torch.equal(torch.get_rng_state(), before)


def test_the_first_policy_is_nearly_uniform_and_gaussians_fill_their_range() -> None:
    torch.manual_seed(0)
    x = torch.randn(100, WIDTH)
    categorical = make_head(spaces.Discrete(4), WIDTH)
    assert isinstance(categorical, CategoricalHead)
    assert (categorical.params(x).softmax(-1) - 0.25).abs().max() < 0.02
    box = spaces.Box(np.float32([0, -1, -np.inf]), np.float32([10, 1, np.inf]), dtype=np.float32)
    gaussian = make_head(box, WIDTH)
    assert isinstance(gaussian, GaussianHead)
    assert (gaussian.params(x) - torch.tensor([5.0, 0.0, 0.0])).abs().max() < 0.5
    relative = gaussian.std() / torch.tensor([5.0, 1.0, 1.0])
    assert (relative > 0.3).all() and (relative < 1).all()


def test_the_standard_deviation_is_limited() -> None:
    head = make(spaces.Box(-1, 1, (2,)))
    with torch.no_grad():
        head.log_std.copy_(torch.tensor([-100.0, 100.0]))
    low, high = head.std().log().tolist()
    assert (low, high) == pytest.approx(LOG_STD_RANGE)
    log_prob, entropy = head.log_prob_entropy(torch.zeros(1, 2), torch.ones(1, 2))
    assert log_prob.isfinite().all() and entropy.isfinite().all()


@pytest.mark.parametrize(
    "space",
    [spaces.MultiBinary(3), spaces.Box(0, 9, (2,), np.int64), spaces.MultiDiscrete([[2, 2]])],
    ids=str,
)
def test_other_spaces_are_refused(space: spaces.Space[Any]) -> None:
    with pytest.raises(ConfigError, match="no action head"):
        make_head(space, WIDTH)
