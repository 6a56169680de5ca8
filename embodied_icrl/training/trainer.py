"""The training loop: collect a segment, update, shuffle, refresh; evaluate, log, save."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from embodied_icrl.common.seeds import derived_rng, derived_seed
from embodied_icrl.envs.base import TrialVectorEnv
from embodied_icrl.envs.process import ProcessTrialEnv
from embodied_icrl.envs.worker_handle import EnvWorkerLostError
from embodied_icrl.policy import Policy
from embodied_icrl.training.config import TrainConfig
from embodied_icrl.training.distributed import Ranks
from embodied_icrl.training.replacements import Replacements
from embodied_icrl.training.rollout import Collector, Rollout
from embodied_icrl.training.update import Bootstrap, Updater

EPISODE_METRICS = tuple(
    f"{name}_{which}"
    for name in ("return", "length", "success", "spl")
    for which in ("first", "last")
)


@dataclass
class Counters:
    """Where training stands; the same on every rank. Saved with each checkpoint."""

    update: int = 0
    step: int = 0  # environment steps whose action took effect, all ranks together
    tokens: int = 0  # tokens collected, all ranks together
    trial: int = 0  # trials that are over, per environment
    position: int = 0  # updates done in the running rollout
    wall_s: float = 0.0
    workers_restarted: int = 0  # fresh workers in the place of lost ones, all ranks together
    env_steps_lost: int = 0  # steps in trials that a lost worker cut, of no update; not in `step`
    episode_metrics: dict[str, float | None] = field(
        default_factory=lambda: dict.fromkeys(EPISODE_METRICS)
    )


class Trainer:
    """One process of a training job: its environments, its rollout, the shared policy.

    `update_once` makes one policy update and returns its metrics. What happens between updates
    (logging, evaluation, checkpoints, the end) is the business of `embodied_icrl.training.job`.
    """

    def __init__(
        self, config: TrainConfig, policy: Policy, envs: TrialVectorEnv, ranks: Ranks
    ) -> None:
        self.config = config
        self.policy = policy
        self.envs = envs
        self.ranks = ranks
        self.counters = Counters()
        self.replacements = Replacements(config.trainer.max_worker_restarts, ranks)
        if isinstance(envs, ProcessTrialEnv):
            envs.on_loss = self._go_on_without
        self._clock = self._origin = time.monotonic()
        self.autocast = torch.bfloat16 if config.dtype == "bfloat16" else None
        self.minibatch_rng = np.random.default_rng()
        self.shuffle_rng = np.random.default_rng()
        self.act_generator = torch.Generator(device=ranks.device)
        self.dropout_generator = torch.Generator(device=ranks.device)
        self.seed_streams("from the start")
        ppo = config.ppo
        self.rollout = Rollout(policy, envs.num_envs, ppo.num_steps)
        # Never a ring: detached updates read the keys of the whole trial, and the bootstrap steps
        # back by one.
        self.cache = policy.new_cache(envs.num_envs, ppo.num_steps + 1, ring=False)
        self.collector = Collector(envs, policy, self.rollout, self.cache, self.act_generator)
        self.updater = Updater(
            policy,
            ppo,
            ranks,
            rng=self.minibatch_rng,
            dropout=self.dropout_generator,
            autocast=self.autocast,
        )

    def seed_streams(self, name: str) -> None:
        """Start this rank's random streams; `name` tells apart the parts of a run."""
        seed, rank = self.config.seed, self.ranks.rank
        for rng, use in ((self.minibatch_rng, "minibatches"), (self.shuffle_rng, "shuffle")):
            rng.bit_generator.state = derived_rng(seed, use, rank, name).bit_generator.state
        self.seed_generators(name)

    def seed_generators(self, name: str) -> None:
        """The part of `seed_streams` that lives on the device."""
        seed, rank = self.config.seed, self.ranks.rank
        for generator, use in (
            (self.act_generator, "actions"),
            (self.dropout_generator, "dropout"),
        ):
            generator.manual_seed(derived_seed(seed, use, rank, name))

    def update_once(self) -> dict[str, Any]:
        """Collect one segment and update the policy on it; returns a row for metrics.jsonl."""
        counters, ppo = self.counters, self.config.ppo
        before, progress = counters.step, self.progress()
        with self._autocast():
            began = self._collect_segment()
            bootstrap = self._bootstrap()
        collected = time.monotonic()
        counters.position += 1
        full = ppo.is_full(counters.position)
        metrics = self.updater.update(
            self.rollout, self.cache, bootstrap, full=full, progress=progress
        )
        updated = time.monotonic()
        if counters.position < ppo.updates_per_rollout:
            self._shuffle_and_refresh()
        else:
            self._end_trial()
        counters.update += 1
        self.count_restarts()
        now = time.monotonic()
        elapsed, self._clock = now - self._clock, now
        counters.wall_s = now - self._origin
        return {
            "update": counters.update,
            "step": counters.step,
            "wall_s": round(counters.wall_s, 3),
            "steps_per_s": round((counters.step - before) / max(elapsed, 1e-9), 1),
            **counters.episode_metrics,
            **metrics,
            "full_update": full,
            "trial": counters.trial,
            "tokens": counters.tokens,
            "workers_restarted": counters.workers_restarted,
            "env_steps_lost": counters.env_steps_lost,
            "time_collect_s": round(collected - began, 4),
            "time_update_s": round(updated - collected, 4),
            "time_refresh_s": round(now - updated, 4),
        }

    def progress(self) -> float:
        """Share of the training done, 0 to 1."""
        return min(1.0, self.counters.step / max(1, self.config.trainer.total_steps))

    @property
    def finished(self) -> bool:
        return self.counters.step >= self.config.trainer.total_steps

    @property
    def can_checkpoint(self) -> bool:
        """Inside a trial only if that is wanted and the environments can save their state."""
        inside = self.config.checkpoint.inside_trials and self.envs.can_save_state
        return self.counters.position == 0 or inside

    def restart_clock(self) -> None:
        """Leave the time since the last update (an evaluation, a checkpoint) out of steps/s."""
        self._clock = time.monotonic()

    def restart_wall_clock(self) -> None:
        """Count on from `counters.wall_s`, after a resume."""
        self._origin = time.monotonic() - self.counters.wall_s
        self.restart_clock()

    def count_restarts(self) -> None:
        """Bring `counters.workers_restarted` up to date, on all ranks."""
        count = torch.tensor(self.replacements.take_uncounted(), device=self.ranks.device)
        self.counters.workers_restarted += int(self.ranks.sum(count))

    # -- parts of an update -------------------------------------------------------------------

    def _collect_segment(self) -> float:
        """Collect a segment that has something to learn from; returns when that began."""
        while True:
            if self.counters.position == 0:
                self.collector.start_trial(self._task_ids())
            began = time.monotonic()
            self.collector.collect(self.config.ppo.segment)
            if self._count_steps():
                return began
            self._end_trial()  # every environment of the job is lost: begin the next trial at once

    def _go_on_without(self, error: EnvWorkerLostError) -> None:
        dropped = self.collector.drop(error.rows)
        effect = (
            "its environments sit out the rest of this rollout" if dropped else "nothing is lost"
        )
        self.replacements.allow(error, effect)

    def _autocast(self) -> torch.autocast:
        return torch.autocast(
            self.ranks.device.type, self.autocast, enabled=self.autocast is not None
        )

    def _task_ids(self) -> np.ndarray:
        """The tasks of this rank's next trial, int64 [env]; no task comes twice in a job."""
        n = self.envs.num_envs
        first = self.counters.trial * self.ranks.world_size * n + self.ranks.rank * n
        return np.arange(first, first + n, dtype=np.int64)

    def _bootstrap(self) -> Bootstrap:
        value = self.collector.bootstrap()
        return Bootstrap(
            value.float().cpu().numpy(),
            self.collector.stream.terminal.copy(),
            self.collector.terminated,
        )

    def _count_steps(self) -> int:
        """Count the newest segment, of all ranks; returns its tokens that can be learned from."""
        counters, rollout, segment = self.counters, self.rollout, self.config.ppo.segment
        newest = rollout.batch.terminal[:, rollout.length - segment : rollout.length]
        steps, kept = (~newest).sum(1), ~rollout.lost
        counts = torch.stack([(steps * kept).sum(), segment * kept.sum(), (steps * ~kept).sum()])
        taken, tokens, lost = self.ranks.sum(counts).tolist()
        counters.step += taken
        counters.tokens += tokens
        counters.env_steps_lost += lost
        return int(tokens)

    def _shuffle_and_refresh(self) -> None:
        """Bring the context up to date with the new weights (and mix the order of old episodes)."""
        ppo = self.config.ppo
        if ppo.shuffle_episodes:
            self.rollout.shuffle_episodes(self.shuffle_rng)
        if ppo.refresh:
            self.rebuild_cache(store_values=True)

    def rebuild_cache(self, *, store_values: bool) -> None:
        """Recompute keys and values of the whole context, and the value estimates if asked."""
        rollout = self.rollout
        self.cache.reset()
        with self._autocast():
            values = self.policy.prefill(
                rollout.tokens(), self.cache, chunk=self.config.ppo.prefill_chunk
            )
        if store_values:
            rollout.value[:, : rollout.length] = values

    def _end_trial(self) -> None:
        counters = self.counters
        counters.trial += 1
        counters.position = 0
        local = self.collector.episodes.first_and_last(self.rollout.lost.tolist())
        pairs = [local.get(name, (0.0, 0)) for name in EPISODE_METRICS]
        table = torch.tensor(pairs, dtype=torch.float64, device=self.ranks.device)
        for name, (total, count) in zip(
            EPISODE_METRICS, self.ranks.sum(table).tolist(), strict=True
        ):
            if count:
                counters.episode_metrics[name] = total / count
