"""Small trainings, and reward code that got past the checks, for the tests of this folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from embodied_icrl.reward_search.records import Job
from tests.reward_search.tasks import TASK

NODE = {"_target_": "embodied_icrl.manipulation.planar_reach.PlanarReach", "horizon": 20}
HONEST = TASK.human_reward

# The static check refuses all of these; here they run, to see what the sandbox makes of them.
# `hidden` gives them the modules of the interpreter.
HIDDEN = """
def hidden():
    for kind in ().__class__.__base__.__subclasses__():
        if kind.__name__ == "_wrap_close":
            return kind.__init__.__globals__["sys"].modules

def compute_reward(state):
    attack()
    return -1.0, {"one": -1.0}

"""


def attack(code: str) -> str:
    """A reward that first runs the function `attack` of `code`."""
    return HIDDEN + code


def small_job(folder: Path | str, source: str = HONEST, **changes: Any) -> Job:
    """A training of 256 steps with two checkpoints."""
    values: dict[str, Any] = {
        "candidate": "c",
        "source": source,
        "task": NODE,
        "algorithm": "ppo",
        "n_envs": 4,
        "seed": 3,
        "first_step": 0,
        "last_step": 256,
        "checkpoints": (128, 256),
        "folder": str(folder),
        "episodes": 3,
        "hyperparameters": {"n_steps": 32, "batch_size": 64, "n_epochs": 2},
    }
    if changes.get("algorithm", "ppo") != "ppo":
        # Small enough that the buffer is full, and wraps around, before the end.
        values["hyperparameters"] = {
            "learning_starts": 16, "buffer_size": 160, "batch_size": 16,
            "policy_kwargs": {"net_arch": [16, 16]},
        }  # fmt: skip
    return Job(**{**values, **changes})
