from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from embodied_icrl.common import paths
from embodied_icrl.common.errors import RunError
from embodied_icrl.runs import checkpoint as checkpoint_module
from embodied_icrl.runs.checkpoint import (
    find_checkpoint,
    has_checkpoint,
    load_checkpoint,
    save_checkpoint,
)
from embodied_icrl.runs.run import Run, load_run


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path / "run", {})


def save(run: Run, step: int, **options: Any) -> Path:
    """A checkpoint whose contents tell its step."""
    contents = {
        "tensors": {
            "policy": {"weight": torch.full((3, 2), float(step)), "half": torch.ones(2).bfloat16()},
            "optimizer": {"weight/step": torch.tensor(float(step))},
        },
        "state": {"counters": {"step": step}},
        "rank_state": {"env": {"goal": np.full(4, step, np.uint8)}, "draws": [2**100, 0.5]},
        "policy": {"width": 64},
    }
    return save_checkpoint(run, step, **{**contents, **options})


def steps(run: Run) -> list[str]:
    return sorted(path.name for path in run.checkpoints.glob("step_*"))


def newest(run: Run) -> int:
    return load_checkpoint(find_checkpoint(run.path)).step


def refusal(path: Path, which: Any = "latest") -> str:
    with pytest.raises(RunError) as caught:
        find_checkpoint(path, which)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_what_is_saved_comes_back(run: Run) -> None:
    path = save(run, 7)
    assert path == run.checkpoints / "step_7"
    loaded = load_checkpoint(path)
    assert (loaded.step, loaded.name, loaded.world_size) == (7, "step_7", 1)
    assert loaded.state == {"counters": {"step": 7}}
    assert loaded.policy == {"width": 64}
    weights = loaded.tensors("policy")
    assert torch.equal(weights["weight"], torch.full((3, 2), 7.0))
    assert weights["half"].dtype == torch.bfloat16
    assert loaded.tensors("optimizer")["weight/step"].shape == ()
    rank = loaded.rank_state(0)
    assert rank["draws"] == [2**100, 0.5]
    np.testing.assert_array_equal(rank["env"]["goal"], np.full(4, 7, np.uint8))
    assert rank["env"]["goal"].dtype == np.uint8
    assert (run.checkpoints / "latest").read_text() == "step_7\n"


def test_the_manifest_names_what_bits_depend_on(run: Run) -> None:
    loaded = load_checkpoint(save(run, 1))
    manifest = loaded.manifest
    assert manifest["format"] == 1
    assert manifest["torch"] == torch.__version__
    assert manifest["threads"] == torch.get_num_threads()
    assert manifest["cpu"]
    assert set(manifest["files"]) == {
        "policy.safetensors",
        "optimizer.safetensors",
        "state.json",
        "policy.json",
        "rank_0.json",
        "rank_0.safetensors",
    }
    assert loaded.differences() == []
    assert loaded.differences(world_size=2) == ["world_size was 1, now 2"]


def test_views_and_tied_weights_are_stored_in_full(run: Run) -> None:
    base = torch.arange(12.0).view(3, 4)
    tensors = {"policy": {"a": base, "b": base, "row": base[1], "t": base.T, "empty": base[:0]}}
    loaded = load_checkpoint(save(run, 1, tensors=tensors)).tensors("policy")
    for name, tensor in tensors["policy"].items():
        assert torch.equal(loaded[name], tensor)


def test_find_by_number_name_and_latest(run: Run) -> None:
    for step in (2, 10, 9):
        save(run, step)
    assert steps(run) == ["step_2", "step_9"]  # step_10 is newer than what was saved last
    save(run, 100)
    assert find_checkpoint(run.path).name == "step_100"
    assert find_checkpoint(run.path, 9).name == "step_9"
    assert find_checkpoint(run.path, "2").name == "step_2"
    assert find_checkpoint(run.path, "step_2").name == "step_2"
    message = refusal(run.path, 3)
    assert "'3'" in message
    assert "step_2, step_9, step_100" in message
    assert "'best'" in refusal(run.path, "best")


def test_a_run_without_checkpoints(run: Run) -> None:
    assert not has_checkpoint(run.path)
    assert "no complete checkpoint" in refusal(run.path)
    assert "there is none" in refusal(run.path, 1)
    save(run, 0)
    assert has_checkpoint(run.path)


def test_old_ones_are_pruned(run: Run) -> None:
    for step in range(1, 6):
        save(run, step, keep=2)
    assert steps(run) == ["step_4", "step_5"]
    assert not list(run.checkpoints.glob(".*"))


