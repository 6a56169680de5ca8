"""The default proposer: a seeded search over reward terms, without any language model.

It reads the fields that a task declares, never the task's name or its code. In the first iteration
every answer has another structure; later ones change the best reward by what its reflection says,
and a share of them starts anew. A baseline that language models should beat.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from embodied_icrl.common.config import option
from embodied_icrl.common.errors import ConfigError
from embodied_icrl.common.seeds import derived_rng
from embodied_icrl.manipulation.task import Task
from embodied_icrl.reward_search.accounting import Accounting
from embodied_icrl.reward_search.extract import NoCode, extract_reward
from embodied_icrl.reward_search.proposers.term_changes import changed
from embodied_icrl.reward_search.proposers.term_code import TITLE, Recipe, read, write
from embodied_icrl.reward_search.proposers.term_draws import Terms
from embodied_icrl.reward_search.proposers.term_roles import find_roles
from embodied_icrl.reward_search.records import CURVES, Answer, Parent, Request
from embodied_icrl.reward_search.reflection import reflect
from embodied_icrl.reward_search.static_check import check_source

MAX_GIVEN_COMPONENTS = 20  # of a reward that terms are added to
ITERATION_STRIDE = 7  # structures that a later iteration's fresh answers are ahead by


@dataclass(frozen=True)
class TermsConfig:
    """The search over terms."""

    fresh: float = option(
        0.25,
        "share of the answers from iteration 2 on that don't change the best reward but start anew",
    )

    def __post_init__(self) -> None:
        if not 0.0 <= self.fresh <= 1.0:
            raise ConfigError(f"fresh={self.fresh} is a share, between 0 and 1")

    def build(self, task: Task, *, seed: int, accounting: Accounting) -> TermsProposer:
        """The proposer; nothing is paid, so nothing is written to `accounting`."""
        return TermsProposer(task, self, seed)


class TermsProposer:
    """Composes rewards from a task's fields. The same (seed, iteration, sample, attempt, parent)
    gives the same answer."""

    name = "terms"
    model = None
    is_language_model = False

    def __init__(self, task: Task, config: TermsConfig, seed: int) -> None:
        self._fields = task.fields
        self._roles = find_roles(task.fields)
        self._config = config
        self._seed = seed

    def propose(self, request: Request) -> Iterator[tuple[Answer, ...]]:
        """One answer per sample; none fails."""
        yield tuple(Answer(sample, self._answer(request, sample)) for sample in request.samples)

    def expected_cost(self, request: Request, iterations: int) -> str:
        """Nothing."""
        return "proposer terms asks no language model: nothing to pay"

    def _answer(self, request: Request, sample: int) -> str:
        names = (request.iteration, sample, request.attempt)
        terms = Terms(self._roles, derived_rng(self._seed, "terms", *names))
        is_fresh = derived_rng(self._seed, "fresh", *names).random() < self._config.fresh
        if request.parent is not None and not is_fresh:
            changes = Terms(self._roles, derived_rng(self._seed, "changes", *names))
            recipe = self._from_parent(request.parent, changes)
            text = recipe and self._text(recipe)
            if text:
                return text
        start = int(derived_rng(self._seed, "terms").integers(1000))
        index = start + sample + ITERATION_STRIDE * (request.iteration - 1 + request.attempt)
        text = self._text(Recipe(terms.recipe(index)))
        assert text is not None, "composed code is always allowed"
        return text

    def _from_parent(self, parent: Parent, terms: Terms) -> Recipe | None:
        """A changed parent; None where it can't be built on."""
        reflection = reflect(parent.curves)
        recipe = read(parent.source, self._fields)
        if recipe is not None:
            return changed(recipe, reflection, terms)
        components = [name for name in parent.curves if name not in CURVES]
        if TITLE in parent.source or len(components) > MAX_GIVEN_COMPONENTS:
            return None
        added = tuple(terms.any_term() for _ in range(int(terms.rng.integers(1, 3))))
        return replace(Recipe(added), given=parent.source)

    def _text(self, recipe: Recipe) -> str | None:
        """The answer for a recipe; None where its source would be refused."""
        try:
            source = write(recipe, self._fields)
            text = f"A reward composed of {len(recipe.terms)} terms:\n\n```python\n{source}```\n"
            if extract_reward(text) != source:
                return None
        except (NoCode, SyntaxError, ValueError):
            return None
        return None if check_source(source, [f.name for f in self._fields]) else text
