"""One number for a candidate from its trainings, how sure it is, and its place among others."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, stdev
from typing import Literal

from embodied_icrl.reward_search.records import Candidate, FitnessPoint

LAST_SHARE = 0.3  # of the checkpoints, which are averaged

# Student's t, 97.5%, for 1, 2, 3... degrees of freedom; beyond, the last one errs on the safe side.
_T = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
)  # fmt: skip

_PLACE = {"trained": 0, "stopped": 1, "waiting": 2, "failed": 3, "refused": 4}

Selection = Literal["mean_last", "max"]


def select(
    runs: Sequence[Sequence[FitnessPoint]], selection: Selection = "mean_last"
) -> tuple[float, float | None, float | None]:
    """Fitness of a candidate: mean over its seeds, with a 95% interval.

    Args:
        runs: by seed, fitness along training; each has at least one point. Any finite number is a
            fitness, negative ones included.
        selection: what one training is worth: `mean_last`, the mean of its last checkpoints, or
            `max`, its best checkpoint, which is Eureka's protocol and favours luck.

    Returns:
        Mean, low and high. The interval is Student's, over the seeds, as a bootstrap of so few is
        far too narrow; None with one seed, which says nothing about others.
    """
    values = [_of_run(run, selection) for run in runs]
    mean = fmean(values)
    if len(values) < 2:
        return mean, None, None
    half = student(len(values)) * stdev(values) / math.sqrt(len(values))
    return mean, mean - half, mean + half


def counted(checkpoints: int, selection: Selection = "mean_last") -> int:
    """How many of the last checkpoints of a training make its fitness."""
    return checkpoints if selection == "max" else max(1, round(LAST_SHARE * checkpoints))


def student(count: int) -> float:
    """Student's 97.5% quantile for the mean of so many values, two or more."""
    return _T[min(count - 1, len(_T)) - 1]


def ranked(candidates: Sequence[Candidate]) -> list[Candidate]:
    """The best first: trained to the end by fitness, then stopped, waiting, failed, refused."""

    def key(candidate: Candidate) -> tuple[int, float, int, str]:
        fitness = candidate.fitness if candidate.fitness is not None else -math.inf
        return _PLACE[candidate.status], -fitness, candidate.iteration, candidate.id

    return sorted(candidates, key=key)


def _of_run(run: Sequence[FitnessPoint], selection: Selection) -> float:
    values = [point.mean for point in run[-counted(len(run), selection) :]]
    return max(values) if selection == "max" else fmean(values)
