"""One training process of several (`cli.launch`): python -m embodied_icrl.cli.rank CONFIG.json"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from embodied_icrl.cli.errors import exit_status
from embodied_icrl.cli.train import train_here
from embodied_icrl.common.config import build
from embodied_icrl.training.config import TrainConfig

# Longer than the launcher takes to see a dead process and to end the others.
_LAUNCHER_REACTS_S = 10.0


def main() -> int:
    """Train as this rank; returns its exit status."""
    node = json.loads(Path(sys.argv[1]).read_text())
    return exit_status(lambda: _train(node), debug=node["debug"])


def _train(node: dict[str, Any]) -> None:
    try:
        train_here(build(node, TrainConfig))
    except Exception as error:
        if _lost_a_peer(error):
            # The one that failed tells why; the launcher ends this one meanwhile.
            time.sleep(_LAUNCHER_REACTS_S)
        raise


def _lost_a_peer(error: Exception) -> bool:
    """Whether a collective operation failed, as it does when another rank is gone."""
    frames = traceback.extract_tb(error.__traceback__)
    return bool(frames) and str(Path("torch", "distributed")) in frames[-1].filename


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # Not sys.exit: after a failure, the teardown of a process group that waits for a dead rank may
    # hang.
    os._exit(status)
