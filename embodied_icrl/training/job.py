"""A training job: run, environments, policy and trainer, and what happens between updates."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from embodied_icrl.common.config import build, to_dict
from embodied_icrl.common.errors import UserError
from embodied_icrl.common.files import atomic_write_json
from embodied_icrl.common.seeds import derived_seed
from embodied_icrl.envs.base import TrialVectorEnv
from embodied_icrl.envs.vector import make_envs
from embodied_icrl.envs.worker_handle import EnvWorkerLostError
from embodied_icrl.evaluation.in_context import (
    EvaluationResult,
    References,
    evaluate_in_context,
)
from embodied_icrl.evaluation.plots import plot_training
from embodied_icrl.policy import Policy
from embodied_icrl.runs.checkpoint import (
    Checkpoint,
    find_checkpoint,
    has_checkpoint,
    load_checkpoint,
    save_checkpoint,
)
from embodied_icrl.runs.metrics import MetricsLog
from embodied_icrl.runs.run import CONFIG, Run, open_run
from embodied_icrl.training import state as saved_state
from embodied_icrl.training.config import TrainConfig
from embodied_icrl.training.distributed import Ranks, join, leave, local_device
from embodied_icrl.training.initial_weights import load_weights
from embodied_icrl.training.progress import ProgressReport
from embodied_icrl.training.signals import StopRequest
from embodied_icrl.training.trainer import Trainer


@dataclass(frozen=True)
class JobResult:
    """How a job ended.

    Attributes:
        run: its run directory.
        step: environment steps done.
        finished: `total_steps` were reached.
        signal: number of the signal that stopped it; 0: none.
    """

    run: Path
    step: int
    finished: bool
    signal: int


def train(config: TrainConfig) -> JobResult:
    """Train, or go on training, in the run directory `config.run`.

    Every process of the job calls this with the same config; torchrun's environment variables say
    which is which.

    Raises:
        ConfigError, RunError: with one sentence that says what to change.
    """
    if config.threads:
        torch.set_num_threads(config.threads)
    ranks = join(local_device(config.device))
    with contextlib.ExitStack() as stack:
        run = _open(config, ranks)
        stack.callback(run.close)
        try:
            envs = _make_envs(config, ranks)
            stack.callback(envs.close)
            trainer = Trainer(config, build_policy(config, envs, ranks.device), envs, ranks)
            _restore(trainer, run)
        except UserError:
            if ranks.is_main and not run.resumed:
                # Nothing has begun: the corrected command must not be refused as another run.
                (run.path / CONFIG).unlink(missing_ok=True)
            raise
        log = stack.enter_context(_metrics_log(trainer, run)) if ranks.is_main else None
        result = Job(trainer, run, log).run_to_end()
    # Only after success: leaving waits for the others, who may wait for this one.
    leave()
    return result


def build_policy(config: TrainConfig, envs: TrialVectorEnv, device: torch.device) -> Policy:
    """A policy whose weights depend on the seed only."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derived_seed(config.seed, "weights"))
        policy = Policy(
            config.policy,
            envs.single_observation_space,
            envs.single_action_space,
            envs.max_episode_steps,
        )
    return policy.to(device)


def _open(config: TrainConfig, ranks: Ranks) -> Run:
    resume = {"true": True, "false": False}.get(str(config.resume).lower(), "auto")
    return open_run(
        config.run,
        to_dict(config),
        resume=resume,  # type: ignore[arg-type]
        fill_defaults=lambda stored: to_dict(build(stored, TrainConfig)),
        rank=ranks.rank,
        barrier=ranks.barrier,
    )


def _make_envs(config: TrainConfig, ranks: Ranks) -> TrialVectorEnv:
    n = config.vector.num_envs
    return make_envs(
        config.env,
        n,
        split="train",
        seed=config.seed,
        first_index=ranks.rank * n,
        total_envs=ranks.world_size * n,
        workers=config.vector.workers,
        timeout_s=config.trainer.worker_timeout_s,
    )


def _restore(trainer: Trainer, run: Run) -> None:
    """Go on from the run's newest complete checkpoint; if it has none, begin (`init_from`)."""
    ranks = trainer.ranks
    if not (run.resumed and has_checkpoint(run.path)):
        if trainer.config.init_from is not None:
            note = load_weights(trainer.policy, trainer.config.init_from)
            if note and ranks.is_main:
                print(note, file=sys.stderr)
        ranks.broadcast(trainer.policy.state_dict().values())
        return
    checkpoint = load_checkpoint(find_checkpoint(run.path))
    tensors = {name: checkpoint.tensors(name) for name in ("policy", "optimizer")}
    saved_state.load_shared(trainer, tensors, checkpoint.state)
    if ranks.is_main:
        print(f"resuming {run.path} from {checkpoint.name}", file=sys.stderr)
        for difference in checkpoint.differences(ranks.world_size):
            print(f"warning: {difference}: not bit-identical from here on", file=sys.stderr)
    if checkpoint.world_size == ranks.world_size:
        saved_state.load_rank(trainer, checkpoint.rank_state(ranks.rank))
    else:
        saved_state.begin_next_trial(trainer, _trials_begun(checkpoint, trainer))


