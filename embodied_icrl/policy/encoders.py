"""From stored observations, previous action and reward, and flags to tokens.

The design is one embedding per part, their concatenation, and a linear layer. A linear layer on a
concatenation is a sum of linear layers, and one on a one-hot vector is a lookup, so this is
computed as one lookup-and-sum over all categorical parts plus one linear layer over all numbers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from gymnasium import spaces
from torch import Tensor, nn

from embodied_icrl.common.errors import ConfigError
from embodied_icrl.policy.batch import StepBatch
from embodied_icrl.policy.config import EncoderConfig
from embodied_icrl.policy.images import ImageEncoderConfig, is_image
from embodied_icrl.policy.observations import (
    Categories,
    Features,
    Numbers,
    Observation,
    read_dict_space,
)

MOST_NUMBERS = 512
"""A Box with several axes and more numbers than this isn't read number by number."""


def make_observations(
    space: spaces.Space[Any],
    encoders: Mapping[str, EncoderConfig],
    ignore: Sequence[str] = (),
) -> dict[str, Observation]:
    """A reader per key of a Dict space that isn't ignored, sorted by key.

    Raises:
        ConfigError: a space that has no default reader, an encoder for a key that isn't there or is
            ignored, or nothing left to read.
    """
    keys = read_dict_space(space)
    named = [("encoders", key) for key in encoders] + [("ignore", key) for key in ignore]
    for option, key in named:
        if key not in keys:
            raise ConfigError(f"{option}: no observation {key!r}; there are {', '.join(keys)}")
    for key in encoders:
        if key in ignore:
            raise ConfigError(
                f"observation {key!r} has an encoder and is ignored; drop one of them"
            )
    read = {key: inner for key, inner in keys.items() if key not in ignore}
    if not read:
        raise ConfigError("ignore: that leaves no observation to read")
    return {
        key: encoders[key].build(key, inner) if key in encoders else _default_reader(key, inner)
        for key, inner in read.items()
    }


def _default_reader(key: str, space: spaces.Space[Any]) -> Observation:
    if is_image(space):
        return ImageEncoderConfig().build(key, space)
    if isinstance(space, (spaces.Discrete, spaces.MultiDiscrete)):
        return Categories(key, space)
    if isinstance(space, spaces.Box) and _is_large_array(space):
        raise ConfigError(
            f"observation {key!r} is no picture that has a default encoder, and too large to be "
            f"read number by number ({space}): name one (policy.encoders.{key}), or leave it out "
            "(policy.ignore)"
        )
    if isinstance(space, (spaces.Box, spaces.MultiBinary)):
        return Numbers(key, space)
    raise ConfigError(f"observation {key!r}: no encoder for a {type(space).__name__} space")


def _is_large_array(space: spaces.Box) -> bool:
    return sum(side > 1 for side in space.shape) > 1 and math.prod(space.shape) > MOST_NUMBERS


