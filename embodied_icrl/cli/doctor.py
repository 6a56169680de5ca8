"""`embodied-icrl doctor`: what works on this machine, and what to do about what doesn't."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from embodied_icrl.cli.errors import CommandStopped
from embodied_icrl.common.config import build, option
from embodied_icrl.common.files import atomic_write_text

WIDTH = 14


@dataclass(frozen=True)
class DoctorConfig:
    """The keys of `sim_configs/doctor.yaml`."""

    data: str = option("data", "folder with public scene data sets")
    simulator_python: str | None = option(
        None, "interpreter that habitat-sim is installed in; null: this one"
    )
    output: str | None = option(None, "JSON file for the findings")
    debug: bool = option(False, "full tracebacks for usage errors")


@dataclass(frozen=True)
class Finding:
    """What a check found.

    Attributes:
        check: what was looked at.
        status: "good"; "absent" where something optional is missing; "bad" where something that
            training, filming or evaluation needs doesn't work.
        text: what was found.
        advice: what to do; "" if nothing.
    """

    check: str
    status: Literal["good", "absent", "bad"]
    text: str
    advice: str = ""


Check = Callable[[DoctorConfig], list[Finding]]


def run_doctor(node: Any) -> None:
    """Print all findings, the advice below each.

    Raises:
        CommandStopped: something is bad (exit status 1).
    """
    from embodied_icrl.cli.doctor_checks import CHECKS

    config = build(node, DoctorConfig)
    findings = examine(config, CHECKS)
    if config.output is not None:
        path = Path(config.output)
        atomic_write_text(path, json.dumps([asdict(f) for f in findings], indent=1) + "\n")
    bad = sum(finding.status == "bad" for finding in findings)
    absent = sum(finding.status == "absent" for finding in findings)
    print(f"\n{bad} bad, {absent} optional things absent, {len(findings) - bad - absent} good")
    if bad:
        raise CommandStopped(1)


def examine(config: DoctorConfig, checks: dict[str, Check]) -> list[Finding]:
    """Make the checks one after the other and print what each finds; a check that fails is bad."""
    findings = []
    for name, check in checks.items():
        try:
            found = check(config)
        except Exception as error:
            reason = f"the check itself failed: {type(error).__name__}: {error}"
            found = [Finding(name, "bad", reason, "please report this")]
        findings += found
        for finding in found:
            print_finding(finding)
    return findings


def print_finding(finding: Finding) -> None:
    """One finding, folded to the terminal's width, with its advice below."""
    from rich.console import Console
    from rich.text import Text

    marks = {"good": ("ok ", "green"), "absent": (" - ", "yellow"), "bad": ("!! ", "bold red")}
    mark, colour = marks[finding.status]
    columns = max(40, shutil.get_terminal_size((100, 24)).columns)
    indent = len(mark) + WIDTH
    lines = textwrap.wrap(finding.text, columns - indent, break_long_words=False)
    if finding.advice:
        lines += textwrap.wrap(f"-> {finding.advice}", columns - indent, break_long_words=False)
    console = Console(file=sys.stdout, width=columns, highlight=False, soft_wrap=True)
    head = Text(mark, style=colour) + Text(finding.check.ljust(WIDTH), style="bold")
    console.print(head + Text(lines[0]))
    for line in lines[1:]:
        console.print(Text(" " * indent + line))
