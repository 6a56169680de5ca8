"""How good one reward is: trained anew with several seeds, measured on many held-out episodes."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from embodied_icrl.common.errors import TrainingError
from embodied_icrl.reward_search.evaluation_child import evaluate_weights
from embodied_icrl.reward_search.jobs import weights_file
from embodied_icrl.reward_search.plans import final_plan
from embodied_icrl.reward_search.records import Candidate, FitnessPoint
from embodied_icrl.reward_search.rounds import Entry, Plan, Rounds
from embodied_icrl.reward_search.sandbox import Limits
from embodied_icrl.reward_search.search_config import SearchConfig
from embodied_icrl.reward_search.selection import select


@dataclass(frozen=True)
class Evaluation:
    """Fitness and success of the policies that a reward trained.

    Attributes:
        points: of the policy at the end of each training.
        env_steps: of all trainings.
    """

    points: tuple[FitnessPoint, ...]
    env_steps: int

    def to_json(self) -> dict[str, Any]:
        """Mean, 95% interval over the trainings (null with one), and the value of each."""
        success = [dataclasses.replace(point, mean=point.success) for point in self.points]
        return {
            "episodes": self.points[0].episodes,
            "env_steps": self.env_steps,
            "fitness": _summary(self.points),
            "success": _summary(success),
        }


def evaluate_reward(
    config: SearchConfig, candidate: Candidate, folder: Path, rounds: Rounds, episodes: int
) -> Evaluation:
    """Train with `config.final_seeds` seeds, finished ones looked up, and measure the policies.

    Args:
        folder: the trainings lie in `seed_K` there.
        episodes: per policy, none of which candidates were compared in.

    Raises:
        TrainingError: a training failed, or its policy can't be measured.
    """
    plan, entry = final_plan(config), Entry(candidate, folder)
    rounds.train([], plan, [entry], told=lambda candidate: None)
    if entry.candidate.status != "trained":
        raise TrainingError(f"{candidate.id}: {entry.candidate.reason}")
    limits = config.limits.evaluation(episodes)
    points = tuple(_measure(plan, entry, k, episodes, limits) for k in range(len(plan.seeds)))
    return Evaluation(points, entry.env_steps)


def _measure(plan: Plan, entry: Entry, k: int, episodes: int, limits: Limits) -> FitnessPoint:
    last = plan.rungs[-1]
    job = plan.job(entry, k, 0, last)
    points, reason, *_ = evaluate_weights(
        {last: str(weights_file(job, last))},
        task=job.task,
        algorithm=job.algorithm,
        hyperparameters=job.hyperparameters,
        episodes={last: episodes},
        phase=job.phase,
        task_paths=job.task_paths,
        limits=limits,
    )
    if reason is not None:
        raise TrainingError(f"{entry.candidate.id}, seed {k}: {reason}")
    return points[0]


def _summary(points: tuple[FitnessPoint, ...] | list[FitnessPoint]) -> dict[str, Any]:
    mean, low, high = select([[point] for point in points])
    return {"mean": mean, "low": low, "high": high, "per_seed": [point.mean for point in points]}
