"""The trial protocol: what every environment promises to policy, trainer and evaluation.

A *task* is the hidden part of an environment (the goal cell, the house and where its objects lie).
A *trial* is a run of episodes on one task. The agent's memory lives as long as the trial.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from embodied_icrl.common.errors import ConfigError

Observation = dict[str, np.ndarray]
RESET_OPTIONS = ("new_trial", "reset_mask", "task_ids")


class TrialVectorEnv(VectorEnv):
    """`num_envs` copies of an environment in trials, stepped together.

    A Gymnasium vector environment in NEXT_STEP autoreset mode with one addition, the trial::

        env.reset(seed=s, options={"new_trial": True, "reset_mask": mask, "task_ids": ids})

    - `new_trial` draws a new task for the masked environments (all, if there is no mask); the
      first reset always does, and so does a reset with a seed. Without it a masked environment
      begins a new episode of the task it has.
    - `task_ids` picks tasks by number instead of drawing them. Task i depends on the split, the
      seed and i only, and so does everything random inside its trial: episode k of task i is
      always the same, whatever was done in the episodes before it.
    - Environments outside the mask stay exactly as they are; their rows of the returned
      observation are their current one.
    - A trial environment never changes its task by itself. The k-th trial (k = 0, 1, ...) of slot
      j, whose index in the whole job is `first_index + j` of `total_envs`, is task
      `k * total_envs + first_index + j`, unless `task_ids` says otherwise.

    `step` returns the observation and reward that ended an episode as they are. The step after an
    ending ignores that environment's action and returns the first observation of the next episode
    with reward 0 and no flag. At an ending step `info["episode"]` holds arrays `[env]`: "r"
    (return), "l" (steps), "t" (seconds), "success", and "spl" where it is defined; the mask
    `info["_episode"]` says for which rows. `info["sparse_reward"]`, float32 `[env]`, is the success
    part of the reward of an environment that shapes its reward, and absent otherwise.

    An environment may reuse its output arrays at the next `step` or `reset`: copy what you keep.

    Args:
        num_envs: how many environments are stepped together.
        observation_space: of one environment, a `gymnasium.spaces.Dict`.
        action_space: of one environment: Discrete, MultiDiscrete or Box.
        max_episode_steps: an episode has at most this many steps, so at most one more
            observation (the terminal one included).
    """

    action_names: tuple[str, ...] = ()
    """Words for Discrete actions, by their number, for videos; may be empty."""

    def __init__(
        self,
        num_envs: int,
        observation_space: gym.spaces.Dict,
        action_space: gym.Space[Any],
        max_episode_steps: int,
    ) -> None:
        self.metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP, "render_modes": []}
        self.num_envs = num_envs
        self.single_observation_space = observation_space
        self.single_action_space = action_space
        self.observation_space = batch_space(observation_space, num_envs)
        self.action_space = batch_space(action_space, num_envs)
        self.max_episode_steps = max_episode_steps

    @property
    def has_oracle(self) -> bool:
        """Whether `oracle_action` and `optimal_return` answer."""
        return False

    @property
    def can_save_state(self) -> bool:
        """Whether `get_state` and `set_state` answer, so that a checkpoint may cut a trial."""
        return False

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin new trials or new episodes; see the class. `info["task_id"]` is int64 `[env]`."""
        raise NotImplementedError

    def step(
        self, actions: np.ndarray
    ) -> tuple[Observation, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Act in every environment.

        Returns:
            observation arrays `[env, ...]`, reward float32 `[env]`, terminated bool `[env]`,
            truncated bool `[env]`, info.
        """
        raise NotImplementedError

    def oracle_action(self, mask: np.ndarray | None = None) -> np.ndarray:
        """The action of a player who sees the hidden task, `[env, ...]`.

        Args:
            mask: bool `[env]`, the rows that matter; others hold some valid action. None: all.
        """
        raise NotImplementedError(f"{type(self).__name__} has no oracle")

    def optimal_return(self) -> np.ndarray:
        """The best return of the current episode, counted from its start: float64 `[env]`."""
        raise NotImplementedError(f"{type(self).__name__} does not know its optimal return")

    def render_state(self, index: int) -> RenderState:
        """What a video shows of environment `index`."""
        raise NotImplementedError(f"{type(self).__name__} draws no pictures")

    def get_state(self) -> dict[str, Any]:
        """Everything `set_state` needs to go on exactly from here: JSON values and NumPy arrays."""
        raise NotImplementedError(f"{type(self).__name__} cannot save its state")

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Go on from a state that `get_state` of an equally configured environment returned."""
        raise NotImplementedError(f"{type(self).__name__} cannot restore a state")


@dataclass
class RenderState:
    """What a video shows of one environment at one moment.

    Attributes:
        agent_view: what the agent sees, uint8 RGB `[height, width, 3]`.
        map: the world from above without the agent, uint8 RGB `[height, width, 3]`.
        pose: column and row of the agent in pixels of `map`, and its heading in radians clockwise
            from up, or None where the agent faces nowhere.
        targets: column, row and label of each target of this episode, in pixels of `map`.
        target_label: what the agent is asked for, "" if it isn't told.
        note: a line for people about how `agent_view` was made, "" if there is nothing to say.
    """

    agent_view: np.ndarray
    map: np.ndarray
    pose: tuple[float, float, float | None]
    targets: list[tuple[float, float, str]] = field(default_factory=list)
    target_label: str = ""
    note: str = ""


@dataclass(frozen=True)
class ResetRequest:
    """The checked options of a `reset`: which rows, and whether (and which) new tasks they get."""

    new_trial: bool
    mask: np.ndarray
    task_ids: np.ndarray | None


def parse_reset(
    options: Mapping[str, Any] | None,
    num_envs: int,
    *,
    seeded: bool = False,
    first: bool = False,
) -> ResetRequest:
    """Check the options of a `reset`.

    Args:
        options: as given to `reset`.
        num_envs: number of rows.
        seeded: a seed was given, which starts new trials everywhere.
        first: no reset came before, so that every row needs a task.

    Raises:
        ConfigError: an unknown option, a wrong shape or type, task ids without a new trial, or a
            mask that leaves out rows in a reset that must cover them all.
    """
    options = dict(options or {})
    unknown = sorted(set(options) - set(RESET_OPTIONS))
    if unknown:
        raise ConfigError(f"unknown reset option {unknown[0]!r}; use {', '.join(RESET_OPTIONS)}")
    new_trial = bool(options.get("new_trial", False)) or first or seeded
    mask = np.ones(num_envs, dtype=bool)
    if options.get("reset_mask") is not None:
        mask = np.array(options["reset_mask"])
        if mask.shape != (num_envs,) or mask.dtype != bool:
            raise ConfigError(f"reset_mask must be a bool array of shape ({num_envs},)")
    if (first or seeded) and not mask.all():
        which = "the first reset" if first else "a reset with a seed"
        raise ConfigError(f"{which} starts every environment anew: leave out reset_mask")
    task_ids = options.get("task_ids")
    if task_ids is not None:
        if not new_trial:
            raise ConfigError("task_ids picks the task of a new trial: pass new_trial=True with it")
        task_ids = np.asarray(task_ids)
        if task_ids.shape != (num_envs,) or task_ids.dtype.kind not in "iu":
            raise ConfigError(f"task_ids must be an integer array of shape ({num_envs},)")
        task_ids = task_ids.astype(np.int64)
        if (task_ids[mask] < 0).any():
            raise ConfigError("task_ids must not be negative")
    return ResetRequest(new_trial, mask, task_ids)


class TaskStream:
    """Which task each environment slot has, and which comes next.

    Attributes:
        ids: int64 `[env]`, the task of each slot's current trial, -1 before the first.
        trials: int64 `[env]`, how many trials each slot has begun.
    """

    def __init__(self, num_envs: int, first_index: int = 0, total_envs: int | None = None) -> None:
        self.total_envs = num_envs if total_envs is None else total_envs
        if first_index < 0 or first_index + num_envs > self.total_envs:
            raise ConfigError(
                f"environments {first_index} to {first_index + num_envs - 1} do not fit into "
                f"total_envs={self.total_envs}"
            )
        self.slots = np.arange(first_index, first_index + num_envs, dtype=np.int64)
        self.ids = np.full(num_envs, -1, dtype=np.int64)
        self.trials = np.zeros(num_envs, dtype=np.int64)

    def restart(self) -> None:
        """Begin again with each slot's first task (after a new seed)."""
        self.ids[:] = -1
        self.trials[:] = 0

    def advance(self, request: ResetRequest) -> np.ndarray:
        """Give the rows of a new-trial request their next or their chosen task; return all ids."""
        mask = request.mask
        if request.task_ids is None:
            self.ids[mask] = (self.trials * self.total_envs + self.slots)[mask]
        else:
            self.ids[mask] = request.task_ids[mask]
        self.trials[mask] += 1
        return self.ids


def check_split(split: str, available: tuple[str, ...]) -> str:
    """Return `split`, or raise a ConfigError that names the available ones."""
    if split not in available:
        raise ConfigError(f"unknown split {split!r}; this environment has: {', '.join(available)}")
    return split
