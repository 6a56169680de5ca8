"""What the benchmarks share: timing, memory, fresh processes, tables and result files.

Wall-clock timings suffer from other load on the machine, CPU time hardly does, so both are taken.
Variants that are compared run interleaved, round by round; ratios are medians of the rounds'
ratios. Everything runs on one thread, which is fastest for small matrices.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from embodied_icrl.common.errors import UserError
from embodied_icrl.common.files import atomic_write_json

FORMAT = 1
ROOT = Path(__file__).resolve().parent.parent
ROW_MARK = "benchmark-row "

Row = dict[str, Any]


@dataclass(frozen=True)
class Sample:
    """One timed piece of work: wall-clock and CPU seconds (all threads of this process)."""

    wall_s: float
    cpu_s: float


@dataclass(frozen=True)
class Variant:
    """Something to time against others. `prepare` runs before each round and isn't timed."""

    run: Callable[[], object]
    prepare: Callable[[], object] = field(default=lambda: None)


def measure(work: Callable[[], object]) -> Sample:
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return Sample(time.perf_counter() - wall, time.process_time() - cpu)


def interleaved(
    variants: Mapping[str, Variant], rounds: int, warmup: int = 1
) -> dict[str, list[Sample]]:
    """Samples of every variant, `rounds` each; each round runs all, beginning with another one."""
    samples: dict[str, list[Sample]] = {name: [] for name in variants}
    names = list(variants)
    for index in range(-warmup, rounds):
        turn = index % len(names)
        for name in names[turn:] + names[:turn]:
            variants[name].prepare()
            sample = measure(variants[name].run)
            if index >= 0:
                samples[name].append(sample)
    return samples


def ratio(slow: Sequence[Sample], fast: Sequence[Sample], clock: str = "cpu_s") -> float:
    """How many times as long the first takes: the median over rounds."""
    pairs = zip(slow, fast, strict=True)
    ratios = [getattr(a, clock) / max(getattr(b, clock), 1e-9) for a, b in pairs]
    return float(statistics.median(ratios))


def per_item(samples: Sequence[Sample], items: float) -> Row:
    """Medians and raw numbers, in milliseconds per item; each sample did `items` of them."""
    wall = [1e3 * sample.wall_s / items for sample in samples]
    cpu = [1e3 * sample.cpu_s / items for sample in samples]
    return {
        "wall_ms": statistics.median(wall),
        "cpu_ms": statistics.median(cpu),
        "wall_ms_samples": wall,
        "cpu_ms_samples": cpu,
    }


def peak_rss_mib() -> float:
    """The most memory that this process has had resident, MiB.

    Not `ru_maxrss`: that starts at the size of the process which started this one.
    """
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii")
        line = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) / 1024
    except (OSError, StopIteration):
        import resource

        unit = 1024 if sys.platform == "linux" else 1024**2
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def allocations(work: Callable[[], object]) -> tuple[int, int]:
    """Bytes that torch allocates on the CPU in doing the work: in all, and the largest piece."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        work()
    assert profiler.profiler is not None
    results: Any = profiler.profiler.kineto_results
    sizes = [event.nbytes() for event in results.events() if event.name() == "[memory]"]
    allocated = [size for size in sizes if size > 0]
    return sum(allocated), max(allocated, default=0)


def fresh_process(script: str, **arguments: Any) -> Row:
    """The row that `script --row JSON` makes in a process of its own.

    Raises:
        UserError: the process failed; its own message is on stderr.
    """
    command = [sys.executable, script, "--row", json.dumps(arguments)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    rows = [line for line in done.stdout.splitlines() if line.startswith(ROW_MARK)]
    if done.returncode or not rows:
        raise UserError(f"{Path(script).name} failed with status {done.returncode} at {arguments}")
    row: Row = json.loads(rows[-1].removeprefix(ROW_MARK))
    return row


def machine_facts() -> Row:
    """What a reader needs to compare numbers: hardware, versions, load."""
    import numpy
    import torch

    from embodied_icrl.runs.machine import cpu_name

    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1024**3
    return {
        "cpu": cpu_name(),
        "cores": os.cpu_count(),
        "memory_gib": round(memory, 1),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "numpy": numpy.__version__,
        "threads": torch.get_num_threads(),
        "load_average": [round(load, 2) for load in os.getloadavg()],
        "commit": _commit(),
    }


def _commit() -> str | None:
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return done.stdout.strip() or None


@dataclass
class Table:
    """Rows as a table on the terminal: `columns` maps a heading to how a row fills it."""

    title: str
    columns: Mapping[str, Callable[[Row], str]]

    def print(self, rows: Sequence[Row]) -> None:
        from rich.console import Console
        from rich.table import Table as RichTable

        table = RichTable(title=self.title, title_justify="left")
        for heading in self.columns:
            table.add_column(heading, justify="right")
        for row in rows:
            table.add_row(*(text(row) for text in self.columns.values()))
        # A log has no width of its own: never wrap cells there.
        console = Console()
        if not console.is_terminal:
            console = Console(width=200)
        console.print(table)


def parser(doc: str | None) -> argparse.ArgumentParser:
    """The command line that all benchmarks share."""
    made = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--output", type=Path, help="JSON file for machine facts and all numbers")
    made.add_argument("--quick", action="store_true", help="tiny sizes: does it run at all?")
    made.add_argument("--row", type=json.loads, help=argparse.SUPPRESS)
    return made


def run_benchmark(
    script: str,
    arguments: argparse.Namespace,
    rows: Callable[[], list[Row]],
    table: Table,
    make_row: Callable[..., Row] | None = None,
) -> int:
    """Measure, print the table, write the file; returns the exit status.

    Args:
        script: `__file__` of the benchmark.
        arguments: what `parser` parsed.
        rows: measures all rows.
        table: how they are printed.
        make_row: measures one row in a fresh process (`fresh_process` calls it).
    """
    import torch

    torch.set_num_threads(1)
    try:
        if arguments.row is not None:
            assert make_row is not None
            print(ROW_MARK + json.dumps(make_row(**arguments.row)), flush=True)
            return 0
        if arguments.output is not None:
            _check_writable(arguments.output)
        began = time.perf_counter()
        result = {
            "format": FORMAT,
            "benchmark": Path(script).stem,
            "quick": arguments.quick,
            "command": " ".join(["python", f"benchmarks/{Path(script).name}", *sys.argv[1:]]),
            "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "machine": machine_facts(),
            "rows": rows(),
        }
        result["wall_s"] = round(time.perf_counter() - began, 1)
        table.print(result["rows"])
        if arguments.output is not None:
            atomic_write_json(arguments.output, result, indent=1)
            print(f"written: {arguments.output}")
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def _check_writable(path: Path) -> None:
    """Before hours of measuring, not after."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"can't make the folder of {path}: {error.strerror}") from error
    if path.is_dir() or not os.access(path.parent, os.W_OK):
        raise UserError(f"can't write {path}: name a file in a folder that you may write to")


def say(text: str) -> None:
    """A line of progress."""
    print(text, file=sys.stderr, flush=True)
