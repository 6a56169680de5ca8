"""A training job: run directory, environments, policy and trainer put together, and what happens between updates."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from embodied_icrl.common.config import to_dict
from embodied_icrl.common.errors import RunError
from embodied_icrl.common.seeds import derived_seed
from embodied_icrl.envs.vector import make_envs
from embodied_icrl.evaluation.in_context import evaluate_in_context
from embodied_icrl.evaluation.plots import plot_training
from embodied_icrl.policy import Policy
from embodied_icrl.runs.checkpoint import find_checkpoint, load_checkpoint, save_checkpoint
from embodied_icrl.runs.metrics import MetricsLog
from embodied_icrl.runs.run import Run, open_run
from embodied_icrl.training import state as saved_state
from embodied_icrl.training.config import TrainConfig
from embodied_icrl.training.distributed import Ranks, choose_device, join, leave
from embodied_icrl.training.progress import ProgressReport
from embodied_icrl.training.signals import StopRequest
from embodied_icrl.training.trainer import Trainer


@dataclass(frozen=True)
class JobResult:
    """How a job ended: its run directory, environment steps done, and the signal that stopped it (0: none)."""

    run: Path
    step: int
    signal: int


def train(config: TrainConfig) -> JobResult:
    """Train (or go on training) in the run directory `config.run`.

    Every process that torchrun started calls this with the same config.

    Raises:
        ConfigError, RunError: with one sentence that says what to change.
    """
    if config.threads:
        torch.set_num_threads(config.threads)
    ranks = join(choose_device(config.device))
    try:
        return _train(config, ranks)
    finally:
        leave()


def build_policy(config: TrainConfig, envs: Any, device: torch.device) -> Policy:
    """A policy with fresh weights that depend on the seed only."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derived_seed(config.seed, "weights"))
        policy = Policy(
            config.policy,
            envs.single_observation_space,
            envs.single_action_space,
            envs.max_episode_steps,
        )
    return policy.to(device)


def _train(config: TrainConfig, ranks: Ranks) -> JobResult:
    run = open_run(...)
    envs = make_envs(
        config.env,
        config.vector.num_envs,
        split="train",
        seed=config.seed,
        first_index=ranks.rank * config.vector.num_envs,
        total_envs=ranks.world_size * config.vector.num_envs,
        workers=config.vector.workers,
    )
    with contextlib.closing(envs):
        policy = build_policy(config, envs, ranks.device)
        trainer = Trainer(config, policy, envs, ranks)
        ...
