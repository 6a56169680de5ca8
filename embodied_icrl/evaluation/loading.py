"""From a run directory to its policy and its environment, without writing to it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from embodied_icrl.common.config import build
from embodied_icrl.common.errors import ConfigError, RunError
from embodied_icrl.common.paths import with_assets
from embodied_icrl.envs.vector import EnvConfig
from embodied_icrl.policy import Policy
from embodied_icrl.runs.checkpoint import find_checkpoint, load_checkpoint
from embodied_icrl.runs.run import load_run

StrPath = str | os.PathLike[str]


@dataclass(frozen=True)
class TrainedPolicy:
    """A checkpoint's policy and what its run says about it.

    Attributes:
        run: the run directory.
        policy: in evaluation mode, on the device asked for.
        env_config: the environment it was trained in, with overrides.
        experiment: name of the experiment.
        checkpoint: ``step_N``.
        trained_steps: tokens of a trial in training; None if the run doesn't say.
        n_episodes: episodes per trial of the experiment's own evaluations; None likewise.
    """

    run: Path
    policy: Policy
    env_config: EnvConfig
    experiment: str
    checkpoint: str
    trained_steps: int | None
    n_episodes: int | None


def choose_device(name: str) -> torch.device:
    """The device called ``cpu``, ``cuda``, ``cuda:N``, or ``auto`` (a GPU if there is one).

    Raises:
        ConfigError: there is no such device.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ConfigError(f"device={name} can't be used here; use device=cpu") from error
    return device


def load_policy(
    checkpoint: StrPath,
    device: str | torch.device = "cpu",
    encoder_weights: Mapping[str, StrPath] | None = None,
) -> Policy:
    """The policy of a checkpoint directory, in evaluation mode.

    Args:
        checkpoint: its directory.
        device: where the policy goes.
        encoder_weights: where the weights of frozen encoders lie now, by observation key.

    Raises:
        RunError: the checkpoint is damaged, or holds no policy.
        ConfigError: weights of a frozen encoder are missing or not those of the training, or
            `encoder_weights` names a key that has none.
    """
    loaded = load_checkpoint(checkpoint)
    if loaded.policy is None:
        raise RunError(f"{checkpoint} doesn't say how to build its policy: use another checkpoint")
    # The first weights are replaced at once; drawing them must not touch the caller's numbers.
    with torch.random.fork_rng(devices=[]):
        policy = Policy.from_description(_moved(loaded.policy, encoder_weights or {}))
    policy.load_state_dict(loaded.tensors("policy"))
    return policy.to(device).eval()


def _moved(description: Mapping[str, Any], files: Mapping[str, StrPath]) -> dict[str, Any]:
    """A policy's description with other places of its frozen encoders' weights."""
    encoders = dict(description["config"].get("encoders", {}))
    frozen = [key for key, encoder in encoders.items() if "weights" in encoder]
    for key, file in files.items():
        if key not in frozen:
            raise ConfigError(
                f"encoder_weights: observation {key!r} has no frozen encoder; there are encoders "
                f"with a file of weights for: {', '.join(frozen) or 'none'}"
            )
        encoders[key] = {**encoders[key], "weights": os.fspath(file)}
    return {**description, "config": {**description["config"], "encoders": encoders}}


def load_trained(
    run: StrPath,
    checkpoint: str | int = "latest",
    device: str = "cpu",
    env_overrides: Mapping[str, Any] | None = None,
    encoder_weights: Mapping[str, StrPath] | None = None,
) -> TrainedPolicy:
    """A run's policy with its environment.

    Args:
        run: the run directory; it is only read.
        checkpoint: ``latest``, N or ``step_N``.
        device: see `choose_device`.
        env_overrides: values of the environment's configuration to change; nested mappings are
            merged, a new ``_target_`` replaces the environment.
        encoder_weights: see `load_policy`.

    Raises:
        RunError: no run, or no such checkpoint.
        ConfigError: an override that the environment doesn't have, no such device, or weights of a
            frozen encoder that can't be had.
    """
    run = with_assets(run)
    opened = load_run(run)
    chosen = choose_device(device)
    path = find_checkpoint(opened.path, checkpoint)
    config = opened.config
    if not isinstance(config.get("env"), Mapping):
        raise RunError(f"{opened.path / 'config.yaml'} names no environment (key env)")
    env_config = build(merged(config["env"], env_overrides or {}), path="env")
    return TrainedPolicy(
        run=opened.path,
        policy=load_policy(path, chosen, encoder_weights),
        env_config=env_config,
        experiment=str(config.get("name", opened.path.name)),
        checkpoint=path.name,
        trained_steps=_look_up(config, "ppo", "num_steps"),
        n_episodes=_look_up(config, "evaluation", "settings", "n_episodes"),
    )


def merged(node: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """``node`` with ``overrides``, mappings merged at every depth."""
    if "_target_" in overrides and overrides["_target_"] != node.get("_target_"):
        return dict(overrides)
    result = dict(node)
    for key, value in overrides.items():
        old = result.get(key)
        if isinstance(value, Mapping) and isinstance(old, Mapping):
            value = merged(old, value)
        result[key] = value
    return result


def _look_up(config: Mapping[str, Any], *keys: str) -> int | None:
    node: Any = config
    for key in keys:
        node = node.get(key) if isinstance(node, Mapping) else None
    return node if isinstance(node, int) else None
