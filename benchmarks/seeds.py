"""Train and evaluate experiments over seeds, and fill the README's table. Resumable.

    python benchmarks/seeds.py                     # everything that is missing, then the table
    python benchmarks/seeds.py --experiments demo --seeds 1 2
    python benchmarks/seeds.py --render            # the table only, from benchmarks/results/seeds/

A row is finished once its result file exists; a training that was stopped goes on from its
checkpoint. A seed that fails is a row that says so. Seeds without a result are named below the
table.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "seeds"
README = ROOT / "README.md"
BEGIN, END = "<!-- seeds:begin -->", "<!-- seeds:end -->"
EXPERIMENTS = ("demo", "grid_house", "grid_house_4rooms", "house_nav_rays")
# The experiment whose weights another one starts from (same seed): a curriculum.
STARTS_FROM = {"grid_house_4rooms": "grid_house"}
# Exit statuses of a training that was stopped and can go on: a time cap, a signal.
STOPPED = (124, *range(128, 160))
# What each experiment is judged by.
METRIC = {
    "demo": "return",
    "grid_house": "length",
    "grid_house_4rooms": "length",
    "house_nav_rays": "length",
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--experiments", nargs="+", default=list(EXPERIMENTS), choices=EXPERIMENTS)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--runs", type=Path, default=Path("runs", "seeds"))
    parser.add_argument("--trials", type=int, default=200, help="held-out trials per evaluation")
    parser.add_argument("--render", action="store_true", help="fill the table and train nothing")
    arguments = parser.parse_args()
    if not arguments.render:
        for experiment in arguments.experiments:
            for seed in arguments.seeds:
                make_row(experiment, seed, arguments.runs, arguments.trials)
                render()
    render()
    return 0


def make_row(experiment: str, seed: int, runs: Path, trials: int) -> None:
    """Train (or go on), evaluate with and without memory, and write the result file."""
    path = RESULTS / f"{experiment}_seed{seed}.json"
    if path.exists() and "error" not in json.loads(path.read_text()):
        return
    run = runs / f"{experiment}_seed{seed}"
    command = [f"experiment={experiment}", f"seed={seed}", f"run={run}"]
    if experiment in STARTS_FROM:
        make_row(STARTS_FROM[experiment], seed, runs, trials)
        command.append(f"init_from={runs / f'{STARTS_FROM[experiment]}_seed{seed}'}")
    try:
        cli("train", *command)
        for context in ("full", "cleared"):
            cli("evaluate", f"run={run}", f"context={context}", f"n_trials={trials}",
                f"output={run}/evaluation/{context}.json")  # fmt: skip
    except subprocess.CalledProcessError as error:
        if error.returncode < 0 or error.returncode in STOPPED:
            sys.exit(f"{experiment}, seed {seed}, was stopped; the same command goes on")
        write(path, {"experiment": experiment, "seed": seed, "error": str(error)})
        return
    folder = ROOT / run
    last = json.loads((folder / "metrics.jsonl").read_text().splitlines()[-1])
    write(
        path,
        {
            "experiment": experiment,
            "seed": seed,
            "command": "embodied-icrl train " + " ".join(command).replace(f"{runs}/", "runs/"),
            "machine": f"{platform.machine()}, {os.cpu_count()} cores",
            "steps": last["step"],
            "wall_s": last["wall_s"],
            "date": time.strftime("%Y-%m-%d"),
            "full": summary(folder / "evaluation" / "full.json"),
            "cleared": summary(folder / "evaluation" / "cleared.json"),
        },
    )


def cli(*words: str) -> None:
    subprocess.run([sys.executable, "-m", "embodied_icrl", *words], check=True, cwd=ROOT)


def summary(path: Path) -> dict[str, Any]:
    """The numbers of an evaluation that the table shows."""
    report = json.loads(path.read_text())
    return {key: report[key] for key in ("checkpoint", "n_trials", "metrics", "references")}


def write(path: Path, row: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(row, indent=1) + "\n")


def render() -> None:
    """Put the table between the README's two markers."""
    text = README.read_text()
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    README.write_text(f"{before}{BEGIN}\n{table()}\n{END}{after}")


def table() -> str:
    lines = [
        "| experiment | seed | steps | minutes | episode 1 | last third | oracle | "
        "random | memory cleared: episode 1, last third | success, last third |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    missing = []
    for experiment in EXPERIMENTS:
        made = made_seeds(experiment)
        for seed in sorted(made):
            row = json.loads((RESULTS / f"{experiment}_seed{seed}.json").read_text())
            lines.append(line(experiment, seed, row))
        if rest := sorted({0, 1, 2} - made):
            missing.append(f"`{experiment}` {', '.join(map(str, rest))}")
    if missing:
        lines += ["", f"Seeds not trained yet: {'; '.join(missing)}."]
    return "\n".join(lines)


def made_seeds(experiment: str) -> set[int]:
    """Seeds that have a result file."""
    return {int(path.stem.rpartition("seed")[2]) for path in RESULTS.glob(f"{experiment}_seed*")}


def line(experiment: str, seed: int, row: dict[str, Any]) -> str:
    if "error" in row:
        return f"| {experiment} | {seed} | failed |" + " |" * 7
    name = METRIC[experiment]
    full, cleared = row["full"], row["cleared"]
    first, last = ends(full["metrics"][name]["mean"])
    cleared_first, cleared_last = ends(cleared["metrics"][name]["mean"])
    unit = "steps" if name == "length" else "return"
    success = ends(full["metrics"]["success"]["mean"])[1]
    references = full["references"]
    return (
        f"| {experiment} | {seed} | {row['steps'] / 1e6:.1f}M | {row['wall_s'] / 60:.0f} | "
        f"{first:.1f} {unit} | {last:.1f} | {references['oracle'][name]:.1f} | "
        f"{references['random'][name]:.1f} | {cleared_first:.1f}, {cleared_last:.1f} | "
        f"{success:.2f} |"
    )


def ends(curve: list[float]) -> tuple[float, float]:
    """Mean of the first episode, and of the last third of the episodes."""
    late = curve[-(len(curve) // 3) :]
    return curve[0], sum(late) / len(late)


if __name__ == "__main__":
    sys.exit(main())
