"""The states that trained policies visit, recorded in a process that holds no candidate's code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from embodied_icrl.common.config import build
from embodied_icrl.manipulation.task import Task
from embodied_icrl.manipulation.task_env import TaskEnv
from embodied_icrl.reward_search.actor import Actor, WeightsError, actor_of
from embodied_icrl.reward_search.evaluation_child import (
    evaluation_seed,
    prepare_simulators,
    task_readable,
    thinned,
)
from embodied_icrl.reward_search.film import Take
from embodied_icrl.reward_search.findings import printable
from embodied_icrl.reward_search.sandbox import Layers, Limits, run_sandboxed

EPISODES = 3
MAX_NUMBERS = 60_000  # of one policy, handed back


def visited_states(
    takes: Sequence[Take],
    task: Mapping[str, Any],
    *,
    limits: Limits,
    task_paths: Sequence[str] = (),
    layers: Layers | None = None,
) -> tuple[dict[str, NDArray[np.float64]], str | None]:
    """Flat states of trained policies that act without noise in the task's held-out episodes.

    Args:
        takes: the policies; different ids.
        task: the task's configuration node, with its `_target_`.
        task_paths: directories outside the package where the task's module lies.

    Returns:
        By id, states [step, size]; and why there are none, or None.

    Raises:
        SandboxError: the sandbox could not be set up.
    """
    nodes = [take.node() for take in takes]
    payload = {
        "takes": nodes,
        "task": dict(task),
        "task_paths": list(task_paths),
        "episodes": EPISODES,
    }
    outcome = run_sandboxed(
        f"{__name__}:visit",
        payload,
        limits=limits,
        layers=layers,
        readable=[*(node["weights"] for node in nodes), *task_readable(task_paths)],
    )
    reason = outcome.reason if outcome.reason is not None else outcome.result["reason"]
    if reason is not None:
        return {}, reason
    found = outcome.result["states"]
    return {name: np.array(states, np.float64) for name, states in found.items()}, None


def visit(payload: Mapping[str, Any]) -> dict[str, Any]:
    """`visited_states`, inside the child: `states` by id, and the `reason` why there are none."""
    prepare_simulators(payload["task_paths"])
    base: Any = Task
    task: Task = build(payload["task"], base, "task")
    env = TaskEnv(task)
    states = {}
    try:
        for take in payload["takes"]:
            states[take["id"]] = _visited(actor_of(take, env), env, payload["episodes"])
    except WeightsError as error:
        return {"states": {}, "reason": printable(str(error), 200)}
    return {"states": states, "reason": None}


def _visited(actor: Actor, env: TaskEnv, episodes: int) -> list[list[float]]:
    states = []
    for episode in range(episodes):
        observation, _ = env.reset(seed=evaluation_seed(env.task, episode, "final"))
        ended = False
        while not ended:
            observation, _, terminated, truncated, _ = env.step(actor.act(observation))
            states.append(env.state_vector.tolist())
            ended = terminated or truncated
    return thinned(states, max(1, MAX_NUMBERS // env.layout.size))
