"""Fresh workers in the place of those that die or hang: how many, what is said, what is counted."""

from __future__ import annotations

import sys
from collections.abc import Callable

from embodied_icrl.envs.worker_handle import EnvWorkerLostError
from embodied_icrl.training.distributed import Ranks


class Replacements:
    """Decides whether training goes on without a worker that it lost.

    Attributes:
        say: takes the line about a lost worker.
        uncounted: replacements of this process that the metrics don't count yet.

    Args:
        limit: how many there may be in this process, since it started.
        ranks: this process among the others.
    """

    def __init__(self, limit: int, ranks: Ranks) -> None:
        self.limit = limit
        self.ranks = ranks
        self.done = 0
        self.uncounted = 0
        self.say: Callable[[str], None] = _to_stderr

    def allow(self, error: EnvWorkerLostError, effect: str) -> None:
        """Let a fresh worker take over, and say so in one line.

        Args:
            error: what is known about the lost worker.
            effect: what the loss means for the training.

        Raises:
            EnvWorkerLostError: `error`, if the limit is reached.
        """
        if self.done == self.limit:
            if self.limit:
                error.add_note(
                    f"trainer.max_worker_restarts={self.limit} fresh workers have been used up; "
                    "the same command goes on from the last checkpoint, if there is one"
                )
            raise error
        self.done += 1
        self.uncounted += 1
        process = f"process {self.ranks.rank}: " if self.ranks.world_size > 1 else ""
        what = str(error).partition("\n")[0]
        self.say(
            f"{process}{what}; a fresh worker takes its place ({self.done} of at most "
            f"{self.limit}), {effect}"
        )

    def take_uncounted(self) -> int:
        """How many there were since the last call."""
        count, self.uncounted = self.uncounted, 0
        return count


def _to_stderr(message: str) -> None:
    print(message, file=sys.stderr, flush=True)
