"""Speed and memory of a policy update against context length, for both `context_gradient` modes.

One epoch with one minibatch over a rollout of random tokens, through the trainer's own `Updater`:

  full                   back-propagation through the whole context
  detached, newest       a segment of 256 tokens against the constant keys and values of the rest
  detached, whole        the whole rollout, segment by segment, each against the rest before it

`tokens` are those that go through the network with gradient. Every row is measured in a process of
its own, because it is also about peak memory; CPU time is what to compare.
"""

from __future__ import annotations

import sys
from typing import Literal

import numpy as np
import torch
from common import (
    Row,
    Table,
    fresh_process,
    measure,
    parser,
    peak_rss_mib,
    per_item,
    run_benchmark,
    say,
)

from embodied_icrl.envs.darkroom import DarkroomConfig
from embodied_icrl.policy import KVCache, Policy, PolicyConfig
from embodied_icrl.training.config import PPOConfig
from embodied_icrl.training.distributed import Ranks
from embodied_icrl.training.rollout import Rollout
from embodied_icrl.training.update import Bootstrap, Updater

SEGMENT = 256
ENVS = 4
CONTEXTS = (256, 1024, 4096, 16384)
QUICK_CONTEXTS = (64,)
QUICK_SEGMENT = 32
MODES: dict[str, tuple[Literal["full", "detached"], bool]] = {
    "full": ("full", True),
    "detached, newest": ("detached", False),
    "detached, whole": ("detached", True),
}
POLICY = PolicyConfig(layers=2, width=64, heads=4, mlp_width=256)


def random_rollout(policy: Policy, envs: int, steps: int, horizon: int) -> Rollout:
    """A full rollout of episodes of `horizon` steps with random observations and rewards."""
    rng = np.random.default_rng(0)
    rollout = Rollout(policy, envs, steps)
    batch = rollout.batch
    for key, space in policy.observation_space.spaces.items():  # type: ignore[attr-defined]
        batch.stored[key][:] = torch.from_numpy(rng.integers(space.nvec, size=(envs, steps, 2)))
    step = torch.arange(steps) % (horizon + 1)
    batch.step_in_episode[:] = step
    batch.episode_start[:] = step == 0
    batch.terminal[:] = step == horizon
    actions = torch.from_numpy(rng.integers(5, size=(envs, steps)))
    rollout.action[:] = actions
    batch.prev_action[:, 1:] = actions[:, :-1].masked_fill(batch.episode_start[:, 1:], -1)
    rollout.reward[:] = torch.from_numpy((rng.random((envs, steps)) < 0.1).astype(np.float32))
    rollout.log_prob.fill_(-np.log(5))
    rollout.length = steps
    return rollout


def random_memory(policy: Policy, envs: int, steps: int) -> KVCache:
    """Random keys and values in place of the refreshed ones: the update takes as long."""
    cache = policy.new_cache(envs, steps + 1)
    cache.data.normal_(generator=torch.Generator().manual_seed(0))
    cache.length = steps
    return cache


def make_row(mode: str, context: int, rounds: int, envs: int = ENVS, segment: int = SEGMENT) -> Row:
    torch.manual_seed(0)
    env = DarkroomConfig().build(1)
    horizon = env.max_episode_steps
    policy = Policy(POLICY, env.single_observation_space, env.single_action_space, horizon)
    gradient, whole = MODES[mode]
    rollout = random_rollout(policy, envs, context, horizon)
    cache = random_memory(policy, envs, context)
    updater = Updater(
        policy,
        PPOConfig(
            num_steps=context,
            updates_per_rollout=context // segment,
            context_gradient=gradient,
            epochs=1,
            minibatches=1,
        ),
        Ranks(0, 1, torch.device("cpu")),
        rng=np.random.default_rng(0),
        dropout=torch.Generator(),
    )
    nothing = np.zeros(envs, dtype=bool)
    bootstrap = Bootstrap(np.zeros(envs, dtype=np.float32), nothing, nothing)
    before = peak_rss_mib()

    def update() -> None:
        updater.update(rollout, cache, bootstrap, full=whole, progress=0.0)

    # The first update at a short context pays for what torch sets up once.
    if context <= 1024:
        update()
    samples = [measure(update) for _ in range(rounds)]
    tokens = envs * (segment if mode == "detached, newest" else context)
    timing = per_item(samples, 1)
    return {
        "mode": mode,
        "context": context,
        "envs": envs,
        "segment": segment,
        "tokens": tokens,
        **timing,
        "tokens_per_s": 1e3 * tokens / timing["wall_ms"],
        "tokens_per_cpu_s": 1e3 * tokens / timing["cpu_ms"],
        "peak_rss_mib": peak_rss_mib(),
        "peak_rss_before_mib": before,
    }


def measure_all(contexts: tuple[int, ...], envs: int, segment: int, quick: bool) -> list[Row]:
    rows = []
    for context in contexts:
        for mode in MODES:
            say(f"update: context {context}, {mode}")
            rounds = 1 if quick else {256: 15, 1024: 7, 4096: 3}.get(context, 1)
            sizes = {"context": context, "rounds": rounds, "envs": envs, "segment": segment}
            rows.append(fresh_process(__file__, mode=mode, **sizes))
    return rows


TABLE = Table(
    "A policy update, 2 layers x 64, one thread, one epoch in one minibatch",
    {
        "context": lambda r: f"{r['context']:,}",
        "envs": lambda r: str(r["envs"]),
        "gradient": lambda r: r["mode"],
        "tokens": lambda r: f"{r['tokens']:,}",
        "CPU s/update": lambda r: f"{r['cpu_ms'] / 1e3:.3f}",
        "tokens/CPU s": lambda r: f"{r['tokens_per_cpu_s']:,.0f}",
        "tokens/s": lambda r: f"{r['tokens_per_s']:,.0f}",
        "peak RSS": lambda r: f"{r['peak_rss_mib']:,.0f} MiB",
    },
)


def main() -> int:
    arguments = parser(__doc__).parse_args()

    def rows() -> list[Row]:
        if arguments.quick:
            return measure_all(QUICK_CONTEXTS, envs=2, segment=QUICK_SEGMENT, quick=True)
        return measure_all(CONTEXTS, envs=ENVS, segment=SEGMENT, quick=False)

    return run_benchmark(__file__, arguments, rows, TABLE, make_row)


if __name__ == "__main__":
    sys.exit(main())
