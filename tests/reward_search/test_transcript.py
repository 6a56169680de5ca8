"""Answers on disk: written once, read after any kill."""

from __future__ import annotations

import json
import os
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from embodied_icrl.common.errors import UserError
from embodied_icrl.manipulation.planar_reach import PlanarReach
from embodied_icrl.reward_search.accounting import BudgetSpent
from embodied_icrl.reward_search.prompt_files import prompt_file
from embodied_icrl.reward_search.proposers.recorded import open_proposer
from embodied_icrl.reward_search.proposers.terms import TermsConfig
from embodied_icrl.reward_search.records import Answer, Request, Usage
from embodied_icrl.reward_search.transcript import (
    Entry,
    Stop,
    Transcript,
    read_lines,
    request_hash,
)

TASK = PlanarReach()
MESSAGES = ({"role": "user", "content": "write"},)
REQUEST = Request(1, (0, 1, 2), 0, MESSAGES)


def entry(sample, text="code", **changes):
    first = Entry(1, sample, 0, "hash", "openai", "m", True, text, None, Usage(10, 2))
    return replace(first, **changes)


@settings(max_examples=40)
@given(
    st.lists(st.text(st.characters(), max_size=50), max_size=5),
    st.integers(0, 400),
    st.integers(1, 5),
)
def test_whole_lines_survive_a_kill_at_any_byte(tmp_path_factory, texts, cut, per_call):
    path = tmp_path_factory.mktemp("run") / "transcript.jsonl"
    entries = [entry(index, text) for index, text in enumerate(texts)]
    transcript = Transcript(path)
    for first in range(0, len(entries), per_call):
        transcript.append_all(entries[first : first + per_call])
    assert list(read_lines(path)) == entries
    if not texts:
        return
    data = path.read_bytes()
    kept = data[: max(0, len(data) - cut)]
    path.write_bytes(kept)
    again = Transcript(path)
    count = kept.count(b"\n")
    assert list(again.entries()) == entries[:count]
    again.append_all(entries[count:])
    assert path.read_bytes() == data


def test_lone_surrogates_are_kept(tmp_path):
    path = tmp_path / "transcript.jsonl"
    Transcript(path).append_all([entry(0, "\ud800 ü\u2028 \x00")])
    assert Transcript(path).get((1, 0, 0)).text == "\ud800 ü\u2028 \x00"


@pytest.mark.parametrize(
    "line",
    [b"{", b"[]", b"3", b'"x"', b"{}", b"\xff", b"[" * 100_000, b'{"stopped": 1}', b"null",
     json.dumps({"iteration": "1", "sample": 0, "attempt": 0, "request": "h", "proposer": "p",
                 "model": None, "is_language_model": True, "text": "t", "error": None,
                 "usage": None}).encode()],
)  # fmt: skip
def test_a_damaged_line_is_named(tmp_path, line):
    path = tmp_path / "transcript.jsonl"
    Transcript(path).append_all([entry(0)])
    good = path.read_bytes()
    path.write_bytes(good + line + b"\n" + good)
    with pytest.raises(UserError, match=r"transcript\.jsonl, line 2: not an answer"):
        Transcript(path)


def test_an_answer_is_written_once(tmp_path):
    transcript = Transcript(tmp_path / "transcript.jsonl")
    transcript.append_all([entry(0)])
    before = transcript.path.read_bytes()
    for entries in ([entry(1), entry(0, "other")], [entry(0)]):
        with pytest.raises(ValueError, match="iteration 1, sample 0, attempt 0"):
            transcript.append_all(entries)
    with pytest.raises(ValueError, match="iteration 1, sample 1, attempt 0"):
        transcript.append_all([entry(1), entry(1, "other")])
    assert transcript.path.read_bytes() == before and len(transcript.entries()) == 1


def test_the_answers_of_a_call_are_one_write(tmp_path, monkeypatch):
    synced: list[int] = []
    monkeypatch.setattr("os.fsync", lambda descriptor: synced.append(os.fstat(descriptor).st_size))
    path = tmp_path / "transcript.jsonl"
    path.touch()
    Transcript(path).append_all([entry(sample) for sample in range(16)])
    assert synced == [path.stat().st_size]


def test_the_hash_is_that_of_the_conversation():
    first = request_hash(REQUEST)
    assert first == request_hash(replace(REQUEST, samples=(2,), parent=None))
    other = ({"role": "user", "content": "write\ud800"},)
    assert first == "a617c10ac7ba36eb"  # a recorded transcript names it
    for changed in (
        replace(REQUEST, messages=other),
        replace(REQUEST, iteration=2),
        replace(REQUEST, attempt=1),
    ):
        assert request_hash(changed) != first


class Counting:
    """Answers with its sample's number, and stops where it is told."""

    name, model, is_language_model = "counting", "m", True

    def __init__(self, stop_at=99, accounting=None):
        self.asked = []
        self.stop_at = stop_at

    def build(self, task, *, seed, accounting):
        return self

    def propose(self, request):
        for sample in request.samples:
            if len(self.asked) == self.stop_at:
                raise BudgetSpent("spent")
            self.asked.append((request.iteration, sample, request.attempt))
            error = "no text" if sample == 1 else None
            yield (Answer(sample, None if error else f"text {sample}", error, Usage(3, 4)),)

    def expected_cost(self, request, iterations):
        return "free"


def test_an_answer_is_on_disk_before_the_next_one_is_asked_for(tmp_path):
    class Watching(Counting):
        def propose(self, request):
            for number, answer in enumerate(super().propose(request)):
                assert len(list(read_lines(tmp_path / "transcript.jsonl"))) == number
                yield answer

    proposer = open_proposer(Watching(), TASK, seed=0, folder=tmp_path)
    assert len(proposer.propose(REQUEST)) == 3


