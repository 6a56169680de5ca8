"""Tasks whose fitness counts progress too: what short trainings reach is seldom a success."""

from __future__ import annotations

import abc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gymnasium as gym

from embodied_icrl.manipulation.task import Env, Task


class StartKeeper(gym.Wrapper[Any, Any, Any, Any]):
    """Remembers how much was left to do where the episode began.

    Args:
        env: the simulator.
        left: as `GradedTask.left`.

    Attributes:
        left_at_start: what `left` said at the last reset.
    """

    def __init__(self, env: Env, left: Callable[[Env, Any], float]) -> None:
        super().__init__(env)
        self._left = left
        self.left_at_start = 0.0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode, and look how far it is from success."""
        observation, info = self.env.reset(seed=seed, options=options)
        self.left_at_start = self._left(self.env, observation)
        return observation, info


@dataclass(frozen=True)
class GradedTask(Task):
    """A task that knows how far a moment is from success; its `make_env` adds a `StartKeeper`."""

    @abc.abstractmethod
    def left(self, env: Env, observation: Any) -> float:
        """How much is left to do, in any unit; 0 or less where success begins."""

    def measure(self, env: Env, observation: Any) -> float:
        """1 for success, else half of the share done since the episode began, in [0, 0.5].

        Doing nothing, or leaving for somewhere farther than the start, is worth 0.
        """
        if self.success(env, observation):
            return 1.0
        start: float = env.left_at_start  # type: ignore[attr-defined]
        if start <= 0.0:
            return 0.0
        return 0.5 * min(1.0, max(0.0, 1.0 - self.left(env, observation) / start))
