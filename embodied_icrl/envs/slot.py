"""One plain Gymnasium environment inside a trial: its task, its episode and what they add up to."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import gymnasium as gym
import numpy as np

from embodied_icrl.common.errors import ConfigError, ObservationError

SuccessRule = Literal["any", "end", "none"]
SUCCESS_KEYS = ("success", "is_success")


@dataclass(frozen=True)
class EpisodeRules:
    """What holds for every episode of every slot.

    Attributes:
        max_episode_steps: steps after which an episode is cut (truncated).
        success: an episode succeeds if the environment's info said so at "any" of its steps or
            at its "end"; "none": this environment has no notion of success.
        apply_task: gives a task to an environment, in place of the reset option "task".
    """

    max_episode_steps: int
    success: SuccessRule = "any"
    apply_task: Callable[[gym.Env[Any, Any], Any], None] | None = None


class Slot:
    """A plain environment, its task and the episode that it is in.

    Attributes:
        index: of the environment in the whole job.
        ended: the episode is over; the next step begins the next one.
    """

    def __init__(self, env: gym.Env[Any, Any], index: int, rules: EpisodeRules) -> None:
        self.env = env
        self.index = index
        self.ended = False
        self.task_id = -1
        self.episode = 0
        self.steps = 0
        self.total = 0.0
        self.success = False
        self._rules = rules
        self._task: Any = None
        self._task_was_read = rules.apply_task is not None
        self._began = 0.0

    def set_task(self, task_id: int, task: Any) -> None:
        """Take a new task; `begin` must follow."""
        self.task_id, self._task = task_id, task
        if self._rules.apply_task is not None:
            self._rules.apply_task(self.env, task)

    def begin(self, episode: int, seed: int) -> Any:
        """Begin episode number `episode` of the trial; return the environment's observation.

        Raises:
            ConfigError: the environment never looked at the task.
        """
        self.episode, self.steps, self.total = episode, 0, 0.0
        self.success = self.ended = False
        self._began = time.perf_counter()
        if self._rules.apply_task is not None:
            return self.env.reset(seed=seed)[0]
        options = _TaskOptions(task=self._task)
        observation = self.env.reset(seed=seed, options=options)[0]
        self._task_was_read = self._task_was_read or options.was_read
        if not self._task_was_read:
            raise ConfigError(
                f"{self.env.unwrapped!r} never read options['task'] in reset, so all its trials "
                "would be the same: read it there, or set apply_task to a function (env, task)"
            )
        return observation

    def act(self, action: Any) -> tuple[Any, float, bool, bool, Mapping[str, Any]]:
        """Step the environment and keep the episode's account.

        Raises:
            ObservationError: the reward isn't a finite number.
        """
        observation, reward, terminated, truncated, info = self.env.step(action)
        reward, terminated = float(reward), bool(terminated)
        if not math.isfinite(reward):
            raise ObservationError(f"the reward of {self.where()} is {reward}")
        self.steps += 1
        self.total += reward
        over = bool(truncated) or self.steps >= self._rules.max_episode_steps
        truncated = over and not terminated
        self.ended = terminated or truncated
        if self._rules.success != "none":
            flag = any(bool(info.get(key, False)) for key in SUCCESS_KEYS)
            self.success = flag or (self.success and self._rules.success == "any")
        return observation, reward, terminated, truncated, info

    def seconds(self) -> float:
        """How long the episode has taken."""
        return time.perf_counter() - self._began

    def where(self) -> str:
        """The environment and the moment, for messages."""
        return (
            f"environment {self.index} (task {self.task_id}, episode {self.episode}, "
            f"step {self.steps})"
        )

    def offers(self, *names: str) -> bool:
        """Whether the environment (or a wrapper around it) has all these methods."""
        return all(self.env.has_wrapper_attr(name) for name in names)

    def call(self, name: str, *args: Any) -> Any:
        """Call a method that the environment (or a wrapper around it) has."""
        return self.env.get_wrapper_attr(name)(*args)

    def get_state(self) -> dict[str, Any]:
        """Everything that `set_state` needs, but for the task."""
        return {
            "episode": self.episode,
            "steps": self.steps,
            "return": self.total,
            "success": self.success,
            "ended": self.ended,
            "env": self.call("get_state"),
        }

    def set_state(self, state: Mapping[str, Any], seed: int) -> None:
        """Go on from a state; the task must have been set, `seed` is that of the state's episode.

        The reset that comes first puts wrappers such as TimeLimit, which know of no state, at the
        start of an episode; ours ends it in time.
        """
        self.begin(int(state["episode"]), seed)
        self.call("set_state", state["env"])
        self.steps = int(state["steps"])
        self.total = float(state["return"])
        self.success = bool(state["success"])
        self.ended = bool(state["ended"])


class _TaskOptions(dict[str, Any]):
    """Reset options that notice whether anybody looked at the task.

    An environment that ignores its task would train without an error, on one task only. Copies
    (`dict(options)`, `{**options}`) go through `__getitem__` because `__iter__` is ours.
    """

    was_read = False

    def __getitem__(self, key: str) -> Any:
        self.was_read = True
        return super().__getitem__(key)

    def __iter__(self) -> Iterator[str]:
        return super().__iter__()

    def get(self, key: str, default: Any = None) -> Any:
        self.was_read = True
        return super().get(key, default)

    def pop(self, key: str, *default: Any) -> Any:
        self.was_read = True
        return super().pop(key, *default)

    def items(self) -> Any:
        self.was_read = True
        return super().items()

    def values(self) -> Any:
        self.was_read = True
        return super().values()

    def copy(self) -> dict[str, Any]:
        return dict(self)


def merged_info(
    slots: Sequence[Slot],
    infos: Sequence[Mapping[str, Any]],
    ended: np.ndarray,
    reports_success: bool,
) -> dict[str, Any]:
    """The info of a step of all slots, from what their environments said.

    `sparse_reward` is 0 where an environment was reset, and NaN where one that was stepped left it
    out while others gave it: no number of ours may stand for what a policy reads.

    Args:
        infos: of each slot's environment, empty where it was reset.
        ended: bool `[env]`, the episodes that ended at this step.
        reports_success: whether the environments have a notion of success.
    """
    merged: dict[str, Any] = {}
    sparse = [_number(info, "sparse_reward") for info in infos]
    if any(value is not None for value in sparse):
        merged["sparse_reward"] = np.array(
            [
                (np.nan if slot.steps else 0.0) if value is None else value
                for slot, value in zip(slots, sparse, strict=True)
            ],
            dtype=np.float32,
        )
    if not ended.any():
        return merged
    over = [slot if ended[row] else None for row, slot in enumerate(slots)]
    episode: dict[str, np.ndarray] = {
        "r": np.array([slot.total if slot else 0.0 for slot in over], dtype=np.float32),
        "l": np.array([slot.steps if slot else 0 for slot in over], dtype=np.int64),
        "t": np.array([slot.seconds() if slot else 0.0 for slot in over], dtype=np.float64),
    }
    if reports_success:
        episode["success"] = np.array([slot is not None and slot.success for slot in over])
    spl = [_number(info, "spl") if over[row] else None for row, info in enumerate(infos)]
    if any(value is not None for value in spl):
        episode["spl"] = np.array([v or 0.0 for v in spl], dtype=np.float64)
    merged.update(episode=episode, _episode=ended)
    return merged


def _number(info: Mapping[str, Any], key: str) -> float | None:
    return float(np.asarray(info[key]).item()) if key in info else None
