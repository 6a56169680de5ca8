"""Terms of a reward, and the Python that they are written as.

A recipe is a list of terms, perhaps on top of a reward that someone else wrote. Its source begins
with the recipe as comments, so that a later search reads it back.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

from embodied_icrl.manipulation.fields import Field
from embodied_icrl.reward_search.extract import MAIN
from embodied_icrl.reward_search.proposers.term_roles import stem

TITLE = "# Composed from terms by a seeded search; no language model wrote this."
_TERM = "# term: "
_GIVEN = "# The reward that the search began from, under another name:"
_ADDED = "# What the search adds to it:"
MAX_LABEL = 32  # characters; component names have at most 40
COSTS = ("distance", "behind", "size", "calm", "effort")  # what there should be less of
ROLES_OF_KIND = {
    "distance": 2, "close": 2, "within": 2, "reached": 2, "progress": 3, "behind": 3, "size": 1,
    "near_zero": 1, "amount": 1, "calm": 1, "effort": 1,
}  # fmt: skip


@dataclass(frozen=True)
class Gate:
    """A term counts only while two fields are closer than `below`."""

    fields: tuple[str, str]
    below: float


@dataclass(frozen=True)
class Term:
    """One component of a reward.

    Attributes:
        kind: what it computes, see `_expression`.
        fields: the names of the fields that it reads, in the kind's order.
        weight: its factor; the kind decides on the sign.
        scale: temperature, threshold or offset, in the fields' unit; 0 where the kind has none.
        gate: None where it always counts.
    """

    kind: str
    fields: tuple[str, ...]
    weight: float
    scale: float = 0.0
    gate: Gate | None = None


@dataclass(frozen=True)
class Recipe:
    """Terms, and the source of a reward by someone else that they are added to, or None."""

    terms: tuple[Term, ...]
    given: str | None = None


def write(recipe: Recipe, fields: Sequence[Field]) -> str:
    """The source of a recipe. Equal recipes give equal sources."""
    head = [TITLE, *(_TERM + json.dumps(asdict(term)) for term in recipe.terms), ""]
    shapes = {field.name: field.shape for field in fields}
    named = component_names(recipe)
    lengths = _lengths(recipe.terms, shapes)
    body = [line for _, lines in lengths.values() for line in lines]
    names = {key: name for key, (name, _) in lengths.items()}
    parts = [f'    "{name}": {_component(term, shapes, names)},' for name, term in named.items()]
    if recipe.given is None:
        body += ["components = {", *parts, "}", "return sum(components.values()), components"]
        return "\n".join([*head, f"def {MAIN}(state):", *_indented(body)]) + "\n"
    inner = _free_name(recipe.given)
    renamed = re.sub(rf"\b{MAIN}\b", inner, recipe.given).rstrip("\n")
    body += ["added = {", *parts, "}", f"given, components = {inner}(state)"]
    body += ["return given + sum(added.values()), {**components, **added}"]
    text = [*head, _GIVEN, renamed, "", "", _ADDED, f"def {MAIN}(state):", *_indented(body)]
    return "\n".join(text) + "\n"


def read(source: str, fields: Sequence[Field]) -> Recipe | None:
    """The recipe of a source that `write` wrote, None for any other source."""
    lines = source.splitlines()
    if not lines or lines[0] != TITLE:
        return None
    texts = [line.removeprefix(_TERM) for line in lines if line.startswith(_TERM)]
    try:
        terms = tuple(_parsed(json.loads(text)) for text in texts)
        recipe = Recipe(terms, _given(lines))
        return recipe if write(recipe, fields) == source else None
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


def component_names(recipe: Recipe) -> dict[str, Term]:
    """The components' names in the order of the terms."""
    named: dict[str, Term] = {}
    for term in recipe.terms:
        label = _prefix(recipe.given) + _label(term)
        name = label = label[:MAX_LABEL]
        while name in named:
            number = name[len(label) :].lstrip("_") or "1"
            name = f"{label}_{int(number) + 1}"
        named[name] = term
    return named


def _prefix(given: str | None) -> str:
    """What keeps the added components' names apart from those of the given reward."""
    if given is None:
        return ""
    prefix = "added_"
    while prefix in given:
        prefix = f"more_{prefix}"
    return prefix


def _label(term: Term) -> str:
    things = [stem(name) for name in term.fields]
    first, last = things[0], things[-1]
    return {
        "distance": f"{first}_to_{last}",
        "close": f"{first}_near_{last}",
        "within": f"{first}_around_{last}",
        "reached": f"{first}_at_{last}",
        "progress": f"{first}_towards_{things[1] if len(things) > 1 else last}",
        "behind": f"{first}_behind_{things[1] if len(things) > 1 else last}",
        "size": f"small_{first}",
        "near_zero": f"no_{first}",
        "amount": f"{'more' if term.weight > 0 else 'less'}_{first}",
        "calm": f"calm_{first}",
        "effort": "effort",
    }[term.kind]


def _component(
    term: Term, shapes: Mapping[str, tuple[int, ...]], names: Mapping[tuple[str, ...], str]
) -> str:
    weight = -term.weight if term.kind in COSTS else term.weight
    text = f"{number(weight)} * {_expression(term, shapes, names)}"
    if term.gate is None:
        return text
    return f"({text} if {names[term.gate.fields]} < {number(term.gate.below)} else 0.0)"