def _trials_begun(checkpoint: Checkpoint, trainer: Trainer) -> int:
    """Trials per environment after which this job, of another size, meets only new tasks."""
    begun = trainer.counters.trial + bool(trainer.counters.position)
    return -(-begun * checkpoint.world_size // trainer.ranks.world_size)


def _metrics_log(trainer: Trainer, run: Run) -> MetricsLog:
    logging = trainer.config.logging
    log = MetricsLog(
        run,
        tensorboard=logging.tensorboard,
        wandb_project=logging.wandb_project if logging.wandb else None,
    )
    log.truncate(trainer.counters.update)
    return log


@dataclass
class Job:
    """The loop around the trainer: metrics, figures, evaluations, checkpoints, and when to stop.

    Everything but `max_seconds` and stop signals goes by environment steps, never by the clock.
    """

    trainer: Trainer
    run: Run
    log: MetricsLog | None
    references: References | None = field(default=None)

    def run_to_end(self) -> JobResult:
        """Train until `total_steps`, `max_seconds` or a stop signal; the last state is saved."""
        trainer, config = self.trainer, self.trainer.config
        counters, ranks = trainer.counters, trainer.ranks
        report = ProgressReport(
            config.trainer.total_steps,
            counters.step,
            enabled=config.logging.progress and ranks.is_main,
            log_every_s=config.logging.log_every_s,
        )
        started, save_due, stopping, signal = time.monotonic(), False, False, 0
        trainer.replacements.say = report.warn
        with StopRequest() as request, report:
            # Environments that can't save their state go on to the end of their trial, so that
            # the last checkpoint has everything.
            while not ((trainer.finished or stopping) and trainer.can_checkpoint):
                before = counters.step
                row = trainer.update_once()
                signal = ranks.any(request.pending())
                if not stopping and (signal or self._out_of_time(started)):
                    stopping = True
                    self._say_stopping(report, signal)
                if self._evaluation_due(before):
                    row |= self._evaluate(report)
                self._write(row, report)
                save_due |= _crossed(before, counters.step, config.checkpoint.every_steps)
                ending = trainer.finished or stopping
                if (save_due or ending) and trainer.can_checkpoint:
                    save_due = False
                    self._save()
                trainer.restart_clock()
            self._draw()
        finished = trainer.finished
        return JobResult(self.run.path, counters.step, finished, 0 if finished else signal)

    def _out_of_time(self, started: float) -> bool:
        limit = self.trainer.config.trainer.max_seconds
        late = limit is not None and time.monotonic() - started >= limit
        return bool(self.trainer.ranks.any(int(late)))

    def _say_stopping(self, report: ProgressReport, signal: int) -> None:
        reason = f"signal {signal}" if signal else "trainer.max_seconds is over"
        wait = "" if self.trainer.can_checkpoint else " at the end of the running trial"
        report.say(f"{reason}: stopping with a checkpoint{wait}")

    def _evaluation_due(self, before: int) -> bool:
        settings = self.trainer.config.evaluation
        if self.trainer.finished:
            return settings.final and self.trainer.can_checkpoint
        return _crossed(before, self.trainer.counters.step, settings.every_steps)

    def _evaluate(self, report: ProgressReport) -> dict[str, Any]:
        """Evaluate on rank 0 while the others wait; returns entries for the metrics row."""
        found: dict[str, Any] = {}
        trainer = self.trainer
        if trainer.ranks.is_main:
            step = trainer.counters.step
            result = self._evaluation_result()
            self.references = result.references
            folder = self.run.folder("evaluation")
            atomic_write_json(folder / f"training-step_{step}.json", result.summary())
            found = {f"eval/{name}": value for name, value in result.first_and_last().items()}
            report.say(f"evaluation at step {step:,}: {_text(found)}")
        trainer.ranks.barrier()
        trainer.count_restarts()
        return found | {"workers_restarted": trainer.counters.workers_restarted}

    def _evaluation_result(self) -> EvaluationResult:
        """Evaluate, and again from its beginning when a worker is lost: the result is the same."""
        trainer, config = self.trainer, self.trainer.config
        while True:
            try:
                return evaluate_in_context(
                    trainer.policy,
                    config.env,
                    config.evaluation.settings,
                    references=self.references,
                    trained_steps=config.ppo.num_steps,
                    labels={
                        "experiment": config.name,
                        "checkpoint": f"step_{trainer.counters.step}",
                    },
                )
            except EnvWorkerLostError as error:
                trainer.replacements.allow(error, "the evaluation begins again")

    def _write(self, row: Mapping[str, Any], report: ProgressReport) -> None:
        report.update(row["step"], row["steps_per_s"], row["return_first"], row["return_last"])
        if self.log is None:
            return
        self.log.write(row)
        every = self.trainer.config.logging.figure_every_updates
        if every and row["update"] % every == 0:
            self._draw()

    def _draw(self) -> None:
        """Bring figures/training.png up to date."""
        if self.log is not None:
            plot_training(self.run.metrics, self.run.folder("figures") / "training.png")

    def _save(self) -> None:
        trainer = self.trainer
        save_checkpoint(
            self.run,
            trainer.counters.step,
            tensors=saved_state.shared_tensors(trainer),
            state=saved_state.shared_state(trainer),
            rank_state=saved_state.rank_state(trainer),
            policy=trainer.policy.describe(),
            rank=trainer.ranks.rank,
            world_size=trainer.ranks.world_size,
            barrier=trainer.ranks.barrier,
            keep=trainer.config.checkpoint.keep,
        )


def _crossed(before: int, after: int, every: int) -> bool:
    """Whether a multiple of `every` lies in (before, after]."""
    return every > 0 and before // every != after // every


def _text(found: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{name.removeprefix('eval/')} {value:.2f}"
        for name, value in found.items()
        if value is not None
    )
