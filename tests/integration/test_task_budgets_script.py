"""The script behind the table of quick trainings in docs/reward_search.md."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from embodied_icrl.manipulation.fetch import FetchPush
from embodied_icrl.reward_search.records import FitnessPoint, JobResult
from tests.integration.scripts import script_module


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return script_module("task_budgets", tmp_path, monkeypatch)


def result(status: Any, count: int) -> JobResult:
    points = tuple(FitnessPoint(30_000 * i, 0.1 * i, 0.05 * i, 20) for i in range(1, count + 1))
    reason = None if status == "done" else "a reason"
    return JobResult(status, reason, True, 300_000, points, {}, (), 1.0)


def test_rows_are_made_once_and_missing_or_failed_ones_are_shown_as_such(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = []

    def run_job(job: Any, limits: Any, layers: Any) -> JobResult:
        jobs.append(job)
        return result("done", 10) if job.candidate == "human" else result("failed", 0)

    monkeypatch.setattr(script, "run_job", run_job)
    for _ in range(2):
        for reward in ("human", "sparse"):
            script.make_row("fetch_push", reward, 0)
    assert [job.candidate for job in jobs] == ["human", "sparse"]
    assert jobs[0].source == FetchPush.human_reward and jobs[0].last_step == 300_000
    script.render()
    page = script.PAGE.read_text()
    assert page.startswith("before\n") and page.endswith("\nafter\n") and "old" not in page
    assert "| fetch_push | ppo 300,000 | human | 0 | 0.90 | 0.50 | 0.0 |" in page
    assert "| fetch_push | ppo 300,000 | sparse | 0 | failed | | 0.0 |" in page
    assert "| hand_block | ppo 200,000 | human | 0 | missing | |  |" in page


def test_a_row_of_another_budget_is_missing(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(script, "run_job", lambda *_: result("done", 10))
    script.make_row("fetch_push", "human", 0)
    path = script.path_of("fetch_push", "human", 0)
    row = json.loads(path.read_text())
    assert script.read("fetch_push", "human", 0) == row
    path.write_text(json.dumps({**row, "budget": {**row["budget"], "env_steps": 7}}))
    assert script.read("fetch_push", "human", 0) == {}
    assert "| human | 0 | missing |" in script.table()
