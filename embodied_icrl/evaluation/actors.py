"""Who acts in a trial: the policy with its memory, the oracle, or chance."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import TracebackType
from typing import Any, Literal, Self

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from embodied_icrl.common.errors import ConfigError
from embodied_icrl.common.seeds import derived_rng
from embodied_icrl.envs.base import TrialVectorEnv
from embodied_icrl.evaluation.noise import TrialNoise
from embodied_icrl.policy import KVCache, Policy, StepBatch, TokenStream
from embodied_icrl.policy.spaces import describe_space

Context = Literal["full", "cleared", "shuffled"]


def check_fit(policy: Policy, env: TrialVectorEnv) -> None:
    """Refuses an environment that the policy can't act in.

    Raises:
        ConfigError: other observations, actions, or longer episodes than the policy was made for;
            observations that it ignores may be others.
    """
    theirs, ours = (
        dict(space.spaces) if isinstance(space, spaces.Dict) else {}
        for space in (env.single_observation_space, policy.observation_space)
    )
    for key in sorted({*theirs, *ours} - {*policy.config.ignore}):
        if not _same(theirs.get(key), ours.get(key)):
            raise ConfigError(
                f"the policy doesn't fit this environment: its observation {key!r} is "
                f"{ours.get(key, 'absent')}, the environment's {theirs.get(key, 'absent')}"
            )
    if not _same(env.single_action_space, policy.action_space):
        raise ConfigError(
            f"the policy doesn't fit this environment: its actions are {policy.action_space}, "
            f"the environment's {env.single_action_space}"
        )
    if env.max_episode_steps > policy.max_episode_steps:
        raise ConfigError(
            f"episodes of up to {env.max_episode_steps} steps are longer than the policy's "
            f"max_episode_steps={policy.max_episode_steps}: shorten the environment's"
        )


def _same(a: spaces.Space[Any] | None, b: spaces.Space[Any] | None) -> bool:
    """Whether two spaces are one; Gymnasium tells MultiBinary(4) and MultiBinary((4,)) apart."""
    if a is None or b is None:
        return a is b
    return describe_space(a) == describe_space(b)


class PolicyActor:
    """The policy, its memory, the controls that tamper with it, and demonstrations.

    A context manager: the policy is in evaluation mode inside and as before afterwards.

    Args:
        policy: acts, and reads what the oracle does in demonstrations.
        env: asked for the oracle's actions.
        capacity: the most tokens of a trial.
        context: ``full``; ``cleared``: the memory is emptied at every episode start;
            ``shuffled``: at every episode start the finished episodes are put in another order and
            the memory is recomputed from them. That keeps all observations of the trials, so
            policies that see images may need fewer trials at a time.
        n_demos: the first episodes, in which the oracle acts.
        deterministic: take the most likely action.
        seed: of sampled actions and shuffles; the trials' numbers do the rest.

    Attributes:
        cache: keys and values of the current trials.
        token: the tokens that the last action was chosen at.
        privileged: the policy reads a shaped reward (the environments tell its success part apart),
            which can say how near the goal is.
    """

    def __init__(
        self,
        policy: Policy,
        env: TrialVectorEnv,
        capacity: int,
        *,
        context: Context = "full",
        n_demos: int = 0,
        deterministic: bool = False,
        seed: int = 0,
    ) -> None:
        self.policy = policy
        self.env = env
        self.context = context
        self.n_demos = n_demos
        self.deterministic = deterministic
        self.seed = seed
        self.stream = TokenStream(policy, env.num_envs, max_episode_steps=env.max_episode_steps)
        self.cache: KVCache = policy.new_cache(env.num_envs, capacity)
        self.token: StepBatch
        self.privileged = False
        self._history = _History(policy, env.num_envs, capacity) if context == "shuffled" else None
        self._action: Tensor
        self._noise: TrialNoise
        self._was_training = policy.training

    def __enter__(self) -> Self:
        self._was_training = self.policy.training
        self.policy.eval()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.policy.train(self._was_training)

    def start(self, observation: Mapping[str, np.ndarray], trials: np.ndarray) -> None:
        """New trials: an empty memory, and the noise that belongs to these trials."""
        self.cache.reset()
        self.stream.start(observation)
        self._noise = TrialNoise(self.seed, "actions", trials, self.policy.actor.noise_size)
        if self._history is not None:
            self._history.start(self.seed, trials)

    def act(self, episode: np.ndarray) -> np.ndarray:
        """Reads the current tokens and chooses actions ``[env, ...]`` for the environments."""
        self.token = self.stream.current
        starts = self.stream.episode_start
        if starts.any() and self.cache.length:
            if self.context == "cleared":
                self.cache.forget(starts)
            elif self._history is not None:
                self._history.shuffle(np.flatnonzero(starts), self.cache)
        noise = torch.as_tensor(self._noise.draw(), device=self.policy.device)
        self._action, _, _ = self.policy.act(
            self.token, self.cache, deterministic=self.deterministic, noise=noise
        )
        if self._history is not None:
            self._history.append(self.token)
        actions = self.policy.to_env_action(self._action)
        demo = (episode < self.n_demos) & ~self.stream.terminal
        if demo.any():
            shown = self.env.oracle_action(demo)
            actions[demo] = shown[demo]
            # What the agent reads as its previous action is what was done.
            mask = torch.from_numpy(demo).to(self._action.device)
            self._action[mask] = self.policy.from_env_action(shown)[mask]
        return actions

    def observe(
        self,
        observation: Mapping[str, np.ndarray],
        reward: np.ndarray,
        terminated: np.ndarray,
        truncated: np.ndarray,
        info: Mapping[str, Any],
    ) -> None:
        """Makes the next tokens of what the environments answered."""
        sparse = info.get("sparse_reward")
        self.privileged |= sparse is not None and self.policy.config.reward_input == "full"
        self.stream.push(observation, reward, terminated, truncated, self._action, sparse)


class _History:
    """The tokens of the running trials, for the shuffled control."""

    def __init__(self, policy: Policy, num_envs: int, capacity: int) -> None:
        self.policy = policy
        self.batch = policy.new_batch(num_envs, capacity)
        self.length = 0
        self.rngs: list[np.random.Generator] = []

    def start(self, seed: int, trials: np.ndarray) -> None:
        self.rngs = [derived_rng(seed, "shuffle", int(trial)) for trial in trials]
        self.length = 0

    def append(self, token: StepBatch) -> None:
        self.batch.put(self.length, token)
        self.length += 1

    def shuffle(self, rows: np.ndarray, cache: KVCache) -> None:
        """Permutes the episodes of ``rows: int [row]``, all finished, and rebuilds their memory."""
        starts = self.batch.episode_start[:, : self.length].cpu().numpy()
        changed = []
        for row in rows:
            order = shuffled_order(starts[row], self.rngs[row])
            if (order != np.arange(self.length)).any():
                changed.append(int(row))
                index = torch.from_numpy(order).to(self.policy.device)
                self.batch.map(partial(_reorder, row=int(row), order=index))
        if changed:
            index = torch.tensor(changed, device=self.policy.device)
            past = self.batch.steps(0, self.length).rows(index)
            self.policy.rebuild_rows(past, cache, index)


def _reorder(tensor: Tensor, row: int, order: Tensor) -> Tensor:
    tensor[row, : len(order)] = tensor[row, order]
    return tensor


def shuffled_order(episode_start: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """An order of tokens, int ``[token]``, that permutes whole episodes.

    ``episode_start: bool [token]`` marks the first tokens of episodes, token 0 included.
    """
    episodes = np.split(np.arange(episode_start.size), np.flatnonzero(episode_start)[1:])
    return np.concatenate([episodes[i] for i in rng.permutation(len(episodes))])


class OracleActor:
    """Plays with full knowledge of the task: the reference from above."""

    def __init__(self, env: TrialVectorEnv) -> None:
        self.env = env

    def start(self, observation: Mapping[str, np.ndarray], trials: np.ndarray) -> None:
        """Nothing to prepare."""

    def act(self, episode: np.ndarray) -> np.ndarray:
        """The oracle's actions."""
        return self.env.oracle_action()

    def observe(self, *result: Any) -> None:
        """Nothing to remember."""


