"""`embodied-icrl train`."""

from __future__ import annotations

import os
import sys
import time
import traceback
from dataclasses import replace
from pathlib import Path
from typing import Any

from embodied_icrl.cli.errors import CommandStopped
from embodied_icrl.cli.launch import launch_processes
from embodied_icrl.common.config import build, to_dict
from embodied_icrl.common.errors import UserError
from embodied_icrl.training.config import TrainConfig

# What timeout(1) returns, too.
TIME_IS_OVER = 124

# Longer than a launcher takes to see a dead process and to end the others.
_LAUNCHER_REACTS_S = 5.0


def run_train(node: Any) -> None:
    """Check the composed configuration, then train in this process or in `processes` of them."""
    config = build(node, TrainConfig)
    world_size = int(os.environ.get("WORLD_SIZE", "1"))
    if "TORCHELASTIC_RUN_ID" in os.environ or world_size > 1:
        # Started by torchrun, which says how many there are; the run records that.
        train_here(replace(config, processes=world_size))
    elif config.processes == 1:
        train_here(config)
    else:
        code = launch_processes(to_dict(config), config.processes)
        if code:
            raise CommandStopped(code)


def train_here(config: TrainConfig) -> None:
    """Train in this process; raises CommandStopped if it ends before `total_steps`."""
    from embodied_icrl.training.job import train

    rank = int(os.environ.get("RANK", "0"))
    try:
        result = train(config)
    except Exception as error:
        if _another_rank_tells(error, rank):
            time.sleep(_LAUNCHER_REACTS_S)
        raise
    if result.finished:
        return
    if rank == 0:
        reason = "trainer.max_seconds is over"
        if result.signal:
            reason = f"stopped by signal {result.signal}"
        print(
            f"{reason} at step {result.step:,}, checkpoint saved; "
            f"the same command continues from there ({result.run})",
            file=sys.stderr,
        )
    raise CommandStopped(128 + result.signal if result.signal else TIME_IS_OVER)


def _another_rank_tells(error: Exception, rank: int) -> bool:
    """Whether this rank's error most likely repeats, or follows from, another one's.

    Then it waits to be ended, so that a person reads one report. A collective operation fails when
    another rank is gone; a user error is met by every rank, and rank 0 says it.
    """
    if isinstance(error, UserError):
        return rank > 0
    frames = traceback.extract_tb(error.__traceback__)
    return bool(frames) and str(Path("torch", "distributed")) in frames[-1].filename
