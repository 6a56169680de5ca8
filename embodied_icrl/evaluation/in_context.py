"""Evaluation in context: how well does each next episode of a trial go, on held-out tasks?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from embodied_icrl.common.config import option
from embodied_icrl.common.errors import ConfigError
from embodied_icrl.envs.base import TrialVectorEnv
from embodied_icrl.envs.vector import EnvConfig, make_envs
from embodied_icrl.evaluation.actors import OracleActor, PolicyActor, RandomActor, check_fit
from embodied_icrl.evaluation.progress import EvaluationProgress
from embodied_icrl.evaluation.statistics import summarise_metrics, summarise_regret
from embodied_icrl.evaluation.trials import Actor, StepHook, TrialLength, TrialTable, run_trials
from embodied_icrl.policy import Policy

FORMAT = 1
DEFAULT_EPISODES = 10

References = dict[str, dict[str, float] | None]


@dataclass(frozen=True)
class EvaluationConfig:
    """How a policy is evaluated in context."""

    split: str = option(
        "test", "tasks to run: test (held out), train, or validation where the environment has it"
    )
    n_trials: int = option(200, "number of trials; trial i runs task i of the split")
    n_episodes: int | None = option(
        None, "episodes per trial, each run to its end; null: 10, or no limit if n_steps is given"
    )
    n_steps: int | None = option(
        None, "for very long trials: no episode starts at this token of the trial or later"
    )
    context: Literal["full", "cleared", "shuffled"] = option(
        "full",
        "the agent's memory: full, cleared (emptied at every episode start), "
        "shuffled (earlier episodes in another order)",
    )
    n_demos: int = option(0, "first episodes in which the oracle acts and the agent watches")
    deterministic: bool = option(False, "take the most likely action instead of sampling")
    seed: int = option(0, "of tasks, sampled actions and intervals")
    num_envs: int = option(64, "trials that run side by side (does not change the tasks)")
    workers: int = option(0, "worker processes that step the environments; 0: in this process")
    references: bool = option(
        True, "run a random policy, the environment's baselines and the oracle on the same tasks"
    )
    reference_trials: int | None = option(None, "trials for the references; null: n_trials")

    def __post_init__(self) -> None:
        for key in ("n_trials", "num_envs", "n_episodes", "n_steps", "reference_trials"):
            value = getattr(self, key)
            if value is not None and value < 1:
                raise ConfigError(f"{key}={value} must be at least 1")
        if self.workers < 0 or self.n_demos < 0:
            raise ConfigError("workers and n_demos must not be negative")
        episodes = self.length.n_episodes
        if episodes is not None and self.n_demos >= episodes:
            raise ConfigError(
                f"n_demos={self.n_demos} leaves the agent none of n_episodes={episodes} episodes"
            )

    @property
    def length(self) -> TrialLength:
        """When a trial is over."""
        if self.n_episodes is None and self.n_steps is None:
            return TrialLength(DEFAULT_EPISODES)
        return TrialLength(self.n_episodes, self.n_steps)


@dataclass(frozen=True)
class EvaluationResult:
    """What an evaluation found.

    ``table`` holds the episodes, `summary` what the JSON file says of them. ``trained_steps`` is
    the length of the trials in training (tokens), None if it isn't known; ``labels`` are further
    entries of the summary, such as experiment and checkpoint. ``privileged``: the policy read a
    shaped reward, see `PolicyActor`.
    """

    config: EvaluationConfig
    table: TrialTable
    references: References
    trained_steps: int | None = None
    labels: Mapping[str, Any] = field(default_factory=dict)
    privileged: bool = False

    @property
    def longer_than_training(self) -> bool | None:
        """Whether a trial had more tokens than the trials in training."""
        if self.trained_steps is None:
            return None
        return bool(self.table.tokens.max() > self.trained_steps)

    def summary(self) -> dict[str, Any]:
        """The evaluation as JSON values; the format that the README documents."""
        config, table = self.config, self.table
        regret = None
        if table.best_return is not None:
            regret = summarise_regret(
                table.metrics["return"],
                table.best_return,
                table.start_step,
                n_demos=config.n_demos,
                seed=config.seed,
            )
        return {
            "format": FORMAT,
            "experiment": None,
            "checkpoint": None,
            **self.labels,
            "split": config.split,
            "n_trials": config.n_trials,
            "n_episodes": config.length.n_episodes,
            "n_steps": config.n_steps,
            "context": config.context,
            "n_demos": config.n_demos,
            "deterministic": config.deterministic,
            "seed": config.seed,
            "trial_steps": int(table.tokens.max()),
            "trained_steps": self.trained_steps,
            "longer_than_training": self.longer_than_training,
            "privileged": self.privileged,
            **summarise_metrics(
                table.metrics, table.start_step, n_demos=config.n_demos, seed=config.seed
            ),
            "regret": regret,
            "references": self.references,
        }

    def first_and_last(self) -> dict[str, float | None]:
        """Means of the agent's first and of the last episode: ``return_first``, ``return_last``."""
        curves = self.summary()["metrics"]
        means: dict[str, float | None] = {}
        for name, curve in curves.items():
            means[f"{name}_first"] = curve["mean"][min(self.config.n_demos, len(curve["mean"]) - 1)]
            means[f"{name}_last"] = curve["mean"][-1]
        return means


