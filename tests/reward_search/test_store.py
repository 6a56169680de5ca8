from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from embodied_icrl.common.errors import RunError
from embodied_icrl.reward_search.checks import CheckReport
from embodied_icrl.reward_search.findings import Finding
from embodied_icrl.reward_search.records import Candidate
from embodied_icrl.reward_search.search_config import SearchConfig, task_paths
from embodied_icrl.reward_search.selection import ranked
from embodied_icrl.reward_search.store import Store, open_store, read_search
from embodied_icrl.runs.run import Run
from tests.reward_search.small_search import config


def store(path: Path) -> Store:
    return Store(Run(path, {}))


def test_candidates_come_back_as_they_were(tmp_path):
    whole = Candidate(
        "i1_s03", 1, "trained", None, "code", "init", 0.1 + 0.2, 0.25, 0.35, 7,
        {"step": (1.0, 2.0), "fitness": (0.1, 0.2)},
    )  # fmt: skip
    human = Candidate("human", 0, "failed", "odd\nreason", "other code")
    for candidate in (whole, human):
        store(tmp_path).save_candidate(candidate)
    assert store(tmp_path).candidates() == [human, whole]
    (tmp_path / "candidates" / "i1_s03" / "candidate.json").write_text('{"id": "i1')
    assert store(tmp_path).candidates() == [human]


def test_checks_are_remembered_for_the_same_code_only(tmp_path):
    report = CheckReport((Finding("import", 2, "no"),), deterministic=False)
    store(tmp_path).save_checks("i1_s00", "first", report)
    store(tmp_path).save_checks("i1_s00", "second", CheckReport(()))
    assert store(tmp_path).checks("i1_s00", "first") == report
    assert store(tmp_path).checks("i1_s00", "second") == CheckReport(())
    assert store(tmp_path).checks("i1_s00", "third") is None
    assert store(tmp_path).clocked("i1_s00") and not store(tmp_path).clocked("i1_s01")
    for torn in ("", "[", "[1]", '{"source": 1}', '[{"source": null}]'):
        (tmp_path / "candidates" / "i1_s00" / "checks.json").write_text(torn)
        assert store(tmp_path).checks("i1_s00", "first") is None


def test_words_are_given_once_and_stay_with_their_iteration(tmp_path):
    assert store(tmp_path).begin_iteration(1, "slower") == "slower"
    assert store(tmp_path).begin_iteration(1, "faster") == "slower"
    assert store(tmp_path).begin_iteration(2, "slower") is None
    assert store(tmp_path).begin_iteration(2, "faster") is None
    assert store(tmp_path).begin_iteration(3, "faster") == "faster"
    assert store(tmp_path).feedback() == {1: "slower", 3: "faster"}


def test_the_best_come_first_and_equals_keep_their_order():
    rows = [
        Candidate("i1_s00", 1, "refused"),
        Candidate("i1_s01", 1, "stopped", fitness=0.9),
        Candidate("i1_s02", 1, "trained", fitness=-0.5),
        Candidate("i1_s03", 1, "failed", fitness=0.95),
        Candidate("i2_s00", 2, "trained", fitness=0.3),
        Candidate("i1_s04", 1, "trained", fitness=0.3),
        Candidate("i2_s01", 2),
    ]
    assert [row.id for row in ranked(rows)] == [
        "i1_s04", "i2_s00", "i1_s02", "i1_s01", "i2_s01", "i1_s03", "i1_s00",
    ]  # fmt: skip
    assert ranked(rows[::-1]) == ranked(rows)


def test_a_folder_that_holds_something_else_is_left_alone(tmp_path):
    (tmp_path / "transcript.jsonl").write_text("")
    with pytest.raises(RunError, match=r"holds transcript.jsonl but no config.yaml"):
        open_store(config(tmp_path))
    other = tmp_path / "other"
    other.mkdir()
    (other / "config.yaml").write_text("trainer: {}\n")
    with pytest.raises(RunError, match="not of `embodied-icrl reward search`"):
        read_search(other)


def test_a_search_can_be_read_by_its_directory_alone(tmp_path):
    wanted = config(tmp_path, racing={"kind": "none"}, quick={"hyperparameters": {"gamma": 0.9}})
    open_store(wanted).close()
    assert read_search(tmp_path)[1] == wanted


