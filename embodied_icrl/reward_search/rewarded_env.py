"""A found reward in use: a Gymnasium wrapper for any environment with the task's fields."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from embodied_icrl.common.errors import ConfigError
from embodied_icrl.manipulation.fields import Field, StateLayout
from embodied_icrl.manipulation.task import Task
from embodied_icrl.manipulation.task_env import RewardError, TaskEnv
from embodied_icrl.reward_search.extract import NoCode, read_reward
from embodied_icrl.reward_search.loading import load_reward
from embodied_icrl.reward_search.sandbox_session import (
    CALL_LIMIT_S,
    RewardSession,
    refuse_unchecked,
)

# Given (environment, observation, action) after a step: the declared fields by name.
ReadState = Callable[[Any, Any, Any], Mapping[str, Any]]


class RewardedEnv(gym.Wrapper[Any, Any, Any, Any]):
    """Replaces an environment's reward by a found one, `best/reward.py` of a search.

    With a task, or an environment made of one, nothing else is needed::

        env = RewardedEnv(PlanarReach(), "runs/reward_planar_reach_0/best/reward.py")
        model = stable_baselines3.PPO("MlpPolicy", env).learn(20_000)

    Another environment needs the fields that the reward reads, and a function that reads them::

        def read_state(env, observation, action):
            data = env.unwrapped.data
            return {
                "tip_position": data.body("fingertip").xpos[:2],
                "target_position": data.body("target").xpos[:2],
                "action": action,
            }

        fields = [
            Field("tip_position", (2,), "m", "the fingertip"),
            Field("target_position", (2,), "m", "where it should be"),
            Field("action", (2,), "-", "the action"),
        ]
        env = RewardedEnv(
            gym.make("Reacher-v5"), "reward.py", fields=fields, read_state=read_state
        )

    The info of a step has the reward's `components`, and the environment's own reward as
    `original_reward`.

    By default the reward runs in a confined process of its own (see `RewardSession`), which costs
    about 50 us per step (more where no processor is free for it) and one process per environment.
    It ends with `close`, with the wrapper, or with this process; a copy or a pickle of the wrapper
    starts its own.

    Args:
        env: an environment, or a task to make one of.
        reward_file: Python with `compute_reward(state)`, or an answer with code blocks.
        fields: what the reward may read; without it, those of the task.
        read_state: called as (env, observation, action) after each step; needed with `fields`.
        sandbox: False loads the reward into this process, where a call costs what the function
            costs. The static check is then all that stands between its code and what this process
            can do: read keys and files, use the network, change the policy. For code that you
            have read.
        call_s: seconds that one call may take, in the sandbox.

    Raises:
        ConfigError: the file can't be read, or it isn't said how fields are read.
        RewardError: the static check refuses the code.
    """

    def __init__(
        self,
        env: gym.Env[Any, Any] | Task,
        reward_file: str | Path,
        *,
        fields: Sequence[Field] | None = None,
        read_state: ReadState | None = None,
        sandbox: bool = True,
        call_s: float = CALL_LIMIT_S,
    ) -> None:
        try:
            source = read_reward(reward_file)
        except NoCode as error:
            raise ConfigError(f"{reward_file}: {error}") from error
        if (fields is None) != (read_state is None):
            raise ConfigError("give both fields and read_state, or neither for a task")
        made = TaskEnv(env) if isinstance(env, Task) else env
        base = made.unwrapped
        if fields is None:
            if not isinstance(base, TaskEnv):
                raise ConfigError(
                    f"{made} is not made of a task: give fields and read_state, "
                    "which say what the reward reads"
                )
            fields = base.task.fields
        super().__init__(made)
        self._layout = StateLayout(fields)
        self._read_state = read_state
        self.reward_function: RewardSession | LocalReward = (
            RewardSession(source, fields, call_s=call_s) if sandbox else LocalReward(source, fields)
        )

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Step the environment, then ask the reward.

        Raises:
            RewardError: the reward raised, was not a finite number, or took too long.
            ConfigError: `read_state` returned other fields than declared.
        """
        observation, original, terminated, truncated, info = self.env.step(action)
        total, components = self.reward_function.ask(self._state(observation, action))
        told = {**info, "components": components, "original_reward": original}
        return observation, total, terminated, truncated, told

    def close(self) -> None:
        """End the reward's process and close the environment."""
        self.reward_function.close()
        super().close()

    def _state(self, observation: Any, action: Any) -> NDArray[np.float64]:
        if self._read_state is not None:
            return self._layout.flatten(self._read_state(self.env, observation, action))
        base = self.env.unwrapped
        assert isinstance(base, TaskEnv)
        return base.state_vector


class LocalReward:
    """A reward in this process, with the interface of `RewardSession`.

    Raises:
        RewardError: the static check refuses the code.
    """

    def __init__(self, source: str, fields: Sequence[Field]) -> None:
        refuse_unchecked(source, fields)
        self._source, self._fields = source, tuple(fields)
        self._layout = StateLayout(fields)
        self._function = load_reward(source)

    def ask(self, flat: NDArray[np.float64]) -> tuple[float, dict[str, float]]:
        """The reward of flat values [size].

        Raises:
            RewardError: the reward raised, or isn't a finite number.
        """
        try:
            total, components = self._function(self._layout.record(flat))
            numbers = {name: float(value) for name, value in components.items()}
            total = float(total)
        except Exception as error:
            raise RewardError(f"the reward raised {type(error).__name__}: {error}") from error
        if not np.isfinite(total):
            raise RewardError(f"the reward is {total}")
        return total, numbers

    def close(self) -> None:
        """Nothing to end."""

    def __reduce__(self) -> tuple[Any, ...]:
        return LocalReward, (self._source, self._fields)
