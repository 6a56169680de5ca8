"""The training of one candidate for one stretch. Runs in the sandbox: its reward is untrusted.

At every checkpoint all generators are seeded anew and all environments begin new episodes. So the
learner's own state is all that the next stretch needs, and a training in two stretches ends with
the same weights, to the last bit, as one with the same checkpoints in one stretch. That state
stays in the candidate's folder and is loaded as plain tensors by children of the same candidate.
"""

from __future__ import annotations

import errno
import json
import os
import resource
import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from embodied_icrl.reward_search.quick_torch import torch  # isort: skip  # before all that uses it
from safetensors.torch import save
from sb3_contrib import TQC
from stable_baselines3 import PPO, SAC, TD3
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.noise import NormalActionNoise
from stable_baselines3.common.utils import set_random_seed

from embodied_icrl.common.config import build
from embodied_icrl.common.errors import ConfigError, UserError
from embodied_icrl.common.seeds import derived_seed
from embodied_icrl.manipulation.task import Task
from embodied_icrl.reward_search.algorithms import (
    ActorShape,
    actor_shape,
    completed,
    policy_arguments,
)
from embodied_icrl.reward_search.evaluation_child import (
    TaskNotBuilt,
    building,
    prepare_simulators,
)
from embodied_icrl.reward_search.findings import printable
from embodied_icrl.reward_search.loading import load_reward
from embodied_icrl.reward_search.training_env import MeteredReward, RewardFailure, RewardVecEnv
from embodied_icrl.reward_search.training_report import REPORT_FILE, STATE_FILE, weights_name

PROGRESS_S = 0.5

_ALGORITHMS = {"ppo": PPO, "sac": SAC, "td3": TD3, "tqc": TQC}
_ACTIVATIONS = {"tanh": torch.nn.Tanh, "relu": torch.nn.ReLU, "elu": torch.nn.ELU}
_REPLAY_ARRAYS = ("observations", "next_observations", "actions", "rewards", "dones", "timeouts")


def train(payload: Mapping[str, Any]) -> dict[str, Any]:
    """Train from `first_step` to `last_step`.

    Args:
        payload: the fields of a `Job`; `work`, the folder to write to; `before`, the folder of
            the stretch before, or None.

    Returns:
        `{"reason": None}`, or why it failed, with `by_machine`: whether another run might not;
        and with `limit`: "file" where a file would have become too large.
    """
    prepare_simulators(payload["task_paths"])
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # of hyperparameters that are our user's choice
    try:
        _train(payload)
    except RewardFailure as failure:
        return {"reason": printable(str(failure)), "by_machine": failure.by_clock}
    except TaskNotBuilt as error:
        return {"reason": str(error), "by_machine": True}
    except OSError as error:  # the task's files, the state, the disk: none of them the reward's
        reason = printable(f"training: {type(error).__name__}: {error}", 200)
        limit = {"limit": "file"} if error.errno == errno.EFBIG else {}
        return {"reason": reason, "by_machine": True, **limit}
    except (UserError, ValueError, TypeError, ArithmeticError) as error:
        return {"reason": printable(f"training: {type(error).__name__}: {error}", 200)}
    return {"reason": None}


def build_task(payload: Mapping[str, Any]) -> Task:
    """The task of a job; its module may lie outside the package."""
    base: Any = Task
    task: Task = build(payload["task"], base, "task")
    return task


def _train(payload: Mapping[str, Any]) -> None:
    with building():
        task = build_task(payload)
    algorithm, n_envs = payload["algorithm"], payload["n_envs"]
    shape = actor_shape(algorithm, payload["hyperparameters"])
    try:
        function = load_reward(payload["source"])
    except Exception as error:
        message = printable(f"{type(error).__name__} while it was loaded: {error}", 200)
        raise RewardFailure(message) from None
    reward = MeteredReward(function)
    with building():
        env = RewardVecEnv(task, reward, n_envs)
    model = _new_model(algorithm, payload["hyperparameters"], env, shape, payload["seed"])
    step, work = payload["first_step"], Path(payload["work"])
    if payload["before"] is not None:
        _restore(model, Path(payload["before"]) / STATE_FILE)
    report_file = (work / REPORT_FILE).open("a", encoding="utf-8", buffering=1)
    with report_file as report, reward.timed():
        progress = _Progress(report)
        for checkpoint in payload["checkpoints"]:
            _begin_anew(model, env, payload["seed"], step)
            missing = checkpoint - model.num_timesteps
            if missing > 0:
                model.learn(missing, callback=progress, reset_num_timesteps=False)
            _write(work / weights_name(checkpoint), save(_actor_tensors(model, shape)))
            total, components = reward.take_means()
            line = {"checkpoint": checkpoint, "steps": model.num_timesteps}
            _report(report, {**line, "total": total, "components": components})
            step = checkpoint
    _save_state(model, work / STATE_FILE)


