"""Hundreds of scene changes in one habitat-sim process don't fill the memory."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PYTHON = os.environ.get("EMBODIED_ICRL_HABITAT_PYTHON")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


def test_resident_memory_stays_flat_over_300_scene_changes(tmp_path: Path) -> None:
    if PYTHON is None and importlib.util.find_spec("habitat_sim") is None:
        pytest.skip("no habitat_sim here: name its Python in EMBODIED_ICRL_HABITAT_PYTHON")
    part = {"part": "memory", "changes": 300, "houses": 60, "cache": str(tmp_path)}
    done = subprocess.run(
        [PYTHON or sys.executable, ROOT / "benchmarks/habitat.py", "--row", json.dumps(part)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=True,
    )
    (line,) = (line for line in done.stdout.splitlines() if '"mib_after_20"' in line)
    row = json.loads(line[line.index("{") :])
    assert row["scene_changes"] == 300
    assert row["mib_most"] < 1.15 * row["mib_after_20"]
