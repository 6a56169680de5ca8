"""The house navigation experiments train at toy size."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from embodied_icrl.cli.compose import compose
from embodied_icrl.common.errors import MissingDependencyError
from embodied_icrl.houses.gl import gl_context
from embodied_icrl.runs.metrics import read_metrics

TOY = (
    "processes=1", "vector.num_envs=2", "ppo.minibatches=1", "ppo.grad_accumulation=1",
    "env.houses.min_rooms=1", "env.houses.max_rooms=1", "env.houses.n_objects=2", "env.n_houses=2",
    "env.horizon=7", "ppo.num_steps=16", "ppo.updates_per_rollout=2", "trainer.total_steps=40",
    "policy.width=16", "policy.layers=1", "policy.heads=2", "policy.mlp_width=16",
    "evaluation.every_steps=0", "evaluation.final=false", "logging.tensorboard=false",
)  # fmt: skip


def train(run, *words):
    subprocess.run(
        [sys.executable, "-m", "embodied_icrl", "train", f"run={run}", *TOY, *words],
        check=True, env={**os.environ, "OMP_NUM_THREADS": "1"}, timeout=300,
    )  # fmt: skip
    return read_metrics(run)


@pytest.mark.parametrize(
    "name",
    [
        "house_nav_rays", "house_nav_rgb", "house_nav_habitat",
        "extobjnav_hssd", "extobjnav_hssd_64k", "extobjnav_replicacad",
    ],
)  # fmt: skip
def test_the_test_houses_are_kept_for_the_command_evaluate(name):
    training = compose("train", [f"experiment={name}"])["evaluation"]["settings"]
    assert (training["split"], compose("evaluate")["split"]) == ("validation", "test")


def test_house_nav_rays(tmp_path):
    metrics = train(tmp_path / "run", "experiment=house_nav_rays")
    assert len(metrics) >= 2
    assert metrics[-1]["return_last"] is not None


def test_house_nav_rgb(tmp_path):
    """In the number format for GPUs: autocast to bfloat16, and a memory of it."""
    try:
        gl_context(16, 16).free()
    except MissingDependencyError as error:
        pytest.skip(str(error))
    metrics = train(
        tmp_path / "run", "experiment=house_nav_rgb", "env.sensors.head.width=32",
        "env.sensors.head.height=32", "vector.workers=0", "device=cpu",
    )  # fmt: skip
    assert len(metrics) >= 2
    losses = [row[key] for row in metrics for key in ("loss/policy", "loss/value", "entropy")]
    assert None not in losses, "a number that isn't finite"