def test_a_complete_checkpoint_of_the_same_step_is_kept(run: Run) -> None:
    path = save(run, 5)
    before = (path / "manifest.json").read_bytes()
    time.sleep(0.01)
    assert save(run, 5, state={"counters": "other"}) == path
    assert (path / "manifest.json").read_bytes() == before


def test_a_damaged_checkpoint_of_the_same_step_is_replaced(run: Run) -> None:
    path = save(run, 5)
    (path / "state.json").write_text("{}")
    save(run, 5)
    assert load_checkpoint(path).state == {"counters": {"step": 5}}


DAMAGE = {
    "a flipped bit": lambda path: flip(path / "policy.safetensors"),
    "a shorter file": lambda path: os.truncate(path / "optimizer.safetensors", 20),
    "a missing file": lambda path: (path / "rank_0.json").unlink(),
    "no manifest": lambda path: (path / "manifest.json").unlink(),
    "half a manifest": lambda path: os.truncate(path / "manifest.json", 40),
    "a manifest of nothing": lambda path: (path / "manifest.json").write_text("[]"),
    "an empty directory": lambda path: (shutil.rmtree(path), path.mkdir()),
}


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
def test_damage_is_never_loaded_and_never_passed_over_in_silence(
    run: Run, damage: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    save(run, 1)
    path = save(run, 2)
    damage(path)
    with pytest.raises(RunError, match="step_2 is damaged"):
        load_checkpoint(path)
    capsys.readouterr()
    assert newest(run) == 1
    warning = capsys.readouterr().err
    assert "step_2" in warning
    assert "using step_1" in warning
    # Training goes on from step 1: what is saved next is the newest, without a warning.
    save(run, 3)
    capsys.readouterr()
    assert newest(run) == 3
    assert capsys.readouterr().err == ""


def test_a_newer_checkpoint_that_was_given_up_is_set_aside(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    save(run, 1)
    flip(save(run, 5) / "policy.safetensors")
    save(run, 3)
    assert newest(run) == 3
    assert capsys.readouterr().err == ""
    assert (run.checkpoints / ".abandoned_step_5").is_dir()
    save(run, 5)
    assert newest(run) == 5


def test_all_damaged_is_an_error_that_names_one(run: Run) -> None:
    (save(run, 1) / "manifest.json").unlink()
    message = refusal(run.path)
    assert "step_1" in message
    assert "manifest.json" in message


def test_a_newer_format_asks_for_an_update(run: Run) -> None:
    path = save(run, 1)
    manifest = json.loads((path / "manifest.json").read_text())
    (path / "manifest.json").write_text(json.dumps({**manifest, "format": 2}))
    with pytest.raises(RunError, match="update embodied-icrl"):
        load_checkpoint(path)


def test_missing_parts_are_named(run: Run) -> None:
    loaded = load_checkpoint(save(run, 1, policy=None))
    assert loaded.policy is None
    with pytest.raises(RunError, match="'critic'"):
        loaded.tensors("critic")
    with pytest.raises(RunError, match="1 processes and has no rank 3"):
        loaded.rank_state(3)
    with pytest.raises(RunError, match="no checkpoint"):
        load_checkpoint(run.checkpoints / "step_9")


def test_state_that_cannot_be_stored_leaves_nothing_behind(run: Run) -> None:
    save(run, 1)
    with pytest.raises(TypeError, match="state.env"):
        save(run, 2, rank_state={"env": object()})
    assert steps(run) == ["step_1"]
    assert not list(run.checkpoints.glob(".*"))


@pytest.mark.parametrize("failing", ["rank_0.json", "policy.safetensors", "manifest.json"])
def test_a_full_disk_is_one_line_and_the_older_checkpoint_loads(
    run: Run, monkeypatch: pytest.MonkeyPatch, failing: str, capsys: pytest.CaptureFixture[str]
) -> None:
    save(run, 1, keep=1)
    real = checkpoint_module.write_synced

    def full(path: Path, data: bytes) -> None:
        real(path, data[: len(data) // 2])
        if path.name == failing:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(path, data)

    monkeypatch.setattr(checkpoint_module, "write_synced", full)
    with pytest.raises(RunError, match="step_2: No space left on device; free some space") as info:
        save(run, 2, keep=1)
    assert "\n" not in str(info.value)
    monkeypatch.undo()
    assert newest(run) == 1
    assert capsys.readouterr().err == ""
    assert not list(run.checkpoints.glob(".*"))
    save(run, 2, keep=1)
    assert newest(run) == 2


def test_an_unwritable_run(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="can't write checkpoint"):
        save(Run(tmp_path / "file", {}), 1)


def kill_at(run: Run, step: int, point: str) -> None:
    """Save in a child process and `kill -9` it when it is half-way through `point`."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        stall_at(point, writing)
        save(run, step)
        os._exit(1)  # it was to be killed before
    os.close(writing)
    reached = os.read(reading, 1)
    os.close(reading)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    assert reached == b"!"
    assert os.WTERMSIG(status) == signal.SIGKILL


def stall_at(point: str, pipe: int) -> None:
    def stall() -> None:
        os.write(pipe, b"!")
        time.sleep(60)

    write, rename, pointer = (
        checkpoint_module.write_synced,
        os.rename,
        checkpoint_module.atomic_write_text,
    )

    def half_written(path: Path, data: bytes) -> None:
        if path.name == point:
            write(path, data[: len(data) // 2])
            stall()
        write(path, data)

    def before_rename(source: Path, target: Path) -> None:
        if point == "before the rename":
            stall()
        rename(source, target)

    def before_pointer(path: Path, text: str) -> None:
        if point == "before the pointer":
            stall()
        pointer(path, text)

    checkpoint_module.write_synced = half_written  # type: ignore[assignment]
    checkpoint_module.os.rename = before_rename  # type: ignore[assignment]
    checkpoint_module.atomic_write_text = before_pointer  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("point", "survivor"),
    [
        ("rank_0.json", 1),
        ("rank_0.safetensors", 1),
        ("policy.safetensors", 1),
        ("state.json", 1),
        ("manifest.json", 1),
        ("before the rename", 1),
        ("before the pointer", 2),
    ],
)
def test_kill_9_in_the_middle_of_a_checkpoint(
    run: Run, point: str, survivor: int, capsys: pytest.CaptureFixture[str]
) -> None:
    save(run, 1)
    kill_at(run, 2, point)
    loaded = load_checkpoint(find_checkpoint(run.path))
    assert loaded.step == survivor
    assert torch.equal(loaded.tensors("policy")["weight"], torch.full((3, 2), float(survivor)))
    warning = capsys.readouterr().err
    assert ("step_2 was not written to its end; using step_1" in warning) == (survivor == 1)
    # The next save cleans up and succeeds.
    save(run, 2)
    assert newest(run) == 2
    assert capsys.readouterr().err == ""
    assert (run.checkpoints / "latest").read_text() == "step_2\n"
    assert not list(run.checkpoints.glob(".*"))


def test_kill_9_in_the_first_checkpoint_leaves_a_run_without_one(run: Run) -> None:
    kill_at(run, 2, "state.json")
    assert not has_checkpoint(run.path)
    message = refusal(run.path)
    assert "step_2 was not written to its end" in message


def save_on_ranks(run: Run, step: int, world_size: int, **options: Any) -> None:
    barrier = threading.Barrier(world_size)
    errors: list[BaseException] = []

    def rank(number: int) -> None:
        try:
            save(
                run,
                step,
                rank=number,
                world_size=world_size,
                barrier=lambda: barrier.wait(10),
                rank_state={"number": np.int64(number)},
                **options,
            )
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=rank, args=(number,)) for number in range(world_size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def test_every_rank_saves_its_own_state(run: Run) -> None:
    for step in (1, 2, 2, 3):
        save_on_ranks(run, step, 3, keep=2)
    assert steps(run) == ["step_2", "step_3"]
    loaded = load_checkpoint(find_checkpoint(run.path))
    assert loaded.world_size == 3
    assert [loaded.rank_state(rank)["number"] for rank in range(3)] == [0, 1, 2]


def test_a_rank_whose_files_do_not_arrive_fails_the_checkpoint(run: Run) -> None:
    with pytest.raises(RunError, match="rank 1's state did not arrive"):
        save(run, 1, world_size=2)
    assert steps(run) == []


def bundled_runs() -> list[Path]:
    return sorted(path.parent for path in paths.assets_dir().glob("checkpoints/*/config.yaml"))


@pytest.mark.parametrize("path", bundled_runs(), ids=lambda path: path.name)
def test_every_checkpoint_in_assets_loads(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = load_run(path)
    found = sorted(run.checkpoints.glob("step_*"))
    assert found
    for folder in found:
        assert load_checkpoint(folder).policy is not None
    assert find_checkpoint(path) in found
    assert capsys.readouterr().err == ""
