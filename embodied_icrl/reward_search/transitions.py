"""States recorded from random and scripted policies: what the unit checks try a reward on."""

from __future__ import annotations

import numpy as np

from embodied_icrl.common.seeds import derived_rng
from embodied_icrl.manipulation.task import Task
from embodied_icrl.manipulation.task_env import TaskEnv

EPISODES = 2  # of each policy


def record_episodes(task: Task, seed: int = 0) -> dict[str, list[list[list[float]]]]:
    """Flat states [episode, step, size] of "random" and, if the task has one, "success" episodes.

    A scripted episode counts only if it ended in success.
    """
    env = TaskEnv(task)
    try:
        random = [_episode(env, seed, i, expert=False)[0] for i in range(EPISODES)]
        recorded = {"random": random}
        if env.expert_action() is not None:
            scripted = [_episode(env, seed, i, expert=True) for i in range(EPISODES)]
            recorded["success"] = [states for states, success in scripted if success]
        return recorded
    finally:
        env.close()


def _episode(
    env: TaskEnv, seed: int, index: int, *, expert: bool
) -> tuple[list[list[float]], bool]:
    rng = derived_rng(seed, "transitions", index)
    env.action_space.seed(int(rng.integers(2**31)))
    env.reset(seed=int(rng.integers(2**31)))
    states = []
    while True:
        action = env.expert_action() if expert else env.action_space.sample()
        _, _, terminated, truncated, info = env.step(np.asarray(action))
        states.append(env.state_vector.tolist())
        if terminated or truncated:
            return states, bool(info["success"])
