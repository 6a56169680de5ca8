"""Small environments and policies whose evaluations can be worked out by hand."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym
import numpy as np
import torch

from embodied_icrl.common.config import to_dict
from embodied_icrl.envs.base import TrialVectorEnv, parse_reset
from embodied_icrl.envs.darkroom import DarkroomConfig
from embodied_icrl.envs.grid_house_config import GridHouseConfig
from embodied_icrl.policy import Policy, PolicyConfig
from embodied_icrl.runs.checkpoint import save_checkpoint
from embodied_icrl.runs.run import open_run

DARKROOM = DarkroomConfig(dim=4, horizon=6)
HOUSE = GridHouseConfig(
    size=5, n_rooms=1, n_types=2, max_types=2, view_size=3, min_distance=2, horizon=8
)


def tiny_policy(env_config: Any, seed: int = 0, **settings: Any) -> Policy:
    """Random weights, scaled up so that what the memory holds changes what the policy does."""
    env = env_config.build(1)
    torch.manual_seed(seed)
    sizes: dict[str, Any] = {"width": 16, "layers": 2, "heads": 2, "mlp_width": 32}
    policy = Policy(
        PolicyConfig(**{**sizes, **settings}),
        env.single_observation_space,
        env.single_action_space,
        env.max_episode_steps,
    )
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.4)
    return policy


@dataclass(frozen=True)
class ScriptedConfig:
    """Episode k of task i takes `1 + (i + k) % longest` steps and pays 1 + i + 10 k at its end."""

    longest: int = 4
    log: list[Any] = field(default_factory=list)
    oracle: bool = False

    def build(
        self,
        num_envs: int,
        *,
        split: str = "train",
        seed: int = 0,
        first_index: int = 0,
        total_envs: int | None = None,
    ) -> ScriptedEnv:
        return ScriptedEnv(self, num_envs)


class ScriptedEnv(TrialVectorEnv):
    """See `ScriptedConfig`. The log gets every reset's tasks and every step's actions."""

    def __init__(self, config: ScriptedConfig, num_envs: int) -> None:
        space = gym.spaces.Dict({"x": gym.spaces.Box(-1, 1, (2,), np.float32)})
        super().__init__(num_envs, space, gym.spaces.Discrete(3, start=5), config.longest)
        self.config = config
        self.task = np.zeros(num_envs, np.int64)
        self.episode = np.zeros(num_envs, np.int64)
        self.steps = np.zeros(num_envs, np.int64)
        self.ended = np.zeros(num_envs, bool)

    @property
    def has_oracle(self) -> bool:
        return self.config.oracle

    def oracle_action(self, mask: np.ndarray | None = None) -> np.ndarray:
        self.config.log.append(("oracle", None if mask is None else mask.copy()))
        return np.full(self.num_envs, 7)

    def optimal_return(self) -> np.ndarray:
        return 100.0 + self.task + 10.0 * self.episode

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        request = parse_reset(options, self.num_envs)
        assert request.new_trial and request.mask.all() and request.task_ids is not None
        self.task[:] = request.task_ids
        self.config.log.append(("reset", self.task.copy()))
        for array in (self.episode, self.steps, self.ended):
            array[:] = 0
        return self._observe(), {}

    def step(
        self, actions: np.ndarray
    ) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        self.config.log.append(("step", np.array(actions)))
        fresh = self.ended.copy()
        self.steps = np.where(fresh, 0, self.steps + 1)
        self.episode += fresh
        length = 1 + (self.task + self.episode) % self.config.longest
        self.ended = ~fresh & (self.steps >= length)
        returned = 1.0 + self.task + 10 * self.episode
        info: dict[str, Any] = {}
        if self.ended.any():
            info["episode"] = {
                "r": np.where(self.ended, returned, 0.0),
                "l": np.where(self.ended, self.steps, 0),
                "t": np.zeros(self.num_envs),
                "success": self.ended & (self.episode % 2 == 1),
            }
            info["_episode"] = self.ended.copy()
        reward = np.where(self.ended, returned, 0.0).astype(np.float32)
        return self._observe(), reward, self.ended.copy(), np.zeros_like(self.ended), info

    def _observe(self) -> dict[str, np.ndarray]:
        x = np.stack([np.cos(self.task + self.steps), np.sin(self.episode)], axis=1)
        return {"x": x.astype(np.float32)}


def save_run(path: Any, policy: Policy, env_config: Any, step: int = 7) -> Any:
    """A run directory with one checkpoint, as training leaves it."""
    config = {
        "name": "tiny",
        "env": {
            "_target_": f"{type(env_config).__module__}.{type(env_config).__name__}",
            **to_dict(env_config),
        },
        "ppo": {"num_steps": 30},
        "evaluation": {"settings": {"n_episodes": 3}},
    }
    run = open_run(path, config)
    try:
        save_checkpoint(
            run,
            step,
            tensors={"policy": policy.state_dict()},
            state={},
            policy=policy.describe(),
        )
    finally:
        run.close()
    return run.path
