"""What the tests of tasks share: episodes of the scripted and of a random policy."""

from __future__ import annotations

from typing import Any

import numpy as np

from embodied_icrl.manipulation.task import Task
from embodied_icrl.manipulation.task_env import TaskEnv


def name_of(task: Task) -> str:
    return task.name


def episode(env: TaskEnv, seed: int, *, expert: bool) -> list[dict[str, Any]]:
    """The infos of one episode."""
    rng = np.random.default_rng(seed)
    env.reset(seed=seed)
    infos = []
    while True:
        random = rng.uniform(-1, 1, env.action_space.shape).astype(np.float32)
        _, _, terminated, truncated, info = env.step(env.expert_action() if expert else random)
        infos.append(info)
        if terminated or truncated:
            return infos


def fitness(task: Task, episodes: int, *, expert: bool) -> float:
    env = TaskEnv(task)
    found = [episode(env, seed, expert=expert)[-1]["fitness"] for seed in range(episodes)]
    env.close()
    return float(np.mean(found))