class TokenEncoder(nn.Module):
    """Tokens `[env, step, width]` from a `StepBatch`.

    Args:
        observations: reader per key.
        action_space: for the previous action.
        width: size of a token.
        max_episode_steps: longest episode, for the learned embedding of the step in it.
        reads_reward: whether the previous reward is an input.
    """

    offsets: Tensor
    action_centre: Tensor
    action_scale: Tensor

    def __init__(
        self,
        observations: Mapping[str, Observation],
        action_space: spaces.Space[Any],
        width: int,
        max_episode_steps: int,
        reads_reward: bool,
    ) -> None:
        super().__init__()
        self.width = width
        self.reads_reward = reads_reward
        self.observations = nn.ModuleDict({_module_name(k): o for k, o in observations.items()})
        self._categories = [o for o in observations.values() if isinstance(o, Categories)]
        self._numbers = [o for o in observations.values() if isinstance(o, Numbers)]
        self._features = [o for o in observations.values() if isinstance(o, Features)]
        self._box_action = isinstance(action_space, spaces.Box)
        self._make_lookup(action_space, max_episode_steps)
        self._make_numbers(action_space)
        self.projections = nn.ModuleDict(
            {_module_name(o.key): _linear(o.feature_size, width) for o in self._features}
        )

    def _make_lookup(self, action_space: spaces.Space[Any], max_episode_steps: int) -> None:
        """One table for all categories: those observed, action, start, terminal, step."""
        sizes = [size for o in self._categories for size in o.sizes]
        shifts = [0] * len(sizes)
        if not self._box_action:
            action_sizes = (
                [int(action_space.n)]
                if isinstance(action_space, spaces.Discrete)
                else [int(n) for n in action_space.nvec.reshape(-1)]  # type: ignore[attr-defined]
            )
            sizes += [size + 1 for size in action_sizes]
            shifts += [1] * len(action_sizes)  # -1, no action, is row 0
        sizes += [2, 2, max_episode_steps + 1]  # the steps last: see `with_own_steps`
        shifts += [0, 0, 0]
        starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
        self.register_buffer("offsets", torch.tensor(starts + shifts), persistent=False)
        self.lookup = nn.Parameter(torch.randn(sum(sizes), self.width) / len(sizes) ** 0.5)

    def _make_numbers(self, action_space: spaces.Space[Any]) -> None:
        """One linear layer for all numbers: those observed, a Box action, the reward."""
        size = sum(o.stored_shape[0] for o in self._numbers) + int(self.reads_reward)
        if self._box_action:
            centre, scale = action_scaling(action_space)
            self.register_buffer("action_centre", centre, persistent=False)
            self.register_buffer("action_scale", scale, persistent=False)
            size += len(centre)
        self.numbers = _linear(size, self.width) if size else None

    def with_own_steps(self, lookup: Tensor) -> Tensor:
        """The lookup table of an encoder for episodes of another length, with rows for ours.

        Rows that both have are copied. Later steps begin as the last step that was acted at: the
        one after it, the last in the table, is only known as an episode's end.

        Args:
            lookup: table `[row, width]` of an encoder that differs in nothing else.
        """
        shared = min(len(lookup), len(self.lookup))
        later = lookup[-2].expand(len(self.lookup) - shared, -1)
        return torch.cat([lookup[:shared], later])

    def forward(self, batch: StepBatch) -> Tensor:
        """Tokens of a batch, `[env, step, width]`."""
        envs, steps = batch.shape
        token = F.embedding_bag(self._indices(batch), self.lookup, mode="sum")
        numbers = self._read_numbers(batch)
        if self.numbers is not None:
            token = token + self.numbers(numbers)
        for observation in self._features:
            stored = batch.stored[observation.key]
            features = observation(stored.flatten(0, 1))
            token = token + self.projections[_module_name(observation.key)](features)
        return token.view(envs, steps, self.width)

    def _indices(self, batch: StepBatch) -> Tensor:
        """Rows of the lookup table, `[env * step, parts]`."""
        parts = [batch.stored[o.key] for o in self._categories]
        if not self._box_action:
            action = batch.prev_action
            parts.append(action if action.dim() == 3 else action[..., None])
        flags = (batch.episode_start, batch.terminal, batch.step_in_episode)
        parts.extend(flag[..., None] for flag in flags)
        return (torch.cat(parts, dim=-1) + self.offsets).flatten(0, 1)

    def _read_numbers(self, batch: StepBatch) -> Tensor | None:
        """Input of the linear layer, `[env * step, size]`."""
        dtype = self.lookup.dtype
        parts = [o(batch.stored[o.key], dtype) for o in self._numbers]
        if self._box_action:
            parts.append((batch.prev_action.to(dtype) - self.action_centre) / self.action_scale)
        if self.reads_reward:
            parts.append(batch.prev_reward.to(dtype)[..., None])
        if not parts:
            return None
        return (parts[0] if len(parts) == 1 else torch.cat(parts, dim=-1)).flatten(0, 1)


def action_scaling(space: spaces.Space[Any]) -> tuple[Tensor, Tensor]:
    """Centre and half range of each action of a Box, flattened; 0 and 1 where it is unbounded."""
    assert isinstance(space, spaces.Box)
    low = torch.as_tensor(space.low, dtype=torch.float64).flatten()
    high = torch.as_tensor(space.high, dtype=torch.float64).flatten()
    bounded = torch.isfinite(low) & torch.isfinite(high) & (high > low)
    centre = torch.where(bounded, (low + high) / 2, 0.0)
    scale = torch.where(bounded, (high - low) / 2, 1.0)
    return centre.float(), scale.float()


def _module_name(key: str) -> str:
    """A key as a name that no attribute of a module has."""
    return "key_" + key.replace(".", "_")


def _linear(inputs: int, outputs: int) -> nn.Linear:
    layer = nn.Linear(inputs, outputs)
    nn.init.orthogonal_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer
