"""A trainer so small that an update takes milliseconds."""

from __future__ import annotations

from typing import Any

import torch

from embodied_icrl.envs.darkroom import DarkroomConfig
from embodied_icrl.envs.vector import make_envs
from embodied_icrl.policy import PolicyConfig
from embodied_icrl.training.config import PPOConfig, TrainConfig, TrainerConfig, VectorConfig
from embodied_icrl.training.distributed import Ranks
from embodied_icrl.training.job import build_policy
from embodied_icrl.training.trainer import Trainer

PPO = {"num_steps": 24, "updates_per_rollout": 4, "epochs": 1, "minibatches": 1, "prefill_chunk": 7}
POLICY = {"width": 16, "layers": 2, "heads": 2, "mlp_width": 32}


def tiny_config(
    *,
    ppo: dict[str, Any] | None = None,
    policy: dict[str, Any] | None = None,
    env: Any = None,
    num_envs: int = 4,
    **rest: Any,
) -> TrainConfig:
    """Darkroom with episodes of five steps; keyword groups override."""
    return TrainConfig(
        env=env or DarkroomConfig(dim=3, horizon=5),
        vector=VectorConfig(num_envs=num_envs),
        ppo=PPOConfig(**{**PPO, **(ppo or {})}),
        policy=PolicyConfig(**{**POLICY, **(policy or {})}),
        trainer=rest.pop("trainer", TrainerConfig(total_steps=1000)),
        **rest,
    )


def tiny_trainer(
    config: TrainConfig | None = None, *, rank: int = 0, world_size: int = 1, **settings: Any
) -> Trainer:
    config = config or tiny_config(**settings)
    n = config.vector.num_envs
    envs = make_envs(
        config.env, n, seed=config.seed, first_index=rank * n, total_envs=world_size * n
    )
    ranks = Ranks(rank, world_size, torch.device("cpu"))
    return Trainer(config, build_policy(config, envs, ranks.device), envs, ranks)
