"""Answers of an earlier search, from its transcript: the same search again, without a network."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from embodied_icrl.common.config import option
from embodied_icrl.common.errors import ConfigError, UserError
from embodied_icrl.manipulation.task import Task
from embodied_icrl.reward_search.accounting import Accounting, BudgetSpent
from embodied_icrl.reward_search.prompt_files import compare, prompt_file
from embodied_icrl.reward_search.records import Answer, Request
from embodied_icrl.reward_search.transcript import Entry, Key, Transcript, key_text, request_hash


class ReplayError(UserError):
    """A transcript doesn't hold what a search asks for."""


@dataclass(frozen=True)
class ReplayConfig:
    """Replay of a transcript."""

    transcript: str = option(doc="a transcript.jsonl, or the directory of the search that wrote it")
    strict: bool = option(False, "an answer to another prompt is an error, not a warning")

    def build(self, task: Task, *, seed: int, accounting: Accounting) -> ReplayProposer:
        """The proposer; nothing is paid.

        Raises:
            ConfigError: there is no such file, or it holds no answer.
            UserError: it is damaged.
        """
        path = Path(self.transcript)
        path = path / "transcript.jsonl" if path.is_dir() else path
        if not path.is_file():
            raise ConfigError(f"proposer.transcript={self.transcript}: no such file")
        return ReplayProposer(Transcript(path), self.strict)


class ReplayProposer:
    """Gives the answers of a transcript again."""

    name = "replay"

    def __init__(self, transcript: Transcript, strict: bool = False) -> None:
        entries = transcript.entries()
        if not entries:
            raise ConfigError(f"{transcript.path}: no answer in this transcript")
        self._transcript = transcript
        self._strict = strict
        self.model = entries[0].model
        self.is_language_model = entries[0].is_language_model

    def propose(self, request: Request) -> Iterator[tuple[Answer, ...]]:
        """The recorded answer per sample, one by one; nothing is paid, so they have no usage.

        Raises:
            BudgetSpent: where it ended the recorded search.
            ReplayError: an answer is missing or, if strict, answered another prompt.
        """
        expected, has_warned = request_hash(request), False
        for sample in request.samples:
            entry = self._entry((request.iteration, sample, request.attempt))
            if entry.request != expected and not has_warned:
                self._complain(entry, request)
                has_warned = True
            yield (Answer(sample, entry.text, entry.error),)

    def _entry(self, key: Key) -> Entry:
        entry, stop = self._transcript.get(key), self._transcript.stop_at(key)
        if entry is not None:
            return entry
        if stop is not None:
            raise BudgetSpent(stop.stopped)
        raise ReplayError(f"{self._transcript.path}: no answer for {key_text(key)}")

    def _complain(self, entry: Entry, request: Request) -> None:
        message = f"{self._transcript.path}: {key_text(entry.key)} answered another prompt"
        where = compare(entry, self._transcript.path.parent, prompt_file(Path(), request))
        if self._strict:
            raise ReplayError(f"{message}; strict=false would use it all the same ({where})")
        warnings.warn(f"{message} ({where})", stacklevel=4)

    def expected_cost(self, request: Request, iterations: int) -> str:
        """Nothing."""
        return f"proposer replay reads {self._transcript.path}: nothing to pay"
