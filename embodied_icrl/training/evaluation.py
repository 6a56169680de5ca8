"""The in-context evaluations that fall into a training: when they are due, how they are made."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from embodied_icrl.common.files import atomic_write_json
from embodied_icrl.envs.worker_handle import EnvWorkerLostError
from embodied_icrl.evaluation.in_context import EvaluationResult, References, evaluate_in_context
from embodied_icrl.evaluation.trials import StepHook
from embodied_icrl.runs.run import Run
from embodied_icrl.training.trainer import Trainer

_PREFIX = "eval/"


def evaluation_due(trainer: Trainer, before: int) -> bool:
    """Whether one falls into the newest update, which began at step `before`."""
    settings = trainer.config.evaluation
    if trainer.finished:
        return settings.final and trainer.can_checkpoint
    return crossed(before, trainer.counters.step, settings.every_steps)


def is_evaluated(row: Mapping[str, Any]) -> bool:
    """Whether a row of metrics has the results of an evaluation."""
    return any(key.startswith(_PREFIX) for key in row)


def crossed(before: int, after: int, every: int) -> bool:
    """Whether a multiple of `every` lies in (before, after]; 0 has none."""
    return every > 0 and before // every != after // every


class _Cut(Exception):
    """A stop request ends an evaluation before its end."""


class Evaluation:
    """Evaluates the policy as it is now.

    Args:
        trainer: whose policy it is.
        run: gets a file of every evaluation.
    """

    def __init__(self, trainer: Trainer, run: Run) -> None:
        self.trainer = trainer
        self.run = run
        self.references: References | None = None  # the same every time

    def make(self, stop: Callable[[], bool]) -> dict[str, Any] | None:
        """Evaluate and write the file.

        Args:
            stop: asked before it begins and after every step, whether to give it up.

        Returns:
            entries for the row of metrics; None if it was given up.
        """

        def heed(*_: int) -> None:
            if stop():
                raise _Cut

        try:
            heed()
            result = self._result(heed)
        except _Cut:
            return None
        self.references = result.references
        path = self.run.folder("evaluation") / f"training-step_{self.trainer.counters.step}.json"
        atomic_write_json(path, result.summary())
        return {_PREFIX + name: value for name, value in result.first_and_last().items()}

    def _result(self, on_step: StepHook) -> EvaluationResult:
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
                    on_step=on_step,
                )
            except EnvWorkerLostError as error:
                trainer.replacements.allow(error, "the evaluation begins again")
