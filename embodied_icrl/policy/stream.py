"""From environment steps to tokens: remembers what each environment's next token needs.

The training rollout, the evaluation and the robot loop all make their tokens here, so that the
policy reads the same thing everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from embodied_icrl.common.errors import ObservationError, UserError
from embodied_icrl.policy.batch import StepBatch

if TYPE_CHECKING:
    from embodied_icrl.policy.policy import Policy


class TokenStream:
    """Makes one token per environment and step.

    Environments follow Gymnasium's NEXT_STEP autoreset: the observation that ends an episode is a
    token of its own (with the last action, the last reward and the terminal flag); the step after
    it, whose action is ignored, gives the first observation of the next episode.

    Args:
        policy: prepares observations and says which reward it reads.
        num_envs: environments.
        max_episode_steps: longest episode; its terminal token stands at this step.

    Attributes:
        terminal: bool `[env]`; the current token ends an episode.
        episode_start: bool `[env]`; the current token is the first of an episode.
        step_in_episode: int64 `[env]`.
        step: tokens since the trial began, the current one excluded.
        current: the current tokens, a `StepBatch` of one step.
    """

    def __init__(
        self, policy: Policy, num_envs: int, *, max_episode_steps: int | None = None
    ) -> None:
        self.policy = policy
        self.num_envs = num_envs
        self.max_episode_steps = max_episode_steps or policy.max_episode_steps
        if self.max_episode_steps > policy.max_episode_steps:
            raise UserError(
                f"episodes of up to {self.max_episode_steps} steps are longer than the policy's "
                f"max_episode_steps={policy.max_episode_steps}"
            )
        self._reads = policy.config.reward_input
        self._none = policy.no_action
        self.terminal = np.zeros(num_envs, bool)
        self.episode_start = np.zeros(num_envs, bool)
        self.step_in_episode = np.zeros(num_envs, np.int64)
        self.step = 0
        self._reward = np.zeros(num_envs, np.float32)
        self._action = policy.empty_actions(num_envs)
        self.current: StepBatch

    def start(self, obs: Mapping[str, Any]) -> StepBatch:
        """The first observation `[env, ...]` of a new trial in every environment."""
        return self._begin(obs, 0)

    def begin_episode(self, obs: Mapping[str, Any]) -> StepBatch:
        """A new episode of the same trial in every environment, begun without autoreset."""
        return self._begin(obs, self.step)

    def _begin(self, obs: Mapping[str, Any], step: int) -> StepBatch:
        stored = self._prepare(obs, step)
        self.step = step
        self.terminal.fill(False)
        self.episode_start.fill(True)
        self.step_in_episode.fill(0)
        self._reward.fill(0.0)
        self._action.fill_(self._none)
        return self._tokens(stored)

    def push(
        self,
        obs: Mapping[str, Any],
        reward: Any,
        terminated: Any,
        truncated: Any,
        action: Tensor,
        sparse_reward: Any = None,
    ) -> StepBatch:
        """What an environment step returned.

        Args:
            obs: observations `[env, ...]` by key.
            reward: `[env]`.
            terminated, truncated: bool `[env]`.
            action: the action that was taken, as the policy gave it.
            sparse_reward: success part of the reward `[env]`, NaN where the environment gave none;
                read by `reward_input: sparse`. Its first values of episodes aren't read.

        Returns:
            The new current tokens, valid until the next call.

        Raises:
            ObservationError: a value that can't be used, or a success part that is read and
                missing; names key, environment and step. Nothing has changed then: the step may
                be pushed again.
            UserError: an episode is longer than `max_episode_steps`.
        """
        began, step = self.terminal, self.step + 1
        ends = np.logical_or(terminated, truncated)
        step_in_episode = np.where(began, 0, self.step_in_episode + 1)
        if step_in_episode.max() > self.max_episode_steps:
            env = int(step_in_episode.argmax())
            raise UserError(
                f"environment {env} is at step {step_in_episode[env]} of an episode, but "
                f"max_episode_steps is {self.max_episode_steps}: raise it, or truncate episodes"
            )
        read = self._reward_read(reward, sparse_reward, step)
        stored = self._prepare(obs, step)
        # Nothing has changed so far: after an error the same step may be pushed once more.
        self._action.copy_(action)
        self._action[torch.from_numpy(began)] = self._none
        self._reward[:] = read
        self.step_in_episode[:] = step_in_episode
        self.episode_start[:] = began
        self.terminal[:] = ends
        self.step = step
        return self._tokens(stored)

    def state_dict(self) -> dict[str, Tensor]:
        """The current token and what it was made from, as tensors."""
        token = self.current.map(lambda tensor: tensor.cpu().clone())
        state = {f"stored/{key}": value for key, value in token.stored.items()}
        for name in ("prev_action", "prev_reward", "episode_start", "terminal", "step_in_episode"):
            state[name] = getattr(token, name)
        state["step"] = torch.tensor(self.step)
        return state

    def load_state_dict(self, state: Mapping[str, Tensor]) -> StepBatch:
        """Put back what `state_dict` returned."""
        self.step = int(state["step"])
        self.terminal[:] = state["terminal"][:, 0].numpy()
        self.episode_start[:] = state["episode_start"][:, 0].numpy()
        self.step_in_episode[:] = state["step_in_episode"][:, 0].numpy()
        self._reward[:] = state["prev_reward"][:, 0].numpy()
        self._action.copy_(state["prev_action"][:, 0])
        device = self.policy.device
        prefix = "stored/"
        return self._tokens(
            {
                key.removeprefix(prefix): value[:, 0].to(device)
                for key, value in state.items()
                if key.startswith(prefix)
            }
        )

    def _reward_read(self, reward: Any, sparse_reward: Any, step: int) -> np.ndarray:
        """What the policy reads as the reward, `[env]`: 0 at an episode's start."""
        if self._reads == "none" or self.terminal.all():
            return np.zeros(self.num_envs, np.float32)
        sparse = self._reads == "sparse"
        values = sparse_reward if sparse else reward
        # A missing success part must not be replaced by the reward: that may be a shaped one.
        given = np.full(self.num_envs, np.nan) if values is None else np.asarray(values)
        read: np.ndarray = np.where(self.terminal, 0.0, given).astype(np.float32)
        if np.isfinite(read).all():
            return read
        env = int(np.argmin(np.isfinite(read)))
        if sparse and np.isnan(read[env]):
            raise ObservationError(
                f"the policy reads the success part of the reward (reward_input: sparse), and "
                f"environment {env} said nothing of it at step {step}: give "
                'info["sparse_reward"] at every step, or train with policy.reward_input=none '
                "(or full, if the reward isn't shaped)"
            )
        raise ObservationError(f"the reward of environment {env} at step {step} is {read[env]}")

    def _prepare(self, obs: Mapping[str, Any], step: int) -> dict[str, Tensor]:
        """Checked observations as they are stored."""
        self.policy.check(obs, step)
        return self.policy.prepare(obs)

    def _tokens(self, stored: dict[str, Tensor]) -> StepBatch:
        device = self.policy.device
        self.current = StepBatch(
            stored={key: value[:, None] for key, value in stored.items()},
            prev_action=self._action[:, None].to(device),
            prev_reward=torch.from_numpy(self._reward)[:, None].to(device),
            episode_start=torch.from_numpy(self.episode_start)[:, None].to(device),
            terminal=torch.from_numpy(self.terminal)[:, None].to(device),
            step_in_episode=torch.from_numpy(self.step_in_episode)[:, None].to(device),
        )
        return self.current
