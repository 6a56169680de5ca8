"""From the directory of a search to what its report shows."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import pytest

from embodied_icrl.common.errors import ConfigError
from embodied_icrl.manipulation.planar_push import PlanarPush
from embodied_icrl.reward_search import search_report
from embodied_icrl.reward_search.film import Footage
from embodied_icrl.reward_search.proposers.replay import ReplayConfig
from embodied_icrl.reward_search.records import Job, JobResult
from embodied_icrl.reward_search.report_data import ReportData
from embodied_icrl.reward_search.search_report import correlate_best, report_data, report_search
from embodied_icrl.reward_search.store import read_search
from embodied_icrl.reward_search.terms_run import best_of_terms
from tests.reward_search import small_search
from tests.reward_search.small_search import answer, config, mixed, search
from tests.reward_search.test_film import take, weights
from tests.reward_search.trainings import HONEST


def shown(folder: Path) -> ReportData:
    return report_data(*read_search(folder))


def test_a_best_reward_that_fails_at_the_end_is_in_the_report(tmp_path, monkeypatch):
    honest = small_search.fake_result
    seen: list[int] = []

    def fails(job: Job) -> JobResult:
        result = honest(job)
        if job.last_step < 2000 or "good 0.9" not in job.source:
            return result
        seen.append(job.seed)
        if len(seen) != 2:
            return result
        # Half way: what was measured until then is not the fitness of a whole training.
        return dataclasses.replace(
            result, status="failed", reason="no step within 60 s", fitness=result.fitness[:2]
        )

    monkeypatch.setattr(small_search, "fake_result", fails)
    best = config(tmp_path, iterations=1, final_seeds=3)
    search(best, lambda i, s, attempt: answer(f"good 0.{7 + s}"))
    data = shown(tmp_path)
    final = next(result for result in data.finals if result.id == data.best)
    assert (final.status, final.reason, final.mean) == ("failed", "no step within 60 s", None)
    assert len(final.per_seed) == 2 and final.per_seed[0] == final.per_seed[1]
    page = (tmp_path / "report.html").read_text()
    assert "failed: no step within 60 s; 2 seeds finished" in page
    assert "all numbers here are therefore" in page.lower()


def test_without_a_film_the_report_says_why(tmp_path):
    search(config(tmp_path), mixed)
    data = shown(tmp_path)
    assert (data.videos, data.no_video) == ((), "video=false")
    assert (data.correlation, data.no_correlation) == (None, "no trained policy was found")


def test_a_failed_film_is_told_and_does_not_take_the_correlation_with_it(
    tmp_path, monkeypatch, capsys
):
    def broken(*args, **options) -> Footage:
        return Footage(None, "nothing can be drawn here")

    policies = [take(weights(tmp_path / "w.safetensors", 0), "i1_s00")]
    policies[0].weights.chmod(0o644)  # as jobs leave them: the evaluator may be another user
    monkeypatch.setattr(search_report, "takes", lambda *args: policies)
    monkeypatch.setattr(search_report, "film_candidates", broken)
    code = f"```python\n{HONEST}# good 0.5\n```\n"
    searched = config(tmp_path / "run", video=True, iterations=1, samples=1, final_seeds=0)
    search(searched, lambda i, s, attempt: code)
    assert "no film: nothing can be drawn here" in capsys.readouterr().err
    data = shown(tmp_path / "run")
    assert (data.videos, data.no_video) == ((), "nothing can be drawn here")
    # The reward found is the human-written one: they agree on whatever states there are.
    assert data.correlation is not None, data.no_correlation
    assert data.no_correlation == ""
    assert data.correlation.pearson == pytest.approx(1.0)
    assert data.correlation.states == 5 * searched.task.horizon
    assert "a random policy and of those trained with i1_s00" in data.correlation.origin
    page = report_search(*read_search(tmp_path / "run")).read_text()
    assert "No film: nothing can be drawn here" in page and "Pearson 1.000" in page


def test_policies_that_can_not_be_used_are_the_reason_for_a_missing_correlation(
    tmp_path, monkeypatch
):
    search(config(tmp_path / "run"), mixed)
    torn = tmp_path / "w.safetensors"
    torn.write_bytes(b"torn")
    monkeypatch.setattr(search_report, "takes", lambda *args: [take(torn, "i1_s00")])
    store, searched = read_search(tmp_path / "run")
    assert store.best() is not None
    correlate_best(store, searched, str(store.best()))
    data = shown(tmp_path / "run")
    assert data.correlation is None and "weights can't be read" in data.no_correlation


# --- beside the search over terms


@pytest.fixture(scope="module")
def terms(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("terms") / "run"
    search(config(folder), mixed)
    return folder


def test_the_best_of_terms_stands_beside_it(terms, tmp_path):
    search(config(tmp_path, terms_run=str(terms), seed=1), mixed)
    data = shown(tmp_path)
    assert data.terms is not None and data.no_terms == ""
    assert data.terms.id == f"terms: {shown(terms).best}"
    assert data.terms.mean == shown(terms).finals[0].mean


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"task": PlanarPush(horizon=20)}, "another task than here"),
        ({"full": {"env_steps": 3000}}, "another last budget"),
        ({"final_budget": "quick"}, "another last budget"),
        ({"checkpoints": 5}, "another checkpoints"),
        ({"final_episodes": 7}, "another final_episodes"),
        ({"selection": "max"}, "another selection"),
    ],
    ids=["task", "budget", "quick", "checkpoints", "episodes", "selection"],
)
def test_another_search_is_not_compared_with(terms, tmp_path, changes, problem):
    with pytest.raises(ConfigError, match=f"terms_run=.*: {problem}") as caught:
        best_of_terms(config(tmp_path, terms_run=str(terms), **changes))
    assert "\n" not in str(caught.value)


def test_only_a_finished_search_over_terms_is_compared_with(terms, tmp_path):
    here = config(tmp_path / "here", terms_run=str(tmp_path / "other"))
    other = tmp_path / "other"

    def problem() -> str:
        with pytest.raises(ConfigError) as caught:
            best_of_terms(here)
        return str(caught.value)

    search(config(other, proposer=ReplayConfig(str(terms))), mixed)
    assert "its proposer is not terms" in problem()
    shutil.rmtree(other)
    search(config(other, final_seeds=0), mixed)
    assert "has no trainings at the end" in problem()
    (other / "summary.json").unlink()
    assert "is not finished" in problem()
    shutil.rmtree(other)
    shutil.copytree(terms, other)
    assert best_of_terms(here) is not None


def test_a_report_outlives_the_search_that_it_is_compared_with(terms, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(terms, other)
    search(config(tmp_path / "run", terms_run=str(other)), mixed)
    shutil.rmtree(other)
    data = shown(tmp_path / "run")
    assert data.terms is None and "not a run directory" in data.no_terms
