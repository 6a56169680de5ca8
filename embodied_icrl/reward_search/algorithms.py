"""What the inner algorithms are told: hyperparameters as plain values, checked and completed.

Imports nothing dear: the shape of a policy is needed where its weights are read, without torch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from embodied_icrl.common.config import suggest
from embodied_icrl.common.errors import ConfigError

ROLLOUT_STEPS = 2048  # of PPO, all environments together, where nothing else is said
BUFFER_SIZE = 300_000  # transitions; also what a stretch hands to the next
ACTION_NOISE = 0.1  # of TD3, which explores by nothing else; actions lie in [-1, 1]

_HIDDEN = {"ppo": (64, 64), "sac": (256, 256), "td3": (400, 300), "tqc": (256, 256)}
_ACTIVATION = {"ppo": "tanh", "sac": "relu", "td3": "relu", "tqc": "relu"}
ACTIVATIONS = ("tanh", "relu", "elu")
# Keywords of the constructors that can be set: a mistake must be found before the last training.
_OFF_POLICY = (
    "learning_rate", "buffer_size", "learning_starts", "batch_size", "tau", "gamma", "train_freq",
    "gradient_steps", "action_noise", "n_steps", "stats_window_size", "policy_kwargs",
)  # fmt: skip
_ENTROPY = ("ent_coef", "target_update_interval", "target_entropy")
KEYS: Mapping[str, tuple[str, ...]] = {
    "ppo": (
        "learning_rate", "n_steps", "batch_size", "n_epochs", "gamma", "gae_lambda", "clip_range",
        "clip_range_vf", "normalize_advantage", "ent_coef", "vf_coef", "max_grad_norm",
        "target_kl", "stats_window_size", "policy_kwargs",
    ),
    "sac": (*_OFF_POLICY, *_ENTROPY),
    "td3": (*_OFF_POLICY, "policy_delay", "target_policy_noise", "target_noise_clip"),
    "tqc": (*_OFF_POLICY, *_ENTROPY, "top_quantiles_to_drop_per_net"),
}  # fmt: skip
_OURS = (
    "policy", "env", "device", "seed", "verbose", "tensorboard_log", "optimize_memory_usage",
    "replay_buffer_class", "replay_buffer_kwargs", "rollout_buffer_class", "rollout_buffer_kwargs",
)  # fmt: skip
_POLICY_KEYS = (
    "activation_fn", "log_std_init", "n_critics", "n_quantiles", "net_arch", "optimizer_kwargs",
    "ortho_init",
)  # fmt: skip


@dataclass(frozen=True)
class ActorShape:
    """The network that acts.

    Attributes:
        algorithm: ppo, sac, td3 or tqc.
        hidden: widths of the hidden layers.
        activation: between them, one of `ACTIVATIONS`.
    """

    algorithm: str
    hidden: tuple[int, ...]
    activation: str

    def layer_names(self) -> tuple[str, ...]:
        """Names of the linear layers in stable-baselines3, from the observation to the action."""
        stem, last = {
            "ppo": ("mlp_extractor.policy_net", "action_net"),
            "td3": ("actor.mu", f"actor.mu.{2 * len(self.hidden)}"),
        }.get(self.algorithm, ("actor.latent_pi", "actor.mu"))
        return (*(f"{stem}.{2 * i}" for i in range(len(self.hidden))), last)


def actor_shape(algorithm: str, hyperparameters: Mapping[str, Any]) -> ActorShape:
    """The shape that `policy_kwargs` asks for, or the algorithm's own.

    Raises:
        ConfigError: an unknown algorithm, or a network that can't be built.
    """
    if algorithm not in _HIDDEN:
        raise ConfigError(f"algorithm={algorithm!r}: {suggest(algorithm, list(_HIDDEN))}")
    given = policy_arguments(hyperparameters)
    arch = given.get("net_arch", _HIDDEN[algorithm])
    hidden: Any = arch.get("pi") if isinstance(arch, Mapping) else arch
    if not _is_widths(hidden):
        raise ConfigError(f"hyperparameters.policy_kwargs.net_arch={arch!r}: give a list of widths")
    activation = given.get("activation_fn", _ACTIVATION[algorithm])
    if activation not in ACTIVATIONS:
        raise ConfigError(
            f"hyperparameters.policy_kwargs.activation_fn={activation!r}: "
            f"one of {', '.join(ACTIVATIONS)}"
        )
    return ActorShape(algorithm, tuple(hidden), activation)


def policy_arguments(hyperparameters: Mapping[str, Any]) -> Mapping[str, Any]:
    """The `policy_kwargs` among hyperparameters.

    Raises:
        ConfigError: one of them isn't supported.
    """
    given = hyperparameters.get("policy_kwargs", {})
    for key in given:
        if key not in _POLICY_KEYS:
            name = f"hyperparameters.policy_kwargs.{key}"
            raise ConfigError(f"{name} can't be set; {suggest(key, list(_POLICY_KEYS))}")
    return dict(given)


def completed(algorithm: str, hyperparameters: Mapping[str, Any], n_envs: int) -> dict[str, Any]:
    """All hyperparameters that matter here, with our defaults where they differ.

    `action_noise` is a number: the standard deviation of Gaussian noise on each action.

    Raises:
        ConfigError: one of them can't be set, or has no meaning here.
    """
    actor_shape(algorithm, hyperparameters)
    for key in hyperparameters:
        if key in _OURS:
            raise ConfigError(f"hyperparameters.{key} can't be set: the training sets it")
        if key not in KEYS[algorithm]:
            advice = suggest(key, list(KEYS[algorithm]))
            raise ConfigError(f"hyperparameters.{key}: {algorithm} has no such key; {advice}")
    if algorithm == "ppo":
        return {"n_steps": max(1, ROLLOUT_STEPS // n_envs), **hyperparameters}
    noise = {"action_noise": ACTION_NOISE} if algorithm == "td3" else {}
    full = {"buffer_size": BUFFER_SIZE, "train_freq": 1, **noise, **hyperparameters}
    if type(full["train_freq"]) is not int:
        raise ConfigError("hyperparameters.train_freq: give a number of steps")
    return full


def rollout_steps(algorithm: str, hyperparameters: Mapping[str, Any], n_envs: int) -> int:
    """Environment steps from one update of the policy to the next.

    A training can stop and measure only between two rollouts.
    """
    full = completed(algorithm, hyperparameters, n_envs)
    return n_envs * int(full["n_steps" if algorithm == "ppo" else "train_freq"])


def steps_done(step: int, rollout: int) -> int:
    """Environment steps at the first end of a rollout at or after `step`."""
    return -(-step // rollout) * rollout


def _is_widths(value: Any) -> bool:
    return isinstance(value, Sequence) and all(type(item) is int and item > 0 for item in value)
