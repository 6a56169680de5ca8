"""What a search has paid for answers, and the budget that it never exceeds."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from embodied_icrl.common.config import option
from embodied_icrl.common.errors import ConfigError, UserError
from embodied_icrl.common.files import atomic_write_json
from embodied_icrl.reward_search.records import Answer, Usage

CHARACTERS_PER_TOKEN = 3.0  # code and numbers take more tokens than prose, about 4
MESSAGE_TOKENS = 8  # a message's role and separators


class BudgetSpent(UserError):
    """The next call of the language model could exceed the budget; it was not made.

    Attributes:
        answers: those of the request that were had before, in order.
    """

    def __init__(self, message: str, answers: Sequence[Answer] = ()) -> None:
        super().__init__(message)
        self.answers = tuple(answers)


@dataclass(frozen=True)
class Spending:
    """What may be spent on answers, and what they cost. Money is in the currency of the prices."""

    max_tokens: int | None = option(None, "tokens of all calls together, prompts included")
    max_cost: float | None = option(None, "money; needs the prices")
    prompt_price: float | None = option(None, "money per million prompt tokens")
    completion_price: float | None = option(None, "money per million tokens of the answers")

    def __post_init__(self) -> None:
        numbers = (self.max_tokens, self.max_cost, self.prompt_price, self.completion_price)
        if any(number is not None and number < 0 for number in numbers):
            raise ConfigError("max_tokens, max_cost and prices can't be negative")
        if (self.prompt_price is None) != (self.completion_price is None):
            raise ConfigError("set both prompt_price and completion_price, or neither")
        if self.max_cost is not None and self.prompt_price is None:
            raise ConfigError("max_cost needs prompt_price and completion_price")

    def cost(self, usage: Usage) -> float | None:
        """Money for this usage; None without prices."""
        if self.prompt_price is None or self.completion_price is None:
            return None
        prompt = usage.prompt_tokens * self.prompt_price
        return (prompt + usage.completion_tokens * self.completion_price) / 1e6


@dataclass(frozen=True)
class Totals:
    """Sums over all calls; `estimated_tokens` are those that no server has counted."""

    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    estimated_tokens: int = 0

    @property
    def usage(self) -> Usage:
        """The tokens as one usage."""
        return Usage(self.prompt_tokens, self.completion_tokens, self.estimated_tokens > 0)

    def plus(self, usage: Usage) -> Totals:
        """With one more call."""
        tokens = usage.prompt_tokens + usage.completion_tokens
        return Totals(
            self.calls + 1,
            self.prompt_tokens + usage.prompt_tokens,
            self.completion_tokens + usage.completion_tokens,
            self.estimated_tokens + (tokens if usage.estimated else 0),
        )


class Accounting:
    """Sums what calls took, in a file that is replaced after each call.

    Args:
        path: `accounting.json`; totals that it holds already are gone on with.
        paid: usages known from elsewhere (the transcript), for the case that the file is lost.
    """

    def __init__(self, path: Path | None = None, paid: Iterable[Usage] = ()) -> None:
        self._path = path
        self.spending = Spending()
        totals = Totals()
        for usage in paid:
            totals = totals.plus(usage)
        written = _read(path) if path is not None else Totals()
        # A call is written here before its answers are in the transcript: the larger one is right.
        self.totals = max(totals, written, key=lambda t: t.prompt_tokens + t.completion_tokens)

    def limit(self, spending: Spending) -> None:
        """Say what may be spent, and what tokens cost."""
        self.spending = spending
        self._write()

    def add(self, usage: Usage) -> None:
        """Write down what a call took."""
        self.totals = self.totals.plus(usage)
        self._write()

    def check(self, most: Usage) -> None:
        """Ask before a call that may take up to `most`.

        Raises:
            BudgetSpent: it could exceed the budget.
        """
        after = self.totals.plus(most).usage
        tokens = after.prompt_tokens + after.completion_tokens
        cost, spending = self.spending.cost(after), self.spending
        exceeded = []
        if spending.max_tokens is not None and tokens > spending.max_tokens:
            exceeded.append("max_tokens")
        if spending.max_cost is not None and cost is not None and cost > spending.max_cost:
            exceeded.append("max_cost")
        if exceeded:
            raise BudgetSpent(f"{self.line}: the next call could exceed {' and '.join(exceeded)}")

    @property
    def line(self) -> str:
        """Tokens and money so far, against the budget; for people."""
        usage, spending = self.totals.usage, self.spending
        text = f"{usage.prompt_tokens + usage.completion_tokens} tokens"
        if spending.max_tokens is not None:
            text += f" of {spending.max_tokens}"
        if self.totals.estimated_tokens:
            text += f" ({self.totals.estimated_tokens} of them estimated)"
        cost = spending.cost(usage)
        if cost is not None:
            text += f", cost {cost:.4f}"
            text += "" if spending.max_cost is None else f" of {spending.max_cost:g}"
        return text

    def _write(self) -> None:
        if self._path is None:
            return
        cost = self.spending.cost(self.totals.usage)
        atomic_write_json(
            self._path, {**asdict(self.totals), "cost": cost, "spending": asdict(self.spending)}
        )


def _read(path: Path) -> Totals:
    """The totals of an accounting file; none for a missing file.

    Raises:
        UserError: the file is damaged: what was paid is not known.
    """
    if not path.exists():
        return Totals()
    try:
        data = json.loads(path.read_text())
        numbers = {name: data[name] for name in asdict(Totals())}
        if any(type(number) is not int or number < 0 for number in numbers.values()):
            raise ValueError("not counts")
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{path} is damaged; delete it, and the totals are taken from the transcript"
        ) from error
    return replace(Totals(), **numbers)


def estimated_tokens(text: str) -> int:
    """About how many tokens a text has; rather too many than too few."""
    # Other scripts than Latin take about a token per character, which is two or more bytes.
    return int(len(text.encode("utf-8", "replace")) / CHARACTERS_PER_TOKEN) + MESSAGE_TOKENS
