"""A reward in a confined process of its own that stays: one short exchange over pipes per call."""

from __future__ import annotations

import contextlib
import json
import math
import os
import select
import subprocess
import tempfile
import time
import weakref
from collections.abc import Sequence
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from embodied_icrl.manipulation.fields import Field, StateLayout
from embodied_icrl.manipulation.task_env import RewardError
from embodied_icrl.reward_search.findings import printable
from embodied_icrl.reward_search.processes import kill_tree, tree_memory
from embodied_icrl.reward_search.sandbox import (
    Layers,
    Limits,
    available_layers,
    death,
    start_confined,
)
from embodied_icrl.reward_search.sandbox_session_child import (
    ERROR,
    HEADER,
    MAX_FRAME,
    NAMES,
    READY,
    VALUES,
)
from embodied_icrl.reward_search.static_check import check_source
from embodied_icrl.reward_search.unit_checks import MAX_COMPONENTS, MAX_NAME

START_LIMIT_S = 60.0  # to the first answer; a busy machine may need long to start Python
CALL_LIMIT_S = 5.0
MEMORY_POLL_S = 1.0
# Each call has its own time limit; together they may use what a long training needs.
SESSION_LIMITS = Limits(wall_s=math.inf, cpu_s=30 * 24 * 3600)


class RewardSession:
    """Calls a reward that lives in a confined child; the child starts at the first call.

    Nothing of the reward's code runs in this process, and what comes back are numbers and names
    of limited length. A session is a reward function: `session(record)` returns (total,
    components). A call takes about 50 us more than one in this process. It is for one thread.
    Copies and pickles start children of their own, and so does a forked process.

    Args:
        source: the reward code.
        fields: what it may read, in the order of the flat state.
        call_s: seconds that one call may take.
        limits, layers: of the sandbox; `limits.wall_s` has no meaning here.

    Raises:
        RewardError: the static check refuses the code.
    """

    def __init__(
        self,
        source: str,
        fields: Sequence[Field],
        *,
        call_s: float = CALL_LIMIT_S,
        limits: Limits = SESSION_LIMITS,
        layers: Layers | None = None,
    ) -> None:
        refuse_unchecked(source, fields)
        self.source = source
        self.layout = StateLayout(fields)
        self._call_s, self._limits, self._layers = call_s, limits, layers
        self._child: _Child | None = None

    def __call__(self, record: Any) -> tuple[float, dict[str, float]]:
        """The reward of a record of `StateLayout`; raises as `ask`."""
        return self.ask(self.layout.flatten(record._asdict()))

    def ask(self, flat: NDArray[np.float64]) -> tuple[float, dict[str, float]]:
        """The reward of flat values [size].

        Raises:
            RewardError: the reward raised, returned something that is no reward, took too long,
                or its process ended.
            SandboxError: the process could not be confined.
        """
        child = self._child
        if child is None or child.owner != os.getpid():
            layers = self._layers if self._layers is not None else available_layers()
            child = self._child = _Child(self.source, self.layout, self._limits, layers)
        try:
            return child.ask(np.ascontiguousarray(flat, np.float64).tobytes(), self._call_s)
        except BaseException:
            # An answer may still be on its way: it must not be taken for that of a later call.
            if not child.in_step:
                self.close()
            raise

    @property
    def pid(self) -> int | None:
        """Of the process started for it; None before the first call and after `close`."""
        return self._child.process.pid if self._child is not None else None

    def close(self) -> None:
        """End the child; the next call starts another one."""
        if self._child is not None:
            self._child.end()
            self._child = None

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_child": None}


def refuse_unchecked(source: str, fields: Sequence[Field]) -> None:
    """Raises RewardError with the first finding of the static check, if there is one."""
    findings = check_source(source, [field.name for field in fields])
    if findings:
        raise RewardError(f"the reward is refused: {findings[0].text}")


