"""Layer 2: the function is tried on recorded states before any training. Runs in the sandbox only.

Imports NumPy and nothing dear: the confined process must start quickly.
"""

from __future__ import annotations

import math
import random
import signal
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

# NumPy loads these late, when the confined process may no longer read files.
import numpy.linalg
import numpy.ma
import numpy.random
from numpy.typing import NDArray

from embodied_icrl.manipulation.fields import Field, StateLayout
from embodied_icrl.reward_search.facade import words
from embodied_icrl.reward_search.findings import Finding, printable
from embodied_icrl.reward_search.loading import FILENAME, load_reward

LOAD_LIMIT_S = 5.0
CALL_LIMIT_S = 0.5  # one call, of processor time: a busy machine must not fail honest code
MEDIAN_LIMIT_S = 2e-3  # a call costs tens of microseconds
MAX_COMPONENTS = 32
MAX_NAME = 40
NAME_CHARACTERS = frozenset("_-. ") | frozenset(
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
)
NUMBERS = words("int float bool")

Outputs = tuple[float, dict[str, float]]


class _TooLong(BaseException):
    """Raised by the timer; not an Exception, so that nothing that handles those swallows it."""


class _Refused(Exception):
    def __init__(self, finding: Finding) -> None:
        super().__init__(finding.message)
        self.finding = finding


def run_unit_checks(payload: Mapping[str, Any]) -> dict[str, Any]:
    """All unit checks on one source.

    Args:
        payload: `source`; `fields`, a list of [name, shape]; `episodes`, a mapping from "random"
            and "success" to episodes of flat states [episode, step, size]; `components`, "sum" or
            "free".

    Returns:
        `findings`, as JSON.
    """
    layout = StateLayout([Field(name, tuple(shape), "", "") for name, shape in payload["fields"]])
    episodes = {
        kind: [np.asarray(episode, np.float64) for episode in group]
        for kind, group in payload["episodes"].items()
    }
    try:
        findings = list(_checks(payload["source"], layout, episodes, payload["components"]))
    except _Refused as refused:
        findings = [refused.finding]
    return {"findings": [vars(finding) for finding in findings]}


def _checks(
    source: str,
    layout: StateLayout,
    episodes: Mapping[str, Sequence[NDArray[np.float64]]],
    components: str,
) -> Iterator[Finding]:
    generators = _generator_states()
    function = _timed(lambda: load_reward(source), LOAD_LIMIT_S, "load")
    flat = [state for group in episodes.values() for episode in group for state in episode]
    first, seconds = _outputs(function, layout, flat)
    _check_time(seconds)
    _check_names(first)
    backwards, _ = _outputs(function, layout, flat[::-1])
    differing = [a for a, b in zip(first, backwards[::-1]) if repr(a) != repr(b)]
    if differing:
        message = "the same state gave two results: something is kept between calls, or random"
        raise _Refused(Finding("deterministic", 0, message))
    if _generator_states() != generators:
        raise _Refused(Finding("state", 0, "global random generators were used or reseeded"))
    yield from _component_findings(first, components)
    yield from _value_findings(first, episodes)


def _outputs(
    function: Callable[[Any], Any], layout: StateLayout, flat: Sequence[NDArray[np.float64]]
) -> tuple[list[Outputs], list[float]]:
    """Results and seconds of one call per state; states that were written to are refused."""
    results, seconds = [], []
    for vector in flat:
        record = layout.record(vector)
        start = time.process_time()
        value = _timed(partial(function, record), CALL_LIMIT_S, "call")
        seconds.append(time.process_time() - start)
        held = {field.name: getattr(record, field.name) for field in layout.fields}
        if layout.flatten(held).tobytes() != vector.tobytes():
            raise _Refused(Finding("inputs", 0, "the state was changed by the reward"))
        results.append(_parsed(value))
    return results, seconds


