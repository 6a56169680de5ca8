"""GAE against hand-worked numbers and against an independent float64 recursion."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from embodied_icrl.training.returns import advantages


def test_hand_worked_termination_and_truncation() -> None:
    # Tokens:      0    1   |2: terminated  3    4   |5: truncated  6  -> 7 (bootstrap)
    rewards = np.array([[1.0, 2.0, 0.0, 3.0, 4.0, 0.0, 5.0]])
    values = np.array([[0.5, 1.0, 9.0, 2.0, 3.0, 10.0, 1.0, 6.0]])
    terminal = np.array([[0, 0, 1, 0, 0, 1, 0, 0]], dtype=bool)
    terminated = np.array([[0, 0, 1, 0, 0, 0, 0, 0]], dtype=bool)
    got = advantages(rewards, values, terminal, terminated, gamma=0.5, gae_lambda=0.8)
    # Terminated at token 2: the last step bootstraps with 0. delta1 = 2 - 1 = 1;
    # delta0 = 1 + .5*1 - .5 = 1; A0 = 1 + 0.4 * 1. Truncated at token 5: bootstraps with its
    # value 10. delta4 = 4 + 5 - 3 = 6; delta3 = 3 + .5*3 - 2 = 2.5; A3 = 2.5 + .4*6.
    # The running episode: A6 = 5 + .5*6 - 1 = 7.
    np.testing.assert_allclose(got, [[1.4, 1.0, 0.0, 4.9, 6.0, 0.0, 7.0]], atol=1e-12)


def test_stretch_that_starts_inside_an_episode_and_ends_on_a_terminal_bootstrap() -> None:
    rewards = np.array([[1.0, 1.0]])
    values = np.array([[0.0, 0.0, 8.0]])
    ends = np.array([[0, 0, 1]], dtype=bool)
    truncated = advantages(rewards, values, ends, np.zeros_like(ends), gamma=1.0, gae_lambda=1.0)
    terminated = advantages(rewards, values, ends, ends, gamma=1.0, gae_lambda=1.0)
    np.testing.assert_allclose(truncated, [[10.0, 9.0]])
    np.testing.assert_allclose(terminated, [[2.0, 1.0]])


@st.composite
def streams(draw: st.DrawFn) -> dict[str, np.ndarray]:
    envs, steps = draw(st.integers(1, 3)), draw(st.integers(1, 12))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    terminal = rng.random((envs, steps + 1)) < 0.3
    terminal[:, 1:] &= ~terminal[:, :-1]  # an episode has at least one step
    return {
        "rewards": rng.normal(size=(envs, steps)),
        "values": rng.normal(size=(envs, steps + 1)),
        "terminal": terminal,
        "terminated": terminal & (rng.random((envs, steps + 1)) < 0.5),
    }


@settings(max_examples=60, deadline=None)
@given(streams(), st.floats(0, 1), st.floats(0, 1))
def test_equals_the_sum_over_each_episode_alone(
    stream: dict[str, np.ndarray], gamma: float, lam: float
) -> None:
    got = advantages(**stream, gamma=gamma, gae_lambda=lam)
    for env in range(len(got)):
        r, v, end, dead = (stream[k][env] for k in ("rewards", "values", "terminal", "terminated"))
        for t in range(len(r)):
            expected, weight, k = 0.0, 1.0, t
            while not end[k] and k < len(r):  # sum of discounted residuals up to the episode's end
                following = 0.0 if dead[k + 1] else v[k + 1]
                expected += weight * (r[k] + gamma * following - v[k])
                weight *= gamma * lam
                k += 1
            assert got[env, t] == pytest.approx(expected, abs=1e-9)
