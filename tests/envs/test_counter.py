"""Counter-based random numbers: even, independent of company, different where they should be."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from embodied_icrl.envs.counter import draw_below, trial_keys


def test_keys_depend_on_split_seed_and_task():
    ids = np.arange(50)
    keys = trial_keys("train", 0, ids)
    assert len(set(keys.tolist())) == 50
    np.testing.assert_array_equal(trial_keys("train", 0, ids[::-1]), keys[::-1])
    assert not set(keys) & set(trial_keys("test", 0, ids))
    assert not set(keys) & set(trial_keys("train", 1, ids))


def test_draws_are_even_over_tasks_episodes_and_draw_numbers():
    keys = trial_keys("train", 3, np.arange(2000))
    zeros = np.zeros(2000, dtype=np.int64)
    one_key = np.full(2000, keys[0])
    samples = [
        draw_below(keys, zeros, 0, 10),
        draw_below(keys, zeros, 1, 10),
        draw_below(one_key, np.arange(2000), 0, 10),
    ]
    for sample in samples:
        counts = np.bincount(sample, minlength=10)
        # Chi-squared with 9 degrees of freedom: above 33 once in 7,500 samples.
        assert ((counts - 200) ** 2 / 200).sum() < 33
    for a in range(3):
        for b in range(a):
            agreement = (samples[a] == samples[b]).mean()
            assert 0.07 < agreement < 0.13


@given(st.integers(0, 2**64 - 1), st.integers(0, 10**6), st.integers(0, 5), st.integers(1, 2**32))
def test_draws_stay_below_their_bound(key, episode, draw, bound):
    value = draw_below(np.array([key], dtype=np.uint64), np.array([episode]), draw, bound)
    assert 0 <= value[0] < bound


def test_each_row_has_its_own_bound():
    keys = trial_keys("train", 0, np.arange(300))
    bound = np.arange(300) % 7 + 1
    values = draw_below(keys, np.zeros(300, dtype=np.int64), 0, bound)
    assert (values < bound).all()
    alone = draw_below(keys[41:42], np.zeros(1, dtype=np.int64), 0, bound[41:42])
    assert alone[0] == values[41]