def test_of_a_torn_call_only_the_rest_is_asked_for(tmp_path):
    class Together(Counting):
        def propose(self, request):
            yield tuple(answer for call in super().propose(request) for answer in call)

    whole = open_proposer(Together(), TASK, seed=0, folder=tmp_path).propose(REQUEST)
    path = tmp_path / "transcript.jsonl"
    data = path.read_bytes()
    path.write_bytes(data[: data.index(b"\n") + 20])
    second = Together()
    assert open_proposer(second, TASK, seed=0, folder=tmp_path).propose(REQUEST) == whole
    assert second.asked == [(1, 1, 0), (1, 2, 0)]
    assert path.read_bytes() == data


def test_only_what_is_missing_is_asked_for(tmp_path):
    first = Counting()
    answers = open_proposer(first, TASK, seed=0, folder=tmp_path).propose(
        replace(REQUEST, samples=(0, 1))
    )
    assert [(a.text, a.error) for a in answers] == [("text 0", None), (None, "no text")]
    second = Counting()
    again = open_proposer(second, TASK, seed=0, folder=tmp_path)
    assert again.propose(REQUEST)[:2] == answers
    assert second.asked == [(1, 2, 0)]
    again.propose(replace(REQUEST, attempt=1, samples=(1,)))
    assert second.asked == [(1, 2, 0), (1, 1, 1)]
    assert open_proposer(Counting(), TASK, seed=0, folder=tmp_path).accounting.totals.calls == 4


def test_a_paid_answer_to_another_prompt_is_used_with_a_warning(tmp_path):
    open_proposer(Counting(), TASK, seed=0, folder=tmp_path).propose(REQUEST)
    second = Counting()
    again = open_proposer(second, TASK, seed=0, folder=tmp_path)
    other = replace(REQUEST, messages=({"role": "user", "content": "other"},))
    then, now = (prompt_file(tmp_path, request) for request in (REQUEST, other))
    with pytest.warns(UserWarning, match="sample 0, attempt 0 and 2 more answered another") as told:
        assert again.propose(other)[0].text == "text 0"
    assert second.asked == []
    assert str(told[0].message).endswith(f"(compare {then} with this search's {now})")
    assert "write" in then.read_text() and "other" in now.read_text()
    then.unlink()  # as in a run of an earlier version
    with pytest.warns(UserWarning, match=f"that prompt was not kept, this search's is {now}"):
        again.propose(other)


def test_every_prompt_is_on_disk_before_it_is_asked_and_stays_as_it_is(tmp_path):
    class Watching(Counting):
        def propose(self, request):
            (path,) = tmp_path.glob(f"prompts/i{request.iteration}_a{request.attempt}_*.md")
            self.seen = path.read_text()
            yield from super().propose(request)

    messages = (
        {"role": "system", "content": "the rules"},
        {"role": "user", "content": "line 1\n\ud800 line 2"},
    )
    request = replace(REQUEST, iteration=2, attempt=1, messages=messages)
    first = Watching()
    open_proposer(first, TASK, seed=0, folder=tmp_path).propose(request)
    text = "## system\n\nthe rules\n\n## user\n\nline 1\n? line 2\n"
    assert first.seen.endswith(text) and request_hash(request) in first.seen.splitlines()[0]
    path = prompt_file(tmp_path, request)
    assert path.name == f"i2_a1_{request_hash(request)}.md" and path.read_text() == first.seen
    before = path.stat()
    again = replace(request, samples=(0, 1, 2, 3))
    open_proposer(Watching(), TASK, seed=0, folder=tmp_path).propose(again)
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert [each.name for each in path.parent.iterdir()] == [path.name]


def test_a_disk_that_takes_no_prompt_lets_nothing_be_asked(tmp_path, monkeypatch):
    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    proposer = Counting()
    with pytest.raises(OSError, match="No space left"):
        open_proposer(proposer, TASK, seed=0, folder=tmp_path).propose(REQUEST)
    assert proposer.asked == []


def test_the_prompt_of_composed_rewards_says_that_nobody_read_it(tmp_path):
    open_proposer(TermsConfig(), TASK, seed=0, folder=tmp_path).propose(REQUEST)
    other = replace(REQUEST, iteration=2)
    open_proposer(Counting(), TASK, seed=0, folder=tmp_path).propose(other)
    texts = [prompt_file(tmp_path, request).read_text() for request in (REQUEST, other)]
    assert ["No language model was asked" in text for text in texts] == [True, False]


def test_a_spent_budget_keeps_what_was_had(tmp_path):
    for stop_at in (2, 0):
        proposer = open_proposer(Counting(stop_at=stop_at), TASK, seed=0, folder=tmp_path)
        with pytest.raises(BudgetSpent) as stopped:
            proposer.propose(replace(REQUEST, samples=(0, 2, 3, 4)))
    assert [a.sample for a in stopped.value.answers] == [0, 2]
    stops = [line for line in read_lines(tmp_path / "transcript.jsonl") if isinstance(line, Stop)]
    assert [stop.key for stop in stops] == [(1, 3, 0)]


def test_composed_rewards_are_recorded_as_such(tmp_path):
    open_proposer(TermsConfig(), TASK, seed=3, folder=tmp_path).propose(REQUEST)
    entries = Transcript(tmp_path / "transcript.jsonl").entries()
    assert [e.key for e in entries] == [(1, 0, 0), (1, 1, 0), (1, 2, 0)]
    assert {(e.proposer, e.model, e.is_language_model) for e in entries} == {("terms", None, False)}
