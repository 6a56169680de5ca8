"""Several training processes on this machine, through torch's elastic launcher (torchrun's)."""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from embodied_icrl.training.signals import LAUNCHER

# A stop request is answered after the running update; big jobs may need minutes for that.
SHUTDOWN_TIMEOUT_S = 900


def launch_processes(config: Mapping[str, Any], processes: int) -> int:
    """Start `processes` ranks that train with `config` (a `TrainConfig` as data) and wait.

    A failing rank ends the others; its traceback is on stderr. SIGINT, SIGTERM and SIGUSR1 are
    forwarded.

    Returns:
        0 after success, 128 + signal after a stop request, 2 after a usage error, else 1.
    """
    from torch.distributed.elastic.multiprocessing import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    os.environ.setdefault("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", str(SHUTDOWN_TIMEOUT_S))
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ[LAUNCHER] = str(os.getpid())
    # What went wrong is said by the rank and below; the library's own report repeats it at length.
    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)
    with tempfile.TemporaryDirectory(prefix="embodied-icrl-") as folder:
        path = Path(folder, "config.json")
        path.write_text(json.dumps(config))
        launcher = elastic_launch(
            LaunchConfig(
                min_nodes=1,
                max_nodes=1,
                nproc_per_node=processes,
                run_id="embodied-icrl",
                rdzv_backend="c10d",
                rdzv_endpoint="127.0.0.1:0",
                local_addr="127.0.0.1",
                max_restarts=0,
                signals_to_handle="SIGTERM,SIGINT,SIGUSR1",
            ),
            sys.executable,
        )
        try:
            launcher("-m", "embodied_icrl.cli.rank", str(path))
        except SignalException as stopped:
            return 128 + int(stopped.sigval)
        except ChildFailedError as failed:
            return _exit_code(failed)
        finally:
            # A later job of this process (`--multirun`) may train here, without a launcher.
            del os.environ[LAUNCHER]
    return 0


def _exit_code(failed: Any) -> int:
    """The status of the rank that failed first, and a line that names the rank."""
    rank, first = failed.get_first_failure()
    code = int(first.exitcode)
    if code < 0:
        name = signal.Signals(-code).name
        print(f"error: training process {rank} was killed by {name}", file=sys.stderr)
        return 1
    if code == 1:
        print(
            f"error: training process {rank} failed, its traceback is above; the others were ended",
            file=sys.stderr,
        )
    return code