class RandomActor:
    """Uniform actions (standard normal where a Box has no bounds): the reference from below."""

    def __init__(self, env: TrialVectorEnv, seed: int) -> None:
        self.space = env.single_action_space
        self.seed = seed
        self._noise: TrialNoise

    def start(self, observation: Mapping[str, np.ndarray], trials: np.ndarray) -> None:
        """The noise that belongs to these trials."""
        width = max(1, int(np.prod(self.space.shape or ())))
        self._noise = TrialNoise(self.seed, "random policy", trials, width)

    def act(self, episode: np.ndarray) -> np.ndarray:
        """Random actions."""
        return uniform_actions(self.space, self._noise.draw())

    def observe(self, *result: Any) -> None:
        """Nothing to remember."""


def uniform_actions(space: spaces.Space[Any], noise: np.ndarray) -> np.ndarray:
    """Actions ``[env, ...]`` from uniform numbers in (0, 1), float64 ``[env, k]``.

    Raises:
        ConfigError: a kind of action space that no policy of ours has.
    """
    if isinstance(space, spaces.Discrete):
        return np.asarray(space.start + np.floor(noise[:, 0] * space.n).astype(np.int64))
    if isinstance(space, spaces.MultiDiscrete):
        flat = np.floor(noise * space.nvec.reshape(-1)).astype(space.dtype)
        return np.asarray(flat.reshape(-1, *space.shape) + space.start)
    if isinstance(space, spaces.Box):
        shaped = noise.reshape(-1, *space.shape)
        normal = torch.special.ndtri(torch.from_numpy(shaped)).numpy()
        bounded = np.isfinite(space.low) & np.isfinite(space.high)
        low, high = (np.where(bounded, side, 0.0) for side in (space.low, space.high))
        actions = np.where(bounded, low + shaped * (high - low), normal)
        return np.asarray(np.clip(actions, space.low, space.high).astype(space.dtype))
    raise ConfigError(f"no random actions for {space}")
