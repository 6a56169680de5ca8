from __future__ import annotations

import io

import pytest
from rich.console import Console

from embodied_icrl.reward_search import search_progress
from embodied_icrl.reward_search.accounting import BudgetSpent
from embodied_icrl.reward_search.search_progress import SearchProgress, clock
from tests.reward_search import small_search
from tests.reward_search.small_search import FakeProposer, answer, config, mixed, search


def test_lines_where_there_is_no_terminal(capsys):
    with SearchProgress(enabled=True, spending=lambda: "12 tokens of 100") as progress:
        progress.begin("iteration 1 of 2", ["i1_s00"])
        progress.state("i1_s00", "training")
        progress.moved("i1_s00", "seed_0", 10, 5.0)
        progress.trained("i1_s00", "seed_0", 10, 0.5)
        progress.state("i1_s00", "trained")
        progress.state("i1_s01", "refused", "import, line 1: [bold]no[/bold]")
    assert capsys.readouterr().err.splitlines() == [
        "iteration 1 of 2",
        "i1_s00: trained, fitness 0.500  [12 tokens of 100]",
        "i1_s01: refused (import, line 1: [bold]no[/bold])  [12 tokens of 100]",
    ]


def test_nothing_is_shown_when_it_is_off(capsys):
    with SearchProgress(enabled=False, spending=lambda: "") as progress:
        progress.begin("iteration 1 of 2", ["i1_s00"])
        progress.state("i1_s00", "trained")
    assert capsys.readouterr() == ("", "")


def test_a_notice_is_shown_even_when_it_is_off(capsys):
    with SearchProgress(enabled=False, spending=lambda: "") as progress:
        progress.say("iteration 1 of 2")
        progress.notice("5 iterations may cost 3.20")
    assert capsys.readouterr() == ("", "5 iterations may cost 3.20\n")


def test_what_a_person_has_to_know_of_a_quiet_search(tmp_path, capsys):
    def spent(i: int, s: int, attempt: int) -> Exception | None:
        return BudgetSpent("100 tokens of 100") if i == 2 else None

    proposer = FakeProposer(mixed, tmp_path / "paid.log", spent)
    search(config(tmp_path, video=True), mixed, proposer=proposer)
    assert capsys.readouterr().err.splitlines() == [
        "2 iterations may cost a fortune",
        "the budget is spent: 100 tokens of 100",
        "no film: no trained policy was found",
    ]


@pytest.mark.parametrize(
    "changes",
    [{}, {"racing": {"kind": "none"}}, {"samples": 8, "seeds": 2}, {"baselines": False}],
    ids=["racing", "no racing", "more seeds", "no baselines"],
)
def test_the_steps_expected_are_those_that_are_done(tmp_path, monkeypatch, changes):
    expected: list[int] = []
    done: list[int] = []

    class Watched(SearchProgress):
        def expect(self, env_steps):
            expected.append(env_steps + sum(done))

        def trained(self, candidate, training, env_steps, fitness, *, before=False):
            done.append(env_steps)

    monkeypatch.setattr(small_search, "SearchProgress", Watched)
    search(config(tmp_path, **changes), lambda i, s, attempt: answer(f"good 0.{i}{s}"))
    assert len(expected) == 3 and sum(done) > 0
    assert set(expected) == {sum(done)}


def test_a_table_on_a_terminal():
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=120, color_system=None)
    with SearchProgress(enabled=True, spending=lambda: "9 tokens", console=console) as progress:
        progress.begin("iteration 1 of 2", ["i1_s00", "i1_s01"])
        progress.state("i1_s00", "training")
        progress.moved("i1_s00", "seed_0", 1000, 250.0)
        progress.moved("i1_s00", "seed_1", 2000, 500.0)
        progress.trained("i1_s01", "seed_0", 4096, 0.25)
        progress.state("i1_s01", "failed", "[red]nan[/red]")
    drawn = file.getvalue()
    for text in ("3,000", "750", "training", "4,096", "0.250", "[red]nan[/red]", "9 tokens"):
        assert text in drawn, text


def test_the_time_left_counts_only_what_was_done_now(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(search_progress.time, "monotonic", lambda: now[0])
    progress = SearchProgress(enabled=False, spending=lambda: "")
    progress.expect(1000)
    progress.trained("a", "seed_0", 500, None, before=True)
    assert progress.eta() == ""
    now[0] += 10
    progress.trained("b", "seed_0", 100, None)
    assert progress.eta() == clock(40) == "0:00:40"
