"""A recurrent agent in trials: Stable-Baselines3's view of them, and ours of its agent.

It is trained as in RL^2 (arXiv 1611.02779): one episode of the library is a whole trial, so
the hidden state lives from the first to the last in-context episode, and the observation holds the
position, the previous action and reward, and a flag at the start of an episode.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from sb3_contrib.ppo_recurrent import MlpLstmPolicy
from stable_baselines3.common.vec_env import VecEnv

from embodied_icrl.envs.base import TrialVectorEnv


class TrialMemory:
    """What an RL^2 agent sees besides the observation, for several environments.

    Attributes:
        size: length of an observation vector.
    """

    def __init__(self, env: TrialVectorEnv) -> None:
        assert isinstance(env.single_observation_space, spaces.Dict)
        position = env.single_observation_space["position"]
        assert isinstance(position, spaces.MultiDiscrete)
        assert isinstance(env.single_action_space, spaces.Discrete)
        self._sides = [int(side) for side in position.nvec]
        self._actions = int(env.single_action_space.n)
        self._action = np.zeros((env.num_envs, self._actions), np.float32)
        self._reward = np.zeros((env.num_envs, 1), np.float32)
        self._start = np.zeros((env.num_envs, 1), np.float32)
        self.size = sum(self._sides) + self._actions + 2

    def begin_trial(self, mask: np.ndarray) -> None:
        """The masked environments have no past."""
        self._action[mask] = 0.0
        self._reward[mask] = 0.0
        self._start[mask] = 1.0

    def record(self, mask: np.ndarray, action: np.ndarray, reward: np.ndarray) -> None:
        """What the masked environments' last step was."""
        self._action[mask] = np.eye(self._actions, dtype=np.float32)[action[mask]]
        self._reward[mask, 0] = reward[mask]
        self._start[mask] = 0.0

    def begin_episode(self, mask: np.ndarray) -> None:
        """The masked environments' next observation is the first of an episode of the trial."""
        self._start[mask] = 1.0

    def vector(self, observation: Mapping[str, np.ndarray]) -> np.ndarray:
        """One-hot position, one-hot action, reward, flag: float32 `[env, size]`."""
        position = observation["position"]
        one_hots = [
            np.eye(side, dtype=np.float32)[position[:, axis]]
            for axis, side in enumerate(self._sides)
        ]
        return np.concatenate([*one_hots, self._action, self._reward, self._start], axis=1)


class TrialsAsEpisodes(VecEnv):
    """Trials of a batched environment as Stable-Baselines3 episodes, one after another.

    An ended episode is followed at once by the next one's first observation, with the last reward
    beside it: no step is spent on an action that is ignored.
    """

    def __init__(self, env: TrialVectorEnv, n_episodes: int) -> None:
        self.env = env
        self.n_episodes = n_episodes
        self.memory = TrialMemory(env)
        self.render_mode = None
        space = spaces.Box(0.0, np.inf, (self.memory.size,), np.float32)
        super().__init__(env.num_envs, space, env.single_action_space)
        self.episode = np.zeros(env.num_envs, np.int64)
        self.returns = np.zeros((env.num_envs, n_episodes))
        self.finished: list[np.ndarray] = []

    def reset(self) -> np.ndarray:
        everyone = np.ones(self.num_envs, dtype=bool)
        self._begin_trials(everyone)
        observation, _ = self.env.reset(options={"new_trial": True})
        return self.memory.vector(observation)

    def step_async(self, actions: np.ndarray) -> None:
        self.actions = np.asarray(actions)

    def step_wait(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[dict[str, Any]]]:
        observation, reward, terminated, truncated, _ = self.env.step(self.actions)
        reward = np.array(reward)
        everyone = np.ones(self.num_envs, dtype=bool)
        self.memory.record(everyone, self.actions, reward)
        self.returns[np.arange(self.num_envs), self.episode] += reward
        ended = np.asarray(terminated) | np.asarray(truncated)
        self.episode[ended] += 1
        over = self.episode >= self.n_episodes
        if (ended & ~over).any():
            self.memory.begin_episode(ended & ~over)
            observation, _ = self.env.reset(options={"reset_mask": ended & ~over})
        if over.any():
            self.finished += list(self.returns[over].copy())
            self._begin_trials(over)
            observation, _ = self.env.reset(options={"new_trial": True, "reset_mask": over})
        return self.memory.vector(observation), reward, over, [{} for _ in over]

    def _begin_trials(self, mask: np.ndarray) -> None:
        self.memory.begin_trial(mask)
        self.episode[mask] = 0
        self.returns[mask] = 0.0

    def close(self) -> None:
        self.env.close()

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        return [False] * self.num_envs

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        return [getattr(self, attr_name)] * self.num_envs

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        raise NotImplementedError("the environments share their attributes")

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> Any:
        raise NotImplementedError("the environments are one object")


class WholeTrialPolicy(MlpLstmPolicy):
    """The library's policy, which walks a sequence step by step if a trial begins in it.

    Where trials begin at the first step of sequences only, as here, the LSTM takes the whole
    sequence at once: the same numbers, faster, so that the baseline gets more steps done.
    """

    @staticmethod
    def _process_sequence(
        features: torch.Tensor,
        lstm_states: tuple[torch.Tensor, torch.Tensor],
        episode_starts: torch.Tensor,
        lstm: torch.nn.LSTM,
    ) -> tuple[torch.Tensor, Any]:
        sequences = lstm_states[0].shape[1]
        starts = episode_starts.reshape(sequences, -1)
        if not starts[:, 1:].any():
            keep = (1.0 - starts[:, 0]).view(1, sequences, 1)
            lstm_states = (keep * lstm_states[0], keep * lstm_states[1])
            episode_starts = torch.zeros_like(episode_starts)
        walk: Any = MlpLstmPolicy._process_sequence
        output, states = walk(features, lstm_states, episode_starts, lstm)
        return output, states


class LstmActor:
    """The trained LSTM in our evaluation (`embodied_icrl.evaluation.trials.Actor`).

    Our environments show the observation that ended an episode and ignore the action after it; the
    LSTM, which was trained without that token, leaves it out here too.
    """

    def __init__(self, policy: Any, env: TrialVectorEnv) -> None:
        self.policy = policy
        self.memory = TrialMemory(env)
        self.everyone = np.ones(env.num_envs, dtype=bool)

    def start(self, observation: Mapping[str, np.ndarray], trials: np.ndarray) -> None:
        self.memory.begin_trial(self.everyone)
        self.vector = self.memory.vector(observation)
        self.state: tuple[np.ndarray, ...] | None = None
        self.trial_start = self.everyone
        self.ended = ~self.everyone

    def act(self, episode: np.ndarray) -> np.ndarray:
        action, state = self.policy.predict(self.vector, self.state, self.trial_start)
        if self.state is not None:
            old = self.state
            state = tuple(
                np.where(self.ended[None, :, None], before, after)
                for before, after in zip(old, state, strict=True)
            )
        self.state, self.trial_start, self.action = state, ~self.everyone, action
        return np.asarray(action)

    def observe(
        self,
        observation: Mapping[str, np.ndarray],
        reward: np.ndarray,
        terminated: np.ndarray,
        truncated: np.ndarray,
        info: Mapping[str, Any],
    ) -> None:
        self.memory.record(~self.ended, self.action, np.asarray(reward))
        self.memory.begin_episode(self.ended)
        self.ended = np.asarray(terminated) | np.asarray(truncated)
        self.vector = self.memory.vector(observation)
