"""Stop requests: signals, and the death of the launcher that started this process."""

from __future__ import annotations

import os
import signal
import time
from types import FrameType, TracebackType
from typing import Any

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)

# Set by a launcher for the processes that it starts: its process id.
LAUNCHER = "EMBODIED_ICRL_LAUNCHER_PID"

# A launcher forwards the Ctrl-C that the terminal has already delivered to every process.
_SAME_REQUEST_S = 3.0


class StopRequest:
    """Remembers the first stop signal; a second one, some seconds later, interrupts at once."""

    def __init__(self) -> None:
        self.signal = 0
        self._since = 0.0
        self._previous: dict[signal.Signals, Any] = {}
        self._launcher = int(os.environ.get(LAUNCHER, "0"))

    def __enter__(self) -> StopRequest:
        for number in STOP_SIGNALS:
            self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if not self.signal:
            self.signal, self._since = number, time.monotonic()
        elif time.monotonic() - self._since > _SAME_REQUEST_S:
            raise KeyboardInterrupt

    def pending(self) -> int:
        """Number of the stop signal, 0 while there is none.

        A launcher that was killed hard leaves its processes behind; they stop as if terminated.
        """
        if not self.signal and self._launcher and os.getppid() != self._launcher:
            self.signal = signal.SIGTERM
        return self.signal