def _timed(work: Callable[[], Any], limit_s: float, rule: str) -> Any:
    """The result of untrusted work, or a refusal that names its line."""

    def stop(signum: int, frame: Any) -> None:
        raise _TooLong

    signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, limit_s)
    try:
        return work()
    except _TooLong:
        raise _Refused(Finding("time", 0, f"{rule} took more than {limit_s} s")) from None
    except Exception as error:
        text = f"{type(error).__name__}: {printable(str(error), 160)}"
        raise _Refused(Finding(rule, _line_of(error), text)) from None
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _line_of(error: BaseException) -> int:
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno or 0 for frame in frames if frame.filename == FILENAME]
    return lines[-1] if lines else 0


def _parsed(value: Any) -> Outputs:
    """Total and components as plain numbers."""
    if not isinstance(value, tuple) or len(value) != 2:
        message = f"return (total, components), not {type(value).__name__}"
        raise _Refused(Finding("result", 0, message))
    total, components = value
    if type(components) is not dict:
        message = f"components are a dict, not {type(components).__name__}"
        raise _Refused(Finding("result", 0, message))
    if len(components) > MAX_COMPONENTS:
        raise _Refused(Finding("result", 0, f"more than {MAX_COMPONENTS} components"))
    parsed = {name: _number(part, f"component {name!r}") for name, part in components.items()}
    return _number(total, "the total"), parsed


def _number(value: Any, what: str) -> float:
    is_number = type(value).__name__ in NUMBERS or isinstance(value, np.generic)
    is_scalar_array = isinstance(value, np.ndarray) and value.shape == ()
    if not (is_number or is_scalar_array) or np.asarray(value).dtype.kind not in "biuf":
        shape = f" of shape {value.shape}" if isinstance(value, np.ndarray) else ""
        message = f"{printable(what, 60)} is a {type(value).__name__}{shape}, not a number"
        raise _Refused(Finding("result", 0, message))
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise _Refused(Finding("finite", 0, f"{printable(what, 60)} is {number}"))
    return number


def _check_time(seconds: Sequence[float]) -> None:
    median = float(np.median(seconds))
    if median > MEDIAN_LIMIT_S:
        message = f"a call takes {1e3 * median:.1f} ms; at most {1e3 * MEDIAN_LIMIT_S:g} ms"
        raise _Refused(Finding("time", 0, message))


def _check_names(outputs: Sequence[Outputs]) -> None:
    names = list(outputs[0][1])
    if any(set(parts) != set(names) for _, parts in outputs):
        message = "the components have other names in other states; return all of them always"
        raise _Refused(Finding("components", 0, message))
    for name in names:
        plain = isinstance(name, str) and 0 < len(name) <= MAX_NAME
        if not plain or not NAME_CHARACTERS.issuperset(name):
            message = f"component {printable(str(name), 60)!r}: letters, digits, _ - . only"
            raise _Refused(Finding("components", 0, message))


def _component_findings(outputs: Sequence[Outputs], components: str) -> Iterator[Finding]:
    for total, parts in outputs:
        if abs(sum(parts.values()) - total) > 1e-6 * max(1.0, abs(total)):
            message = (
                f"the components add up to {sum(parts.values()):.4g}, the total is {total:.4g}"
            )
            yield Finding("sum", 0, message, "error" if components == "sum" else "warning")
            return


def _value_findings(
    outputs: Sequence[Outputs], episodes: Mapping[str, Sequence[NDArray[np.float64]]]
) -> Iterator[Finding]:
    totals = np.array([total for total, _ in outputs])
    if np.ptp(totals) == 0.0:
        yield Finding("flat", 0, f"the reward is {totals[0]:.4g} in every state", "warning")
        return
    means, at = {}, 0
    for kind, group in episodes.items():
        count = sum(len(episode) for episode in group)
        means[kind] = float(np.mean(totals[at : at + count])) if count else None
        at += count
    success, failure = means.get("success"), means.get("random")
    if success is not None and failure is not None and success <= failure:
        message = f"successful episodes score {success:.4g} per step, random ones {failure:.4g}"
        yield Finding("order", 0, message, "warning")


def _generator_states() -> tuple[Any, Any]:
    legacy: Any = np.random.get_state()
    return random.getstate(), (legacy[1].tobytes(), *legacy[2:])
