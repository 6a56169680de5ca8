"""What every proposer is, whoever writes its answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol, runtime_checkable

from embodied_icrl.manipulation.task import Task
from embodied_icrl.reward_search.accounting import Accounting
from embodied_icrl.reward_search.records import Answer, Request


class Proposer(Protocol):
    """Writes reward functions.

    Attributes:
        name: one word, for the transcript and the report.
        model: the language model's name; None where none is asked.
        is_language_model: whether one is; never True for composed code.
    """

    @property
    def name(self) -> str: ...

    @property
    def model(self) -> str | None: ...

    @property
    def is_language_model(self) -> bool: ...

    def propose(self, request: Request) -> Iterable[tuple[Answer, ...]]:
        """One answer per sample, in the request's order.

        What is paid together is given out together, as soon as it is there: one tuple per call.
        An answer that is of no use carries `error`. Answers are final: what another try may mend
        (a server that is down) raises instead.

        Raises:
            BudgetSpent: the next call could exceed the budget.
            UserError: no answer can be had, now (the server is down) or ever (a wrong key or
                model, a transcript that lacks it).
        """
        ...

    def expected_cost(self, request: Request, iterations: int) -> str:
        """One line to print before the first call: what `iterations` such requests may cost."""
        ...


@runtime_checkable
class Telling(Protocol):
    """A proposer that may have to wait for long, and then says so."""

    def tell(self, notice: Callable[[str], None]) -> None:
        """Say where such lines go; until then they go to standard error."""
        ...


@runtime_checkable
class ProposerConfig(Protocol):
    """The configuration of a proposer: a frozen dataclass that a `_target_` node names."""

    def build(self, task: Task, *, seed: int, accounting: Accounting) -> Proposer:
        """The proposer for one search.

        Args:
            task: its fields are what terms are composed of.
            seed: of the search.
            accounting: where paid calls are checked against the budget and written down.

        Raises:
            MissingDependencyError: a package that it needs isn't installed.
            ConfigError: something in the configuration or the environment doesn't fit.
        """
        ...
