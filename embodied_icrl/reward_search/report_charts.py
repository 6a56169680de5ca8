"""The report's charts as SVG. Their colours are classes of the style sheet: light or dark."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from embodied_icrl.reward_search.records import BASELINES, INIT, Candidate
from embodied_icrl.reward_search.report_data import Result
from embodied_icrl.reward_search.report_html import Markup, element, interval, number

MAX_POINTS = 200  # of one curve
TOO_LARGE = 1e100  # for a drawing; NaN is not below it either


@dataclass(frozen=True)
class Axis:
    """From values to pixels, linearly; `first` pixel is where `low` lies."""

    low: float
    high: float
    first: float
    last: float

    def __call__(self, value: float) -> float:
        return self.first + (value - self.low) / (self.high - self.low) * (self.last - self.first)

    def ticks(self, wanted: int = 4) -> list[float]:
        """Round values inside the axis, about as many as wanted."""
        rough = (self.high - self.low) / max(wanted, 1)
        power = 10.0 ** math.floor(math.log10(rough))
        step = min((m * power for m in (1, 2, 5, 10)), key=lambda size: abs(size - rough))
        start = math.ceil(self.low / step - 1e-9)
        stop = math.floor(self.high / step + 1e-9)
        return [index * step for index in range(start, stop + 1)]


def axis(values: Sequence[float], first: float, last: float, margin: float = 0.06) -> Axis:
    """An axis that holds all values, with a margin as a share of them; never of length 0."""
    low = max(min(values, default=0.0), -TOO_LARGE)
    high = min(max(values, default=1.0), TOO_LARGE)
    least = 1e-9 * max(1.0, abs(low), abs(high))
    room = margin * (high - low) if high - low > least else 0.05 * abs(high) or 1.0
    return Axis(low - room, high + room, first, last)


def forest(rows: Sequence[tuple[str, str, Result]]) -> Markup:
    """Means with intervals below one another, on one axis.

    Args:
        rows: label, colour class and result; none that failed.
    """
    width, height = 320, 22
    values = [v for *_, r in rows for v in (r.mean, r.low, r.high) if v is not None]
    across = axis([*values, 0.0] if min(values) > 0 else values, 8, width - 8)
    ticks = across.ticks()
    grid = [
        element("line", x1=across(tick), x2=across(tick), y1=0, y2=height, class_="grid")
        for tick in ticks
    ]
    parts: list[Markup] = []
    for label, kind, result in rows:
        assert result.mean is not None
        mark = _whisker(across, result.mean, result.low, result.high, height / 2, kind, 6)
        value = interval(result.mean, result.low, result.high)
        parts += [
            element("dt", label),
            element("dd", value, class_="value"),
            element("dd", _svg(width, height, "", [*grid, mark], "row"), class_="mark"),
        ]
    names = [
        element("text", _tick(tick), x=across(tick), y=12, class_="tick middle") for tick in ticks
    ]
    parts.append(element("dd", _svg(width, 16, "", names, "row"), class_="mark"))
    return element("dl", *parts, class_="forest")


def interval_glyph(candidate: Candidate, scale: tuple[float, float]) -> Markup:
    """The interval of one row of the leaderboard, on a scale that all rows share."""
    across = Axis(*scale, 4.0, 136.0)
    assert candidate.fitness is not None
    kind = candidate.id if candidate.id in BASELINES else "own"
    mark = _whisker(across, candidate.fitness, candidate.low, candidate.high, 8.0, kind, 4)
    base = element("line", x1=4, x2=136, y1=8, y2=8, class_="grid")
    return _svg(140, 16, "", [base, mark], "glyph")


def iterations_chart(candidates: Sequence[Candidate], best: str | None) -> Markup:
    """Every candidate's fitness against its iteration, and the best so far."""
    width, height, left, right, top, bottom = 760, 320, 62, 118, 14, 58
    measured = [c for c in candidates if c.fitness is not None and c.iteration > 0]
    references = [c for c in candidates if c.id in (*BASELINES, INIT) and c.fitness is not None]
    last = max((c.iteration for c in candidates), default=1)
    values = [c.fitness for c in (*measured, *references) if c.fitness is not None]
    up = axis(values, height - bottom, top)
    across = Axis(0.5, max(last, 1) + 0.5, left, width - right)
    parts: list[Markup] = []
    for tick in up.ticks(5):
        y = up(tick)
        parts += [
            element("line", x1=left, x2=width - right, y1=y, y2=y, class_="grid"),
            element("text", _tick(tick), x=left - 8, y=y + 4, class_="tick end"),
        ]
    parts += _references(references, up, left, width - right)
    parts += _best_so_far(measured, last, across, up)
    for iteration in range(1, last + 1):
        group = [c for c in candidates if c.iteration == iteration]
        lost = sum(c.status in ("refused", "failed") for c in group)
        note = f"{lost} of {len(group)} failed" if lost else ""
        x = across(iteration)
        parts += [
            element("text", str(iteration), x=x, y=height - bottom + 18, class_="tick middle"),
            element("text", note, x=x, y=height - bottom + 34, class_="tick middle faint"),
        ]
        some = [c for c in measured if c.iteration == iteration]
        for index, candidate in enumerate(some):
            spread = 0.0 if len(some) == 1 else 0.56 * index / (len(some) - 1) - 0.28
            parts.append(_dot(candidate, across(iteration + spread), up, candidate.id == best))
    middle = (left + width - right) / 2
    parts.append(element("text", "iteration", x=middle, y=height - 6, class_="tick middle"))
    text = f"Fitness of {len(measured)} candidates over {last} iterations"
    return _svg(width, height, text, parts, "chart")


