from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from embodied_icrl.evaluation.statistics import (
    bootstrap,
    mean_of_episodes,
    reached_episodes,
    summarise_metrics,
    summarise_regret,
    third,
)

NAN = float("nan")


def test_bootstrap_covers_the_true_mean_about_95_times_of_100():
    rng = np.random.default_rng(0)
    # 400 independent experiments with 60 trials each, as the columns of one call would share
    # their draws, so that each experiment gets its own call.
    samples = rng.exponential(2.0, size=(400, 60, 1))
    hits = 0
    for sample in samples:
        interval = bootstrap(sample, rng, resamples=300)
        hits += bool(interval.low[0] <= 2.0 <= interval.high[0])
    assert 0.88 <= hits / 400 <= 0.98


def test_bootstrap_width_is_that_of_the_normal_interval():
    values = np.random.default_rng(1).normal(size=(400, 3))
    interval = bootstrap(values, np.random.default_rng(2))
    expected = 2 * 1.96 * values.std(axis=0) / 20
    np.testing.assert_allclose(interval.high - interval.low, expected, rtol=0.12)
    np.testing.assert_allclose(interval.mean, values.mean(axis=0))


def test_bootstrap_leaves_missing_values_out():
    values = np.array([[1.0, NAN], [3.0, 5.0], [NAN, NAN], [2.0, 5.0]])
    interval = bootstrap(values, np.random.default_rng(0))
    assert interval.n.tolist() == [3, 2]
    assert interval.mean.tolist() == [2.0, 5.0]
    assert interval.low[1] == interval.high[1] == 5.0
    assert 1.0 <= interval.low[0] < 2.0 < interval.high[0] <= 3.0
    nothing = bootstrap(np.full((3, 1), NAN), np.random.default_rng(0))
    assert nothing.to_json() == {"mean": [None], "low": [None], "high": [None], "n": [0]}


def test_bootstrap_is_reproducible_and_chunking_does_not_show(monkeypatch):
    values = np.random.default_rng(3).normal(size=(50, 4))
    whole = bootstrap(values, np.random.default_rng(5))
    monkeypatch.setattr("embodied_icrl.evaluation.statistics._CHUNK_ELEMENTS", 700)
    pieces = bootstrap(values, np.random.default_rng(5))
    np.testing.assert_array_equal(whole.low, pieces.low)
    np.testing.assert_array_equal(whole.high, pieces.high)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30), st.integers(0, 1000))
def test_the_interval_holds_between_the_extremes(values, seed):
    column = np.array(values)[:, None]
    interval = bootstrap(column, np.random.default_rng(seed), resamples=50)
    slack = 1e-9 * max(1.0, np.abs(column).max())
    assert column.min() - slack <= interval.low[0] <= interval.high[0] <= column.max() + slack


def test_bootstrap_refuses_an_empty_table():
    with pytest.raises(ValueError, match="at least one trial"):
        bootstrap(np.empty((0, 3)), np.random.default_rng(0))


def test_reached_means_started_by_ninety_percent():
    start = np.zeros((10, 4), dtype=int)
    start[0, 1:] = -1  # 90% start episode 2
    start[1, 2:] = -1  # 80% start episode 3
    assert reached_episodes(start) == 2
    start[1, 2:] = 7
    assert reached_episodes(start) == 4
    # Nothing behind a gap counts, even if more trials were to reach it.
    start[:, 1] = -1
    assert reached_episodes(start) == 1


@pytest.mark.parametrize(
    ("episodes", "size"), [(1, 1), (2, 1), (4, 1), (5, 2), (10, 3), (15, 5), (30, 10)]
)
def test_a_third(episodes, size):
    assert third(episodes) == size


def test_mean_of_episodes_by_hand():
    values = np.array([[1.0, 3.0], [NAN, 4.0], [NAN, NAN]])
    means = mean_of_episodes(values)
    assert means[:2].tolist() == [[2.0], [4.0]]
    assert np.isnan(means[2, 0])


def test_summary_of_a_hand_made_table():
    returns = np.array([[0.0, 2.0, 4.0, 6.0], [2.0, 4.0, 6.0, 8.0]])
    start = np.zeros((2, 4), dtype=int)
    summary = summarise_metrics({"return": returns}, start)
    assert summary["metrics"]["return"]["mean"] == [1.0, 3.0, 5.0, 7.0]
    assert summary["metrics"]["return"]["n"] == [2, 2, 2, 2]
    assert summary["metrics"]["return"]["low"] == [0.0, 2.0, 4.0, 6.0]
    assert summary["metrics"]["return"]["high"] == [2.0, 4.0, 6.0, 8.0]
    assert summary["first_third"]["return"]["mean"] == 1.0
    assert summary["last_third"]["return"]["mean"] == 7.0
    best = np.full((2, 4), 10.0)
    regret = summarise_regret(returns, best, start)
    assert regret["per_episode"]["mean"] == [9.0, 7.0, 5.0, 3.0]
    assert regret["total"]["mean"] == 24.0
    assert (regret["total"]["low"], regret["total"]["high"]) == (20.0, 28.0)


def test_demonstrations_stay_out_of_the_thirds_and_the_total_regret():
    returns = np.array([[9.0, 9.0, 1.0, 2.0, 3.0]] * 2)
    start = np.zeros((2, 5), dtype=int)
    summary = summarise_metrics({"return": returns}, start, n_demos=2)
    assert summary["metrics"]["return"]["mean"] == [9.0, 9.0, 1.0, 2.0, 3.0]
    assert summary["first_third"]["return"]["mean"] == 1.0
    assert summary["last_third"]["return"]["mean"] == 3.0
    regret = summarise_regret(returns, np.full((2, 5), 10.0), start, n_demos=2)
    assert regret["total"]["mean"] == 24.0


def test_sparse_episode_indices_are_left_out():
    returns = np.arange(30.0).reshape(10, 3)
    start = np.zeros((10, 3), dtype=int)
    start[:2, 2] = -1
    returns[:2, 2] = NAN
    summary = summarise_metrics({"return": returns}, start)
    assert len(summary["metrics"]["return"]["mean"]) == 2
    assert summary["last_third"]["return"]["mean"] == returns[:, 1].mean()