def evaluate_in_context(
    policy: Policy,
    env_config: EnvConfig,
    config: EvaluationConfig,
    *,
    references: References | None = None,
    trained_steps: int | None = None,
    labels: Mapping[str, Any] | None = None,
    progress: bool = False,
    on_step: StepHook | None = None,
) -> EvaluationResult:
    """Runs trials of the split's tasks and writes down every episode.

    The policy is left as it was (weights, training mode) and no global random number is drawn, so
    that training goes on after an evaluation as if there had been none. Tasks, sampled actions
    and shuffles depend on the seed and the number of the trial, not on ``num_envs``: the results
    for another ``num_envs`` differ only where rounding tips a decision.

    Args:
        references: as a former evaluation of the same tasks returned them, to save the time.
        trained_steps: tokens of the trials in training.
        labels: further entries of the summary.
        progress: show a bar on standard error.
        on_step: hears of newly recorded steps and episodes, as `run_trials` tells them; what it
            raises ends the evaluation.

    Raises:
        ConfigError: the policy doesn't fit the environment, or the environment has no oracle for
            the demonstrations.
    """
    trials = np.arange(config.n_trials, dtype=np.int64)
    env = _make(env_config, config, config.n_trials)
    try:
        _check(policy, env, config)
        capacity = config.length.capacity(env.max_episode_steps)
        with PolicyActor(
            policy,
            env,
            capacity,
            context=config.context,
            n_demos=config.n_demos,
            deterministic=config.deterministic,
            seed=config.seed,
        ) as actor:
            title = f"memory {config.context}"
            table = _run(env, actor, trials, config, title, progress, on_step)
    finally:
        env.close()
    if references is None:
        references = {}
        if config.references:
            references = measure_references(env_config, config, progress=progress, on_step=on_step)
    references = {"random": None, "oracle": None, **references}
    return EvaluationResult(
        config, table, references, trained_steps, dict(labels or {}), actor.privileged
    )


def check_evaluation(policy: Policy, env_config: EnvConfig, config: EvaluationConfig) -> None:
    """Meet what an evaluation will ask of the environment, in one trial that takes no step.

    Raises:
        Whatever the evaluation would: ConfigError for a split that isn't there, an error of the
        environment's own code.
    """
    env = _make(env_config, config, 1)
    try:
        _check(policy, env, config)
        env.reset(options={"new_trial": True, "task_ids": np.zeros(1, dtype=np.int64)})
        if env.has_oracle:
            env.optimal_return()
            env.oracle_action()
    finally:
        env.close()


def measure_references(
    env_config: EnvConfig,
    config: EvaluationConfig,
    *,
    progress: bool = False,
    on_step: StepHook | None = None,
) -> References:
    """Mean of each metric over the episodes of a random policy, of the environment's own baselines
    (those that its config's `baselines(num_envs)` makes, if it has that) and of the oracle.

    All run the tasks of the evaluation, with the same number of episodes. The oracle's entry is
    None where the environment has none.
    """
    count = config.n_trials if config.reference_trials is None else config.reference_trials
    trials = np.arange(min(count, config.n_trials), dtype=np.int64)
    means: References = {"random": None, "oracle": None}
    env = _make(env_config, config, trials.size)
    try:
        actors: dict[str, Actor] = {"random": RandomActor(env, config.seed)}
        # Some environments bring players of their own.
        actors |= getattr(env_config, "baselines", lambda _: {})(env.num_envs)
        if env.has_oracle:
            actors["oracle"] = OracleActor(env)
        for name, actor in actors.items():
            table = _run(env, actor, trials, config, name, progress, on_step)
            means[name] = {
                metric: float(values[np.isfinite(values)].mean())
                for metric, values in table.metrics.items()
            }
    finally:
        env.close()
    return means


def _check(policy: Policy, env: TrialVectorEnv, config: EvaluationConfig) -> None:
    check_fit(policy, env)
    if config.n_demos and not env.has_oracle:
        raise ConfigError("n_demos needs an oracle, and this environment has none: n_demos=0")


def _make(env_config: EnvConfig, config: EvaluationConfig, trials: int) -> TrialVectorEnv:
    """As many environments as make all batches about equally large."""
    batches = -(-trials // config.num_envs)
    num_envs = -(-trials // batches)
    return make_envs(
        env_config,
        num_envs,
        split=config.split,
        seed=config.seed,
        workers=min(config.workers, num_envs),  # few trials leave some workers nothing to do
    )


def _run(
    env: TrialVectorEnv,
    actor: Actor,
    trials: np.ndarray,
    config: EvaluationConfig,
    title: str,
    progress: bool,
    on_step: StepHook | None,
) -> TrialTable:
    episodes = config.length.n_episodes
    total = None if episodes is None else episodes * trials.size

    def advance(steps: int, episodes: int) -> None:
        bar.advance(steps, episodes)
        if on_step is not None:
            on_step(steps, episodes)

    with EvaluationProgress(title, total, shown=progress) as bar:
        return run_trials(env, actor, trials, config.length, on_step=advance)
