"""Train the larger tasks with their quick budgets, and fill a table in docs/reward_search.md.

    python benchmarks/task_budgets.py                # everything that is missing, then the table
    python benchmarks/task_budgets.py --tasks fetch_push --rewards human --seeds 1
    python benchmarks/task_budgets.py --render       # the table only, from the files of results

Each row is one training as a search makes it, with one thread, and a file of results. A row whose
task has another budget or reward by now counts as missing. Meta-World's tasks need its package:
name them.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import resource
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from embodied_icrl.cli.reward import build_task
from embodied_icrl.common.files import atomic_write_json
from embodied_icrl.manipulation.task import Budget, Task
from embodied_icrl.reward_search.jobs import TrainingLimits, run_job
from embodied_icrl.reward_search.plans import search_plan
from embodied_icrl.reward_search.records import Candidate
from embodied_icrl.reward_search.rounds import Entry
from embodied_icrl.reward_search.sandbox import available_layers
from embodied_icrl.reward_search.search_config import SearchConfig
from embodied_icrl.reward_search.selection import select
from embodied_icrl.runs.machine import cpu_name

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "task_budgets"
PAGE = ROOT / "docs" / "reward_search.md"
BEGIN, END = "<!-- budgets:begin -->", "<!-- budgets:end -->"
# What is trained without being named: every reward where the two are compared, else the human one.
ROWS = {
    "fetch_reach": ("human", "sparse"),
    "fetch_push": ("human", "sparse"),
    "fetch_slide": ("human",),
    "fetch_pick_and_place": ("human",),
    "adroit_door": ("human",),
    "adroit_hammer": ("human",),
    "hand_reach": ("human",),
    "hand_block": ("human",),
}
# Bubblewrap's children are not counted among ours, and under another user they can't read every
# interpreter; the rewards here are the package's own.
LAYERS = dataclasses.replace(available_layers(), bubblewrap=False, user=False)
# The clock may run: the machine may be busy, and the time that counts is the processor's.
LIMITS = TrainingLimits(start_s=3600.0, s_per_step=0.5, stall_s=600.0)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", nargs="+", default=list(ROWS), metavar="NAME")
    parser.add_argument("--rewards", nargs="+", choices=("human", "sparse"))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--render", action="store_true", help="fill the table and train nothing")
    arguments = parser.parse_args()
    if not arguments.render:
        for seed in arguments.seeds:
            for name in arguments.tasks:
                for reward in arguments.rewards or ROWS.get(name, ("human",)):
                    make_row(name, reward, seed)
                    render()
    render()
    return 0


def make_row(name: str, reward: str, seed: int) -> None:
    """Train, unless that was done, and write the result file."""
    if read(name, reward, seed):
        return
    task = task_of(name)
    config = SearchConfig(task, seed=seed)
    plan = search_plan(config)
    candidate = Candidate(reward, 0, source=source_of(task, reward))
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        os.chmod(folder, 0o755)  # trainings may run as another user
        entry = Entry(candidate, Path(folder))
        before = children_s()
        result = run_job(plan.job(entry, 0, 0, plan.rungs[-1]), LIMITS, LAYERS)
        cpu_s = children_s() - before
    row: dict[str, Any] = {
        "task": name,
        "reward": reward,
        "seed": seed,
        "source": source_of(task, reward),
        "budget": plain(task.quick),
        "machine": f"{cpu_name()}, {os.cpu_count()} cores",
        "date": time.strftime("%Y-%m-%d"),
        "processor_minutes": round(cpu_s / 60, 2),
        "status": result.status,
        "reason": result.reason,
        "episodes": config.episodes,
        "points": [dataclasses.asdict(point) for point in result.fitness],
    }
    if result.status == "done":
        row["fitness"] = select([result.fitness], config.selection)[0]
        row["success"] = result.fitness[-1].success
    RESULTS.mkdir(parents=True, exist_ok=True)
    atomic_write_json(path_of(name, reward, seed), row, indent=1)


def task_of(name: str) -> Task:
    return build_task(yaml.safe_load((ROOT / "sim_configs" / "task" / f"{name}.yaml").read_text()))


def source_of(task: Task, reward: str) -> str:
    return task.human_reward if reward == "human" else task.sparse_reward


def children_s() -> float:
    """Processor time of all child processes that ended, and of theirs, in seconds."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def path_of(name: str, reward: str, seed: int) -> Path:
    return RESULTS / f"{name}_{reward}_seed{seed}.json"


def plain(budget: Budget) -> dict[str, Any]:
    return json.loads(json.dumps(dataclasses.asdict(budget), default=dict))


def read(name: str, reward: str, seed: int) -> Mapping[str, Any]:
    """The result; nothing if there is none for the reward and the budget that the task has now."""
    path, task = path_of(name, reward, seed), task_of(name)
    row = json.loads(path.read_text()) if path.exists() else {}
    now = {"budget": plain(task.quick), "source": source_of(task, reward)}
    return row if row and now.items() <= row.items() else {}


def render() -> None:
    """Put the table between the page's two markers."""
    before, rest = PAGE.read_text().split(BEGIN)
    _, after = rest.split(END)
    PAGE.write_text(f"{before}{BEGIN}\n{table()}\n{END}{after}")


def table() -> str:
    made = [path.stem.rsplit("_", 2) for path in RESULTS.glob("*_seed*.json")]
    found = {(name, reward, int(seed.removeprefix("seed"))) for name, reward, seed in made}
    wanted = {(name, reward, 0) for name, rewards in ROWS.items() for reward in rewards}
    order = list(ROWS)
    lines = [
        "| task | quick budget | reward | seed | fitness | success | processor minutes |",
        "|---|---|---|---|---|---|---|",
    ]
    machines = set()
    rows = sorted(
        wanted | found,
        key=lambda key: (order.index(key[0]) if key[0] in order else len(order), key),
    )
    for name, reward, seed in rows:
        budget = task_of(name).quick
        row = read(name, reward, seed)
        if not row and (name, reward, seed) not in wanted:
            continue
        spent = f"{budget.algorithm} {budget.env_steps:,}"
        lines.append(f"| {name} | {spent} | {reward} | {seed} | {cells(row)} |")
        machines |= {row["machine"]} if row else set()
    return "\n".join([*lines, "", f"Machine: {'; '.join(sorted(machines)) or 'missing'}."])


def cells(row: Mapping[str, Any]) -> str:
    if not row:
        return "missing | | "
    if row["status"] != "done":
        return f"failed | | {row['processor_minutes']:.1f}"
    return f"{row['fitness']:.2f} | {row['success']:.2f} | {row['processor_minutes']:.1f}"


if __name__ == "__main__":
    sys.exit(main())
