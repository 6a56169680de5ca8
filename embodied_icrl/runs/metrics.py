"""The log of metrics: `metrics.jsonl` is the source of truth; TensorBoard and W&B mirror it."""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import uuid
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from embodied_icrl.common.errors import RunError, require
from embodied_icrl.common.files import atomic_write_text, fsync_directory
from embodied_icrl.runs.run import Run, run_errors


class MetricsLog:
    """Appends one JSON line per policy update; the line is with the system when `write` returns.

    Rank 0 of a job has one, the other ranks none. On resume, call `truncate` before the first
    `write`.

    Args:
        run: the open run.
        tensorboard: mirror to `tensorboard/` in the run.
        wandb_project: mirror to this Weights & Biases project; None: don't.
        name: the run's name at Weights & Biases; None: that of its directory.

    Raises:
        MissingDependencyError: Weights & Biases is asked for and not installed.
        RunError: `metrics.jsonl` can't be opened for writing.
    """

    def __init__(
        self,
        run: Run,
        *,
        tensorboard: bool = True,
        wandb_project: str | None = None,
        name: str | None = None,
    ) -> None:
        self._run = run
        self._tensorboard = tensorboard
        self._writer: Any = None
        self._purge_step: int | None = None
        self._newest: tuple[int, dict[str, Any]] | None = None  # where its line begins, and the row
        with run_errors(f"can't write to {run.metrics}", "choose another run="):
            run.path.mkdir(parents=True, exist_ok=True)
            self._file = run.metrics.open("ab", buffering=0)
            fsync_directory(run.path)
        self._wandb = _start_wandb(run, wandb_project, name) if wandb_project else None

    def write(self, row: Mapping[str, Any]) -> None:
        """Append a row; it has at least `update` and `step`.

        Numbers may be NumPy or torch scalars; one that isn't finite is written as null, as JSON
        has no word for it.

        Raises:
            RunError: the disk is full or gone; no partial line stays.
        """
        plain = {key: _plain(value) for key, value in row.items()}
        update, step = plain["update"], plain["step"]
        if not isinstance(update, int) or not isinstance(step, int):
            raise TypeError(f"update and step are integers, not {update!r} and {step!r}")
        with run_errors(f"can't write to {self._run.metrics}", "free some space and resume"):
            start = _append(self._file, _line(plain))
            self._newest = (start, plain)
            self._mirror(plain, step)

    def amend(self, entries: Mapping[str, Any]) -> None:
        """Add entries to the newest row, or replace some of its own.

        Its line is written over at one stroke: whoever is killed leaves it with the entries or
        without them.

        Raises:
            RunError: the disk is full or gone; the row is as it was.
        """
        if self._newest is None:
            raise ValueError("there is no row to amend")
        start, row = self._newest
        plain = {key: _plain(value) for key, value in entries.items()}
        with (
            run_errors(f"can't write to {self._run.metrics}", "free some space and resume"),
            # Not the file of `write`: whatever goes into that goes to the end.
            self._run.metrics.open("r+b", buffering=0) as file,
        ):
            _overwrite(file, start, _line(row), _line(row | plain))
            self._newest = (start, row | plain)
            self._mirror(plain, row["step"])

    def truncate(self, update: int) -> None:
        """Drop every row after policy update `update`, and a last line that was cut off.

        Raises:
            RunError: a line that has to be kept can't be read.
        """
        with run_errors(f"can't write to {self._run.metrics}"):
            rows, start, size = _rows_up_to(self._run.metrics, update)
            self._file.truncate(size)
            os.fsync(self._file.fileno())
        self._newest = (start, rows[-1]) if rows else None
        self._purge_step = rows[-1]["step"] + 1 if rows else 0

    def close(self) -> None:
        """Force everything to disk and close the mirrors."""
        with contextlib.suppress(OSError):
            os.fsync(self._file.fileno())
        self._file.close()
        if self._writer is not None:
            self._writer.close()
        if self._wandb is not None:
            self._wandb.finish()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _mirror(self, row: Mapping[str, Any], step: int) -> None:
        if self._tensorboard:
            if self._writer is None:
                self._writer = _tensorboard_writer(self._run.path, self._purge_step)
            for key, value in row.items():
                if isinstance(value, (int, float)):
                    self._writer.add_scalar(key, value, step)
        if self._wandb is not None:
            there = {key: value for key, value in row.items() if value is not None}
            self._wandb.log({"step": step, **there})


def read_metrics(run_path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """The rows of a run's `metrics.jsonl`; a last line that was cut off is left out.

    Raises:
        RunError: the file can't be read, or a line before the last is damaged.
    """
    path = Path(run_path) / "metrics.jsonl"
    with run_errors(f"can't read {path}"):
        rows, _, _ = _rows_up_to(path, None)
    return rows


def _rows_up_to(path: Path, update: int | None) -> tuple[list[dict[str, Any]], int, int]:
    """The rows up to an update (None: all), and where in the file the last of them begins, ends."""
    rows: list[dict[str, Any]] = []
    start = size = 0
    damaged: int | None = None
    for number, line in enumerate(path.read_bytes().splitlines(keepends=True), start=1):
        row = _parse(line)
        if row is None:
            damaged = damaged or number
            continue
        if update is not None and row["update"] > update:
            break
        if damaged is not None:
            raise RunError(f"{path} is damaged at line {damaged}: remove that line and resume")
        rows.append(row)
        start, size = size, size + len(line)
    return rows, start, size


def _parse(line: bytes) -> dict[str, Any] | None:
    """A complete row, or None."""
    if not line.endswith(b"\n"):
        return None
    try:
        row = json.loads(line)
    except ValueError:
        return None
    usable = isinstance(row, dict) and {"update", "step"} <= row.keys()
    return row if usable else None


def _line(row: Mapping[str, Any]) -> bytes:
    return json.dumps(row, allow_nan=False).encode("utf-8") + b"\n"


def _append(file: Any, line: bytes) -> int:
    """Append a whole line or nothing; returns where it begins."""
    before = os.fstat(file.fileno()).st_size
    try:
        if file.write(line) != len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    except OSError:
        with contextlib.suppress(OSError):
            file.truncate(before)
        raise
    return before


def _overwrite(file: Any, start: int, before: bytes, after: bytes) -> None:
    """Put a whole line in the place of the last one, or leave that as it is."""
    file.seek(start)
    try:
        if file.write(after) != len(after):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        file.truncate(start + len(after))
    except OSError:
        with contextlib.suppress(OSError):  # the room of the old line is still the file's
            file.seek(start)
            file.write(before)
            file.truncate(start + len(before))
        raise


def _plain(value: Any) -> Any:
    if hasattr(value, "item"):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _tensorboard_writer(path: Path, purge_step: int | None) -> Any:
    from torch.utils.tensorboard import SummaryWriter  # a second to import: only when used

    return SummaryWriter(str(path / "tensorboard"), purge_step=purge_step)


def _start_wandb(run: Run, project: str, name: str | None) -> Any:
    """Open the run at Weights & Biases; a resumed run goes on in the same place."""
    wandb = require("wandb", "pip install 'wandb>=0.18'")
    marker = run.path / "wandb_id"
    if not marker.exists():
        atomic_write_text(marker, uuid.uuid4().hex + "\n")
    online = wandb.init(
        project=project,
        name=name or run.path.name,
        id=marker.read_text(encoding="utf-8").strip(),
        dir=str(run.path),
        config=run.config,
        resume="allow",
    )
    # Rows carry their own step: a resumed run logs some steps again.
    online.define_metric("step")
    online.define_metric("*", step_metric="step")
    return online
