"""Plain Gymnasium environments as trial environments: bring your own, nothing to register.

A user writes two functions in a Python file beside the configuration::

    # bandit.py
    class Bandit(gymnasium.Env):
        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)              # this episode's own randomness
            self.best_arm = options["task"]       # the hidden part, the same for a whole trial
            ...

    def make_env(arms):
        return Bandit(arms)

    def sample_task(rng, split, index, arms):
        return int(rng.integers(arms))

and names them::

    env:
      _target_: embodied_icrl.envs.trial_env.TrialEnvConfig
      make_env: bandit.make_env
      make_env_kwargs: {arms: 5}
      task_sampler: bandit.sample_task
      task_sampler_kwargs: {arms: 5}
      max_episode_steps: 10

Each environment is built once and told its task at every reset, so that an environment that is
dear to build (a simulator with its renderer) stays, and one that must be rebuilt for a task can do
so in its `reset`. Reset options are Gymnasium's own channel for this and pass through its wrappers;
for an environment that takes its task otherwise, `apply_task(env, task)` does it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np

from embodied_icrl.common.config import option
from embodied_icrl.common.errors import ConfigError
from embodied_icrl.common.seeds import derived_seed, task_rng
from embodied_icrl.envs.base import (
    Observation,
    RenderState,
    TaskStream,
    TrialVectorEnv,
    check_split,
    parse_reset,
)
from embodied_icrl.envs.plain_envs import MakeEnv, PlainEnv, build_envs, horizon, import_dotted
from embodied_icrl.envs.slot import EpisodeRules, Slot, SuccessRule, merged_info
from embodied_icrl.envs.spaces import (
    ObservationBatch,
    any_action,
    checked_action_space,
    checked_actions,
    env_action,
)

TaskSampler = Callable[[np.random.Generator, str, int], Any]
ApplyTask = Callable[[PlainEnv, Any], None]
STATE_FORMAT = 1
DEFAULT_SPLITS = ("train", "test")


class TrialEnv(TrialVectorEnv):
    """`num_envs` plain Gymnasium environments in trials, stepped one after the other.

    What the environments may offer beyond Gymnasium, each as a method of the environment or of a
    wrapper: `oracle_action()` and `optimal_return()` (both: `has_oracle`), `render_state()` (a
    `RenderState`, for videos), `get_state()` and `set_state(state)` (JSON values and arrays:
    `can_save_state`). From their info come `success` or `is_success`, at an episode's end `spl`,
    and at every step `sparse_reward`, the success part of a shaped reward.

    Args:
        make_env: called once per environment; returns a new `gymnasium.Env`, with Discrete,
            MultiDiscrete or bounded Box actions and Box, Discrete or (nested) Dict observations.
        task_sampler: `(rng, split, index) -> task`. The generator depends on split, seed and index
            only; a sampler that draws from a fixed list keeps the splits apart itself. The task
            reaches the environment as `options["task"]` at every reset.
        num_envs: number of environments.
        split: which tasks, one of `splits`.
        seed: of the tasks and episodes. Episode k of task i is reset with a seed that depends on
            split, seed, i and k only.
        first_index: index of the first environment in the whole job of `total_envs` environments.
        max_episode_steps: episodes are truncated here; None: what the environment's spec says.
        apply_task: `(env, task)`, called at the start of a trial instead of the reset option.
        success: see `EpisodeRules`. Without "none", an episode whose info says nothing failed.

    Raises:
        ConfigError: an unusable environment, space, split or horizon.
    """

    def __init__(
        self,
        make_env: MakeEnv,
        task_sampler: TaskSampler,
        num_envs: int,
        *,
        split: str = "train",
        seed: int = 0,
        first_index: int = 0,
        total_envs: int | None = None,
        splits: tuple[str, ...] = DEFAULT_SPLITS,
        max_episode_steps: int | None = None,
        apply_task: ApplyTask | None = None,
        success: SuccessRule = "any",
    ) -> None:
        if num_envs < 1:
            raise ConfigError(f"num_envs must be at least 1, not {num_envs}")
        self._split = check_split(split, splits)
        self._seed = seed
        self._tasks = TaskStream(num_envs, first_index, total_envs)
        self._sample_task = task_sampler
        envs = build_envs(make_env, [int(index) for index in self._tasks.slots])
        steps = horizon(envs[0], max_episode_steps)
        rules = EpisodeRules(steps, success, apply_task)
        self._reports_success = success != "none"
        self._slots = [
            Slot(env, int(index), rules) for env, index in zip(envs, self._tasks.slots, strict=True)
        ]
        self._batch = ObservationBatch(envs[0].observation_space, num_envs)
        self._actions = checked_action_space(envs[0].action_space)
        super().__init__(num_envs, self._batch.space, self._actions, steps)
        self._has_oracle = self._all_offer("oracle_action", "optimal_return")
        self._can_save_state = self._all_offer("get_state", "set_state")
        self._started = False

    @property
    def has_oracle(self) -> bool:
        return self._has_oracle

    @property
    def can_save_state(self) -> bool:
        """Whether the environments can, so that a checkpoint may cut a trial.

        If not, `get_state` answers all the same, with what is needed at the end of a trial: after
        `set_state`, every environment must begin a new trial.
        """
        return self._can_save_state

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        request = parse_reset(
            options, self.num_envs, seeded=seed is not None, first=not self._started
        )
        if seed is not None:
            self._seed = seed
            self._tasks.restart()
        if request.new_trial:
            self._tasks.advance(request)
        for row in np.flatnonzero(request.mask).tolist():
            if request.new_trial:
                self._give_task(row)
            self._begin(row, 0 if request.new_trial else self._slots[row].episode + 1)
        self._started = True
        return dict(self._batch.arrays), {"task_id": self._tasks.ids.copy()}

    def step(
        self, actions: np.ndarray
    ) -> tuple[Observation, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        if not self._started:
            raise gym.error.ResetNeeded("call reset() before step()")
        fresh = np.array([slot.ended for slot in self._slots])
        actions = checked_actions(self._actions, actions, self.num_envs, fresh)
        reward = np.zeros(self.num_envs, dtype=np.float32)
        terminated = np.zeros(self.num_envs, dtype=bool)
        truncated = np.zeros(self.num_envs, dtype=bool)
        infos: list[Mapping[str, Any]] = [{}] * self.num_envs
        for row, slot in enumerate(self._slots):
            if fresh[row]:
                self._begin(row, slot.episode + 1)
                continue
            result = self._guarded(row, slot.act, env_action(self._actions, actions[row]))
            observation, reward[row], terminated[row], truncated[row], infos[row] = result
            self._write(row, observation)
        info = merged_info(self._slots, infos, terminated | truncated, self._reports_success)
        return dict(self._batch.arrays), reward, terminated, truncated, info

    def oracle_action(self, mask: np.ndarray | None = None) -> np.ndarray:
        if not self.has_oracle:
            return super().oracle_action(mask)
        actions = np.zeros(self.action_space.shape or (), dtype=self.action_space.dtype)
        actions[:] = any_action(self._actions)
        for row, slot in enumerate(self._slots):
            if (mask is None or mask[row]) and not slot.ended:
                actions[row] = self._guarded(row, slot.call, "oracle_action")
        return actions

    def optimal_return(self) -> np.ndarray:
        if not self.has_oracle:
            return super().optimal_return()
        values = [
            self._guarded(row, slot.call, "optimal_return") for row, slot in enumerate(self._slots)
        ]
        return np.array(values, dtype=np.float64)

    def render_state(self, index: int) -> RenderState:
        if not self._slots[index].offers("render_state"):
            raise NotImplementedError(
                f"{self._slots[index].env.unwrapped!r} draws no pictures: give it a method "
                "render_state() that returns a RenderState"
            )
        state: RenderState = self._guarded(index, self._slots[index].call, "render_state")
        return state

    def get_state(self) -> dict[str, Any]:
        """Where everything stands; see `can_save_state`."""
        complete = self.can_save_state and self._started
        state: dict[str, Any] = {
            "format": STATE_FORMAT,
            "split": self._split,
            "seed": self._seed,
            "started": complete,
            "task_id": self._tasks.ids.copy(),
            "trial": self._tasks.trials.copy(),
        }
        if complete:
            state["envs"] = [
                self._guarded(row, slot.get_state) for row, slot in enumerate(self._slots)
            ]
            state["observation"] = {key: a.copy() for key, a in self._batch.arrays.items()}
        return state

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Go on from a saved state.

        Raises:
            ConfigError: the state is of another format, split or number of environments, or it
                was saved inside a trial and the environments can't restore that.
        """
        _check_state(state, self._split, self.num_envs)
        if state["started"] and not self.can_save_state:
            raise ConfigError(
                "the saved state lies inside a trial; the environments need get_state() and "
                "set_state(state) to go on from there"
            )
        self._seed = int(state["seed"])
        self._tasks.ids[:] = state["task_id"]
        self._tasks.trials[:] = state["trial"]
        self._started = bool(state["started"])
        if not self._started:
            return
        for row, slot in enumerate(self._slots):
            saved = state["envs"][row]
            self._give_task(row)
            seed = self._episode_seed(row, int(saved["episode"]))
            self._guarded(row, slot.set_state, saved, seed)
        for key, values in state["observation"].items():
            self._batch.arrays[key][:] = values

    def close_extras(self, **kwargs: Any) -> None:
        for slot in self._slots:
            slot.env.close()

    def _all_offer(self, *names: str) -> bool:
        return all(slot.offers(*names) for slot in self._slots)

    def _give_task(self, row: int) -> None:
        task_id = int(self._tasks.ids[row])
        rng = task_rng(self._split, self._seed, task_id)
        task = self._guarded(row, self._sample_task, rng, self._split, task_id)
        self._guarded(row, self._slots[row].set_task, task_id, task)

    def _begin(self, row: int, episode: int) -> None:
        seed = self._episode_seed(row, episode)
        self._write(row, self._guarded(row, self._slots[row].begin, episode, seed))

    def _episode_seed(self, row: int, episode: int) -> int:
        """In [0, 2**31): some libraries take no larger one."""
        task_id = int(self._tasks.ids[row])
        return derived_seed(self._seed, "episode", self._split, task_id, episode) % 2**31

    def _write(self, row: int, observation: Any) -> None:
        slot = self._slots[row]
        self._guarded(row, self._batch.write, row, observation, slot.where())

    def _guarded(self, row: int, function: Callable[..., Any], *args: Any) -> Any:
        """Call into user code; an exception tells from which environment and moment it came."""
        try:
            return function(*args)
        except Exception as error:
            slot = self._slots[row]
            error.env_index = slot.index  # type: ignore[attr-defined]
            error.add_note(f"in {slot.where()}, split {self._split!r}, seed {self._seed}")
            raise


