"""The script behind the tables in docs/reward_search.md."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tests.integration.scripts import script_module


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = script_module("reward_tables", tmp_path, monkeypatch)
    monkeypatch.setattr(module, "ROOT", tmp_path)
    return module


def final(name: str, fitness: float) -> dict[str, Any]:
    return {"id": name, "fitness": fitness, "low": fitness - 0.1, "high": fitness + 0.1}


def test_missing_failed_and_finished_rows_are_told_apart(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[list[str]] = []

    def run(command: list[str], **options: Any) -> Any:
        commands.append(command)
        if "seed=1" in command:
            return SimpleNamespace(returncode=1)
        if "seed=2" in command:
            return SimpleNamespace(returncode=-9)
        folder = script.ROOT / next(w for w in command if w.startswith("run=")).removeprefix("run=")
        folder.mkdir(parents=True)
        baselines = [] if "baselines=false" in command else [("human", 0.8), ("sparse", 0.2)]
        finals = [final(name, fitness) for name, fitness in [("i2_s03", 0.72), *baselines]]
        steps = {"0": 9, "1": 10**6, "2": 500_000, "-1": 9}
        work = {key: {"env_steps": value, "wall_s": 1.0} for key, value in steps.items()}
        summary = {"work": work, "best": "i2_s03", "finals": finals}
        (folder / "summary.json").write_text(json.dumps(summary))
        return SimpleNamespace(returncode=0)

    monkeypatch.setattr(subprocess, "run", run)
    for seed in (0, 1):
        for racing in script.RACING:
            script.make_row("valve_turn", racing, seed, Path("runs"), 0)
    with pytest.raises(SystemExit, match="was stopped"):
        script.make_row("valve_turn", "none", 2, Path("runs"), 0)
    assert "baselines=false" in commands[1] and "baselines=false" not in commands[0]
    script.make_row("valve_turn", "none", 0, Path("runs"), 0)
    assert len(commands) == 5  # a finished row is not made again
    script.render()
    page = script.PAGE.read_text()
    row = "| 1.50M | 0.72 [0.62, 0.82] | 0.80 [0.70, 0.90] | 0.20 [0.10, 0.30] | 0.90 |"
    assert f"| valve_turn | 0 | halving {row}" in page and f"| valve_turn | 0 | none {row}" in page
    assert "| valve_turn | 1 | none | failed |" in page
    assert "| valve_turn | 2 |" not in page
    assert "; `valve_turn` halving 2; `valve_turn` none 2.\n" in page
    assert page.startswith("before\n") and page.endswith("\nafter\n") and "old" not in page
