"""Layer 3 against code that got past the others: any Python at all, run inside the child.

Each escape works where no layer is on, so that the test can fail, and is stopped by each of the
layers named, alone, and by all that this machine has.
"""

from __future__ import annotations

import io
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from embodied_icrl.reward_search.sandbox import (
    Death,
    Layers,
    Limits,
    Outcome,
    SandboxError,
    available_layers,
    death,
    run_sandboxed,
    weakest,
)
from embodied_icrl.reward_search.syscalls import filter_program

HERE = available_layers()


def evaluate(expression: str, layers: Layers, **options) -> Outcome:
    """Evaluate Python inside the child; it may do anything."""
    limits = options.pop("limits", Limits(wall_s=150))
    return run_sandboxed("builtins:eval", expression, layers=layers, limits=limits, **options)


def alone(layer: str) -> Layers:
    return Layers(**{layer: True})


def needs(*layers: str) -> None:
    for layer in layers:
        if not getattr(HERE, layer):
            pytest.skip(f"this machine has no {layer}")


class Escape:
    """What an attack wants to do, and whether it did."""

    def __init__(self, folder: Path) -> None:
        self.secret = folder / "secret"
        self.secret.write_text("a key")
        self.secret.chmod(0o600)
        self.target = folder / "planted"
        self.sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        self.server = socket.create_server(("127.0.0.1", 0))
        os.environ["EMBODIED_TEST_KEY"] = "a key"

    def close(self) -> None:
        os.environ.pop("EMBODIED_TEST_KEY")
        self.sleeper.kill()
        self.sleeper.wait()
        self.server.close()

    def expression(self, name: str) -> str:
        port = self.server.getsockname()[1]
        pid = self.sleeper.pid
        return {
            "read": f"open({str(self.secret)!r}).read() == 'a key'",
            "write": f"open({str(self.target)!r}, 'w').write('x') == 1",
            "environ": f"b'a key' in open('/proc/{os.getpid()}/environ', 'rb').read()"
            f" or b'PATH' in open('/proc/{pid}/environ', 'rb').read()",
            "network": "__import__('socket').create_connection"
            f"(('127.0.0.1', {port}), 2) is not None",
            "fork": "(lambda os: (lambda pid: os._exit(0) if pid == 0 "
            "else os.waitpid(pid, 0)[1] == 0)(os.fork()))(__import__('os'))",
            "program": "__import__('subprocess').run(['/usr/bin/env', '-i']).returncode == 0",
            "kill": f"__import__('os').kill({pid}, 0) is None",
            "chmod": f"__import__('os').chmod({str(self.secret)!r}, 0o644) is None",
            "hidden_memory": "__import__('os').memfd_create('x') > 0",
        }[name]


@pytest.fixture
def escape(tmp_path):
    tmp_path.chmod(0o755)
    made = Escape(tmp_path)
    yield made
    made.close()


ESCAPES = {
    "read": ("bubblewrap", "landlock"),
    "write": ("bubblewrap", "landlock"),
    "environ": ("bubblewrap", "landlock"),
    "network": ("bubblewrap", "seccomp"),
    "fork": ("seccomp",),
    "program": ("seccomp",),
    "kill": ("bubblewrap", "seccomp"),
    "chmod": ("bubblewrap", "seccomp"),
    "hidden_memory": ("seccomp",),
}


@pytest.mark.parametrize(("name", "stoppers"), ESCAPES.items(), ids=ESCAPES)
def test_escapes(name, stoppers, escape):
    needs(*stoppers)
    expression = escape.expression(name)
    free = evaluate(expression, Layers())
    assert free.result is True, free.reason
    escape.target.unlink(missing_ok=True)
    escape.secret.chmod(0o600)
    for layers in (*map(alone, stoppers), HERE):
        outcome = evaluate(expression, layers)
        assert outcome.result is None, layers
        assert outcome.reason is not None and "Error" in outcome.reason
    assert not escape.target.exists()
    assert escape.secret.stat().st_mode & 0o777 == 0o600


