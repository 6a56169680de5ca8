"""Search for rewards on the small tasks, and fill the tables in docs/reward_search.md. Resumable.

    python benchmarks/reward_tables.py               # everything that is missing, then the tables
    python benchmarks/reward_tables.py --tasks valve_turn --seeds 1 2
    python benchmarks/reward_tables.py --only throughput
    python benchmarks/reward_tables.py --render      # the tables only, from the files of results

A row is finished once its result file exists; a search that was stopped goes on. A search that
fails is a row that says so. Searches without a result are named below the table.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "rewards"
PAGE = ROOT / "docs" / "reward_search.md"
BEGIN, END = "<!-- rewards:begin -->", "<!-- rewards:end -->"
TASKS = ("planar_reach", "planar_push", "valve_turn")
RACING = ("halving", "none")
# Exit statuses of a search that was stopped and can go on.
STOPPED = (124, *range(128, 160))
# The trainings at the end have the budget of the others, so that rewards are compared as they were
# found; five seeds give them an interval.
SEARCH = ("proposer=terms", "iterations=3", "samples=8", "final_budget=quick", "final_seeds=5",
          "video=false")  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=TASKS)
    parser.add_argument("--racing", nargs="+", default=list(RACING), choices=RACING)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--runs", type=Path, default=Path("runs", "rewards"))
    parser.add_argument("--workers", type=int, default=0, help="0: one per core")
    parser.add_argument("--only", choices=("searches", "throughput"))
    parser.add_argument("--render", action="store_true", help="fill the tables and train nothing")
    arguments = parser.parse_args()
    if not arguments.render:
        if arguments.only != "searches":
            measure_throughput()
            render()
        if arguments.only != "throughput":
            for seed in arguments.seeds:
                for task in arguments.tasks:
                    for racing in arguments.racing:
                        make_row(task, racing, seed, arguments.runs, arguments.workers)
                        render()
    render()
    return 0


def make_row(task: str, racing: str, seed: int, runs: Path, workers: int) -> None:
    """Search (or go on), and write the result file."""
    path = RESULTS / f"{task}_{racing}_seed{seed}.json"
    if path.exists() and "error" not in json.loads(path.read_text()):
        return
    run = runs / f"{task}_{racing}_seed{seed}"
    words = [f"task={task}", f"racing={racing}", f"seed={seed}", f"run={run}", *SEARCH]
    if racing != RACING[0]:
        words.append("baselines=false")  # they have no race, so those of the other row hold
    command = [sys.executable, "-m", "embodied_icrl", "reward", "search", *words]
    code = subprocess.run([*command, f"workers={workers}"], check=False, cwd=ROOT).returncode
    if code < 0 or code in STOPPED:
        sys.exit(f"{task}, racing={racing}, seed {seed}, was stopped; the same command goes on")
    if code:
        write(path, {"task": task, "racing": racing, "seed": seed, "error": f"status {code}"})
        return
    shown = [word.replace(f"{runs}/", "runs/") for word in words]
    summary = json.loads((ROOT / run / "summary.json").read_text())
    work = summary["work"]
    write(
        path,
        {
            "task": task,
            "racing": racing,
            "seed": seed,
            "command": " ".join(["embodied-icrl reward search", *shown]),
            "machine": f"{platform.machine()}, {os.cpu_count()} cores",
            "date": time.strftime("%Y-%m-%d"),
            "env_steps": sum(work[key]["env_steps"] for key in work if int(key) > 0),
            "work_s": sum(work[key]["wall_s"] for key in work),
            "best": summary["best"],
            "finals": summary["finals"],
        },
    )


def measure_throughput(repeats: int = 3, count: int = 4, steps: int = 40_000) -> None:
    """Seconds for the same trainings with one and with two workers, in turns."""
    path = RESULTS / "throughput.json"
    if path.exists():
        return
    from embodied_icrl.common.config import to_dict
    from embodied_icrl.manipulation.planar_reach import PlanarReach
    from embodied_icrl.reward_search.launchers import LocalLauncher
    from embodied_icrl.reward_search.records import Job

    task = PlanarReach()
    seconds: dict[str, list[float]] = {"1": [], "2": []}
    for _ in range(repeats):
        for workers, found in seconds.items():
            with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
                os.chmod(folder, 0o755)  # trainings may run as another user
                jobs = [
                    Job(
                        candidate="human", source=task.human_reward,
                        task=to_dict(task, target=True), algorithm=task.quick.algorithm,
                        n_envs=task.quick.n_envs, seed=k, first_step=0, last_step=steps,
                        checkpoints=(steps,), folder=f"{folder}/seed_{k}", episodes=(20,),
                        hyperparameters=task.quick.hyperparameters,
                    )
                    for k in range(count)
                ]  # fmt: skip
                began = time.monotonic()
                results = LocalLauncher(int(workers)).run(jobs)
                found.append(time.monotonic() - began)
                assert all(result.status == "done" for result in results), results
    machine = f"{platform.machine()}, {os.cpu_count()} cores"
    write(path, {"trainings": count, "steps": steps, "seconds": seconds, "machine": machine})


def write(path: Path, row: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(row, indent=1) + "\n")


def render() -> None:
    """Put the tables between the page's two markers."""
    before, rest = PAGE.read_text().split(BEGIN)
    _, after = rest.split(END)
    PAGE.write_text(f"{before}{BEGIN}\n{search_table()}\n\n{throughput_text()}\n{END}{after}")


