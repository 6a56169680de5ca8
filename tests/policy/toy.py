"""Small policies with weights far from their start, and batches of made-up tokens."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from embodied_icrl.policy import Policy, PolicyConfig, StepBatch

OBSERVATIONS = spaces.Dict(
    {"cell": spaces.MultiDiscrete([5, 4]), "speed": spaces.Box(-1.0, 1.0, (3,), np.float32)}
)
SINKS = ("none", "token", "kv", "k", "v", "zero")
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-10}


def make_policy(
    *,
    dtype: torch.dtype = torch.float64,
    observations: spaces.Space[Any] = OBSERVATIONS,
    actions: spaces.Space[Any] | None = None,
    max_episode_steps: int = 12,
    seed: int = 0,
    **config: Any,
) -> Policy:
    """A policy in evaluation mode; every weight, the sinks' too, is moved off its start."""
    sizes = {"width": 16, "layers": 2, "heads": 4, "mlp_width": 24}
    torch.manual_seed(seed)
    policy = Policy(
        PolicyConfig(**{**sizes, **config}),
        observations,
        actions or spaces.Discrete(5),
        max_episode_steps,
    )
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter += 0.3 * torch.randn(parameter.shape, generator=generator)
    return policy.to(dtype).eval()


def make_batch(policy: Policy, envs: int, steps: int, seed: int = 0) -> StepBatch:
    """Tokens of a trial with episodes of one step up, different in each environment."""
    generator = torch.Generator().manual_seed(seed)
    batch = policy.new_batch(envs, steps)
    for value in batch.stored.values():
        if value.is_floating_point():
            value.copy_(torch.randn(value.shape, generator=generator))
        else:
            value.copy_(torch.randint(0, 4, value.shape, generator=generator))
    length = torch.zeros(envs, dtype=torch.int64)
    for step in range(steps):
        starts = torch.rand(envs, generator=generator) < 0.25
        starts |= (length >= policy.max_episode_steps) | (step == 0)
        length = torch.where(starts, 0, length + 1)
        batch.episode_start[:, step] = starts
        batch.step_in_episode[:, step] = length
        if step:
            batch.terminal[:, step - 1] = starts
    batch.prev_action.copy_(random_actions(policy, envs, steps, generator))
    batch.prev_action[batch.episode_start] = policy.no_action
    batch.prev_reward.copy_(torch.randn(envs, steps, generator=generator))
    return batch


def random_actions(policy: Policy, envs: int, steps: int, generator: torch.Generator) -> Tensor:
    """Actions `[env, step, ...]` as the policy stores them."""
    empty = policy.empty_actions(envs, steps)
    if empty.is_floating_point():
        return torch.randn(empty.shape, generator=generator)
    space = policy.action_space
    top = int(space.n) if isinstance(space, spaces.Discrete) else int(space.nvec.min())  # type: ignore[attr-defined]
    return torch.randint(0, top, empty.shape, generator=generator)
