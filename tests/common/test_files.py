from __future__ import annotations

import errno
import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from embodied_icrl.common import files


def test_writes_and_replaces(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    files.atomic_write_text(path, "old")
    files.atomic_write_text(path, "ny å")
    assert path.read_text(encoding="utf-8") == "ny å"
    files.atomic_write_json(path, {"a": [1, None]})
    assert json.loads(path.read_text()) == {"a": [1, None]}
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.txt"]


def test_new_files_follow_the_umask(tmp_path: Path) -> None:
    old = os.umask(0o022)
    try:
        files.atomic_write_bytes(tmp_path / "a", b"x")
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o644


@pytest.mark.parametrize("failing", ["fsync", "replace"])
def test_a_failed_write_keeps_the_old_file_and_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    path = tmp_path / "a.json"
    files.atomic_write_json(path, {"version": 1})

    def no_space(*arguments: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files.os, failing, no_space)
    with pytest.raises(OSError, match="No space left"):
        files.atomic_write_json(path, {"version": 2})
    assert json.loads(path.read_text()) == {"version": 1}
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.json"]


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), {1, 2}])
def test_json_that_other_tools_cannot_read_is_refused(tmp_path: Path, bad: Any) -> None:
    path = tmp_path / "a.json"
    files.atomic_write_json(path, 1)
    with pytest.raises((ValueError, TypeError)):
        files.atomic_write_json(path, [bad])
    assert json.loads(path.read_text()) == 1
