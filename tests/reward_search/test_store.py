from __future__ import annotations

from pathlib import Path

import pytest

from embodied_icrl.common.errors import RunError
from embodied_icrl.reward_search.checks import CheckReport
from embodied_icrl.reward_search.findings import Finding
from embodied_icrl.reward_search.records import Candidate
from embodied_icrl.reward_search.search_config import task_paths
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
    import importlib

    for name in ("tasks", "tasks.mine"):
        task = importlib.import_module(name).Mine()
        assert task_paths(task) == (str((tmp_path / "lab").resolve()),)


def test_a_task_of_ones_own_that_was_edited_is_not_mixed_with_its_earlier_version(
    tmp_path, monkeypatch
):
    file = tmp_path / "edited_task.py"
    file.write_text(
        "from dataclasses import dataclass\n"
        "from embodied_icrl.manipulation.planar_reach import PlanarReach\n"
        "@dataclass(frozen=True)\n"
        "class Mine(PlanarReach):\n"
        "    pass\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    mine = config(tmp_path / "run", task={"_target_": "edited_task.Mine"})
    for _ in range(2):
        open_store(mine).close()
    file.write_text(file.read_text() + "# another\n")
    for _ in range(2):  # and the directory isn't left locked
        with pytest.raises(RunError, match=r"edited_task.py has changed .* choose another run="):
            open_store(mine)
