from __future__ import annotations

import errno
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from embodied_icrl.common.errors import MissingDependencyError, RunError
from embodied_icrl.runs import metrics
from embodied_icrl.runs.metrics import MetricsLog, read_metrics
from embodied_icrl.runs.run import Run


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path / "run", {"seed": 0})


def row(update: int, **more: Any) -> dict[str, Any]:
    return {"update": update, "step": update * 10, **more}


def write_rows(run: Run, first: int, last: int) -> None:
    with MetricsLog(run, tensorboard=False) as log:
        for update in range(first, last + 1):
            log.write(row(update))


def updates(run: Run) -> list[int]:
    return [item["update"] for item in read_metrics(run.path)]


def test_rows_are_strict_json_and_there_at_once(run: Run) -> None:
    log = MetricsLog(run, tensorboard=False)
    log.write(
        row(
            1,
            loss=np.float32(0.5),
            kl=torch.tensor(0.25),
            bad=float("nan"),
            worse=torch.tensor(float("inf")),
            none=None,
            full=True,
        )
    )
    (line,) = run.metrics.read_text().splitlines()
    assert json.loads(line, parse_constant=pytest.fail) == {
        "update": 1,
        "step": 10,
        "loss": 0.5,
        "kl": 0.25,
        "bad": None,
        "worse": None,
        "none": None,
        "full": True,
    }


@pytest.mark.parametrize("bad", [{"step": 1}, {"update": 1}, {"update": 1.5, "step": 1}])
def test_a_row_needs_update_and_step(run: Run, bad: dict[str, Any]) -> None:
    log = MetricsLog(run, tensorboard=False)
    with pytest.raises((KeyError, TypeError)):
        log.write(bad)
    assert run.metrics.read_bytes() == b""


def test_resuming_cuts_to_the_checkpoint_and_goes_on(run: Run) -> None:
    write_rows(run, 1, 5)
    kept = b"".join(run.metrics.read_bytes().splitlines(keepends=True)[:3])
    with MetricsLog(run, tensorboard=False) as log:
        log.truncate(3)
        assert run.metrics.read_bytes() == kept
        log.write(row(4, again=True))
    assert updates(run) == [1, 2, 3, 4]
    assert read_metrics(run.path)[-1]["again"]


@pytest.mark.parametrize("update", [0, 5, 9])
def test_truncation_at_the_ends(run: Run, update: int) -> None:
    write_rows(run, 1, 5)
    MetricsLog(run, tensorboard=False).truncate(update)
    assert updates(run) == list(range(1, min(update, 5) + 1))


@pytest.mark.parametrize("tail", [b'{"update": 6, "st', b"\0\0\0\0", b"\0\0\n\0", b"{}\n", b"7"])
def test_a_line_that_was_cut_off_is_dropped(run: Run, tail: bytes) -> None:
    write_rows(run, 1, 5)
    with run.metrics.open("ab") as file:
        file.write(tail)
    assert updates(run) == [1, 2, 3, 4, 5]
    with MetricsLog(run, tensorboard=False) as log:
        log.truncate(5)
        log.write(row(6))
    assert updates(run) == [1, 2, 3, 4, 5, 6]


def test_damage_in_the_middle_is_an_error(run: Run) -> None:
    write_rows(run, 1, 5)
    lines = run.metrics.read_bytes().splitlines(keepends=True)
    run.metrics.write_bytes(b"".join([lines[0], b"garbage\n", *lines[2:]]))
    before = run.metrics.read_bytes()
    with pytest.raises(RunError, match="line 2"):
        MetricsLog(run, tensorboard=False).truncate(4)
    assert run.metrics.read_bytes() == before
    with pytest.raises(RunError, match="line 2"):
        read_metrics(run.path)
    MetricsLog(run, tensorboard=False).truncate(1)
    assert updates(run) == [1]


