"""The trained checkpoints that come with the package load, act, and learn in context."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from embodied_icrl import load_agent
from embodied_icrl.common.config import build
from embodied_icrl.common.paths import assets_dir
from embodied_icrl.evaluation.in_context import EvaluationConfig, evaluate_in_context
from embodied_icrl.evaluation.loading import load_policy
from embodied_icrl.runs.checkpoint import find_checkpoint
from embodied_icrl.runs.run import load_run

RUNS = sorted(path.parent for path in (assets_dir() / "checkpoints").glob("*/config.yaml"))


def test_the_promised_checkpoints_are_there() -> None:
    assert {"demo", "grid_house", "house_nav_rays"} <= {run.name for run in RUNS}


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
def test_an_agent_acts(run: Path) -> None:
    config = load_run(run).config
    env = build(config["env"]).build(1, split="test")
    agent = load_agent(run)
    observation, _ = env.reset()
    single = {key: value[0] for key, value in observation.items()}
    action = agent.act(single, episode_start=True)
    assert env.single_action_space.contains(np.int64(action))


# Houses take a minute: to build them, and with a hundred times the steps of a grid.
SLOW = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.mark.parametrize(
    "run",
    [
        pytest.param(run, marks=SLOW if run.name.startswith("house_nav") else [], id=run.name)
        for run in RUNS
    ],
)
def test_late_episodes_are_better_and_memory_is_why(run: Path) -> None:
    config = load_run(run).config
    policy = load_policy(find_checkpoint(run), "cpu")

    def curve(context: str) -> np.ndarray:
        settings = EvaluationConfig(
            n_trials=48,
            n_episodes=8,
            context=context,  # type: ignore[arg-type]
            references=False,
        )
        result = evaluate_in_context(policy, build(config["env"]), settings)
        return np.array(result.summary()["metrics"]["return"]["mean"])

    full, cleared = curve("full"), curve("cleared")
    spread = full[5:].mean() - full[0]
    assert spread > 0.05 * abs(full[0])
    assert cleared[5:].mean() - cleared[0] < 0.5 * spread
