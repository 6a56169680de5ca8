"""What a search has to tell beside its candidates: plain data for its report, in `summary.json`."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from embodied_icrl.reward_search.rounds import Entry
from embodied_icrl.reward_search.sandbox import weakest


@dataclass(frozen=True)
class FinalResult:
    """Fitness of one reward after its trainings at the end.

    Attributes:
        id: of the candidate.
        status, reason: as in `Candidate`.
        fitness, low, high: over the seeds, with a 95% interval.
        per_seed: one fitness per seed whose training finished.
    """

    id: str
    status: str
    reason: str | None
    fitness: float | None
    low: float | None
    high: float | None
    per_seed: tuple[float, ...]


@dataclass
class Work:
    """What the trainings of one iteration took."""

    env_steps: int = 0
    wall_s: float = 0.0


@dataclass
class Summary:
    """Gathered while the search runs.

    Attributes:
        status: "running", "finished", "spent" or "stopped".
        best: id of the best reward.
        work: by iteration; 0 is the baselines, `FINAL` the trainings at the end.
        finals: the trainings at the end.
        reflections: what the writer was told of the best reward, by the iteration it came from.
        not_deterministic: ids whose outcome a clock had a say in.
        sandbox: the layers in force on the machine of the search.
        sandboxes: those that trainings ran in, wherever that was.
        command: what started the search.
        proposer, model, is_language_model: who wrote the rewards.
    """

    status: str = "running"
    best: str | None = None
    work: dict[int, Work] = field(default_factory=dict)
    finals: list[FinalResult] = field(default_factory=list)
    reflections: dict[int, str] = field(default_factory=dict)
    not_deterministic: set[str] = field(default_factory=set)
    sandbox: str = ""
    sandboxes: set[str] = field(default_factory=set)
    command: str = ""
    proposer: str = ""
    model: str | None = None
    is_language_model: bool = False

    def spent(self, iteration: int, entries: Iterable[Entry]) -> None:
        """Count the trainings of these under an iteration."""
        for entry in entries:
            work = self.work.setdefault(iteration, Work())
            work.env_steps += entry.env_steps
            work.wall_s += entry.wall_s
            if not entry.deterministic:
                self.not_deterministic.add(entry.candidate.id)
            stretches = [stretch for run in entry.results.values() for stretch in run]
            self.sandboxes |= {stretch.sandbox for stretch in stretches} - {""}

    @property
    def weaker_sandbox(self) -> str | None:
        """The weakest layers that a training ran in, where the search's own are stronger."""
        found = weakest([self.sandbox, *sorted(self.sandboxes)])
        return found if found != self.sandbox else None

    @property
    def sandbox_line(self) -> str:
        """The weakest layers in force, for people."""
        weaker = self.weaker_sandbox
        return f"{weaker} (a worker's; {self.sandbox} here)" if weaker else self.sandbox

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        data = dataclasses.asdict(self)
        data["not_deterministic"] = sorted(self.not_deterministic)
        data["sandboxes"] = sorted(self.sandboxes)
        data["finals"] = [{**item, "per_seed": list(item["per_seed"])} for item in data["finals"]]
        for name in ("work", "reflections"):
            data[name] = {str(key): value for key, value in data[name].items()}
        return data


def parse_summary(data: Any) -> Summary:
    """A summary from the content of its file; an empty one where that holds something else."""
    if not isinstance(data, Mapping):
        return Summary()
    try:
        return Summary(
            **{
                **data,
                "work": {int(key): Work(**value) for key, value in data["work"].items()},
                "finals": [
                    FinalResult(**{**item, "per_seed": tuple(item["per_seed"])})
                    for item in data["finals"]
                ],
                "reflections": {int(key): text for key, text in data["reflections"].items()},
                "not_deterministic": set(data["not_deterministic"]),
                "sandboxes": set(data.get("sandboxes", ())),
            }
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        return Summary()
