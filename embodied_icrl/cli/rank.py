"""One training process of several (`cli.launch`): python -m embodied_icrl.cli.rank CONFIG.json"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from embodied_icrl.cli.errors import exit_status, leave_rank
from embodied_icrl.cli.train import train_here
from embodied_icrl.common.config import build
from embodied_icrl.training.config import TrainConfig


def main() -> int:
    """Train as this rank; returns its exit status."""
    node = json.loads(Path(sys.argv[1]).read_text())
    return exit_status(lambda: train_here(build(node, TrainConfig)), debug=node["debug"])


if __name__ == "__main__":
    leave_rank(main())
