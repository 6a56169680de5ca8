"""A proposer whose prompts are on disk before anyone is asked, its answers before they are used."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from embodied_icrl.manipulation.task import Task
from embodied_icrl.reward_search.accounting import Accounting, BudgetSpent
from embodied_icrl.reward_search.prompt_files import compare, prompt_file, save_prompt
from embodied_icrl.reward_search.proposers.base import Proposer, ProposerConfig, Telling
from embodied_icrl.reward_search.records import Answer, Request
from embodied_icrl.reward_search.transcript import Entry, Stop, Transcript, key_text, request_hash

TRANSCRIPT = "transcript.jsonl"
ACCOUNTING = "accounting.json"


def open_proposer(
    config: ProposerConfig, task: Task, *, seed: int, folder: Path
) -> RecordedProposer:
    """The proposer of the search in `folder`, with what it was answered before.

    Raises:
        UserError: transcript or accounting are damaged, or what `config.build` raises.
    """
    transcript = Transcript(folder / TRANSCRIPT)
    paid = [entry.usage for entry in transcript.entries() if entry.usage is not None]
    accounting = Accounting(folder / ACCOUNTING, paid)
    proposer = config.build(task, seed=seed, accounting=accounting)
    return RecordedProposer(proposer, transcript, accounting)


class RecordedProposer:
    """Asks another proposer only for what the transcript doesn't hold.

    All answers of a call are written at once, when they are there. A kill between a server's count
    and that write loses a call that is paid: nothing on this side can avoid it.

    Attributes:
        transcript: all answers so far.
        accounting: what they took.
    """

    def __init__(self, proposer: Proposer, transcript: Transcript, accounting: Accounting) -> None:
        self._proposer = proposer
        self._folder = transcript.path.parent
        self.transcript = transcript
        self.accounting = accounting
        self.name = proposer.name
        self.model = proposer.model
        self.is_language_model = proposer.is_language_model

    def propose(self, request: Request) -> list[Answer]:
        """One answer per sample, in order; the prompt is on disk even if all are known.

        Raises:
            BudgetSpent: with the answers that were had before.
            UserError: no answer can be had, now or ever; those that were had before are kept.
        """
        save_prompt(self._folder, request, is_read=self.is_language_model)
        answers = {answer.sample: answer for answer in self._known(request)}
        missing = tuple(sample for sample in request.samples if sample not in answers)
        if not missing:
            return _ordered(answers, request)
        try:
            for call in self._proposer.propose(replace(request, samples=missing)):
                self.transcript.append_all([self._entry(request, answer) for answer in call])
                answers.update((answer.sample, answer) for answer in call)
        except BudgetSpent as stop:
            first = next(sample for sample in missing if sample not in answers)
            place = Stop(request.iteration, first, request.attempt, str(stop))
            self.transcript.append_stop(place)
            raise BudgetSpent(str(stop), _ordered(answers, request)) from None
        return _ordered(answers, request)

    def tell(self, notice: Callable[[str], None]) -> None:
        """Say where lines go that a person has to know, such as how long a server is waited for."""
        if isinstance(self._proposer, Telling):
            self._proposer.tell(notice)

    def expected_cost(self, request: Request, iterations: int) -> str:
        """As the proposer says."""
        return self._proposer.expected_cost(request, iterations)

    def _known(self, request: Request) -> list[Answer]:
        keys = [(request.iteration, sample, request.attempt) for sample in request.samples]
        entries = [entry for entry in map(self.transcript.get, keys) if entry is not None]
        expected = request_hash(request)
        others = [entry for entry in entries if entry.request != expected]
        if others:
            where = compare(others[0], self._folder, prompt_file(self._folder, request))
            warnings.warn(
                f"{self.transcript.path}: {key_text(others[0].key)} and {len(others) - 1} more "
                f"answered another prompt; used as they are, since they are paid ({where})",
                stacklevel=3,
            )
        return [entry.answer for entry in entries]

    def _entry(self, request: Request, answer: Answer) -> Entry:
        return Entry(
            request.iteration,
            answer.sample,
            request.attempt,
            request_hash(request),
            self.name,
            self.model,
            self.is_language_model,
            answer.text,
            answer.error,
            answer.usage,
        )


def _ordered(answers: Mapping[int, Answer], request: Request) -> list[Answer]:
    return [answers[sample] for sample in request.samples if sample in answers]
