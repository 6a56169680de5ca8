"""Checkpoints that are whole or not there.

    checkpoints/latest            the name of the newest complete one
    checkpoints/step_N/
        manifest.json             format, step, versions, world size, and every file's SHA-256
        GROUP.safetensors         tensors by name; the groups are the caller's: policy, optimizer
        state.json                counters and whatever else is JSON and the same on all ranks
        policy.json               how to build the policy
        rank_R.json, .safetensors the state of rank R: environments, random states, rollout

A checkpoint is written into a hidden directory, forced to disk, given its name by one rename. What
is killed half-way leaves the older ones as they were. Every file is checked against the manifest
before it is believed.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from embodied_icrl import __version__
from embodied_icrl.common.errors import RunError
from embodied_icrl.common.files import (
    atomic_write_text,
    fsync_directory,
    json_bytes,
    write_synced,
)
from embodied_icrl.runs.checkpoint_files import (
    FORMAT,
    MANIFEST,
    Checkpoint,
    file_digest,
    load_checkpoint,
    tensor_bytes,
    verify,
)
from embodied_icrl.runs.machine import machine_facts
from embodied_icrl.runs.packing import pack
from embodied_icrl.runs.run import Run, no_barrier, run_errors

__all__ = ["Checkpoint", "find_checkpoint", "load_checkpoint", "save_checkpoint"]

LATEST = "latest"
_NAME = re.compile(r"step_(\d+)")
_UNFINISHED = re.compile(r"\.step_(\d+)\.tmp")


def save_checkpoint(
    run: Run,
    step: int,
    *,
    tensors: Mapping[str, Mapping[str, Tensor]],
    state: Mapping[str, Any],
    rank_state: Mapping[str, Any] | None = None,
    policy: Mapping[str, Any] | None = None,
    rank: int = 0,
    world_size: int = 1,
    barrier: Callable[[], None] = no_barrier,
    keep: int = 0,
) -> Path:
    """Write `checkpoints/step_N`; all ranks of a job call this together.

    A complete checkpoint of the same step is kept and nothing is written.

    Args:
        run: the open run.
        step: N, environment steps so far.
        tensors: group -> name -> tensor, one file per group; the same on every rank.
        state: JSON-able; the same on every rank.
        rank_state: this rank's own state: nested dicts and lists of numbers, NumPy arrays, tensors.
        policy: what `policy.json` holds: enough to build the policy again.
        rank, world_size: this process's number in the job, and how many there are.
        barrier: returns once all ranks have called it.
        keep: how many of the newest checkpoints stay; 0: all.

    Raises:
        RunError: it can't be written; the older checkpoints are untouched.
    """
    final = run.checkpoints / f"step_{step}"
    temporary = run.checkpoints / f".step_{step}.tmp"
    advice = "free some space or mend the permissions; older checkpoints are intact"
    with run_errors(f"can't write checkpoint {final}", advice):
        if rank == 0:
            _make_room(final, temporary)
        barrier()
        if final.is_dir():
            if rank == 0:
                atomic_write_text(run.checkpoints / LATEST, final.name + "\n")
            return final
        try:
            _write_rank(temporary, rank, rank_state or {})
            barrier()
            if rank == 0:
                shared = _shared_files(tensors, state, policy)
                _publish(run, temporary, final, shared, step, world_size)
        except BaseException:
            if rank == 0:
                shutil.rmtree(temporary, ignore_errors=True)
            raise
        barrier()
        if rank == 0:
            _prune(run.checkpoints, step, keep)
    return final


def find_checkpoint(run_path: str | os.PathLike[str], which: str | int = LATEST) -> Path:
    """The directory of a run's checkpoint.

    Args:
        run_path: the run directory.
        which: "latest", N or "step_N". For "latest", damaged checkpoints are passed over with a
            warning on stderr that names them.

    Raises:
        RunError: there is no such checkpoint, or none that is whole.
    """
    folder = Path(run_path) / "checkpoints"
    names = {step: folder / f"step_{step}" for step in _steps(folder, _NAME)}
    if which != LATEST:
        text = str(which)
        wanted = text if text.startswith("step_") else f"step_{text}"
        if wanted not in {path.name for path in names.values()}:
            there = ", ".join(path.name for path in names.values()) or "none"
            raise RunError(f"no checkpoint {text!r} in {run_path}: there is {there}")
        return folder / wanted
    passed_over = [
        f"step_{step} was not written to its end"
        for step in _steps(folder, _UNFINISHED)
        if step > max(names, default=-1)
    ]
    for path in reversed(names.values()):
        try:
            verify(path)
        except RunError as error:
            passed_over.append(str(error))
            continue
        for problem in passed_over:
            print(f"warning: {problem}; using {path.name} instead", file=sys.stderr)
        return path
    problems = "".join(f" ({problem})" for problem in passed_over[:1])
    raise RunError(f"no complete checkpoint in {run_path}{problems}")


def has_checkpoint(run_path: str | os.PathLike[str]) -> bool:
    """Whether the run has a checkpoint, whole or damaged: a new run has none yet."""
    return bool(_steps(Path(run_path) / "checkpoints", _NAME))


def _steps(folder: Path, pattern: re.Pattern[str]) -> list[int]:
    """The steps of the entries whose names match, in ascending order."""
    names = [entry.name for entry in folder.iterdir()] if folder.is_dir() else []
    return sorted(int(match.group(1)) for name in names if (match := pattern.fullmatch(name)))


def _make_room(final: Path, temporary: Path) -> None:
    """Make the temporary directory, unless a complete checkpoint of this step is there."""
    if final.is_dir():
        try:
            verify(final)
            return
        except RunError:
            shutil.rmtree(final)
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)


def _write_rank(folder: Path, rank: int, state: Mapping[str, Any]) -> None:
    data, tensors = pack(state)
    write_synced(folder / f"rank_{rank}.json", json_bytes(data, indent=None))
    if tensors:
        write_synced(folder / f"rank_{rank}.safetensors", tensor_bytes(tensors))


def _shared_files(
    tensors: Mapping[str, Mapping[str, Tensor]],
    state: Mapping[str, Any],
    policy: Mapping[str, Any] | None,
) -> dict[str, Callable[[], bytes]]:
    """The contents of the files that rank 0 writes for all, made one at a time."""
    files: dict[str, Callable[[], bytes]] = {
        f"{group}.safetensors": lambda named=named: tensor_bytes(named)  # type: ignore[misc]
        for group, named in tensors.items()
    }
    files["state.json"] = lambda: json_bytes(state)
    if policy is not None:
        files["policy.json"] = lambda: json_bytes(policy)
    return files


def _publish(
    run: Run,
    temporary: Path,
    final: Path,
    files: Mapping[str, Callable[[], bytes]],
    step: int,
    world_size: int,
) -> None:
    """Write the shared files and the manifest, then give the directory its name."""
    for rank in range(world_size):
        if not (temporary / f"rank_{rank}.json").is_file():
            raise RunError(
                f"rank {rank}'s state did not arrive in {temporary}: put the run directory on a "
                "file system that all processes share"
            )
    for name, content in files.items():
        write_synced(temporary / name, content())
    manifest = {
        "format": FORMAT,
        "step": step,
        "version": __version__,
        **machine_facts(),
        "world_size": world_size,
        "saved": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "files": {path.name: file_digest(path) for path in sorted(temporary.iterdir())},
    }
    write_synced(temporary / MANIFEST, json_bytes(manifest))
    fsync_directory(temporary)
    if run.metrics.exists():  # a checkpoint's metrics must be on disk before it is
        with run.metrics.open("rb") as file:
            os.fsync(file.fileno())
    os.rename(temporary, final)
    fsync_directory(run.checkpoints)
    atomic_write_text(run.checkpoints / LATEST, final.name + "\n")


def _prune(folder: Path, step: int, keep: int) -> None:
    """Remove what is no longer wanted: old checkpoints and unfinished ones.

    A checkpoint newer than the one just written belongs to a future that was given up: it was
    damaged, and the run went on from an older one. It is set aside under a hidden name, so that it
    isn't taken for the newest.
    """
    steps = _steps(folder, _NAME)
    for newer in (other for other in steps if other > step):
        aside = folder / f".abandoned_step_{newer}"
        shutil.rmtree(aside, ignore_errors=True)
        os.rename(folder / f"step_{newer}", aside)
    for unfinished in _steps(folder, _UNFINISHED):
        shutil.rmtree(folder / f".step_{unfinished}.tmp", ignore_errors=True)
    older = [other for other in steps if other <= step]
    for old in older[:-keep] if keep else []:
        # Renamed first: a half-deleted directory must not look like a damaged checkpoint.
        doomed = folder / f".step_{old}.tmp"
        os.rename(folder / f"step_{old}", doomed)
        shutil.rmtree(doomed, ignore_errors=True)
