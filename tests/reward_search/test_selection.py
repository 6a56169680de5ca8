"""One number for a candidate from its trainings."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from embodied_icrl.reward_search.records import FitnessPoint
from embodied_icrl.reward_search.selection import select


def run(*means: float) -> list[FitnessPoint]:
    return [FitnessPoint(100 * (i + 1), mean, 0.0, 20) for i, mean in enumerate(means)]


def test_one_lucky_checkpoint_of_one_seed_does_not_win():
    lucky = [run(0.0, 1.0, 0.1, 0.1), run(0.0, 0.0, 0.1, 0.1)]
    steady = [run(0.1, 0.2, 0.4, 0.4), run(0.1, 0.2, 0.4, 0.4)]
    assert select(lucky)[0] < select(steady)[0]
    assert select(lucky, "max")[0] > select(steady, "max")[0]  # Eureka's protocol, by name


def test_the_mean_of_the_last_checkpoints():
    assert select([run(*range(10))]) == (8.0, None, None)
    assert select([run(3.0)]) == (3.0, None, None)
    assert select([run(0.0, 1.0)])[0] == 1.0


def test_the_maximum_over_checkpoints_is_taken_seed_by_seed():
    assert select([run(0.0, 0.8, 0.2), run(0.4, 0.0, 0.0)], "max")[0] == pytest.approx(0.6)


def test_a_negative_fitness_is_a_fitness():
    mean, low, high = select([run(-3.0), run(-2.0), run(-1.0)])
    assert mean == -2.0
    assert low < -2.0 < high
    assert select([run(-5.0, -4.0)], "max")[0] == -4.0


def test_the_interval_is_that_of_the_t_distribution():
    # By hand: mean 2, deviation 1, three values: 2 +- 4.303 / sqrt(3).
    mean, low, high = select([run(1.0), run(2.0), run(3.0)])
    assert (low, high) == pytest.approx((2 - 4.303 / 3**0.5, 2 + 4.303 / 3**0.5))


def test_the_interval_covers_the_truth_as_often_as_it_says():
    rng = np.random.default_rng(0)
    for seeds in (2, 3, 5, 40):
        hits = 0
        for _ in range(400):
            _, low, high = select([run(value) for value in rng.normal(size=seeds)])
            hits += low <= 0.0 <= high
        assert 0.91 <= hits / 400 <= 0.99


@given(st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=30), st.randoms())
def test_the_order_of_the_seeds_does_not_matter(values, random):
    shuffled = list(values)
    random.shuffle(shuffled)
    one, other = (select([run(value) for value in order]) for order in (values, shuffled))
    assert one == pytest.approx(other)
    assert one[1] <= one[0] <= one[2]