def search_table() -> str:
    lines = [
        "| task | seed | racing | steps of the search | best | human-written | sparse | "
        "best / human |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for task in TASKS:
        for seed in sorted(made_seeds(task)):
            baselines = finals(read(task, RACING[0], seed))
            for racing in RACING:
                if row := read(task, racing, seed):
                    lines.append(line(task, seed, racing, row, baselines))
    missing = []
    for task in TASKS:
        for racing in RACING:
            if seeds := [str(seed) for seed in (0, 1, 2) if not read(task, racing, seed)]:
                missing.append(f"`{task}` {racing} {', '.join(seeds)}")
    if missing:
        lines += ["", f"Not searched yet (task, racing, seeds): {'; '.join(missing)}."]
    return "\n".join(lines)


def made_seeds(task: str) -> set[int]:
    """Seeds that have a result file."""
    return {int(path.stem.rpartition("seed")[2]) for path in RESULTS.glob(f"{task}_*_seed*.json")}


def read(task: str, racing: str, seed: int) -> dict[str, Any]:
    path = RESULTS / f"{task}_{racing}_seed{seed}.json"
    row: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return row


def finals(row: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Results of the last trainings by id."""
    return {item["id"]: item for item in row.get("finals", ())}


def line(
    task: str, seed: int, racing: str, row: dict[str, Any], baselines: dict[str, dict[str, Any]]
) -> str:
    start = f"| {task} | {seed} | {racing} |"
    if "error" in row:
        return f"{start} failed |" + " |" * 4
    best = finals(row)[row["best"]]
    human = baselines.get("human", {})
    share = f"{best['fitness'] / human['fitness']:.2f}" if human.get("fitness") else ""
    cells = [text(item) for item in (best, human, baselines.get("sparse", {}))]
    return f"{start} {row['env_steps'] / 1e6:.2f}M | {' | '.join(cells)} | {share} |"


def text(item: dict[str, Any]) -> str:
    """A mean with its interval."""
    if item.get("fitness") is None:
        return "missing"
    if item["low"] is None:
        return f"{item['fitness']:z.2f}"
    return f"{item['fitness']:z.2f} [{item['low']:z.2f}, {item['high']:z.2f}]"


def throughput_text() -> str:
    path = RESULTS / "throughput.json"
    if not path.exists():
        return "Throughput of two workers against one: missing."
    row = json.loads(path.read_text())
    one, two = (statistics.median(row["seconds"][workers]) for workers in ("1", "2"))
    return (
        f"{row['trainings']} trainings of {row['steps']:,} steps on 2 cores, medians of "
        f"{len(row['seconds']['1'])}: {one:.0f} s with one worker, {two:.0f} s with two "
        f"({one / two:.2f} times the throughput)."
    )


if __name__ == "__main__":
    sys.exit(main())
