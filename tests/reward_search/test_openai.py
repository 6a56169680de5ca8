"""The OpenAI proposer against a real server on this machine."""

from __future__ import annotations

import email.utils
import json
import logging
import socket
import time
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from embodied_icrl.common.config import build
from embodied_icrl.common.errors import ConfigError, MissingDependencyError, UserError
from embodied_icrl.manipulation.planar_reach import PlanarReach
from embodied_icrl.reward_search.accounting import Accounting, BudgetSpent, estimated_tokens
from embodied_icrl.reward_search.extract import NoCode, extract_reward
from embodied_icrl.reward_search.prompt import PromptConfig, build_messages
from embodied_icrl.reward_search.proposers.completions import MalformedReply, parse_reply
from embodied_icrl.reward_search.proposers.openai import LARGEST_REVIEW, OpenAIConfig
from embodied_icrl.reward_search.proposers.openai_calls import (
    Patience,
    ProposerError,
    retry_after_s,
)
from embodied_icrl.reward_search.proposers.recorded import open_proposer
from embodied_icrl.reward_search.records import Answer, Candidate, Parent, Request, Usage
from tests.reward_search.chat_server import (
    ANSWER,
    CODE,
    breaks_off,
    chat_server,
    drips,
    hangs_up,
    honours_n,
    raw,
    says,
    silent,
    status,
)

pytest.importorskip("openai")
TASK = PlanarReach()
KEY = "sk-secret-0123456789"
MESSAGES = ({"role": "system", "content": "rules"}, {"role": "user", "content": "write"})
KEYS = st.sampled_from(["choices", "message", "content", "text", "usage", "refusal"])
FAST = {"timeout_s": 60.0, "retries": 3, "first_wait_s": 0.01, "longest_wait_s": 2.0}


@pytest.fixture(autouse=True)
def key(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)


def config(url, patience=None, **options):
    node = {"_target_": f"{OpenAIConfig.__module__}.OpenAIConfig", "model": "m", "base_url": url}
    return build({**node, "patience": {**FAST, **(patience or {})}, **options})


def answers_of(calls):
    return [answer for call in calls for answer in call]


def ask(server, samples=2, accounting=None, iteration=1, **options):
    accounting = accounting or Accounting()
    proposer = config(server.url, **options).build(TASK, seed=0, accounting=accounting)
    return answers_of(proposer.propose(Request(iteration, tuple(range(samples)), 0, MESSAGES)))


