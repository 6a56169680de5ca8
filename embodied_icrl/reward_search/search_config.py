"""What a person can set about a search: a frozen dataclass, documented for `--help`."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from embodied_icrl.common.config import option, to_dict
from embodied_icrl.common.errors import ConfigError
from embodied_icrl.manipulation.task import Budget, Task
from embodied_icrl.reward_search.jobs import TrainingLimits
from embodied_icrl.reward_search.proposers.base import ProposerConfig
from embodied_icrl.reward_search.proposers.terms import TermsConfig
from embodied_icrl.reward_search.racing import Racing
from embodied_icrl.reward_search.selection import Selection
from embodied_icrl.reward_search.task_code import import_root

# A key is free if it, or a group it lies in, is named here: changing it changes where and how a
# search is computed or watched, not what it finds.
FREE_KEYS = (
    "run", "resume", "workers", "launcher", "ray_address", "limits", "feedback_file", "terms_run",
    "video", "progress", "proposer.spending", "proposer.patience", "proposer.base_url",
    "proposer.key_variable", "proposer.answers_per_call", "proposer.strict",
)  # fmt: skip
GROWING_KEYS = ("iterations", "final_seeds")


@dataclass(frozen=True)
class BudgetChange:
    """What differs from a task's own budget; null: as the task says."""

    env_steps: int | None = option(None, "environment steps of one training")
    algorithm: Literal["ppo", "sac", "td3", "tqc"] | None = option(None, "ppo, sac, td3 or tqc")
    n_envs: int | None = option(None, "environments side by side in one training")
    hyperparameters: Mapping[str, Any] = option(
        {}, "of the algorithm, like quick.hyperparameters.gamma=0.98; over the task's own"
    )

    def applied(self, budget: Budget) -> Budget:
        """The task's budget with these changes; another algorithm has its own hyperparameters.

        Raises:
            ConfigError: what comes out is no budget.
        """
        changes: dict[str, Any] = {
            key: getattr(self, key)
            for key in ("env_steps", "algorithm", "n_envs")
            if getattr(self, key) is not None
        }
        same = self.algorithm in (None, budget.algorithm)
        own = budget.hyperparameters if same else {}
        return dataclasses.replace(
            budget, **changes, hyperparameters={**own, **self.hyperparameters}
        )


@dataclass(frozen=True)
class SearchConfig:
    """Everything that `embodied-icrl reward search` reads."""

    task: Task = option(doc="what to find a reward for")
    proposer: ProposerConfig = option(TermsConfig, "who writes the rewards")
    run: str | None = option(None, "the run directory; null: runs/reward_TASK_SEED")
    seed: int = option(0, "of everything that is random")
    resume: Literal["auto"] | bool = option(
        "auto", "auto: go on if the run exists; true: it must; false: it must not"
    )
    iterations: int = option(5, "rounds of asking and training (N)")
    samples: int = option(16, "rewards asked for in each (K)")
    attempts: int = option(2, "times that one sample is asked for until its code can be used")
    seeds: int = option(1, "trainings per candidate")
    selection: Selection = option(
        "mean_last", "fitness: mean of the last checkpoints, or the best checkpoint (Eureka's)"
    )
    racing: Racing = option(Racing, "how hopeless candidates are stopped early")
    checkpoints: int = option(10, "moments of a training at which fitness is measured")
    episodes: int = option(20, "episodes per measurement along a training")
    quick: BudgetChange = option(BudgetChange, "budget of the trainings that compare candidates")
    final_seeds: int = option(5, "trainings of the best and of the baselines at the end; 0: none")
    final_episodes: int = option(
        100, "held-out episodes per measurement that makes the fitness of a training at the end"
    )
    final_budget: Literal["full", "quick"] = option("full", "budget of the trainings at the end")
    full: BudgetChange = option(BudgetChange, "the full budget")
    workers: int = option(0, "trainings side by side; 0: one per core")
    launcher: Literal["local", "ray"] = option("local", "where candidates train")
    ray_address: str | None = option(None, "of an existing Ray cluster; null: one of its own")
    limits: TrainingLimits = option(TrainingLimits, "what one training may use")
    init: str | None = option(None, "file with the reward to begin from")
    feedback_file: str | None = option(
        None, "file with a person's words for the next iteration; read anew before each"
    )
    show_source: bool = option(False, "show the writer how the environment is built and read")
    baselines: bool = option(True, "train the task's human-written and sparse rewards too")
    terms_run: str | None = option(None, "a finished search with proposer=terms to compare with")
    components: Literal["sum", "free"] = option("free", "how components relate to the total")
    video: bool = option(True, "film the best and the human-written reward")
    progress: bool = option(True, "a table on a terminal, lines elsewhere")

    def __post_init__(self) -> None:
        least = {
            "iterations": 1, "samples": 1, "attempts": 1, "seeds": 1, "final_seeds": 0,
            "checkpoints": 1, "episodes": 1, "final_episodes": 1, "seed": 0, "workers": 0,
        }  # fmt: skip
        for key, minimum in least.items():
            if getattr(self, key) < minimum:
                raise ConfigError(f"{key}={getattr(self, key)} must be at least {minimum}")

    @property
    def quick_budget(self) -> Budget:
        """Of a training that compares candidates."""
        return self.quick.applied(self.task.quick)

    @property
    def last_budget(self) -> Budget:
        """Of a training at the end."""
        if self.final_budget == "quick":
            return self.quick_budget
        return self.full.applied(self.task.full)

    @property
    def folder(self) -> Path:
        """The run directory."""
        return Path(self.run or f"runs/reward_{self.task.name}_{self.seed}")

    @property
    def worker_count(self) -> int:
        """Trainings side by side."""
        return self.workers or len(os.sched_getaffinity(0))


def task_node(task: Task) -> dict[str, Any]:
    """The task as the node from which `build` makes it again in another process."""
    return to_dict(task, target=True)


def task_file(task: Task) -> Path | None:
    """The file of a task's module; None for the package's own tasks."""
    name = type(task).__module__
    package = __name__.partition(".")[0]
    file = getattr(sys.modules[name], "__file__", None)
    return None if name.partition(".")[0] == package or file is None else Path(file).resolve()


def task_paths(task: Task) -> tuple[str, ...]:
    """Directories outside the package where a task's module lies; none for the package's own."""
    file = task_file(task)
    if file is None:
        return ()
    return (str(import_root(type(task).__module__, file)),)
