from __future__ import annotations

import numpy as np
import pytest

from embodied_icrl.evaluation.actors import RandomActor
from embodied_icrl.evaluation.trials import TrialLength, TrialTable, run_trials
from tests.evaluation.tiny import ScriptedConfig


def run(trials: int, num_envs: int, length: TrialLength, config: ScriptedConfig | None = None):
    config = config or ScriptedConfig()
    env = config.build(num_envs)
    steps = []
    table = run_trials(
        env,
        RandomActor(env, 0),
        np.arange(trials),
        length,
        on_step=lambda count, episodes: steps.append((count, episodes)),
    )
    return table, config.log, np.array(steps).sum(axis=0)


def expected(trials: int, episodes: int, longest: int = 4):
    """Lengths, returns and start tokens by hand: an episode of n steps has n + 1 tokens."""
    i, k = np.arange(trials)[:, None], np.arange(episodes)[None, :]
    lengths = 1 + (i + k) % longest
    starts = np.cumsum(lengths + 1, axis=1) - (lengths + 1)
    return lengths, 1.0 + i + 10 * k, starts


def check(table: TrialTable, trials: int, episodes: int) -> None:
    lengths, returns, starts = expected(trials, episodes)
    assert table.trial.tolist() == list(range(trials))
    np.testing.assert_array_equal(table.metrics["length"], lengths)
    np.testing.assert_array_equal(table.metrics["return"], returns)
    np.testing.assert_array_equal(
        table.metrics["success"], np.broadcast_to(np.arange(episodes) % 2, (trials, episodes))
    )
    np.testing.assert_array_equal(table.start_step, starts)
    np.testing.assert_array_equal(table.tokens, (lengths + 1).sum(axis=1))
    assert list(table.metrics) == ["return", "success", "length"]
    assert table.best_return is None


@pytest.mark.parametrize("num_envs", [1, 3, 7])
def test_every_episode_of_every_trial_is_recorded_once(num_envs):
    table, log, (steps, episodes) = run(7, num_envs, TrialLength(3))
    check(table, 7, 3)
    assert episodes == 21
    assert steps == table.metrics["length"].sum()
    resets = [tasks for kind, tasks in log if kind == "reset"]
    assert len(resets) == -(-7 // num_envs)
    assert resets[0].tolist() == list(range(num_envs))


def test_a_short_last_batch_repeats_a_task_and_records_it_once():
    table, log, _ = run(5, 3, TrialLength(2))
    assert [tasks.tolist() for kind, tasks in log if kind == "reset"] == [[0, 1, 2], [3, 4, 3]]
    check(table, 5, 2)


def test_environments_that_are_done_wait():
    """Trial 0 is over long before trial 3; what it goes on doing is nobody's business."""
    table, log, _ = run(4, 4, TrialLength(1))
    check(table, 4, 1)
    assert sum(kind == "step" for kind, _ in log) == 4, "as many steps as the slowest needs"


def test_a_trial_of_n_steps_starts_no_episode_later_and_ends_those_begun():
    table, _, _ = run(4, 4, TrialLength(None, 7))
    lengths, returns, starts = expected(4, 9)
    started = starts < 7
    width = int(started.sum(axis=1).max())
    assert table.start_step.shape == (4, width)
    np.testing.assert_array_equal(table.start_step, np.where(started, starts, -1)[:, :width])
    np.testing.assert_array_equal(
        table.metrics["return"], np.where(started, returns, np.nan)[:, :width]
    )
    assert np.isfinite(table.metrics["return"]).sum() == started.sum(), "none is cut off"


def test_tables_of_different_widths_are_joined():
    table, _, _ = run(4, 1, TrialLength(None, 7))
    whole, _, _ = run(4, 4, TrialLength(None, 7))
    np.testing.assert_array_equal(table.start_step, whole.start_step)
    np.testing.assert_array_equal(table.metrics["return"], whole.metrics["return"])


def test_both_limits():
    table, _, _ = run(4, 4, TrialLength(2, 7))
    assert table.start_step.shape == (4, 2)
    few, _, _ = run(4, 4, TrialLength(9, 3))
    assert few.start_step.shape[1] < 9


@pytest.mark.parametrize(
    "length", [TrialLength(3), TrialLength(None, 11), TrialLength(None, 1), TrialLength(4, 6)]
)
def test_no_trial_is_longer_than_its_capacity(length):
    table, _, _ = run(8, 8, length)
    assert table.tokens.max() <= length.capacity(4)


def test_capacity_is_reached_by_a_trial_of_slow_episodes():
    config = ScriptedConfig(longest=1)
    table, _, _ = run(1, 1, TrialLength(3), config)
    assert table.tokens[0] == TrialLength(3).capacity(1) == 6
    table, _, _ = run(1, 1, TrialLength(None, 5), config)
    assert table.tokens[0] == TrialLength(None, 5).capacity(1) == 6


def test_the_oracles_return_is_read_at_every_episode_start():
    table, _, _ = run(3, 2, TrialLength(2), ScriptedConfig(oracle=True))
    i, k = np.arange(3)[:, None], np.arange(2)[None, :]
    assert table.best_return is not None
    np.testing.assert_array_equal(table.best_return, 100.0 + i + 10 * k)