def test_several_answers_in_one_call():
    accounting = Accounting()
    with chat_server(honours_n) as server:
        answers = ask(server, 3, accounting, extra={"top_p": 0.9})
    assert [a.sample for a in answers] == [0, 1, 2]
    assert [extract_reward(a.text) for a in answers] == [CODE] * 3
    assert len({a.text for a in answers}) == 3
    assert [a.usage for a in answers] == [Usage(100, 20), None, None]
    assert accounting.totals.usage == Usage(100, 20)
    (body,) = server.bodies
    assert body == {
        "model": "m", "messages": list(MESSAGES), "max_tokens": 4096, "temperature": 1.0, "n": 3,
        "top_p": 0.9,
    }  # fmt: skip
    assert server.headers[0]["authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize("texts", [[ANSWER], [ANSWER] * 2])
def test_a_server_that_gives_fewer_answers_is_asked_again(texts):
    accounting = Accounting()
    with chat_server(says(*texts)) as server:
        answers = ask(server, 4, accounting)
    assert [a.text for a in answers] == [ANSWER] * 4
    assert (
        [body.get("n", 1) for body in server.bodies] == [4, 1, 1, 1] if len(texts) == 1 else [4, 2]
    )
    assert accounting.totals.prompt_tokens == 100 * len(server.bodies)


def test_a_server_that_refuses_n_is_asked_one_by_one():
    def refuses_n(handler, body):
        (status(400, "n is not supported") if body.get("n", 1) > 1 else says(ANSWER))(handler, body)

    with chat_server(refuses_n) as server:
        assert [a.text for a in ask(server, 3)] == [ANSWER] * 3
    assert len(server.bodies) == 4


def test_more_answers_than_asked_for_are_left():
    with chat_server(says(ANSWER, "b", "c")) as server:
        assert [a.text for a in ask(server, 1)] == [ANSWER]


@pytest.mark.parametrize(
    "trouble",
    [
        status(429), status(500), status(503), status(408), hangs_up, breaks_off, raw(b"{oops"),
        raw(b'"text"'), raw(b'{"choices": []}'), raw(b'{"choices": 3}'), raw(b"[" * 100_000),
        raw(b"\xff\xfe"),
    ],
)  # fmt: skip
def test_passing_trouble_is_waited_out(trouble):
    with chat_server(trouble, trouble, honours_n) as server:
        answers = ask(server, 2)
    assert [a.error for a in answers] == [None, None]
    assert len(server.bodies) == 3


def test_a_server_says_how_long_to_wait():
    with chat_server(status(429, headers={"Retry-After": "0.5"}), honours_n) as server:
        assert ask(server, 1)[0].error is None
    assert server.times[1] - server.times[0] >= 0.5


def test_waits_double_up_to_a_limit_whatever_the_server_asks():
    from embodied_icrl.reward_search.proposers.openai_calls import CallFailed

    patience, failure = Patience(first_wait_s=1.0, longest_wait_s=60.0), CallFailed("no")
    assert [patience.wait_s(failure, n) for n in (1, 2, 3, 9, 10**6)] == [1.0, 2.0, 4.0, 60.0, 60.0]
    failure.retry_after_s = 5.0
    assert patience.wait_s(failure, 1) == 5.0
    failure.retry_after_s = 86_400.0
    assert patience.wait_s(failure, 1) == 60.0


def test_retry_after_in_all_its_forms():
    now = 1_000_000.0
    date = email.utils.formatdate(now + 90, usegmt=True)
    assert retry_after_s({"retry-after": "7"}, now) == 7.0
    assert retry_after_s({"retry-after": date}, now) == pytest.approx(90.0)
    assert retry_after_s({"retry-after-ms": "250", "retry-after": "7"}, now) == 0.25
    for text in ("", "soon", "nan", "inf", "-3", "Mon, 99 Foo 2026"):
        assert retry_after_s({"retry-after": text}, now) is None


def stalls(handler, body):
    """Begins a reply, and says no more for a while."""
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.flush()
    time.sleep(1.5)


@pytest.mark.parametrize("slow", [silent(1.5), drips, stalls])
def test_a_reply_that_takes_too_long(slow, capsys):
    accounting = Accounting()
    with chat_server(slow, honours_n) as server:
        # Many tries: on a busy machine an honest reply may take that long too.
        patience = {"timeout_s": 1.0, "retries": 30}
        answers = ask(server, 1, accounting, patience=patience, answer_tokens=50)
    assert answers[0].error is None
    # Nobody knows what the server wrote meanwhile: all it was allowed to is counted.
    lost = accounting.totals.calls - 1
    assert lost >= 1 and accounting.totals.completion_tokens == 50 * lost + 20
    assert accounting.totals.estimated_tokens > 50
    assert answers[0].usage.completion_tokens == 50 * lost + 20 and answers[0].usage.estimated
    told = capsys.readouterr().err.splitlines()
    assert len(told) == lost
    assert told[0] == (
        "proposer openai: the server did not answer within 1 s; asking again in 0.01 s (1 of 30)"
    )


def test_each_wait_is_told_where_a_person_looks(tmp_path, capsys):
    told = []
    with chat_server(status(429, "slow down", {"Retry-After": "0.2"}), hangs_up, honours_n) as s:
        proposer = open_proposer(config(s.url), TASK, seed=0, folder=tmp_path)
        proposer.tell(told.append)
        proposer.propose(Request(1, (0,), 0, MESSAGES))
    assert len(told) == 2 and capsys.readouterr().err == ""
    assert told[0].startswith("proposer openai: status 429: ") and "slow down" in told[0]
    assert told[0].endswith("; asking again in 0.2 s (1 of 3)")
    assert "no connection" in told[1] and told[1].endswith("asking again in 0.02 s (2 of 3)")


def too_slow_for(most):
    """A gateway that waits for no more than so many answers."""

    def behave(handler, body):
        (status(504, "late") if body.get("n", 1) > most else honours_n)(handler, body)

    return behave


def test_after_a_timeout_fewer_answers_are_asked_for_in_a_call(capsys):
    accounting = Accounting()
    with chat_server(too_slow_for(2)) as server:
        answers = ask(server, 11, accounting, answer_tokens=50)
    assert [a.error for a in answers] == [None] * 11
    assert [body.get("n", 1) for body in server.bodies] == [11, 5, 2, 2, 2, 2, 2, 1]
    assert "; asking again for 5 of 11 answers in 0.01 s (1 of 3)" in capsys.readouterr().err
    # What may have been written for the calls that were given up is counted as if it had been.
    assert accounting.totals.completion_tokens == 50 * (11 + 5) + 20 * 6
    assert answers[0].usage.completion_tokens == 50 * (11 + 5) + 20


def test_timeouts_that_outlast_the_patience_say_what_helps_and_nothing_is_asked_twice(tmp_path):
    request = Request(1, (0, 1, 2, 3), 0, MESSAGES)
    with chat_server(too_slow_for(2), *[too_slow_for(1)] * 2, *[status(504)] * 4) as server:
        options = {"answers_per_call": 3}
        first = open_proposer(config(server.url, **options), TASK, seed=0, folder=tmp_path)
        with pytest.raises(ProposerError, match=r"patience\.timeout_s.*answers_per_call") as caught:
            first.propose(request)
        assert "\n" not in str(caught.value) and "all work so far is kept" in str(caught.value)
        assert [body.get("n", 1) for body in server.bodies] == [3, 1, 1, 1, 1, 1, 1]
        server.script.append(honours_n)
        again = open_proposer(config(server.url, **options), TASK, seed=0, folder=tmp_path)
        assert [a.error for a in again.propose(request)] == [None] * 4
    assert [body.get("n", 1) for body in server.bodies[7:]] == [2]
    with chat_server(status(500)) as server:
        other = open_proposer(config(server.url), TASK, seed=0, folder=tmp_path)
        with pytest.raises(ProposerError) as caught:
            other.propose(replace(request, iteration=2))
    assert "timeout_s" not in str(caught.value)


def test_trouble_that_outlasts_the_patience_stops_the_search_and_takes_no_answers_place(tmp_path):
    options = {"patience": {"retries": 1}, "answers_per_call": 2}
    boom = status(500, "boom")
    with chat_server(honours_n, boom, boom, honours_n) as server:
        first = open_proposer(config(server.url, **options), TASK, seed=0, folder=tmp_path)
        with pytest.raises(ProposerError, match=r"boom; all work so far is kept: run the same"):
            first.propose(Request(1, (0, 1, 2), 0, MESSAGES))
        assert "boom" not in (tmp_path / "transcript.jsonl").read_text()
        again = open_proposer(config(server.url, **options), TASK, seed=0, folder=tmp_path)
        answers = again.propose(Request(1, (0, 1, 2), 0, MESSAGES))
    assert [a.error for a in answers] == [None] * 3
    assert [body.get("n", 1) for body in server.bodies] == [2, 1, 1, 1]


@pytest.mark.parametrize("trouble", [silent(1.0), breaks_off, raw(b"{oops")])
def test_what_the_failed_calls_may_have_taken_is_counted_though_the_search_stops(tmp_path, trouble):
    patience = {"retries": 1, "timeout_s": 0.5}
    with chat_server(trouble) as server:
        options = {"answer_tokens": 50, "patience": patience}
        proposer = open_proposer(config(server.url, **options), TASK, seed=0, folder=tmp_path)
        with pytest.raises(ProposerError, match="all work so far is kept"):
            proposer.propose(Request(1, (0, 1), 0, MESSAGES))
    again = open_proposer(config(server.url, **options), TASK, seed=0, folder=tmp_path)
    assert again.accounting.totals.calls == 2
    assert again.accounting.totals.estimated_tokens > 0


def test_a_request_that_is_refused_later_costs_its_answers_and_nothing_is_counted():
    accounting = Accounting()
    with chat_server(honours_n, status(400, "too long"), honours_n) as server:
        proposer = config(server.url).build(TASK, seed=0, accounting=accounting)
        for iteration, errors in ((1, 0), (2, 3), (3, 0)):
            answers = answers_of(proposer.propose(Request(iteration, (0, 1, 2), 0, MESSAGES)))
            assert sum("too long" in (a.error or "") for a in answers) == errors
    assert [body["n"] for body in server.bodies] == [3, 3, 3]
    assert accounting.totals.usage == Usage(200, 40)


def test_a_server_that_refuses_everything_stops_the_search():
    with chat_server(honours_n, status(400, "no more")) as server:
        proposer = config(server.url).build(TASK, seed=0, accounting=Accounting())
        for iteration, errors in ((1, 0), (2, 2), (3, 2)):
            answers = answers_of(proposer.propose(Request(iteration, (0, 1), 0, MESSAGES)))
            assert sum("no more" in (a.error or "") for a in answers) == errors
        with pytest.raises(ProposerError, match=r"no more.*run the same command again"):
            answers_of(proposer.propose(Request(4, (0, 1), 0, MESSAGES)))


def test_a_server_that_was_never_there_stops_the_search():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/v1"
    proposer = config(url, {"retries": 1}).build(TASK, seed=0, accounting=Accounting())
    with pytest.raises(ProposerError, match=f"no connection to {url}"):
        answers_of(proposer.propose(Request(1, (0,), 0, MESSAGES)))


@pytest.mark.parametrize(
    ("trouble", "message"),
    [
        (status(401, f"bad key {KEY}"), "set the variable OPENAI_API_KEY"),
        (status(403), "refused the key"),
        (status(404, "no model m"), r"check proposer\.model.*no model m"),
        (status(429, "pay", type="insufficient_quota"), "no credit left; all work so far is kept"),
        (status(402, "Insufficient Balance"), "no credit left; all work so far is kept"),
        (status(400, "what is max_tokens? use max_completion_tokens"), "use max_completion_tokens"),
    ],
)
def test_what_no_waiting_mends_stops_the_search(trouble, message):
    with chat_server(trouble) as server, pytest.raises(UserError, match=message) as raised:
        ask(server, 1)
    assert len(server.bodies) == 1
    assert KEY not in str(raised.value) and "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (says(""), "empty"),
        (says(None), "empty"),
        (says(None, refusal="I won't\nwrite that"), "refused: I won't write that"),
        (says("def compute", reason="length"), "cut off"),
        (says(ANSWER, reason="content_filter"), "content filter"),
        (says("This is prose. " * 140_000), "2100000 characters"),
        (raw(b'{"choices": [null]}'), "empty"),
        (raw(b'{"choices": [{"message": 7}]}'), "empty"),
    ],
)
def test_an_answer_that_cant_be_used_is_an_error_and_is_paid(reply, error):
    accounting = Accounting()
    with chat_server(reply) as server:
        (answer,) = ask(server, 1, accounting)
    assert answer.text is None and error in answer.error and "\n" not in answer.error
    assert accounting.totals.calls == 1 and accounting.totals.prompt_tokens > 0


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("I can't think of any.", None),
        (f"Old:\n```python\nx = 1\n```\nNew:\n```python\n{CODE}```\n```\n$ run\n```", CODE),
        (f"```python\nK = 2.0\n\n\ndef half(x):\n    return x / K\n\n\n{CODE}```", "def half"),
        (f"{'Prose. ' * 20_000}\n```python\n{CODE}```", CODE),
        ([{"type": "text", "text": ANSWER}], CODE),
    ],
)
def test_code_is_found_in_what_the_server_says(text, source):
    with chat_server(says(text)) as server:
        (answer,) = ask(server, 1)
    if source is None:
        with pytest.raises(NoCode):
            extract_reward(answer.text)
    else:
        assert source in extract_reward(answer.text)


