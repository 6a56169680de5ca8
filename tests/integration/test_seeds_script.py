"""The script behind the README's table of seeds."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.integration.scripts import BENCHMARKS, script_module


@pytest.fixture
def seeds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = script_module("seeds", tmp_path, monkeypatch, page="README")
    monkeypatch.setattr(module, "ROOT", tmp_path)
    return module


def evaluation(first: float, last: float) -> dict[str, Any]:
    curve = {"mean": [first, last, last]}
    means = {"return": 1.0, "length": 2.0}
    return {
        "checkpoint": "step_1",
        "n_trials": 4,
        "metrics": {"return": curve, "length": curve, "success": {"mean": [0.5, 0.9, 0.9]}},
        "references": {"random": means, "oracle": means},
    }


def test_missing_failed_and_finished_rows_are_told_apart(
    seeds: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[str, ...]] = []

    def cli(*words: str) -> None:
        calls.append(words)
        if "seed=1" in words:
            raise seeds.subprocess.CalledProcessError(1, "train")
        if words[0] == "train":
            run = seeds.ROOT / "runs" / "demo_seed0"
            (run / "evaluation").mkdir(parents=True)
            (run / "metrics.jsonl").write_text(json.dumps({"step": 3_000_000, "wall_s": 120}))
            for context, last in (("full", 9.0), ("cleared", 2.5)):
                report = evaluation(2.0, last)
                (run / "evaluation" / f"{context}.json").write_text(json.dumps(report))

    monkeypatch.setattr(seeds, "cli", cli)
    for seed in (0, 1):
        seeds.make_row("demo", seed, Path("runs"), 4)
    seeds.render()
    text = seeds.README.read_text()
    assert text.startswith("before\n") and text.endswith("after\n") and "old" not in text
    rows = {tuple(line.split(" | ")[:2]): line for line in text.splitlines() if "|" in line}
    assert "| 3.0M | 2 | 2.0 return | 9.0 |" in rows["| demo", "0"]
    assert "failed" in rows["| demo", "1"] and ("| demo", "2") not in rows
    assert "\n\nSeeds not trained yet: `demo` 2; `grid_house` 0, 1, 2; " in text
    # Finished rows are not made again, failed ones are.
    calls.clear()
    for seed in (0, 1):
        seeds.make_row("demo", seed, Path("runs"), 4)
    assert [words[2] for words in calls] == ["seed=1"]


def test_the_readme_has_the_markers() -> None:
    text = (BENCHMARKS.parent / "README.md").read_text()
    assert text.count("<!-- seeds:begin -->") == text.count("<!-- seeds:end -->") == 1
