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
from embodied_icrl.common.seeds import derived_seed
from embodied_icrl.envs.base import TrialVectorEnv
from embodied_icrl.envs.vector import make_envs
from embodied_icrl.evaluation.in_context import check_evaluation
from embodied_icrl.evaluation.plots import plot_training
from embodied_icrl.policy import Policy
from embodied_icrl.runs.checkpoint import (
    Checkpoint,
    find_checkpoint,
    has_checkpoint,
    load_checkpoint,
    save_checkpoint,
)
from embodied_icrl.runs.metrics import MetricsLog, read_metrics
from embodied_icrl.runs.run import CONFIG, Run, open_run
from embodied_icrl.training import state as saved_state
from embodied_icrl.training.config import TrainConfig
from embodied_icrl.training.distributed import Ranks, describe_devices, join, leave, local_device
from embodied_icrl.training.evaluation import (
    Evaluation,
    crossed,
    evaluation_due,
    is_evaluated,
)
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
            if ranks.is_main and (config.evaluation.every_steps or config.evaluation.final):
                # A mistake in it must show now, not after hours.
                check_evaluation(trainer.policy, config.env, config.evaluation.settings)
        except UserError:
            if ranks.is_main and not run.resumed:
                # Nothing has begun: the corrected command must not be refused as another run.
                (run.path / CONFIG).unlink(missing_ok=True)
            raise
        log = None
        if ranks.is_main:
            _say_devices(config, ranks)
            log = stack.enter_context(_metrics_log(trainer, run))
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
    differences = checkpoint.differences(ranks.world_size)
    if checkpoint.world_size == ranks.world_size:
        state = checkpoint.rank_state(ranks.rank)
        saved_state.load_rank(trainer, state)
        if state["device"] != ranks.device.type:
            differences.append(f"device was {state['device']!r}, now {ranks.device.type!r}")
    else:
        saved_state.begin_next_trial(trainer, _trials_begun(checkpoint, trainer))
    if ranks.is_main:
        print(f"resuming {run.path} from {checkpoint.name}", file=sys.stderr)
        for difference in differences:
            print(f"warning: {difference}: not bit-identical from here on", file=sys.stderr)


def _trials_begun(checkpoint: Checkpoint, trainer: Trainer) -> int:
    """Trials per environment after which this job, of another size, meets only new tasks."""
    begun = trainer.counters.trial + bool(trainer.counters.position)
    return -(-begun * checkpoint.world_size // trainer.ranks.world_size)


def _say_devices(config: TrainConfig, ranks: Ranks) -> None:
    line, warning = describe_devices(config.device, ranks)
    if config.logging.progress:
        print(line, file=sys.stderr)
    if warning is not None:
        print(f"warning: {warning}", file=sys.stderr)


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

    An update's row is written and its checkpoint saved before the evaluation that falls into it,
    whose results are then added to the row. So an evaluation that fails, or that a stop signal
    cuts, costs no training. The row tells the next start that it is left to do.
    """

    trainer: Trainer
    run: Run
    log: MetricsLog | None
    stopping: bool = field(default=False, init=False)
    signal: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.evaluation = Evaluation(self.trainer, self.run)

    def run_to_end(self) -> JobResult:
        """Train until `total_steps`, `max_seconds` or a stop signal; the last state is saved."""
        trainer, config = self.trainer, self.trainer.config
        counters = trainer.counters
        report = ProgressReport(
            config.trainer.total_steps,
            counters.step,
            enabled=config.logging.progress and trainer.ranks.is_main,
            log_every_s=config.logging.log_every_s,
        )
        started, save_due = time.monotonic(), False
        trainer.replacements.say = report.warn
        to_evaluate = self._take_up_row()
        with StopRequest() as request, report:
            while True:
                if to_evaluate:
                    to_evaluate = not self._evaluate(report, request)
                    if to_evaluate:
                        self._look_for_stop(request, started, report)
                        self._save()
                # What can't be saved inside a trial goes on to the end of it, so that the last
                # checkpoint has everything.
                if (trainer.finished or self.stopping) and trainer.can_checkpoint:
                    break
                trainer.restart_clock()
                before = counters.step
                self._write(trainer.update_once(), report)
                to_evaluate = evaluation_due(trainer, before)
                self._look_for_stop(request, started, report)
                save_due |= crossed(before, counters.step, config.checkpoint.every_steps)
                ending = trainer.finished or self.stopping
                if (save_due or ending) and trainer.can_checkpoint:
                    save_due = False
                    self._save()
            self._draw()
        finished = trainer.finished and not to_evaluate
        return JobResult(self.run.path, counters.step, finished, 0 if finished else self.signal)

    def _look_for_stop(self, request: StopRequest, started: float, report: ProgressReport) -> None:
        """Agree with the other ranks on whether to stop."""
        self.signal = self.trainer.ranks.any(request.pending())
        if not self.stopping and (self.signal or self._out_of_time(started)):
            self.stopping = True
            self._say_stopping(report)

    def _out_of_time(self, started: float) -> bool:
        limit = self.trainer.config.trainer.max_seconds
        late = limit is not None and time.monotonic() - started >= limit
        return bool(self.trainer.ranks.any(int(late)))

    def _say_stopping(self, report: ProgressReport) -> None:
        reason = f"signal {self.signal}" if self.signal else "trainer.max_seconds is over"
        wait = "" if self.trainer.can_checkpoint else " at the end of the running trial"
        report.say(f"{reason}: stopping with a checkpoint{wait}")

    def _take_up_row(self) -> bool:
        """Take from the newest row what happened after its checkpoint was saved.

        Returns:
            whether the evaluation that falls into its update is still to be made.
        """
        trainer, left, restarted = self.trainer, False, 0
        counters = trainer.counters
        rows = read_metrics(self.run.path)[-2:] if self.log is not None else []
        if rows and rows[-1]["update"] == counters.update:
            before = rows[0]["step"] if len(rows) == 2 else 0
            left = evaluation_due(trainer, before) and not is_evaluated(rows[-1])
            restarted = rows[-1].get("workers_restarted", 0)
        restarted = trainer.ranks.any(restarted)
        if restarted > counters.workers_restarted:  # the evaluation's, and those while saving
            counters.workers_restarted = restarted
            trainer.replacements.take_uncounted()
        return bool(trainer.ranks.any(int(left)))

    def _evaluate(self, report: ProgressReport, request: StopRequest) -> bool:
        """Evaluate on rank 0 while the others wait, and add the results to the newest row.

        Returns:
            False if a stop signal cut it, which it does only where a checkpoint can be saved.
        """
        trainer = self.trainer
        found: dict[str, Any] | None = {}
        if trainer.ranks.is_main:
            found = self.evaluation.make(lambda: trainer.can_checkpoint and request.pending() > 0)
        if trainer.ranks.any(int(found is None)):
            return False
        trainer.count_restarts()
        if self.log is not None and found:
            report.say(f"evaluation at step {trainer.counters.step:,}: {_text(found)}")
            self.log.amend(found | {"workers_restarted": trainer.counters.workers_restarted})
        return True

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


def _text(found: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{name.removeprefix('eval/')} {value:.2f}"
        for name, value in found.items()
        if value is not None
    )
