"""The pages in docs/ do what they say."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from embodied_icrl.common.errors import MissingDependencyError
from embodied_icrl.common.paths import config_dir
from embodied_icrl.envs.trial_env import TrialEnvConfig
from embodied_icrl.runs.metrics import read_metrics

DOCS = Path(__file__).resolve().parents[2] / "docs"


def files_of(page: str) -> dict[str, str]:
    """Code blocks that follow a line ending with a file's name in backticks and a colon."""
    text = (DOCS / page).read_text()
    found = re.findall(r"`([\w./]+\.\w+)`:\n\n```\w+\n(.*?)```", text, flags=re.DOTALL)
    return dict(found)


def write_lab(folder: Path, *pages: str) -> set[str]:
    """Write the files that the pages show; returns their names."""
    files = {name: text for page in pages for name, text in files_of(page).items()}
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return set(files)


def python(folder: Path, *words: str) -> str:
    """Run Python in a folder; returns what it printed."""
    done = subprocess.run(
        [sys.executable, *words], check=True, cwd=folder, capture_output=True, text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"}, timeout=150,
    )  # fmt: skip
    return done.stdout


CLI, LAB = ("-m", "embodied_icrl"), ("--config-dir", "my_lab")


def blocks_of(page: str) -> list[str]:
    """The Python code on a page."""
    return re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(), flags=re.DOTALL)


def test_your_environment(tmp_path: Path) -> None:
    files = write_lab(tmp_path, "your_environment.md")
    assert files == {
        "my_lab/corners.py", "my_lab/env/corners.yaml", "my_lab/experiment/corners.yaml",
        "my_lab/cart.py", "my_lab/env/cart.yaml", "my_lab/experiment/cart.yaml",
    }  # fmt: skip
    train = (*CLI, "train", *LAB, "experiment=corners", "run=runs/corners")
    python(tmp_path, *train, "trainer.total_steps=4000")
    assert read_metrics(tmp_path / "runs/corners")[-1]["return_last"] is not None
    evaluate = (*CLI, "evaluate", *LAB, "run=runs/corners", "context=full", "n_trials=8")
    python(tmp_path, *evaluate, "output=e.json")
    report = json.loads((tmp_path / "e.json").read_text())
    assert report["references"]["oracle"]["return"] == 1.0


def test_an_environment_that_is_there_already(tmp_path: Path) -> None:
    write_lab(tmp_path, "your_environment.md")
    config = yaml.safe_load((tmp_path / "my_lab/env/cart.yaml").read_text())
    page = (DOCS / "your_environment.md").read_text()
    table = page[page.index("| key | meaning |") : page.index("`apply_task` is called before")]
    keys = {field.name for field in dataclasses.fields(TrialEnvConfig)}
    assert keys == set(re.findall(r"`(\w+)`", " ".join(re.findall(r"^\|(.*?)\|", table, re.M))))
    assert config.keys() - {"_target_"} <= keys
    train = (*CLI, "train", *LAB, "experiment=cart", "run=runs/cart", "evaluation.final=false")
    python(tmp_path, *train, "trainer.total_steps=3000")
    last = read_metrics(tmp_path / "runs/cart")[-1]
    assert 5 < last["length_last"] <= 50 and last["success_last"] is None


def test_extending(tmp_path: Path) -> None:
    write_lab(tmp_path, "your_environment.md", "extending.md")
    words = (*CLI, "train", *LAB, "experiment=corners_waves", "run=runs/waves")
    python(tmp_path, *words, "trainer.total_steps=1500", "evaluation.final=false")

    script, by_hand = tmp_path / "my_lab/by_hand.py", blocks_of("extending.md")[-1]
    small = script.read_text().replace("total_steps=20_000", "total_steps=1500")
    script.write_text(
        f"{small}{by_hand}print(row['update'])\n"
        "from embodied_icrl import load_agent\n"
        "agent = load_agent('runs/waves')\n"
        "print(agent.policy, agent.act({'place': torch.zeros(2).numpy()}))\n"
    )
    said, updates, *agent = python(tmp_path, "my_lab/by_hand.py").splitlines()
    assert said.endswith("steps in runs/by_hand, finished: True") and int(updates) > 1
    assert any("Waves(" in line for line in agent)
    named = re.findall(r"`((?:\w+/)+\w+\.py)`", (DOCS / "extending.md").read_text())
    assert len(named) > 15
    for name in named:
        places = (DOCS.parent, DOCS.parent / "embodied_icrl", tmp_path)
        assert any((place / name).exists() for place in places), name


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
    loop, attention = blocks_of("../README.md")
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
    (code,) = blocks_of("houses.md")
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
