"""A task as a Gymnasium environment with a reward that can be plugged in."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces.utils import flatten, flatten_space
from numpy.typing import NDArray

from embodied_icrl.common.errors import ConfigError, UserError
from embodied_icrl.manipulation.fields import StateLayout
from embodied_icrl.manipulation.render import Picture, RenderWindow
from embodied_icrl.manipulation.task import Task

# Takes the state record; returns the total and its named components.
RewardFunction = Callable[[Any], tuple[float, Mapping[str, float]]]


class RewardError(UserError):
    """A reward function returned something that can't be used in training."""


class TaskEnv(gym.Env[NDArray[np.float32], NDArray[Any]]):
    """Episodes of a task: at most `horizon` steps, then truncated.

    The simulator may end them before, as terminated or truncated. Observations are those of
    `Task.policy_observation`, flattened.

    The info of a step has `success` (bool) and `components` (the reward's); that of an episode's
    last step also `fitness`. Both truths come from the simulator, never from the reward.

    Args:
        task: the declaration.
        reward: called with the state record after each step. Without it, every reward is 0: what
            an evaluation needs.

    Raises:
        ConfigError: the observation space is neither a Box nor a Dict of them.
    """

    def __init__(self, task: Task, reward: RewardFunction | None = None) -> None:
        self.task = task
        self.reward = reward
        self.layout = StateLayout(task.fields)
        self.simulator = task.make_env()
        self.window = RenderWindow(task.view)
        self.action_space = self.simulator.action_space
        self._raw_space = self.simulator.observation_space
        self._is_flat = (
            isinstance(self._raw_space, gym.spaces.Box) and len(self._raw_space.shape) == 1
        )
        space = flatten_space(self._raw_space)
        if not isinstance(space, gym.spaces.Box):
            raise ConfigError(f"task {task.name}: observations are a Box or a Dict of Boxes")
        self._raw: Any = self._raw_space.sample()  # until the first reset: it has the right width
        shape = self._observation().shape
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, shape, np.float32)
        self._measures: list[float] = []
        self.state_vector: NDArray[np.float64] = np.zeros(self.layout.size)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Begin an episode; its randomness comes from the simulator's own generator."""
        super().reset(seed=seed)
        self._raw, _ = self.simulator.reset(seed=seed, options=options)
        self._measures = []
        return self._observation(), {}

    def step(
        self, action: NDArray[Any]
    ) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """Step the simulator, read the fields, ask the reward.

        Raises:
            RewardError: the reward is not a finite number.
        """
        self._raw, _, terminated, out_of_time, _ = self.simulator.step(action)
        task = self.task
        self._measures.append(task.measure(self.simulator, self._raw))
        self.state_vector = self.layout.flatten(task.read_state(self.simulator, self._raw, action))
        total, components = self._ask_reward()
        at_horizon = len(self._measures) >= task.horizon
        truncated = not terminated and bool(out_of_time or at_horizon)
        info: dict[str, Any] = {
            "success": task.success(self.simulator, self._raw),
            "components": components,
        }
        if terminated or truncated:
            # What a simulator terminates with holds for the steps that it leaves out.
            missing = task.horizon - len(self._measures) if terminated else 0
            info["fitness"] = task.fitness(self._measures + self._measures[-1:] * missing)
        return self._observation(), total, bool(terminated), truncated, info

    def expert_action(self) -> NDArray[Any] | None:
        """The scripted policy's action now; None where the task has none."""
        return self.task.expert_action(self.simulator, self._raw)

    def render(self, width: int = 480, height: int = 360) -> Picture:
        """The moment as uint8 RGB, [height, width, 3]; `window.note` says what it lacks.

        Raises:
            ConfigError: the size can't be used, or the environment has no MuJoCo model.
        """
        return self.window.picture(self.task.scene(self.simulator, self._raw), width, height)

    def close(self) -> None:
        """Close the window, if pictures were made, and the simulator."""
        self.window.close()
        self.simulator.close()

    def _observation(self) -> NDArray[np.float32]:
        seen = self.task.policy_observation(self._raw)
        if seen is self._raw and not self._is_flat:
            seen = flatten(self._raw_space, seen)
        return np.asarray(seen, np.float32)

    def _ask_reward(self) -> tuple[float, Mapping[str, float]]:
        if self.reward is None:
            return 0.0, {}
        total, components = self.reward(self.layout.record(self.state_vector))
        total = float(total)
        if not math.isfinite(total):
            raise RewardError(f"the reward is {total} at step {len(self._measures)}")
        return total, components
