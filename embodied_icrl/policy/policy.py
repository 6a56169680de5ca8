"""The policy: stored observations in, actions and values out, with a memory of the trial."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from embodied_icrl.common.config import build, to_dict
from embodied_icrl.common.errors import ConfigError, ObservationError
from embodied_icrl.policy.actions import (
    empty_actions,
    from_env_action,
    no_action,
    to_env_action,
)
from embodied_icrl.policy.batch import StepBatch
from embodied_icrl.policy.cache import KVCache
from embodied_icrl.policy.config import PolicyConfig
from embodied_icrl.policy.decode import Decoder
from embodied_icrl.policy.encoders import TokenEncoder, make_observations
from embodied_icrl.policy.heads import make_head
from embodied_icrl.policy.past import Past, sight_groups
from embodied_icrl.policy.prefill import CacheWriter, row_groups
from embodied_icrl.policy.spaces import describe_space, space_from_description
from embodied_icrl.policy.transformer import Span, Transformer


class Policy(nn.Module):
    """A transformer that reads a trial token by token, and acts.

    Args:
        config: sizes and variants.
        observation_space: of one environment, a flat Dict.
        action_space: of one environment: Discrete, MultiDiscrete or a Box of floats.
        max_episode_steps: longest episode; steps 0 to this have an embedding each.
    """

    def __init__(
        self,
        config: PolicyConfig,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        max_episode_steps: int,
    ) -> None:
        super().__init__()
        if max_episode_steps < 1:
            raise ConfigError(f"max_episode_steps must be at least 1, got {max_episode_steps}")
        self.config = config
        self.observation_space = observation_space
        self.action_space = action_space
        self.max_episode_steps = max_episode_steps
        self.actor = make_head(action_space, config.width)
        self._readers = make_observations(observation_space, config.encoders, config.ignore)
        self.encoder = TokenEncoder(
            self._readers,
            action_space,
            config.width,
            max_episode_steps,
            reads_reward=config.reward_input != "none",
        )
        self.transformer = Transformer(config)
        self.critic = nn.Linear(config.width, 1)
        nn.init.orthogonal_(self.critic.weight)
        nn.init.zeros_(self.critic.bias)

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.critic.weight.device

    # Observations and actions

    def check(self, obs: Mapping[str, Any], step: int) -> None:
        """Look for values that can't be used in observations `[env, ...]` by key.

        Raises:
            ObservationError: one line that names the key, the environment and `step`.
        """
        for key, reader in self._readers.items():
            if key not in obs:
                raise ObservationError(f"observation {key!r} is missing at step {step}")
            env = reader.first_bad(obs[key])
            if env is not None:
                raise ObservationError(
                    f"observation {key!r} of environment {env} at step {step} "
                    f"{reader.what_is_bad()}"
                )

    def prepare(self, obs: Mapping[str, Any]) -> dict[str, Tensor]:
        """Raw observations `[env, ...]` by key as the rollout stores them, on the device."""
        device = self.device
        with torch.inference_mode(False):
            return {key: reader.prepare(obs[key], device) for key, reader in self._readers.items()}

    def stored_spec(self) -> dict[str, tuple[tuple[int, ...], torch.dtype]]:
        """Shape per environment and step, and type, of what `prepare` returns."""
        return {key: (r.stored_shape, r.stored_dtype) for key, r in self._readers.items()}

    @property
    def no_action(self) -> int:
        """What stands for "no previous action"."""
        return no_action(self.action_space)

    def empty_actions(self, *shape: int) -> Tensor:
        """The "no action" of `[env]` or `[env, step]`, on the CPU, with the action's own axis."""
        return empty_actions(self.action_space, *shape)

    def to_env_action(self, action: Tensor) -> np.ndarray:
        """Actions `[env, ...]` as the environment takes them; a Box is clipped to its bounds."""
        return to_env_action(self.action_space, action)

    def from_env_action(self, action: Any) -> Tensor:
        """Environment actions `[env, ...]` (an oracle's) as the policy stores them."""
        return from_env_action(self.action_space, action).to(self.device)

    def new_batch(self, envs: int, steps: int) -> StepBatch:
        """An empty `StepBatch` `[envs, steps]` on the device, to be filled with `put`."""
        device = self.device
        flags = torch.zeros(3, envs, steps, dtype=torch.bool, device=device)
        return StepBatch(
            stored={
                key: torch.zeros(envs, steps, *shape, dtype=dtype, device=device)
                for key, (shape, dtype) in self.stored_spec().items()
            },
            prev_action=self.empty_actions(envs, steps).to(device),
            prev_reward=torch.zeros(envs, steps, device=device),
            episode_start=flags[0],
            terminal=flags[1],
            step_in_episode=torch.zeros(envs, steps, dtype=torch.int64, device=device),
        )

    # Memory

    def new_cache(self, envs: int, capacity: int, ring: bool | None = None) -> KVCache:
        """An empty memory.

        Args:
            envs: environments.
            capacity: tokens per environment.
            ring: keep the newest `window` tokens only, and never be full. By default where the
                window is shorter than the capacity.

        Raises:
            ValueError: a ring without a window.
        """
        config = self.config
        if ring is None:
            ring = config.window is not None and config.window < capacity
        if ring:
            if config.window is None:
                raise ValueError("a ring cache needs a policy with a window")
            capacity = config.window
        weights = self.critic.weight.dtype
        dtype = getattr(torch, config.cache_dtype)
        return KVCache(
            layers=config.layers,
            envs=envs,
            heads=config.heads,
            capacity=capacity,
            head_dim=config.head_dim,
            dtype=weights if dtype == torch.float32 else dtype,
            scratch_dtype=weights,
            device=self.device,
            ring=ring,
        )

    @torch.no_grad()
    def prefill(
        self,
        batch: StepBatch,
        cache: KVCache,
        chunk: int = 512,
        rows_per_group: int | None = None,
    ) -> Tensor:
        """Append the tokens of a batch to the memory, without a gradient.

        Args:
            batch: `[env, step]`, the environments of the cache.
            cache: memory; may hold earlier tokens.
            chunk: tokens at a time; bounds the memory this takes.
            rows_per_group: environments at a time; chosen from the sizes by default.

        Returns:
            Values `[env, step]`.
        """
        envs, steps = batch.shape
        if envs != cache.envs:
            raise ValueError(f"the batch has {envs} environments, the cache {cache.envs}")
        cache.room_for(steps)
        values = [torch.empty(envs, 0, device=self.device)]
        for first in range(0, steps, chunk):
            last = min(first + chunk, steps)
            values.append(self._prefill_chunk(batch.steps(first, last), cache, rows_per_group))
        return torch.cat(values, dim=1)

    def _prefill_chunk(
        self, batch: StepBatch, cache: KVCache, rows_per_group: int | None
    ) -> Tensor:
        steps = batch.shape[1]
        writer = CacheWriter(cache, steps)
        ids = cache.append_ids(batch.episode_start)
        groups = writer.groups(ids, self.config.inter_episode)
        values = []
        for rows in row_groups(cache, writer.keys, rows_per_group):
            span = Span(
                query_start=writer.keys - steps,
                groups=None if groups is None else groups[rows],
                rotation=self._rotation(ids[rows], cache.length),
            )
            tokens = self.encoder(batch.rows(rows))
            features = self.transformer(tokens, span, writer.memory(rows))
            values.append(self._value(features))
        cache.length += steps
        return torch.cat(values)

    @torch.no_grad()
    def rebuild_rows(
        self, batch: StepBatch, cache: KVCache, rows: Tensor, chunk: int = 512
    ) -> Tensor:
        """Replace the whole memory of some environments.

        Args:
            batch: `[row, cache.length]`, their new past.
            cache: memory of all environments.
            rows: int64 `[row]`, which ones.
            chunk: tokens at a time.

        Returns:
            Values `[row, cache.length]`.
        """
        if batch.shape != (len(rows), cache.length):
            raise ValueError(
                f"the batch must be [{len(rows)}, {cache.length}], rows by tokens in memory, "
                f"got {list(batch.shape)}"
            )
        values = []
        # A few at a time: the copy on the side stays small.
        for group in row_groups(cache, cache.capacity * self.config.layers, None, envs=len(rows)):
            part = batch.rows(group)
            aside = cache.like(envs=part.shape[0])
            values.append(self.prefill(part, aside, chunk))
            cache.copy_rows(rows[group], aside)
        return torch.cat(values)

    # Acting and learning

    def act(
        self,
        batch: StepBatch,
        cache: KVCache,
        generator: torch.Generator | None = None,
        deterministic: bool = False,
        noise: Tensor | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Read one token per environment, remember it, and choose an action.

        Args:
            batch: `[env, 1]`.
            cache: memory; grows by one token.
            generator: randomness of the action.
            deterministic: the most likely action.
            noise: uniform numbers in (0, 1) `[env, actor.noise_size]` to sample with, instead of
                the generator.

        Returns:
            Actions as stored (`to_env_action` makes them the environment's), their
            log-probability `[env]` and the value `[env]`.
        """
        if batch.shape != (cache.envs, 1):
            raise ValueError(f"act takes [{cache.envs}, 1] tokens, got {list(batch.shape)}")
        cache.room_for(1)
        with torch.inference_mode():
            cache.append_id(batch.episode_start[:, 0])
            decoder = Decoder(cache, self.config.inter_episode, self.config.window)
            rotation = self._rotation(cache.episode[:, None], cache.length)
            token = self.encoder(batch)[:, 0]
            features = self.transformer.step(token, decoder, rotation)
            cache.length += 1
        # Outside of inference mode, so that the results may take part in training.
        with torch.no_grad():
            params, value = self._heads(features)
            action, log_prob = self.actor.sample(params, generator, deterministic, noise)
            return action, log_prob, value

    def evaluate_actions(
        self,
        batch: StepBatch,
        actions: Tensor,
        past: Past | None = None,
        generator: torch.Generator | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Log-probability of actions, entropy and value, with gradients.

        Args:
            batch: tokens `[env, step]`: a trial from its beginning, or what follows `past`.
            actions: as `act` returned them, `[env, step]` or `[env, step, k]`.
            past: constant keys and values of the tokens before the batch (`cache.past`).
            generator: randomness of depth-dropout (training mode only).

        Returns:
            Three tensors `[env, step]`.
        """
        start = 0 if past is None else past.length
        base = -1 if past is None else past.episode[:, None]
        ids = base + batch.episode_start.cumsum(dim=1)
        all_ids = ids if past is None else torch.cat([past.episode_ids, ids], dim=1)
        visible_from = None if past is None else past.visible_from
        groups = sight_groups(all_ids, self.config.inter_episode, visible_from)
        span = Span(
            query_start=start,
            groups=groups,
            rotation=self._rotation(ids, start),
        )
        features = self.transformer(
            self.encoder(batch),
            span,
            memory=None if past is None or start == 0 else past.join,
            generator=generator,
            depth_dropout=self.training,
        )
        params, value = self._heads(features)
        log_prob, entropy = self.actor.log_prob_entropy(params, actions)
        return log_prob, entropy, value

    def _rotation(self, ids: Tensor, start: int) -> tuple[Tensor, Tensor] | None:
        """Rotary positions of tokens `[env, step]` from trial position `start` on.

        Cosine and sine are `[env or 1, 1, step, head_dim / 2]`, against `[env, heads, step, ...]`.
        """
        if self.config.rope == "none":
            return None
        if self.config.rope == "trial":
            ids = torch.arange(start, start + ids.shape[1], device=ids.device)[None]
        return self.transformer.rotation(ids[:, None], self.critic.weight.dtype)

    def _heads(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Distribution parameters and value, never in a half-precision type."""
        if torch.is_autocast_enabled(features.device.type):
            with torch.autocast(features.device.type, enabled=False):
                return self._heads(features.to(self.critic.weight.dtype))
        return self.actor.params(features), self.critic(features).squeeze(-1)

    def _value(self, features: Tensor) -> Tensor:
        return self._heads(features)[1]

    # Checkpoints

    def describe(self) -> dict[str, Any]:
        """What `from_description` needs to make this policy again, as JSON data; no weights."""
        return {
            "config": to_dict(self.config),
            "observation_space": describe_space(self.observation_space),
            "action_space": describe_space(self.action_space),
            "max_episode_steps": self.max_episode_steps,
        }

    @classmethod
    def from_description(cls, description: Mapping[str, Any]) -> Policy:
        """A policy with new weights from what `describe` returned."""
        return cls(
            build(description["config"], PolicyConfig),
            space_from_description(description["observation_space"]),
            space_from_description(description["action_space"]),
            int(description["max_episode_steps"]),
        )