def test_keys_are_not_in_the_childs_environment(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    outcome = evaluate("dict(__import__('os').environ)", Layers())
    assert "sk-secret" not in outcome.result.values()
    assert not {key for key in outcome.result if "KEY" in key or "TOKEN" in key}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root drops to another user")
def test_root_becomes_nobody():
    needs("user")
    uid = "__import__('os').getresuid()"
    assert evaluate(uid, Layers()).result == [0, 0, 0]
    for layers in (alone("user"), HERE):
        assert evaluate(uid, layers).result == [65534] * 3
        assert evaluate("__import__('os').setuid(0)", layers).reason is not None


def test_its_own_directory_is_writable_and_no_file_grows_beyond_the_limit(tmp_path):
    folder = tmp_path / "own"
    folder.mkdir()
    folder.chmod(0o777)
    for parent in folder.parents:
        if not parent.stat().st_mode & 0o001:
            parent.chmod(0o711)
    own = {"writable": [str(folder)], "limits": Limits(wall_s=150, file_mib=1)}
    write = f"open({str(folder / 'a')!r}, 'wb').write(bytes(%d))"
    assert evaluate(write % 1000, HERE, **own).result == 1000
    assert evaluate(write % 2**21, HERE, **own).result is None
    assert (folder / "a").stat().st_size <= 2**20
    assert evaluate(f"open({str(tmp_path / 'b')!r}, 'w')", HERE, **own).result is None


@pytest.mark.parametrize("layers", [Layers(), HERE], ids=["limits", "all"])
@pytest.mark.parametrize(
    ("expression", "limits", "reason", "deterministic", "limit"),
    [
        ("__import__('time').sleep(600)", Limits(wall_s=2), "no result within 2 s", False, "wall"),
        ("all(iter(lambda: 1, 0))", Limits(150, 1), "processor", False, "cpu"),
        ("len(bytearray(10**9))", Limits(150, memory_mib=256), "256 MiB", True, "memory"),
        ("__import__('os').abort()", Limits(150), "signal", True, None),
        ("(lambda f: f(f))(lambda f: f(f))", Limits(150), "RecursionError", True, None),
        ("'x' * 5_000_000", Limits(150, memory_mib=512), "too large", True, None),
    ],
)
def test_limits(expression, limits, reason, deterministic, limit, layers):
    outcome = evaluate(expression, layers, limits=limits)
    assert outcome.result is None and reason in (outcome.reason or "")
    assert (outcome.deterministic, outcome.limit) == (deterministic, limit)


@pytest.mark.parametrize("name", ["SIGKILL", "SIGTERM"])
def test_an_end_from_outside_is_not_the_codes_own(name):
    expression = f"__import__('os').kill(__import__('os').getpid(), {int(signal.Signals[name])})"
    outcome = evaluate(expression, Layers())
    assert outcome.reason == f"killed by signal {int(signal.Signals[name])}"
    assert (outcome.deterministic, outcome.limit) == (False, None)


@pytest.mark.parametrize("layers", [Layers(), HERE], ids=["limits", "all"])
def test_who_does_not_heed_the_end_of_processor_time_is_killed_for_it(layers):
    ignore = "__import__('signal').signal(24, 1)"  # SIGXCPU
    expression = f"[{ignore}, all(iter(lambda: 1, 0))]"
    outcome = evaluate(expression, layers, limits=Limits(300, 1))
    assert outcome.reason == "more than 1 s of processor time"
    assert (outcome.deterministic, outcome.limit) == (False, "cpu")


@pytest.mark.parametrize(
    "message",
    [
        "MemoryError: ",
        "_ArrayMemoryError: Unable to allocate 7.45 GiB for an array with shape (1000000000,)",
        "RuntimeError: [enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't "
        "allocate memory: you tried to allocate 80000000000 bytes. Error code 12",
        "terminate called after throwing an instance of 'std::bad_alloc'",
    ],
    ids=["python", "numpy", "torch", "cpp"],
)
def test_all_ways_to_say_that_there_is_no_more_memory(message):
    found = death(98, io.BytesIO(message.encode()), Limits(memory_mib=512))
    assert found == Death("more than 512 MiB of memory", deterministic=True, limit="memory")


def test_memory_that_no_limit_of_the_child_counts_is_seen_from_outside():
    shared = "(lambda m: m.write(bytes(2**28)) and __import__('time').sleep(60))"
    expression = f"{shared}(__import__('mmap').mmap(-1, 2**28))"
    outcome = evaluate(expression, Layers(), limits=Limits(150, memory_mib=200))
    assert outcome.reason == "more than 200 MiB of memory"


def test_what_a_child_leaves_behind_is_ended(tmp_path):
    file = tmp_path / "pid"
    expression = (
        "(lambda os, t: (os.setsid() and 0, "
        f"open({str(file)!r}, 'w', 1).write(str(os.getpid()) + chr(10)), t.sleep(600)) "
        "if os.fork() == 0 else t.sleep(600))(__import__('os'), __import__('time'))"
    )

    def told() -> str | None:
        return "told" if file.exists() and file.read_text() else None

    assert evaluate(expression, Layers(), on_poll=told).reason == "told"
    status = Path(f"/proc/{file.read_text().strip()}/stat")
    deadline = time.monotonic() + 60  # a killed process may take a moment to be gone
    while status.exists() and status.read_text().split()[2] != "Z":
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_code_can_not_pretend_that_it_was_never_confined():
    """Else one candidate could end a whole search."""
    code = "(lambda os: os.write(2, b'OSError: landlock') and os._exit(97))(__import__('os'))"
    outcome = evaluate(code, HERE)
    assert outcome.reason == "the process ended: OSError: landlock"
    assert not outcome.deterministic  # that it did is a guess


def test_a_layer_that_cannot_be_had_stops_everything(monkeypatch):
    monkeypatch.setattr("embodied_icrl.reward_search.sandbox._DEVICES", ("/dev/null\0",))
    with pytest.raises(SandboxError):
        evaluate("1", Layers(landlock=True))


def test_names_say_what_is_missing():
    assert Layers(True, True, True, True).name.startswith("bubblewrap + Landlock + seccomp")
    assert Layers(landlock=True, seccomp=True).name == "Landlock + seccomp + limits"
    assert Layers().name == "weak: limits"
    assert Layers(bubblewrap=True).name.startswith("weak: ")


def test_the_weakest_of_layers():
    full, files, none = Layers(True, True, True, True), Layers(True, True), Layers()
    some = Layers(landlock=True, seccomp=True)
    for others in ([full], [full, some], [full, some, files], [full, some, files, none]):
        assert weakest(layers.name for layers in others) == others[-1].name
    assert weakest(["bubblewrap + seccomp", "Landlock + seccomp"]) == "bubblewrap + seccomp"


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_filters_deny_by_default_what_they_list(machine):
    """A small interpreter of the kernel's byte code."""

    def answer(number: int, argument: int = 0, architecture: int | None = None) -> int:
        code = filter_program(machine, process=77)
        arch = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}[machine]
        words = {0: number, 4: arch if architecture is None else architecture, 16: argument}
        loaded, at = 0, 0
        while True:
            entry = code[8 * at : 8 * at + 8]
            operation, if_true, if_false = int.from_bytes(entry[:2], "little"), entry[2], entry[3]
            value = int.from_bytes(entry[4:], "little")
            if operation == 0x06:
                return value
            if operation == 0x20:
                loaded, at = words[value], at + 1
                continue
            holds = {0x15: loaded == value, 0x35: loaded >= value, 0x45: bool(loaded & value)}
            at += 1 + (if_true if holds[operation] else if_false)

    allow, deny = 0x7FFF0000, 0x00050001
    read, sock, clone, clone3, kill = {
        "x86_64": (0, 41, 56, 435, 62),
        "aarch64": (63, 198, 220, 435, 129),
    }[machine]
    assert answer(read) == allow
    assert answer(sock) == deny
    assert answer(clone) == deny and answer(clone, 0x10000) == allow
    assert answer(clone3) == 0x00050000 | 38
    assert answer(kill, 77) == allow and answer(kill, 78) == deny and answer(kill, 0) == allow
    assert answer(read, architecture=0x40000003) == 0x80000000
    if machine == "x86_64":
        assert answer(0x40000000 + read) == deny


def test_machines_without_a_table_have_no_filter():
    with pytest.raises(OSError, match="riscv"):
        filter_program("riscv64", 1)
