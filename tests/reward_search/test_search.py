from __future__ import annotations

import json
import os
import random
import signal
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from embodied_icrl.common.errors import ConfigError, RunError
from embodied_icrl.reward_search.accounting import BudgetSpent
from embodied_icrl.reward_search.evaluation_child import NOT_BUILT
from embodied_icrl.reward_search.records import Job, JobResult
from embodied_icrl.reward_search.store import read_search
from tests.reward_search import small_search
from tests.reward_search.small_search import FakeProposer, answer, config, mixed, reward, search


def rows(folder: Path) -> dict[str, dict[str, Any]]:
    return {row["id"]: row for row in json.loads((folder / "leaderboard.json").read_text())}


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def test_a_search_leaves_what_outside_tools_rely_on(tmp_path):
    outcome = search(config(tmp_path), mixed)
    board = json.loads((tmp_path / "leaderboard.json").read_text())
    assert outcome.status == "finished" and outcome.best is not None
    assert list(board[0]) == [
        "id", "iteration", "status", "fitness", "low", "high", "env_steps", "reason",
    ]  # fmt: skip
    assert {row["id"] for row in board} == {
        "human", "sparse", "i1_s00", "i1_s01", "i1_s02", "i2_s00", "i2_s01", "i2_s02",
    }  # fmt: skip
    trained = [row["fitness"] for row in board if row["status"] == "trained"]
    assert trained == sorted(trained, reverse=True)
    assert (tmp_path / "best" / "reward.py").read_text() == outcome.best.source
    for name in ("report.html", "transcript.jsonl", "accounting.json", "config.yaml"):
        assert (tmp_path / name).stat().st_size > 0, name


def test_the_same_search_twice_gives_the_same_leaderboard(tmp_path):
    search(config(tmp_path / "a"), mixed)
    search(config(tmp_path / "b"), mixed)
    assert (tmp_path / "a/leaderboard.json").read_bytes() == (
        tmp_path / "b/leaderboard.json"
    ).read_bytes()


def test_a_failed_answer_shifts_no_other(tmp_path):
    def text(i: int, s: int, attempt: int) -> str | None:
        return "no code" if s == 1 else answer(f"good 0.{i}{s}")

    search(config(tmp_path, samples=4), text)
    board = rows(tmp_path)
    for i in (1, 2):
        assert board[f"i{i}_s01"]["status"] == "refused"
        assert board[f"i{i}_s01"]["fitness"] is None
        for s in (0, 2, 3):
            name = f"i{i}_s{s:02d}"
            assert f"good 0.{i}{s}" in (tmp_path / "candidates" / name / "reward.py").read_text()
            if board[name]["status"] == "trained":
                assert board[name]["fitness"] == pytest.approx(float(f"0.{i}{s}"), rel=0.3)


def test_useless_answers_are_asked_for_again_with_the_reason(tmp_path):
    proposer = FakeProposer(mixed, tmp_path / "paid.log")
    search(config(tmp_path, iterations=1), mixed, proposer=proposer)
    first, second = proposer.requests
    assert (first.samples, second.samples, second.attempt) == ((0, 1, 2), (0, 1), 1)
    asked = second.messages[-1]["content"]
    assert "no function compute_reward" in asked
    assert "only numpy is there" in asked
    board = rows(tmp_path)
    assert board["i1_s00"]["status"] != "refused" and board["i1_s01"]["status"] != "refused"


def test_attempts_end_and_the_last_reason_stays(tmp_path):
    proposer = FakeProposer(lambda i, s, a: answer("refuse"), tmp_path / "paid.log")
    outcome = search(config(tmp_path, iterations=1, attempts=3), mixed, proposer=proposer)
    assert [request.attempt for request in proposer.requests] == [0, 1, 2]
    assert outcome.best is None and outcome.status == "finished"
    assert rows(tmp_path)["i1_s00"]["reason"] == "import, line 2: only numpy is there"
    assert (tmp_path / "report.html").exists()


def test_when_all_fail_the_next_question_says_why(tmp_path, capsys):
    def text(i: int, s: int, attempt: int) -> str | None:
        return answer("broken" if i == 1 else "good 0.5")

    proposer = FakeProposer(text, tmp_path / "paid.log")
    outcome = search(config(tmp_path, progress=True), mixed, proposer=proposer)
    assert "none of 3 rewards could be trained" in capsys.readouterr().err
    assert "the reward is nan at step 3" in proposer.requests[1].messages[-1]["content"]
    assert outcome.best is not None and outcome.best.id == "i2_s00"
    assert rows(tmp_path)["i1_s00"]["status"] == "failed"