def _expression(
    term: Term, shapes: Mapping[str, tuple[int, ...]], names: Mapping[tuple[str, ...], str]
) -> str:
    """What a term's weight multiplies."""
    scale, first = number(term.scale), f"state.{term.fields[0]}"
    if term.kind in ("distance", "close", "within", "reached"):
        return _of_distance(term.kind, names[term.fields], scale)
    if term.kind == "behind":
        return names[("behind", *term.fields, scale)]
    if term.kind == "progress":  # the part of a velocity that points to the goal
        difference = f"(state.{term.fields[1]} - {first})"
        velocity, distance = f"state.{term.fields[2]}", names[term.fields[:2]]
        product = f"{velocity} * {difference}"
        if shapes[term.fields[0]]:
            product = f"np.sum({product})"
        return f"{product} / ({distance} + {scale})"
    shape = shapes[term.fields[0]]
    if term.kind == "effort":
        return f"np.sum(np.square({first}))"
    if term.kind == "amount":
        return first if not shape else f"np.mean({first})"
    length = _length(first, shape)
    return {
        "size": length,
        "calm": length,
        "near_zero": f"np.exp(-(({length} / {scale}) ** 2))",
    }[term.kind]


def _of_distance(kind: str, distance: str, scale: str) -> str:
    return {
        "distance": distance,
        "close": f"np.exp(-(({distance} / {scale}) ** 2))",
        "within": f"(1.0 - np.tanh({distance} / {scale}))",
        "reached": f"(1.0 if {distance} < {scale} else 0.0)",
    }[kind]


def _lengths(
    terms: Sequence[Term], shapes: Mapping[str, tuple[int, ...]]
) -> dict[tuple[str, ...], tuple[str, list[str]]]:
    """For every distance that the terms need: its variable, and the lines that compute it."""
    found: dict[tuple[str, ...], tuple[str, list[str]]] = {}
    for key, offset in _needed(terms):
        if key in found:
            continue
        ends = (stem(key[0]), stem(key[1])) if offset is None else (stem(key[1]), "place")
        name = f"{ends[0]}_to_{ends[1]}"[:MAX_LABEL]
        if name in (taken for taken, _ in found.values()):
            name = f"{name}_{len(found) + 1}"
        if offset is None:
            lines = [f"{name} = {_distance(*key, shapes=shapes)}"]
        else:
            hand, thing, goal = (f"state.{field}" for field in key[1:4])
            away = f"({goal} - {thing}) / ({found[key[2:4]][0]} + 0.01)"
            lines = [
                f"place = {thing} - {offset} * {away}",
                f"{name} = np.linalg.norm({hand} - place)",
            ]
        found[key] = (name, lines)
    return found


def _needed(terms: Sequence[Term]) -> Iterator[tuple[tuple[str, ...], str | None]]:
    for term in terms:
        if term.kind in ("distance", "close", "within", "reached"):
            yield term.fields, None
        elif term.kind == "progress":
            yield term.fields[:2], None
        elif term.kind == "behind":
            yield term.fields[1:], None
            yield ("behind", *term.fields, number(term.scale)), number(term.scale)
        if term.gate is not None:
            yield term.gate.fields, None


def _distance(first: str, second: str, *, shapes: Mapping[str, tuple[int, ...]]) -> str:
    difference = f"state.{first} - state.{second}"
    if len(shapes[first]) != len(shapes[second]):  # one point and several: the nearest
        return f"np.min(np.linalg.norm({difference}, axis=-1))"
    return _length(difference, shapes[first])


def _length(text: str, shape: tuple[int, ...]) -> str:
    return f"np.linalg.norm({text})" if shape else f"abs({text})"


def _indented(lines: Sequence[str]) -> list[str]:
    return [f"    {line}" for line in lines]


def number(value: float) -> str:
    """Three significant digits, as Python reads them back."""
    return repr(float(f"{value:.3g}"))


def _free_name(source: str) -> str:
    taken = {node.id for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Name)}
    taken |= {n.name for n in ast.walk(ast.parse(source)) if isinstance(n, ast.FunctionDef)}
    name = "given_reward"
    while name in taken:
        name += "_"
    return name


def _given(lines: Sequence[str]) -> str | None:
    """The source between the two markers, under its own name again."""
    if _GIVEN not in lines:
        return None
    inside = lines[lines.index(_GIVEN) + 1 : lines.index(_ADDED) - 2]
    call = next(line for line in reversed(lines) if line.startswith("    given, components = "))
    inner = call.removeprefix("    given, components = ").removesuffix("(state)")
    return re.sub(rf"\b{inner}\b", MAIN, "\n".join(inside)) + "\n"


def _parsed(data: Mapping[str, object]) -> Term:
    gate = data["gate"]
    values = dict(data)
    fields = values.pop("fields")
    if not isinstance(fields, list) or len(fields) != ROLES_OF_KIND[str(data["kind"])]:
        raise ValueError("not a term")
    values["fields"] = tuple(fields)
    if isinstance(gate, Mapping):
        first, second = gate["fields"]
        values["gate"] = Gate((first, second), float(gate["below"]))
    return Term(**values)  # type: ignore[arg-type]
