"""The inside of the sandbox: a process that confines itself and then calls one function.

Started by `sandbox.run_sandboxed`. The function's module is imported first, as nothing of it is
untrusted; then limits, user, Landlock and seccomp; only then the payload is read and the function
called. A layer that was asked for and can't be had ends the process before that.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import resource
import signal
import sys
from collections.abc import Mapping
from typing import Any

from embodied_icrl.reward_search.landlock import Ruleset
from embodied_icrl.reward_search.syscalls import install_filter

NOT_CONFINED = 97  # exit status: a layer could not be put in force
FAILED = 98  # exit status: the function raised
NOBODY = 65534

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE = 1, 4


def main(arguments: str) -> None:
    """Confine this process as the JSON `arguments` say, then stdin -> function -> stdout.

    In a session, the function reads and writes the two streams itself.
    """
    settings = json.loads(arguments)
    module, name = settings["function"].split(":")
    function = getattr(importlib.import_module(module), name)
    try:
        confine(settings)
    except Exception as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        os._exit(NOT_CONFINED)
    try:
        if settings["session"]:
            function(sys.stdin.buffer, sys.stdout.buffer)
            os._exit(0)
        result = json.dumps(function(json.load(sys.stdin)), allow_nan=False)
    except BaseException as error:
        print(f"{type(error).__name__}: {error}"[:1000], file=sys.stderr, flush=True)
        os._exit(FAILED)
    sys.stdout.write(result)
    sys.stdout.flush()
    os._exit(0)  # no finalisers of untrusted objects


def confine(settings: Mapping[str, Any]) -> None:
    """Put the layers in force, in an order in which none hinders the next.

    Raises:
        OSError: one of them isn't to be had.
    """
    layers, limits = settings["layers"], settings["limits"]
    if len(os.listdir("/proc/self/task")) != 1:
        raise OSError("a thread was started before the confinement, which would not hold it")
    rules = None
    if layers["landlock"]:
        rules = Ruleset(settings["readable"], settings["writable"])
    _limit_resources(limits)
    if layers["user"] and os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)  # not for other children of the same user to look into
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if rules is not None:
        rules.restrict()
    if layers["seccomp"]:
        install_filter()


def _limit_resources(limits: Mapping[str, int]) -> None:
    memory = limits["memory_mib"] * 2**20
    # Not RLIMIT_AS: reserved address space costs nothing, and CUDA reserves much of it.
    values = {
        resource.RLIMIT_DATA: memory,
        resource.RLIMIT_FSIZE: limits["file_mib"] * 2**20,
        resource.RLIMIT_NPROC: limits["processes"],
        resource.RLIMIT_NOFILE: 256,
        resource.RLIMIT_CORE: 0,
    }
    for kind, value in values.items():
        resource.setrlimit(kind, (value, value))
    # The soft limit's signal tells what happened; the hard one's is a plain kill.
    resource.setrlimit(resource.RLIMIT_CPU, (limits["cpu_s"], limits["cpu_s"] + 5))