def _check_state(state: Mapping[str, Any], split: str, num_envs: int) -> None:
    for key, value in {"format": STATE_FORMAT, "split": split}.items():
        if state.get(key) != value:
            raise ConfigError(
                f"the saved environment state has {key}={state.get(key)!r}; this environment "
                f"has {value!r}"
            )
    if len(state["task_id"]) != num_envs:
        raise ConfigError(
            f"the saved state holds {len(state['task_id'])} environments, not {num_envs}"
        )


@dataclass(frozen=True)
class TrialEnvConfig:
    """A user's environment, named in a configuration; see the module for an example."""

    make_env: str = option(doc="dotted name of a function (or class) that builds one environment")
    task_sampler: str = option(
        doc="dotted name of a function (rng, split, index) that draws a task"
    )
    make_env_kwargs: dict[str, Any] = option({}, "keyword arguments of make_env")
    task_sampler_kwargs: dict[str, Any] = option({}, "further keyword arguments of task_sampler")
    apply_task: str | None = option(
        None, "dotted name of a function (env, task); null: the reset option 'task' is enough"
    )
    max_episode_steps: int | None = option(
        None, "longest episode (environment steps); null: what the environment's spec says"
    )
    splits: tuple[str, ...] = option(DEFAULT_SPLITS, "names of the splits that task_sampler knows")
    success: SuccessRule = option(
        "any", "an episode succeeds if its info said so at any step or at its end; none: no success"
    )

    def build(
        self,
        num_envs: int,
        *,
        split: str = "train",
        seed: int = 0,
        first_index: int = 0,
        total_envs: int | None = None,
    ) -> TrialEnv:
        """Build `num_envs` environments in this process.

        Raises:
            ConfigError: see `TrialEnv`; or a function can't be imported.
        """
        apply_task = self.apply_task
        return TrialEnv(
            partial(import_dotted(self.make_env, "make_env"), **self.make_env_kwargs),
            partial(import_dotted(self.task_sampler, "task_sampler"), **self.task_sampler_kwargs),
            num_envs,
            split=split,
            seed=seed,
            first_index=first_index,
            total_envs=total_envs,
            splits=self.splits,
            max_episode_steps=self.max_episode_steps,
            apply_task=None if apply_task is None else import_dotted(apply_task, "apply_task"),
            success=self.success,
        )
