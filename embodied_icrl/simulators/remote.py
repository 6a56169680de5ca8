"""A simulator in another process, and another Python where it needs one.

Trainers want a new Python and Habitat often an older one. Control goes through a socket,
observations and poses through memory that both sides map.
"""

from __future__ import annotations

import importlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import weakref
from pathlib import Path
from typing import Any, Dict, List, Mapping, Sequence, Tuple

import numpy as np

from embodied_icrl.common.errors import ConfigError, UserError, WorkerError
from embodied_icrl.simulators.base import (
    AgentBody,
    ArraySpec,
    Instances,
    ReferenceCamera,
    Simulator,
    TopDown,
)
from embodied_icrl.simulators.messages import Closed, receive, send
from embodied_icrl.simulators.remote_worker import POSES
from embodied_icrl.simulators.shared import create_shared

_PACKAGE = Path(__file__).resolve().parent.parent
_LAST_LINES = 12


class RemoteSimulator(Simulator):
    """The protocol, answered by a child process.

    Args:
        config: of the simulator that the child builds; it is sent field by field.
        python: path of the child's interpreter.
        timeout_s: longest time (seconds) that one call may take.

    Raises:
        ConfigError: there is no such interpreter.
        WorkerError: the child did not start, died or did not answer; its last lines are shown.
        UserError: what the simulator itself raised, as in this process.
    """

    def __init__(
        self,
        config: Any,
        num_envs: int,
        sensors: Mapping[str, Any],
        categories: Tuple[str, ...],
        body: AgentBody,
        *,
        python: str = sys.executable,
        timeout_s: float = 300.0,
    ) -> None:
        self.num_envs, self.sensors, self.body = num_envs, dict(sensors), body
        self.categories = tuple(categories)
        self._child = _Child(config, python, timeout_s)
        self._finalizer = weakref.finalize(self, self._child.stop)
        try:
            given = [config, num_envs, self.sensors, self.categories, body]
            self._specs: Dict[str, ArraySpec] = self._child.call("build", *given)
            self._share()
        except BaseException:
            self._finalizer()
            raise

    def _share(self) -> None:
        layout: Dict[str, Any] = {
            "positions": ("float64", (self.num_envs, 3)),
            "yaw": ("float64", (self.num_envs,)),
            "tilt": ("float64", (self.num_envs,)),
            "collided": ("bool", (self.num_envs,)),
        }
        for key, spec in self._specs.items():
            layout[key] = (spec.dtype, (self.num_envs, *spec.shape))
        descriptor, arrays = create_shared(layout)
        try:
            self._child.share(layout, descriptor)
        finally:
            os.close(descriptor)
        self.positions, self.yaw, self.tilt, self.collided = (arrays[name] for name in POSES)
        self._observations = {key: arrays[key] for key in self._specs}

    def observation_specs(self) -> Dict[str, ArraySpec]:
        return dict(self._specs)

    def load(self, row: int, scene: Any) -> None:
        self._child.call("load", row, scene)

    def instances(self, row: int) -> Instances:
        found: Instances = self._child.call("instances", row)
        return found

    def random_points(self, row: int, rng: np.random.Generator, count: int) -> np.ndarray:
        state = dict(rng.bit_generator.state)
        points, state = self._child.call("random_points", row, state, count)
        rng.bit_generator.state = state
        return np.asarray(points)

    def points_around(
        self, row: int, centre: np.ndarray, radius: float, spacing: float
    ) -> np.ndarray:
        return np.asarray(self._child.call("points_around", row, centre, radius, spacing))

    def in_sight(self, row: int, instance: int, points: np.ndarray) -> np.ndarray:
        return np.asarray(self._child.call("in_sight", row, instance, points))

    def place(
        self, rows: np.ndarray, positions: np.ndarray, yaw: np.ndarray, tilt: np.ndarray
    ) -> None:
        self._child.call("place", rows, positions, yaw, tilt)

    def forward(self, distance: np.ndarray) -> np.ndarray:
        return np.asarray(self._child.call("forward", distance))

    def turn(self, yaw: np.ndarray, tilt: np.ndarray) -> None:
        self._child.call("turn", yaw, tilt)

    def observe(self, out: Dict[str, np.ndarray]) -> None:
        self._child.call("observe")
        for key, array in self._observations.items():
            out[key][...] = array

    def set_goals(self, row: int, goals: Sequence[np.ndarray]) -> None:
        self._child.call("set_goals", row, list(goals))

    def distance(self, goal: np.ndarray) -> np.ndarray:
        return np.asarray(self._child.call("distance", goal))

    def distances_from(self, row: int, goal: int, points: np.ndarray) -> np.ndarray:
        return np.asarray(self._child.call("distances_from", row, goal, points))

    def visible_pixels(self, row: int, camera: ReferenceCamera) -> np.ndarray:
        return np.asarray(self._child.call("visible_pixels", row, camera))

    def shows(self, row: int, camera: ReferenceCamera, instances: np.ndarray, pixels: int) -> bool:
        return bool(self._child.call("shows", row, camera, instances, pixels))

    def top_down(self, row: int) -> TopDown:
        found: TopDown = self._child.call("top_down", row)
        return found

    def picture(self, row: int, width: int, height: int, fov: float = 90.0) -> np.ndarray:
        return np.asarray(self._child.call("picture", row, width, height, fov))

    def close(self) -> None:
        if self._finalizer.alive:
            self._child.say_goodbye()
            self._finalizer()


