"""A whole training on a small Darkroom: the curve rises on held-out tasks, and memory is why."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from embodied_icrl.envs.darkroom import DarkroomConfig
from embodied_icrl.evaluation.in_context import EvaluationConfig, evaluate_in_context
from embodied_icrl.evaluation.loading import load_policy
from embodied_icrl.runs.checkpoint import find_checkpoint
from embodied_icrl.training.config import (
    LoggingConfig,
    PPOConfig,
    TrainConfig,
    TrainerConfig,
    TrainEvaluationConfig,
)
from embodied_icrl.training.job import train


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("context_gradient", ["full", "detached"])
def test_a_small_darkroom_is_learned_in_context(tmp_path: Path, context_gradient: str) -> None:
    env = DarkroomConfig(dim=5, horizon=10)
    train(
        TrainConfig(
            env=env,
            run=str(tmp_path / "run"),
            ppo=PPOConfig(
                num_steps=88,
                learning_rate=2e-3,
                learning_rate_end=2e-4,
                context_gradient=context_gradient,  # type: ignore[arg-type]
            ),
            trainer=TrainerConfig(total_steps=1_500_000),
            evaluation=TrainEvaluationConfig(final=False),
            logging=LoggingConfig(tensorboard=False, log_every_s=60.0),
        )
    )
    policy = load_policy(find_checkpoint(tmp_path / "run"))

    def curve(context: str) -> np.ndarray:
        settings = EvaluationConfig(
            n_episodes=8,
            context=context,  # type: ignore[arg-type]
            references=False,
        )
        result = evaluate_in_context(policy, env, settings)
        return np.array(result.summary()["metrics"]["return"]["mean"])

    full, cleared = curve("full"), curve("cleared")
    assert full[5:].mean() > 1.5 * full[0]
    assert abs(cleared[5:].mean() - cleared[0]) < 0.25 * (full[5:].mean() - full[0])
