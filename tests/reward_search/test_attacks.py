"""Every known escape is stopped, by the layer that is there for it; ordinary code is accepted.

The first line of an attack names the rule that stops it. Rules of the unit checks and of the
process stop only what the static layer lets pass, so that a missing layer fails here.
"""

from __future__ import annotations

import pytest

from embodied_icrl.manipulation.fetch import FetchPickAndPlace, FetchPush, FetchReach
from embodied_icrl.manipulation.planar_push import PlanarPush
from embodied_icrl.manipulation.valve_turn import ValveTurn
from embodied_icrl.reward_search.checks import CheckReport, check_reward
from embodied_icrl.reward_search.sandbox import Limits
from embodied_icrl.reward_search.static_check import check_source
from embodied_icrl.reward_search.transitions import record_episodes
from tests.reward_search.tasks import FIELDS, TASK, corpus, rule_of

ATTACKS, ORDINARY = corpus("attacks"), corpus("ordinary")
LATER_RULES = {
    "load", "call", "time", "deterministic", "result", "components", "finite", "process",
}  # fmt: skip
STATIC = {name: text for name, text in ATTACKS.items() if rule_of(text) not in LATER_RULES}
LATER = {name: text for name, text in ATTACKS.items() if rule_of(text) in LATER_RULES}


@pytest.fixture(scope="module")
def episodes():
    return record_episodes(TASK)


def check(source: str, episodes, **options) -> CheckReport:
    limits = Limits(wall_s=150, cpu_s=4, memory_mib=512)
    return check_reward(source, TASK, episodes=episodes, limits=limits, **options)


def test_the_corpus_is_there():
    assert len(STATIC) >= 40 and len(LATER) >= 15 and len(ORDINARY) >= 6


@pytest.mark.parametrize("name", STATIC)
def test_attacks_that_are_stopped_unread_by_python(name):
    rules = [finding.rule for finding in check_source(STATIC[name], FIELDS)]
    assert rule_of(STATIC[name]) in rules


@pytest.mark.parametrize("name", LATER)
def test_attacks_that_are_stopped_when_they_run(name, episodes):
    assert check_source(LATER[name], FIELDS) == []
    report = check(LATER[name], episodes)
    assert not report.accepted
    assert [finding.rule for finding in report.findings] == [rule_of(LATER[name])]


@pytest.mark.parametrize("name", ORDINARY)
def test_ordinary_code_is_accepted(name, episodes):
    report = check(ORDINARY[name], episodes)
    assert [f.text for f in report.findings if f.severity == "error"] == []


@pytest.mark.parametrize(
    "task", [TASK, PlanarPush(), ValveTurn(), FetchPush()], ids=lambda task: task.name
)
def test_baselines_are_accepted_without_a_warning(task):
    recorded = record_episodes(task)
    for source in (task.human_reward, task.sparse_reward):
        report = check_reward(source, task, episodes=recorded, components="sum")
        assert [finding.text for finding in report.findings] == []


@pytest.mark.parametrize("task", [FetchReach(), FetchPickAndPlace()], ids=lambda task: task.name)
def test_baselines_pass_the_static_layer(task):
    for source in (task.human_reward, task.sparse_reward):
        assert check_source(source, [field.name for field in task.fields]) == []


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("return state.tip_positon[0], {}", "did you mean 'tip_position'"),
        ("return np.linalg.nrom(state.action), {}", "did you mean 'linalg.norm'"),
        ("return torch.norm(state.action), {}", "there is no 'torch' here"),
    ],
)
def test_findings_say_what_to_write_instead(body, message):
    findings = check_source(f"def compute_reward(state):\n    {body}\n", FIELDS)
    assert all(finding.line == 2 for finding in findings)
    assert any(message in finding.text for finding in findings)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("def reward(state):\n    return 0.0, {}\n", "no function compute_reward"),
        ("def compute_reward(a, b):\n    return 0.0, {}\n", "takes one argument"),
        ("def compute_reward(*a):\n    return 0.0, {}\n", "takes one argument"),
        ("def compute_reward(state:\n", "syntax, line 1"),
        ("", "no function compute_reward"),
    ],
)
def test_what_is_no_reward_function(source, message):
    assert message in check_source(source, FIELDS)[0].text


@pytest.mark.parametrize(
    ("body", "rule", "severity"),
    [
        ("return 2.0 * d, {'d': d}", "sum", "warning"),
        ("return 1.0, {'one': 1.0}", "flat", "warning"),
        ("return d, {'d': d}", "order", "warning"),
    ],
)
def test_warnings(body, rule, severity, episodes):
    distance = "d = float(np.linalg.norm(state.tip_position - state.target_position))"
    source = f"def compute_reward(state):\n    {distance}\n    {body}\n"
    report = check(source, episodes)
    assert (rule, severity) in {(f.rule, f.severity) for f in report.findings}
    assert report.accepted
    if rule == "sum":
        assert not check(source, episodes, components="sum").accepted


def test_runtime_errors_name_their_line(episodes):
    source = "def compute_reward(state):\n    x = 1\n    return x / 0.0, {}\n"
    (finding,) = check(source, episodes).findings
    assert (finding.rule, finding.line) == ("call", 3)
    assert "ZeroDivisionError" in finding.message
