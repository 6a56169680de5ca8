"""The pages in docs/ do what they say."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from embodied_icrl.common.errors import MissingDependencyError
from embodied_icrl.common.paths import config_dir
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


@pytest.mark.timeout(400)  # the checks start processes
def test_the_reward_of_ones_own_is_accepted() -> None:
    from embodied_icrl.manipulation.planar_reach import PlanarReach
    from embodied_icrl.reward_search.checks import check_reward

    source = files_of("reward_search.md")["my_reward.py"]
    report = check_reward(source, PlanarReach(), components="sum")
    assert report.accepted, report.findings


def test_the_readme_in_python(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The agent's loop learns in context, in any folder; the attention takes what it says."""
    monkeypatch.chdir(tmp_path)
    text = (DOCS.parent / "README.md").read_text()
    loop, attention = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    printed: list[str] = []
    exec(loop, {"print": printed.append})
    returns = [float(line.rpartition(" ")[2]) for line in printed]
    assert len(returns) == 10 and returns[0] < 5 and min(returns[-3:]) > 8, returns

    q, k = torch.randn(2, 4, 3, 8), torch.randn(2, 4, 7, 8)
    sink = torch.zeros(4, 8)
    names = {"q": q, "k": k, "v": k, "sink_k": sink, "sink_v": sink, "past_tokens": 4}
    exec(attention, names)
    assert names["out"].shape == q.shape


def test_every_metric_that_training_writes_is_explained(tmp_path: Path) -> None:
    from embodied_icrl.training.trainer import EPISODE_METRICS
    from tests.training.tiny import tiny_trainer

    row = tiny_trainer().update_once()
    page = (DOCS / "metrics.md").read_text()
    for key in row.keys() - set(EPISODE_METRICS):
        assert f"`{key}`" in page, key


def test_the_simulator_by_itself() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", (DOCS / "houses.md").read_text(), flags=re.DOTALL)
    names: dict[str, Any] = {}
    try:
        exec(code, names)
    except MissingDependencyError as error:
        pytest.skip(str(error))
    shapes = {key: array.shape for key, array in names["seen"].items()}
    assert shapes == {"rays.distance": (2, 64), "rays.class": (2, 64), "head": (2, 128, 128, 3)}
    assert names["seen"]["head"].std() > 5


def test_every_rung_of_the_ladder_is_there() -> None:
    page = (DOCS / "houses.md").read_text()
    rungs = {path.stem for path in config_dir().glob("env/house_nav_*.yaml")} - {
        "house_nav_habitat"
    }
    for name in rungs:
        assert f"`{name}`" in page
