"""The other end of `remote`: a process, maybe of another Python, that holds the simulator.

Started as `python -m embodied_icrl.simulators.remote_worker SOCKET`, an inherited file descriptor.
It imports NumPy, this package's two lowest floors and the simulator, nothing else.
"""

from __future__ import annotations

import os
import platform
import socket
import sys
import traceback
from typing import Any, Dict, List

import numpy as np

from embodied_icrl.simulators.base import Simulator
from embodied_icrl.simulators.messages import Closed, receive, send
from embodied_icrl.simulators.shared import map_shared

POSES = ("positions", "yaw", "tilt", "collided")


def main(arguments: List[str]) -> None:
    """Build the simulator that the first message describes, then answer calls until closed."""
    connection = socket.socket(fileno=int(arguments[0]))
    send(connection, {"python": platform.python_version(), "numpy": np.__version__})
    worker = _Worker(connection)
    while True:
        try:
            method, given = receive(connection)
        except Closed:
            break
        try:
            answer = {"result": worker.call(method, given)}
        except Exception as error:
            answer = {"error": describe_error(error)}
        send(connection, answer)
        if method == "close":
            break
    worker.close()


def describe_error(error: Exception) -> Dict[str, Any]:
    """An exception as plain data."""
    cls = type(error)
    return {
        "class": [cls.__module__, cls.__qualname__],
        "message": str(error),
        "traceback": traceback.format_exc(),
    }


class _Worker:
    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.simulator: Any = None
        self.arrays: Dict[str, np.ndarray] = {}
        self.observations: Dict[str, np.ndarray] = {}

    def call(self, method: str, given: List[Any]) -> Any:
        if method == "build":
            config, num_envs, sensors, categories, body = given
            self.simulator = config.build(num_envs, sensors, categories, body)
            return self.simulator.observation_specs()
        if method == "share":
            _, (descriptor,), *_ = socket.recv_fds(self.connection, 1, 1)
            self.arrays = map_shared(descriptor, given[0])
            os.close(descriptor)
            self.observations = {k: v for k, v in self.arrays.items() if k not in POSES}
            return None
        if method == "close":
            return self.close()
        if method == "random_points":
            return self._random_points(*given)
        result = self._do(self.simulator, method, given)
        for name in POSES:
            self.arrays[name][...] = getattr(self.simulator, name)
        return result

    def close(self) -> None:
        if self.simulator is not None:
            self.simulator.close()
            self.simulator = None

    def _do(self, simulator: Simulator, method: str, given: List[Any]) -> Any:
        if method == "observe":
            return simulator.observe(self.observations)
        return getattr(simulator, method)(*given)

    def _random_points(self, row: int, state: Dict[str, Any], count: int) -> Any:
        """Draws with the caller's generator and tells where it stands afterwards."""
        rng = np.random.Generator(getattr(np.random, state["bit_generator"])())
        rng.bit_generator.state = state
        points = self.simulator.random_points(row, rng, count)
        return points, dict(rng.bit_generator.state)


if __name__ == "__main__":
    main(sys.argv[1:])
