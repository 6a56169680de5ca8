from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from embodied_icrl.common.seeds import derived_rng, derived_seed, task_rng

names = st.lists(st.text(max_size=4) | st.integers(-3, 3), max_size=3).map(tuple)


def test_streams_never_change_between_releases() -> None:
    # Tasks are named by numbers in reports and checkpoints: these draws are a promise.
    drawn = task_rng("train", 0, 0).integers(2**32, size=3).tolist()
    assert drawn == [2561615948, 2911034613, 193827905]
    assert derived_seed(1, "torch", 2) == 2560383100608094285


def test_a_task_depends_on_its_arguments_only() -> None:
    first = task_rng("test", 3, 7).random(4)
    np.random.seed(0)
    task_rng("test", 3, 8).random(100)
    np.testing.assert_array_equal(first, task_rng("test", np.int64(3), np.int64(7)).random(4))


@given(st.integers(0, 3), names, st.integers(0, 3), names)
def test_different_names_are_different_streams(
    seed: int, one: tuple[Any, ...], other_seed: int, two: tuple[Any, ...]
) -> None:
    same = (seed, *one) == (other_seed, *two)
    assert (derived_seed(seed, *one) == derived_seed(other_seed, *two)) == same
    drawn = derived_rng(seed, *one).integers(2**63, size=2)
    assert np.array_equal(drawn, derived_rng(other_seed, *two).integers(2**63, size=2)) == same


def test_names_are_not_concatenated() -> None:
    seeds = {derived_seed(0, "a", "b"), derived_seed(0, "ab"), derived_seed(0, 'a","b')}
    seeds |= {derived_seed(0, 1), derived_seed(0, "1"), derived_seed(0)}
    assert len(seeds) == 6


@given(st.integers(), names)
def test_derived_seeds_fit_63_bits(seed: int, path: tuple[Any, ...]) -> None:
    assert 0 <= derived_seed(seed, *path) < 2**63


@pytest.mark.parametrize("seed", ["0", 0.0, None])
def test_a_seed_is_an_integer(seed: Any) -> None:
    with pytest.raises(TypeError):
        derived_seed(seed, "a")


def test_draws_are_uniform() -> None:
    draws = np.array([task_rng("train", 0, index).random() for index in range(2000)])
    assert abs(draws.mean() - 0.5) < 0.03
    assert abs(np.corrcoef(draws[:-1], draws[1:])[0, 1]) < 0.08
