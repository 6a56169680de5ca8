"""A worker process as its parent sees it: start, ask, and say how it died."""

from __future__ import annotations

import json
import os
import pickle
import select
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from embodied_icrl.common import errors
from embodied_icrl.common.errors import WorkerError
from embodied_icrl.envs.shared_arrays import open_shared_file
from embodied_icrl.envs.worker import STACK_SIGNAL, Failure

_START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from embodied_icrl.envs.worker import main; main(*map(int, sys.argv[2:]))"
)
_ONE_THREAD = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "LP_NUM_THREADS",  # Mesa's software renderer
)
_CLOSING_S = 2.0


@dataclass(frozen=True)
class Share:
    """The part of the environments that one worker hosts.

    Attributes:
        worker: its number.
        start: its first row in the vector environment.
        num_envs: how many rows it has.
        first_index: index of its first environment in the whole job.
        seed: of the environments.
        split: of the tasks.
    """

    worker: int
    start: int
    num_envs: int
    first_index: int
    seed: int
    split: str

    @property
    def rows(self) -> slice:
        return slice(self.start, self.start + self.num_envs)

    def __str__(self) -> str:
        last = self.first_index + self.num_envs - 1
        which = (
            f"environment {last}"
            if self.num_envs == 1
            else f"environments {self.first_index} to {last}"
        )
        return f"worker {self.worker} ({which}, split {self.split!r}, seed {self.seed})"


class EnvWorkerError(WorkerError):
    """A worker raised, died or did not answer in time.

    Attributes:
        worker: its number, for `ProcessTrialEnv.restart_worker`.
        rows: its rows in the vector environment.
        env_index: the environment that raised, counted in the whole job, or None if unknown.
        seed: of the environments.
    """

    def __init__(self, message: str, share: Share, env_index: int | None = None) -> None:
        super().__init__(message)
        self.worker = share.worker
        self.rows = share.rows
        self.env_index = env_index
        self.seed = share.seed


class EnvWorkerLostError(EnvWorkerError):
    """A worker died or did not answer in time: a fresh one may do better.

    (One that raised has met a fault of its environment, and a fresh one would meet it again.)
    """


