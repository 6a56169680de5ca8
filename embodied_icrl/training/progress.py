"""What a person sees while training: a bar on a terminal, a line now and then in a log."""

from __future__ import annotations

import sys
import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

_FORMAT = (
    "{task.fields[rate]:>9} steps/s  return first {task.fields[first]} last {task.fields[last]}"
)


class ProgressReport:
    """Steps done, steps/s, time left, and the returns of a trial's first and last episode."""

    def __init__(self, total: int, done: int, *, enabled: bool, log_every_s: float) -> None:
        self.total = total
        self.log_every_s = log_every_s
        self.enabled = enabled
        self.started = self.last_line = time.monotonic()
        self.start_step = done
        console = Console(stderr=True)
        self.bar: Progress | None = None
        if enabled and console.is_terminal:
            self.bar = Progress(
                TextColumn("training"),
                BarColumn(),
                TextColumn("{task.completed:,.0f}/{task.total:,.0f}"),
                TextColumn(_FORMAT),
                TextColumn("ETA"),
                TimeRemainingColumn(),
                console=console,
            )
            self.task = self.bar.add_task(
                "training", total=total, completed=done, rate="-", first="-", last="-"
            )

    def __enter__(self) -> ProgressReport:
        if self.bar is not None:
            self.bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.bar is not None:
            self.bar.stop()

    def say(self, message: str) -> None:
        """A line above the bar."""
        if self.enabled:
            self.warn(message)

    def warn(self, message: str) -> None:
        """A line above the bar that is shown in every process, and without progress, too."""
        if self.bar is not None:
            self.bar.console.print(message, highlight=False, markup=False)
        else:
            print(message, file=sys.stderr, flush=True)

    def update(
        self, step: int, steps_per_s: float, first: float | None, last: float | None
    ) -> None:
        texts = ["-" if value is None else f"{value:.2f}" for value in (first, last)]
        if self.bar is not None:
            self.bar.update(
                self.task,
                completed=min(step, self.total),
                rate=f"{steps_per_s:,.0f}",
                first=texts[0],
                last=texts[1],
            )
            return
        now = time.monotonic()
        if self.enabled and (now - self.last_line >= self.log_every_s or step >= self.total):
            self.last_line = now
            mean_rate = (step - self.start_step) / max(now - self.started, 1e-9)
            left = max(self.total - step, 0) / max(mean_rate, 1e-9)
            self.say(
                f"step {step:,}/{self.total:,}  {steps_per_s:,.0f} steps/s  ETA {_clock(left)}  "
                f"return first {texts[0]} last {texts[1]}"
            )


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}"
