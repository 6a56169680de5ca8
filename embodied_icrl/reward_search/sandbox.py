"""Layer 3: a child process without keys, files, network or processes, for everything that runs
untrusted code.

Each layer stops what the others let through: bubblewrap (an empty file system, own namespaces),
Landlock (files), seccomp (system calls), an unprivileged user, resource limits and a watch from
outside. Where the machine lacks one, `Layers.name` says what is left.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from embodied_icrl.reward_search.findings import printable
from embodied_icrl.reward_search.processes import kill_tree, tree_memory, tree_processor_s
from embodied_icrl.reward_search.records import LimitKind
from embodied_icrl.reward_search.sandbox_child import NOT_CONFINED

POLL_S = 0.02
MAX_RESULT = 4 * 2**20  # bytes

_PACKAGE = Path(__file__).resolve().parents[1]
_START = (
    "import sys; sys.path[:0] = {paths!r}; "
    "from embodied_icrl.reward_search.sandbox_child import main; main({arguments!r})"
)
_DEVICES = ("/dev/null", "/dev/urandom")
_ECHO = f"{__name__}:echo"
# By these code ends itself; all others come from outside, as from a system without memory.
_OWN_SIGNALS = (
    signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGSEGV, signal.SIGSYS,
    signal.SIGTRAP,
)  # fmt: skip


class SandboxError(RuntimeError):
    """The sandbox itself could not be set up; nothing untrusted was run."""


@dataclass(frozen=True)
class Layers:
    """Which layers to use; resource limits and the watch from outside are always there."""

    bubblewrap: bool = False
    landlock: bool = False
    seccomp: bool = False
    user: bool = False

    @property
    def name(self) -> str:
        """For people: the layers in force, and whether something is missing."""
        parts = [
            label
            for label, there in (
                ("bubblewrap", self.bubblewrap),
                ("Landlock", self.landlock),
                ("seccomp", self.seccomp),
                ("unprivileged user", self.user),
            )
            if there
        ]
        files = self.bubblewrap or self.landlock
        strength = "" if files and self.seccomp else "weak: "
        return strength + " + ".join([*parts, "limits"])


def weakest(names: Iterable[str]) -> str:
    """Of names of layers, that of the fewest; the first of equals."""
    return min(names, key=lambda name: (not name.startswith("weak: "), name.count("+")))


@dataclass(frozen=True)
class Limits:
    """What a child may use.

    Attributes:
        wall_s: seconds from start to end; more than of processor time, as machines may be busy.
        cpu_s: seconds of processor time.
        memory_mib: resident memory of the child, and private memory asked for.
        file_mib: size of any file that it writes.
        processes: of its user in all; seccomp allows it no new one at all.
    """

    wall_s: float = 90.0
    cpu_s: int = 30
    memory_mib: int = 1024
    file_mib: int = 8
    processes: int = 256


@dataclass(frozen=True)
class Outcome:
    """How a child ended.

    Attributes:
        result: what the function returned, as untrusted JSON; None after a failure.
        reason: why there is no result, one line; None if there is one.
        deterministic: False where another run might end otherwise: it was ended by the clock, or
            from outside.
        limit: the kind of limit that ended it, if it was one.
    """

    result: Any
    reason: str | None
    deterministic: bool
    wall_s: float
    limit: LimitKind | None = None


@dataclass(frozen=True)
class Death:
    """Why a child ended badly; as in `Outcome`."""

    reason: str
    deterministic: bool = True
    limit: LimitKind | None = None


def run_sandboxed(
    function: str,
    payload: Any,
    *,
    limits: Limits | None = None,
    layers: Layers | None = None,
    readable: Sequence[str] = (),
    writable: Sequence[str] = (),
    on_poll: Callable[[], str | None] | None = None,
) -> Outcome:
    """Call `module:function` with a JSON payload in a confined child.

    Args:
        layers: without it, all that this machine has.
        readable, writable: further absolute paths that the child may use.
        on_poll: called about every `POLL_S` seconds; ends the child by returning a reason or by
            raising, which is passed on.

    Raises:
        SandboxError: a layer could not be put in force.
    """
    limits = limits or Limits()
    layers = layers if layers is not None else available_layers()
    with contextlib.ExitStack() as stack:
        given, out, err = (stack.enter_context(tempfile.TemporaryFile()) for _ in range(3))
        given.write(json.dumps(payload).encode())
        given.seek(0)
        start = time.monotonic()
        process = start_confined(
            function, limits, layers, (given, out, err), readable=readable, writable=writable
        )
        try:
            stopped, processor_s = _watch(process, limits, start, on_poll)
        finally:
            kill_tree(process)
        seconds = time.monotonic() - start
        try:
            died = death(process.returncode, err, limits, processor_s)
            return _outcome(died, stopped, out, limits, seconds)
        except SandboxError as error:
            # Untrusted code can end with the same status, and must not end all that is beside it.
            if function == _ECHO or not _works(layers, readable, writable):
                raise
            return Outcome(None, printable(f"the process ended: {error}"), False, seconds)


def start_confined(
    function: str,
    limits: Limits,
    layers: Layers,
    streams: tuple[IO[bytes] | int, IO[bytes] | int, IO[bytes] | int],
    *,
    session: bool = False,
    readable: Sequence[str] = (),
    writable: Sequence[str] = (),
) -> subprocess.Popen[bytes]:
    """Start a child that confines itself and calls `module:function`; to be watched and ended.

    Args:
        streams: the child's standard input, output and error.
        session: the function is given its standard input and output, as binary files, instead of
            a JSON payload.
    """
    settings = {
        "function": function,
        "session": session,
        "layers": dataclasses.asdict(layers),
        "limits": dataclasses.asdict(limits),
        "readable": [*_python_paths(), *_DEVICES, *readable],
        "writable": list(writable),
    }
    return subprocess.Popen(
        _command(settings, layers, readable, writable),
        stdin=streams[0],
        stdout=streams[1],
        stderr=streams[2],
        cwd="/",
        env=_environment(),
        start_new_session=True,
    )


def death(code: int, err: IO[bytes], limits: Limits, processor_s: float = 0.0) -> Death | None:
    """Why a child ended with this status; None if it ended well.

    Args:
        processor_s: seconds of processor time that it was seen to have used.

    Raises:
        SandboxError: it could not be confined.
    """
    err.seek(0)
    message = printable(err.read(4000).decode("utf-8", "replace"))
    if code == NOT_CONFINED or (code != 0 and message.startswith("bwrap:")):
        raise SandboxError(message)
    if code and tells_of_memory(message):
        return Death(f"more than {limits.memory_mib} MiB of memory", limit="memory")
    signum = -code if code < 0 else code - 128 if code > 128 else 0
    # Who does not heed the first signal is killed some seconds later.
    overdue = signum == signal.SIGKILL and processor_s >= limits.cpu_s
    if signum == signal.SIGXCPU or overdue:
        return Death(f"more than {limits.cpu_s} s of processor time", False, "cpu")
    if signum:
        return Death(f"killed by signal {signum}", signum in _OWN_SIGNALS)
    return Death(message or f"exit status {code}") if code else None


def tells_of_memory(message: str) -> bool:
    """Whether a message of Python, NumPy, torch or a simulator says that there was no more."""
    return any(sign in message for sign in ("MemoryError", "allocate memory", "bad_alloc"))


@functools.cache
def available_layers() -> Layers:
    """The strongest combination that works on this machine, found by trying."""
    found = Layers(
        landlock=_works(Layers(landlock=True)),
        seccomp=_works(Layers(seccomp=True)),
        user=os.geteuid() != 0 or _works(Layers(user=True)),
    )
    for user in (found.user, False):
        with_bubblewrap = dataclasses.replace(found, bubblewrap=True, user=user)
        if shutil.which("bwrap") and _works(with_bubblewrap):
            return with_bubblewrap
    return found


def echo(payload: Any) -> Any:
    """Returns what it is given: what `available_layers` tries."""
    return payload


def _works(layers: Layers, readable: Sequence[str] = (), writable: Sequence[str] = ()) -> bool:
    limits = Limits(wall_s=120.0)  # a busy machine's layers are not to be taken for missing
    try:
        outcome = run_sandboxed(
            _ECHO, 1, limits=limits, layers=layers, readable=readable, writable=writable
        )
        return outcome.reason is None
    except (SandboxError, OSError):
        return False


def _environment() -> dict[str, str]:
    """Nothing of ours: keys are in environments."""
    kept = {key: os.environ[key] for key in ("LD_LIBRARY_PATH",) if key in os.environ}
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    same_order = {"PYTHONHASHSEED": "0"}  # of sets of texts, in every child
    return {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", **same_order, **threads, **kept}


def _python_paths() -> list[str]:
    """What an interpreter with NumPy and this package reads."""
    site = Path(np.__file__).resolve().parents[1]
    own = [sys.prefix, sys.base_prefix, str(site), str(_PACKAGE)]
    system = ["/usr", "/lib", "/lib64", "/etc/ld.so.cache"]
    return list(dict.fromkeys([*own, *system]))


def _command(
    settings: dict[str, Any], layers: Layers, readable: Sequence[str], writable: Sequence[str]
) -> list[str]:
    paths = [str(_PACKAGE.parent), str(Path(np.__file__).resolve().parents[1])]
    code = _START.format(paths=paths, arguments=json.dumps(settings))
    python = [sys.executable, "-s", "-P", "-B", "-c", code]
    return [*_bubblewrap(layers, readable, writable), *python] if layers.bubblewrap else python


def _bubblewrap(layers: Layers, readable: Sequence[str], writable: Sequence[str]) -> list[str]:
    """An empty file system with Python in it, and namespaces of its own."""
    command = ["bwrap", "--die-with-parent", "--new-session"]
    if os.geteuid() == 0 and layers.user:
        # Without a user namespace: in one, root could not become another user.
        command += ["--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts"]
        command += ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    else:
        command += ["--unshare-all"]
    bound = [*_python_paths(), *readable, *writable]
    # Else their folders would be closed to all but root.
    for folder in sorted({parent for path in bound for parent in Path(path).parents}):
        command += ["--perms", "0755", "--dir", str(folder)] if str(folder) != "/" else []
    for path in [*_python_paths(), *readable]:
        command += ["--ro-bind-try", path, path]
    for path in writable:
        command += ["--bind", path, path]
    return [*command, "--proc", "/proc", "--dev", "/dev", "--remount-ro", "/", "--"]


def _watch(
    process: subprocess.Popen[bytes],
    limits: Limits,
    start: float,
    on_poll: Callable[[], str | None] | None,
) -> tuple[str | None, float]:
    """Wait for the end.

    Returns:
        the reason, if it had to be brought about, and seconds of processor time seen.
    """
    processor_s = 0.0
    while True:
        try:
            process.wait(POLL_S)
            return None, processor_s
        except subprocess.TimeoutExpired:
            pass
        processor_s = max(processor_s, tree_processor_s(process.pid))
        if time.monotonic() - start > limits.wall_s:
            return "wall", processor_s
        if tree_memory(process.pid) > limits.memory_mib * 2**20:
            return "memory", processor_s
        reason = on_poll() if on_poll is not None else None
        if reason is not None:
            return reason, processor_s


def _outcome(
    died: Death | None,
    stopped: str | None,
    out: IO[bytes],
    limits: Limits,
    seconds: float,
) -> Outcome:
    def failed(reason: str, deterministic: bool = True, limit: LimitKind | None = None) -> Outcome:
        return Outcome(None, reason, deterministic, seconds, limit)

    if stopped == "wall":
        return failed(f"no result within {limits.wall_s:g} s", False, "wall")
    if stopped == "memory":
        return failed(f"more than {limits.memory_mib} MiB of memory", limit="memory")
    if stopped is not None:
        return failed(stopped, deterministic=False)
    if died is not None:
        return failed(died.reason, died.deterministic, died.limit)
    out.seek(0)
    data = out.read(MAX_RESULT + 1)
    if len(data) > MAX_RESULT:
        return failed("a result that is too large")
    try:
        return Outcome(json.loads(data), None, True, seconds)
    except (ValueError, RecursionError):
        return failed("a result that is not JSON")