@pytest.mark.parametrize(
    "usage", [None, {"prompt_tokens": -3}, {"prompt_tokens": "many"}, "x", {"prompt_tokens": True}]
)
def test_a_server_that_counts_no_tokens_is_estimated(usage):
    accounting = Accounting()
    with chat_server(says(ANSWER, usage=usage)) as server:
        (answer,) = ask(server, 1, accounting)
    assert answer.usage.estimated and answer.usage.completion_tokens > len(ANSWER) / 6
    assert "estimated" in accounting.line


def test_the_budget_stops_before_the_call_that_could_exceed_it(tmp_path):
    spending = {"max_cost": 1.0, "prompt_price": 0.0, "completion_price": 10_000.0}
    with chat_server(says(ANSWER)) as server:
        options = {"answer_tokens": 25, "answers_per_call": 1, "spending": spending}
        first = open_proposer(config(server.url, **options), TASK, seed=0, folder=tmp_path)
        request = Request(1, (0, 1, 2, 3, 4, 5), 0, MESSAGES)
        with pytest.raises(BudgetSpent, match=r"cost 0\.8000 of 1.*max_cost") as stopped:
            first.propose(request)
        # 20 tokens are paid per call, 25 may be: after four calls a fifth could make 105 of 100.
        assert [a.text for a in stopped.value.answers] == [ANSWER] * 4
        assert len(server.bodies) == 4
        again = open_proposer(config(server.url, **options), TASK, seed=0, folder=tmp_path)
        with pytest.raises(BudgetSpent):
            again.propose(request)
        assert len(server.bodies) == 4
        options["spending"] = {**spending, "max_cost": 2.0}
        more = open_proposer(config(server.url, **options), TASK, seed=0, folder=tmp_path)
        assert [a.text for a in more.propose(request)] == [ANSWER] * 6
        assert len(server.bodies) == 6
    written = json.loads((tmp_path / "accounting.json").read_text())
    assert written["calls"] == 6 and written["cost"] == pytest.approx(1.2)


