"""Environment steps per second of the grid worlds, with random actions, in one process.

Counted are the steps of `env.step` as the training rollout calls it: episode ends, new episodes and
their statistics included. Actions are drawn beforehand.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from common import Row, Table, Variant, interleaved, parser, per_item, run_benchmark, say

from embodied_icrl.envs.darkroom import DarkroomConfig
from embodied_icrl.envs.grid_house_config import GridHouseConfig
from embodied_icrl.envs.key_to_door import KeyToDoorConfig

CONFIGS: dict[str, Any] = {
    "Darkroom": DarkroomConfig(),
    "dark key-to-door": KeyToDoorConfig(),
    "GridHouse": GridHouseConfig(),
}
NUM_ENVS = (16, 64, 256)


def stepper(config: Any, num_envs: int, steps: int) -> Callable[[], None]:
    """Work of `steps` steps of `num_envs` environments, going on where the last call ended."""
    env = config.build(num_envs, seed=0)
    env.reset()
    rng = np.random.default_rng(0)
    actions = rng.integers(env.single_action_space.n, size=(steps, num_envs))

    def work() -> None:
        for action in actions:
            env.step(action)

    return work


def measure(num_envs: tuple[int, ...], steps: int, rounds: int) -> list[Row]:
    """One row per environment and number of copies, all timed interleaved."""
    cases = [(name, n) for name in CONFIGS for n in num_envs]
    say(f"envs: {rounds} rounds of {len(cases)} x {steps} steps")
    work = {f"{name} {n}": Variant(stepper(CONFIGS[name], n, steps)) for name, n in cases}
    samples = interleaved(work, rounds)
    rows = []
    for name, n in cases:
        timing = per_item(samples[f"{name} {n}"], steps)
        rows.append(
            {
                "env": name,
                "num_envs": n,
                "steps_per_sample": steps,
                **timing,
                "env_steps_per_s": 1e3 * n / timing["wall_ms"],
                "env_steps_per_cpu_s": 1e3 * n / timing["cpu_ms"],
            }
        )
    return rows


TABLE = Table(
    "Environment steps, random actions, one process",
    {
        "environment": lambda r: r["env"],
        "copies": lambda r: str(r["num_envs"]),
        "CPU us/env step": lambda r: f"{1e3 * r['cpu_ms'] / r['num_envs']:.2f}",
        "env steps/CPU s": lambda r: f"{r['env_steps_per_cpu_s']:,.0f}",
        "env steps/s": lambda r: f"{r['env_steps_per_s']:,.0f}",
    },
)


def main() -> int:
    arguments = parser(__doc__).parse_args()

    def rows() -> list[Row]:
        if arguments.quick:
            return measure(NUM_ENVS[:1], steps=50, rounds=2)
        return measure(NUM_ENVS, steps=1000, rounds=7)

    return run_benchmark(__file__, arguments, rows, TABLE)


if __name__ == "__main__":
    sys.exit(main())
