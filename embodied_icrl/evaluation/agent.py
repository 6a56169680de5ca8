"""A trained policy for one robot (or any loop): the memory is kept inside.

    agent = load_agent("runs/demo")
    while True:                                         # a trial: one house, one task
        agent.reset()
        for _ in range(episodes):
            observation = robot.begin_episode()
            action = agent.act(observation, episode_start=True)
            ended = False
            while not ended:
                observation, reward, ended = robot.do(action)
                action = agent.act(observation, reward, terminal=ended)

The last call of an episode shows the agent how it ended; the action it returns is not carried out.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from embodied_icrl.common.errors import ConfigError, UserError
from embodied_icrl.envs.spaces import ROOT_KEY
from embodied_icrl.evaluation.loading import StrPath, load_trained
from embodied_icrl.evaluation.noise import TrialNoise
from embodied_icrl.policy import KVCache, Policy, TokenStream

_FIRST_CAPACITY = 1024


class Agent:
    """Acts in one environment and remembers the trial.

    Args:
        policy: a trained policy.
        context_length: the most tokens (observations) of a trial. None: the memory grows as it is
            needed, to twice its size each time. A policy with a window never needs more than that.
        deterministic: take the most likely action instead of sampling.
        seed: of the sampled actions. The agent's first trial, second trial, ... draw the numbers
            of an evaluation's trials 0, 1, ... with that seed. None: different every time.
    """

    def __init__(
        self,
        policy: Policy,
        *,
        context_length: int | None = None,
        deterministic: bool = False,
        seed: int | None = None,
    ) -> None:
        if context_length is not None and context_length < 1:
            raise ConfigError(f"context_length={context_length} must be at least 1")
        self.policy = policy.eval()
        self.context_length = context_length
        self.deterministic = deterministic
        self._seed = secrets.randbits(62) if seed is None else seed
        self._stream = TokenStream(policy, 1)
        self._cache: KVCache = policy.new_cache(1, context_length or _FIRST_CAPACITY)
        self._action: Tensor | None = None
        self._trial = -1
        self.reset()

    @property
    def tokens(self) -> int:
        """Observations of this trial so far."""
        return self._cache.length

    def reset(self) -> None:
        """A new trial: the agent forgets everything."""
        self._cache.reset()
        self._action = None
        self._trial += 1
        self._noise = TrialNoise(
            self._seed, "actions", np.array([self._trial]), self.policy.actor.noise_size
        )

    def act(
        self,
        observation: Any,
        reward: float = 0.0,
        episode_start: bool = False,
        terminal: bool = False,
        *,
        sparse_reward: float | None = None,
        previous_action: Any = None,
    ) -> Any:
        """Reads an observation and chooses an action.

        Args:
            observation: a mapping of arrays without a batch axis, or the bare value where the
                policy has the single key ``"observation"``.
            reward: what the last action earned; not read at an episode's start.
            episode_start: a new episode of the same trial begins. The first call of a trial and
                the one after a terminal observation begin an episode anyway.
            terminal: this observation ends the episode, by success, failure or time.
            sparse_reward: the success part of the reward, where the policy reads that
                (`reward_input: sparse`); needed then, but at an episode's start.
            previous_action: what was done instead of the action last returned, as the environment
                takes it: a demonstration, or a safety controller's intervention.

        Returns:
            The action as the environment takes it: an int for Discrete, an array otherwise.
            After a terminal observation it means nothing.

        Raises:
            ObservationError: a value that can't be used; names key and step. The agent is as
                before, so that a good observation may be given in its place.
            UserError: the episode is longer than the policy was made for, or the memory is full.
        """
        batch = self._batch(observation)
        over = bool(self._stream.terminal[0])
        if terminal and (self._action is None or episode_start or over):
            raise UserError("an episode can't begin with a terminal observation")
        self._make_room()
        if self._action is None:
            self._stream.start(batch)
        elif episode_start and not over:
            self._stream.begin_episode(batch)
        else:
            done = self._action
            if previous_action is not None:
                done = self.policy.from_env_action(np.asarray(previous_action)[None])
            sparse = None if sparse_reward is None else np.array([sparse_reward], np.float32)
            self._stream.push(
                batch,
                np.array([reward], np.float32),
                np.array([terminal]),
                np.array([False]),
                done,
                sparse,
            )
        noise = torch.as_tensor(self._noise.draw(), device=self.policy.device)
        self._action, _, _ = self.policy.act(
            self._stream.current, self._cache, deterministic=self.deterministic, noise=noise
        )
        action = self.policy.to_env_action(self._action)[0]
        return int(action) if isinstance(self.policy.action_space, spaces.Discrete) else action

    def _batch(self, observation: Any) -> dict[str, np.ndarray]:
        if not isinstance(observation, Mapping):
            observation = {ROOT_KEY: observation}
        return {key: np.asarray(value)[None] for key, value in observation.items()}

    def _make_room(self) -> None:
        cache = self._cache
        if cache.ring or cache.length < cache.capacity:
            return
        if self.context_length is not None:
            raise UserError(
                f"the agent's memory is full ({cache.capacity} observations): call reset() for a "
                "new trial, or load it with a larger context_length"
            )
        self._cache = self.policy.new_cache(1, 2 * cache.capacity)
        self._cache.load_state_dict(cache.state_dict())


def load_agent(
    run: StrPath,
    checkpoint: str | int = "latest",
    device: str = "cpu",
    context_length: int | None = None,
    deterministic: bool = False,
    seed: int | None = None,
    encoder_weights: Mapping[str, StrPath] | None = None,
) -> Agent:
    """The agent of a run, with an empty memory; see `Agent`.

    Args:
        run: the run directory; it is only read.
        checkpoint: ``latest``, N or ``step_N``.
        device: ``cpu``, ``cuda``, or ``auto``.
        context_length, deterministic, seed: see `Agent`.
        encoder_weights: where the weights of frozen encoders lie now, by observation key; as in
            training, if they haven't moved.

    Raises:
        RunError: no run, or no such checkpoint.
        ConfigError: weights of a frozen encoder are missing, or not those of the training.
    """
    trained = load_trained(run, checkpoint, device, encoder_weights=encoder_weights)
    return Agent(
        trained.policy, context_length=context_length, deterministic=deterministic, seed=seed
    )