def test_a_machine_that_can_not_build_the_task_teaches_the_writer_nothing(
    tmp_path, capsys, monkeypatch
):
    honest = small_search.fake_result

    def missing(job: Job) -> JobResult:
        if "unlucky" not in job.source:
            return honest(job)
        return JobResult("failed", f"{NOT_BUILT}: no module 'lab'", deterministic=False)

    monkeypatch.setattr(small_search, "fake_result", missing)

    def text(i: int, s: int, attempt: int) -> str | None:
        return answer(["unlucky", "broken", "good 0.5"][s] if i == 1 else f"good 0.{s + 1}")

    proposer = FakeProposer(text, tmp_path / "paid.log")
    search(config(tmp_path), mixed, proposer=proposer)
    asked = proposer.requests[1].messages[-1]["content"]
    assert "the reward is nan at step 3" in asked and "lab" not in asked
    assert capsys.readouterr().err.splitlines()[1:] == [
        "iteration 1: 1 of 3 rewards failed by no fault of theirs, and the next run tries them "
        f"again: {NOT_BUILT}: no module 'lab'"
    ]
    assert rows(tmp_path)["i1_s00"]["status"] == "failed"


def test_an_answer_that_is_held_back_costs_its_own_sample_only(tmp_path):
    def text(i: int, s: int, attempt: int) -> str | None:
        return None if s == 0 else answer(f"good 0.{s}")

    search(config(tmp_path, iterations=1), text)
    board = rows(tmp_path)
    assert board["i1_s00"]["reason"] == "no answer: held back"
    assert board["i1_s02"]["status"] == "trained"


def test_negative_fitness_is_no_failure(tmp_path):
    def text(i: int, s: int, attempt: int) -> str | None:
        return answer(f"good -0.{9 - s}")

    outcome = search(config(tmp_path, iterations=1, racing={"kind": "none"}), text)
    assert outcome.best is not None and outcome.best.id == "i1_s02"
    assert {row["status"] for row in rows(tmp_path).values()} == {"trained"}


@pytest.mark.parametrize("racing", ["halving", "none"])
def test_rewards_that_nothing_tells_apart_are_named_as_that(tmp_path, capsys, racing):
    def text(i: int, s: int, attempt: int) -> str | None:
        return answer("good 0.5" if i == 1 else f"good 0.{s + 1}")

    changed = config(tmp_path, samples=4, racing={"kind": racing})
    search(changed, text)
    told = [line for line in capsys.readouterr().err.splitlines() if "equally fit" in line]
    steps = [250, 500] if racing == "halving" else [1000]
    assert len(told) == len(steps)
    for line, step, count in zip(told, steps, (4, 2), strict=False):
        assert line.startswith(f"all {count} rewards are equally fit (")
        assert f"after {step} steps" in line and "quick.env_steps" in line
        assert ("racing=none" in line) == (racing == "halving")
    reasons = {row["reason"] for row in rows(tmp_path).values() if row["status"] == "stopped"}
    assert ("by racing: place 4 of 4 equally fit after 250 steps" in reasons) == bool(reasons)
    assert bool(reasons) == (racing == "halving")


def test_the_best_of_all_is_kept_and_shown_to_the_writer(tmp_path):
    def text(i: int, s: int, attempt: int) -> str | None:
        return answer(f"good 0.{9 - i}{s}")

    proposer = FakeProposer(text, tmp_path / "paid.log")
    outcome = search(config(tmp_path, iterations=3), text, proposer=proposer)
    assert outcome.best is not None and outcome.best.id == "i1_s02"
    for request in proposer.requests[1:]:
        assert request.parent is not None and request.parent.candidate == "i1_s02"
        assert reward("good 0.82") in request.messages[-1]["content"]
        assert "component near" in request.messages[-1]["content"]


def test_a_persons_words_go_into_the_next_question_once(tmp_path):
    words = tmp_path / "words.txt"
    folder = tmp_path / "run"
    words.write_text("It shakes.\n")
    proposer = FakeProposer(mixed, tmp_path / "paid.log")
    search(config(folder, feedback_file=str(words)), mixed, proposer=proposer)
    questions = [r.messages[-1]["content"] for r in proposer.requests if r.attempt == 0]
    assert ["It shakes." in question for question in questions] == [True, False]
    words.write_text("Now it limps.\n")
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # of answers to another prompt
        search(config(folder, feedback_file=str(words), iterations=3), mixed, proposer=proposer)
    assert "Now it limps." in proposer.requests[-1].messages[-1]["content"]
    assert read_search(folder)[0].feedback() == {1: "It shakes.", 3: "Now it limps."}


