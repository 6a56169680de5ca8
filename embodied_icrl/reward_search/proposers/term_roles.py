"""What the fields of a task may be to a reward: goals, what should get there, what moves it.

All from the declaration: names, shapes, units and meanings. A guess that is wrong costs candidates,
not correctness.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from embodied_icrl.manipulation.fields import Field
from embodied_icrl.reward_search.facade import words

_GOAL_NAMES = words("target goal desired")
_GOAL_MEANINGS = words("should desired goal")
_HANDS = words("""
    hand finger fingers fingertip fingertips gripper tip tips palm pusher wrist effector tool arm
    thumb
""")
_SURE_HANDS = _HANDS - {"tip", "tips", "arm", "tool"}  # many things have tips
_ERRORS = words("distance error offset difference gap")
_KINDS = words("position positions angle angles orientation pose point location")
_RATES = words("velocity velocities speed speeds rate")
_COMMON = words("""
    a an and at be by each from how in is it its lie of on or point that the their to up where x y z
    m rad centre center origin part parts target goal desired should position
""")
# How far apart things of a task usually are at first, by unit.
_EXTENTS = {"m": 0.3, "cm": 30.0, "mm": 300.0, "rad": 1.0, "deg": 60.0}


@dataclass(frozen=True)
class Roles:
    """What the fields are to a reward.

    Attributes:
        pairs: (what should get there, its goal), the most likely one per goal.
        approaches: (what moves, what it should touch), both positions in space.
        velocities: (a field, its rate of change).
        errors: fields that already are a distance or an error.
        grips: numbers that say how far a hand is open.
        amounts: what is left that can be made large or small.
        actions: the commands.
    """

    pairs: tuple[tuple[Field, Field], ...]
    approaches: tuple[tuple[Field, Field], ...]
    velocities: tuple[tuple[Field, Field], ...]
    errors: tuple[Field, ...]
    grips: tuple[Field, ...]
    amounts: tuple[Field, ...]
    actions: tuple[Field, ...]


def find_roles(fields: Sequence[Field]) -> Roles:
    """Sort the fields of a task into roles."""
    actions = [f for f in fields if "action" in _words(f.name)]
    speeds = [f for f in fields if "/s" in f.unit or "velocity" in _words(f.name)]
    rest = [f for f in fields if f not in actions and f not in speeds]
    errors = [f for f in rest if _is_error(f)]
    goals = [f for f in rest if f not in errors and _is_goal(f)]
    places = [f for f in rest if f not in errors and f not in goals]
    pairs = [pair for goal in goals for pair in _best_pair(goal, places)]
    moved = [field for field, _ in pairs]
    approaches = list(_approaches(places, moved))
    grips = [f for f in places if _is_grip(f)]
    used = [*moved, *grips, *(f for pair in approaches for f in pair)]
    return Roles(
        tuple(pairs),
        tuple(approaches),
        tuple((f, speed) for f in places for speed in speeds if _is_rate(speed, f)),
        tuple(errors),
        tuple(grips) if approaches else (),
        tuple(f for f in places if f not in used) or tuple(places) or tuple(rest) or tuple(fields),
        tuple(actions),
    )


def extent(unit: str) -> float:
    """A usual first distance in this unit."""
    return _EXTENTS.get(unit, 1.0)


def stem(name: str) -> str:
    """The thing that a field is about: `puck` of `puck_position`."""
    parts = [part for part in name.split("_") if part]
    kept = [part for part in parts if part not in _KINDS]
    return "_".join(kept or parts)


def _words(text: str) -> list[str]:
    found = re.findall(r"[a-z]+", text.lower().replace("_", " ").replace("'s", " "))
    return [word[:-1] if len(word) > 3 and word.endswith("s") else word for word in found]


def _said(field: Field) -> set[str]:
    return {*_words(field.name), *_words(field.meaning)}


def _is_grip(field: Field) -> bool:
    """How far a hand is open, as a number."""
    name = _words(field.name)
    return not field.shape and "opening" in name and bool(_SURE_HANDS & set(name))


def _is_error(field: Field) -> bool:
    left = re.search(r"\b(to|from) (the|its) (target|goal)\b", field.meaning)
    is_position = _GOAL_NAMES & set(_words(field.name))
    return bool(_ERRORS & set(_words(field.name)) or (left and not is_position))


def _is_goal(field: Field) -> bool:
    return bool(
        _GOAL_NAMES & set(_words(field.name)) or _GOAL_MEANINGS & set(_words(field.meaning))
    )


def _best_pair(goal: Field, places: Sequence[Field]) -> Iterable[tuple[Field, Field]]:
    """The place that the goal's name and meaning speak of; what is moved rather than what moves."""
    alike = [f for f in places if f.shape == goal.shape and f.unit == goal.unit]
    if not alike:
        return
    about = _said(goal) - _COMMON

    def likelihood(field: Field) -> tuple[int, bool]:
        shared = len(about & _said(field))
        return 2 * shared, not _HANDS & set(_words(field.name))

    yield max(alike, key=likelihood), goal


def _approaches(places: Sequence[Field], moved: Sequence[Field]) -> Iterable[tuple[Field, Field]]:
    """Points of a hand, and points of other things in the same space; moved things first."""
    points = [f for f in places if f.shape and f.unit == "m" and f.shape[-1] in (2, 3)]
    others = [f for f in points if f not in moved]
    hands = [f for f in others if _HANDS & set(_words(f.name))] or others
    hands.sort(key=lambda f: len(f.shape))  # one point before many
    seen: list[tuple[Field, Field]] = []
    for hand in hands:
        for other in points:
            one_is_single = min(len(hand.shape), len(other.shape)) == 1
            both_hands = other in hands and _SURE_HANDS & set(_words(other.name))
            fits = hand.shape[-1] == other.shape[-1] and one_is_single and not both_hands
            if other is not hand and fits and (other, hand) not in seen:
                seen.append((hand, other))
    return sorted(seen, key=lambda pair: pair[1] not in moved)


def _is_rate(speed: Field, field: Field) -> bool:
    about = [word for word in speed.name.split("_") if word not in _RATES]
    return speed.shape == field.shape and "_".join(about) == stem(field.name)
