"""Successive halving in environment steps: hopeless candidates are stopped before their end.

All candidates train for a quarter of the budget; the better half goes on to half of it; the better
half of those to its end. Everybody waits at a rung for everybody, so the order in which jobs end,
and with it the machine, has no say. From three candidates on this takes at most half the steps.

Method: Jamieson and Talwalkar, "Non-stochastic best arm identification and hyperparameter
optimization" (2016); the schedule is one bracket of Hyperband.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from embodied_icrl.common.config import option
from embodied_icrl.common.errors import ConfigError


@dataclass(frozen=True)
class Racing:
    """How hopeless candidates are stopped early."""

    kind: Literal["halving", "none"] = option("halving", "none: all train to the end (Eureka)")
    eta: int = option(2, "of so many candidates at a rung, one goes on")
    depth: int = option(2, "rungs before the end; the first is at 1/eta^depth of the budget")

    def __post_init__(self) -> None:
        if self.eta < 2 or self.depth < 1:
            raise ConfigError(
                f"racing.eta={self.eta} must be at least 2, racing.depth={self.depth} at least 1"
            )

    def rungs(self, checkpoints: Sequence[int]) -> tuple[int, ...]:
        """Environment steps at which candidates are compared; the last is the budget's end.

        Args:
            checkpoints: environment steps at which fitness is measured, rising; a rung is the last
                of them within its share of the budget, so that no share is exceeded.

        Raises:
            ConfigError: there are too few checkpoints for that.
        """
        end = checkpoints[-1]
        if self.kind == "none":
            return (end,)
        rungs = []
        for level in range(self.depth, 0, -1):
            within = [step for step in checkpoints if step * self.eta**level <= end]
            if not within or within[-1] in rungs:
                raise ConfigError(
                    f"{len(checkpoints)} checkpoints are too few for racing: "
                    f"set checkpoints={self.eta**self.depth} or more, or racing.kind=none"
                )
            rungs.append(within[-1])
        return (*rungs, end)

    def survivors(self, fitness: Mapping[str, float]) -> tuple[str, ...]:
        """Who goes on from a rung: the best `1 / eta`, at least one, in the order given.

        Equals are taken in the order given, so the same search makes the same choice again.

        Args:
            fitness: by candidate, of all that train without failure.
        """
        if self.kind == "none":
            return tuple(fitness)
        keep = max(1, len(fitness) // self.eta)
        ranked = sorted(fitness, key=lambda name: -fitness[name])  # stable
        kept = set(ranked[:keep])
        return tuple(name for name in fitness if name in kept)


def planned_steps(racing: Racing, candidates: int, checkpoints: Sequence[int]) -> int:
    """Environment steps of a whole race in which nobody fails, with one seed."""
    total, before, alive = 0, 0, candidates
    for rung in racing.rungs(checkpoints):
        total += alive * (rung - before)
        before = rung
        alive = len(racing.survivors({str(i): 0.0 for i in range(alive)}))
    return total