def test_near_the_budget_fewer_answers_are_asked_for_in_a_call():
    with chat_server(honours_n) as server:
        options = {"answer_tokens": 100, "spending": {"max_tokens": 350}}
        with pytest.raises(BudgetSpent):
            ask(server, 8, **options)
    assert server.bodies[0]["n"] == 3


def test_a_search_that_is_run_again_pays_for_nothing_twice(tmp_path):
    request = Request(1, (0, 1, 2), 0, MESSAGES)
    with chat_server(says(ANSWER)) as server:
        options = {"answers_per_call": 1}
        first = open_proposer(config(server.url, **options), TASK, seed=0, folder=tmp_path)
        answers = first.propose(Request(1, (0, 1), 0, MESSAGES))
        again = open_proposer(config(server.url, **options), TASK, seed=0, folder=tmp_path)
        assert again.propose(request)[:2] == answers
        assert again.propose(request)[2].text == ANSWER
        assert len(server.bodies) == 3
        assert again.accounting.totals.usage == Usage(300, 60)


def test_the_key_is_in_no_file_no_message_and_no_log(tmp_path, caplog):
    caplog.set_level(logging.DEBUG)
    echo = f"```python\n# {KEY}\n{CODE}```"
    script = [says(echo), *(status(code, f"your key {KEY}") for code in (400, 500, 401))]
    with chat_server(*script) as server:
        options = {"patience": {"retries": 0}}
        proposer = open_proposer(config(server.url, **options), TASK, seed=0, folder=tmp_path)
        shown = [repr(proposer.propose(Request(i, (0,), 0, MESSAGES))) for i in (1, 2)]
        raised = []
        for _ in range(2):
            with pytest.raises(UserError, match=r"\[key\]") as caught:
                proposer.propose(Request(3, (0,), 0, MESSAGES))
            raised += [str(caught.value), repr(caught.value.__cause__)]
    assert "[key]" in shown[0] and "[key]" in shown[1]
    files = [path.read_text() for path in tmp_path.rglob("*") if path.is_file()]
    text = "".join([*shown, *files, *raised, caplog.text])
    assert len(files) == 5 and KEY not in text


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS | st.text(max_size=4), inner),
    max_leaves=12,
)


