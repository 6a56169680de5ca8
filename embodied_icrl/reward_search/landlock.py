"""Landlock: a process that can read and write below given paths only (Linux 5.13 and later)."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Sequence

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same on all machines
_VERSION_QUERY, _PATH_BENEATH = 1, 1
_PR_SET_NO_NEW_PRIVS = 38

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1, 2, 4, 8
_TRUNCATE = 1 << 14
_FILE_RIGHTS = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | 1 << 15
_BITS_BY_VERSION = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}  # file rights; later versions add none


def landlock_version() -> int:
    """The version of the kernel's interface; 0 without Landlock."""
    libc = ctypes.CDLL(None, use_errno=True)
    return max(0, int(libc.syscall(_CREATE_RULESET, None, 0, _VERSION_QUERY)))


class Ruleset:
    """Prepared while paths can still be opened, put in force by `restrict`.

    Raises:
        OSError: no Landlock in this kernel.
    """

    def __init__(self, readable: Sequence[str], writable: Sequence[str]) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        version = landlock_version()
        handled = (1 << _BITS_BY_VERSION.get(version, 16)) - 1 if version else 0
        # From version 4 on: no TCP; from 6 on: no signals or abstract sockets to processes outside.
        attributes = struct.pack("QQQ", handled, 3, 3)[
            : 8 + 8 * (version >= 4) + 8 * (version >= 6)
        ]
        self._descriptor = self._call(_CREATE_RULESET, attributes, len(attributes), 0)
        for paths, rights in ((readable, _EXECUTE | _READ_FILE | _READ_DIR), (writable, handled)):
            for path in paths:
                self._allow(path, rights & handled)

    def restrict(self) -> None:
        """Put the rules in force for this thread and all it will start; can't be undone."""
        if self._libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
            raise OSError(ctypes.get_errno(), "landlock: no_new_privs")
        self._call(_RESTRICT_SELF, self._descriptor, 0)
        os.close(self._descriptor)

    def _allow(self, path: str, rights: int) -> None:
        try:
            descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except FileNotFoundError:
            return
        try:
            rights &= -1 if os.path.isdir(path) else _FILE_RIGHTS
            rule = struct.pack("=Qi", rights, descriptor)
            self._call(_ADD_RULE, self._descriptor, _PATH_BENEATH, rule, 0)
        finally:
            os.close(descriptor)

    def _call(self, number: int, *arguments: int | bytes) -> int:
        result = int(self._libc.syscall(number, *arguments))
        if result < 0:
            code = ctypes.get_errno()
            raise OSError(code, f"landlock: {os.strerror(code)}")
        return result
