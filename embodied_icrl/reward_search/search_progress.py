"""What a person sees of a running search: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

REFRESH_PER_S = 2
SHOWN_ROWS = 30


@dataclass
class Row:
    """One reward of the present round."""

    state: str = "waiting"
    fitness: float | None = None
    note: str = ""
    steps: dict[str, int] = field(default_factory=dict)  # of each training, now
    done: dict[str, int] = field(default_factory=dict)  # of each training, finished stretches
    rates: dict[str, float] = field(default_factory=dict)  # of each training that runs


class SearchProgress:
    """Rows of the present round, time left, and what was spent.

    Args:
        enabled: False: only notices are shown.
        spending: tokens and money so far, against the budget; "" for none.
        console: where to; standard error without it.
    """

    def __init__(
        self, *, enabled: bool, spending: Callable[[], str], console: Console | None = None
    ) -> None:
        self.console = console or Console(stderr=True)
        self.enabled = enabled
        self.rows: dict[str, Row] = {}
        self.title = ""
        self._spending = spending
        self._steps_done = 0
        self._steps_left = 0
        self._training_since: float | None = None
        self._lock = threading.Lock()  # the table is drawn in a thread of its own
        self._live: Live | None = None
        if enabled and self.console.is_terminal:
            self._live = Live(
                get_renderable=self._table,
                console=self.console,
                refresh_per_second=REFRESH_PER_S,
                redirect_stdout=False,
                redirect_stderr=False,
            )

    def __enter__(self) -> SearchProgress:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def say(self, message: str) -> None:
        """A line that stays, above the table."""
        if self.enabled:
            self.notice(message)

    def notice(self, message: str) -> None:
        """A line that stays and is always shown: what a person has to know, not only may."""
        if self._live is not None:
            self.console.print(Text(message))
        else:
            print(message, file=sys.stderr, flush=True)

    def begin(self, title: str, candidates: list[str]) -> None:
        """A new round with these rewards."""
        self.title = title
        with self._lock:
            self.rows = {name: Row() for name in candidates}
        self.say(title)

    def state(self, candidate: str, state: str, note: str = "") -> None:
        """A reward is now in another state; `note` says why."""
        with self._lock:
            row = self.rows.setdefault(candidate, Row())
            row.state, row.note = state, note
        if state not in ("waiting", "training") and self._live is None:
            fitness = "" if row.fitness is None else f", fitness {row.fitness:.3f}"
            self.say(f"{candidate}: {state}{fitness}{f' ({note})' if note else ''}{self._tail()}")

    def expect(self, env_steps: int) -> None:
        """So many environment steps are still to do if nobody fails: for the time left."""
        self._steps_left = env_steps
        self._training_since = self._training_since or time.monotonic()

    def moved(self, candidate: str, training: str, step: int, steps_per_s: float) -> None:
        """A training of it is so far.

        Args:
            training: which of its trainings.
        """
        with self._lock:
            row = self.rows.setdefault(candidate, Row())
            row.rates[training] = steps_per_s
            row.steps[training] = step

    def trained(
        self,
        candidate: str,
        training: str,
        env_steps: int,
        fitness: float | None,
        *,
        before: bool = False,
    ) -> None:
        """A stretch of one of its trainings is over.

        Args:
            before: it was so before this search went on, and says nothing about speed.
        """
        with self._lock:
            row = self.rows.setdefault(candidate, Row())
            row.rates.pop(training, None)
            row.done[training] = row.done.get(training, 0) + env_steps
            row.steps[training] = row.done[training]
            row.fitness = fitness
            self._steps_done += 0 if before else env_steps
            self._steps_left = max(self._steps_left - env_steps, 0)

    def eta(self) -> str:
        """Hours, minutes and seconds left, at the mean speed so far; "" before it is known."""
        if self._training_since is None or not self._steps_done:
            return ""
        seconds = time.monotonic() - self._training_since
        return clock(self._steps_left * seconds / self._steps_done)

    def _tail(self) -> str:
        parts = [f"ETA {self.eta()}" if self.eta() else "", self._spending()]
        text = ", ".join(part for part in parts if part)
        return f"  [{text}]" if text else ""

    def _table(self) -> Group:
        with self._lock:
            rows = [self._cells(name, row) for name, row in self.rows.items()]
        table = Table(title=Text(self.title, style="bold"), title_justify="left", box=None)
        for name, justify in (
            ("reward", "left"), ("state", "left"), ("steps", "right"),
            ("steps/s", "right"), ("fitness", "right"), ("", "left"),
        ):  # fmt: skip
            table.add_column(name, justify=justify, no_wrap=True)  # type: ignore[arg-type]
        for cells in rows[:SHOWN_ROWS]:
            table.add_row(*map(Text, cells))
        hidden = len(rows) - SHOWN_ROWS
        more = [Text(f"... and {hidden} more")] if hidden > 0 else []
        return Group(table, *more, Text(self._tail().strip()))

    @staticmethod
    def _cells(name: str, row: Row) -> tuple[str, ...]:
        rate = f"{sum(row.rates.values()):,.0f}" if row.rates else ""
        fitness = "" if row.fitness is None else f"{row.fitness:.3f}"
        return name, row.state, f"{sum(row.steps.values()):,}", rate, fitness, row.note


def clock(seconds: float) -> str:
    """h:mm:ss."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}"
