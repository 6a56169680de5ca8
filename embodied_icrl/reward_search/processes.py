"""Child processes seen from outside: what a tree of them takes, and its end."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path


def tree_memory(pid: int) -> int:
    """Resident bytes of a process and all below it; 0 once they have ended."""
    page = os.sysconf("SC_PAGE_SIZE")
    total = 0
    for member in _tree(pid):
        with contextlib.suppress(OSError, IndexError):
            total += int(Path(f"/proc/{member}/statm").read_text().split()[1]) * page
    return total


def tree_processor_s(pid: int) -> float:
    """Seconds of processor time of the busiest among a process and all below it; 0 once they have
    ended."""
    ticks = 0
    for member in _tree(pid):
        with contextlib.suppress(OSError, IndexError):
            fields = Path(f"/proc/{member}/stat").read_text().rpartition(")")[2].split()
            ticks = max(ticks, int(fields[11]) + int(fields[12]))
    return ticks / os.sysconf("SC_CLK_TCK")


def kill_tree(process: subprocess.Popen[bytes]) -> None:
    """End a process that leads a session, and everything below it; wait for it."""
    members = list(_tree(process.pid)) if process.returncode is None else []
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    for member in members:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(member, signal.SIGKILL)
    process.wait()


def _tree(pid: int) -> Iterator[int]:
    yield pid
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in path.read_text().split():
                yield from _tree(int(child))
