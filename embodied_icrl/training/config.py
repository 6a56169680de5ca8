"""The training configuration: one frozen dataclass per group of `sim_configs/train.yaml`.

Hydra composes the YAML untyped; `embodied_icrl.common.config.build` turns it into these classes, so
every key is checked, and `embodied-icrl train --help` prints the documentation written here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from embodied_icrl.common.config import option
from embodied_icrl.common.errors import ConfigError
from embodied_icrl.evaluation.in_context import EvaluationConfig
from embodied_icrl.policy import PolicyConfig


@dataclass(frozen=True)
class VectorConfig:
    """How many environments each process steps, and where they run."""

    num_envs: int = option(32, "environments per training process")
    workers: int = option(0, "worker processes that step them (0: in the training process)")

    def __post_init__(self) -> None:
        if self.num_envs < 1 or self.workers < 0:
            raise ConfigError("num_envs must be at least 1, workers 0 or more")


@dataclass(frozen=True)
class PPOConfig:
    """Partial-update PPO (ReLIC, arXiv 2410.02751, section 3; PPO, arXiv 1707.06347).

    A rollout is one trial of `num_steps` tokens per environment. The policy is updated
    `updates_per_rollout` times in it, each time on the segment collected since the last update
    (partial) or on the whole rollout so far (full), and the cached keys and values are recomputed
    with the new weights.
    """

    num_steps: int = option(210, "tokens per environment in one rollout (= one trial)")
    updates_per_rollout: int = option(
        2, "policy updates per rollout (U); 1 turns partial updates off"
    )
    full_updates_per_rollout: int = option(
        1,
        "how many of them, evenly spaced and the last one included, cover the whole rollout; "
        "0: none",
    )
    epochs: int = option(2, "passes over the data per update")
    minibatches: int = option(4, "minibatches (of whole environments) per epoch and process")
    grad_accumulation: int = option(1, "minibatches whose gradients add up to one optimiser step")
    context_gradient: Literal["full", "detached"] = option(
        "full",
        "full: back-propagate through the whole context (the paper); "
        "detached: everything before the segment is a constant cache (long contexts)",
    )
    shuffle_episodes: bool = option(
        True, "permute the finished episodes of the context after each update (needs refresh)"
    )
    refresh: bool = option(
        True, "recompute cached keys, values and stored value estimates after each update"
    )
    gamma: float = option(0.99, "discount per step")
    gae_lambda: float = option(0.95, "lambda of generalised advantage estimation")
    clip: float = option(0.2, "clipping range of the probability ratio")
    clip_value: float | None = option(None, "clipping range of the value update; null: off")
    value_coef: float = option(0.5, "weight of the value loss, itself 0.5 * MSE")
    entropy_coef: float = option(0.01, "entropy bonus at the start")
    entropy_coef_end: float | None = option(
        None, "entropy bonus at total_steps, reached linearly; null: constant"
    )
    normalize_advantages: Literal["none", "minibatch", "tokens"] = option(
        "minibatch",
        "none; minibatch: over each optimiser step's tokens; tokens: over all tokens in the loss",
    )
    target_kl: float | None = option(
        None, "end an update's epochs early once the mean KL to the acting policy exceeds this"
    )
    optimizer: Literal["adam", "adamw"] = option("adam", "adam or adamw")
    weight_decay: float = option(0.0, "weight decay (adamw)")
    adam_eps: float = option(1e-5, "Adam's epsilon")
    learning_rate: float = option(1e-3, "peak learning rate")
    learning_rate_end: float | None = option(
        None, "learning rate at total_steps (cosine decay); null: constant after warm-up"
    )
    warmup_optimizer_steps: int = option(0, "optimiser steps of linear warm-up")
    max_grad_norm: float = option(0.5, "gradient clipping by global norm")
    prefill_chunk: int = option(512, "tokens per chunk when keys and values are recomputed")

    def __post_init__(self) -> None:
        self._check_positive()
        steps, updates, full = (
            self.num_steps,
            self.updates_per_rollout,
            self.full_updates_per_rollout,
        )
        if steps % updates:
            below, above = steps - steps % updates, steps - steps % updates + updates
            near = f"{below} or {above}" if below else f"{above}"
            raise ConfigError(
                f"ppo.num_steps={steps} is not divisible by ppo.updates_per_rollout={updates}: "
                f"use num_steps={near}"
            )
        if full < 0 or (full and updates % full):
            raise ConfigError(
                f"ppo.full_updates_per_rollout={full} must be 0 or divide "
                f"ppo.updates_per_rollout={updates}"
            )
        if self.minibatches % self.grad_accumulation:
            raise ConfigError(
                f"ppo.minibatches={self.minibatches} is not divisible by "
                f"ppo.grad_accumulation={self.grad_accumulation}"
            )
        if self.shuffle_episodes and not self.refresh:
            raise ConfigError(
                "ppo.shuffle_episodes=true needs ppo.refresh=true (cached keys would keep their "
                "old places): set ppo.shuffle_episodes=false too"
            )

    def _check_positive(self) -> None:
        for key in (
            "num_steps",
            "updates_per_rollout",
            "epochs",
            "minibatches",
            "grad_accumulation",
            "prefill_chunk",
        ):
            if getattr(self, key) < 1:
                raise ConfigError(f"ppo.{key}={getattr(self, key)} must be at least 1")
        for key in ("gamma", "gae_lambda"):
            if not 0.0 <= getattr(self, key) <= 1.0:
                raise ConfigError(f"ppo.{key}={getattr(self, key)} must lie in [0, 1]")
        for key in ("clip", "clip_value", "target_kl", "learning_rate", "max_grad_norm"):
            value = getattr(self, key)
            if value is not None and value <= 0:
                raise ConfigError(f"ppo.{key}={value} must be positive")
        for key in ("warmup_optimizer_steps", "weight_decay", "value_coef", "entropy_coef"):
            if getattr(self, key) < 0:
                raise ConfigError(f"ppo.{key}={getattr(self, key)} must not be negative")
        if self.weight_decay and self.optimizer == "adam":
            raise ConfigError("ppo.weight_decay is AdamW's: set ppo.optimizer=adamw too")

    @property
    def segment(self) -> int:
        """Tokens per environment between two updates."""
        return self.num_steps // self.updates_per_rollout

    def is_full(self, update: int) -> bool:
        """Whether update 1..U of a rollout covers the whole rollout."""
        full = self.full_updates_per_rollout
        return full > 0 and update % (self.updates_per_rollout // full) == 0


@dataclass(frozen=True)
class TrainerConfig:
    """How long to train. Experiments fix environment steps; time is only a safety cap."""

    total_steps: int = option(1_000_000, "environment steps of all processes together")
    max_seconds: float | None = option(
        None, "stop cleanly, with a checkpoint, after so many seconds of this start; null: no cap"
    )
    max_worker_restarts: int = option(
        10,
        "how many workers that die or hang each process replaces by fresh ones, counted from this "
        "start; 0: the first one ends the training",
    )
    worker_timeout_s: float = option(
        300.0,
        "longest wait (seconds) for a worker, its start included; after that it counts as hung",
    )

    def __post_init__(self) -> None:
        if self.total_steps < 1:
            raise ConfigError(f"total_steps={self.total_steps} must be at least 1")
        if self.max_worker_restarts < 0:
            raise ConfigError(
                f"max_worker_restarts={self.max_worker_restarts} must not be negative"
            )
        if self.worker_timeout_s <= 0:
            raise ConfigError(f"worker_timeout_s={self.worker_timeout_s} must be positive")
        if self.max_seconds is not None and self.max_seconds <= 0:
            raise ConfigError(f"max_seconds={self.max_seconds} must be positive, or null")


@dataclass(frozen=True)
class TrainEvaluationConfig:
    """In-context evaluation while training, on held-out tasks, with its own random streams."""

    every_steps: int = option(0, "environment steps between evaluations; 0: none")
    final: bool = option(True, "evaluate once more at the end of training")
    settings: EvaluationConfig = option(EvaluationConfig, "how to evaluate")


@dataclass(frozen=True)
class LoggingConfig:
    """Where metrics go. `metrics.jsonl` is always written; the others mirror it."""

    progress: bool = option(True, "progress bar on a terminal, a line now and then in a log")
    log_every_s: float = option(15.0, "seconds between log lines when there is no terminal")
    figure_every_updates: int = option(
        100, "updates between redraws of figures/training.png; 0: only at the end"
    )
    tensorboard: bool = option(True, "mirror metrics to TensorBoard (run/tensorboard)")
    wandb: bool = option(False, "mirror metrics to Weights & Biases (extra: wandb)")
    wandb_project: str = option("embodied-icrl", "Weights & Biases project")


@dataclass(frozen=True)
class CheckpointConfig:
    """When to save. A checkpoint is also written at the end and on SIGINT, SIGTERM, SIGUSR1."""

    every_steps: int = option(500_000, "environment steps between checkpoints; 0: only at the end")
    keep: int = option(3, "how many of the newest checkpoints stay on disk; 0: all")
    inside_trials: bool = option(
        True,
        "save inside a trial too, with its tokens so far (pictures: gigabytes per process); false: "
        "saving and stopping wait for the end of the trial, as where environments can't be saved",
    )

    def __post_init__(self) -> None:
        if self.every_steps < 0 or self.keep < 0:
            raise ConfigError("every_steps and keep must not be negative")


@dataclass(frozen=True)
class TrainConfig:
    """Everything `embodied-icrl train` reads."""

    env: Any = option(doc="the environment: a config dataclass named by its _target_")
    name: str = option("train", "name of the experiment, written into results")
    run: str = option("runs/train", "run directory")
    seed: int = option(0, "seed of tasks, weights, actions and minibatches")
    resume: Literal["auto", "true", "false"] | bool = option(
        "auto", "auto: continue if the run exists; true: it must; false: it must not"
    )
    init_from: str | None = option(
        None, "run (or checkpoint) directory whose weights to start from"
    )
    debug: bool = option(False, "full tracebacks for usage errors")
    processes: int = option(1, "training processes on this machine, started with torchrun")
    device: str = option("auto", "auto | cpu | cuda (one GPU per process)")
    dtype: Literal["float32", "bfloat16"] = option(
        "float32", "bfloat16: autocast for the network; losses stay float32"
    )
    threads: int = option(1, "torch CPU threads per process; 0: torch's default")
    vector: VectorConfig = option(VectorConfig, "environments")
    policy: PolicyConfig = option(PolicyConfig, "the network")
    ppo: PPOConfig = option(PPOConfig, "the algorithm")
    trainer: TrainerConfig = option(TrainerConfig, "length of training")
    evaluation: TrainEvaluationConfig = option(TrainEvaluationConfig, "evaluation while training")
    logging: LoggingConfig = option(LoggingConfig, "metrics")
    checkpoint: CheckpointConfig = option(CheckpointConfig, "checkpoints")

    def __post_init__(self) -> None:
        if self.processes < 1:
            raise ConfigError(f"processes={self.processes} must be at least 1")
        if self.threads < 0:
            raise ConfigError(f"threads={self.threads} must be 0 (torch's default) or more")
        if self.ppo.minibatches > self.vector.num_envs:
            raise ConfigError(
                f"ppo.minibatches={self.ppo.minibatches} exceeds vector.num_envs="
                f"{self.vector.num_envs}: a minibatch holds whole environments"
            )