class _Child:
    """One running child and the conversation with it.

    Attributes:
        owner: the process that started it: one that was forked off must not talk to it.
        in_step: whether every call has had its answer.
    """

    def __init__(self, source: str, layout: StateLayout, limits: Limits, layers: Layers) -> None:
        self.owner = os.getpid()
        self.in_step = False
        self._limits = limits
        self._names: tuple[str, ...] | None = None
        self._received = bytearray()
        self._err: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 closed by `end`
        function = "embodied_icrl.reward_search.sandbox_session_child:serve"
        pipe = subprocess.PIPE
        streams = (pipe, pipe, self._err)
        self.process = start_confined(function, limits, layers, streams, session=True)
        self.end = weakref.finalize(self, _end, self.process, self._err, self.owner)
        assert self.process.stdin is not None and self.process.stdout is not None
        self._to, self._from = self.process.stdin.fileno(), self.process.stdout.fileno()
        self._poll = select.poll()
        self._poll.register(self._from, select.POLLIN)
        self._next_look = time.monotonic() + MEMORY_POLL_S
        fields = [[field.name, list(field.shape)] for field in layout.fields]
        request = json.dumps({"source": source, "fields": fields}) + "\n"
        try:
            self._send(request.encode())
            kind, data = self._frame(time.monotonic() + START_LIMIT_S, START_LIMIT_S)
            if kind != READY:
                raise self._refusal(kind, data)
        except BaseException:
            self.end()
            raise
        self.in_step = True

    def ask(self, call: bytes, limit_s: float) -> tuple[float, dict[str, float]]:
        deadline = time.monotonic() + limit_s
        self.in_step = False
        self._send(call)
        kind, data = self._frame(deadline, limit_s)
        if kind == NAMES:
            self._names = _names(data)
            kind, data = self._frame(deadline, limit_s)
        if kind == ERROR and not self._received:
            self.in_step = True
        names = self._names
        if kind != VALUES or names is None or len(data) != 8 * (1 + len(names)):
            raise self._refusal(kind, data)
        if self._received:
            raise RewardError("the reward's process sent more than was asked for")
        self.in_step = True
        total, *values = np.frombuffer(data).tolist()
        if not math.isfinite(total):
            raise RewardError(f"the reward is {total}")
        if deadline - limit_s > self._next_look:
            self._check_memory()
        return total, dict(zip(names, values))

    def _send(self, data: bytes) -> None:
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self._to, view) :]
        except BrokenPipeError:
            self._died()

    def _frame(self, deadline: float, limit_s: float) -> tuple[bytes, bytes]:
        """Kind and content of the next frame."""
        received = self._received
        while True:
            if len(received) >= HEADER.size:
                kind, length = HEADER.unpack_from(received)
                if length > MAX_FRAME:
                    raise RewardError("the reward's process sent an answer that is too long")
                end = HEADER.size + length
                if len(received) >= end:
                    data = bytes(received[HEADER.size : end])
                    del received[:end]
                    return kind, data
            left = deadline - time.monotonic()
            if left <= 0 or not self._poll.poll(1e3 * left):
                raise RewardError(f"the reward gave no answer within {limit_s:g} s")
            read = os.read(self._from, MAX_FRAME)
            if not read:
                self._died()
            received += read

    def _refusal(self, kind: bytes, data: bytes) -> RewardError:
        if kind == ERROR:
            return RewardError(f"the reward raised {printable(data.decode('utf-8', 'replace'))}")
        return RewardError("the reward's process answered something else than a reward")

    def _check_memory(self) -> None:
        self._next_look = time.monotonic() + MEMORY_POLL_S
        if tree_memory(self.process.pid) > self._limits.memory_mib * 2**20:
            self.in_step = False
            raise RewardError(f"the reward uses more than {self._limits.memory_mib} MiB of memory")

    def _died(self) -> None:
        """Raises SandboxError if the child was never confined."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(1.0)
        code = self.process.poll()
        cause = death(code, self._err, self._limits) if code is not None else None
        why = cause.reason if cause is not None else "it closed its pipes"
        raise RewardError(f"the reward's process ended: {why}")


def _names(data: bytes) -> tuple[str, ...]:
    """Names of components from an untrusted process."""
    try:
        names = json.loads(data)
    except (ValueError, RecursionError):
        names = None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise RewardError("the reward's components are not a dict from names to numbers")
    if len(names) > MAX_COMPONENTS or any(len(name) > MAX_NAME for name in names):
        raise RewardError(
            f"a reward has at most {MAX_COMPONENTS} components, with at most {MAX_NAME} letters"
        )
    return tuple(printable(name) for name in names)


def _end(process: subprocess.Popen[bytes], err: IO[bytes], owner: int) -> None:
    """End a child, but not that of the process which this one was forked off from."""
    if os.getpid() == owner:
        kill_tree(process)
    for stream in (process.stdin, process.stdout, err):
        if stream is not None:
            with contextlib.suppress(OSError):
                stream.close()