def test_where_a_task_of_ones_own_lies(tmp_path, monkeypatch):
    assert task_paths(config(tmp_path).task) == ()
    package = tmp_path / "lab" / "tasks"
    package.mkdir(parents=True)
    text = (
        "from embodied_icrl.manipulation.planar_reach import PlanarReach\n"
        "class Mine(PlanarReach):\n    pass\n"
    )
    (package / "__init__.py").write_text(text)
    (package / "mine.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path / "lab")
    for name in ("tasks", "tasks.mine"):
        task = importlib.import_module(name).Mine()
        assert task_paths(task) == (str((tmp_path / "lab").resolve()),)


TASK = """
from dataclasses import dataclass
from embodied_icrl.manipulation.planar_reach import PlanarReach
{imports}

@dataclass(frozen=True)
class Mine(PlanarReach):
    def make_env(self):
        {lazy}
        return super().make_env()
"""
LAB = {
    "watched_lab/__init__.py": "",
    "watched_lab/tasks/__init__.py": "",
    "watched_lab/tasks/mine.py": TASK.format(
        imports="import numpy\nfrom ..near import arm",
        lazy="from watched_lab.tasks import late",
    ),
    "watched_lab/tasks/late.py": "import watched_side\n",
    "watched_lab/near/__init__.py": "",
    "watched_lab/near/arm.py": "A = 1\n",
    "watched_lab/tasks/models/parts/hand.xml": "<mujoco/>",
    "watched_side.py": "B = 1\n",
    "models/arm.mjcf": "<mujoco/>",
    # What the task doesn't read.
    "watched_lab/unused.py": "C = 1\n",
    "runs/a/candidates/i1_s00/reward.py": "D = 1\n",
    ".hidden/old.xml": "<mujoco/>",
    "a/b/c/d/far.xml": "<mujoco/>",
    "notes.txt": "E\n",
}
PARTS = (
    "watched_lab/tasks/mine.py", "watched_lab/tasks/late.py", "watched_lab/near/arm.py",
    "watched_lab/near/__init__.py", "watched_lab/tasks/models/parts/hand.xml",
    "watched_side.py", "models/arm.mjcf",
)  # fmt: skip
OTHERS = (
    "watched_lab/unused.py", "runs/a/candidates/i1_s00/reward.py", ".hidden/old.xml",
    "a/b/c/d/far.xml", "notes.txt",
)  # fmt: skip


def write_lab(folder: Path) -> None:
    for name, text in LAB.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.fixture
def lab(tmp_path, monkeypatch) -> Iterator[SearchConfig]:
    """A search on a task in a package of one's own; the search in `runs/b` has begun."""
    write_lab(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    target = {"_target_": "watched_lab.tasks.mine.Mine"}
    mine = config(tmp_path / "runs" / "b", task=target)
    open_store(mine).close()
    yield mine
    for name in [name for name in sys.modules if name.startswith("watched_")]:
        del sys.modules[name]


@pytest.mark.parametrize("name", PARTS)
def test_a_task_of_ones_own_that_was_edited_is_not_mixed_with_its_earlier_version(
    tmp_path, lab, name
):
    open_store(lab).close()
    file = tmp_path / name
    before = file.read_text()
    file.write_text(before + "\n")
    for _ in range(2):  # and the directory isn't left locked
        with pytest.raises(RunError, match=f"{file} changed .*: choose another run=") as caught:
            open_store(lab)
        assert "\n" not in str(caught.value)
    file.write_text(before)
    open_store(lab).close()


@pytest.mark.parametrize("name", OTHERS)
def test_other_files_beside_a_task_may_be_edited(tmp_path, lab, name):
    (tmp_path / name).write_text("edited = 1\n")
    open_store(lab).close()


def test_a_file_of_a_task_that_is_gone_is_named_and_one_that_came_is_watched(tmp_path, lab):
    other = tmp_path / "models" / "other.xml"
    other.write_text("<mujoco/>")
    open_store(lab).close()
    other.write_text("<mujoco></mujoco>")
    with pytest.raises(RunError, match=r"other.xml changed"):
        open_store(lab)
    other.unlink()
    with pytest.raises(RunError, match=r"models/other.xml is no longer part of the task"):
        open_store(lab)


def test_the_files_of_a_task_are_named_alike_wherever_they_lie(tmp_path, lab):
    names = json.loads((lab.folder / "task.json").read_text())["files"]
    assert not any(str(tmp_path) in name for name in names)
    # The parts of the package that the task is made of are watched, too.
    reach = {"embodied_icrl/manipulation/planar_reach.py", "assets/manipulation/planar_reach.xml"}
    init = {"watched_lab/__init__.py", "watched_lab/tasks/__init__.py"}
    assert set(names) == {*PARTS, *init, *reach}


def test_what_an_earlier_version_noted_of_a_task_is_not_enough(lab):
    (lab.folder / "task.json").write_text('{"code": "0123"}')
    with pytest.raises(RunError, match=r"earlier version, .*; choose another run="):
        open_store(lab)


@pytest.mark.parametrize(
    "name", ["embodied_icrl/manipulation/planar_reach.py", "assets/manipulation/planar_reach.xml"]
)
def test_a_task_of_the_package_is_watched_too(tmp_path, monkeypatch, name):
    reach = config(tmp_path / "run")
    open_store(reach).close()
    read = Path.read_bytes

    def edited(path: Path) -> bytes:
        return read(path) + (b"\n" if str(path).endswith(name) else b"")

    monkeypatch.setattr(Path, "read_bytes", edited)
    with pytest.raises(RunError, match=f"{name} changed .*: choose another run="):
        open_store(reach)
    monkeypatch.setattr(Path, "read_bytes", read)
    open_store(reach).close()
