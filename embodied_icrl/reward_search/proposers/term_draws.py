"""New recipes: what shows the way to the goal, what brings a hand to it, and small costs.

The forms are those that people write for manipulation: distances with a sharp peak at the goal,
bonuses, reach before move, a place behind the thing to push, gates that open on contact.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from embodied_icrl.manipulation.fields import Field
from embodied_icrl.reward_search.proposers.term_code import Gate, Term, number
from embodied_icrl.reward_search.proposers.term_roles import Roles, extent

MAX_APPROACHES = 2  # per recipe; a hand with many fingers would drown the goal
MAX_MAIN = 3  # goals or amounts per recipe
_POSITIVE = ("open", "lift", "height", "progress", "opened", "raised", "depth", "turned")

Rng = np.random.Generator
MainForm = Callable[["Terms"], list[Term]]


class Terms:
    """Draws terms for the roles of a task; all numbers come from `rng`."""

    def __init__(self, roles: Roles, rng: Rng) -> None:
        self.roles = roles
        self.rng = rng

    def recipe(self, index: int) -> tuple[Term, ...]:
        """The terms of structure number `index`; neighbouring numbers differ in every part."""
        main = _MAIN_FORMS[index % len(_MAIN_FORMS)]
        approaches = self._approach_forms()
        approach = approaches[(index + index // len(_MAIN_FORMS)) % len(approaches)]
        terms = main(self) if self.roles.pairs or self.roles.errors else self.amounts(index)
        contact = approach()
        if approach == self.gated:
            terms = self._gate_some(terms)
        return (*terms, *contact, *self._costs(index))

    def any_term(self) -> Term:
        """One more term of any kind that the task's fields allow."""
        draws: list[Callable[[], list[Term]]] = [*self._approach_forms()[:-1]]
        if self.roles.pairs or self.roles.errors:
            draws += [lambda form=form: form(self) for form in _MAIN_FORMS]  # type: ignore[misc]
        else:
            draws.append(lambda: self.amounts(int(self.rng.integers(100))))
        draws += [self.effort, self.calm]
        for choice in self.rng.permutation(len(draws)).tolist():
            terms: list[Term] = draws[choice]()
            if terms:
                return terms[int(self.rng.integers(len(terms)))]
        return self.amounts(0)[0]

    # The goal.

    def distance(self) -> list[Term]:
        """Less distance to every goal."""
        lines = [
            Term("distance", _names(pair), self._weight(pair[0], 0.5, 2.0))
            for pair in self.roles.pairs[:MAX_MAIN]
        ]
        sizes = [
            Term("size", (field.name,), self._weight(field, 0.5, 2.0))
            for field in self.roles.errors[:MAX_MAIN]
        ]
        return lines + sizes

    def peak(self, low: float = 0.1, high: float = 0.4, kind: str = "close") -> list[Term]:
        """A peak at every goal, between `low` and `high` usual distances wide."""
        peaks = [
            Term(kind, _names(pair), self._between(0.5, 2.0), self._scale(pair[0], low, high))
            for pair in self.roles.pairs[:MAX_MAIN]
        ]
        zeros = [
            Term("near_zero", (f.name,), self._between(0.5, 2.0), self._scale(f, low, high))
            for f in self.roles.errors[:MAX_MAIN]
        ]
        return peaks + zeros

    def bonus(self) -> list[Term]:
        """A step at every goal, as success pays."""
        return [
            Term("reached", _names(p), self._between(1.0, 3.0), self._scale(p[0], 0.1, 0.25))
            for p in self.roles.pairs[:MAX_MAIN]
        ]

    def progress(self) -> list[Term]:
        """Speed towards every goal, where the speed of a thing is known."""
        speeds = {place.name: speed for place, speed in self.roles.velocities}
        return [
            Term(
                "progress",
                (*_names((place, goal)), speeds[place.name].name),
                self._weight(place, 0.1, 0.5),
                _rounded(0.03 * extent(place.unit)),
            )
            for place, goal in self.roles.pairs[:MAX_MAIN]
            if place.name in speeds
        ]

    def amounts(self, index: int) -> list[Term]:
        """Without a goal among the fields: more or less of what there is, other things for each
        `index`."""
        fields = list(self.roles.amounts)
        if len(fields) > MAX_MAIN:
            chosen = self.rng.choice(len(fields), MAX_MAIN, replace=False).tolist()
            fields = [fields[position] for position in sorted(chosen)]
        mask = 1 + index % (2 ** len(fields) - 1)
        terms = []
        for field in (f for position, f in enumerate(fields) if mask >> position & 1):
            wanted = any(word in f"{field.name} {field.meaning}" for word in _POSITIVE)
            sign = 1.0 if self.rng.random() < (0.8 if wanted else 0.5) else -1.0
            terms.append(Term("amount", (field.name,), sign * self._weight(field, 0.5, 2.0)))
        return terms

    # The way to it.

    def _approach_forms(self) -> list[Callable[[], list[Term]]]:
        forms = [self.reach, self.reach_peak, self.gated, self.behind, self.nothing]
        if not self.roles.approaches:
            return [self.nothing]
        return forms if self._triples() else [f for f in forms if f != self.behind]

    def nothing(self) -> list[Term]:
        """No help on the way."""
        return []

    def reach(self) -> list[Term]:
        """Less distance between a hand and what it should touch."""
        return [
            Term("distance", _names(pair), self._weight(pair[0], 0.15, 0.6))
            for pair in self._chosen_approaches()
        ]

    def reach_peak(self) -> list[Term]:
        """A broad peak around what the hand should touch."""
        return [
            Term("within", _names(p), self._between(0.2, 0.8), self._scale(p[0], 0.3, 1.0))
            for p in self._chosen_approaches()
        ]

    def behind(self) -> list[Term]:
        """Less distance to the place from which a push would move the thing to its goal."""
        return [
            Term("behind", triple, self._weight(hand, 0.15, 0.6), self._scale(hand, 0.2, 0.4))
            for hand, triple in self._triples()[:1]
        ]

    def gated(self) -> list[Term]:
        """Reaching, which opens the gates of `_gate_some`, and closing a hand around the thing."""
        reach = self.reach()
        grips = [
            Term("size", (f.name,), self._weight(f, 0.1, 0.3), 0.0, self._gate())
            for f in self.roles.grips[:1]
        ]
        return reach + grips

    def _chosen_approaches(self) -> list[tuple[Field, Field]]:
        """All of a few; of more, two of them, drawn."""
        approaches = self.roles.approaches
        if len(approaches) <= MAX_APPROACHES:
            return list(approaches)
        chosen = self.rng.choice(len(approaches), MAX_APPROACHES, replace=False)
        return [approaches[index] for index in sorted(chosen.tolist())]

    def _triples(self) -> list[tuple[Field, tuple[str, ...]]]:
        goals = {place.name: goal for place, goal in self.roles.pairs}
        return [
            (hand, (hand.name, thing.name, goals[thing.name].name))
            for hand, thing in self.roles.approaches
            if thing.name in goals and hand.shape == thing.shape
        ]

    def _gate_some(self, terms: Sequence[Term]) -> list[Term]:
        """Positive terms count only on contact; a gate on a cost would reward letting go."""
        return [
            Term(t.kind, t.fields, t.weight, t.scale, self._gate())
            if t.kind in ("close", "within")
            else t
            for t in terms
        ]

    def _gate(self) -> Gate:
        hand, thing = self.roles.approaches[int(self.rng.integers(len(self.roles.approaches)))]
        return Gate((hand.name, thing.name), self._scale(hand, 0.2, 0.5))

    # Small costs.

    def effort(self) -> list[Term]:
        """Small commands."""
        return [Term("effort", (f.name,), self._between(0.003, 0.03)) for f in self.roles.actions]

    def calm(self) -> list[Term]:
        """Slow things."""
        chosen = self.roles.velocities
        if not chosen:
            return []
        place, speed = chosen[self.rng.integers(len(chosen))]
        return [Term("calm", (speed.name,), self._weight(place, 0.005, 0.03))]

    def _costs(self, index: int) -> list[Term]:
        forms = [self.nothing]
        forms += [self.effort] if self.roles.actions else []
        forms += [self.calm] if self.roles.velocities else []
        return forms[(index + index // len(_MAIN_FORMS)) % len(forms)]()

    # Numbers.

    def _between(self, low: float, high: float) -> float:
        """Equally likely in every octave between the two."""
        return _rounded(float(np.exp(self.rng.uniform(np.log(low), np.log(high)))))

    def _weight(self, field: Field, low: float, high: float) -> float:
        """A weight that makes a usual distance worth `low` to `high`."""
        return _rounded(self._between(low, high) / extent(field.unit))

    def _scale(self, field: Field, low: float, high: float) -> float:
        return _rounded(self._between(low, high) * extent(field.unit))


def _names(fields: Sequence[Field]) -> tuple[str, ...]:
    return tuple(field.name for field in fields)


def _rounded(value: float) -> float:
    return float(number(value))


_MAIN_FORMS: tuple[MainForm, ...] = (
    lambda draw: draw.distance() + draw.peak(),
    lambda draw: draw.distance() + draw.bonus(),
    lambda draw: draw.peak(0.5, 1.0) + draw.peak(0.1, 0.25),
    lambda draw: draw.distance() + draw.peak() + draw.bonus(),
    lambda draw: draw.peak(0.3, 1.0, "within") + draw.bonus(),
    lambda draw: draw.distance() + (draw.progress() or draw.peak(0.5, 1.0)) + draw.peak(),
)
