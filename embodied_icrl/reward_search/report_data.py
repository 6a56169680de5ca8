"""What the report of a search shows: plain data, and the few numbers that follow from it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from embodied_icrl.reward_search.records import BASELINES, Candidate
from embodied_icrl.reward_search.report_score import Score, human_normalised, score


@dataclass(frozen=True)
class Result:
    """Fitness of one reward after its final trainings.

    Attributes:
        id: of the candidate.
        mean, low, high: over the seeds, with a 95% interval (None with one seed); None where one
            of the trainings failed.
        per_seed: one fitness per seed whose training finished.
        status, reason: "trained", or "failed" and why.
    """

    id: str
    mean: float | None
    low: float | None = None
    high: float | None = None
    per_seed: tuple[float, ...] = ()
    status: str = "trained"
    reason: str | None = None


@dataclass(frozen=True)
class Cost:
    """What one iteration spent; iteration 0 is the baselines, `FINAL` the last trainings.

    Attributes:
        requests: to a language model, failed ones included.
        prompt_tokens, completion_tokens: as the server counted them.
        money: None where no price is known.
        env_steps: environment steps of all trainings.
        wall_s: seconds of work, summed over the workers.
    """

    iteration: int
    requests: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    money: float | None = None
    env_steps: int = 0
    wall_s: float = 0.0


@dataclass(frozen=True)
class Video:
    """A film of a trained policy.

    Attributes:
        path: of the MP4.
        caption: what it shows.
    """

    path: Path
    caption: str


@dataclass(frozen=True)
class Correlation:
    """How two rewards agree on the same states.

    Attributes:
        pearson, spearman: None where one of the rewards is constant.
        states: how many there were.
        origin: which policies visited the states.
    """

    pearson: float | None
    spearman: float | None
    states: int
    origin: str


@dataclass(frozen=True)
class ReportData:
    """Everything in the report of one search. All texts may be untrusted.

    Attributes:
        task, description: name and sentence of the task.
        proposer: who wrote the rewards, like "openai: gpt-4o" or "terms".
        language_model: whether a language model did; never so for `terms`.
        sandbox: the layers in force, as `Layers.name` says.
        candidates: all of them, with the baselines `human` and `sparse` and perhaps `init`.
        best: id of the best candidate so far.
        finals: final trainings, of the best and of baselines, failed ones included.
        terms: what the best reward of `terms` reached on this task in final trainings, where that
            is known.
        no_terms: why it is not known, where another search was named.
        costs: one entry per iteration.
        money_budget: of the costs; None without a budget.
        reflections: what writers were told of the best reward, by the iteration it came from.
        feedback: a person's words, by the iteration that they were given to.
        not_deterministic: ids whose outcome a clock decided: a repetition may end otherwise.
        videos: of the best reward and of the human one.
        no_video: why there is none.
        video_note: what the pictures lack, and how to get better ones.
        correlation: of the best reward with the human one.
        no_correlation: why it is not known.
        settings: the configuration, as plain data.
        command: what to run to reproduce the search.
        version: of this package.
        status: of the search.
        fitness_name: what fitness is, in a phrase.
    """

    task: str
    description: str
    proposer: str
    language_model: bool
    sandbox: str
    candidates: tuple[Candidate, ...]
    best: str | None = None
    finals: tuple[Result, ...] = ()
    terms: Result | None = None
    no_terms: str = ""
    costs: tuple[Cost, ...] = ()
    money_budget: float | None = None
    reflections: Mapping[int, str] = field(default_factory=dict)
    feedback: Mapping[int, str] = field(default_factory=dict)
    not_deterministic: frozenset[str] = frozenset()
    videos: tuple[Video, ...] = ()
    no_video: str = ""
    video_note: str = ""
    correlation: Correlation | None = None
    no_correlation: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    command: str = ""
    version: str = ""
    status: Literal["running", "finished", "stopped"] = "finished"
    fitness_name: str = "the task's own measure of success"

    def candidate(self, name: str | None) -> Candidate | None:
        """The candidate of that id; None if there is none."""
        return next((c for c in self.candidates if c.id == name), None)

    def trained_fitness(self, name: str) -> float | None:
        """Fitness of a candidate that was trained to the end; None for others."""
        candidate = self.candidate(name)
        is_trained = candidate is not None and candidate.status == "trained"
        return candidate.fitness if candidate is not None and is_trained else None

    @property
    def written(self) -> tuple[Candidate, ...]:
        """The candidates of the proposer: without baselines and the reward begun from."""
        return tuple(c for c in self.candidates if c.iteration > 0)


@dataclass(frozen=True)
class Headline:
    """The numbers of the first lines, all measured in the same way.

    Attributes:
        results: of the best, human and sparse reward, as far as they are known, by id.
        final: whether they come from final trainings, rather than from the search's short ones.
        normalised: human-normalised score of the best; None without baselines that differ.
        failed: final trainings of the three that failed.
    """

    results: Mapping[str, Result]
    final: bool
    normalised: Score | None
    failed: tuple[Result, ...] = ()


def headline(data: ReportData) -> Headline:
    """The best reward against the baselines: final trainings where all three have one."""
    wanted = [name for name in (data.best, *BASELINES) if name is not None]
    ended = [result for result in data.finals if result.id in wanted]
    finals = {result.id: result for result in ended if result.status == "trained"}
    searched = {
        c.id: Result(c.id, c.fitness, c.low, c.high)
        for c in data.candidates
        if c.id in wanted and c.status == "trained" and c.fitness is not None
    }
    final = data.best in finals and finals.keys() >= searched.keys()
    results = finals if final else searched
    ordered = {name: results[name] for name in wanted if name in results}
    failed = tuple(result for result in ended if result.status != "trained")
    return Headline(ordered, final, _normalised(ordered, data.best), failed)


def lineage(data: ReportData, name: str | None) -> list[Candidate]:
    """A candidate and those it was made from, the oldest first."""
    chain: list[Candidate] = []
    candidate = data.candidate(name)
    while candidate is not None and candidate not in chain:
        chain.append(candidate)
        candidate = data.candidate(candidate.parent)
    return chain[::-1]


def failures(candidates: Sequence[Candidate]) -> dict[tuple[str, str], list[Candidate]]:
    """Refused, failed and stopped candidates by status and kind of reason, the most first.

    The kind of a reason is its text up to the first colon, with numbers left out.
    """
    groups: dict[tuple[str, str], list[Candidate]] = {}
    for candidate in candidates:
        if candidate.status in ("refused", "failed", "stopped"):
            kind = _kind(candidate.reason or "no reason was recorded")
            groups.setdefault((candidate.status, kind), []).append(candidate)
    return dict(sorted(groups.items(), key=lambda item: (-len(item[1]), item[0])))


def _kind(reason: str) -> str:
    head = re.sub(r", (line \d+|whole file)$", "", reason.split(":")[0][:120])
    return re.sub(r"\d+(\.\d+)?", "N", head)


def _normalised(results: Mapping[str, Result], best: str | None) -> Score | None:
    if best is None or any(name not in results for name in (best, *BASELINES)):
        return None
    three = [results[name] for name in (best, *BASELINES)]
    if all(result.per_seed for result in three):
        return score(*(result.per_seed for result in three))
    mean = human_normalised(*(result.mean for result in three))
    return None if mean is None else Score(mean, reason="no interval: that takes final trainings")
