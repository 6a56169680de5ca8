"""Finite task sets: splits without overlap, and rounds in which every item comes up once."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from embodied_icrl.common.errors import ConfigError
from embodied_icrl.envs.held_out import HeldOutTasks


@given(st.integers(5, 200), st.integers(0, 3))
def test_splits_are_disjoint_and_complete(count, split_seed):
    train = HeldOutTasks(count, 0.2, "train", split_seed)
    test = HeldOutTasks(count, 0.2, "test", split_seed)
    assert sorted([*train.items, *test.items]) == list(range(count))
    assert len(test.items) == round(count * 0.2)


@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=20), st.integers(0, 3))
def test_a_task_is_the_same_in_any_company(ids, seed):
    tasks = HeldOutTasks(30, 0.2, "train", 0)
    together = tasks.pick(seed, np.array(ids))
    alone = [HeldOutTasks(30, 0.2, "train", 0).pick(seed, np.array([i]))[0] for i in ids]
    np.testing.assert_array_equal(together, alone)
    assert set(together) <= set(tasks.items)


def test_rounds_are_permutations_that_differ():
    tasks = HeldOutTasks(50, 0.2, "train", 0)
    picked = tasks.pick(0, np.arange(120)).reshape(3, 40)
    for of_round in picked:
        assert sorted(of_round) == sorted(tasks.items)
    assert len({tuple(of_round) for of_round in picked}) == 3
    assert (tasks.pick(1, np.arange(40)) != picked[0]).any()


@pytest.mark.parametrize("held_out", [0.0, 0.01, 1.0, -0.5, 0.99])
def test_an_empty_split_is_refused(held_out):
    with pytest.raises(ConfigError, match="held_out"):
        HeldOutTasks(10, held_out, "train", 0)
