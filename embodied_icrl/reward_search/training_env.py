"""The environments of one training: copies of a task under a candidate's reward."""

from __future__ import annotations

import math
import signal
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray
from stable_baselines3.common.vec_env import VecEnv

from embodied_icrl.manipulation.task import Task
from embodied_icrl.manipulation.task_env import TaskEnv
from embodied_icrl.reward_search.findings import printable
from embodied_icrl.reward_search.loading import FILENAME
from embodied_icrl.reward_search.unit_checks import CALL_LIMIT_S, MAX_COMPONENTS, MAX_NAME


class RewardFailure(Exception):
    """The candidate's reward failed in training; the message is one short line.

    `by_clock`: another run might end otherwise.
    """

    def __init__(self, message: str, by_clock: bool = False) -> None:
        super().__init__(message)
        self.by_clock = by_clock


class _TooLong(BaseException):
    """Raised by the timer; not an Exception, so that nothing that handles those swallows it."""


class MeteredReward:
    """A candidate's reward with its faults named, its calls timed and its outputs added up."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self._function = function
        self._sums: dict[str, float] = {}
        self._total = 0.0
        self._last: tuple[float, dict[str, float]] = (0.0, {})
        self._count = 0  # of calls since the last means
        self._call = 0  # number of the call
        self._is_inside = False
        self._at_tick: tuple[int, bool] = (-1, False)

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Within, a call that is still the same after two ticks of processor time fails.

        One timer for all calls: setting one per call would cost more than most rewards.
        """
        before = signal.signal(signal.SIGPROF, self._tick)
        signal.setitimer(signal.ITIMER_PROF, CALL_LIMIT_S, CALL_LIMIT_S)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.signal(signal.SIGPROF, before)

    def __call__(self, state: Any) -> tuple[float, dict[str, float]]:
        """The reward of a state.

        Raises:
            RewardFailure: it raised, took too long, or returned something that is no reward.
        """
        self._call += 1
        self._is_inside = True
        try:
            total, components = self._function(state)
            total = float(total)
            sums = self._sums
            for name, value in components.items():
                sums[name] = sums.get(name, 0.0) + float(value)
        except _TooLong:
            raise RewardFailure(f"a call took more than {CALL_LIMIT_S} s", by_clock=True) from None
        except Exception as error:
            raise RewardFailure(_told(error)) from None
        finally:
            self._is_inside = False
        if not math.isfinite(total):
            raise RewardFailure(f"the reward was {total}")
        self._total += total
        self._count += 1
        return total, components

    def take_means(self) -> tuple[float, dict[str, float]]:
        """Mean total and components per call since the last time; as then, if there was no call.

        Raises:
            RewardFailure: a component can't be reported.
        """
        count = self._count
        if count == 0:
            return self._last
        if len(self._sums) > MAX_COMPONENTS:
            raise RewardFailure(f"more than {MAX_COMPONENTS} components")
        means = {}
        for name, value in self._sums.items():
            if not isinstance(name, str) or len(name) > MAX_NAME:
                raise RewardFailure("a component's name is no short text")
            if not math.isfinite(value):
                raise RewardFailure(f"component {printable(name, MAX_NAME)} was {value}")
            means[name] = value / count
        self._last = self._total / count, means
        self._sums, self._total, self._count = {}, 0.0, 0
        return self._last

    def _tick(self, signum: int, frame: Any) -> None:
        before, self._at_tick = self._at_tick, (self._call, self._is_inside)
        if self._is_inside and before == self._at_tick:
            raise _TooLong


def _told(error: Exception) -> str:
    """Type, message and line of what reward code raised."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == FILENAME]
    where = f" in line {lines[-1]} of the reward" if lines else " in what the reward returned"
    try:
        message = str(error)
    except Exception:
        message = ""
    return printable(f"{type(error).__name__}{where}: {message}", 200)


class RewardVecEnv(VecEnv):
    """Environments stepped one after the other in this process.

    As `DummyVecEnv`, without its deep copies of every info, which cost more than a step of the
    small tasks.
    """

    def __init__(self, task: Task, reward: Callable[[Any], Any], n_envs: int) -> None:
        self.envs = [TaskEnv(task, reward) for _ in range(n_envs)]
        first = self.envs[0]
        super().__init__(n_envs, first.observation_space, first.action_space)
        width = first.observation_space.shape[0]  # type: ignore[index]
        self._observations = np.zeros((n_envs, width), np.float32)
        self._rewards = np.zeros(n_envs, np.float32)
        self._dones = np.zeros(n_envs, bool)
        self._infos: list[dict[str, Any]] = []
        self._actions: NDArray[Any] = np.zeros(0)

    def reset(self) -> NDArray[np.float32]:
        """Begin an episode everywhere, [env, width]; with the seeds that `seed` has set."""
        for i, env in enumerate(self.envs):
            self._observations[i], _ = env.reset(seed=self._seeds[i])
        self._reset_seeds()
        return self._observations.copy()

    def step_async(self, actions: NDArray[Any]) -> None:
        """Keep the actions [env, ...] for `step_wait`."""
        self._actions = actions

    def step_wait(self) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[Any], Any]:
        """Step everywhere; an episode that ends is followed by the first state of the next."""
        infos: list[dict[str, Any]] = [{} for _ in self.envs]
        for i, env in enumerate(self.envs):
            observation, reward, terminated, truncated, _ = env.step(self._actions[i])
            self._rewards[i] = reward
            self._dones[i] = terminated or truncated
            if terminated or truncated:
                infos[i] = {
                    "terminal_observation": observation,
                    "TimeLimit.truncated": truncated,
                }
                observation, _ = env.reset()
            self._observations[i] = observation
        # Copies: the learner keeps some of them and writes to others.
        return self._observations.copy(), self._rewards.copy(), self._dones.copy(), infos

    def close(self) -> None:
        """Close every simulator."""
        for env in self.envs:
            env.close()

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """As in `VecEnv`."""
        return [getattr(env, attr_name) for env in self._chosen(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """As in `VecEnv`."""
        for env in self._chosen(indices):
            setattr(env, attr_name, value)

    def env_method(
        self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any
    ) -> list[Any]:
        """As in `VecEnv`."""
        return [getattr(env, method_name)(*args, **kwargs) for env in self._chosen(indices)]

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        """As in `VecEnv`; nothing is wrapped."""
        return [False for _ in self._chosen(indices)]

    def _chosen(self, indices: Any) -> Sequence[TaskEnv]:
        return [self.envs[i] for i in self._get_indices(indices)]
