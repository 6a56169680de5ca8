"""Action distributions, one class per kind of action space, all with the same four methods.

Numbers are float32 even where the network runs in a half-precision type.
"""

from __future__ import annotations

import math
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from gymnasium import spaces
from torch import Tensor, nn

from embodied_icrl.common.errors import ConfigError
from embodied_icrl.policy.encoders import action_scaling

LOG_STD_RANGE = (-5.0, 2.0)
"""Limits of the logarithm of the standard deviation, in units of half the action's range."""


class ActionHead(Protocol):
    """What the policy needs from a head. `params`: `[..., n]` from the last linear layer."""

    def params(self, features: Tensor) -> Tensor:
        """Parameters `[..., n]` of the distribution from features `[..., width]`."""

    noise_size: int
    """Uniform numbers that make one action."""

    def sample(
        self,
        params: Tensor,
        generator: torch.Generator | None,
        deterministic: bool,
        noise: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """An action (the most likely one, if deterministic) and its log-probability `[...]`.

        With `noise`, uniform numbers in (0, 1) `[..., noise_size]`, the action is a function of
        them (the inverse of the distribution function), and the generator isn't used.
        """

    def log_prob_entropy(self, params: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """Log-probability `[...]` of an action, and the distribution's entropy `[...]`."""


def make_head(space: spaces.Space[Any], width: int) -> CategoricalHead | GaussianHead:
    """The head for an action space.

    Raises:
        ConfigError: not Discrete, MultiDiscrete or a Box of floats.
    """
    if isinstance(space, spaces.Discrete):
        return CategoricalHead([int(space.n)], width, single=True)
    if isinstance(space, spaces.MultiDiscrete) and space.nvec.ndim == 1:
        return CategoricalHead([int(n) for n in space.nvec], width, single=False)
    if isinstance(space, spaces.Box) and space.dtype.kind == "f":
        return GaussianHead(space, width)
    raise ConfigError(
        f"no action head for {space}; use Discrete, MultiDiscrete (one axis) or a Box of floats"
    )


class CategoricalHead(nn.Module):
    """One categorical distribution, or a product of independent ones.

    Args:
        sizes: choices of each.
        width: size of the features.
        single: actions are `[...]` (Discrete), not `[..., k]` (MultiDiscrete).
    """

    def __init__(self, sizes: list[int], width: int, single: bool) -> None:
        super().__init__()
        self.sizes = sizes
        self.noise_size = len(sizes)
        self.single = single
        self.linear = _small_linear(width, sum(sizes))

    def params(self, features: Tensor) -> Tensor:
        """Logits of all parts, `[..., sum(sizes)]`."""
        logits: Tensor = self.linear(features)
        return logits

    def sample(
        self,
        params: Tensor,
        generator: torch.Generator | None,
        deterministic: bool,
        noise: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """See `ActionHead`; int64 `[...]` or `[..., k]`."""
        actions, log_probs = [], []
        for index, logits in enumerate(self._parts(params)):
            log_p = F.log_softmax(logits, dim=-1)
            if deterministic:
                action = log_p.argmax(dim=-1, keepdim=True)
            elif noise is not None:
                action = _inverse(log_p.exp(), noise[..., index : index + 1])
            else:
                flat = log_p.exp().flatten(0, -2)
                action = torch.multinomial(flat, 1, generator=generator)
                action = action.view(*log_p.shape[:-1], 1)
            actions.append(action)
            log_probs.append(log_p.gather(-1, action).squeeze(-1))
        if self.single:
            return actions[0].squeeze(-1), log_probs[0]
        return torch.cat(actions, dim=-1), torch.stack(log_probs).sum(dim=0)

    def log_prob_entropy(self, params: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """See `ActionHead`."""
        parts = action[..., None] if self.single else action
        log_prob = params.new_zeros(params.shape[:-1])
        entropy = torch.zeros_like(log_prob)
        for index, logits in enumerate(self._parts(params)):
            log_p = F.log_softmax(logits, dim=-1)
            log_prob = log_prob + log_p.gather(-1, parts[..., index : index + 1]).squeeze(-1)
            entropy = entropy - (log_p.exp() * log_p).sum(dim=-1)
        return log_prob, entropy

    def _parts(self, params: Tensor) -> tuple[Tensor, ...]:
        return (params,) if self.single else torch.split(params, self.sizes, dim=-1)


class GaussianHead(nn.Module):
    """A diagonal Gaussian with a standard deviation that doesn't depend on the state.

    In the units of the environment. Where the action is bounded, mean and deviation start at the
    centre and half the range, so that one learning rate fits any units.
    """

    centre: Tensor
    scale: Tensor

    def __init__(self, space: spaces.Box, width: int) -> None:
        super().__init__()
        centre, scale = action_scaling(space)
        self.register_buffer("centre", centre, persistent=False)
        self.register_buffer("scale", scale, persistent=False)
        self.linear = _small_linear(width, len(centre))
        self.log_std = nn.Parameter(torch.full((len(centre),), -0.5))
        self.noise_size = len(centre)

    def params(self, features: Tensor) -> Tensor:
        """Means in the action's units, `[..., k]`."""
        means: Tensor = self.centre + self.scale * self.linear(features)
        return means

    def std(self) -> Tensor:
        """Standard deviations in the action's units, `[k]`."""
        return self.scale * self.log_std.clamp(*LOG_STD_RANGE).exp()

    def sample(
        self,
        params: Tensor,
        generator: torch.Generator | None,
        deterministic: bool,
        noise: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """See `ActionHead`; `[..., k]`, not clipped to the bounds."""
        if deterministic:
            action = params
        elif noise is not None:
            action = params + self.std() * torch.special.ndtri(noise).to(params.dtype)
        else:
            noise = torch.randn(
                params.shape, generator=generator, dtype=params.dtype, device=params.device
            )
            action = params + self.std() * noise
        return action, self.log_prob_entropy(params, action)[0]

    def log_prob_entropy(self, params: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """See `ActionHead`."""
        std = self.std()
        distance = (action.to(params.dtype) - params) / std
        constant = std.log().sum() + 0.5 * math.log(2 * math.pi) * len(std)
        log_prob = -0.5 * distance.square().sum(dim=-1) - constant
        entropy = (constant + 0.5 * len(std)).expand(log_prob.shape)
        return log_prob, entropy


def _inverse(probabilities: Tensor, noise: Tensor) -> Tensor:
    """The choice `[..., 1]` at which the summed probabilities `[..., n]` exceed `noise`."""
    below = (probabilities.cumsum(dim=-1) <= noise).sum(dim=-1, keepdim=True)
    # Rounding may leave the sum of all a little under 1, and the noise above it.
    return below.clamp_(max=probabilities.shape[-1] - 1)


def _small_linear(width: int, outputs: int) -> nn.Linear:
    """A last layer that starts near 0: the first policy is close to uniform or centred."""
    layer = nn.Linear(width, outputs)
    nn.init.orthogonal_(layer.weight, gain=0.01)
    nn.init.zeros_(layer.bias)
    return layer
