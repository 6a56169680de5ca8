"""Language models as proposers, through any server that speaks OpenAI's chat completions: hosted
models, vLLM, Ollama, llama.cpp."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal
from urllib.parse import urlsplit

from embodied_icrl.common.config import option
from embodied_icrl.common.errors import ConfigError
from embodied_icrl.manipulation.task import Task
from embodied_icrl.reward_search.accounting import (
    Accounting,
    BudgetSpent,
    Spending,
    estimated_tokens,
)
from embodied_icrl.reward_search.proposers.completions import (
    Choice,
    MalformedReply,
    Reply,
    parse_reply,
)
from embodied_icrl.reward_search.proposers.openai_calls import (
    CallFailed,
    Patience,
    ProposerError,
    Server,
)
from embodied_icrl.reward_search.records import Answer, Request, Usage

HOSTED = "https://api.openai.com/v1"
TYPICAL_ANSWER = 700  # tokens of a reward with a sentence or two
# Tokens that a later prompt has beside the best code: how it went, what failed, a person's words.
TYPICAL_REVIEW = 500
LARGEST_REVIEW = 12_000
MAX_REFUSALS = 3  # requests in a row that a server may refuse for what they say


@dataclass(frozen=True)
class OpenAIConfig:
    """A language model behind a chat-completions server. The key comes from the environment."""

    model: str = option(doc="the model's name, as the server knows it")
    base_url: str = option(HOSTED, "the server, up to and including /v1")
    key_variable: str = option("OPENAI_API_KEY", "environment variable with the key")
    temperature: float | None = option(1.0, "of the sampling; null: the server's own")
    answer_tokens: int = option(4096, "tokens that one answer may have")
    limit_key: Literal["max_tokens", "max_completion_tokens"] = option(
        "max_tokens", "how the server calls that limit; OpenAI's reasoning models want the second"
    )
    answers_per_call: int | None = option(None, "answers asked for in one call (n); null: all")
    extra: Mapping[str, Any] = option({}, "further keys of the request's body")
    patience: Patience = option(Patience, "time limits and retries")
    spending: Spending = option(Spending, "budget and prices")

    def __post_init__(self) -> None:
        address = urlsplit(self.base_url)
        if address.scheme not in ("http", "https") or not address.hostname:
            raise ConfigError("base_url must be like http://localhost:8000/v1")
        if address.username or address.password or address.query:
            raise ConfigError("base_url must hold no key or password; use key_variable")
        if self.answer_tokens < 1 or (self.answers_per_call or 1) < 1:
            raise ConfigError("answer_tokens and answers_per_call must be at least 1")
        if self.temperature is not None and self.temperature < 0:
            raise ConfigError("temperature can't be negative")

    def build(self, task: Task, *, seed: int, accounting: Accounting) -> OpenAIProposer:
        """The proposer; nothing is asked yet.

        Raises:
            MissingDependencyError: the `openai` package isn't installed.
            ConfigError: no key for the hosted service, or one that can't be sent.
        """
        key = os.environ.get(self.key_variable, "").strip() or None
        if key is None and self.base_url.rstrip("/") == HOSTED:
            raise ConfigError(
                f"no key: set the environment variable {self.key_variable}, or proposer.base_url "
                "to a server that needs none, or use proposer=terms"
            )
        if key is not None and not (key.isascii() and key.isprintable() and " " not in key):
            raise ConfigError(f"the key in {self.key_variable} has characters that can't be sent")
        accounting.limit(self.spending)
        server = Server(self.base_url, key, self.key_variable, self.patience.timeout_s)
        return OpenAIProposer(self, server, accounting)


class OpenAIProposer:
    """Asks a server, several answers per call where it gives them."""

    name = "openai"
    is_language_model = True

    def __init__(self, config: OpenAIConfig, server: Server, accounting: Accounting) -> None:
        self.model = config.model
        self._config = config
        self._server = server
        self._accounting = accounting
        self._per_call = config.answers_per_call
        self._was_answered = False
        self._refusals = 0
        self._notice: Callable[[str], None] = _to_stderr

    def tell(self, notice: Callable[[str], None]) -> None:
        """Say where a line goes each time that the server is waited for."""
        self._notice = notice

    def propose(self, request: Request) -> Iterator[tuple[Answer, ...]]:
        """One answer per sample, those of a call together.

        Raises:
            BudgetSpent: the next call could exceed the budget.
            ProposerError: wrong key, model or address; or the server gave no answer for as long
                as there is patience.
        """
        waiting = request.samples
        while waiting:
            count = self._affordable(request, min(len(waiting), self._per_call or len(waiting)))
            choices, usage = self._choices(request, count)
            if len(choices) < count:
                self._per_call = len(choices)  # this server gives no more per call
            answered = zip(waiting, choices[:count])
            first, *others = (self._answer(sample, choice) for sample, choice in answered)
            yield replace(first, usage=usage), *others
            waiting = waiting[1 + len(others) :]

    def expected_cost(self, request: Request, iterations: int) -> str:
        """Tokens and money of a whole search: a usual one, and the most that one attempt can be.

        How often answers are asked for again is not known here, nor how often calls fail: the line
        says so.
        """
        count, limit = len(request.samples), self._config.answer_tokens
        answers, prompt = iterations * count, _prompt_tokens(request)
        per_call = min(count, self._per_call or count)
        # From the second iteration on, the prompt has the best code and what is said of it.
        prompts = iterations * prompt + (iterations - 1) * (TYPICAL_ANSWER + TYPICAL_REVIEW)
        usual = Usage(-(-count // per_call) * prompts, answers * TYPICAL_ANSWER)
        # The server may give one answer per call; a second attempt is told of failures at once.
        most = Usage(answers * (prompt + limit + LARGEST_REVIEW), answers * limit)
        return (
            f"{iterations} iterations of {count} answers by {self.model}: about "
            f"{self._amount(usual)} (estimated) if {per_call} come per call and all are of use; "
            f"at most {self._amount(most)} for each time that all are asked for (attempts), failed "
            f"calls left out; spent so far: {self._accounting.line}"
        )

    def _amount(self, usage: Usage) -> str:
        cost = self._config.spending.cost(usage)
        money = "" if cost is None else f", cost {cost:.3g}"
        return f"{usage.prompt_tokens + usage.completion_tokens} tokens{money}"

    def _answer(self, sample: int, choice: Choice) -> Answer:
        text = None if choice.text is None else self._server.without_key(choice.text)
        error = None if choice.error is None else self._server.hidden(choice.error)
        return Answer(sample, text, error)

    def _affordable(self, request: Request, count: int) -> int:
        """As many answers, up to `count`, as the budget surely allows in one call."""
        for fewer in range(count, 1, -1):
            try:
                self._accounting.check(self._most(request, fewer))
                return fewer
            except BudgetSpent:
                continue
        self._accounting.check(self._most(request, 1))
        return 1

    def _most(self, request: Request, count: int) -> Usage:
        return Usage(_prompt_tokens(request), count * self._config.answer_tokens, True)

    def _choices(self, request: Request, count: int) -> tuple[tuple[Choice, ...], Usage | None]:
        """The answers of one call and what it took, failed tries included."""
        before = self._accounting.totals
        try:
            reply = self._reply(request, count)
            self._was_answered, self._refusals = True, 0
            choices = reply.choices
        except CallFailed as refusal:
            choices = (Choice(None, str(refusal)),) * count
        after = self._accounting.totals
        usage = Usage(
            after.prompt_tokens - before.prompt_tokens,
            after.completion_tokens - before.completion_tokens,
            after.estimated_tokens > before.estimated_tokens,
        )
        return choices, usage if usage.prompt_tokens + usage.completion_tokens else None

    def _reply(self, request: Request, count: int) -> Reply:
        """One reply, after as many tries as it takes; after a timeout to half as many answers.

        Raises:
            CallFailed: the server, which answered others, refused this request for what it says.
            BudgetSpent: another try could exceed the budget.
            ProposerError: no try can work, or none did. Such trouble passes and says nothing about
                the answers, so it ends the search for now instead of taking their place.
        """
        patience = self._config.patience
        for failures in range(1, patience.retries + 2):
            self._accounting.check(self._most(request, count))
            try:
                return self._one_reply(request, count)
            except CallFailed as failure:
                last = failure
            if last.is_refusal and count > 1 and not self._was_answered:
                self._per_call = 1  # perhaps it doesn't know n
                return self._reply(request, 1)
            if last.is_refusal:
                break
            if failures <= patience.retries:
                fewer = max(1, count // 2) if last.is_timeout else count
                self._wait(last, failures, f" for {fewer} of {count} answers" * (fewer < count))
                count = fewer
        self._refusals += last.is_refusal
        if last.is_refusal and self._was_answered and self._refusals < MAX_REFUSALS:
            raise last
        advice = ""
        if last.is_timeout:
            advice = (
                "; proposer.patience.timeout_s gives it longer, proposer.answers_per_call=1 asks "
                "for less at once"
            )
        if last.is_refusal and "max_completion_tokens" in str(last):
            advice = "; proposer.limit_key=max_completion_tokens names the limit as it wants it"
        raise ProposerError(
            f"no answer from {self._config.base_url}: {last}{advice}; all work so far is kept: run "
            "the same command again to go on once it works"
        )

    def _wait(self, failure: CallFailed, failures: int, what: str) -> None:
        """Say so, and wait after the failure number `failures`; `what` is asked for then."""
        patience = self._config.patience
        seconds = patience.wait_s(failure, failures)
        self._notice(
            f"proposer openai: {failure}; asking again{what} in {seconds:.3g} s "
            f"({failures} of {patience.retries})"
        )
        time.sleep(seconds)

    def _one_reply(self, request: Request, count: int) -> Reply:
        """A reply to a single call; what it took is written down, whether it can be read or not."""
        prompt = _prompt_tokens(request)
        try:
            body = self._server.post(self._arguments(request, count))
        except CallFailed as failure:
            if failure.may_be_paid:  # the server may have written all it was allowed to
                self._accounting.add(self._most(request, count))
            raise
        try:
            reply = parse_reply(body)
        except MalformedReply as error:
            tokens = min(
                estimated_tokens(body.decode("latin-1")), count * self._config.answer_tokens
            )
            self._accounting.add(Usage(prompt, tokens, True))
            raise CallFailed(f"a reply that can't be read: {error}") from None
        guess = Usage(prompt, int(reply.characters / 3) + 1, True)
        self._accounting.add(reply.usage or guess)
        return reply

    def _arguments(self, request: Request, count: int) -> dict[str, Any]:
        config = self._config
        arguments: dict[str, Any] = {
            "model": config.model,
            "messages": [dict(message) for message in request.messages],
            config.limit_key: config.answer_tokens,
        }
        if config.temperature is not None:
            arguments["temperature"] = config.temperature
        if count > 1:
            arguments["n"] = count
        if config.extra:
            arguments["extra_body"] = dict(config.extra)
        return arguments


def _to_stderr(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


def _prompt_tokens(request: Request) -> int:
    return sum(estimated_tokens(message["content"]) for message in request.messages)
