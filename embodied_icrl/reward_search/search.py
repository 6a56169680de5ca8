"""The search: ask for rewards, train with them, tell the writer what came of it, ask again.

The method is Eureka's (arXiv 2310.12931). Nothing here remembers what an earlier process did: a
search that goes on does everything again from the start, and answers, checks and trainings that
are in its directory are looked up there instead of being done again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from embodied_icrl.common.errors import ConfigError, RunError
from embodied_icrl.reward_search.evaluation_child import NOT_BUILT
from embodied_icrl.reward_search.extract import NoCode, read_reward
from embodied_icrl.reward_search.prompt import PromptConfig, build_messages
from embodied_icrl.reward_search.proposers.recorded import RecordedProposer
from embodied_icrl.reward_search.racing import planned_steps
from embodied_icrl.reward_search.records import (
    BASELINES,
    FINAL,
    INIT,
    Candidate,
    Message,
    Parent,
    Request,
)
from embodied_icrl.reward_search.reflection import reflect
from embodied_icrl.reward_search.rounds import Entry, Plan, Rounds
from embodied_icrl.reward_search.search_config import SearchConfig
from embodied_icrl.reward_search.search_progress import SearchProgress
from embodied_icrl.reward_search.store import Store, read_json
from embodied_icrl.reward_search.summary import FinalResult, Summary
from embodied_icrl.reward_search.task_code import changed_file, digests
from embodied_icrl.reward_search.writing import Check, Writer, candidate_id, check_candidate


@dataclass(frozen=True)
class Parts:
    """What a search is made of; tests put in small ones of their own.

    Attributes:
        search_plan, final_plan: of the trainings that compare, and of those at the end.
    """

    proposer: RecordedProposer
    check: Check
    rounds: Rounds
    search_plan: Plan
    final_plan: Plan


@dataclass(frozen=True)
class Outcome:
    """How a search ended.

    Attributes:
        status: "finished", or "spent" by its budget.
        best: the best reward; None where none could be trained.
        reason: of an end before the last iteration, one line.
        finals: the trainings at the end.
    """

    status: Literal["finished", "spent"]
    best: Candidate | None
    reason: str | None = None
    finals: tuple[FinalResult, ...] = ()


class Search:
    """One search in an open directory.

    Attributes:
        candidates: all so far, by id.
        best: of those trained to the end.
        summary: what the report needs beside the candidates.
    """

    def __init__(
        self, config: SearchConfig, store: Store, parts: Parts, progress: SearchProgress
    ) -> None:
        self.config = config
        self.store = store
        self.parts = parts
        self.progress = progress
        self.candidates: dict[str, Candidate] = {}
        self.best: Candidate | None = None
        self.summary = Summary(
            proposer=parts.proposer.name,
            model=parts.proposer.model,
            is_language_model=parts.proposer.is_language_model,
        )
        parts.proposer.tell(progress.notice)
        self._steady: list[Entry] = []
        self._cost_told = False
        self._task_files: dict[str, str] = read_json(store.path / "task.json")["files"]
        self._writer = Writer(
            store,
            parts.proposer,
            parts.check,
            attempts=config.attempts,
            threads=config.worker_count,
        )

    def run(self) -> Outcome:
        """Search to the end of the iterations or of the budget; then train the best once more.

        Raises:
            ConfigError: the reward to begin with is refused.
            RunError: the disk is full; or the task's files or the reward to begin with are not
                those that the search began with.
            UserError: a proposer can't go on, now or ever; what was done is kept, and the same
                search goes on from there.
        """
        accounting = self.parts.proposer.accounting
        accounting.limit(accounting.spending)  # the file is there even if nothing is paid
        self._begin()
        failures: list[Candidate] = []
        spent = None
        for iteration in range(1, self.config.iterations + 1):
            self._hold_task_code()
            failures, spent = self._iterate(iteration, failures)
            if spent is not None:
                self.progress.notice(f"the budget is spent: {spent}")
                break
        self._hold_task_code()
        if self.best is not None and self.config.final_seeds:
            self._train_finals(self.best)
            self._hold_task_code()
        status: Literal["finished", "spent"] = "finished" if spent is None else "spent"
        return Outcome(status, self.best, spent, tuple(self.summary.finals))

    def save(self, status: str) -> None:
        """Leaderboard and summary, as things stand."""
        self.summary.status = status
        self.summary.best = self.best.id if self.best is not None else None
        self.store.save_leaderboard(list(self.candidates.values()))
        self.store.write_json(self.store.path / "summary.json", self.summary.to_json())

    def _hold_task_code(self) -> None:
        """Refuse to go on once the task is edited: every training imports it anew."""
        change = changed_file(self.config.task, self._task_files, digests(self.config.task))
        if change is not None:
            raise RunError(
                f"{change} since the search in {self.store.path} began: choose another run=, or "
                "put the file back and delete the trainings since then (folders seed_*)"
            )

    def _begin(self) -> None:
        """The rewards that need no proposer: the task's own, and the one to begin with."""
        task, folder = self.config.task, self.store.folder
        if self.config.baselines:
            for name, source in zip(BASELINES, (task.human_reward, task.sparse_reward)):
                self.store.write_text(folder(name) / "reward.py", source)
                candidate = Candidate(name, 0, source=source)
                self.note(candidate)
                self._steady.append(Entry(candidate, folder(name)))
        if self.config.init is None:
            return
        given = Candidate(INIT, 0, source=reward_of(self.config.init))
        before = next((c for c in self.store.candidates() if c.id == INIT), given)
        if before.source != given.source:
            raise RunError(
                f"init={self.config.init} changed since the search in {self.store.path} began: "
                f"choose another run=, or put the code back ({folder(INIT) / 'reward.py'})"
            )
        candidate = check_candidate(self.store, given, self.parts.check)
        if candidate.status == "refused":
            raise ConfigError(f"init={self.config.init}: {candidate.reason}")
        self.note(candidate)
        self._steady.append(Entry(candidate, folder(INIT)))
        self.progress.begin(
            "the rewards to begin with", [entry.candidate.id for entry in self._steady]
        )
        self._train([], 0)
        self._choose([INIT])

    def _iterate(
        self, iteration: int, failures: Sequence[Candidate]
    ) -> tuple[list[Candidate], str | None]:
        """One iteration; its useless candidates, and why the budget ended it."""
        config = self.config
        names = [candidate_id(iteration, sample) for sample in range(config.samples)]
        waiting = [entry.candidate.id for entry in self._steady]
        self.progress.begin(f"iteration {iteration} of {config.iterations}", [*waiting, *names])
        feedback = self.store.begin_iteration(iteration, words_of(config.feedback_file))
        parent = self._parent()

        def question(useless: Sequence[Candidate]) -> tuple[Message, ...]:
            return build_messages(
                config.task,
                PromptConfig(show_source=config.show_source),
                parent=parent,
                failures=[*useless, *failures],
                feedback=feedback,
            )

        samples = tuple(range(config.samples))
        self._tell_cost(Request(iteration, samples, 0, question(()), parent))
        written = self._writer.write(iteration, config.samples, question, parent)
        for candidate in written.candidates:
            self.note(candidate)
        entries = [
            Entry(candidate, self.store.folder(candidate.id))
            for candidate in written.candidates
            if candidate.status == "waiting"
        ]
        self._train(entries, iteration)
        if written.spent is None:
            # With a larger budget there will be more of them, and the race may end otherwise.
            for entry in entries:
                entry.remove_states()
        now = [self.candidates[candidate.id] for candidate in written.candidates]
        self._choose([candidate.id for candidate in now])
        failed = [candidate for candidate in now if candidate.status in ("refused", "failed")]
        unlucky = [c for c in failed if c.status == "failed" and NOT_BUILT in (c.reason or "")]
        if unlucky:
            self.progress.notice(
                f"iteration {iteration}: {len(unlucky)} of {len(now)} rewards failed by no fault "
                f"of theirs, and the next run tries them again: {unlucky[0].reason}"
            )
        useless = [candidate for candidate in failed if candidate not in unlucky]
        if now and len(useless) == len(now):
            self.progress.say(
                f"iteration {iteration}: none of {len(now)} rewards could be trained; "
                "the next question says why"
            )
        return useless, written.spent

    def _tell_cost(self, request: Request) -> None:
        """What the rest may cost, before the first answer that has to be paid."""
        proposer = self.parts.proposer
        keys = [(request.iteration, sample, 0) for sample in request.samples]
        if self._cost_told or all(proposer.transcript.get(key) for key in keys):
            return
        self._cost_told = True
        left = self.config.iterations - request.iteration + 1
        self.progress.notice(proposer.expected_cost(request, left))

    def _train(self, entries: Sequence[Entry], iteration: int) -> None:
        """Train the candidates of an iteration, and what waits beside them."""
        steady, self._steady = self._steady, []
        self.progress.expect(self._steps_left(iteration, len(entries), len(steady)))
        self.parts.rounds.train(entries, self.parts.search_plan, steady, told=self.note)
        self._count(iteration, entries)
        self._count(0, steady)
        for entry in steady:
            entry.remove_states()
        self.save("running")

    def _count(self, iteration: int, entries: Sequence[Entry]) -> None:
        before = self.summary.weaker_sandbox
        self.summary.spent(iteration, entries)
        weaker = self.summary.weaker_sandbox
        if weaker not in (None, before):
            self.progress.notice(
                f"warning: some trainings ran in a weaker sandbox than this machine's: {weaker}"
            )

    def _steps_left(self, iteration: int, entries: int, steady: int) -> int:
        """Environment steps from here on if nobody fails.

        Args:
            entries, steady: candidates of this iteration that race, and those that do not.
        """
        config, search, final = self.config, self.parts.search_plan, self.parts.final_plan

        def race(candidates: int) -> int:
            steps = planned_steps(config.racing, candidates, search.checkpoints)
            return steps * len(search.seeds)

        later = (config.iterations - iteration) * race(config.samples)
        last = (1 + len(BASELINES) * config.baselines) * final.steps
        return race(entries) + steady * search.steps + later + last

    def _choose(self, names: Sequence[str]) -> None:
        """Keep the best of all; note what the next question says of it."""
        for candidate in (self.candidates[name] for name in names):
            if candidate.status != "trained" or candidate.fitness is None:
                continue
            if self.best is None or candidate.fitness > _fitness(self.best):
                self.best = candidate
        best = self.best
        if best is None:
            return
        self.store.write_text(self.store.best_reward, best.source or "")
        self.summary.reflections[best.iteration] = reflect(best.curves).text
        self.progress.say(f"best so far: {best.id}, fitness {best.fitness:.3f}")
        self.save("running")

    def _train_finals(self, best: Candidate) -> None:
        """The best and the baselines, with more seeds."""
        chosen = [best, *(self.candidates[name] for name in BASELINES if name in self.candidates)]
        plan = self.parts.final_plan
        entries = [
            Entry(Candidate(c.id, c.iteration, source=c.source), self.store.final_folder(c.id))
            for c in chosen
        ]
        seeds = len(plan.seeds)
        title = f"once more, with {seeds} seed{'s' if seeds > 1 else ''} of their own"
        self.progress.begin(title, [candidate.id for candidate in chosen])
        self.progress.expect(len(entries) * plan.steps)
        self.parts.rounds.train([], plan, entries, told=self._note_final)
        self._count(FINAL, entries)
        for entry in entries:
            entry.remove_states()
        self.summary.finals = [self._final(entry) for entry in entries]

    def _final(self, entry: Entry) -> FinalResult:
        c = entry.candidate
        done = [entry.results[k][-1].status == "done" for k in sorted(entry.results)]
        runs = [run for run, is_done in zip(entry.points, done, strict=True) if is_done]
        seeds = tuple(self.parts.rounds.fitness([run])[0] for run in runs)
        return FinalResult(c.id, c.status, c.reason, c.fitness, c.low, c.high, seeds)

    def _note_final(self, candidate: Candidate) -> None:
        self.progress.state(candidate.id, candidate.status, candidate.reason or "")

    def note(self, candidate: Candidate) -> None:
        """More is known of a candidate."""
        self.candidates[candidate.id] = candidate
        self.store.save_candidate(candidate)
        self.progress.state(candidate.id, candidate.status, candidate.reason or "")

    def _parent(self) -> Parent | None:
        best = self.best
        if best is None or best.fitness is None or best.source is None:
            return None
        return Parent(best.id, best.source, best.fitness, best.curves)


def _fitness(candidate: Candidate) -> float:
    assert candidate.fitness is not None
    return candidate.fitness


def reward_of(path: str) -> str:
    """The reward to begin from; raises ConfigError where the file holds none."""
    try:
        return read_reward(path)
    except (ConfigError, NoCode) as error:
        raise ConfigError(f"init={path}: {str(error).removeprefix(f'{path}: ')}") from error


def words_of(path: str | None) -> str | None:
    """A person's words; None without a file, or with an empty one."""
    if path is None:
        return None
    try:
        return Path(path).read_text(encoding="utf-8").strip() or None
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"feedback_file={path}: {reason}") from error
