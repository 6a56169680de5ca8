"""What the training of a reward tells about its components: numbers, and advice of a general kind.

The method is Eureka's reward reflection: statistics of every component along training, so that the
next reward can be changed where it needs it. The text and the rules here are our own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from embodied_icrl.reward_search.findings import printable
from embodied_icrl.reward_search.records import CURVES

VALUES = 10  # shown along training
FLAT = 0.05  # a range below this share of the size is flat
DOMINATING = 0.8  # a share of all magnitudes above this dominates
NO_SUCCESS = 0.02  # mean fitness at the end below this is none
HUGE = 1e100  # larger values are cut to it: their sums and squares would overflow
MAX_SHOWN = 32  # components

Mark = Literal["flat", "dominating", "fine"]


@dataclass(frozen=True)
class Curve:
    """One number along training: up to ten values, and what is left of all of them."""

    values: tuple[float, ...]
    low: float
    mean: float
    high: float


@dataclass(frozen=True)
class ComponentReview:
    """What training says about a component.

    Attributes:
        name: as the reward calls it; untrusted.
        curve: its mean per environment step.
        share: of the magnitudes of all components, in [0, 1].
        correlation: with fitness along training; None where one of the two is constant.
        mark: whether it is flat, dominating or neither.
    """

    name: str
    curve: Curve
    share: float
    correlation: float | None
    mark: Mark


@dataclass(frozen=True)
class Reflection:
    """All that is said about one training.

    Attributes:
        fitness, total: None where nothing was measured.
        components: by share, largest first.
        succeeds: whether fitness at the end is above nothing.
        advice: sentences of a general kind.
    """

    fitness: Curve | None
    total: Curve | None
    components: tuple[ComponentReview, ...]
    succeeds: bool
    advice: tuple[str, ...]

    @property
    def text(self) -> str:
        """The numbers, three digits each, and the advice, for a writer of rewards."""
        lines = []
        for title, curve in (("fitness", self.fitness), ("total reward", self.total)):
            if curve is not None:
                lines.append(f"{title}: {_curve_text(curve)}")
        for review in self.components:
            relation = f"share of magnitude {number(review.share)}"
            if review.correlation is not None:
                relation += f", correlation with fitness {number(review.correlation)}"
            name = printable(review.name, 40)
            lines.append(f"component {name}: {_curve_text(review.curve)}; {relation}")
        return "\n".join([*lines, *(f"Advice: {sentence}" for sentence in self.advice)])


def reflect(curves: Mapping[str, Sequence[float]]) -> Reflection:
    """Review a training.

    Args:
        curves: for "fitness", "total" and every component, its values along training; a "step"
            among them is left out, and so is what holds no finite numbers.
    """
    usable = {
        name: tuple(min(max(value, -HUGE), HUGE) for value in values)
        for name, values in curves.items()
        if values and all(map(math.isfinite, values))
    }
    fitness = usable.get("fitness", ())
    names = [name for name in usable if name not in CURVES][:MAX_SHOWN]
    sizes = {name: float(np.mean(np.abs(usable[name]))) for name in names}
    total_size = sum(sizes.values()) or 1.0
    reviews = [
        _review(name, usable[name], sizes[name] / total_size, fitness, len(names) > 1)
        for name in names
    ]
    reviews.sort(key=lambda review: (-review.share, review.name))
    end = fitness[-max(1, len(fitness) // 3) :]
    succeeds = bool(end) and float(np.mean(end)) > NO_SUCCESS
    return Reflection(
        _curve(fitness) if fitness else None,
        _curve(usable["total"]) if "total" in usable else None,
        tuple(reviews),
        succeeds,
        _advice(reviews, succeeds, bool(fitness)),
    )


def _review(
    name: str, values: Sequence[float], share: float, fitness: Sequence[float], has_others: bool
) -> ComponentReview:
    curve = _curve(values)
    size = max(abs(curve.low), abs(curve.high))
    correlation = _correlation(values, fitness)
    mark: Mark = "fine"
    if curve.high - curve.low <= FLAT * size:
        mark = "flat"
    elif has_others and share > DOMINATING:
        mark = "dominating"
    return ComponentReview(name, curve, share, correlation, mark)


def _curve(values: Sequence[float]) -> Curve:
    chosen = np.linspace(0, len(values) - 1, min(VALUES, len(values))).round().astype(int)
    shown = tuple(float(values[index]) for index in chosen)
    return Curve(shown, float(min(values)), float(np.mean(values)), float(max(values)))


def _correlation(values: Sequence[float], fitness: Sequence[float]) -> float | None:
    if len(values) != len(fitness) or len(values) < 3:
        return None
    first, second = np.asarray(values) - np.mean(values), np.asarray(fitness) - np.mean(fitness)
    scale = float(np.linalg.norm(first) * np.linalg.norm(second))
    if scale <= 1e-12 * max(1.0, float(np.max(np.abs(values)))):
        return None
    return float(np.clip(first @ second / scale, -1.0, 1.0))


def _advice(
    reviews: Sequence[ComponentReview], succeeds: bool, is_measured: bool
) -> tuple[str, ...]:
    found = []
    for review in reviews:
        name = printable(review.name, 40)
        if review.mark == "flat" and review.curve.high == review.curve.low == 0.0:
            found.append(
                f"{name} was never anything but zero: widen its condition or temperature so that "
                "a beginner meets it, or drop it."
            )
        elif review.mark == "flat":
            found.append(
                f"{name} hardly changed, so nothing was learned from it: change its scale or "
                "temperature, write it another way, or drop it."
            )
        elif review.mark == "dominating":
            found.append(f"{name} outweighs all the others: give it a smaller weight.")
    if is_measured and not succeeds:
        found.append(
            "Success stayed near zero: small changes won't do; write a reward that shows the way "
            "from the first contact to the goal."
        )
    return tuple(found)


def _curve_text(curve: Curve) -> str:
    values = ", ".join(number(value) for value in curve.values)
    return (
        f"[{values}], min {number(curve.low)}, mean {number(curve.mean)}, max {number(curve.high)}"
    )


def number(value: float) -> str:
    """Three significant digits: prompts must not depend on the last bits of a machine's floats."""
    return f"{value:.3g}" if abs(value) > 1e-9 else "0"
