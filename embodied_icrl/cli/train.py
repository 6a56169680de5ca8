"""`embodied-icrl train`."""

from __future__ import annotations

import os
import sys
from typing import Any

from embodied_icrl.cli.errors import CommandStopped
from embodied_icrl.cli.launch import launch_processes
from embodied_icrl.common.config import build, to_dict
from embodied_icrl.training.config import TrainConfig


def run_train(node: Any) -> None:
    """Check the composed configuration, then train in this process or in `processes` of them."""
    config = build(node, TrainConfig)
    started_by_torchrun = "TORCHELASTIC_RUN_ID" in os.environ or "WORLD_SIZE" in os.environ
    if config.processes > 1 and not started_by_torchrun:
        code = launch_processes(to_dict(config), config.processes)
        if code:
            raise CommandStopped(code)
        return
    train_here(config)


# What timeout(1) returns, too.
TIME_IS_OVER = 124


def train_here(config: TrainConfig) -> None:
    """Train in this process; raises CommandStopped if it ends before `total_steps`."""
    from embodied_icrl.training.job import train

    result = train(config)
    if result.finished:
        return
    if int(os.environ.get("RANK", "0")) == 0:
        reason = (
            f"stopped by signal {result.signal}" if result.signal else "trainer.max_seconds is over"
        )
        print(
            f"{reason} at step {result.step:,}, checkpoint saved; "
            f"the same command continues from there ({result.run})",
            file=sys.stderr,
        )
    raise CommandStopped(128 + result.signal if result.signal else TIME_IS_OVER)
