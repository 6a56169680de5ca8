"""What the tests of tasks share: episodes of a scripted, a random and an idle policy."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from embodied_icrl.manipulation.task import Task
from embodied_icrl.manipulation.task_env import TaskEnv

Policy = Literal["scripted", "random", "idle"]


def name_of(task: Task) -> str:
    return task.name


def act(env: TaskEnv, policy: Policy, rng: np.random.Generator) -> np.ndarray:
    """The action of the moment."""
    if policy == "scripted":
        action = env.expert_action()
        assert action is not None
        return action
    action = rng.uniform(-1, 1, env.action_space.shape).astype(np.float32)
    return action if policy == "random" else np.zeros_like(action)


def episode(env: TaskEnv, seed: int, policy: Policy) -> list[dict[str, Any]]:
    """The infos of one episode."""
    rng = np.random.default_rng(seed)
    env.reset(seed=seed)
    infos = []
    while True:
        _, _, terminated, truncated, info = env.step(act(env, policy, rng))
        infos.append(info)
        if terminated or truncated:
            return infos


def fitness(task: Task, episodes: int, policy: Policy) -> float:
    env = TaskEnv(task)
    found = [episode(env, seed, policy)[-1]["fitness"] for seed in range(episodes)]
    env.close()
    return float(np.mean(found))


def seen_by_policies(task: Task, episodes: int) -> np.ndarray:
    """Observations [step, width] of a random policy, and of the scripted one if there is one."""
    env = TaskEnv(task)
    seen = []
    for seed in range(episodes):
        rng = np.random.default_rng(seed)
        for policy in ("random", "scripted"):
            seen.append(env.reset(seed=seed)[0])
            if policy == "scripted" and env.expert_action() is None:
                continue
            ended = False
            while not ended:
                observation, _, terminated, truncated, _ = env.step(act(env, policy, rng))
                seen.append(observation)
                ended = terminated or truncated
    env.close()
    return np.array(seen)
