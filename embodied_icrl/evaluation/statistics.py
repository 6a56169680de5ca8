"""Means and bootstrap intervals over trials of what happened in each in-context episode."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from embodied_icrl.common.seeds import derived_rng

RESAMPLES = 2000
CONFIDENCE = 0.95
REACHED_SHARE = 0.9
_CHUNK_ELEMENTS = 4_000_000


@dataclass(frozen=True)
class Interval:
    """A mean over trials with its bootstrap interval, one entry per column of the input.

    ``mean``, ``low``, ``high``: float64 ``[column]``, NaN where no trial has a value;
    ``n``: int64 ``[column]``, how many trials have one.
    """

    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray
    n: np.ndarray

    def to_json(self) -> dict[str, list[float | None] | list[int]]:
        """Lists for JSON; ``null`` stands for "no trial has a value here"."""
        return {
            "mean": [number_or_none(x) for x in self.mean],
            "low": [number_or_none(x) for x in self.low],
            "high": [number_or_none(x) for x in self.high],
            "n": [int(x) for x in self.n],
        }

    def scalar(self) -> dict[str, float | int | None]:
        """The first column alone, as JSON numbers."""
        return {
            "mean": number_or_none(self.mean[0]),
            "low": number_or_none(self.low[0]),
            "high": number_or_none(self.high[0]),
            "n": int(self.n[0]),
        }


def bootstrap(
    values: np.ndarray,
    rng: np.random.Generator,
    *,
    resamples: int = RESAMPLES,
    confidence: float = CONFIDENCE,
) -> Interval:
    """Mean and percentile-bootstrap interval of each column of ``values: [trial, column]``.

    Trials are the independent units, so whole rows are drawn with replacement: the episodes of
    one trial stay together and the columns' intervals come from the same draws. NaN entries count
    as missing.
    """
    values = np.asarray(values, dtype=np.float64)
    if values.ndim != 2 or values.shape[0] == 0:
        raise ValueError(f"expected [trial, column] with at least one trial, got {values.shape}")
    trials = values.shape[0]
    present = np.isfinite(values)
    filled = np.where(present, values, 0.0)
    mean = _ratio(filled.sum(axis=0), present.sum(axis=0))
    means = np.empty((resamples, values.shape[1]))
    chunk = max(1, _CHUNK_ELEMENTS // trials)
    share = np.full(trials, 1.0 / trials)
    for start in range(0, resamples, chunk):
        stop = min(start + chunk, resamples)
        counts = rng.multinomial(trials, share, size=stop - start).astype(np.float64)
        means[start:stop] = _ratio(counts @ filled, counts @ present.astype(np.float64))
    low, high = np.full_like(mean, np.nan), np.full_like(mean, np.nan)
    some = present.any(axis=0)
    tail = 50.0 * (1.0 - confidence)
    if some.any():
        # A draw may hold no trial that has a value in a sparse column; it says nothing there.
        low[some], high[some] = np.nanpercentile(means[:, some], [tail, 100.0 - tail], axis=0)
    return Interval(mean, low, high, present.sum(axis=0).astype(np.int64))


def reached_episodes(start_step: np.ndarray, share: float = REACHED_SHARE) -> int:
    """How many leading episode indices were started by at least ``share`` of the trials.

    ``start_step: int [trial, episode]``, negative where the trial never started that episode.
    """
    shares = (np.asarray(start_step) >= 0).mean(axis=0)
    below = np.flatnonzero(shares < share)
    return int(below[0]) if below.size else int(shares.size)


def third(episodes: int) -> int:
    """How many episodes make up the first (or last) third of a trial: at least one."""
    return max(1, round(episodes / 3))


def mean_of_episodes(values: np.ndarray) -> np.ndarray:
    """Each trial's mean over its episodes that have a value: ``[trial, episode] -> [trial, 1]``."""
    present = np.isfinite(values)
    sums = np.where(present, values, 0.0).sum(axis=1, keepdims=True)
    return _ratio(sums, present.sum(axis=1, keepdims=True))


def summarise_metrics(
    arrays: Mapping[str, np.ndarray], start_step: np.ndarray, *, n_demos: int = 0, seed: int = 0
) -> dict[str, Any]:
    """Curves by in-context episode, first- and last-third means of every metric.

    Args:
        arrays: metric name -> float ``[trial, episode]``, NaN where there is no value.
        start_step: int ``[trial, episode]``, negative where the episode never started. Indices
            started by fewer than 90% of the trials are left out.
        n_demos: the first episodes that the oracle acted in. They stay in the curves and are left
            out of the thirds, which speak of the agent.
        seed: of the bootstrap.

    Returns:
        ``{"metrics": {name: curve}, "first_third": {name: interval}, "last_third": ...}``.
    """
    episodes = reached_episodes(start_step)
    own = episodes - n_demos
    first = slice(n_demos, n_demos + third(own))
    last = slice(episodes - third(own), episodes)
    summary: dict[str, Any] = {"metrics": {}, "first_third": {}, "last_third": {}}
    for name, values in arrays.items():
        rng = derived_rng(seed, "bootstrap", name)
        summary["metrics"][name] = bootstrap(values[:, :episodes], rng).to_json()
        if own > 0:
            for key, part in (("first_third", first), ("last_third", last)):
                means = mean_of_episodes(values[:, part])
                summary[key][name] = bootstrap(means, rng).scalar()
    return summary


def summarise_regret(
    returns: np.ndarray,
    best: np.ndarray,
    start_step: np.ndarray,
    *,
    n_demos: int = 0,
    seed: int = 0,
) -> dict[str, Any]:
    """Regret against the oracle: what each trial's episodes lost to the best possible return.

    ``returns``, ``best``: float ``[trial, episode]``. The total is summed over the agent's own
    episodes (those after the demonstrations) that at least 90% of the trials started.
    """
    episodes = reached_episodes(start_step)
    rng = derived_rng(seed, "bootstrap", "regret")
    lost = (np.asarray(best) - np.asarray(returns))[:, :episodes]
    curve = bootstrap(lost, rng)
    own = lost[:, n_demos:]
    total = np.where(np.isfinite(own), own, 0.0).sum(axis=1, keepdims=True)
    return {"total": bootstrap(total, rng).scalar(), "per_episode": curve.to_json()}


def number_or_none(value: Any) -> float | None:
    """A float that JSON can hold: ``None`` for NaN and infinities."""
    number = float(value)
    return number if np.isfinite(number) else None


def _ratio(numerator: np.ndarray, denominator: np.ndarray) -> np.ndarray:
    result = np.full(np.shape(numerator), np.nan)
    np.divide(numerator, denominator, out=result, where=np.asarray(denominator) > 0)
    return result
