"""A rollout: one trial of tokens per environment, collected segment by segment."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from embodied_icrl.common.errors import ConfigError
from embodied_icrl.envs.base import TrialVectorEnv
from embodied_icrl.policy import KVCache, Policy, StepBatch, TokenStream


class Rollout:
    """Preallocated tokens of one trial, [env, num_steps, ...], on the policy's device.

    Besides the policy's tokens (`batch`) it holds, per token: the action, its log-probability under
    the policy that acted, the newest value estimate, the reward that the action earned, and whether
    the token ends its episode by termination.

    An environment whose worker was lost in the middle of the trial goes on in another one, on top
    of a context that doesn't belong to it. It is `lost` (bool [env]): until the next rollout,
    no loss, metric or count of steps includes any of its tokens. Its earlier segments have been in
    their partial updates; the cut segment and the full update go without it. Every gradient is
    that of a rollout without these environments.

    Raises:
        ConfigError: the observations alone need more than the device's whole memory.
    """

    def __init__(self, policy: Policy, num_envs: int, num_steps: int) -> None:
        _check_room(policy, num_envs, num_steps)
        shape = (num_envs, num_steps)
        self.batch = policy.new_batch(num_envs, num_steps)
        self.action = policy.empty_actions(*shape).to(policy.device)
        self.log_prob = torch.zeros(shape, device=policy.device)
        self.value = torch.zeros_like(self.log_prob)
        self.reward = torch.zeros_like(self.log_prob)
        self.terminated = torch.zeros_like(self.log_prob, dtype=torch.bool)
        self.lost = torch.zeros(num_envs, device=policy.device, dtype=torch.bool)
        self.length = 0

    @property
    def num_envs(self) -> int:
        return self.reward.shape[0]

    def clear(self) -> None:
        """Make room for the next trial."""
        self.length = 0
        self.lost.fill_(False)

    def tokens(self) -> StepBatch:
        """The tokens so far (a view)."""
        return self.batch.steps(0, self.length)

    def arrays(self) -> Iterator[tuple[str, Tensor]]:
        """Every stored tensor by name, [env, num_steps, ...]."""
        for key, value in self.batch.stored.items():
            yield f"stored/{key}", value
        for key in ("prev_action", "prev_reward", "episode_start", "terminal", "step_in_episode"):
            yield key, getattr(self.batch, key)
        for key in ("action", "log_prob", "value", "reward", "terminated"):
            yield key, getattr(self, key)

    def append(self, token: StepBatch, action: Tensor, log_prob: Tensor, value: Tensor) -> None:
        """Store a token, [env, 1], with what the policy made of it."""
        t = self.length
        self.batch.put(t, token)
        self.action[:, t] = action
        self.log_prob[:, t] = log_prob
        self.value[:, t] = value
        self.length = t + 1

    def state(self) -> dict[str, Tensor]:
        """The tokens so far, for a checkpoint inside a trial."""
        arrays = {name: array[:, : self.length].contiguous() for name, array in self.arrays()}
        return arrays | {"lost": self.lost}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Restore what `state` saved."""
        self.length = int(state["reward"].shape[1])
        for name, array in self.arrays():
            array[:, : self.length] = state[name].to(array.device)
        # Checkpoints from before workers were replaced have no such entry.
        self.lost[:] = state["lost"].to(self.lost.device) if "lost" in state else False

    def shuffle_episodes(self, rng: np.random.Generator) -> None:
        """Permute each environment's finished episodes; the running one stays last.

        An episode moves as a block with its terminal token and all that is stored with it. Indices
        of episodes and tokens in the trial are derived from the order, so they are renumbered by
        themselves.
        """
        terminal = self.batch.terminal[:, : self.length].cpu().numpy()
        order = np.stack([_shuffled_order(row, rng) for row in terminal])
        index = torch.from_numpy(order).to(self.reward.device)
        rows = torch.arange(self.num_envs, device=index.device)[:, None]
        for _, array in self.arrays():
            array[:, : self.length] = array[rows, index]


def _check_room(policy: Policy, num_envs: int, num_steps: int) -> None:
    """Refuse early what can't be kept: on a CPU the memory runs out long after it was given."""
    sizes = {
        key: math.prod(shape) * dtype.itemsize
        for key, (shape, dtype) in policy.stored_spec().items()
    }
    needed = num_envs * num_steps * sum(sizes.values())
    there = _total_memory(policy.device)
    if there is not None and needed > there:
        largest = max(sizes, key=lambda key: sizes[key])
        raise ConfigError(
            f"the observations of a rollout take {needed / 1e9:.0f} GB in each process, and its "
            f"{policy.device.type} has {there / 1e9:.0f} GB: lower ppo.num_steps={num_steps} or "
            f"vector.num_envs={num_envs}, or store less of {largest!r} ({sizes[largest]:,} bytes "
            f"per step): features of a frozen encoder (policy.encoders.{largest}), or a smaller one"
        )


