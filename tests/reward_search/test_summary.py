"""What a search gathers beside its candidates."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from embodied_icrl.reward_search.records import Candidate, JobResult
from embodied_icrl.reward_search.rounds import Entry
from embodied_icrl.reward_search.sandbox import Layers
from embodied_icrl.reward_search.summary import Summary, parse_summary

FULL, SOME, NONE = Layers(True, True, True, True), Layers(landlock=True, seccomp=True), Layers()


def summary_of(own: Layers, *workers: str) -> Summary:
    """Of a search whose trainings ran in the layers of these names."""
    results = {k: [JobResult("done", sandbox=name)] for k, name in enumerate(workers)}
    summary = Summary(sandbox=own.name)
    summary.spent(1, [Entry(Candidate("a", 1), Path("a"), results)])
    return summary


@pytest.mark.parametrize(
    ("own", "workers", "weaker"),
    [
        (FULL, (FULL.name, FULL.name), None),
        (FULL, (FULL.name, SOME.name), SOME.name),
        (FULL, (SOME.name, NONE.name, FULL.name), NONE.name),
        (SOME, (FULL.name,), None),
        (SOME, ("",), None),
    ],
    ids=["same", "one weaker", "two weaker", "stronger", "unknown"],
)
def test_a_worker_with_a_weaker_sandbox_is_named(own, workers, weaker):
    summary = summary_of(own, *workers)
    assert summary.weaker_sandbox == weaker
    assert summary.sandbox_line.startswith(weaker or own.name)
    assert own.name in summary.sandbox_line


def test_sandboxes_are_read_as_they_were_written_and_may_be_missing():
    summary = summary_of(FULL, FULL.name, SOME.name)
    data = json.loads(json.dumps(summary.to_json()))
    assert parse_summary(data) == summary
    del data["sandboxes"]
    assert parse_summary(data).sandboxes == set()
    assert parse_summary(data).sandbox == FULL.name
