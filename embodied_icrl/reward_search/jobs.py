"""One stretch of one training, from reward code to fitness.

Training and evaluation are two processes, and fitness comes from the second alone.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from embodied_icrl.common.config import option
from embodied_icrl.common.errors import ConfigError
from embodied_icrl.reward_search.algorithms import rollout_steps, steps_done
from embodied_icrl.reward_search.evaluation_child import evaluate_weights, task_readable
from embodied_icrl.reward_search.findings import printable
from embodied_icrl.reward_search.job_files import (
    finished,
    new_folders,
    plain,
    previous_stretch,
    remove_state,
    stretch_folder,
    take_weights,
    weights_file,
    write_result,
)
from embodied_icrl.reward_search.records import FitnessPoint, Job, JobResult
from embodied_icrl.reward_search.sandbox import Layers, Limits, available_layers, run_sandboxed
from embodied_icrl.reward_search.training_report import REPORT_FILE, STATE_FILE, TrainingReport
from embodied_icrl.reward_search.untrusted_files import folder_size, remove_untrusted

__all__ = [
    "Progress",
    "Stopped",
    "TrainingLimits",
    "finished",
    "previous_stretch",
    "remove_state",
    "run_job",
    "stretch_folder",
    "weights_file",
]

LOOK_S = 0.25  # between two looks at how far a training is


class Stopped(Exception):
    """A job was told to stop; it is not finished and will be run again."""


@dataclass(frozen=True)
class Progress:
    """How far a training is: environment steps since its very beginning, and steps a second."""

    step: int
    steps_per_s: float


@dataclass(frozen=True)
class TrainingLimits:
    """What one stretch of a training may use.

    Time is generous, as the machine may be busy: honest trainings never reach it, and those
    that make no step are ended sooner.
    """

    start_s: float = option(120.0, "seconds of wall clock beside the steps")
    s_per_step: float = option(0.05, "seconds of wall clock per environment step")
    cpu_start_s: int = option(60, "seconds of processor time beside the steps")
    cpu_s_per_step: float = option(0.03, "seconds of processor time per environment step")
    stall_s: float = option(120.0, "seconds without a step, at most")
    memory_mib: int = option(2048, "memory in MiB")
    file_mib: int = option(512, "size of a file in MiB")
    disk_mib: int = option(1024, "size of all files of a stretch in MiB")

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            if getattr(self, field.name) <= 0:
                raise ConfigError(f"limits.{field.name}={getattr(self, field.name)}: not positive")

    def training(self, steps: int) -> Limits:
        """For a child that trains so many environment steps."""
        return Limits(
            wall_s=self.start_s + self.s_per_step * steps,
            cpu_s=int(self.cpu_start_s + self.cpu_s_per_step * steps),
            memory_mib=self.memory_mib,
            file_mib=self.file_mib,
        )

    def evaluation(self, episodes: int) -> Limits:
        """For a child that measures policies in so many episodes, all of them together."""
        return self.training(1000 * episodes)  # no episode of a task is much longer than that


def run_job(
    job: Job,
    limits: TrainingLimits | None = None,
    layers: Layers | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    stop: threading.Event | None = None,
) -> JobResult:
    """Train and evaluate, or return what was found when the same job was run before.

    Args:
        layers: of the sandbox; without it, all that this machine has.
        on_progress: called about twice a second while it trains, and at its end.
        stop: when set, the child processes are killed and `Stopped` is raised.

    Raises:
        Stopped: see `stop`.
        RunError: the stretch before this one is missing, or the folder can't be used.
        ConfigError: the job's algorithm or hyperparameters make no sense.
        SandboxError: the sandbox could not be set up.
    """
    before = finished(job)
    if before is not None:
        return before
    limits = limits or TrainingLimits()
    layers = layers if layers is not None else available_layers()
    start = time.monotonic()
    folder, stretch = stretch_folder(job), previous_stretch(job)
    previous = stretch / "work" if stretch is not None else None
    work = new_folders(folder, layers)
    watch = _Watch(job, work, limits, on_progress, stop)
    reason, deterministic = _train(job, work, previous, limits, layers, watch)
    report = watch.read_to_the_end()
    weights, lacking = take_weights(job, work, folder / "weights")
    points: tuple[FitnessPoint, ...] = ()
    if weights:
        points, other, same = _evaluate(job, weights, limits, layers, watch)
        lacking, deterministic = other or lacking, deterministic and same
    reason = reason or report.problem or lacking
    result = JobResult(
        status="done" if reason is None else "failed",
        reason=reason,
        deterministic=deterministic,
        env_steps=_env_steps(job, report.step, reason is None),
        fitness=points,
        components=report.components(job.checkpoints[: len(points)]),
        total=report.totals(job.checkpoints[: len(points)]),
        wall_s=round(time.monotonic() - start, 3),
    )
    write_result(job, result)
    if previous is not None:
        remove_untrusted(previous / STATE_FILE)  # large, and of no more use
    return result


def _train(
    job: Job,
    work: Path,
    previous: Path | None,
    limits: TrainingLimits,
    layers: Layers,
    watch: _Watch,
) -> tuple[str | None, bool]:
    """Why the training failed, or None; and whether it would end the same again."""
    payload = {
        **plain(job),
        "work": str(work),
        "before": str(previous) if previous is not None else None,
    }
    readable = task_readable(job.task_paths)
    readable += [str(previous)] if previous is not None else []
    outcome = run_sandboxed(
        "embodied_icrl.reward_search.training_child:train",
        payload,
        limits=limits.training(job.last_step - job.first_step),
        layers=layers,
        readable=readable,
        writable=[str(work)],
        on_poll=watch,
    )
    if outcome.reason is not None:
        return outcome.reason, outcome.deterministic
    told = outcome.result if isinstance(outcome.result, Mapping) else {}
    reason = told.get("reason", 0)
    if reason is not None and not isinstance(reason, str):
        return "the training's own process reported something else", True
    same = told.get("by_clock") is not True
    return (printable(reason) or "failed without a reason" if reason is not None else None), same


def _evaluate(
    job: Job, weights: Mapping[int, str], limits: TrainingLimits, layers: Layers, watch: _Watch
) -> tuple[tuple[FitnessPoint, ...], str | None, bool]:
    episodes = dict(zip(job.checkpoints, job.episodes, strict=True))
    return evaluate_weights(
        weights,
        task=job.task,
        algorithm=job.algorithm,
        hyperparameters=job.hyperparameters,
        episodes=episodes,
        phase=job.phase,
        task_paths=job.task_paths,
        limits=limits.evaluation(sum(episodes[step] for step in weights)),
        layers=layers,
        on_poll=watch.stop_only,
    )


class _Watch:
    """Looks at a training from outside while it runs."""

    def __init__(
        self,
        job: Job,
        work: Path,
        limits: TrainingLimits,
        on_progress: Callable[[Progress], None] | None,
        stop: threading.Event | None,
    ) -> None:
        self.report = TrainingReport(work / REPORT_FILE, job)
        self._work, self._limits = work, limits
        self._on_progress, self._stop = on_progress, stop
        self._next = time.monotonic() + LOOK_S
        self._moved = time.monotonic()
        self._first: tuple[int, float] | None = None

    def __call__(self) -> str | None:
        """A reason to end the training."""
        self.stop_only()
        now = time.monotonic()
        if now < self._next:
            return None
        self._next = now + LOOK_S
        if folder_size(self._work) > self._limits.disk_mib * 2**20:
            return f"more than {self._limits.disk_mib} MiB of files, or a great many"
        if self.report.read_on():
            self._moved = now
            self._tell(now)
        if now - self._moved > self._limits.stall_s:
            return f"no step within {self._limits.stall_s:g} s"
        return None

    def read_to_the_end(self) -> TrainingReport:
        """What the training reported in all; a short one is over before it was looked at."""
        if self.report.read_on():
            self._tell(time.monotonic())
        return self.report

    def stop_only(self) -> None:
        """Raises Stopped if the job was told to stop."""
        if self._stop is not None and self._stop.is_set():
            raise Stopped("stopped")

    def _tell(self, now: float) -> None:
        step = self.report.step
        if self._first is None:
            self._first = (step, now)
        first_step, first_time = self._first
        if self._on_progress is not None:
            rate = (step - first_step) / (now - first_time) if now > first_time else 0.0
            self._on_progress(Progress(step, rate))


def _env_steps(job: Job, reported: int, done: bool) -> int:
    rollout = rollout_steps(job.algorithm, job.hyperparameters, job.n_envs)
    first, last = steps_done(job.first_step, rollout), steps_done(job.last_step, rollout)
    return last - first if done else min(max(reported - first, 0), last - first)
