"""A progress bar for evaluations: episodes done, steps per second, time left."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


class EvaluationProgress:
    """A bar on standard error while ``shown`` and the output is a terminal; silent otherwise.

    Args:
        title: what is being done.
        total: how many episodes there will be, or None if that isn't known.
    """

    def __init__(self, title: str, total: int | None, *, shown: bool) -> None:
        console = Console(stderr=True)
        self._bar: Progress | None = None
        self._steps = 0
        self._began = time.perf_counter()
        if shown and console.is_terminal:
            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("episodes  {task.fields[rate]}"),
                TextColumn("ETA"),
                TimeRemainingColumn(),
                console=console,
                transient=True,
            )
            self._task = self._bar.add_task(title, total=total, rate="")

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def advance(self, steps: int, episodes: int) -> None:
        """So many environment steps and finished episodes more."""
        self._steps += steps
        if self._bar is not None:
            rate = self._steps / max(time.perf_counter() - self._began, 1e-9)
            self._bar.update(self._task, advance=episodes, rate=f"{rate:,.0f} steps/s")
