"""The pages in docs/ do what they say."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

from embodied_icrl.runs.metrics import read_metrics

DOCS = Path(__file__).resolve().parents[2] / "docs"


def files_of(page: str) -> dict[str, str]:
    """Code blocks that follow a line ending with a file's name in backticks and a colon."""
    text = (DOCS / page).read_text()
    found = re.findall(r"`([\w./]+\.\w+)`:\n\n```\w+\n(.*?)```", text, flags=re.DOTALL)
    return dict(found)


def test_your_environment(tmp_path: Path) -> None:
    files = files_of("your_environment.md")
    assert set(files) == {
        "my_lab/corners.py", "my_lab/env/corners.yaml", "my_lab/experiment/corners.yaml",
    }  # fmt: skip
    for name, content in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)

    def cli(*words: str) -> None:
        subprocess.run(
            [sys.executable, "-m", "embodied_icrl", *words],
            check=True, cwd=tmp_path, env={**os.environ, "OMP_NUM_THREADS": "1"}, timeout=120,
        )  # fmt: skip

    lab = ("--config-dir", "my_lab")
    cli("train", *lab, "experiment=corners", "run=runs/corners", "trainer.total_steps=4000")
    assert read_metrics(tmp_path / "runs/corners")[-1]["return_last"] is not None
    cli("evaluate", *lab, "run=runs/corners", "context=full", "n_trials=8", "output=e.json")
    report = json.loads((tmp_path / "e.json").read_text())
    assert report["references"]["oracle"]["return"] == 1.0


def test_every_metric_that_training_writes_is_explained(tmp_path: Path) -> None:
    from embodied_icrl.training.trainer import EPISODE_METRICS
    from tests.training.tiny import tiny_trainer

    row = tiny_trainer().update_once()
    page = (DOCS / "metrics.md").read_text()
    for key in row.keys() - set(EPISODE_METRICS):
        assert f"`{key}`" in page, key