class FullDisk:
    """A file on a disk that takes half of the next line."""

    def __init__(self, file: Any, raises: bool) -> None:
        self._file, self._raises = file, raises

    def write(self, data: bytes) -> int:
        written: int = self._file.write(data[: len(data) // 2])
        if self._raises:
            raise OSError(errno.ENOSPC, "No space left on device")
        return written

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


@pytest.mark.parametrize("raises", [True, False])
def test_a_full_disk_leaves_no_half_line(run: Run, raises: bool) -> None:
    log = MetricsLog(run, tensorboard=False)
    log.write(row(1))
    before = run.metrics.read_bytes()
    log._file = FullDisk(log._file, raises)  # type: ignore[assignment]
    with pytest.raises(RunError, match="No space left on device") as caught:
        log.write(row(2))
    assert "\n" not in str(caught.value)
    assert run.metrics.read_bytes() == before


def test_entries_are_added_to_the_newest_row(run: Run) -> None:
    with MetricsLog(run, tensorboard=False) as log:
        for update in (1, 2):
            log.write(row(update, restarts=10))
        log.amend({"late": np.float32(0.5), "restarts": 9})
        log.write(row(3))
    with MetricsLog(run, tensorboard=False) as log:
        log.truncate(2)
        log.amend({"later": 1.0})
        log.amend({"latest": float("nan")})
        log.write(row(3, again=True))
    amended = row(2, restarts=9, late=0.5, later=1.0, latest=None)
    assert read_metrics(run.path) == [row(1, restarts=10), amended, row(3, again=True)]
    with MetricsLog(run, tensorboard=False) as log:
        log.truncate(0)
        with pytest.raises(ValueError, match="no row"):
            log.amend({"late": 1})


@pytest.mark.parametrize("raises", [True, False])
def test_a_full_disk_leaves_the_row_that_was_to_be_amended(
    run: Run, raises: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = MetricsLog(run, tensorboard=False)
    log.write(row(1, a=1.0))
    log.write(row(2, b=1.0))
    before = run.metrics.read_bytes()
    overwrite = metrics._overwrite

    def overwrite_on_full_disk(file: Any, start: int, old: bytes, new: bytes) -> None:
        full = FullDisk(file, raises)

        class Once(FullDisk):
            """The old line finds the room that it had."""

            def write(self, data: bytes) -> int:
                return full.write(data) if data == new else int(file.write(data))

        overwrite(Once(file, raises), start, old, new)

    monkeypatch.setattr(metrics, "_overwrite", overwrite_on_full_disk)
    with pytest.raises(RunError, match="No space left on device"):
        log.amend({"late": list(range(100))})
    assert run.metrics.read_bytes() == before
    monkeypatch.undo()
    log.amend({"late": 2})
    assert read_metrics(run.path)[-1] == row(2, b=1.0, late=2)


def test_an_unwritable_run(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="can't write"):
        MetricsLog(Run(tmp_path / "file" / "run", {}), tensorboard=False)


def scalars(run: Run, tag: str) -> list[tuple[int, float]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(run.path / "tensorboard"))
    events.Reload()
    return [(event.step, event.value) for event in events.Scalars(tag)]


def test_tensorboard_mirrors_and_forgets_what_a_resume_cut(run: Run) -> None:
    with MetricsLog(run) as log:
        for update in range(1, 5):
            log.write(row(update, loss=float(update), missing=None))
    with MetricsLog(run) as log:
        log.truncate(2)
        log.write(row(3, loss=30.0))
    assert scalars(run, "loss") == [(10, 1.0), (20, 2.0), (30, 30.0)]


def test_tensorboard_can_be_off(run: Run) -> None:
    write_rows(run, 1, 2)
    assert not (run.path / "tensorboard").exists()


class FakeWandb(SimpleNamespace):
    """What the log uses of wandb, recorded."""

    def __init__(self) -> None:
        super().__init__(inits=[], rows=[], metrics=[], finished=0)

    def init(self, **options: Any) -> FakeWandb:
        self.inits.append(options)
        return self

    def define_metric(self, *arguments: Any, **options: Any) -> None:
        self.metrics.append((*arguments, options))

    def log(self, values: dict[str, Any]) -> None:
        self.rows.append(values)

    def finish(self) -> None:
        self.finished += 1


def test_wandb_mirrors_and_a_resumed_run_goes_on_in_the_same_place(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = FakeWandb()
    monkeypatch.setitem(sys.modules, "wandb", fake)  # type: ignore[arg-type]
    for update in (1, 2):
        with MetricsLog(run, tensorboard=False, wandb_project="mine") as log:
            log.write(row(update, none=None))
            log.amend({"late": update})
    assert [options["id"] for options in fake.inits] == [fake.inits[0]["id"]] * 2
    assert fake.inits[0]["project"] == "mine"
    assert fake.inits[0]["resume"] == "allow"
    assert fake.inits[0]["config"] == {"seed": 0}
    assert fake.rows == [row(1), {"step": 10, "late": 1}, row(2), {"step": 20, "late": 2}]
    assert fake.finished == 2


def test_wandb_missing_says_what_to_install(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    real = metrics.require

    def without_wandb(module: str, install: str) -> Any:
        return real("no_such_wandb" if module == "wandb" else module, install)

    monkeypatch.setattr(metrics, "require", without_wandb)
    with pytest.raises(MissingDependencyError, match="pip install 'wandb>=0.18'"):
        MetricsLog(run, tensorboard=False, wandb_project="mine")
