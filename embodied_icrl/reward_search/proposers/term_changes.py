"""Changes of a recipe by what its training showed."""

from __future__ import annotations

from dataclasses import replace

from embodied_icrl.reward_search.proposers.term_code import Recipe, Term, component_names, number
from embodied_icrl.reward_search.proposers.term_draws import Rng, Terms
from embodied_icrl.reward_search.reflection import Mark, Reflection

MAX_TERMS = 10
BACKGROUND = ("effort", "calm")  # small and flat by intention


def changed(recipe: Recipe, reflection: Reflection, draw: Terms) -> Recipe:
    """The recipe with one to three changes, and never the same recipe.

    A flat component is rescaled, replaced or dropped; a dominating one gets a smaller weight; where
    there is neither, or for the rest of the changes, a weight or a scale is moved, a term added or
    removed. Without success, more is changed at once.
    """
    marks = {review.name: review.mark for review in reflection.components}
    count = int(draw.rng.integers(1, 3)) + (not reflection.succeeds)
    new = recipe
    for _ in range(count):
        new = _one_change(new, marks, draw)
    while new == recipe:
        new = _one_change(new, {}, draw)
    return new


def _one_change(recipe: Recipe, marks: dict[str, Mark], draw: Terms) -> Recipe:
    named = component_names(recipe)
    at_fault = [
        (position, marks[name])
        for position, (name, term) in enumerate(named.items())
        if marks.get(name, "fine") != "fine" and term.kind not in BACKGROUND
    ]
    terms = list(recipe.terms)
    if at_fault and draw.rng.random() < 0.7:
        position, mark = at_fault[draw.rng.integers(len(at_fault))]
        _mend(terms, position, mark, draw)
    else:
        _vary(terms, draw)
    return replace(recipe, terms=tuple(terms))


def _mend(terms: list[Term], position: int, mark: Mark, draw: Terms) -> None:
    term = terms[position]
    if mark == "dominating":
        terms[position] = _weighted(term, float(draw.rng.uniform(0.2, 0.6)))
        return
    choice = draw.rng.random()
    if term.scale and choice < 0.5:  # wider, so that it is met earlier
        terms[position] = _scaled(term, float(draw.rng.uniform(1.5, 3.0)))
    elif choice < 0.75 or len(terms) == 1:
        terms[position] = draw.any_term()
    else:
        del terms[position]


def _vary(terms: list[Term], draw: Terms) -> None:
    choice, position = draw.rng.random(), int(draw.rng.integers(len(terms)))
    term = terms[position]
    if choice < 0.3 and len(terms) < MAX_TERMS:
        terms.append(draw.any_term())
    elif choice < 0.4 and len(terms) > 1:
        del terms[position]
    elif choice < 0.7 and term.scale:
        terms[position] = _scaled(term, _factor(draw.rng))
    else:
        terms[position] = _weighted(term, _factor(draw.rng))


def _factor(rng: Rng) -> float:
    """Between 1.3 and 3, or one over that."""
    factor = float(rng.uniform(1.3, 3.0))
    return factor if rng.random() < 0.5 else 1.0 / factor


def _weighted(term: Term, factor: float) -> Term:
    return replace(term, weight=float(number(term.weight * factor)))


def _scaled(term: Term, factor: float) -> Term:
    return replace(term, scale=float(number(term.scale * factor)))
