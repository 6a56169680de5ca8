"""The separate evaluator: measures trained policies in a process that holds no candidate's code.

A file of weights is all that it takes from a training. Its episodes depend on the task and on the
phase of the search alone: every candidate, seed and checkpoint of a phase is measured in the same
ones, and those of the trainings at the end are held out from the choice of the best.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any, get_args

# Else loaded late, when the confined process may no longer read files.
import numpy as np
import numpy.linalg
import numpy.random
import safetensors.numpy  # noqa: F401

from embodied_icrl.common.config import build
from embodied_icrl.common.paths import assets_dir, checkout_dir
from embodied_icrl.common.seeds import derived_seed
from embodied_icrl.manipulation.task import Task
from embodied_icrl.manipulation.task_env import TaskEnv
from embodied_icrl.reward_search.actor import Actor, WeightsError, load_actor
from embodied_icrl.reward_search.findings import printable
from embodied_icrl.reward_search.records import FitnessPoint, LimitKind, Phase
from embodied_icrl.reward_search.sandbox import Layers, Limits, run_sandboxed, tells_of_memory

NOT_BUILT = "the machine can't build the task"  # a reason that says nothing of a candidate


def evaluate_weights(
    weights: Mapping[int, str],
    *,
    task: Mapping[str, Any],
    algorithm: str,
    hyperparameters: Mapping[str, Any],
    episodes: Mapping[int, int],
    phase: Phase,
    limits: Limits,
    task_paths: Sequence[str] = (),
    layers: Layers | None = None,
    on_poll: Any = None,
) -> tuple[tuple[FitnessPoint, ...], str | None, bool, LimitKind | None]:
    """Fitness of policies by the step of their checkpoint, measured in a child process.

    Args:
        weights: step -> absolute path of a safetensors file.
        task: the task's configuration node.
        algorithm, hyperparameters: they give the network its shape.
        episodes: step -> number of episodes with its policy.
        phase: whose episodes these are.
        task_paths: directories outside the package where the task's module lies.
        on_poll: as in `run_sandboxed`.

    Returns:
        One point per checkpoint up to the first whose weights can't be used; the reason why the
        points end early, or None; whether another run would end the same; and the kind of limit
        that ended it, if it was one.
    """
    steps = sorted(weights)
    payload = {
        "weights": [weights[step] for step in steps],
        "task": dict(task),
        "algorithm": algorithm,
        "hyperparameters": dict(hyperparameters),
        "episodes": [episodes[step] for step in steps],
        "phase": phase,
        "task_paths": list(task_paths),
    }
    outcome = run_sandboxed(
        f"{__name__}:evaluate",
        payload,
        limits=limits,
        layers=layers,
        readable=[*weights.values(), *task_readable(task_paths)],
        on_poll=on_poll,
    )
    if outcome.reason is not None:
        return (), f"evaluation: {outcome.reason}", outcome.deterministic, outcome.limit
    points = tuple(
        FitnessPoint(step, mean, success, episodes[step])
        for step, (mean, success) in zip(steps, outcome.result["points"])
    )
    reason, by_machine = outcome.result["reason"], outcome.result["by_machine"]
    limit: LimitKind | None = "memory" if by_machine and tells_of_memory(reason) else None
    return points, reason, not by_machine, limit


def task_readable(task_paths: Sequence[str]) -> list[str]:
    """What a confined process must be able to read to build tasks."""
    checkout = checkout_dir()
    marks = [str(checkout / "pyproject.toml")] if checkout is not None else []
    return [*task_paths, str(assets_dir()), *marks]


def prepare_simulators(task_paths: Sequence[str]) -> None:
    """Call it in a confined process before a task is built."""
    sys.path[:0] = task_paths
    # The window library starts a process when it is imported, which is forbidden here, and MuJoCo
    # and Gymnasium import it; nothing opens windows.
    os.environ["MUJOCO_GL"] = "disable"
    sys.modules.setdefault("glfw", ModuleType("glfw"))


class TaskNotBuilt(Exception):
    """The task fails before a candidate has a part in it; the message is one line."""


@contextmanager
def building() -> Iterator[None]:
    """For all that makes a task and its simulators, whose files and packages may be missing here.

    Raises:
        TaskNotBuilt: something within raised. Of memory alone a limit is to blame.
    """
    try:
        yield
    except MemoryError:
        raise
    except Exception as error:
        message = printable(f"{NOT_BUILT}: {type(error).__name__}: {error}")
        raise TaskNotBuilt(message) from error


def evaluate(payload: Mapping[str, Any]) -> dict[str, Any]:
    """`evaluate_weights`, inside the child.

    Returns:
        `points`, means of fitness and success; `reason`, as there; and `by_machine`: whether the
        policies had no part in it.
    """
    prepare_simulators(payload["task_paths"])
    base: Any = Task
    try:
        with building():
            task: Task = build(payload["task"], base, "task")
            env = TaskEnv(task)
    except TaskNotBuilt as error:
        return {"points": [], "reason": str(error), "by_machine": True}
    points = []
    for path, episodes in zip(payload["weights"], payload["episodes"], strict=True):
        try:
            actor = load_actor(
                path,
                payload["algorithm"],
                payload["hyperparameters"],
                env.observation_space,
                env.action_space,
            )
            points.append(measure(actor, env, episodes, payload["phase"]))
        except WeightsError as error:
            reason = printable(str(error), 200)
            return {"points": points, "reason": reason, "by_machine": False}
    return {"points": points, "reason": None, "by_machine": False}


def measure(actor: Actor, env: TaskEnv, episodes: int, phase: Phase) -> tuple[float, float]:
    """Mean fitness and share of successes over the first of a phase's episodes.

    Raises:
        WeightsError: the policy brought the simulator to where there is no fitness.
    """
    fitness, successes = [], 0
    for episode in range(episodes):
        observation, _ = env.reset(seed=evaluation_seed(env.task, episode, phase))
        ended = False
        while not ended:
            observation, _, terminated, truncated, info = env.step(actor.act(observation))
            ended = terminated or truncated
        fitness.append(float(info["fitness"]))
        successes += bool(info["success"])
    mean = sum(fitness) / episodes
    if not math.isfinite(mean):
        raise WeightsError(f"weights lead to a fitness of {mean}")
    return mean, successes / episodes


def thinned(states: list[list[float]], most: int) -> list[list[float]]:
    """At most so many of them, evenly spread from the first to the last."""
    if len(states) <= most:
        return states
    return [states[i] for i in np.linspace(0, len(states) - 1, most).astype(int)]


def evaluation_seed(task: Task, episode: int, phase: Phase) -> int:
    """The seed of an evaluation episode; no training has it, and no episode of another phase."""
    phases: tuple[Phase, ...] = get_args(Phase)
    free = derived_seed(0, "evaluation", task.name, phase, episode) % (2**31 // len(phases))
    return free * len(phases) + phases.index(phase)  # the remainder keeps the phases apart