class WorkerHandle:
    """A worker process and the socket to it.

    Attributes:
        has_ended: the process has been ended; there is nothing more to ask.

    Args:
        share: what it hosts.
        shared_file: descriptor of the shared observations.
        timeout_s: longest wait (seconds) for any single answer.
    """

    def __init__(self, share: Share, shared_file: int, timeout_s: float) -> None:
        self.share = share
        self.has_ended = False
        self._timeout_s = timeout_s
        self._asked = ""
        ours, theirs = socket.socketpair()
        # Bound the transfer itself, too: a stopped process neither reads nor finishes a message.
        limit = struct.pack("ll", int(timeout_s) + 1, 0)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
        self._report_file = open_shared_file()
        descriptors = (theirs.fileno(), shared_file, self._report_file)
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _START, _import_path(), *map(str, descriptors)],
                pass_fds=descriptors,
                stdin=subprocess.DEVNULL,
                env=os.environ | dict.fromkeys(_ONE_THREAD, "1"),
            )
        except BaseException:
            ours.close()
            os.close(self._report_file)
            raise
        finally:
            theirs.close()
        self._connection: Connection[Any, Any] = Connection(ours.detach())
        self._poll = select.poll()
        self._poll.register(self._connection.fileno(), select.POLLIN)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def ask(self, name: str, argument: Any) -> None:
        """Send a request.

        Raises:
            EnvWorkerLostError: the worker is dead or doesn't read.
        """
        self._asked = name
        try:
            self._connection.send_bytes(pickle.dumps((name, argument), pickle.HIGHEST_PROTOCOL))
        except OSError as error:
            raise self._loss(isinstance(error, BlockingIOError)) from None

    def answer(self, deadline: float) -> Any:
        """Wait for the reply.

        Args:
            deadline: on the clock `time.monotonic`.

        Raises:
            EnvWorkerLostError: the worker died or is late.
            EnvWorkerError: the worker raised.
            NotImplementedError: the environments don't offer what was asked.
            UserError: the worker raised one; the EnvWorkerError with its traceback is its cause.
        """
        # In slices: a program that a dead worker has left behind may hold its socket open.
        while not self._poll.poll(max(0.0, min(deadline - time.monotonic(), 0.5)) * 1e3):
            if not self.is_running or time.monotonic() >= deadline:
                raise self._loss(timed_out=self.is_running)
        try:
            outcome, value = pickle.loads(self._connection.recv_bytes())
        except (EOFError, OSError) as error:
            raise self._loss(isinstance(error, BlockingIOError)) from None
        if outcome == "not implemented":
            raise NotImplementedError(value)
        if outcome == "failed":
            self.kill()
            raise self._raised(value)
        return value

    def _raised(self, failure: Failure) -> Exception:
        where = "" if failure.env_index is None else f" in environment {failure.env_index}"
        error = EnvWorkerError(
            f"{self.share} raised{where} during {self._asked!r}:\n\n{failure.text}",
            self.share,
            failure.env_index,
        )
        if failure.user_error is None:
            return error
        name, message = failure.user_error
        user_error: Exception = getattr(errors, name)(message)
        user_error.__cause__ = error
        return user_error

    def _loss(self, timed_out: bool) -> EnvWorkerLostError:
        """End a worker that is dead or doesn't answer, and say what is known about it."""
        if timed_out and self.is_running:
            stacks = self._stacks()
            self.kill()
            text = f"did not answer {self._asked!r} within {self._timeout_s:g} s and was ended"
            return EnvWorkerLostError(
                f"{self.share} {text}" + _indented("It was at", stacks), self.share
            )
        ended = self._wait(_CLOSING_S)
        stacks = self._report()
        self.kill()
        how = _exit_text(self._process.returncode) if ended else "closed its connection"
        text = f"{self.share} {how} during {self._asked!r}"
        return EnvWorkerLostError(text + _indented("Its last stack", stacks), self.share)

    def request_close(self) -> None:
        """Close the connection, which an idle worker takes as the end."""
        self._connection.close()

    def kill(self, grace_s: float = 0.0) -> None:
        """End the process, by force after `grace_s` seconds; idempotent."""
        if self.has_ended:
            return
        self._connection.close()
        if not self._wait(grace_s):
            self._process.kill()
            self._process.wait()
        os.close(self._report_file)
        self.has_ended = True

    def _wait(self, seconds: float) -> bool:
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def _stacks(self) -> str:
        """Where the threads of a running worker are."""
        before = len(self._report())
        self._process.send_signal(STACK_SIGNAL)
        deadline = time.monotonic() + 1.0
        while time.monotonic() < deadline and len(self._report()) == before:
            time.sleep(0.02)
        time.sleep(0.05)
        return self._report()[before:]

    def _report(self) -> str:
        return os.pread(self._report_file, 1 << 20, 0).decode(errors="replace").strip()


def stop_workers(workers: Iterable[WorkerHandle]) -> None:
    """End workers: ask all, give them two seconds together, then use force; idempotent."""
    workers = list(workers)
    for worker in workers:
        worker.request_close()
    deadline = time.monotonic() + _CLOSING_S
    for worker in workers:
        worker.kill(max(0.0, deadline - time.monotonic()))


def _import_path() -> str:
    """The parent's import path, so that a worker finds users' modules where the parent does."""
    return json.dumps([entry for entry in sys.path if isinstance(entry, str)])


def _exit_text(code: int) -> str:
    if code >= 0:
        return f"exited with code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    hint = " (out of memory?)" if name == "SIGKILL" else ""
    return f"was killed by {name}{hint}"


def _indented(title: str, text: str) -> str:
    return f"\n\n{title}:\n{text}" if text else ""