def test_a_search_can_begin_from_a_reward(tmp_path):
    mine = tmp_path / "mine.py"
    mine.write_text(reward("good 0.99"))
    proposer = FakeProposer(mixed, tmp_path / "paid.log")
    outcome = search(config(tmp_path / "run", init=str(mine)), mixed, proposer=proposer)
    assert outcome.best is not None and outcome.best.id == "init"
    assert "The reward to begin from" in proposer.requests[0].messages[-1]["content"]
    assert rows(tmp_path / "run")["init"]["iteration"] == 0
    mine.write_text(reward("refuse"))
    with pytest.raises(ConfigError, match="only numpy"):
        search(config(tmp_path / "other", init=str(mine)), mixed)
    with pytest.raises(ConfigError, match=r"init=.*nowhere.py: No such file"):
        search(config(tmp_path / "third", init=str(tmp_path / "nowhere.py")), mixed)


def test_a_reward_to_begin_from_that_was_edited_is_not_taken_for_the_one_before(tmp_path):
    mine, folder = tmp_path / "mine.py", tmp_path / "run"
    mine.write_text(reward("good 0.99"))
    search(config(folder, init=str(mine)), mixed)
    before = (folder / "leaderboard.json").read_bytes()
    mine.write_text(reward("good 0.01"))
    with pytest.raises(RunError, match=r"init=.*mine.py changed .*: choose another run=") as caught:
        search(config(folder, init=str(mine)), mixed)
    assert "\n" not in str(caught.value)
    mine.write_bytes((folder / "candidates" / "init" / "reward.py").read_bytes())
    search(config(folder, init=str(mine)), mixed)
    assert (folder / "leaderboard.json").read_bytes() == before


@pytest.mark.parametrize(
    ("when", "asked"), [("iteration 1", 1), ("iteration 2", 2), ("the end", 2)]
)
def test_a_task_that_is_edited_while_it_is_searched_is_noticed(tmp_path, monkeypatch, when, asked):
    """By whoever comes next, before the next question is paid for."""
    edited = False
    read = Path.read_bytes

    def read_bytes(path: Path) -> bytes:
        return read(path) + (b"\n" if edited and path.name == "planar_reach.py" else b"")

    def text(i: int, s: int, attempt: int) -> str | None:
        nonlocal edited
        edited = edited or when == f"iteration {i}"
        return mixed(i, s, attempt)

    def train(job: Job) -> JobResult:
        nonlocal edited
        edited = edited or (when == "the end" and job.phase == "final")
        return honest(job)

    honest = small_search.fake_result
    monkeypatch.setattr(Path, "read_bytes", read_bytes)
    monkeypatch.setattr(small_search, "fake_result", train)
    proposer = FakeProposer(text, tmp_path / "paid.log")
    with pytest.raises(
        RunError, match=r"planar_reach.py changed .*: choose another run="
    ) as caught:
        search(config(tmp_path / "run"), mixed, proposer=proposer)
    assert "\n" not in str(caught.value)
    assert {request.iteration for request in proposer.requests} == set(range(1, asked + 1))
    trained = [line for line in lines(tmp_path / "run" / "trained.log") if line.startswith("final")]
    assert bool(trained) == (when == "the end")
    assert (tmp_path / "run" / "report.html").exists()
    monkeypatch.setattr(Path, "read_bytes", read)
    search(config(tmp_path / "run"), mixed)


def test_the_budget_ends_it_with_what_it_has(tmp_path):
    def spent(i: int, s: int, attempt: int) -> Exception | None:
        return BudgetSpent("100 tokens of 100") if (i, s) == (2, 1) else None

    first = FakeProposer(mixed, tmp_path / "paid.log", spent)
    outcome = search(config(tmp_path, iterations=3), mixed, proposer=first)
    assert outcome.status == "spent" and outcome.best is not None
    assert set(rows(tmp_path)) - {"human", "sparse"} == {"i1_s00", "i1_s01", "i1_s02", "i2_s00"}
    assert "100 tokens of 100" in (outcome.reason or "")
    assert json.loads((tmp_path / "summary.json").read_text())["finals"]
    outcome = search(
        config(tmp_path, iterations=3), mixed, proposer=FakeProposer(mixed, tmp_path / "paid.log")
    )
    search(config(tmp_path / "whole", iterations=3), mixed)
    assert outcome.status == "finished"
    assert rows(tmp_path) == rows(tmp_path / "whole")
    assert max(Counter(lines(tmp_path / "paid.log")).values()) == 1


