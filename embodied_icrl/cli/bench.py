"""`embodied-icrl bench NAME`: run one of the checkout's benchmark scripts."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from embodied_icrl.cli.errors import CommandStopped
from embodied_icrl.common.config import build, option
from embodied_icrl.common.errors import ConfigError
from embodied_icrl.common.paths import checkout_dir

# Files in the folder that don't measure: shared code, and the tables of trained seeds.
OTHERS = ("common", "recurrent", "reward_tables", "seeds", "task_budgets")


@dataclass(frozen=True)
class BenchConfig:
    """Everything `embodied-icrl bench` reads."""

    name: str | None = option(None, "the benchmark")
    output: str | None = option(None, "JSON file; null: print the table only")
    quick: bool = option(False, "tiny sizes: does it run at all?")
    arguments: tuple[str | int | float, ...] = option((), "further words for the script")
    debug: bool = option(False, "full tracebacks for usage errors")


def run_bench(node: Any) -> None:
    """Run the script in a process of its own, so that nothing else is in its memory.

    Raises:
        ConfigError: there is no checkout, or no benchmark of that name.
        CommandStopped: the script failed; its message is on stderr.
    """
    config = build(node, BenchConfig)
    scripts = find_benchmarks(checkout_dir())
    if config.name not in scripts:
        known = ", ".join(sorted(scripts))
        if config.name is None:
            raise ConfigError(f"name a benchmark: embodied-icrl bench NAME, one of {known}")
        raise ConfigError(f"no benchmark {config.name!r}; available: {known}")
    command = [sys.executable, str(scripts[config.name])]
    command += ["--output", config.output] if config.output is not None else []
    command += ["--quick"] if config.quick else []
    command += [str(word) for word in config.arguments]
    code = subprocess.run(command, check=False).returncode
    if code:
        raise CommandStopped(code if code > 0 else 128 - code)


def find_benchmarks(checkout: Path | None) -> dict[str, Path]:
    """The benchmark scripts of a checkout by name.

    Raises:
        ConfigError: the package is not in a checkout.
    """
    folder = None if checkout is None else checkout / "benchmarks"
    if folder is None or not folder.is_dir():
        raise ConfigError(
            "the benchmarks are in the source checkout, not in the installed package: "
            "clone the repository and run `embodied-icrl bench` there"
        )
    return {path.stem: path for path in folder.glob("*.py") if path.stem not in OTHERS}
