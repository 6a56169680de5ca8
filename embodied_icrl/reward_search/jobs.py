"""One stretch of one training, from reward code to fitness, and what it leaves on disk.

    folder/stretch_0_40000/result.json    the end of the stretch, written last and at once
    folder/stretch_0_40000/weights/       the policy at every checkpoint, as safetensors
    folder/stretch_0_40000/work/          what the untrusted training wrote; never trusted

Training and evaluation are two processes, and fitness comes from the second alone.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from embodied_icrl.common.config import build, option
from embodied_icrl.common.errors import ConfigError, RunError
from embodied_icrl.common.files import atomic_write_json, write_synced
from embodied_icrl.reward_search.algorithms import rollout_steps, steps_done
from embodied_icrl.reward_search.evaluation_child import evaluate_weights, task_readable
from embodied_icrl.reward_search.findings import printable
from embodied_icrl.reward_search.records import FitnessPoint, Job, JobResult
from embodied_icrl.reward_search.sandbox import Layers, Limits, available_layers, run_sandboxed
from embodied_icrl.reward_search.sandbox_child import NOBODY
from embodied_icrl.reward_search.training_report import (
    REPORT_FILE,
    STATE_FILE,
    TrainingReport,
    weights_name,
)
from embodied_icrl.reward_search.untrusted_files import (
    UntrustedFileError,
    folder_size,
    read_untrusted,
)

FORMAT = 1
MAX_WEIGHTS = 64 * 2**20  # bytes of one policy
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
        on_progress: called about twice a second while it trains.
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
    folder, previous = stretch_folder(job), _previous_work(job)
    work = _new_folders(folder, layers)
    watch = _Watch(job, work, limits, on_progress, stop)
    reason, deterministic = _train(job, work, previous, limits, layers, watch)
    report = watch.report.complete()
    weights, lacking = _take_weights(job, work, folder / "weights")
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
    _write_result(job, result)
    if previous is not None:
        (previous / STATE_FILE).unlink(missing_ok=True)  # large, and of no more use
    return result


def finished(job: Job) -> JobResult | None:
    """The result of this very job, if it was run to its end before."""
    data = _read_result(stretch_folder(job) / "result.json")
    if data is None or data["job"] != job_hash(job):
        return None
    return _parsed_result(data["result"])


def stretch_folder(job: Job) -> Path:
    """Where a job leaves what it did."""
    return Path(job.folder) / f"stretch_{job.first_step}_{job.last_step}"


def weights_file(job: Job, step: int) -> Path:
    """The policy at a checkpoint of a finished job; for `actor.load_actor`."""
    return stretch_folder(job) / "weights" / weights_name(step)


def remove_state(job: Job) -> None:
    """Free the disk of what only a further stretch of this training would need."""
    (stretch_folder(job) / "work" / STATE_FILE).unlink(missing_ok=True)


def job_hash(job: Job) -> str:
    """Of all that the result depends on; where the folder lies is not part of that."""
    return _hash(_without(job, "folder", "task_paths"))


def _training_hash(job: Job) -> str:
    """The same for all stretches of one training."""
    return _hash(
        _without(job, "folder", "task_paths", "first_step", "last_step", "checkpoints", "episodes")
    )


def _without(job: Job, *names: str) -> dict[str, Any]:
    return {key: value for key, value in _plain(job).items() if key not in names}


def _plain(job: Job) -> dict[str, Any]:
    fields = {field.name: getattr(job, field.name) for field in dataclasses.fields(job)}
    plain: dict[str, Any] = json.loads(json.dumps(fields, default=dict))
    return plain


def _hash(data: Any) -> str:
    text = json.dumps(data, sort_keys=True, default=dict)
    return hashlib.sha256(text.encode()).hexdigest()


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
        **_plain(job),
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
    reason = outcome.result.get("reason", 0) if isinstance(outcome.result, Mapping) else 0
    if reason is not None and not isinstance(reason, str):
        return "the training's own process reported something else", True
    return (printable(reason) or "failed without a reason" if reason is not None else None), True


def _evaluate(
    job: Job, weights: Mapping[int, str], limits: TrainingLimits, layers: Layers, watch: _Watch
) -> tuple[tuple[FitnessPoint, ...], str | None, bool]:
    steps = 1000 * job.episodes * len(weights)  # no episode of a task is much longer than that
    return evaluate_weights(
        weights,
        task=job.task,
        algorithm=job.algorithm,
        hyperparameters=job.hyperparameters,
        episodes=job.episodes,
        task_paths=job.task_paths,
        limits=limits.training(steps),
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


def _take_weights(job: Job, work: Path, target: Path) -> tuple[dict[int, str], str | None]:
    """Copies of the weights of all checkpoints up to the first that has none, and why."""
    taken: dict[int, str] = {}
    for step in job.checkpoints:
        try:
            data = read_untrusted(work / weights_name(step), MAX_WEIGHTS)
        except UntrustedFileError as error:
            return taken, f"weights: {error}"
        path = target / weights_name(step)
        write_synced(path, data)
        path.chmod(0o644)  # the evaluator may be another user
        taken[step] = str(path)
    return taken, None


def _env_steps(job: Job, reported: int, done: bool) -> int:
    rollout = rollout_steps(job.algorithm, job.hyperparameters, job.n_envs)
    first, last = steps_done(job.first_step, rollout), steps_done(job.last_step, rollout)
    return last - first if done else min(max(reported - first, 0), last - first)


def _new_folders(folder: Path, layers: Layers) -> Path:
    """Empty folders for a stretch; what an interrupted run left is removed."""
    if not folder.is_absolute():
        raise RunError(f"{folder}: a job's folder is an absolute path")
    if folder.exists():
        shutil.rmtree(folder)
    work = folder / "work"
    for path in (folder, work, folder / "weights"):
        path.mkdir(parents=True)
        path.chmod(0o755)
    if os.geteuid() == 0 and layers.user:
        os.chown(work, NOBODY, NOBODY)
        closed = [path for path in work.parents if not path.stat().st_mode & 0o001]
        if closed and not layers.bubblewrap:
            raise RunError(
                f"{closed[-1]} is closed to other users, and candidates train as another user; "
                "choose a run directory elsewhere, or install bubblewrap"
            )
    return work


def _previous_work(job: Job) -> Path | None:
    """The folder of the stretch that this one goes on from; None for the first."""
    if job.first_step == 0:
        return None
    for path in sorted(Path(job.folder).glob(f"stretch_*_{job.first_step}")):
        data = _read_result(path / "result.json")
        if data is not None and data["training"] == _training_hash(job):
            return path / "work"
    raise RunError(
        f"{job.folder}: no finished stretch of this training ends at step {job.first_step}"
    )


def _write_result(job: Job, result: JobResult) -> None:
    data = dataclasses.asdict(result)
    atomic_write_json(
        stretch_folder(job) / "result.json",
        {
            "format": FORMAT,
            "job": job_hash(job),
            "training": _training_hash(job),
            "result": data,
            "checksum": _hash(data),
        },
    )


def _read_result(path: Path) -> dict[str, Any] | None:
    """The content of a result file; None if it isn't there or is damaged."""
    try:
        data: dict[str, Any] = json.loads(path.read_bytes())
        whole = data["format"] == FORMAT and data["checksum"] == _hash(data["result"])
        return data if whole and {"job", "training"} <= data.keys() else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _parsed_result(data: Any) -> JobResult | None:
    try:
        return build(data, JobResult)
    except ConfigError:
        return None
