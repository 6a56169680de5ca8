"""What the policy reads at each time step, as a batch of tensors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields

import torch
from torch import Tensor


@dataclass
class StepBatch:
    """Tokens of several environments before they are encoded; every tensor is `[env, step, ...]`.

    Attributes:
        stored: what `Policy.prepare` made of the observations, by key.
        prev_action: action that led here. Discrete: int64 `[env, step]`, MultiDiscrete: int64
            `[env, step, k]`, both -1 where there is none; Box: float32 `[env, step, k]`, 0 there.
        prev_reward: float32 `[env, step]`; 0 at the first token of an episode.
        episode_start: bool `[env, step]`; the first token of an episode.
        terminal: bool `[env, step]`; the token that ends an episode (its action is ignored).
        step_in_episode: int64 `[env, step]`; 0 at the first token of an episode.
    """

    stored: dict[str, Tensor]
    prev_action: Tensor
    prev_reward: Tensor
    episode_start: Tensor
    terminal: Tensor
    step_in_episode: Tensor

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of environments and of steps."""
        envs, steps = self.episode_start.shape
        return envs, steps

    def steps(self, start: int, stop: int) -> StepBatch:
        """Steps `start` to `stop` (excluded) of every environment, as views."""
        return self.map(lambda tensor: tensor[:, start:stop])

    def rows(self, index: Tensor | slice) -> StepBatch:
        """The environments named by an index tensor (a copy) or a slice (views)."""
        return self.map(lambda tensor: tensor[index])

    def to(self, device: torch.device | str) -> StepBatch:
        """The same batch on `device`."""
        return self.map(lambda tensor: tensor.to(device))

    def put(self, step: int, token: StepBatch) -> None:
        """Copy `token`, a batch of one step, to index `step`."""
        for key, value in token.stored.items():
            self.stored[key][:, step] = value[:, 0]
        for name in _TENSORS:
            getattr(self, name)[:, step] = getattr(token, name)[:, 0]

    def map(self, function: Callable[[Tensor], Tensor]) -> StepBatch:
        """A batch with `function` applied to every tensor."""
        return StepBatch(
            {key: function(value) for key, value in self.stored.items()},
            *(function(getattr(self, name)) for name in _TENSORS),
        )


_TENSORS = tuple(field.name for field in fields(StepBatch) if field.name != "stored")
