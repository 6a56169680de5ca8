"""Trials for environments that are arrays: everything that the grid worlds have in common."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np

from embodied_icrl.common.errors import ConfigError
from embodied_icrl.envs.base import (
    Observation,
    TaskStream,
    TrialVectorEnv,
    check_split,
    parse_reset,
)

STATE_FORMAT = 1


class BatchedTrialEnv(TrialVectorEnv):
    """A trial environment that steps all its copies with array operations.

    Episodes end by termination only, at the horizon too: it is part of these tasks.

    It keeps episodes, trials, statistics and saved states; a subclass has the world. The subclass
    lists in `state_names` the attributes (arrays `[env, ...]`) that change within a trial, keeps
    `self._success` (bool `[env]`, this episode) and `self._optimal` (float64 `[env]`), and
    writes the five methods at the end. In these, `rows` is int64 `[row]`, the environments meant.
    """

    action_names: tuple[str, ...] = ("up", "down", "left", "right", "stay")
    splits: tuple[str, ...] = ("train", "test")
    state_names: tuple[str, ...] = ()
    _own_names = ("_steps", "_episode", "_return", "_ended", "_success", "_optimal")

    def __init__(
        self,
        num_envs: int,
        observation_space: gym.spaces.Dict,
        action_space: gym.spaces.Discrete,
        max_episode_steps: int,
        *,
        split: str,
        seed: int,
        first_index: int = 0,
        total_envs: int | None = None,
    ) -> None:
        super().__init__(num_envs, observation_space, action_space, max_episode_steps)
        self._split = check_split(split, self.splits)
        self._seed = seed
        self._tasks = TaskStream(num_envs, first_index, total_envs)
        self._rows = np.arange(num_envs)
        self._num_actions = int(action_space.n)
        self._steps = np.zeros(num_envs, dtype=np.int64)
        self._episode = np.zeros(num_envs, dtype=np.int64)
        self._return = np.zeros(num_envs, dtype=np.float64)
        self._ended = np.zeros(num_envs, dtype=bool)
        self._success = np.zeros(num_envs, dtype=bool)
        self._never = np.zeros(num_envs, dtype=bool)
        self._optimal = np.zeros(num_envs, dtype=np.float64)
        self._began = np.zeros(num_envs, dtype=np.float64)
        self._started = False

    @property
    def has_oracle(self) -> bool:
        return True

    @property
    def can_save_state(self) -> bool:
        return True

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        request = parse_reset(
            options, self.num_envs, seeded=seed is not None, first=not self._started
        )
        if seed is not None:
            self._seed = seed
            self._tasks.restart()
        rows = np.flatnonzero(request.mask)
        if request.new_trial:
            ids = self._tasks.advance(request)
            self._set_tasks(rows, ids[rows])
            self._episode[rows] = 0
        else:
            self._episode[rows] += 1
        self._begin(rows)
        self._started = True
        return self._observe(), {"task_id": self._tasks.ids.copy()}

    def step(
        self, actions: np.ndarray
    ) -> tuple[Observation, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        actions = self._checked_actions(actions)
        fresh = np.flatnonzero(self._ended)
        reward, terminated = self._advance(actions)
        self._steps += 1
        if fresh.size:
            # Their worlds moved with the others, which is cheaper than masks; it is undone here.
            reward[fresh] = 0.0
            terminated[fresh] = False
            self._episode[fresh] += 1
            self._begin(fresh)
        self._return += reward
        # The horizon belongs to the task, and the policy sees the step in the episode: nothing of
        # value comes after it. As a truncation it would bootstrap from a value that never ends
        # growing (staying on the goal for ever), which drowned the policy's gradient in Darkroom.
        terminated |= self._steps >= self.max_episode_steps
        self._ended = terminated
        info = self._episode_info() if terminated.any() else {}
        return self._observe(), reward, terminated, self._never, info

    def optimal_return(self) -> np.ndarray:
        return self._optimal.copy()

    def get_state(self) -> dict[str, Any]:
        state: dict[str, Any] = {
            "format": STATE_FORMAT,
            "split": self._split,
            "seed": self._seed,
            "started": self._started,
            "task_id": self._tasks.ids.copy(),
            "trial": self._tasks.trials.copy(),
        }
        for name in self._own_names + self.state_names:
            state[name.strip("_")] = getattr(self, name).copy()
        return state

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Go on from a saved state.

        Raises:
            ConfigError: the state is of another format, split or number of environments.
        """
        expected = {"format": STATE_FORMAT, "split": self._split}
        for key, value in expected.items():
            if state.get(key) != value:
                raise ConfigError(
                    f"the saved environment state has {key}={state.get(key)!r}; "
                    f"this environment has {value!r}"
                )
        if len(state["task_id"]) != self.num_envs:
            raise ConfigError(
                f"the saved state holds {len(state['task_id'])} environments, not {self.num_envs}"
            )
        self._seed = int(state["seed"])
        self._started = bool(state["started"])
        self._tasks.ids[:] = state["task_id"]
        self._tasks.trials[:] = state["trial"]
        if self._started:
            self._set_tasks(self._rows, self._tasks.ids)
        for name in self._own_names + self.state_names:
            getattr(self, name)[:] = state[name.strip("_")]
        self._began[:] = time.perf_counter()

    def _begin(self, rows: np.ndarray) -> None:
        self._steps[rows] = 0
        self._return[rows] = 0.0
        self._ended[rows] = False
        self._success[rows] = False
        self._began[rows] = time.perf_counter()
        self._begin_episodes(rows)

    def _checked_actions(self, actions: np.ndarray) -> np.ndarray:
        """The actions as an integer array `[env]`, those that are ignored made valid."""
        if not self._started:
            raise gym.error.ResetNeeded("call reset() before step()")
        actions = np.asarray(actions)
        if actions.shape != (self.num_envs,) or actions.dtype.kind not in "iu":
            raise ValueError(
                f"actions must be an integer array of shape ({self.num_envs},), "
                f"got {actions.dtype} of shape {actions.shape}"
            )
        if actions.min() < 0 or actions.max() >= self._num_actions:
            wrong = (actions < 0) | (actions >= self._num_actions)
            if (wrong & ~self._ended).any():
                row = int(np.flatnonzero(wrong & ~self._ended)[0])
                raise ValueError(
                    f"action {actions[row]} of environment {row} is not in "
                    f"[0, {self._num_actions - 1}]"
                )
            actions = np.where(wrong, 0, actions)
        return actions

    def _episode_info(self) -> dict[str, Any]:
        ended = self._ended
        episode: dict[str, np.ndarray] = {
            "r": np.where(ended, self._return, 0.0).astype(np.float32),
            "l": np.where(ended, self._steps, 0),
            "t": np.where(ended, time.perf_counter() - self._began, 0.0),
            "success": self._success & ended,
        }
        for name, values in self._episode_extras().items():
            episode[name] = np.where(ended, values, 0)
        return {"episode": episode, "_episode": ended.copy()}

    def _episode_extras(self) -> dict[str, np.ndarray]:
        """Further measures of the episodes that end now, arrays `[env]` (other rows: anything)."""
        return {}

    def _set_tasks(self, rows: np.ndarray, task_ids: np.ndarray) -> None:
        """Give `rows` the tasks `task_ids` `[row]`: a function of split, seed and id only."""
        raise NotImplementedError

    def _begin_episodes(self, rows: np.ndarray) -> None:
        """Put `rows` at the start of episode `self._episode[rows]` and set their `_optimal`."""
        raise NotImplementedError

    def _advance(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Move all environments by `actions` `[env]`.

        It may move those whose episode is over too: they begin a new one right after.

        Returns:
            reward float32 `[env]` and terminated bool `[env]`, arrays that the caller may change.
        """
        raise NotImplementedError

    def _observe(self) -> Observation:
        """The current observation of every environment."""
        raise NotImplementedError
