"""From a question to reward code that may be trained: answers, extraction, checks, second tries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace

from embodied_icrl.reward_search.accounting import BudgetSpent
from embodied_icrl.reward_search.checks import CheckReport
from embodied_icrl.reward_search.extract import NoCode, extract_reward
from embodied_icrl.reward_search.proposers.recorded import RecordedProposer
from embodied_icrl.reward_search.records import Answer, Candidate, Message, Parent, Request
from embodied_icrl.reward_search.store import Store

# From candidates that were of no use, with their reasons, to a question that names them.
Question = Callable[[Sequence[Candidate]], tuple[Message, ...]]
# May be called from several threads at once.
Check = Callable[[str], CheckReport]


@dataclass(frozen=True)
class Written:
    """What came of the question of one iteration.

    Attributes:
        candidates: one per sample that was answered, in their order: "waiting" for its training,
            or "refused".
        spent: why not all samples were asked for; None if they were.
    """

    candidates: tuple[Candidate, ...]
    spent: str | None = None


class Writer:
    """Has the rewards of an iteration written, and checks them.

    Useless answers are asked for again, with the reasons in the question. Every answer keeps its
    sample's number, so that no failure shifts another one's place.

    Args:
        attempts: how often a sample is asked for.
        threads: checks side by side.
    """

    def __init__(
        self, store: Store, proposer: RecordedProposer, check: Check, *, attempts: int, threads: int
    ) -> None:
        self._store = store
        self._proposer = proposer
        self._check = check
        self._attempts = attempts
        self._threads = threads

    def write(
        self, iteration: int, samples: int, question: Question, parent: Parent | None
    ) -> Written:
        """Ask, check, and ask again where it didn't help.

        Raises:
            UserError: no answer can be had, now or ever. Nothing takes an answer's place then:
                asked again later, the same answers are found and the missing ones asked for.
        """
        judged: dict[int, Candidate] = {}
        wanted = tuple(range(samples))
        spent = None
        for attempt in range(self._attempts):
            useless = [judged[sample] for sample in wanted if sample in judged]
            request = Request(iteration, wanted, attempt, question(useless), parent)
            answers, spent = self._answers(request)
            for candidate in self._judged(request, answers):
                judged[int(candidate.id.partition("_s")[2])] = candidate
            wanted = tuple(n for n in wanted if n not in judged or judged[n].status == "refused")
            if spent is not None or not wanted:
                break
        return Written(tuple(judged[sample] for sample in sorted(judged)), spent)

    def _answers(self, request: Request) -> tuple[Sequence[Answer], str | None]:
        """The answers that could be had, and why not all of them."""
        try:
            return self._proposer.propose(request), None
        except BudgetSpent as error:
            return error.answers, str(error)

    def _judged(self, request: Request, answers: Sequence[Answer]) -> list[Candidate]:
        """The candidates that answers hold, checked side by side."""
        with ThreadPoolExecutor(self._threads) as pool:
            futures: list[Future[Candidate]] = [
                pool.submit(self._judge, request, answer) for answer in answers
            ]
            try:
                return [future.result() for future in futures]
            except BaseException:
                pool.shutdown(wait=True, cancel_futures=True)
                raise

    def _judge(self, request: Request, answer: Answer) -> Candidate:
        parent = request.parent.candidate if request.parent is not None else None
        name = candidate_id(request.iteration, answer.sample)
        candidate = Candidate(name, request.iteration, parent=parent)
        if answer.text is None:
            reason = f"no answer: {answer.error or 'without a reason'}"
            return replace(candidate, status="refused", reason=reason)
        # A server's JSON may hold halves of characters, which no file can.
        text = answer.text.encode("utf-8", "replace").decode()
        self._store.write_text(self._store.folder(name) / "answer.md", text)
        try:
            source = extract_reward(text)
        except NoCode as error:
            return replace(candidate, status="refused", reason=str(error))
        return check_candidate(self._store, replace(candidate, source=source), self._check)


def candidate_id(iteration: int, sample: int) -> str:
    """The name of a candidate."""
    return f"i{iteration}_s{sample:02d}"


def check_candidate(store: Store, candidate: Candidate, check: Check) -> Candidate:
    """The candidate with the verdict of the checks, looked up if they were done before."""
    source = candidate.source or ""
    store.write_text(store.folder(candidate.id) / "reward.py", source)
    report = store.checks(candidate.id, source)
    if report is None:
        report = check(source)
        store.save_checks(candidate.id, source, report)
    errors = [finding.text for finding in report.findings if finding.severity == "error"]
    if errors:
        return replace(candidate, status="refused", reason="; ".join(errors))
    return candidate
