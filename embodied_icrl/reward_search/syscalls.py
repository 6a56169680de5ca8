"""A seccomp filter for processes that run untrusted code: no network, no new processes."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct

# Names and numbers on x86_64 and aarch64; None where the machine has no such call. Beside network
# and processes: other processes' memory, kernel interfaces with a history of faults, memory that
# no limit counts, and changes to files' owners and modes, which Landlock does not govern.
_DENIED: dict[str, tuple[int | None, int | None]] = {
    "socket": (41, 198), "socketpair": (53, 199), "fork": (57, None), "vfork": (58, None),
    "execve": (59, 221), "execveat": (322, 281), "tkill": (200, 130), "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240), "ptrace": (101, 117), "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271), "mount": (165, 40), "umount2": (166, 39),
    "pivot_root": (155, 41), "chroot": (161, 51), "unshare": (272, 97), "setns": (308, 268),
    "bpf": (321, 280), "perf_event_open": (298, 241), "add_key": (248, 217),
    "request_key": (249, 218), "keyctl": (250, 219), "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426), "io_uring_register": (427, 427), "userfaultfd": (323, 282),
    "memfd_create": (319, 279), "memfd_secret": (447, 447), "pidfd_open": (434, 434),
    "pidfd_send_signal": (424, 424), "pidfd_getfd": (438, 438), "shmget": (29, 194),
    "shmat": (30, 196), "msgget": (68, 186), "semget": (64, 190), "mq_open": (240, 180),
    "chmod": (90, None), "fchmod": (91, 52), "fchmodat": (268, 53), "fchmodat2": (452, 452),
    "chown": (92, None), "fchown": (93, 55), "lchown": (94, None), "fchownat": (260, 54),
    "setxattr": (188, 5), "lsetxattr": (189, 6), "fsetxattr": (190, 7), "utime": (132, None),
    "utimes": (235, None), "futimesat": (261, None), "utimensat": (280, 88),
    "open_by_handle_at": (304, 265), "name_to_handle_at": (303, 264), "init_module": (175, 105),
    "finit_module": (313, 273), "kexec_load": (246, 104), "personality": (135, 92),
}  # fmt: skip
_OWN_PROCESS_ONLY = {"kill": (62, 129), "tgkill": (234, 131), "prlimit64": (302, 261)}
_CLONE, _CLONE3 = (56, 220), (435, 435)
_ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _ERRNO, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_NUMBER, _ARCHITECTURE, _ARGUMENT_0 = 0, 4, 16  # offsets in what the kernel shows the filter
_CLONE_THREAD, _X32_BIT = 0x00010000, 0x40000000

_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _FILTER_MODE = 38, 22, 2


def install_filter() -> None:
    """Deny the calls for this thread and all it will start; can't be undone.

    Raises:
        OSError: the kernel has no seccomp filters, or the machine's calls aren't in the table.
    """
    program = filter_program(platform.machine(), os.getpid())
    libc = ctypes.CDLL(None, use_errno=True)
    code = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(code))
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.prctl(
        _PR_SET_SECCOMP, _FILTER_MODE, ctypes.create_string_buffer(header, len(header)), 0, 0
    ):
        number = ctypes.get_errno()
        raise OSError(number, f"seccomp: {os.strerror(number)}")


def filter_program(machine: str, process: int) -> bytes:
    """The filter in the kernel's byte code.

    Raises:
        OSError: no table for this kind of machine.
    """
    if machine not in _ARCHITECTURES:
        raise OSError(errno.ENOSYS, f"seccomp: no table of system calls for {machine}")
    column, architecture = _ARCHITECTURES[machine]
    deny = _instruction(_RETURN, _ERRNO | errno.EPERM)
    code = _instruction(_LOAD, _ARCHITECTURE) + _instruction(_EQUAL, architecture, 1, 0)
    code += _instruction(_RETURN, _KILL) + _instruction(_LOAD, _NUMBER)
    if machine == "x86_64":  # the same calls under other numbers
        code += _instruction(_AT_LEAST, _X32_BIT, 0, 1) + deny
    for numbers in _DENIED.values():
        number = numbers[column]
        if number is not None:
            code += _instruction(_EQUAL, number, 0, 1) + deny
    code += _instruction(_EQUAL, _CLONE3[column], 0, 1)
    # "No such call": the C library then uses clone, whose flags a filter can see.
    code += _instruction(_RETURN, _ERRNO | errno.ENOSYS)
    threads_only = _instruction(_LOAD, _ARGUMENT_0) + _instruction(_ANY_BIT, _CLONE_THREAD, 1, 0)
    code += _instruction(_EQUAL, _CLONE[column], 0, 4) + threads_only + deny
    code += _instruction(_RETURN, _ALLOW)
    for numbers in _OWN_PROCESS_ONLY.values():
        own = _instruction(_LOAD, _ARGUMENT_0) + _instruction(_EQUAL, 0, 2, 0)
        own += _instruction(_EQUAL, process, 1, 0) + deny + _instruction(_RETURN, _ALLOW)
        code += _instruction(_EQUAL, numbers[column], 0, 5) + own
    return code + _instruction(_RETURN, _ALLOW)


def _instruction(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("HBBI", code, if_true, if_false, value)
