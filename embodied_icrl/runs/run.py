"""The run directory: made, resumed or read.

config.yaml        every key of the configuration, defaults filled
metrics.jsonl      one line per policy update: the source of truth
checkpoints/       step_N/ and `latest`, see `embodied_icrl.runs.checkpoint`
evaluation/ videos/ figures/ tensorboard/
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Literal

import yaml

from embodied_icrl.common.errors import ConfigError, RunError
from embodied_icrl.common.files import atomic_write_text
from embodied_icrl.runs.compare import FREE_KEYS, GROWING_KEYS, compare_configs

Resume = Literal["auto"] | bool
CONFIG = "config.yaml"
_SHOWN_DIFFERENCES = 5


def no_barrier() -> None:
    """The barrier of a job of one process."""


@dataclass(frozen=True)
class Run:
    """An open run directory.

    Attributes:
        path: the directory.
        config: its configuration as plain data.
        resumed: whether the directory held a run before it was opened.
    """

    path: Path
    config: dict[str, Any]
    resumed: bool = False
    _lock: IO[str] | None = field(default=None, repr=False, compare=False)

    @property
    def metrics(self) -> Path:
        """`metrics.jsonl`, whether or not it is there yet."""
        return self.path / "metrics.jsonl"

    @property
    def checkpoints(self) -> Path:
        """The folder of the checkpoints, whether or not it is there yet."""
        return self.path / "checkpoints"

    def folder(self, name: str) -> Path:
        """A folder of the run (`evaluation`, `videos`, `figures`), made if it is missing.

        Raises:
            RunError: it can't be made.
        """
        path = self.path / name
        with run_errors(f"can't write to {self.path}"):
            path.mkdir(parents=True, exist_ok=True)
        return path

    def close(self) -> None:
        """Let other processes open the run for writing."""
        if self._lock is not None:
            self._lock.close()


@contextlib.contextmanager
def run_errors(what: str, advice: str = "") -> Iterator[None]:
    """Turn an `OSError` (no space, no permission) into a RunError of one line."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise RunError(f"{what}: {reason}" + (f"; {advice}" if advice else "")) from error


def open_run(
    path: str | os.PathLike[str],
    config: Mapping[str, Any],
    *,
    resume: Resume = "auto",
    free: Sequence[str] = FREE_KEYS,
    growing: Sequence[str] = GROWING_KEYS,
    fill_defaults: Callable[[dict[str, Any]], Mapping[str, Any]] | None = None,
    rank: int = 0,
    barrier: Callable[[], None] = no_barrier,
) -> Run:
    """Make a run directory, or open an existing one to go on with it.

    All ranks of a job call this together; rank 0 writes. The configuration of an existing run is
    compared with the new one and then replaced by it, so that it tells what the run now does.

    Args:
        path: the directory.
        config: the configuration as plain data, defaults filled (`common.config.to_dict`).
        resume: "auto": continue if the run exists; True: it must exist; False: it must not.
        free, growing: keys that may change, see `compare_configs`.
        fill_defaults: brings the stored configuration to the same form as `config`, so that one
            written before a key existed can be compared: ``lambda c: to_dict(build(c, Config))``.
        rank: this process's number in the job.
        barrier: returns once all ranks have called it.

    Raises:
        RunError: it exists or doesn't, against `resume`; it was made with other settings; it is
            in use by another process; or it can't be written.
    """
    if resume not in ("auto", True, False):
        raise ValueError(f"resume is 'auto', True or False, not {resume!r}")
    folder = Path(path)
    exists = (folder / CONFIG).is_file()
    if exists and resume is False:
        raise RunError(
            f"{folder} holds a run already: choose another run=, or continue it with resume=true"
        )
    if not exists:
        _check_new(folder, resume)
    else:
        _check_same(folder, config, free, growing, fill_defaults)
    # No rank may look once rank 0 has begun to write.
    barrier()
    lock = None
    if rank == 0:
        with run_errors(f"can't write to the run directory {folder}", "choose another run="):
            folder.mkdir(parents=True, exist_ok=True)
            lock = _lock(folder)
            text = yaml.safe_dump(dict(config), sort_keys=False, allow_unicode=True)
            atomic_write_text(folder / CONFIG, text)
    barrier()
    return Run(folder, dict(config), resumed=exists, _lock=lock)


def load_run(path: str | os.PathLike[str]) -> Run:
    """An existing run for reading: nothing is written, nothing is compared.

    Raises:
        RunError: there is no run, or its configuration can't be read.
    """
    folder = Path(path)
    if not (folder / CONFIG).is_file():
        what = "has no config.yaml" if folder.is_dir() else "does not exist"
        raise RunError(f"{folder} is not a run directory: it {what}")
    return Run(folder, _read_config(folder), resumed=True)


def _check_new(folder: Path, resume: Resume) -> None:
    if resume is True:
        raise RunError(f"there is no run in {folder} to resume: check run=, or use resume=auto")
    remains = [name for name in ("metrics.jsonl", "checkpoints") if (folder / name).exists()]
    if remains:
        raise RunError(
            f"{folder} holds {' and '.join(remains)} but no config.yaml: choose another run="
        )


def _check_same(
    folder: Path,
    config: Mapping[str, Any],
    free: Sequence[str],
    growing: Sequence[str],
    fill_defaults: Callable[[dict[str, Any]], Mapping[str, Any]] | None,
) -> None:
    stored: Mapping[str, Any] = _read_config(folder)
    if fill_defaults is not None:
        try:
            stored = fill_defaults(dict(stored))
        except ConfigError as error:
            raise RunError(
                f"{folder} was made by another version of the code and can't be resumed "
                f"({error}): choose another run="
            ) from error
    refused = compare_configs(stored, config, free=free, growing=growing)
    if refused:
        more = len(refused) - _SHOWN_DIFFERENCES
        shown = "; ".join(refused[:_SHOWN_DIFFERENCES]) + (f"; and {more} more" if more > 0 else "")
        raise RunError(
            f"{folder} was made with other settings ({shown}): restore them or choose another run="
        )


def _read_config(folder: Path) -> dict[str, Any]:
    with run_errors(f"can't read {folder / CONFIG}"):
        text = (folder / CONFIG).read_text(encoding="utf-8")
    try:
        config = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise RunError(
            f"{folder / CONFIG} is not YAML: restore it or choose another run"
        ) from error
    if not isinstance(config, dict):
        raise RunError(f"{folder / CONFIG} is not a mapping: restore it or choose another run")
    return config


def _lock(folder: Path) -> IO[str]:
    """Keep other processes from writing to the run for as long as this one lives."""
    file = (folder / ".lock").open("w")
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EAGAIN):
            file.close()
            raise RunError(
                f"another process is writing to {folder}: wait for it, or choose another run="
            ) from error
        if error.errno not in (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP):
            raise
        print(
            f"warning: {folder} is on a file system without locks: make sure that no other job "
            "writes to it",
            file=sys.stderr,
        )
    return file
