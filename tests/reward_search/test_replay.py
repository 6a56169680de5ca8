"""An earlier search again, without whoever answered it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from embodied_icrl.common.config import build
from embodied_icrl.common.errors import ConfigError, UserError
from embodied_icrl.manipulation.planar_reach import PlanarReach
from embodied_icrl.reward_search.accounting import BudgetSpent
from embodied_icrl.reward_search.prompt_files import prompt_file
from embodied_icrl.reward_search.proposers.openai import OpenAIConfig
from embodied_icrl.reward_search.proposers.recorded import open_proposer
from embodied_icrl.reward_search.proposers.replay import ReplayConfig, ReplayError
from embodied_icrl.reward_search.proposers.terms import TermsConfig
from embodied_icrl.reward_search.records import Request
from tests.reward_search.chat_server import ANSWER, chat_server, says

TASK = PlanarReach()
MESSAGES = ({"role": "user", "content": "write"},)
REQUEST = Request(1, (0, 1, 2), 0, MESSAGES)


@pytest.fixture
def recorded(tmp_path):
    folder = tmp_path / "first"
    folder.mkdir()
    proposer = open_proposer(TermsConfig(), TASK, seed=0, folder=folder)
    proposer.propose(REQUEST)
    proposer.propose(replace(REQUEST, attempt=1, samples=(2,)))
    return folder


def replay(tmp_path, source, strict=False):
    folder = tmp_path / "second"
    folder.mkdir(exist_ok=True)
    config = ReplayConfig(str(source), strict)
    return open_proposer(config, TASK, seed=99, folder=folder)


def test_the_same_requests_get_the_same_answers(tmp_path, recorded):
    first = open_proposer(TermsConfig(), TASK, seed=0, folder=recorded)
    for source in (recorded, recorded / "transcript.jsonl"):
        second = replay(tmp_path, source)
        for request in (REQUEST, replace(REQUEST, attempt=1, samples=(2,))):
            assert second.propose(request) == first.propose(request)
    # The replay wrote a transcript of its own, which can be replayed.
    third = open_proposer(
        ReplayConfig(str(tmp_path / "second")), TASK, seed=0, folder=tmp_path
    ).propose(REQUEST)
    assert third == first.propose(REQUEST)


def ends_at(proposer):
    """The iteration before which the budget stops a search, and what was had of it."""
    for iteration in range(2, 99):
        try:
            proposer.propose(replace(REQUEST, iteration=iteration))
        except BudgetSpent as stop:
            return iteration, str(stop), [(a.sample, a.text) for a in stop.answers]
    raise AssertionError("no end")


def test_a_paid_search_is_replayed_for_nothing(tmp_path, monkeypatch):
    pytest.importorskip("openai")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    folder = tmp_path / "first"
    folder.mkdir()
    with chat_server(says(ANSWER, "no code")) as server:
        node = {"_target_": f"{OpenAIConfig.__module__}.OpenAIConfig", "model": "big"}
        node |= {"base_url": server.url, "spending": {"max_tokens": 9500}, "answer_tokens": 3000}
        live = open_proposer(build(node), TASK, seed=0, folder=folder)
        answers = live.propose(REQUEST)
        last = ends_at(live)
    again = replay(tmp_path, folder, strict=True)
    assert (again.name, again.model, again.is_language_model) == ("replay", "big", True)
    assert [a.text for a in again.propose(REQUEST)] == [a.text for a in answers]
    assert again.accounting.totals.calls == 0
    assert ends_at(again) == last


def test_a_missing_answer_is_named(tmp_path, recorded):
    proposer = replay(tmp_path, recorded)
    with pytest.raises(ReplayError, match="no answer for iteration 1, sample 7, attempt 0"):
        proposer.propose(replace(REQUEST, samples=(1, 7)))
    with pytest.raises(ReplayError, match="iteration 4, sample 0, attempt 2"):
        proposer.propose(Request(4, (0,), 2, MESSAGES))


def test_another_prompt_warns_or_is_an_error(tmp_path, recorded):
    other = replace(REQUEST, messages=({"role": "user", "content": "else"},))
    then, now = prompt_file(recorded, REQUEST), prompt_file(Path(), other)
    assert then.exists()
    with pytest.raises(
        ReplayError, match=r"sample 0, attempt 0 answered another prompt; strict"
    ) as (refused):
        replay(tmp_path, recorded, strict=True).propose(other)
    assert f"compare {then} with this search's {now}" in str(refused.value)
    with pytest.warns(UserWarning, match="answered another prompt") as told:
        answers = replay(tmp_path, recorded).propose(other)
    assert len(answers) == 3 and all(a.text for a in answers)
    assert f"compare {then} with this search's {now}" in str(told[0].message)
    assert "else" in (tmp_path / "second" / now).read_text()


def test_a_transcript_that_was_moved_has_no_prompts(tmp_path, recorded):
    moved = tmp_path / "elsewhere.jsonl"
    moved.write_bytes((recorded / "transcript.jsonl").read_bytes())
    other = replace(REQUEST, messages=({"role": "user", "content": "else"},))
    with pytest.warns(UserWarning, match="that prompt was not kept"):
        replay(tmp_path, moved).propose(other)


def test_no_transcript_is_a_clear_error(tmp_path):
    with pytest.raises(ConfigError, match=r"proposer\.transcript=.*no such file"):
        replay(tmp_path, tmp_path / "nowhere")
    empty = tmp_path / "transcript.jsonl"
    empty.write_text("")
    with pytest.raises(ConfigError, match="no answer in this transcript"):
        replay(tmp_path, empty)
    empty.write_text("oops\n")
    with pytest.raises(UserError, match="line 1"):
        replay(tmp_path, empty)