@given(
    JSON.map(lambda data: json.dumps(data).encode())
    | st.dictionaries(KEYS, JSON).map(lambda data: json.dumps(data).encode())
    | st.binary(max_size=30)
)
def test_any_body_is_a_reply_or_malformed(body):
    try:
        reply = parse_reply(body)
    except MalformedReply:
        return
    assert reply.choices
    assert all((c.text is None) != (c.error is None) for c in reply.choices)


def test_a_server_that_needs_no_key_gets_none(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY")
    monkeypatch.setenv("OTHER_SECRET", KEY)
    with chat_server(honours_n) as server:
        assert ask(server, 1)[0].text
        assert ask(server, 1, key_variable="OTHER_SECRET")[0].text
    assert KEY not in str(server.headers[0])
    assert server.headers[1]["authorization"] == f"Bearer {KEY}"


def test_a_short_key_for_a_local_server_does_not_change_code(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "state")
    with chat_server(says(ANSWER)) as server:
        assert ask(server, 1)[0].text == ANSWER


@pytest.mark.parametrize("value", [None, "", "two words", "ключ-ключ"])
def test_a_key_that_is_missing_or_odd(monkeypatch, value):
    monkeypatch.delenv("OPENAI_API_KEY")
    if value is not None:
        monkeypatch.setenv("OPENAI_API_KEY", value)
    with pytest.raises(ConfigError, match="OPENAI_API_KEY") as raised:
        OpenAIConfig("m").build(TASK, seed=0, accounting=Accounting())
    assert not value or value not in str(raised.value)


@pytest.mark.parametrize(
    "options",
    [
        {"base_url": "localhost:8000"},
        {"base_url": "ftp://x/v1"},
        {"base_url": "https://me:secret@host/v1"},
        {"answer_tokens": 0},
        {"temperature": -1.0},
        {"spending": {"max_cost": 1.0}},
        {"spending": {"prompt_price": 1.0}},
        {"spending": {"max_tokens": -1}},
        {"patience": {"timeout_s": 0.0}},
        {"patience": {"first_wait_s": 9.0, "longest_wait_s": 1.0}},
    ],
)
def test_a_wrong_configuration_is_refused(options):
    with pytest.raises(ConfigError) as raised:
        config(**{"url": "http://localhost/v1", **options, **_base(options)})
    assert "secret" not in str(raised.value)


def _base(options):
    return {"url": options.pop("base_url")} if "base_url" in options else {}


def test_without_the_package_the_message_names_it(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "openai", None)
    with pytest.raises(MissingDependencyError, match="pip install 'openai>=1.50'"):
        config("http://localhost/v1").build(TASK, seed=0, accounting=Accounting())


def test_what_a_search_may_cost_is_said_before():
    spending = {"prompt_price": 1.0, "completion_price": 4.0}
    proposer = config("http://localhost/v1", spending=spending).build(
        TASK, seed=0, accounting=Accounting()
    )
    line = proposer.expected_cost(Request(1, tuple(range(16)), 0, MESSAGES), 5)
    assert line.startswith("5 iterations of 16 answers by m: about ") and "cost" in line
    assert "estimated" in line and "\n" not in line and "spent so far: 0 tokens" in line


def test_the_largest_prompt_that_the_expected_cost_allows_for_is_the_largest():
    # Letters that take most bytes; as much of everything as a prompt ever shows.
    name, much = "n" * 60, "奖" * 20_000
    curves = {f"{i:02d}{name}": tuple(-1.23e-5 - 1e-9 * j for j in range(10)) for i in range(40)}
    curves |= {"fitness": tuple(1.23e-3 * j for j in range(10)), "total": (-1.23e-5,) * 10}
    failures = [
        Candidate(f"i1_s{i:02d}", 1, "refused", f"{i}, line 1: {much}", much) for i in range(16)
    ]
    code = "x = 1\n"
    whole = build_messages(
        TASK,
        PromptConfig(),
        parent=Parent("i1_s00", code, 0.5, curves),
        failures=failures,
        feedback=much,
    )
    before, after = (
        sum(estimated_tokens(message["content"]) for message in messages)
        for messages in (build_messages(TASK, PromptConfig()), whole)
    )
    assert 0.9 * LARGEST_REVIEW < after - before <= LARGEST_REVIEW


def test_the_name_of_an_error_answer_is_kept_with_its_sample():
    def second_is_cut(handler, body):
        from tests.reward_search.chat_server import completion, send

        reply = completion([ANSWER, "def", ANSWER])
        reply["choices"][1]["finish_reason"] = "length"
        send(handler, 200, json.dumps(reply).encode())

    with chat_server(second_is_cut) as server:
        answers = ask(server, 3)
    assert [type(a) for a in answers] == [Answer] * 3
    assert [(a.sample, a.text is None) for a in answers] == [(0, False), (1, True), (2, False)]
