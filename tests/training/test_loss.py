"""The clipped objective against a token-by-token float64 reference."""

from __future__ import annotations

import math

import pytest
import torch

from embodied_icrl.training.loss import STATISTICS, Targets, ppo_loss

SETTINGS = {"clip": 0.2, "value_coef": 0.5, "entropy_coef": 0.03}


def made_up(seed: int = 0, shape: tuple[int, int] = (3, 7)) -> tuple[list[torch.Tensor], Targets]:
    generator = torch.Generator().manual_seed(seed)

    def normal(scale: float = 1.0) -> torch.Tensor:
        return scale * torch.randn(shape, generator=generator, dtype=torch.float64)

    outputs = [normal(0.5) - 1.0, normal().abs(), normal()]
    targets = Targets(
        log_prob=normal(0.5) - 1.0,
        value=normal(),
        advantage=normal(),
        returns=normal(),
        valid=torch.rand(shape, generator=generator) < 0.7,
    )
    return outputs, targets


@pytest.mark.parametrize("clip_value", [None, 0.1])
def test_equals_the_equation(clip_value: float | None) -> None:
    (log_prob, entropy, value), t = made_up()
    loss, sums = ppo_loss(
        log_prob, entropy, value, t, count=11.0, clip_value=clip_value, **SETTINGS
    )
    total, kl, clipped = 0.0, 0.0, 0
    for i in range(3):
        for j in range(7):
            if not t.valid[i, j]:
                continue
            ratio = math.exp(log_prob[i, j] - t.log_prob[i, j])
            advantage = float(t.advantage[i, j])
            policy = -min(ratio * advantage, min(max(ratio, 0.8), 1.2) * advantage)
            error = float(value[i, j] - t.returns[i, j]) ** 2
            if clip_value is not None:
                step = min(max(float(value[i, j] - t.value[i, j]), -clip_value), clip_value)
                error = max(error, float(t.value[i, j] + step - t.returns[i, j]) ** 2)
            total += policy + 0.5 * 0.5 * error - 0.03 * float(entropy[i, j])
            kl += ratio - 1 - math.log(ratio)
            clipped += abs(ratio - 1) > 0.2
    assert float(loss) == pytest.approx(total / 11.0, rel=1e-12)
    named = dict(zip(STATISTICS, sums.tolist(), strict=True))
    assert named["approx_kl"] == pytest.approx(kl, rel=1e-6)
    assert named["clip_fraction"] == clipped


def test_terminal_tokens_have_no_say() -> None:
    outputs, targets = made_up()
    leaves = [output.clone().requires_grad_() for output in outputs]
    loss, _ = ppo_loss(*leaves, targets, count=1.0, clip_value=None, **SETTINGS)
    loss.backward()
    for leaf in leaves:
        assert leaf.grad is not None
        assert (leaf.grad[~targets.valid] == 0).all()
        assert leaf.grad[targets.valid].abs().sum() > 0


def test_a_nearly_impossible_action_gives_a_finite_loss() -> None:
    (log_prob, entropy, value), targets = made_up()
    loss, sums = ppo_loss(
        log_prob + 500.0, entropy, value, targets, count=1.0, clip_value=None, **SETTINGS
    )
    assert math.isfinite(float(loss)) and torch.isfinite(sums).all()
