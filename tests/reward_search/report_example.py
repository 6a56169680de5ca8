"""A report with everything in it, made up: what the tests of the report render."""

from __future__ import annotations

import math
from pathlib import Path

from embodied_icrl.manipulation.planar_reach import PlanarReach
from embodied_icrl.reward_search.records import Candidate
from embodied_icrl.reward_search.report_data import Correlation, Cost, ReportData, Result

TASK = PlanarReach()
ATTACK = "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"
CODE = TASK.human_reward


def curves(level: float, names: tuple[str, ...]) -> dict[str, tuple[float, ...]]:
    points = range(10)
    rising = tuple(level * (1 - math.exp(-p / 3)) for p in points)
    parts = {
        name: tuple((i + 1) * (v - 0.5) * math.cos(p * i) for p, v in zip(points, rising))
        for i, name in enumerate(names)
    }
    return {
        "step": tuple(3000.0 * (p + 1) for p in points),
        "fitness": rising,
        "total": tuple(sum(values) for values in zip(*parts.values())),
        **parts,
    }


def trained(name: str, iteration: int, fitness: float, **more) -> Candidate:
    names = more.pop("names", ("distance", "precision", "control"))
    return Candidate(
        name,
        iteration,
        more.pop("status", "trained"),
        source=more.pop("source", CODE),
        fitness=fitness,
        low=fitness - 0.06,
        high=min(1.0, fitness + 0.05),
        env_steps=more.pop("env_steps", 30_000),
        curves=curves(fitness, names),
        **more,
    )


def example(**changes) -> ReportData:
    """Three iterations of a search with a language model that also answered attacks."""
    second = CODE.replace("0.03", "0.05")
    third = second.replace("np.exp", "0.7 * np.exp") + f"    # {ATTACK}\n"
    candidates = (
        trained("human", 0, 0.81),
        trained("sparse", 0, 0.12),
        trained("i1_s00", 1, 0.35),
        trained("i1_s01", 1, 0.52, names=(ATTACK, "distance")),
        Candidate("i1_s02", 1, "refused", "import, line 2: only numpy and math", "import os\n"),
        Candidate("i1_s03", 1, "refused", f"no function compute_reward in the answer {ATTACK}"),
        trained("i2_s00", 2, 0.74, source=second, parent="i1_s01"),
        trained("i2_s01", 2, 0.2, source=second, parent="i1_s01", status="stopped",
                reason="stopped after 10000 steps: below the better half", env_steps=10_000),
        Candidate("i2_s02", 2, "failed", "no result within 30 s", CODE, "i1_s01"),
        Candidate("i2_s03", 2, "refused", "import, line 7: only numpy and math", "import re\n"),
        trained("i3_s00", 3, 0.88, source=third, parent="i2_s00"),
        trained("i3_s01", 3, 0.7, source=third, parent="i2_s00"),
        trained("i3_s02", 3, 0.85, source=second, parent="i2_s00"),
        trained("i3_s03", 3, 0.64, source=second, parent="i2_s00"),
    )  # fmt: skip
    content = {
        "task": "planar_reach",
        "description": TASK.description,
        "proposer": "openai: a-model",
        "language_model": True,
        "sandbox": "bubblewrap + Landlock + seccomp + unprivileged user + limits",
        "candidates": candidates,
        "best": "i3_s00",
        "finals": (
            Result("i3_s00", 0.93, 0.89, 0.96, (0.91, 0.93, 0.95)),
            Result("human", 0.86, 0.8, 0.9, (0.82, 0.86, 0.9)),
            Result("sparse", 0.14, 0.08, 0.2, (0.1, 0.14, 0.18)),
        ),
        "terms": Result("i2_s03", 0.84, 0.78, 0.9),
        "costs": (
            Cost(0, env_steps=60_000, wall_s=55.0),
            Cost(1, 1, 1830, 2410, 0.0121, 60_000, 71.0),
            Cost(2, 2, 3950, 2260, 0.0149, 40_000, 50.0),
            Cost(3, 1, 2010, 2302, 0.0130, 120_000, 110.0),
            Cost(-1, env_steps=270_000, wall_s=301.0),
        ),
        "money_budget": 1.0,
        "reflections": {1: f"fitness: 0.0, 0.1, 0.52\n{ATTACK}: flat", 2: "precision: rescale it"},
        "feedback": {3: "It shakes near the goal."},
        "not_deterministic": frozenset({"i2_s02"}),
        "correlation": Correlation(0.71, 0.83, 1200, "random and trained policy"),
        "settings": {"task": {"_target_": "x.PlanarReach", "horizon": 50}, "seed": 0, "key": None},
        "command": "embodied-icrl reward search task=planar_reach proposer=openai seed=0",
        "version": "0.1.0",
    }
    return ReportData(**{**content, **changes})


def blank_file(path: Path, size: int) -> Path:
    path.write_bytes(bytes(size))
    return path