def _new_model(
    algorithm: str,
    hyperparameters: Mapping[str, Any],
    env: RewardVecEnv,
    shape: ActorShape,
    seed: int,
) -> Any:
    arguments = completed(algorithm, hyperparameters, env.num_envs)
    policy = dict(policy_arguments(hyperparameters))
    if "net_arch" in policy and not isinstance(policy["net_arch"], Mapping):
        policy["net_arch"] = list(policy["net_arch"])
    if "activation_fn" in policy:
        policy["activation_fn"] = _ACTIVATIONS[shape.activation]
    if "action_noise" in arguments:
        width = int(np.prod(env.action_space.shape or ()))
        sigma = np.full(width, float(arguments["action_noise"]))
        arguments["action_noise"] = NormalActionNoise(np.zeros(width), sigma)
    arguments["policy_kwargs"] = policy
    set_random_seed(_seed(seed, "weights"))
    try:
        model = _ALGORITHMS[algorithm]("MlpPolicy", env, device="cpu", **arguments)
    except TypeError as error:
        raise ConfigError(f"hyperparameters: {error}") from error
    model.set_logger(Logger(folder=None, output_formats=[]))
    return model


def _begin_anew(model: Any, env: RewardVecEnv, seed: int, step: int) -> None:
    """All that is random from here on depends on the seed and the step alone."""
    number = _seed(seed, "from", step)
    set_random_seed(number)
    model.action_space.seed(number)
    env.seed(number)
    model._last_obs = env.reset()
    model._last_episode_starts = np.ones(env.num_envs, bool)


def _seed(seed: int, *names: str | int) -> int:
    return derived_seed(seed, "training", *names) % 2**31


def _actor_tensors(model: Any, shape: ActorShape) -> dict[str, torch.Tensor]:
    tensors = model.policy.state_dict()
    names = [f"{name}.{part}" for name in shape.layer_names() for part in ("weight", "bias")]
    return {name: tensors[name].detach().clone() for name in names}


def _save_state(model: Any, path: Path) -> None:
    """The learner's state, as tensors and plain values."""
    _, variables = model._get_torch_save_params()
    state: dict[str, Any] = {
        "parameters": model.get_parameters(),
        "variables": {name: getattr(model, name).detach() for name in variables},
        "counters": [model.num_timesteps, model._n_updates, model._episode_num],
    }
    buffer = getattr(model, "replay_buffer", None)
    if buffer is not None:
        end = buffer.buffer_size if buffer.full else buffer.pos
        state["replay"] = {
            name: torch.from_numpy(_part(buffer, name)[:end].copy()) for name in _REPLAY_ARRAYS
        }
        state["replay_position"] = [buffer.pos, buffer.full]
    temporary = path.with_suffix(".tmp")
    try:
        torch.save(state, temporary)
    except RuntimeError as error:  # all that torch says of a write that failed
        most, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
        is_full = temporary.exists() and temporary.stat().st_size == most
        raise OSError(errno.EFBIG if is_full else errno.EIO, str(error)) from error
    os.replace(temporary, path)


def _restore(model: Any, path: Path) -> None:
    state = torch.load(path, weights_only=True)
    model.set_parameters(state["parameters"], exact_match=True, device="cpu")
    for name, value in state["variables"].items():
        getattr(model, name).data.copy_(value)
    model.num_timesteps, model._n_updates, model._episode_num = state["counters"]
    if "replay" in state:
        buffer = model.replay_buffer
        for name, value in state["replay"].items():
            _part(buffer, name)[: len(value)] = value.numpy()
        buffer.pos, buffer.full = state["replay_position"]


def _part(buffer: Any, name: str) -> NDArray[Any]:
    part: NDArray[Any] = getattr(buffer, name)
    return part


class _Progress(BaseCallback):
    """Says now and then how far the training is."""

    def __init__(self, report: Any) -> None:
        super().__init__()
        self._report, self._next = report, 0.0

    def _on_step(self) -> bool:
        now = time.monotonic()
        if now >= self._next:
            self._next = now + PROGRESS_S
            _report(self._report, {"steps": self.num_timesteps})
        return True


def _report(report: Any, data: Mapping[str, Any]) -> None:
    report.write(json.dumps(data, allow_nan=False) + "\n")


def _write(path: Path, data: bytes) -> None:
    temporary = path.with_suffix(".tmp")
    temporary.write_bytes(data)
    os.replace(temporary, path)
