"""One stretch of one training, from reward code to fitness.

Training and evaluation are two processes, and fitness comes from the second alone.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from embodied_icrl.reward_search.algorithms import rollout_steps, steps_done
from embodied_icrl.reward_search.evaluation_child import evaluate_weights, task_readable
from embodied_icrl.reward_search.findings import printable
from embodied_icrl.reward_search.job_files import (
    again_folder,
    earlier_stretches,
    finished,
    new_folders,
    plain,
    previous_stretch,
    remove_state,
    stretch_folder,
    take_weights,
    trained_before,
    weights_file,
    write_result,
)
from embodied_icrl.reward_search.records import FitnessPoint, Job, JobResult, LimitKind
from embodied_icrl.reward_search.sandbox import (
    Layers,
    available_layers,
    run_sandboxed,
    tells_of_memory,
)
from embodied_icrl.reward_search.training_limits import TrainingLimits
from embodied_icrl.reward_search.training_report import REPORT_FILE, STATE_FILE, TrainingReport
from embodied_icrl.reward_search.untrusted_files import folder_size, remove_untrusted

__all__ = [
    "Progress",
    "Stopped",
    "TrainingLimits",
    "earlier_stretches",
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
class _End:
    """How a part of a job ended: well without a reason; the rest is as in `JobResult`."""

    reason: str | None = None
    deterministic: bool = True
    limit: LimitKind | None = None


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
    limits = limits or TrainingLimits()
    before = finished(job, limits)
    if before is not None:
        return before
    layers = layers if layers is not None else available_layers()
    start = time.monotonic()
    folder, stretch = stretch_folder(job), previous_stretch(job)
    work = new_folders(folder, layers)
    try:
        previous, training = _state_before(job, stretch, limits, layers, stop)
        watch = _Watch(job, work, limits, on_progress, stop)
        if training.reason is None:
            training = _train(job, work, previous, limits, layers, watch)
    finally:
        shutil.rmtree(again_folder(job), ignore_errors=True)
    report = watch.read_to_the_end()
    weights, lacking = take_weights(job, work, folder / "weights")
    points: tuple[FitnessPoint, ...] = ()
    measured = _End()
    if weights:
        points, measured = _evaluate(job, weights, limits, layers, watch)
    ends = (training, _End(report.problem), measured, _End(lacking))
    end = next((end for end in ends if end.reason is not None), _End())
    result = JobResult(
        status="done" if end.reason is None else "failed",
        reason=end.reason,
        deterministic=training.deterministic and measured.deterministic,
        env_steps=_env_steps(job, report.step, end.reason is None),
        fitness=points,
        components=report.components(job.checkpoints[: len(points)]),
        total=report.totals(job.checkpoints[: len(points)]),
        wall_s=round(time.monotonic() - start, 3),
        limit=end.limit,
        sandbox=layers.name,
    )
    write_result(job, result, limits)
    if stretch is not None:
        remove_untrusted(stretch / "work" / STATE_FILE)  # large, and of no more use
    return result


def _state_before(
    job: Job,
    stretch: Path | None,
    limits: TrainingLimits,
    layers: Layers,
    stop: threading.Event | None,
) -> tuple[Path | None, _End]:
    """The folder with the state to go on from, if any, and how it was to be had.

    States are deleted when nothing seems to need them. Where a job broke down, or was ended by a
    limit that is larger now, the next run may let another candidate go on than the run before:
    then all that came before is trained once more, and ends with the same state.
    """
    if stretch is None or (stretch / "work" / STATE_FILE).exists():
        return (stretch / "work" if stretch is not None else None), _End()
    whole = trained_before(job)
    work = new_folders(stretch_folder(whole), layers)
    watch = _Watch(whole, work, limits, None, stop)
    end = _train(whole, work, None, limits, layers, watch)
    if end.reason is not None:
        reason = f"once more up to step {job.first_step}: {end.reason}"
        return work, _End(reason, deterministic=False, limit=end.limit)  # it went well before
    if not (work / STATE_FILE).exists():
        return work, _End("the training leaves no state to go on from")
    return work, end


def _train(
    job: Job,
    work: Path,
    previous: Path | None,
    limits: TrainingLimits,
    layers: Layers,
    watch: _Watch,
) -> _End:
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
        return _End(outcome.reason, outcome.deterministic, outcome.limit or watch.limit)
    told = outcome.result if isinstance(outcome.result, Mapping) else {}
    reason = told.get("reason", 0)
    if reason is None:
        return _End()
    if not isinstance(reason, str):
        return _End("the training's own process reported something else")
    limit: LimitKind | None = None
    if told.get("limit") == "file":
        limit = "file"
    elif tells_of_memory(reason):
        limit = "memory"
    same = told.get("by_machine") is not True
    return _End(printable(reason) or "failed without a reason", same, limit)


def _evaluate(
    job: Job, weights: Mapping[int, str], limits: TrainingLimits, layers: Layers, watch: _Watch
) -> tuple[tuple[FitnessPoint, ...], _End]:
    episodes = dict(zip(job.checkpoints, job.episodes, strict=True))
    points, reason, deterministic, limit = evaluate_weights(
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
    return points, _End(reason, deterministic, limit)


class _Watch:
    """Looks at a training from outside while it runs.

    Attributes:
        report: what the training says of itself.
        limit: the kind of limit for which it had the training ended.
    """

    def __init__(
        self,
        job: Job,
        work: Path,
        limits: TrainingLimits,
        on_progress: Callable[[Progress], None] | None,
        stop: threading.Event | None,
    ) -> None:
        self.report = TrainingReport(work / REPORT_FILE, job)
        self.limit: LimitKind | None = None
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
            self.limit = "disk"
            return f"more than {self._limits.disk_mib} MiB of files, or a great many"
        if self.report.read_on():
            self._moved = now
            self._tell(now)
        if now - self._moved > self._limits.stall_s:
            self.limit = "stall"
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
