"""A whole search against a local server that speaks chat completions."""

from __future__ import annotations

import json
import re
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from embodied_icrl.common.errors import UserError
from embodied_icrl.reward_search.accounting import estimated_tokens
from embodied_icrl.reward_search.proposers.openai import TYPICAL_ANSWER
from tests.reward_search.chat_server import (
    Behaviour,
    breaks_off,
    chat_server,
    completion,
    hangs_up,
    raw,
    send,
    status,
)
from tests.reward_search.small_search import answer, config, search

pytest.importorskip("openai")

KEY = "sk-very-secret-0123456789"


def writer(handler: BaseHTTPRequestHandler, body: Any) -> None:
    """A model of mixed talent: the second of its answers has no code, the others repeat the key."""
    texts = [answer(f"good 0.{i + 1} {KEY}") for i in range(body.get("n", 1))]
    texts[1:2] = ["I would rather write a poem."] if len(texts) > 1 else []
    send(handler, 200, json.dumps(completion(texts)).encode())


def dear(handler: BaseHTTPRequestHandler, body: Any) -> None:
    """Says the same to everything, at length."""
    usage = {"prompt_tokens": 1500, "completion_tokens": 2500, "total_tokens": 4000}
    texts = [answer("good 0.5")] * body.get("n", 1)
    send(handler, 200, json.dumps(completion(texts, usage=usage)).encode())


def settings(url: str, **spending: Any) -> dict[str, Any]:
    return {
        "proposer": {
            "_target_": "embodied_icrl.reward_search.proposers.openai.OpenAIConfig",
            "model": "poet-1", "base_url": url, "spending": spending,
            "patience": {"first_wait_s": 0.0},
        },
        "progress": True,
    }  # fmt: skip


