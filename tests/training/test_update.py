"""Equalities that partial-update PPO must satisfy, whatever way it is computed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from embodied_icrl.common.errors import TrainingError
from embodied_icrl.training.trainer import Trainer
from embodied_icrl.training.update import Bootstrap, Piece, context_pieces
from tests.training.tiny import tiny_trainer


def collected(updates: int, **settings: Any) -> tuple[Trainer, Bootstrap]:
    """A double-precision trainer `updates` segments into its first trial, the weights untouched."""
    trainer = tiny_trainer(**settings)
    trainer.policy.double()
    trainer.rollout, trainer.cache = fresh_storage(trainer)
    trainer.collector.rollout, trainer.collector.cache = trainer.rollout, trainer.cache
    trainer.collector.start_trial(trainer._task_ids())
    trainer.collector.collect(updates * trainer.config.ppo.segment)
    return trainer, trainer._bootstrap()


def fresh_storage(trainer: Trainer) -> tuple[Any, Any]:
    from embodied_icrl.training.rollout import Rollout

    steps = trainer.config.ppo.num_steps
    rollout = Rollout(trainer.policy, trainer.envs.num_envs, steps)
    rollout.log_prob = rollout.log_prob.double()
    rollout.value = rollout.value.double()
    return rollout, trainer.policy.new_cache(trainer.envs.num_envs, steps + 1, ring=False)


def loss_and_gradient(
    trainer: Trainer, bootstrap: Bootstrap, *, full: bool, detached: bool, rows: list[int]
) -> tuple[float, float, torch.Tensor]:
    """Loss, mean ratio deviation and the critic's gradient before the first optimiser step."""
    updater, rollout = trainer.updater, trainer.rollout
    pieces = context_pieces(
        rollout.length, trainer.config.ppo.segment, full=full, detached=detached
    )
    offset = min(piece.loss_from for piece in pieces)
    targets = updater._targets(rollout, bootstrap, offset)
    index = torch.tensor(rows)
    normalisation = updater._normalisation(targets, [[[index]]])[0][0]
    trainer.policy.zero_grad()
    total, deviation = 0.0, 0.0
    for loss, sums in updater._losses(
        rollout, trainer.cache, targets, index, pieces, offset, normalisation, 0.01
    ):
        loss.backward()
        total += float(loss.detach())
        deviation += float(sums[-2])
    gradient = trainer.policy.critic.weight.grad
    assert gradient is not None
    return total, deviation, gradient.clone()


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize(
    "settings", [{}, {"sink": "none"}, {"inter_episode": False}, {"window": 5}]
)
def test_detached_and_full_context_give_the_same_loss_before_the_first_step(
    full: bool, settings: dict[str, Any]
) -> None:
    trainer, bootstrap = collected(3, policy=settings)
    whole = loss_and_gradient(trainer, bootstrap, full=full, detached=False, rows=[0, 1, 2, 3])
    parts = loss_and_gradient(trainer, bootstrap, full=full, detached=True, rows=[0, 1, 2, 3])
    assert whole[0] == pytest.approx(parts[0], abs=1e-6)
    # The critic reads the features directly, so its gradient doesn't depend on the mode either.
    torch.testing.assert_close(whole[2], parts[2], atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("detached", [False, True])
def test_ratio_is_one_in_the_first_update(detached: bool) -> None:
    trainer, bootstrap = collected(1)
    _, deviation, _ = loss_and_gradient(
        trainer, bootstrap, full=False, detached=detached, rows=[0, 1, 2, 3]
    )
    assert deviation < 1e-5


def test_refreshed_cache_and_values_are_those_of_the_new_weights() -> None:
    trainer = tiny_trainer(ppo={"learning_rate": 0.05, "shuffle_episodes": False})
    trainer.update_once()
    tokens = trainer.rollout.tokens()
    cache = trainer.policy.new_cache(4, 25, ring=False)
    values = trainer.policy.prefill(tokens, cache)
    torch.testing.assert_close(
        trainer.rollout.value[:, : trainer.rollout.length], values, atol=1e-5, rtol=1e-5
    )
    torch.testing.assert_close(
        trainer.cache.data[..., : cache.length, :], cache.data[..., : cache.length, :],
        atol=1e-5, rtol=1e-5,
    )  # fmt: skip


def test_without_refresh_the_cache_keeps_what_acting_wrote() -> None:
    trainer = tiny_trainer(ppo={"learning_rate": 0.05, "shuffle_episodes": False, "refresh": False})
    trainer.collector.start_trial(trainer._task_ids())
    trainer.counters.position = 1  # the trial has begun
    trainer.collector.collect(6)
    written = trainer.cache.data[..., :6, :].clone()
    bootstrap = trainer._bootstrap()
    trainer.updater.update(trainer.rollout, trainer.cache, bootstrap, full=False, progress=0.0)
    trainer._shuffle_and_refresh()
    assert torch.equal(trainer.cache.data[..., :6, :], written)


def test_pieces_of_an_update() -> None:
    assert context_pieces(12, 4, full=False, detached=False) == [Piece(0, 12, 8)]
    assert context_pieces(12, 4, full=True, detached=False) == [Piece(0, 12, 0)]
    assert context_pieces(12, 4, full=False, detached=True) == [Piece(8, 12, 8)]
    assert context_pieces(12, 4, full=True, detached=True) == [
        Piece(0, 4, 0), Piece(4, 8, 4), Piece(8, 12, 8),
    ]  # fmt: skip


def test_accumulated_minibatches_equal_one_large_minibatch() -> None:
    def weights_after(minibatches: int, accumulation: int) -> dict[str, torch.Tensor]:
        trainer, bootstrap = collected(
            2,
            ppo={"minibatches": minibatches, "grad_accumulation": accumulation},
        )
        trainer.updater.update(trainer.rollout, trainer.cache, bootstrap, full=True, progress=0.0)
        return trainer.policy.state_dict()

    large, small = weights_after(1, 1), weights_after(4, 4)
    for name, tensor in large.items():
        torch.testing.assert_close(small[name], tensor, atol=1e-6, rtol=1e-5)


def test_advantages_are_normalised_over_the_tokens_in_the_loss() -> None:
    trainer, bootstrap = collected(3, ppo={"normalize_advantages": "tokens"})
    targets = trainer.updater._targets(trainer.rollout, bootstrap, 6)
    plan = [[[torch.tensor([0, 1])], [torch.tensor([2, 3])]]]
    table = trainer.updater._normalisation(targets, plan)[0]
    valid = targets.advantage[targets.valid].double().numpy()
    for count, mean, std in table:
        assert mean == pytest.approx(valid.mean(), abs=1e-6)
        assert std == pytest.approx(valid.std(), rel=1e-5)
        assert count < valid.size
    assert sum(count for count, _, _ in table) == valid.size


def test_a_broken_gradient_ends_the_update_with_advice() -> None:
    trainer, bootstrap = collected(1)
    trainer.rollout.reward[0, 2] = float("nan")
    with pytest.raises(TrainingError, match="learning_rate"):
        trainer.updater.update(trainer.rollout, trainer.cache, bootstrap, full=False, progress=0.0)


def test_target_kl_ends_the_epochs_early() -> None:
    settings = {"epochs": 20, "learning_rate": 0.05, "target_kl": 1e-3}
    trainer, bootstrap = collected(1, ppo=settings)
    metrics = trainer.updater.update(
        trainer.rollout, trainer.cache, bootstrap, full=False, progress=0.0
    )
    assert 1 <= metrics["epochs"] < 20


def test_schedules() -> None:
    trainer, bootstrap = collected(
        1,
        ppo={
            "learning_rate": 1e-2, "learning_rate_end": 1e-3, "warmup_optimizer_steps": 10,
            "entropy_coef": 0.1, "entropy_coef_end": 0.0,
        },
    )  # fmt: skip
    rates, entropies = [], []
    for progress in np.linspace(0, 1, 21):
        row = trainer.updater.update(
            trainer.rollout, trainer.cache, bootstrap, full=False, progress=float(progress)
        )
        rates.append(row["lr"])
        entropies.append(row["entropy_coef"])
    assert rates[0] == pytest.approx(1e-3)  # a tenth of the way up the ramp
    assert max(rates) == pytest.approx(rates[9])
    assert rates[-1] == pytest.approx(1e-3)
    assert entropies[10] == pytest.approx(0.05)


@pytest.mark.parametrize("mode", ["full", "detached"])
def test_bfloat16_autocast_keeps_losses_and_statistics_in_float32(mode: str) -> None:
    trainer = tiny_trainer(dtype="bfloat16", ppo={"context_gradient": mode})
    for _ in range(4):
        row = trainer.update_once()
    assert all(np.isfinite(row[key]) for key in ("loss/policy", "loss/value", "grad_norm"))
    assert trainer.rollout.log_prob.dtype == torch.float32
    assert all(p.dtype == torch.float32 for p in trainer.policy.parameters())
    # In the first update of a trial only rounding can move the ratio off 1.
    first = trainer.update_once()
    assert first["ratio_deviation_at_start"] < 0.02


@pytest.mark.parametrize("space", ["multi_discrete", "box"])
def test_other_actions_and_images_train(space: str) -> None:
    from embodied_icrl.envs.trial_env import TrialEnvConfig

    env = TrialEnvConfig(
        make_env="tests.envs.user_envs.Ring",
        make_env_kwargs={"actions": space, "observations": "dict"},
        task_sampler="tests.envs.user_envs.sample_task",
        max_episode_steps=5,
    )
    trainer = tiny_trainer(env=env, num_envs=3, ppo={"minibatches": 3})
    for _ in range(5):
        row = trainer.update_once()
    assert np.isfinite(row["grad_norm"]) and row["grad_norm"] > 0
    assert row["tokens"] == 5 * 6 * 3
