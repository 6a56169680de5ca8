"""Racing as arithmetic: who goes on, and what it costs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from embodied_icrl.common.config import build
from embodied_icrl.common.errors import ConfigError
from embodied_icrl.reward_search.racing import Racing, planned_steps

TEN = tuple(range(4_000, 40_001, 4_000))
NAMES = [f"i1_s{i:02d}" for i in range(16)]

fitness = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=16).map(
    lambda values: dict(zip(NAMES, values, strict=False))
)


def test_rungs_lie_on_checkpoints_within_their_share():
    assert Racing().rungs(TEN) == (8_000, 20_000, 40_000)
    assert Racing().rungs((10, 20, 30, 40)) == (10, 20, 40)
    assert Racing(eta=3, depth=1).rungs(TEN) == (12_000, 40_000)
    assert Racing("none").rungs(TEN) == (40_000,)


@pytest.mark.parametrize("checkpoints", [(40,), (20, 40), (11, 22, 40)])
def test_too_few_checkpoints_are_an_error_that_says_what_to_set(checkpoints):
    with pytest.raises(ConfigError, match=r"checkpoints=4 .* racing.kind=none"):
        Racing().rungs(checkpoints)


@given(budget=st.integers(100, 10**7), count=st.integers(4, 40), candidates=st.integers(3, 64))
def test_it_takes_at_most_half_the_steps(budget, count, candidates):
    checkpoints = tuple(budget * (i + 1) // count for i in range(count))
    spent = planned_steps(Racing(), candidates, checkpoints)
    everything = planned_steps(Racing("none"), candidates, checkpoints)
    assert everything == candidates * budget
    assert 2 * spent <= everything


def test_eight_candidates_with_ten_checkpoints():
    assert planned_steps(Racing(), 8, TEN) == 8 * 8_000 + 4 * 12_000 + 2 * 20_000


@given(fitness)
def test_half_go_on_and_none_is_worse_than_one_that_stays_behind(values):
    kept = Racing().survivors(values)
    behind = [name for name in values if name not in kept]
    assert len(kept) == max(1, len(values) // 2)
    assert all(values[a] >= values[b] for a in kept for b in behind)
    assert list(kept) == [name for name in values if name in kept]


@given(fitness, st.floats(-1e3, 1e3, allow_subnormal=False))
def test_negative_fitness_is_fitness(values, shift):
    """Only the order counts, wherever zero lies."""
    ranks = {
        name: float(sorted(set(values.values())).index(value)) for name, value in values.items()
    }
    moved = {name: rank + shift for name, rank in ranks.items()}
    assert Racing().survivors(ranks) == Racing().survivors(values) == Racing().survivors(moved)


def test_equals_are_taken_in_the_order_given():
    assert Racing().survivors({"b": 0.0, "a": 0.0, "d": 0.5, "c": 0.0}) == ("b", "d")


@given(fitness)
def test_without_racing_all_go_on(values):
    assert Racing("none").survivors(values) == tuple(values)


def test_it_is_a_configuration():
    assert build({"kind": "none"}, Racing) == Racing("none")
    with pytest.raises(ConfigError, match="eta"):
        build({"eta": 1}, Racing)