def test_answers_are_paid_once_and_the_key_stays_out_of_the_directory(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    prices = {"prompt_price": 1.0, "completion_price": 10.0, "max_cost": 1.0}
    with chat_server(status(500), writer) as server:
        wanted = config(tmp_path, **settings(server.url, **prices))
        outcome = search(wanted, str, proposer="configured")
        calls = len(server.bodies)
        search(wanted, str, proposer="configured")
        assert len(server.bodies) == calls
    assert outcome.best is not None and outcome.best.id == "i1_s02"
    told = capsys.readouterr().err
    assert told.index("2 iterations of 3 answers by poet-1") < told.index("best so far")
    assert "status 500" in told and "; asking again in 0 s (1 of 6)" in told
    assert " of 1" in told  # the money spent against the budget
    spent = json.loads((tmp_path / "accounting.json").read_text())
    assert spent["cost"] > 0 and spent["completion_tokens"] >= 20 * 4
    assert "rather write a poem" in (tmp_path / "transcript.jsonl").read_text()
    prompts = [path.read_text() for path in sorted(tmp_path.glob("prompts/i2_a0_*.md"))]
    assert len(prompts) == 1 and "good 0.3 [key]" in prompts[0]
    for path in tmp_path.rglob("*"):
        assert path.is_dir() or KEY.encode() not in path.read_bytes(), path


def test_a_spent_budget_ends_it_and_a_larger_one_goes_on(tmp_path):
    with chat_server(dear) as server:
        tight = settings(server.url, max_tokens=24_000)
        outcome = search(config(tmp_path / "a", iterations=5, **tight), str, proposer="configured")
        assert outcome.status == "spent" and outcome.best is not None
        assert "max_tokens" in (outcome.reason or "")
        spent = json.loads((tmp_path / "a" / "accounting.json").read_text())
        assert spent["prompt_tokens"] + spent["completion_tokens"] <= 24_000
        paid = len((tmp_path / "a" / "transcript.jsonl").read_text().splitlines())
        assert 3 <= paid < 15
        ample = settings(server.url, max_tokens=10**7)
        for name in ("a", "whole"):
            wanted = config(tmp_path / name, iterations=5, **ample)
            outcome = search(wanted, str, proposer="configured")
            assert outcome.status == "finished"
    boards = [(tmp_path / name / "leaderboard.json").read_bytes() for name in ("a", "whole")]
    assert boards[0] == boards[1]


def meter(most: int, text: str) -> Behaviour:
    """Gives up to `most` answers per call, all the same; counts tokens as we estimate them."""

    def behave(handler: BaseHTTPRequestHandler, body: Any) -> None:
        texts = [text] * min(body.get("n", 1), most)
        prompt = sum(estimated_tokens(message["content"]) for message in body["messages"])
        counts = {"prompt_tokens": prompt, "completion_tokens": len(texts) * len(text) // 3}
        send(handler, 200, json.dumps(completion(texts, usage=counts)).encode())

    return behave


def told_and_taken(folder: Path, told: str) -> tuple[int, int, int]:
    """What a search usually and at most takes, as it was told, and what it took; in tokens."""
    match = re.search(r"about (\d+) tokens .* at most (\d+) tokens", told)
    assert match is not None
    spent = json.loads((folder / "accounting.json").read_text())
    usual, most = map(int, match.groups())
    return usual, most, spent["prompt_tokens"] + spent["completion_tokens"]


@pytest.mark.parametrize("per_call", [None, 4, 1])
def test_the_expected_cost_is_about_what_it_then_costs(tmp_path, capsys, per_call):
    node = settings("")
    node["proposer"]["answers_per_call"] = per_call
    text = answer(f"good 0.5 {'x' * (3 * TYPICAL_ANSWER)}")
    with chat_server(meter(6, text)) as server:
        node["proposer"]["base_url"] = server.url
        wanted = config(tmp_path, samples=6, iterations=4, final_seeds=0, **node)
        search(wanted, str, proposer="configured")
    usual, most, taken = told_and_taken(tmp_path, capsys.readouterr().err)
    assert 0.8 * taken < usual < 1.2 * taken < most


@pytest.mark.parametrize("text", [answer("good 0.5 " + "x" * 18_000), "x" * 18_000])
def test_the_most_that_is_told_is_not_exceeded_by_any_attempt(tmp_path, capsys, text):
    node = settings("")
    with chat_server(meter(1, text)) as server:
        node["proposer"] |= {"base_url": server.url, "answer_tokens": 6100}
        wanted = config(tmp_path, iterations=3, attempts=2, final_seeds=0, **node)
        search(wanted, str, proposer="configured")
        attempts = len(server.bodies) / (3 * 3)
    usual, most, taken = told_and_taken(tmp_path, capsys.readouterr().err)
    assert attempts == (1 if "good" in text else 2)
    assert 2 * usual < taken <= attempts * most


class Steady:
    """A model that says something else each time, in an order of its own, and is down for a while
    after it has given so many answers as `outages` say."""

    def __init__(self, trouble: Behaviour, *outages: int) -> None:
        self.trouble = trouble
        self.outages = list(outages)
        self.given = 0

    def __call__(self, handler: BaseHTTPRequestHandler, body: Any) -> None:
        if self.outages and self.given >= self.outages[0]:
            self.trouble(handler, body)
            return
        count = body.get("n", 1)
        texts = [answer(f"good 0.{n}") for n in range(10 + self.given, 10 + self.given + count)]
        texts = ["I would rather not." if "0.11" in text else text for text in texts]
        self.given += count
        send(handler, 200, json.dumps(completion(texts)).encode())


@pytest.mark.parametrize(
    "trouble",
    [status(503, "boom"), status(429, "boom"), hangs_up, breaks_off, raw(b"<html>boom</html>")],
    ids=["503", "429", "hangs_up", "breaks_off", "html"],
)
def test_a_search_that_an_outage_stopped_ends_as_if_there_had_been_none(tmp_path, trouble):
    def searched(folder: Path, url: str) -> None:
        node = settings(url)
        node["proposer"] |= {"answers_per_call": 2, "patience": {"retries": 2, "first_wait_s": 0.0}}
        search(config(folder, **node), str, proposer="configured")

    whole, run = Steady(trouble), Steady(trouble, 0, 2, 3, 6)
    with chat_server(whole) as server:
        searched(tmp_path / "whole", server.url)
    with chat_server(run) as server:
        while run.outages:
            with pytest.raises(UserError, match="work so far is kept: run the same") as caught:
                searched(tmp_path / "run", server.url)
            assert "\n" not in str(caught.value)
            assert run.given == run.outages.pop(0)  # and the server is up again
        searched(tmp_path / "run", server.url)
    assert run.given == whole.given
    for name in ("leaderboard.json", "best/reward.py", "transcript.jsonl"):
        same = [(tmp_path / each / name).read_bytes() for each in ("whole", "run")]
        assert same[0] == same[1], name


def test_a_writer_may_be_put_right_until_its_first_answer(tmp_path):
    def named(model: str, **more: Any) -> dict[str, Any]:
        proposer = {**settings(server.url)["proposer"], "model": model, **more}
        return {"proposer": proposer}

    refusal = status(400, "'max_tokens' is not supported, use 'max_completion_tokens'")
    with chat_server(refusal, refusal, writer) as server:
        with pytest.raises(UserError, match="proposer.limit_key=max_completion_tokens"):
            search(config(tmp_path, **named("poet")), str, proposer="configured")
        right = named("poet-1", limit_key="max_completion_tokens", answer_tokens=8000)
        search(config(tmp_path, **right), str, proposer="configured")
        assert server.bodies[-1]["max_completion_tokens"] == 8000
        with pytest.raises(UserError, match="proposer.model"):
            search(config(tmp_path, **named("poet-2")), str, proposer="configured")


def test_a_wrong_key_is_one_line_and_trains_nothing(tmp_path):
    with (
        chat_server(status(401, "bad key")) as server,
        pytest.raises(UserError) as caught,
    ):
        search(config(tmp_path, **settings(server.url)), str, proposer="configured")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "trained.log").exists()