def _total_memory(device: torch.device) -> int | None:
    """All memory of a device, bytes, in use or not; None where it isn't known."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    if device.type == "cpu":
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return None


def _shuffled_order(terminal: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Token order [step] that permutes the finished episodes of `terminal` [step] as blocks."""
    blocks = np.split(np.arange(len(terminal)), np.flatnonzero(terminal) + 1)
    *finished, running = blocks
    if len(finished) < 2:
        return np.arange(len(terminal))
    return np.concatenate([*(finished[i] for i in rng.permutation(len(finished))), running])


class EpisodeLog:
    """Metrics of the finished episodes of the running trial, in order, per environment."""

    def __init__(self, num_envs: int) -> None:
        self.finished: list[list[dict[str, float]]] = [[] for _ in range(num_envs)]

    def clear(self) -> None:
        for episodes in self.finished:
            episodes.clear()

    def add(self, info: Mapping[str, Any]) -> None:
        """Take Gymnasium's `info["episode"]` arrays of the environments in `info["_episode"]`."""
        mask = info.get("_episode")
        if mask is None or not mask.any():
            return
        arrays = {
            key: value
            for key, value in info["episode"].items()
            if key in ("r", "l", "success", "spl")
        }
        for i in np.flatnonzero(mask):
            self.finished[i].append({key: float(value[i]) for key, value in arrays.items()})

    def first_and_last(self, left_out: Sequence[bool] = ()) -> dict[str, tuple[float, int]]:
        """Sum over environments and their number, by `return_first`, `length_last`, ...

        Args:
            left_out: by environment, whether it doesn't count; empty: all do.
        """
        names = {"r": "return", "l": "length", "success": "success", "spl": "spl"}
        totals: dict[str, tuple[float, int]] = {}
        for i, episodes in enumerate(self.finished):
            if not episodes or (left_out and left_out[i]):
                continue
            for label, episode in (("first", episodes[0]), ("last", episodes[-1])):
                for key, value in episode.items():  # not every episode has all of them
                    name = f"{names[key]}_{label}"
                    total, count = totals.get(name, (0.0, 0))
                    totals[name] = (total + value, count + 1)
        return totals


class Collector:
    """Steps the environments with the policy and its cache, and fills the rollout."""

    def __init__(
        self,
        envs: TrialVectorEnv,
        policy: Policy,
        rollout: Rollout,
        cache: KVCache,
        generator: torch.Generator,
    ) -> None:
        self.envs = envs
        self.policy = policy
        self.rollout = rollout
        self.cache = cache
        self.generator = generator
        self.stream = TokenStream(policy, envs.num_envs, max_episode_steps=envs.max_episode_steps)
        self.episodes = EpisodeLog(envs.num_envs)
        self.terminated = np.zeros(envs.num_envs, dtype=bool)

    def start_trial(self, task_ids: np.ndarray) -> None:
        """A new task in every environment, an empty context."""
        self.rollout.clear()
        observation, _ = self.envs.reset(options={"new_trial": True, "task_ids": task_ids})
        self.cache.reset()
        self.episodes.clear()
        self.terminated = np.zeros(self.envs.num_envs, dtype=bool)
        self.stream.start(observation)

    def drop(self, rows: slice) -> bool:
        """A fresh worker has these environments: leave them out of what is left of the rollout.

        To the policy their next observation begins an episode, as after an episode's end.

        Returns:
            whether there was something to leave out: a trial in its first reset has no tokens yet.
        """
        if self.rollout.length == 0:
            return False
        self.rollout.lost[rows] = True
        self.stream.terminal[rows] = True
        self.stream.current.terminal[rows] = True  # a copy on GPUs, and what checkpoints save
        self.terminated[rows] = False
        return True

    def collect(self, steps: int) -> None:
        """Append `steps` tokens per environment."""
        rollout, stream, policy, envs = self.rollout, self.stream, self.policy, self.envs
        first = rollout.length
        rewards = np.zeros((envs.num_envs, steps), dtype=np.float32)
        terminated = np.zeros((envs.num_envs, steps), dtype=bool)
        for i in range(steps):
            terminated[:, i] = self.terminated
            token = stream.current
            action, log_prob, value = policy.act(token, self.cache, self.generator)
            rollout.append(token, action, log_prob, value)
            observation, reward, ends, truncated, info = envs.step(policy.to_env_action(action))
            rewards[:, i] = reward
            self.terminated = np.array(ends, dtype=bool)
            stream.push(observation, reward, ends, truncated, action, info.get("sparse_reward"))
            self.episodes.add(info)
        rollout.reward[:, first : rollout.length] = torch.from_numpy(rewards)
        rollout.terminated[:, first : rollout.length] = torch.from_numpy(terminated)

    def bootstrap(self) -> Tensor:
        """Value, [env], of the token after the last one; the cache is left as it was."""
        length = self.cache.length
        _, _, value = self.policy.act(self.stream.current, self.cache, deterministic=True)
        self.cache.truncate(length)
        return value