def curve(name: str, steps: Sequence[float], values: Sequence[float], kind: str = "own") -> Markup:
    """One value along training, small; with its first, last, least and greatest value in words."""
    pairs = [(s, v) for s, v in zip(steps, values) if abs(s) < TOO_LARGE > abs(v)]
    if not pairs:
        return element("figure", element("figcaption", f"{name}: no value that can be drawn"))
    if len(pairs) > MAX_POINTS:
        chosen = np.linspace(0, len(pairs) - 1, MAX_POINTS).astype(int).tolist()
        pairs = [pairs[index] for index in chosen]
    steps, values = [s for s, _ in pairs], [v for _, v in pairs]
    width, height = 240, 96
    across, up = axis(steps, 6, width - 6, 0.0), axis(values, height - 8, 8)
    places = [(across(s), up(v)) for s, v in pairs]
    parts: list[Markup] = []
    if up.low < 0 < up.high:
        y = up(0.0)
        parts.append(element("line", x1=0, x2=width, y1=y, y2=y, class_="grid"))
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    parts.append(element("polyline", points=line, class_=f"line {kind}"))
    if len(places) <= 30:
        parts += [
            element("circle", _title(f"{number(v)} at step {s:,.0f}"),
                    cx=x, cy=y, r=2.5, class_=f"dot {kind}")
            for (s, v), (x, y) in zip(pairs, places)
        ]  # fmt: skip
    words = f"{number(values[0])} → {number(values[-1])}"
    range_ = f"min {number(min(values))}, max {number(max(values))}"
    caption = element(
        "figcaption",
        element("b", name),
        element("span", words),
        element("span", range_, class_="faint"),
    )
    label = f"{name} along training: {words}, {range_}"
    return element("figure", caption, _svg(width, height, label, parts, "curve"), class_="small")


def curves(values: Mapping[str, Sequence[float]]) -> Markup:
    """Fitness, total and every component of a candidate along training, as small multiples."""
    longest = max((len(v) for v in values.values()), default=0)
    steps = values.get("step") or tuple(float(i + 1) for i in range(longest))
    names = [name for name in ("fitness", "total") if name in values]
    names += [name for name in values if name not in ("step", "fitness", "total")]
    kinds = {"fitness": "human", "total": "total"}
    shown = [curve(name, steps, values[name], kinds.get(name, "own")) for name in names]
    return element("div", *shown, class_="multiples")


def _whisker(
    across: Axis, mean: float, low: float | None, high: float | None, y: float, kind: str, r: float
) -> Markup:
    parts = []
    if low is not None and high is not None:
        parts.append(
            element("line", x1=across(low), x2=across(high), y1=y, y2=y, class_=f"bar {kind}")
        )
    parts.append(element("circle", cx=across(mean), cy=y, r=r, class_=f"dot {kind}"))
    return element("g", *parts)


def _references(
    references: Sequence[Candidate], up: Axis, left: float, right: float
) -> list[Markup]:
    """Baselines as dashed lines, with labels that keep clear of each other."""
    parts: list[Markup] = []
    lowest = -math.inf
    for candidate in sorted(references, key=lambda c: -(c.fitness or 0.0)):
        assert candidate.fitness is not None
        y = up(candidate.fitness)
        lowest = max(y + 4, lowest + 16)
        kind = candidate.id if candidate.id in BASELINES else "faint"
        label = f"{candidate.id} {number(candidate.fitness)}"
        parts += [
            element("line", x1=left, x2=right, y1=y, y2=y, class_=f"reference {kind}"),
            element("text", label, x=right + 8, y=lowest, class_=f"tick {kind}"),
        ]
    return parts


def _best_so_far(measured: Sequence[Candidate], last: int, across: Axis, up: Axis) -> list[Markup]:
    points: list[str] = []
    best = -math.inf
    for iteration in range(1, last + 1):
        fitness = [
            c.fitness for c in measured if c.iteration == iteration and c.fitness is not None
        ]
        best = max([best, *fitness])
        if math.isfinite(best):
            y = up(best)
            points += [f"{across(iteration + side):.1f},{y:.1f}" for side in (-0.5, 0.5)]
    return [element("polyline", points=" ".join(points), class_="line own soft")] if points else []


def _dot(candidate: Candidate, x: float, up: Axis, best: bool) -> Markup:
    assert candidate.fitness is not None
    parts = [_title(f"{candidate.id}: "
                    f"{interval(candidate.fitness, candidate.low, candidate.high)}, "
                    f"{candidate.status}")]  # fmt: skip
    if candidate.low is not None and candidate.high is not None:
        ends = {"y1": up(candidate.low), "y2": up(candidate.high)}
        parts.append(element("line", x1=x, x2=x, class_="bar thin own", **ends))
    kind = "best" if best else "hollow" if candidate.status == "stopped" else "own"
    parts.append(
        element("circle", cx=x, cy=up(candidate.fitness), r=7 if best else 4, class_=f"dot {kind}")
    )
    if best:
        y = up(candidate.fitness) - 12
        parts.append(element("text", candidate.id, x=x, y=max(y, 11), class_="tick middle strong"))
    return element("g", *parts)


def _title(text: str) -> Markup:
    return element("title", text)


def _tick(value: float) -> str:
    return f"{value:g}".replace("-", "\N{MINUS SIGN}") if abs(value) > 1e-12 else "0"


def _svg(width: int, height: int, label: str, parts: Sequence[Markup], kind: str) -> Markup:
    """A drawing that scales; one without a label is decoration, its numbers stand beside it."""
    return element(
        "svg",
        *parts,
        viewBox=f"0 0 {width} {height}",
        width=width,
        height=height,
        class_=kind,
        role="img" if label else None,
        aria_label=label or None,
        aria_hidden=None if label else "true",
    )
