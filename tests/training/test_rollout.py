"""Collection and shuffling of tokens."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from embodied_icrl.common.errors import ConfigError
from embodied_icrl.training.rollout import EpisodeLog, Rollout, _shuffled_order
from tests.policy.toy import make_policy
from tests.training.tiny import tiny_trainer


@settings(max_examples=100, deadline=None)
@given(st.lists(st.booleans(), min_size=1, max_size=40), st.integers(0, 2**32 - 1))
def test_shuffling_moves_whole_finished_episodes(ends: list[bool], seed: int) -> None:
    terminal = np.array(ends)
    order = _shuffled_order(terminal, np.random.default_rng(seed))
    assert sorted(order) == list(range(len(terminal)))
    # Inside a block tokens stay in order and neighbours; blocks are cut only after terminal tokens.
    for position, token in enumerate(order[:-1]):
        if not terminal[token]:
            assert order[position + 1] == token + 1
    running = len(terminal) - (np.flatnonzero(terminal)[-1] + 1 if terminal.any() else 0)
    assert list(order[len(order) - running :]) == list(
        range(len(terminal) - running, len(terminal))
    )


def test_a_rollout_that_no_memory_holds_is_refused_before_it_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pictures = spaces.Dict(
        {"head": spaces.Box(0, 255, (64, 64, 3), np.uint8), "target": spaces.Discrete(20)}
    )
    policy = make_policy(observations=pictures)
    where = "embodied_icrl.training.rollout._total_memory"
    monkeypatch.setattr(where, lambda device: 2 * 8 * (64 * 64 * 3 + 1))
    assert Rollout(policy, 2, 8).batch.shape == (2, 8)
    monkeypatch.setattr("embodied_icrl.policy.Policy.new_batch", None)
    words = (
        r"ppo\.num_steps=9 or vector\.num_envs=2, .* 'head' \(12,288 bytes .*policy\.encoders\.head"
    )
    with pytest.raises(ConfigError, match=words):
        Rollout(policy, 2, 9)
    monkeypatch.undo()
    monkeypatch.setattr("os.sysconf", lambda name: 4096 if "SIZE" in name else 1 << 24)
    with pytest.raises(ConfigError, match="take 246 GB in each process, and its cpu has 69 GB"):
        Rollout(policy, 20, 1_000_000)


def test_shuffling_does_happen() -> None:
    terminal = np.tile([False, True], 12)
    orders = {tuple(_shuffled_order(terminal, np.random.default_rng(i))) for i in range(20)}
    assert len(orders) > 10


def test_everything_stored_moves_together() -> None:
    trainer = tiny_trainer(ppo={"num_steps": 24, "updates_per_rollout": 1})
    trainer.collector.start_trial(trainer._task_ids())
    trainer.collector.collect(22)
    rollout = trainer.rollout
    marks = torch.arange(22.0).expand(4, 22).clone()
    rollout.reward[:, :22] = marks
    before = {name: array[:, :22].clone() for name, array in rollout.arrays()}
    rollout.shuffle_episodes(np.random.default_rng(3))
    order = rollout.reward[:, :22].long()
    assert not torch.equal(rollout.reward[:, :22], marks)
    for name, array in rollout.arrays():
        for env in range(4):
            assert torch.equal(array[env, :22], before[name][env][order[env]]), name


def test_tokens_follow_the_protocol() -> None:
    trainer = tiny_trainer()
    trainer.collector.start_trial(trainer._task_ids())
    trainer.collector.collect(20)
    batch, rollout = trainer.rollout.tokens(), trainer.rollout
    steps = batch.step_in_episode[0].tolist()
    assert steps == [0, 1, 2, 3, 4, 5] * 3 + [0, 1]
    assert batch.terminal[0].tolist() == [s == 5 for s in steps]
    assert batch.episode_start[0].tolist() == [s == 0 for s in steps]
    assert torch.equal(rollout.terminated[:, :20], batch.terminal)  # Darkroom never truncates
    ended = batch.terminal[:, :20]
    assert (rollout.reward[:, :20][ended] == 0).all()
    for t in range(1, 20):  # what a token earned is what the next one reads, within the episode
        inside = ~batch.episode_start[:, t]
        assert torch.equal(batch.prev_reward[inside, t], rollout.reward[inside, t - 1])
        assert torch.equal(batch.prev_action[inside, t], rollout.action[inside, t - 1])
        assert (batch.prev_action[~inside, t] == -1).all()


def test_environment_steps_leave_out_ignored_actions() -> None:
    trainer = tiny_trainer()
    for _ in range(4):
        row = trainer.update_once()
    assert row["tokens"] == 4 * 24
    assert row["step"] == 4 * 20  # every sixth token is terminal


def test_the_bootstrap_leaves_the_cache_alone() -> None:
    trainer = tiny_trainer()
    trainer.collector.start_trial(trainer._task_ids())
    trainer.collector.collect(6)
    before = trainer.cache.data[..., :6, :].clone()
    value = trainer.collector.bootstrap()
    assert trainer.cache.length == 6
    assert torch.equal(trainer.cache.data[..., :6, :], before)
    trainer.collector.collect(1)
    torch.testing.assert_close(trainer.rollout.value[:, 6], value)


def test_first_and_last_episode() -> None:
    log = EpisodeLog(3)
    for returns in ([1.0, 2.0, 0.0], [5.0, 4.0, 0.0]):
        values = np.array(returns)
        log.add(
            {
                "episode": {"r": values, "l": values + 1, "success": values > 0},
                "_episode": np.array([True, True, False]),
            }
        )
    means = {name: total / count for name, (total, count) in log.first_and_last().items()}
    assert means["return_first"] == pytest.approx(1.5)
    assert means["return_last"] == pytest.approx(4.5)
    assert means["length_last"] == pytest.approx(5.5)
    assert "spl_first" not in means


def test_an_episode_may_lack_what_another_has() -> None:
    log = EpisodeLog(2)
    log.finished[0] = [{"r": 1.0, "spl": 0.5}, {"r": 2.0}]
    log.finished[1] = [{"r": 3.0}, {"r": 4.0, "success": 1.0}]
    assert log.first_and_last() == {
        "return_first": (4.0, 2),
        "spl_first": (0.5, 1),
        "return_last": (6.0, 2),
        "success_last": (1.0, 1),
    }
