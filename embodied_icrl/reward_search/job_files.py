"""What a job leaves on disk, and how a finished one is known again.

folder/stretch_0_40000/result.json    the end of the stretch, written last and at once
folder/stretch_0_40000/weights/       the policy at every checkpoint, as safetensors
folder/stretch_0_40000/work/          what the untrusted training wrote; never trusted
folder/again/                         while what came before a stretch is trained once more
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any, TypeVar

from embodied_icrl.common.config import build
from embodied_icrl.common.errors import ConfigError, RunError
from embodied_icrl.common.files import atomic_write_json, write_synced
from embodied_icrl.reward_search.records import Job, JobResult
from embodied_icrl.reward_search.sandbox import Layers
from embodied_icrl.reward_search.sandbox_child import NOBODY
from embodied_icrl.reward_search.training_limits import TrainingLimits
from embodied_icrl.reward_search.training_report import STATE_FILE, weights_name
from embodied_icrl.reward_search.untrusted_files import (
    UntrustedFileError,
    read_untrusted,
    remove_untrusted,
)

T = TypeVar("T")

FORMAT = 1
MAX_WEIGHTS = 64 * 2**20  # bytes of one policy


def finished(job: Job, limits: TrainingLimits | None = None) -> JobResult | None:
    """The result of this very job, if it was run to its end before.

    A failure that another run may not repeat is no such end: one that the machine had a part in,
    and one by a limit of which `limits` give more. Without `limits`, those of then still hold.
    """
    data = _read_result(stretch_folder(job) / "result.json")
    if data is None or data["job"] != job_hash(job):
        return None
    result = _parsed(data["result"], JobResult)
    if result is None or result.status == "done":
        return result
    if result.limit is None:
        return result if result.deterministic else None
    then = _parsed(data.get("limits"), TrainingLimits)
    if then is None or (limits is not None and limits.exceed(then, result.limit)):
        return None
    return result


def stretch_folder(job: Job) -> Path:
    """Where a job leaves what it did."""
    return Path(job.folder) / f"stretch_{job.first_step}_{job.last_step}"


def weights_file(job: Job, step: int) -> Path:
    """The policy at a checkpoint of a finished job; for `actor.load_actor`."""
    return stretch_folder(job) / "weights" / weights_name(step)


def again_folder(job: Job) -> Path:
    """Where what came before a stretch is trained once more; deleted afterwards."""
    return Path(job.folder) / "again"


def remove_state(job: Job) -> None:
    """Free the disk of what only a further stretch of this training would need."""
    remove_untrusted(stretch_folder(job) / "work" / STATE_FILE)


def job_hash(job: Job) -> str:
    """Of all that the result depends on; where the folder lies is not part of that."""
    return _hash(_without(job, "folder", "task_paths"))


def _training_hash(job: Job) -> str:
    """The same for all stretches of one training."""
    places, stretch = ("folder", "task_paths"), ("first_step", "last_step", "checkpoints")
    return _hash(_without(job, *places, *stretch, "episodes", "phase"))


def _without(job: Job, *names: str) -> dict[str, Any]:
    return {key: value for key, value in plain(job).items() if key not in names}


def plain(job: Job) -> dict[str, Any]:
    """A job as JSON would give it back."""
    fields = {field.name: getattr(job, field.name) for field in dataclasses.fields(job)}
    data: dict[str, Any] = json.loads(json.dumps(fields, default=dict))
    return data


def _hash(data: Any) -> str:
    text = json.dumps(data, sort_keys=True, default=dict)
    return hashlib.sha256(text.encode()).hexdigest()


def take_weights(job: Job, work: Path, target: Path) -> tuple[dict[int, str], str | None]:
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


def new_folders(folder: Path, layers: Layers) -> Path:
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


def previous_stretch(job: Job) -> Path | None:
    """The folder of the stretch that this one goes on from; None for the first.

    Raises:
        RunError: there should be one, and there is none.
    """
    return _stretch_to(job, job.first_step) if job.first_step > 0 else None


def _stretch_to(job: Job, step: int) -> Path:
    for path in sorted(Path(job.folder).glob(f"stretch_*_{step}")):
        data = _read_result(path / "result.json")
        if data is None or data["training"] != _training_hash(job):
            continue
        if data["result"]["status"] == "done":
            return path
    raise RunError(f"{job.folder}: no finished stretch of this training ends at step {step}")


def earlier_stretches(job: Job) -> list[Path]:
    """The folders of all stretches before this one, the last of them first.

    Raises:
        RunError: one of them is missing.
    """
    found: list[Path] = []
    first = job.first_step
    while first > 0:
        found.append(_stretch_to(job, first))
        first = int(found[-1].name.split("_")[1])
    return found


def trained_before(job: Job) -> Job:
    """All stretches before this one as a single one in a folder of its own, not to be measured.

    Raises:
        RunError: one of them is missing, and with it the checkpoints to train from.
    """
    results = [_read_result(path / "result.json") for path in reversed(earlier_stretches(job))]
    points = [point for data in results if data is not None for point in data["result"]["fitness"]]
    return dataclasses.replace(
        job,
        first_step=0,
        last_step=job.first_step,
        checkpoints=tuple(point["step"] for point in points),
        episodes=(),
        folder=str(again_folder(job)),
    )


def write_result(job: Job, result: JobResult, limits: TrainingLimits) -> None:
    """Make a job a finished one, in one step.

    Args:
        limits: that it ran with.
    """
    data = dataclasses.asdict(result)
    atomic_write_json(
        stretch_folder(job) / "result.json",
        {
            "format": FORMAT,
            "job": job_hash(job),
            "training": _training_hash(job),
            "result": data,
            "limits": dataclasses.asdict(limits),
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


def _parsed(data: Any, kind: type[T]) -> T | None:
    try:
        return build(data, kind)
    except ConfigError:
        return None
