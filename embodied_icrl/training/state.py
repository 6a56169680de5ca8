"""Everything that a resumed job needs to go on bit for bit, as plain tensors and JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from torch import Tensor

from embodied_icrl.training.trainer import Counters, Trainer

Tensors = dict[str, dict[str, Tensor]]


def shared_tensors(trainer: Trainer) -> Tensors:
    """Weights and optimiser tensors by parameter name: the same on every rank."""
    optimizer = trainer.updater.optimizer
    moments = {
        f"{name}/{key}": value.detach()
        for name, parameter in trainer.policy.named_parameters()
        for key, value in optimizer.state.get(parameter, {}).items()
    }
    return {"policy": dict(trainer.policy.state_dict()), "optimizer": moments}


def shared_state(trainer: Trainer) -> dict[str, Any]:
    """Counters as JSON: the same on every rank."""
    return {
        "counters": asdict(trainer.counters),
        "optimizer_steps": trainer.updater.optimizer_steps,
    }


def rank_state(trainer: Trainer) -> dict[str, Any]:
    """Random states, and inside a trial the environments and the rollout so far, of this rank.

    Nested dictionaries of JSON values, NumPy arrays and tensors.
    """
    state: dict[str, Any] = {
        "device": trainer.ranks.device.type,
        "minibatch_rng": trainer.minibatch_rng.bit_generator.state,
        "shuffle_rng": trainer.shuffle_rng.bit_generator.state,
        "act_generator": trainer.act_generator.get_state(),
        "dropout_generator": trainer.dropout_generator.get_state(),
    }
    if trainer.counters.position:
        collector = trainer.collector
        state["trial"] = {
            # First: a worker that turns out to be lost here changes what follows.
            "envs": trainer.envs.get_state(),
            "stream": collector.stream.state_dict(),
            "terminated": collector.terminated,
            "episodes": collector.episodes.finished,
            "rollout": trainer.rollout.state(),
        }
        if not trainer.config.ppo.refresh:
            # Stale keys can't be recomputed: they come from weights that are gone.
            state["trial"]["cache"] = trainer.cache.state_dict()
    state["workers_restarted"] = trainer.replacements.uncounted
    return state


def load_shared(trainer: Trainer, tensors: Tensors, state: dict[str, Any]) -> None:
    """Restore what `shared_tensors` and `shared_state` saved."""
    trainer.policy.load_state_dict(tensors["policy"])
    optimizer = trainer.updater.optimizer
    parameters = dict(trainer.policy.named_parameters())
    for name, value in tensors["optimizer"].items():
        parameter_name, key = name.rsplit("/", 1)
        # Adam keeps its step count on the CPU, whatever the device of the parameter.
        device = "cpu" if key == "step" else parameters[parameter_name].device
        optimizer.state[parameters[parameter_name]][key] = value.to(device)
    trainer.counters = Counters(**state["counters"])
    trainer.updater.optimizer_steps = state["optimizer_steps"]
    trainer.restart_wall_clock()


def load_rank(trainer: Trainer, state: dict[str, Any]) -> None:
    """Restore what `rank_state` saved; call after `load_shared`.

    Between a CPU and a GPU everything but the torch generators goes on.
    """
    trainer.minibatch_rng.bit_generator.state = state["minibatch_rng"]
    trainer.shuffle_rng.bit_generator.state = state["shuffle_rng"]
    # Checkpoints from before workers were replaced have no such entry.
    trainer.replacements.uncounted = state.get("workers_restarted", 0)
    if state["device"] == trainer.ranks.device.type:
        trainer.act_generator.set_state(_bytes(state["act_generator"]))
        trainer.dropout_generator.set_state(_bytes(state["dropout_generator"]))
    else:  # the generators of CPUs and GPUs have nothing in common
        trainer.seed_generators(f"from update {trainer.counters.update}")
    if not trainer.counters.position:
        return
    trial, collector = state["trial"], trainer.collector
    trainer.envs.set_state(trial["envs"])
    collector.stream.load_state_dict(trial["stream"])
    collector.terminated = np.asarray(trial["terminated"], dtype=bool)
    collector.episodes.finished = [list(episodes) for episodes in trial["episodes"]]
    trainer.rollout.load_state({k: torch.as_tensor(v) for k, v in trial["rollout"].items()})
    if trainer.config.ppo.refresh:
        trainer.rebuild_cache(store_values=False)
    else:
        trainer.cache.load_state_dict(trial["cache"])


def begin_next_trial(trainer: Trainer, trials: int) -> None:
    """Leave the trial that was running: a job of another size can't continue it.

    Random streams begin anew under names that no earlier part of the run has used.
    """
    trainer.counters.trial = trials
    trainer.counters.position = 0
    trainer.seed_streams(f"from update {trainer.counters.update}")


def _bytes(state: Any) -> Tensor:
    return torch.as_tensor(state, dtype=torch.uint8).cpu()
