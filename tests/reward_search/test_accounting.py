"""Tokens and money: what was paid stays known, and the budget holds."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from embodied_icrl.common.errors import ConfigError, UserError
from embodied_icrl.reward_search.accounting import (
    Accounting,
    BudgetSpent,
    Spending,
    estimated_tokens,
)
from embodied_icrl.reward_search.records import Usage

PRICES = {"prompt_price": 2.0, "completion_price": 8.0}
USAGES = st.lists(st.builds(Usage, st.integers(0, 500), st.integers(0, 500), st.booleans()))


@given(USAGES, st.integers(0, 3000), st.floats(0, 0.01))
def test_the_budget_is_never_exceeded(usages, max_tokens, max_cost):
    accounting = Accounting()
    accounting.limit(Spending(max_tokens, max_cost, **PRICES))
    for usage in usages:
        try:
            accounting.check(usage)
        except BudgetSpent:
            continue
        accounting.add(usage)
    total = accounting.totals.usage
    assert total.prompt_tokens + total.completion_tokens <= max_tokens
    assert accounting.spending.cost(total) <= max_cost


def test_money_follows_from_the_prices():
    spending = Spending(**PRICES)
    assert spending.cost(Usage(1_000_000, 500_000)) == pytest.approx(6.0)
    assert Spending().cost(Usage(10, 10)) is None


def test_totals_are_on_disk_after_each_call_and_gone_on_with(tmp_path):
    path = tmp_path / "accounting.json"
    accounting = Accounting(path)
    accounting.limit(Spending(max_tokens=1000, max_cost=1.0, **PRICES))
    accounting.add(Usage(100, 50))
    accounting.add(Usage(100, 50, estimated=True))
    data = json.loads(path.read_text())
    assert (data["calls"], data["prompt_tokens"], data["completion_tokens"]) == (2, 200, 100)
    assert data["estimated_tokens"] == 150 and data["cost"] == pytest.approx(0.0012)
    again = Accounting(path, paid=[Usage(100, 50)])  # the second call's answers were lost in a kill
    assert again.totals == accounting.totals
    again.limit(accounting.spending)
    assert again.line == "300 tokens of 1000 (150 of them estimated), cost 0.0012 of 1"


def test_a_lost_file_is_made_up_for_by_the_transcript(tmp_path):
    accounting = Accounting(tmp_path / "accounting.json", paid=[Usage(5, 6), Usage(7, 8, True)])
    assert accounting.totals.usage == Usage(12, 14, True)
    assert accounting.totals.calls == 2


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"calls": -1}', "null"])
def test_a_damaged_file_stops_rather_than_counts_from_zero(tmp_path, text):
    path = tmp_path / "accounting.json"
    path.write_text(text)
    with pytest.raises(UserError, match=r"accounting\.json is damaged; delete it"):
        Accounting(path)


def test_the_message_says_which_limit():
    accounting = Accounting()
    accounting.limit(Spending(max_tokens=10))
    with pytest.raises(BudgetSpent, match="0 tokens of 10: the next call could exceed max_tokens"):
        accounting.check(Usage(11, 0))
    accounting.limit(Spending(max_cost=0.0, **PRICES))
    with pytest.raises(BudgetSpent, match="max_cost"):
        accounting.check(Usage(1, 0))
    accounting.check(Usage(0, 0))


def test_estimates_are_rather_too_high():
    code = "def compute_reward(state):\n    return -np.linalg.norm(state.tip - state.target), {}\n"
    assert len(code) / 4 < estimated_tokens(code) < len(code)
    assert estimated_tokens("") > 0
    assert estimated_tokens("奖励函数" * 100) >= 400


def test_limits_need_what_they_are_made_of():
    with pytest.raises(ConfigError, match="max_cost needs"):
        Spending(max_cost=1.0)
    with pytest.raises(ConfigError, match="both"):
        Spending(completion_price=1.0)
    with pytest.raises(ConfigError, match="negative"):
        Spending(max_tokens=-1)
