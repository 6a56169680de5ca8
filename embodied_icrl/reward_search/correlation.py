"""How far two rewards agree: their correlation on the same recorded states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

# NumPy loads these late, when the confined process may no longer read files.
import numpy.linalg
import numpy.ma
from numpy.typing import ArrayLike, NDArray

from embodied_icrl.manipulation.fields import Field, StateLayout
from embodied_icrl.reward_search.loading import load_reward
from embodied_icrl.reward_search.report_data import Correlation
from embodied_icrl.reward_search.sandbox import Layers, Limits, run_sandboxed
from embodied_icrl.reward_search.static_check import check_source

MAX_STATES = 4000  # enough for three digits; more would cost the child minutes


def correlate(
    source: str,
    other: str,
    fields: Sequence[Field],
    states: ArrayLike,
    origin: str,
    *,
    limits: Limits | None = None,
    layers: Layers | None = None,
) -> Correlation | None:
    """Correlation of two rewards' totals, evaluated in the sandbox.

    Args:
        source, other: of the two rewards; neither runs in this process.
        fields: of the task.
        states: flat, [step, size]; of more than 4000, evenly spaced ones are taken.
        origin: which policies visited them, for the reader.

    Returns:
        None where one of the rewards could not be evaluated on all states.

    Raises:
        SandboxError: the sandbox could not be set up.
    """
    flat = np.asarray(states, np.float64)
    if len(flat) > MAX_STATES:
        flat = flat[np.linspace(0, len(flat) - 1, MAX_STATES).astype(int)]
    names = [field.name for field in fields]
    if len(flat) < 2 or any(check_source(text, names) for text in (source, other)):
        return None
    totals = []
    for text in (source, other):
        payload = {
            "source": text,
            "fields": [[field.name, list(field.shape)] for field in fields],
            "states": flat.tolist(),
        }
        function = f"{__name__}:reward_totals"
        outcome = run_sandboxed(function, payload, limits=limits, layers=layers)
        values = _numbers(outcome.result, len(flat))
        if values is None:
            return None
        totals.append(values)
    ranks = [_ranks(values) for values in totals]
    return Correlation(_pearson(*totals), _pearson(*ranks), len(flat), origin)


def reward_totals(payload: Mapping[str, Any]) -> list[float]:
    """The total of a reward in every state. Runs in the sandbox only.

    Args:
        payload: `source`; `fields`, a list of [name, shape]; `states`, [step, size].
    """
    layout = StateLayout([Field(name, tuple(shape), "", "") for name, shape in payload["fields"]])
    function = load_reward(payload["source"])
    states = np.asarray(payload["states"], np.float64)
    return [float(function(layout.record(state))[0]) for state in states]


def _numbers(result: Any, count: int) -> NDArray[np.float64] | None:
    """What a child returned, if it is `count` finite numbers."""
    if not isinstance(result, list) or len(result) != count:
        return None
    if any(type(value) not in (int, float) for value in result):
        return None
    try:
        values = np.array(result, np.float64)
    except OverflowError:
        return None
    return values if np.isfinite(values).all() else None


def _ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Ranks from 1; equal values share their mean rank."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    middle: NDArray[np.float64] = (last - (counts - 1) / 2)[inverse]
    return middle


def _pearson(a: NDArray[np.float64], b: NDArray[np.float64]) -> float | None:
    """None where one of them is constant, or too large to square."""
    a, b = a - a.mean(), b - b.mean()
    spread = float(np.linalg.norm(a) * np.linalg.norm(b))
    if not np.isfinite(spread) or spread <= 1e-12 * max(1.0, float(abs(a).max() * abs(b).max())):
        return None
    return float(np.clip(a @ b / spread, -1.0, 1.0))
