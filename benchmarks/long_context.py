"""Training at a context of 16,384 tokens: does it run through, in how much memory and time?

A real, short training in a process of its own, as `embodied-icrl train` would run it: 8
environments, one trial of Darkroom with 128 long episodes, 16 policy updates with
`context_gradient: detached` (the last one on the whole rollout), shuffling and refresh after each,
a checkpoint at the end.
"""

from __future__ import annotations

import sys
import tempfile
import time

from common import Row, Table, fresh_process, parser, peak_rss_mib, run_benchmark, say

LIMIT_GIB = 8.0
FULL = {"num_envs": 8, "context": 16384, "updates": 16, "horizon": 127, "dim": 15}
QUICK = {"num_envs": 2, "context": 128, "updates": 4, "horizon": 15, "dim": 5}
TIMES = ("time_collect_s", "time_update_s", "time_refresh_s")


def make_row(num_envs: int, context: int, updates: int, horizon: int, dim: int) -> Row:
    """Train for one trial, whose episodes of `horizon` + 1 tokens fill the context exactly."""
    from embodied_icrl.common.config import build
    from embodied_icrl.runs.metrics import read_metrics
    from embodied_icrl.training.config import TrainConfig
    from embodied_icrl.training.job import train

    before = peak_rss_mib()
    wall, cpu = time.perf_counter(), time.process_time()
    with tempfile.TemporaryDirectory(prefix="embodied-icrl-bench-") as folder:
        node = {
            "env": {
                "_target_": "embodied_icrl.envs.darkroom.DarkroomConfig",
                "dim": dim,
                "horizon": horizon,
            },
            "run": f"{folder}/run",
            "device": "cpu",
            "vector": {"num_envs": num_envs},
            "policy": {"layers": 2, "width": 64},
            "ppo": {
                "num_steps": context,
                "updates_per_rollout": updates,
                "context_gradient": "detached",
                "epochs": 1,
                "minibatches": num_envs,
            },
            "trainer": {"total_steps": num_envs * context * horizon // (horizon + 1)},
            "evaluation": {"final": False},
            "logging": {"log_every_s": 60.0, "tensorboard": False},
        }
        result = train(build(node, TrainConfig))
        metrics = read_metrics(result.run)
    peak = peak_rss_mib()
    return {
        "num_envs": num_envs,
        "context": context,
        "updates": len(metrics),
        "env_steps": result.step,
        "wall_s": time.perf_counter() - wall,
        "cpu_s": time.process_time() - cpu,
        **{name: sum(row[name] for row in metrics) for name in TIMES},
        "peak_rss_mib": peak,
        "peak_rss_before_training_mib": before,
        "limit_gib": LIMIT_GIB,
        "within_limit": peak < LIMIT_GIB * 1024,
        "per_update": [
            {name: row[name] for name in ("update", "tokens", "full_update", *TIMES)}
            for row in metrics
        ],
    }


TABLE = Table(
    "Training, 2 layers x 64, context_gradient: detached, one thread",
    {
        "envs": lambda r: str(r["num_envs"]),
        "context": lambda r: f"{r['context']:,}",
        "updates": lambda r: str(r["updates"]),
        "CPU s": lambda r: f"{r['cpu_s']:,.0f}",
        "wall s": lambda r: f"{r['wall_s']:,.0f}",
        "of it acting": lambda r: f"{r['time_collect_s']:,.0f}",
        "updates ": lambda r: f"{r['time_update_s']:,.0f}",
        "refresh": lambda r: f"{r['time_refresh_s']:,.0f}",
        "peak RSS": lambda r: f"{r['peak_rss_mib'] / 1024:.2f} GiB",
        f"under {LIMIT_GIB:.0f} GiB": lambda r: "yes" if r["within_limit"] else "NO",
    },
)


def main() -> int:
    arguments = parser(__doc__).parse_args()

    def rows() -> list[Row]:
        sizes = QUICK if arguments.quick else FULL
        say(f"long_context: {sizes}")
        return [fresh_process(__file__, **sizes)]

    return run_benchmark(__file__, arguments, rows, TABLE, make_row)


if __name__ == "__main__":
    sys.exit(main())