class _Child:
    """The process, its socket, and a file with what it printed."""

    def __init__(self, config: Any, python: str, timeout_s: float) -> None:
        if shutil.which(python) is None:
            raise ConfigError(f"simulator.python: {python} is not a program that can be run")
        self.python, self.timeout_s = python, timeout_s
        self.folder = tempfile.mkdtemp(prefix="embodied-icrl-")
        # A folder with nothing but this package: the one it lies in may hold a NumPy of ours.
        os.symlink(_PACKAGE, os.path.join(self.folder, _PACKAGE.name))
        self.log = Path(self.folder) / "output.txt"
        ours, theirs = socket.socketpair()
        self.connection = ours
        ours.settimeout(timeout_s)
        try:
            with theirs, self.log.open("wb") as log:
                self.process = subprocess.Popen(
                    [python, "-m", "embodied_icrl.simulators.remote_worker", str(theirs.fileno())],
                    pass_fds=[theirs.fileno()],
                    env=_environment(self.folder, config),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                )
        except OSError as error:
            self._clear()
            raise ConfigError(f"simulator.python: {python} can't be run ({error})") from error
        try:
            self.versions: Dict[str, str] = self._receive("its start")
        except BaseException:
            self.stop()
            raise

    def call(self, method: str, *given: Any) -> Any:
        self._send(method, list(given))
        answer = self._receive(method)
        if "error" in answer:
            raise _error(answer["error"])
        return answer["result"]

    def share(self, layout: Mapping[str, Any], descriptor: int) -> None:
        """Hand over shared memory: the child learns its layout, then gets the descriptor."""
        self._send("share", [dict(layout)])
        socket.send_fds(self.connection, [b"m"], [descriptor])
        answer = self._receive("share")
        if "error" in answer:
            raise _error(answer["error"])

    def say_goodbye(self) -> None:
        """Let the simulator close; whatever goes wrong, `stop` follows."""
        try:
            self.connection.settimeout(min(self.timeout_s, 10.0))
            self.call("close")
        except (WorkerError, UserError):
            pass

    def stop(self) -> None:
        """End the process and remove its files."""
        self.connection.close()
        try:
            self.process.wait(1.0)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._clear()

    def _clear(self) -> None:
        self.connection.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _send(self, method: str, given: List[Any]) -> None:
        try:
            send(self.connection, [method, given])
        except (Closed, OSError) as error:
            raise self._died(method) from error

    def _receive(self, what: str) -> Any:
        try:
            return receive(self.connection)
        except TimeoutError:
            self.process.kill()
            raise WorkerError(
                f"the simulator worker ({self.python}) did not answer {what} within "
                f"{self.timeout_s:g} s and was stopped"
            ) from None
        except (Closed, OSError) as error:
            raise self._died(what) from error

    def _died(self, what: str) -> WorkerError:
        try:
            code = self.process.wait(5.0)
        except subprocess.TimeoutExpired:
            code = None
        how = f"ended with status {code}"
        if code is not None and code < 0:
            how = f"was killed by {signal.Signals(-code).name}"
        lines = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        last = "\n  ".join(lines[-_LAST_LINES:]) or "(nothing)"
        return WorkerError(
            f"the simulator worker ({self.python}) {how} at {what}; it printed last:\n  {last}"
        )


def _environment(folder: str, config: Any) -> Dict[str, str]:
    """Ours, but no paths of this Python's packages; the folder of a user's own config stays."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "VIRTUAL_ENV"))}
    return {
        **kept,
        "PYTHONPATH": os.pathsep.join([folder, *_folder_of(type(config))]),
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }


def _folder_of(cls: type) -> List[str]:
    """Where a user's class is imported from; nothing for one that is installed."""
    package = cls.__module__.split(".")[0]
    file = getattr(sys.modules[cls.__module__], "__file__", None)
    if package == _PACKAGE.name or file is None:
        return []
    root = Path(file).resolve().parents[cls.__module__.count(".")]
    if Path(file).name == "__init__.py":
        root = root.parent
    return [] if root.name in ("site-packages", "dist-packages") else [str(root)]


def _error(data: Dict[str, Any]) -> Exception:
    """The child's exception: a UserError as it was, anything else as a WorkerError."""
    module, name = data["class"]
    if module.startswith("embodied_icrl.") and "." not in name:
        cls = getattr(importlib.import_module(module), name, None)
        if isinstance(cls, type) and issubclass(cls, UserError):
            return cls(data["message"])
    return WorkerError(f"the simulator worker raised {name}:\n{data['traceback']}")
