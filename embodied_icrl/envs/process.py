"""Trial environments spread over worker processes."""

from __future__ import annotations

import os
import pickle
import time
import weakref
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np

from embodied_icrl.common.errors import ConfigError
from embodied_icrl.envs.base import (
    Observation,
    RenderState,
    ResetRequest,
    TaskStream,
    TrialVectorEnv,
    parse_reset,
)
from embodied_icrl.envs.joining import join_infos, join_states, split_state
from embodied_icrl.envs.shared_arrays import map_arrays, open_shared_file
from embodied_icrl.envs.worker import Description
from embodied_icrl.envs.worker_handle import (
    EnvWorkerError,
    EnvWorkerLostError,
    Share,
    WorkerHandle,
    stop_workers,
)


class ProcessTrialEnv(TrialVectorEnv):
    """The environments of a config, in worker processes.

    Seeds and actions being equal, everything it returns equals what `config.build(num_envs)`
    returns, but for the seconds that episodes took. Observations lie in memory that the workers
    write at the next `step` or `reset`: copy what you keep.

    When a worker raises, dies or hangs, the call raises an `EnvWorkerError` with the worker's own
    traceback, and the worker is ended. The others have done their part of the call. After that
    either `close`, or `restart_worker(error.worker)` and go on; anything else raises again.
    A `UserError` in a worker is raised as itself, with the `EnvWorkerError` as its cause.

    With `on_loss`, a worker that dies or hangs need not end the call: if `on_loss(error)` returns,
    a fresh worker takes its place; what it raises, the call raises. `reset` and `set_state` are
    asked again, and nothing is lost. In all other calls the environments `error.rows` begin a new
    trial: `step` returns its first observations with reward 0 and no flags, and the other calls
    answer for it.

    Workers end with `close`, with the last reference, and when this process ends, however it does.
    Signals that stop a job (SIGINT, SIGTERM, SIGHUP, SIGUSR1) don't disturb them.

    Args:
        config: a config dataclass whose module the workers can import (not `__main__`).
        num_envs: number of environments, spread evenly.
        workers: number of processes, each with one computing thread.
        split, seed, first_index, total_envs: as for the config's `build`.
        timeout_s: longest time (seconds) for one call, building and resetting included.

    Attributes:
        on_loss: decides about a worker that died or hangs; None: the call raises the error.

    Raises:
        ConfigError: more workers than environments, or a config that can't be sent to a worker.
        EnvWorkerError: a worker could not build its environments.
    """

    def __init__(
        self,
        config: Any,
        num_envs: int,
        workers: int,
        *,
        split: str = "train",
        seed: int = 0,
        first_index: int = 0,
        total_envs: int | None = None,
        timeout_s: float = 300.0,
    ) -> None:
        if not 1 <= workers <= num_envs:
            raise ConfigError(
                f"workers must be between 1 and num_envs ({num_envs}), not {workers}; 0 keeps the "
                "environments in this process"
            )
        if timeout_s <= 0:
            raise ConfigError(f"timeout_s must be positive, not {timeout_s}")
        self._config = _pickled(config)
        self._tasks = TaskStream(num_envs, first_index, total_envs)
        self._timeout_s = timeout_s
        self._started = False
        self.on_loss: Callable[[EnvWorkerLostError], None] | None = None
        self._shares = _shares(num_envs, workers, first_index, seed, split)
        self._counts = [share.num_envs for share in self._shares]
        self._shared_file = open_shared_file()
        self._workers: list[WorkerHandle] = []
        # Also runs when the last reference goes and when the interpreter ends.
        self._release = weakref.finalize(
            self, _release, os.getpid(), self._workers, self._shared_file
        )
        try:
            for share in self._shares:
                self._workers.append(WorkerHandle(share, self._shared_file, timeout_s))
            found: Description = self._ask_all("build", self._build_arguments)[0]
            super().__init__(
                num_envs, found.observation_space, found.action_space, found.max_episode_steps
            )
            self._has_oracle, self._can_save_state = found.has_oracle, found.can_save_state
            self._observation = map_arrays(self._shared_file, found.observation_space, num_envs)
            self._ask_all("map", lambda share: (share.start, num_envs))
        except BaseException:
            self._release()
            raise

    @property
    def has_oracle(self) -> bool:
        return self._has_oracle

    @property
    def can_save_state(self) -> bool:
        return self._can_save_state

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        request = parse_reset(
            options, self.num_envs, seeded=seed is not None, first=not self._started
        )
        if seed is not None:
            self._take_seed(seed)
            self._tasks.restart()
        if request.new_trial:
            self._tasks.advance(request)
        infos = self._ask_all("reset", lambda share: (seed, self._reset_options(request, share)))
        self._started = True
        return dict(self._observation), join_infos(infos, self._counts)

    def step(
        self, actions: np.ndarray
    ) -> tuple[Observation, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        if not self._started:
            raise gym.error.ResetNeeded("call reset() before step()")
        actions = np.asarray(actions)
        if actions.shape != self.action_space.shape:
            raise ValueError(
                f"actions must have shape {self.action_space.shape}, not {actions.shape}"
            )
        answers = self._ask_all("step", lambda share: actions[share.rows])
        reward, terminated, truncated = (
            np.concatenate([answer[i] for answer in answers]) for i in range(3)
        )
        info = join_infos([answer[3] for answer in answers], self._counts)
        return dict(self._observation), reward, terminated, truncated, info

    def oracle_action(self, mask: np.ndarray | None = None) -> np.ndarray:
        masks = np.ones(self.num_envs, dtype=bool) if mask is None else mask
        return np.concatenate(self._ask_all("oracle_action", lambda share: masks[share.rows]))

    def optimal_return(self) -> np.ndarray:
        return np.concatenate(self._ask_all("optimal_return"))

    def render_state(self, index: int) -> RenderState:
        if not 0 <= index < self.num_envs:
            raise IndexError(f"there is no environment {index} of {self.num_envs}")
        share = next(s for s in self._shares if index < s.start + s.num_envs)
        state: RenderState = self._ask("render_state", {share.worker: index - share.start})[0]
        return state

    def get_state(self) -> dict[str, Any]:
        """The state of all environments, the same whatever the number of workers."""
        state = join_states(self._ask_all("get_state"), self._counts)
        return {**state, "trial": self._tasks.trials.copy()}

    def set_state(self, state: Mapping[str, Any]) -> None:
        if len(state["task_id"]) != self.num_envs:
            raise ConfigError(
                f"the saved state holds {len(state['task_id'])} environments, not {self.num_envs}"
            )
        parts = split_state(state, self._counts)
        self._ask_all("set_state", lambda share: parts[share.worker])
        self._take_seed(int(state["seed"]))
        self._tasks.ids[:] = state["task_id"]
        self._tasks.trials[:] = state["trial"]
        self._started = bool(state["started"])

    def restart_worker(self, worker: int) -> Observation:
        """Put a fresh process in the place of a worker, dead or alive.

        Its environments begin a new trial (if there was a reset before), so the agent's memory of
        them must be cleared. The other environments stay as they are; where a call failed, those
        whose worker answered have moved on, and their rewards and flags of that step are lost.

        Returns:
            the current observations of all environments.
        """
        self._start_anew(worker)
        if self._started:
            share = self._shares[worker]
            mask = np.zeros(self.num_envs, dtype=bool)
            mask[share.rows] = True
            request = ResetRequest(True, mask, None)
            self._tasks.advance(request)
            self._ask("reset", {worker: (None, self._reset_options(request, share))})
        return dict(self._observation)

    def close_extras(self, **kwargs: Any) -> None:
        self._release()
        self._observation = {}

    def __enter__(self) -> ProcessTrialEnv:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _start_anew(self, worker: int) -> None:
        """Put a fresh process, whose environments have not been reset, in the place of a worker."""
        share = self._shares[worker]
        self._workers[worker].kill()
        self._workers[worker] = WorkerHandle(share, self._shared_file, self._timeout_s)
        self._ask("build", {worker: self._build_arguments(share)})
        self._ask("map", {worker: (share.start, self.num_envs)})

    def _build_arguments(self, share: Share) -> tuple[bytes, int, dict[str, Any]]:
        keywords = {
            "split": share.split,
            "seed": share.seed,
            "first_index": share.first_index,
            "total_envs": self._tasks.total_envs,
        }
        return self._config, share.num_envs, keywords

    def _reset_options(self, request: ResetRequest, share: Share) -> dict[str, Any]:
        """A worker's part of a reset. It is told its tasks: a fresh one can't have counted."""
        options = {"new_trial": request.new_trial, "reset_mask": request.mask[share.rows]}
        if request.new_trial:
            options["task_ids"] = self._tasks.ids[share.rows]
        return options

    def _take_seed(self, seed: int) -> None:
        self._shares = [replace(share, seed=seed) for share in self._shares]
        for worker, share in zip(self._workers, self._shares, strict=True):
            worker.share = share

    def _ask_all(self, name: str, argument: Callable[[Share], Any] = lambda _: None) -> list[Any]:
        """Ask all workers, and fresh ones in the place of those that `on_loss` lets go."""
        arguments = {share.worker: argument(share) for share in self._shares}
        answers, failures = self._exchange(name, arguments)
        for number in sorted(failures):
            if self.on_loss is None or not isinstance(failures[number], EnvWorkerLostError):
                raise failures[number]
        for number in sorted(failures):
            answers[number] = self._fresh_answer(number, failures[number], name, arguments[number])
        return [answers[number] for number in sorted(arguments)]

    def _fresh_answer(self, worker: int, failure: Exception, name: str, argument: Any) -> Any:
        """The answer of a fresh worker, or of the one after it: `on_loss` says how often."""
        share = self._shares[worker]
        while True:
            assert self.on_loss is not None and isinstance(failure, EnvWorkerLostError)
            self.on_loss(failure)
            try:
                if name == "reset":
                    # Whatever was to be reset: a fresh worker's environments begin all together.
                    tasks = {"new_trial": True, "task_ids": self._tasks.ids[share.rows]}
                    argument = (argument[0], tasks)
                if name in ("reset", "set_state"):
                    self._start_anew(worker)
                else:
                    self.restart_worker(worker)
                if name == "step":
                    return _no_step(share.num_envs)
                return self._ask(name, {worker: argument})[0]
            except EnvWorkerLostError as error:
                failure = error

    def _ask(self, name: str, arguments: Mapping[int, Any]) -> list[Any]:
        """Send a request to some workers at once and collect their answers, in order of workers.

        Raises:
            EnvWorkerError, UserError, NotImplementedError: of the first worker that failed; the
                answers of the others have been taken, so that they can be asked again.
        """
        answers, failures = self._exchange(name, arguments)
        if failures:
            raise failures[min(failures)]
        return [answers[number] for number in sorted(arguments)]

    def _exchange(
        self, name: str, arguments: Mapping[int, Any]
    ) -> tuple[dict[int, Any], dict[int, Exception]]:
        """Send a request to some workers at once; their answers and failures, by worker."""
        if self.closed:
            raise gym.error.ClosedEnvironmentError("the environments have been closed")
        for number in arguments:
            if self._workers[number].has_ended:
                raise EnvWorkerError(
                    f"{self._shares[number]} has ended; call restart_worker({number}) or close()",
                    self._shares[number],
                )
        deadline = time.monotonic() + self._timeout_s
        answers: dict[int, Any] = {}
        failures: dict[int, Exception] = {}
        asked: list[WorkerHandle] = []
        try:
            for number, argument in arguments.items():
                asked.append(self._workers[number])
                _attempt(number, partial(asked[-1].ask, name, argument), failures)
            while asked:
                number = asked[0].share.worker
                if number not in failures:
                    answers[number] = _attempt(number, partial(asked[0].answer, deadline), failures)
                asked.pop(0)
        except BaseException:
            # Interrupted, as by Ctrl-C: an answer that comes later would be taken for the next.
            for worker in asked:
                worker.kill()
            raise
        return answers, failures


def _no_step(num_envs: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
    """What `step` says of environments that could not take it."""
    never = np.zeros(num_envs, dtype=bool)
    return np.zeros(num_envs, dtype=np.float32), never, never, {}


def _attempt(number: int, call: Callable[[], Any], failures: dict[int, Exception]) -> Any:
    try:
        return call()
    except Exception as error:
        failures[number] = error
        return None


def _shares(num_envs: int, workers: int, first_index: int, seed: int, split: str) -> list[Share]:
    """Spread the environments: the first workers take one more where it doesn't come out even."""
    counts = [num_envs // workers + (number < num_envs % workers) for number in range(workers)]
    starts = np.cumsum([0, *counts[:-1]]).tolist()
    return [
        Share(number, start, count, first_index + start, seed, split)
        for number, (start, count) in enumerate(zip(starts, counts, strict=True))
    ]


def _pickled(config: Any) -> bytes:
    cls = type(config)
    if cls.__module__ == "__main__":
        raise ConfigError(
            f"worker processes can't import {cls.__qualname__} from the main script: move it to a "
            "module of its own, or set workers=0"
        )
    try:
        return pickle.dumps(config)
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        raise ConfigError(
            f"{cls.__qualname__} can't be sent to worker processes ({error}): make it a plain "
            "config dataclass, or set workers=0"
        ) from error


def _release(owner: int, workers: list[WorkerHandle], shared_file: int) -> None:
    # A fork of this process inherits the finaliser, but not the workers.
    if os.getpid() == owner:
        stop_workers(workers)
        os.close(shared_file)