def test_finished_work_is_not_repeated_and_iterations_may_grow(tmp_path):
    search(config(tmp_path), mixed)
    before = (tmp_path / "leaderboard.json").read_bytes()
    paid, trained = lines(tmp_path / "paid.log"), lines(tmp_path / "trained.log")
    checked: list[str] = []

    def check(source: str) -> Any:
        checked.append(source)
        return small_search.fake_check(source)

    search(config(tmp_path), mixed, check=check)
    assert (tmp_path / "leaderboard.json").read_bytes() == before
    assert (lines(tmp_path / "paid.log"), lines(tmp_path / "trained.log")) == (paid, trained)
    assert checked == []
    search(config(tmp_path, iterations=3), mixed)
    assert set(rows(tmp_path)) > {"i3_s00", "i3_s01", "i3_s02"}
    assert lines(tmp_path / "paid.log")[: len(paid)] == paid
    with pytest.raises(RunError, match=r"iterations was 3, now 2 \(it may only grow\)"):
        search(config(tmp_path, iterations=2), mixed)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"samples": 4}, "samples was 3, now 4"),
        ({"seed": 1}, "seed was 0, now 1"),
        ({"selection": "max"}, "selection was 'mean_last', now 'max'"),
        ({"quick": {"env_steps": 500}}, "quick.env_steps was 1000, now 500"),
        ({"resume": False}, "holds a run already"),
    ],
)
def test_other_settings_are_refused(tmp_path, changes, message):
    search(config(tmp_path, iterations=1), mixed)
    before = (tmp_path / "config.yaml").read_bytes()
    with pytest.raises(RunError, match=message.replace("(", r"\(")):
        search(config(tmp_path, **{"iterations": 1, **changes}), mixed)
    assert (tmp_path / "config.yaml").read_bytes() == before


def test_free_settings_may_change(tmp_path):
    search(config(tmp_path), mixed)
    search(config(tmp_path, workers=1, limits={"stall_s": 5.0}, final_seeds=3), mixed)


def test_two_searches_cannot_share_a_directory(tmp_path):
    inside: list[str] = []

    def text(i: int, s: int, attempt: int) -> str | None:
        if not inside:
            pid = os.fork()
            if pid == 0:  # another process: a lock doesn't keep out its own
                status = 1
                try:
                    search(config(tmp_path), mixed)
                except RunError as error:
                    status = 7 if "another process is writing" in str(error) else 2
                finally:
                    os._exit(status)
            inside.append(str(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])))
        return mixed(i, s, attempt)

    search(config(tmp_path), text)
    assert inside == ["7"]


def test_a_full_disk_is_one_line_and_the_search_goes_on_later(tmp_path, monkeypatch):
    search(config(tmp_path / "whole"), mixed)
    real, left = os.fsync, [0]

    def fsync(descriptor: int) -> None:
        left[0] -= 1
        if left[0] == 0:
            raise OSError(28, "No space left on device")
        real(descriptor)

    for count in (3, 9, 20, 33, 50):
        left[0] = count
        monkeypatch.setattr(os, "fsync", fsync)
        with pytest.raises(RunError, match="No space left on device") as caught:
            search(config(tmp_path / "run"), mixed)
        assert "\n" not in str(caught.value)
    monkeypatch.setattr(os, "fsync", real)
    search(config(tmp_path / "run"), mixed)
    assert rows(tmp_path / "run") == rows(tmp_path / "whole")


def test_torn_files_count_as_not_done(tmp_path):
    search(config(tmp_path), mixed)
    before = rows(tmp_path)
    for path in tmp_path.rglob("*.json"):
        if path.name not in ("accounting.json",) and not path.name.startswith("fake_"):
            path.write_bytes(path.read_bytes()[:10])
    search(config(tmp_path), mixed)
    assert rows(tmp_path) == before


def killed_search(folder: Path, writes: int) -> bool:
    """Search in a child that is killed at its `writes`-th write; whether it was."""
    pid = os.fork()
    if pid == 0:
        real, left = os.fsync, [writes]

        def fsync(descriptor: int) -> None:
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            real(descriptor)

        os.fsync = fsync
        try:
            search(config(folder, iterations=3), mixed)
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL


def test_killed_at_20_moments_it_ends_with_the_same_leaderboard(tmp_path):
    search(config(tmp_path / "whole", iterations=3), mixed)
    drawn = random.Random(3)
    folder = tmp_path / "run"
    kills = sum(killed_search(folder, drawn.randint(1, 14)) for _ in range(20))
    assert kills == 20
    search(config(folder, iterations=3), mixed)
    for name in ("leaderboard.json", "best/reward.py"):
        assert (folder / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name
    finals = [json.loads((f / "summary.json").read_text())["finals"] for f in
              (folder, tmp_path / "whole")]  # fmt: skip
    assert finals[0] == finals[1]
    for name in ("paid.log", "trained.log"):
        repeated = {line: n for line, n in Counter(lines(folder / name)).items() if n > 1}
        assert not repeated, name
