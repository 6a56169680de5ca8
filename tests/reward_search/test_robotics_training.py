"""The larger tasks train, are measured and are filmed where nothing but the sandbox is there."""

from __future__ import annotations

import dataclasses
import importlib.util
from pathlib import Path
from typing import Any

import pytest

from embodied_icrl.manipulation.adroit import AdroitDoor
from embodied_icrl.manipulation.fetch import FetchReach
from embodied_icrl.manipulation.meta_world import MetaWorldReach
from embodied_icrl.manipulation.shadow_hand import HandReach
from embodied_icrl.manipulation.task import Task
from embodied_icrl.reward_search.film import Take, film_candidates
from embodied_icrl.reward_search.jobs import TrainingLimits, run_job, weights_file
from embodied_icrl.reward_search.records import Job
from embodied_icrl.reward_search.search_config import task_node
from tests.manipulation.episodes import name_of
from tests.reward_search.trainings import small_job

# A busy machine must not fail honest trainings.
LIMITS = TrainingLimits(start_s=500, stall_s=500)
pytestmark = pytest.mark.timeout(600)
installed = pytest.mark.skipif(
    importlib.util.find_spec("metaworld") is None, reason="metaworld: make metaworld"
)
TINY: dict[str, Any] = {
    "n_steps": 32, "batch_size": 64, "n_epochs": 1, "policy_kwargs": {"net_arch": [8]}
}  # fmt: skip
TASKS = [
    FetchReach(horizon=20),
    AdroitDoor(horizon=20),
    HandReach(horizon=20),
    pytest.param(MetaWorldReach(horizon=20), marks=installed),
]


def job_of(task: Task, folder: Path) -> Job:
    return small_job(
        folder, task.human_reward, task=task_node(task), hyperparameters=TINY, episodes=2
    )


@pytest.mark.parametrize("task", TASKS, ids=name_of)
def test_a_training_in_the_sandbox_is_measured(task, tmp_path):
    job = job_of(task, tmp_path)
    result = run_job(job, LIMITS)
    assert (result.status, result.reason) == ("done", None)
    assert result.env_steps == 256
    assert [point.step for point in result.fitness] == [128, 256]
    assert all(0.0 <= point.mean <= 1.0 for point in result.fitness)
    assert all(len(means) == 2 for means in result.components.values())


def test_a_training_in_the_sandbox_is_filmed(tmp_path):
    task = FetchReach(horizon=10)
    job = dataclasses.replace(job_of(task, tmp_path), last_step=128, checkpoints=(128,),
                              episodes=(1,))  # fmt: skip
    assert run_job(job, LIMITS).status == "done"
    take = Take("r", "reward r", weights_file(job, 128), job.algorithm, TINY)
    footage = film_candidates([take], job.task, tmp_path / "film.mp4", episodes=1)
    assert footage.reason is None and footage.video is not None
    assert footage.video.path.stat().st_size > 5_000
    assert footage.states["r"].shape[0] == 10
