"""The training of many candidates side by side: rung after rung, the hopeless ones stopped."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from embodied_icrl.common.seeds import derived_seed
from embodied_icrl.manipulation.task import Budget
from embodied_icrl.reward_search.findings import printable
from embodied_icrl.reward_search.jobs import Progress, finished, remove_state
from embodied_icrl.reward_search.launchers import Launcher
from embodied_icrl.reward_search.records import (
    CURVES,
    Candidate,
    FitnessPoint,
    Job,
    JobResult,
    Phase,
)
from embodied_icrl.reward_search.search_progress import SearchProgress


@dataclass(frozen=True)
class Plan:
    """What all trainings of a round have in common.

    Attributes:
        task, task_paths, phase: as in `Job`.
        budget: of each training.
        seeds: of the trainings of one candidate.
        checkpoints: environment steps at which fitness is measured; the last is the budget's end.
        rungs: environment steps at which candidates are compared; the last is the budget's end.
        episodes: number of episodes of each measurement, in the order of `checkpoints`.
    """

    task: Mapping[str, Any]
    task_paths: tuple[str, ...]
    budget: Budget
    seeds: tuple[int, ...]
    checkpoints: tuple[int, ...]
    rungs: tuple[int, ...]
    episodes: tuple[int, ...]
    phase: Phase

    @property
    def steps(self) -> int:
        """Environment steps of all trainings of one candidate, racing left out."""
        return len(self.seeds) * self.budget.env_steps

    def job(self, entry: Entry, k: int, first: int, last: int) -> Job:
        """A stretch of the training of `entry` with its seed number `k`."""
        measured = [
            (step, count)
            for step, count in zip(self.checkpoints, self.episodes, strict=True)
            if first < step <= last
        ]
        return Job(
            candidate=entry.candidate.id,
            source=entry.candidate.source or "",
            task=self.task,
            algorithm=self.budget.algorithm,
            n_envs=self.budget.n_envs,
            seed=self.seeds[k],
            first_step=first,
            last_step=last,
            checkpoints=tuple(step for step, _ in measured),
            folder=str((entry.folder / f"seed_{k}").resolve()),
            episodes=tuple(count for _, count in measured),
            phase=self.phase,
            hyperparameters=self.budget.hyperparameters,
            task_paths=self.task_paths,
        )


@dataclass
class Entry:
    """A candidate in training.

    Attributes:
        candidate: as it is known so far.
        folder: its trainings lie in `seed_K` there.
        results: by number of the seed, stretch after stretch.
        last: by number of the seed, the last stretch.
    """

    candidate: Candidate
    folder: Path
    results: dict[int, list[JobResult]] = field(default_factory=dict)
    last: dict[int, Job] = field(default_factory=dict)

    def remove_states(self) -> None:
        """Free the disk of what only further training would need."""
        for job in self.last.values():
            remove_state(job)

    @property
    def points(self) -> list[list[FitnessPoint]]:
        """By seed, fitness along training."""
        return [
            [point for stretch in self.results[k] for point in stretch.fitness]
            for k in sorted(self.results)
        ]

    @property
    def deterministic(self) -> bool:
        """Whether no clock had a say in it."""
        return all(stretch.deterministic for run in self.results.values() for stretch in run)

    @property
    def env_steps(self) -> int:
        """Environment steps of all its trainings."""
        return sum(stretch.env_steps for run in self.results.values() for stretch in run)

    @property
    def wall_s(self) -> float:
        """Seconds of work of all its trainings."""
        return sum(stretch.wall_s for run in self.results.values() for stretch in run)


# From fitness along training, by seed, to mean, low and high; low and high are None without one.
Fitness = Callable[[Sequence[Sequence[FitnessPoint]]], tuple[float, float | None, float | None]]
# From fitness by candidate at a rung to the candidates that go on.
Survivors = Callable[[Mapping[str, float]], Sequence[str]]


class Rounds:
    """Trains rounds of candidates."""

    def __init__(
        self, launcher: Launcher, fitness: Fitness, survivors: Survivors, progress: SearchProgress
    ) -> None:
        self.fitness = fitness
        self._launcher = launcher
        self._survivors = survivors
        self._progress = progress

    def train(
        self,
        entries: Sequence[Entry],
        plan: Plan,
        steady: Sequence[Entry] = (),
        *,
        told: Callable[[Candidate], None],
    ) -> None:
        """Train all; afterwards each is "trained", "stopped" or "failed".

        Args:
            entries: compared at the rungs.
            steady: trained beside them to the end, whatever they reach.
            told: called with a candidate when its status changes.
        """
        seeds, alive, begin = range(len(plan.seeds)), list(entries), 0
        last = plan.rungs[-1]
        # The long ones first, so that none is left over at the end.
        jobs = [(entry, k, plan.job(entry, k, 0, last)) for entry in steady for k in seeds]
        for end in plan.rungs:
            jobs += [(entry, k, plan.job(entry, k, begin, end)) for entry in alive for k in seeds]
            if jobs:
                self._run(jobs, told)
            alive = [entry for entry in alive if entry.candidate.status == "waiting"]
            if _equally_fit(alive):
                self._tell_tie(alive, end, is_last=end == last)
            if end != last:
                alive = self._race(alive, end, told)
            begin, jobs = end, []
        for entry in [*alive, *steady]:
            if entry.candidate.status == "waiting":
                _change(entry, told, status="trained")

    def _run(
        self, jobs: Sequence[tuple[Entry, int, Job]], told: Callable[[Candidate], None]
    ) -> None:
        owners = {job.folder: (entry, k) for entry, k, job in jobs}
        before = {job.folder: finished(job) for _, _, job in jobs}

        def moved(job: Job, progress: Progress) -> None:
            self._progress.moved(job.candidate, job.folder, progress.step, progress.steps_per_s)

        def done(job: Job, result: JobResult) -> None:
            entry, k = owners[job.folder]
            entry.results.setdefault(k, []).append(result)
            entry.last[k] = job
            self._measure(entry)
            self._progress.trained(
                job.candidate,
                job.folder,
                result.env_steps,
                entry.candidate.fitness,
                # Not so where the launcher's limits had it run again.
                before=result == before[job.folder],
            )

        for entry, _, _ in jobs:
            self._progress.state(entry.candidate.id, "training")
        self._launcher.run([job for _, _, job in jobs], moved, done)
        for entry in {entry.candidate.id: entry for entry, _, _ in jobs}.values():
            ends = [entry.results[k][-1] for k in sorted(entry.results)]
            reasons = [end.reason for end in ends if end.status == "failed"]
            if reasons:
                reason = printable(reasons[0] or "without a reason")
                _change(entry, told, status="failed", reason=reason)

    def _race(
        self, alive: Sequence[Entry], step: int, told: Callable[[Candidate], None]
    ) -> list[Entry]:
        """Stop those that the others leave behind."""
        reached = {e.candidate.id: e.candidate.fitness or 0.0 for e in alive}
        kept = set(self._survivors(reached))
        ranked = sorted(reached, key=lambda name: -reached[name])
        equal = " equally fit" if _equally_fit(alive) else ""
        for entry in alive:
            if entry.candidate.id not in kept:
                place = 1 + ranked.index(entry.candidate.id)
                reason = f"by racing: place {place} of {len(alive)}{equal} after {step} steps"
                _change(entry, told, status="stopped", reason=reason)
        return [entry for entry in alive if entry.candidate.id in kept]

    def _tell_tie(self, alive: Sequence[Entry], step: int, *, is_last: bool) -> None:
        fitness = alive[0].candidate.fitness or 0.0
        change = "raise quick.env_steps" + ("" if is_last else " or set racing=none")
        self._progress.notice(
            f"all {len(alive)} rewards are equally fit ({fitness:.3f}) after {step} steps: nothing "
            "tells them apart, and the first count as the best; if that is too early for the "
            f"task, {change} in another run"
        )

    def _measure(self, entry: Entry) -> None:
        points = [run for run in entry.points if run]
        fitness = low = high = None
        if points:
            fitness, low, high = self.fitness(points)
        entry.candidate = replace(
            entry.candidate,
            fitness=fitness,
            low=low,
            high=high,
            env_steps=entry.env_steps,
            curves=curves(entry.results),
        )


def _equally_fit(entries: Sequence[Entry]) -> bool:
    """Whether there are several, and no measurement tells one from another."""
    return len(entries) > 1 and len({entry.candidate.fitness for entry in entries}) == 1


def _change(entry: Entry, told: Callable[[Candidate], None], **changes: Any) -> None:
    entry.candidate = replace(entry.candidate, **changes)
    told(entry.candidate)


def curves(results: Mapping[int, Sequence[JobResult]]) -> dict[str, tuple[float, ...]]:
    """Values along training, means over the seeds: steps, fitness, total, and every component.

    As long as the shortest training; components that some stretch lacks are left out.

    Args:
        results: by number of the seed, stretch after stretch.
    """
    runs = [results[k] for k in sorted(results)]
    points = [[point for stretch in run for point in stretch.fitness] for run in runs]
    found: dict[str, list[list[float]]] = {
        "step": [[float(point.step) for point in run] for run in points],
        "fitness": [[point.mean for point in run] for run in points],
        "total": [[value for stretch in run for value in stretch.total] for run in runs],
    }
    stretches = [stretch for run in runs for stretch in run if stretch.fitness]
    for name in stretches[0].components if stretches else ():
        if all(name in stretch.components for stretch in stretches):
            key = f"{name} (component)" if name in CURVES else name
            found[key] = [
                [value for stretch in run for value in stretch.components.get(name, ())]
                for run in runs
            ]
    return {name: _mean(series) for name, series in found.items()}


def _mean(series: Sequence[Sequence[float]]) -> tuple[float, ...]:
    length = min(map(len, series), default=0)
    return tuple(float(np.mean([run[i] for run in series])) for i in range(length))


def training_seed(seed: int, phase: Phase, number: int) -> int:
    """The seed of a training: the same for all candidates, so that luck is shared."""
    return derived_seed(seed, "training", phase, number) % 2**31


def steps_of(total: int, count: int) -> tuple[int, ...]:
    """`count` environment steps, evenly spaced; the last is `total`."""
    return tuple(sorted({max(1, round(total * (i + 1) / count)) for i in range(count)}))
