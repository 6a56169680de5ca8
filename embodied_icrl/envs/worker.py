"""The worker process of a `ProcessTrialEnv`: it hosts some of the environments and obeys.

It runs in a fresh interpreter (never a fork: forking a process with torch's threads can hang), so
it imports no torch and not the parent's main script. Messages come and go through one socket, each
a pickled (name, argument) or (outcome, value); observations go through shared memory.
"""

from __future__ import annotations

import faulthandler
import os
import pickle
import signal
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import gymnasium as gym
import numpy as np

from embodied_icrl.common import errors
from embodied_icrl.envs.base import Observation, TrialVectorEnv
from embodied_icrl.envs.shared_arrays import map_arrays

STACK_SIGNAL = signal.SIGUSR2
# Signals meant for the job: the parent hears them too and ends its workers when it is ready.
_PARENTS_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)


@dataclass(frozen=True)
class Failure:
    """What went wrong in a worker.

    Attributes:
        text: the formatted traceback.
        env_index: the environment that raised, counted in the whole job; None if unknown.
        user_error: class name (in `common.errors`) and message of an error that the user can put
            right.
    """

    text: str
    env_index: int | None
    user_error: tuple[str, str] | None


@dataclass(frozen=True)
class Description:
    """What the parent needs to know of the environments."""

    observation_space: Any
    action_space: Any
    max_episode_steps: int
    has_oracle: bool
    can_save_state: bool


def main(socket: int, shared_file: int, report_file: int) -> None:
    """Serve the process at the other end of the socket until it closes it.

    Args:
        socket: descriptor of the connected socket.
        shared_file: descriptor of the shared observations.
        report_file: descriptor of the file for stack traces in emergencies.
    """
    for descriptor in (socket, shared_file, report_file):
        os.set_inheritable(descriptor, False)
    faulthandler.enable(report_file)
    faulthandler.register(STACK_SIGNAL, report_file)
    for number in _PARENTS_SIGNALS:
        # A handler, not SIG_IGN: programs that an environment starts would inherit the latter.
        signal.signal(number, lambda *_: None)
    threading.Thread(target=_end_with_parent, args=(os.getppid(),), daemon=True).start()
    with Connection(socket) as connection:
        _serve(connection, shared_file)


def _end_with_parent(parent: int) -> None:
    """End a worker that is busy, too, when its parent dies."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


def _serve(connection: Connection[Any, Any], shared_file: int) -> None:
    host = _Host(shared_file)
    while True:
        try:
            request = connection.recv_bytes()
        except (EOFError, OSError):
            break
        try:
            name, argument = pickle.loads(request)
            answer = host.commands[name](argument)
            reply = pickle.dumps(("ok", answer), pickle.HIGHEST_PROTOCOL)
        except NotImplementedError as error:
            reply = pickle.dumps(("not implemented", str(error)))
        except BaseException as error:
            reply = pickle.dumps(("failed", _failure(error)))
        try:
            connection.send_bytes(reply)
        except OSError:
            break
    host.close()


class _Host:
    """The environments of a worker and what can be asked of them."""

    env: TrialVectorEnv

    def __init__(self, shared_file: int) -> None:
        self._shared_file = shared_file
        self._shared: dict[str, np.ndarray] = {}
        self.commands: Mapping[str, Callable[[Any], Any]] = {
            "build": self._build,
            "map": self._map,
            "reset": self._reset,
            "step": self._step,
            "oracle_action": lambda mask: self.env.oracle_action(mask),
            "optimal_return": lambda _: self.env.optimal_return(),
            "render_state": lambda index: self.env.render_state(index),
            "get_state": lambda _: self.env.get_state(),
            "set_state": lambda state: self.env.set_state(state),
        }

    def close(self) -> None:
        if hasattr(self, "env"):
            self.env.close()

    def _build(self, arguments: tuple[bytes, int, dict[str, Any]]) -> Description:
        config, num_envs, keywords = arguments
        self.env = env = pickle.loads(config).build(num_envs, **keywords)
        return Description(
            env.single_observation_space,
            env.single_action_space,
            env.max_episode_steps,
            env.has_oracle,
            env.can_save_state,
        )

    def _map(self, arguments: tuple[int, int]) -> None:
        """Find this worker's rows, from `start` on, in the shared arrays of `num_envs` rows."""
        start, num_envs = arguments
        space = self.env.single_observation_space
        assert isinstance(space, gym.spaces.Dict)
        arrays = map_arrays(self._shared_file, space, num_envs)
        rows = slice(start, start + self.env.num_envs)
        self._shared = {key: array[rows] for key, array in arrays.items()}

    def _reset(self, arguments: tuple[int | None, dict[str, Any]]) -> dict[str, Any]:
        seed, options = arguments
        observation, info = self.env.reset(seed=seed, options=options)
        self._share(observation)
        return info

    def _step(self, actions: np.ndarray) -> tuple[Any, ...]:
        observation, *rest = self.env.step(actions)
        self._share(observation)
        return tuple(rest)

    def _share(self, observation: Observation) -> None:
        for key, array in self._shared.items():
            array[...] = observation[key]


def _failure(error: BaseException) -> Failure:
    user_error = None
    if isinstance(error, errors.UserError):
        names = [cls.__name__ for cls in type(error).__mro__ if cls.__module__ == errors.__name__]
        user_error = (names[0], str(error))
    return Failure(
        "".join(traceback.format_exception(error)).rstrip(),
        getattr(error, "env_index", None),
        user_error,
    )
