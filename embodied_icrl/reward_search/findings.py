"""What a check has to say about reward code, one line each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

MAX_MESSAGE = 300  # characters
MAX_LINE = 10**6


@dataclass(frozen=True)
class Finding:
    """One finding.

    Attributes:
        rule: short name of the rule, like "import".
        line: line of the code, from 1; 0 where no line is to blame.
        message: why, and what to write instead.
        severity: an error refuses the code, a warning does not.
    """

    rule: str
    line: int
    message: str
    severity: Literal["error", "warning"] = "error"

    @property
    def text(self) -> str:
        """The finding as one printable line."""
        where = f"line {self.line}" if self.line else "whole file"
        prefix = "warning: " if self.severity == "warning" else ""
        return f"{prefix}{self.rule}, {where}: {printable(self.message)}"


def printable(text: str, limit: int = MAX_MESSAGE) -> str:
    """Text from untrusted code on one line, without control characters, cut to `limit`."""
    visible = "".join(c if c.isprintable() else " " for c in text[: 4 * limit])
    line = " ".join(visible.split())
    return line if len(line) <= limit else line[: limit - 3] + "..."


def parse_finding(data: Any) -> Finding:
    """A finding from untrusted JSON.

    Raises:
        ValueError: it has another form.
    """
    if not isinstance(data, Mapping) or data.keys() != {"rule", "line", "message", "severity"}:
        raise ValueError("not a finding")
    rule, line, message, severity = (data[key] for key in ("rule", "line", "message", "severity"))
    if not isinstance(rule, str) or not isinstance(message, str) or type(line) is not int:
        raise ValueError("not a finding")
    if severity not in ("error", "warning") or not 0 <= line <= MAX_LINE:
        raise ValueError("not a finding")
    return Finding(printable(rule, 40), line, printable(message), severity)
