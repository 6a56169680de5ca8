"""The clipped PPO objective over valid tokens (Schulman et al., arXiv 1707.06347, eq. 7 and 9)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

STATISTICS = (
    "loss/policy",
    "loss/value",
    "entropy",
    "approx_kl",
    "clip_fraction",
    "ratio_deviation",
)


@dataclass
class Targets:
    """What the loss compares with; every tensor is float32 [env, step], `valid` is bool.

    `log_prob` is that of the policy that acted, `value` the newest stored estimate (refreshed after
    updates), `valid` is false at terminal tokens and in environments whose worker was lost.
    """

    log_prob: Tensor
    value: Tensor
    advantage: Tensor
    returns: Tensor
    valid: Tensor


def ppo_loss(
    log_prob: Tensor,
    entropy: Tensor,
    value: Tensor,
    targets: Targets,
    *,
    count: Tensor | float,
    clip: float,
    clip_value: float | None,
    value_coef: float,
    entropy_coef: float,
) -> tuple[Tensor, Tensor]:
    """Sum of the loss over valid tokens, divided by `count`.

    `count` is the number of valid tokens of the whole optimiser step, over accumulated minibatches
    and processes, so that adding up gradients gives the mean over all of them.

    Returns:
        the scalar loss `policy + value_coef * 0.5 * MSE - entropy_coef * entropy`, and a detached
        float32 vector of sums over valid tokens in the order of `STATISTICS` (divide by the number
        of tokens for means).
    """
    mask = targets.valid
    zero = log_prob.new_zeros(())
    # Clamped: a full update late in a rollout may meet actions that the new policy all but
    # excludes.
    log_ratio = torch.where(mask, log_prob - targets.log_prob, zero).clamp(-20.0, 20.0)
    ratio = log_ratio.exp()
    clipped = ratio.clamp(1.0 - clip, 1.0 + clip)
    policy = -torch.minimum(ratio * targets.advantage, clipped * targets.advantage)
    error = (value - targets.returns).square()
    if clip_value is not None:
        near = targets.value + (value - targets.value).clamp(-clip_value, clip_value)
        error = torch.maximum(error, (near - targets.returns).square())
    error = 0.5 * error
    total = torch.where(mask, policy + value_coef * error - entropy_coef * entropy, zero)
    with torch.no_grad():
        parts = (
            policy,
            error,
            entropy,
            ratio - 1.0 - log_ratio,
            ((ratio - 1.0).abs() > clip).float(),
            (ratio - 1.0).abs(),
        )
        sums = torch.stack([torch.where(mask, part, zero).sum() for part in parts])
    return total.sum() / count, sums
