"""The human-normalised score, and how sure it is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean

import numpy as np

from embodied_icrl.common.seeds import derived_rng
from embodied_icrl.reward_search.selection import student

LEAST_SEEDS = 5  # resampled means of fewer values reach not even to the ends of a 95% interval
RESAMPLES = 20_000
_SMALL = 1e-6  # of the baselines' size: a gap that a ratio can't be taken of


@dataclass(frozen=True)
class Score:
    """A human-normalised score.

    Attributes:
        mean: (best - sparse) / |human - sparse|.
        low, high: 95% interval that counts the noise of all three rewards; None without one.
        reason: why there is no interval.
    """

    mean: float
    low: float | None = None
    high: float | None = None
    reason: str = ""


def human_normalised(
    fitness: float | None, human: float | None, sparse: float | None
) -> float | None:
    """(fitness - sparse) / |human - sparse|, the score of the Eureka paper.

    None where one of the three is unknown, or where the two baselines are equal, or so close that
    the ratio would mean nothing.
    """
    if fitness is None or human is None or sparse is None:
        return None
    gap = abs(human - sparse)
    if not math.isfinite(gap) or gap <= _SMALL * max(1.0, abs(human), abs(sparse)):
        return None
    return (fitness - sparse) / gap


def score(best: Sequence[float], human: Sequence[float], sparse: Sequence[float]) -> Score | None:
    """The score of the best reward from the fitness of every seed, with its interval.

    The interval is a bootstrap over the seeds. The three rewards are resampled apart from each
    other: luck that a shared seed gives all of them would make it narrower, so this errs on the
    safe side. Percentiles of so few values are too narrow; they are widened to what Student's
    intervals are (Hesterberg, "What teachers should know about the bootstrap", 2015, section 5.3).

    Returns:
        None where `human_normalised` is None.
    """
    mean = human_normalised(fmean(best), fmean(human), fmean(sparse))
    if mean is None:
        return None
    count = min(len(best), len(human), len(sparse))
    if count < LEAST_SEEDS:
        return Score(mean, reason=f"no interval: that takes {LEAST_SEEDS} seeds of each reward")
    rng = derived_rng(0, "human-normalised score")
    means = [_resampled(values, rng) for values in (best, human, sparse)]
    tail = NormalDist().cdf(-math.sqrt(count / (count - 1)) * student(count))
    gap = means[1] - means[2]
    low, high = np.quantile(gap, (tail, 1 - tail))
    if low <= 0.0 <= high:
        reason = "no interval: human and sparse reward are not clearly different"
        return Score(mean, reason=reason)
    low, high = np.quantile((means[0] - means[2]) / np.abs(gap), (tail, 1 - tail))
    return Score(mean, float(low), float(high))


def _resampled(values: Sequence[float], rng: np.random.Generator) -> np.ndarray:
    """Means of values drawn with replacement, [RESAMPLES]."""
    chosen = rng.integers(len(values), size=(RESAMPLES, len(values)))
    means: np.ndarray = np.asarray(values, np.float64)[chosen].mean(axis=1)
    return means
