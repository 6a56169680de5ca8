"""Reward functions in answers of language models."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from embodied_icrl.common.errors import ConfigError
from embodied_icrl.reward_search import extract
from embodied_icrl.reward_search.extract import NoCode, extract_reward, read_reward
from embodied_icrl.reward_search.findings import Finding, parse_finding, printable
from embodied_icrl.reward_search.static_check import check_source

MAIN = "def compute_reward(state):\n    return gate(1.0), {}\n"
HELPER = "def gate(x):\n    return SCALE * x\n"
PLAIN = "def compute_reward(state):\n    return 0.0, {}\n"


def names(source: str) -> list[str]:
    return [f.text for f in check_source(source, ["tip"])]


def test_prose_around_one_block():
    assert extract_reward(f"Sure! Here:\n\n```python\n{PLAIN}```\nIt is `def` ined.") == PLAIN


def test_helpers_and_constants_before_the_main_function_stay():
    block = f"SCALE = 2.0\n\n{HELPER}\n{MAIN}"
    assert extract_reward(f"```\n{block}```") == block


def test_helpers_in_other_blocks_are_brought_along():
    answer = f"First ```x``` a helper:\n```python\nSCALE = 2.0\nOTHER = 3\n{HELPER}```\nthen\n"
    source = extract_reward(
        answer + f"~~~py\n{MAIN}~~~\nand usage\n```\nprint(compute_reward)\n```"
    )
    assert names(source) == []
    assert source.index("SCALE") < source.index("def gate") < source.index("def compute_reward")
    assert "OTHER" not in source and "print" not in source


def test_the_last_version_counts():
    later = PLAIN.replace("0.0", "1.0")
    assert extract_reward(f"```\n{PLAIN}```\nBetter:\n```\n{later}```\n") == later


def test_an_answer_that_is_cut_off_or_indented():
    assert extract_reward(f"```python\n{PLAIN}") == PLAIN
    indented = "".join(f"   {line}\n" for line in f"```python\n{PLAIN}```".splitlines())
    assert extract_reward("1. So:\n" + indented) == PLAIN


def test_code_without_fences():
    source = extract_reward(
        f"I would write this.\n\nimport numpy as np\nK = 2.0\n{PLAIN}\nBye now."
    )
    assert source.startswith("import numpy") and source.rstrip().endswith("return 0.0, {}")
    assert names(source) == []


@pytest.mark.parametrize(
    "answer", ["", "No.", "```python\nx = 1\n```", "x " * 10**6, "```\n" * 10**5, "(" * 10**5]
)
def test_no_code(answer):
    with pytest.raises(NoCode, match="no function compute_reward"):
        extract_reward(answer)


def test_two_megabytes_of_prose_around_the_code():
    prose = "This line explains = nothing (at all).\n" * 50_000
    assert extract_reward(f"{prose}```python\n{PLAIN}```\n{prose}") == PLAIN


def test_files(tmp_path, monkeypatch):
    path = tmp_path / "answer.md"
    path.write_text(f"So:\n```python\n{PLAIN}```\n", encoding="utf-8-sig")
    assert read_reward(path) == PLAIN
    path.write_text("no")
    with pytest.raises(NoCode):
        read_reward(path)
    path = path.rename(tmp_path / "mine.py")
    assert read_reward(path) == "no"  # the checks say what is wrong with it
    for content, message in ((b"\xff", "not UTF-8"), (b"x" * 11, "more than 10 bytes")):
        monkeypatch.setattr(extract, "MAX_FILE", 10)
        path.write_bytes(content)
        with pytest.raises(ConfigError, match=message):
            read_reward(path)
    with pytest.raises(ConfigError, match="Is a directory"):
        read_reward(tmp_path)


@given(st.text(max_size=300))
def test_any_text_is_code_or_no_code(text):
    with contextlib.suppress(NoCode):
        assert "compute_reward" in extract_reward(text)


@given(st.text(max_size=300))
def test_any_text_can_be_checked(text):
    assert all(len(line) < 500 and line.isprintable() for line in names(text))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner),
    max_leaves=6,
)


@given(
    JSON | st.fixed_dictionaries({"rule": JSON, "line": JSON, "message": JSON, "severity": JSON})
)
def test_reports_of_a_child_are_findings_or_refused(data):
    try:
        finding = parse_finding(data)
    except ValueError:
        return
    assert finding.text.isprintable() and finding.severity in ("error", "warning")


def test_findings_survive_the_way_back():
    finding = Finding("call", 3, "why", "warning")
    assert parse_finding(vars(finding)) == finding
    assert printable("a\x1b[31m\nb" + "c" * 400).startswith("a [31m b")
