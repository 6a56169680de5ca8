"""How far two rewards agree, evaluated where they can do no harm."""

from __future__ import annotations

import numpy as np
import pytest

from embodied_icrl.reward_search.correlation import MAX_STATES, correlate
from embodied_icrl.reward_search.sandbox import Limits
from embodied_icrl.reward_search.transitions import record_episodes

from .tasks import TASK

HUMAN = TASK.human_reward


@pytest.fixture(scope="module")
def states():
    return np.concatenate([np.array(e) for group in record_episodes(TASK).values() for e in group])


def compare(source: str, states, **options):
    return correlate(source, HUMAN, TASK.fields, states, "both policies", **options)


def test_a_reward_agrees_with_itself_and_its_opposite(states):
    same = compare(HUMAN, states)
    assert same is not None
    assert same.pearson == pytest.approx(1.0) and same.spearman == pytest.approx(1.0)
    assert same.states == len(states) and same.origin == "both policies"
    opposite = compare(
        HUMAN.replace("sum(components.values())", "-sum(components.values())"), states
    )
    assert opposite is not None and opposite.pearson == pytest.approx(-1.0)


def test_ranks_see_through_a_curve(states):
    source = HUMAN.replace("sum(components.values())", "np.exp(9 * sum(components.values()))")
    bent = compare(source, states)
    assert bent is not None and bent.pearson is not None
    assert bent.spearman == pytest.approx(1.0) and bent.pearson < 0.98


def test_a_constant_reward_has_no_correlation(states):
    constant = compare("def compute_reward(state):\n    return 2.0, {}\n", states)
    assert constant is not None
    assert constant.pearson is None and constant.spearman is None


@pytest.mark.parametrize(
    "source",
    [
        "import os\n",
        "def compute_reward(state):\n    return 1.0 / 0.0, {}\n",
        "def compute_reward(state):\n    return np.log(-1.0), {}\n",
    ],
)
def test_a_reward_that_fails_gives_none(source, states):
    assert compare(source, states) is None


def test_a_reward_that_takes_too_long_gives_none(states):
    loops = "".join(f"{'    ' * (i + 1)}for i{i} in range(9999):\n" for i in range(3))
    body = f"    x = 0.0\n{loops}{'    ' * 4}x += 1.0\n    return x, {{}}\n"
    source = f"def compute_reward(state):\n{body}"
    assert compare(source, states[:2], limits=Limits(wall_s=2)) is None


def test_many_states_are_thinned_out(states):
    many = np.tile(states, (-(-2 * MAX_STATES // len(states)), 1))
    found = compare(HUMAN, many)
    assert found is not None and found.states == MAX_STATES
    assert compare(HUMAN, states[:1]) is None
