"""What the trainings of a search have in common: here, the episodes that measure them."""

from __future__ import annotations

from pathlib import Path

import pytest

from embodied_icrl.common.config import build
from embodied_icrl.reward_search.plans import final_plan, search_plan
from embodied_icrl.reward_search.records import Candidate, FitnessPoint, Job
from embodied_icrl.reward_search.rounds import Entry, Plan
from embodied_icrl.reward_search.selection import select
from tests.reward_search.small_search import config

ENTRY = Entry(Candidate("c", 1, source="code"), Path("c"))


def jobs(plan: Plan) -> list[Job]:
    ends = (0, *plan.rungs)
    return [plan.job(ENTRY, 0, first, last) for first, last in zip(ends, plan.rungs)]


def test_rewards_are_compared_in_the_episodes_of_the_search_alone(tmp_path):
    stretches = jobs(search_plan(config(tmp_path, checkpoints=10, episodes=3, final_episodes=50)))
    assert len(stretches) > 1
    for job in stretches:
        assert job.phase == "search" and job.episodes == (3,) * len(job.checkpoints)
    assert sum(len(job.checkpoints) for job in stretches) == 10


@pytest.mark.parametrize(
    ("selection", "checkpoints", "episodes"),
    [
        ("mean_last", 10, (3,) * 7 + (50,) * 3),
        ("mean_last", 4, (3,) * 3 + (50,)),
        ("max", 4, (50,) * 4),
    ],
)
def test_what_makes_the_final_fitness_is_measured_in_held_out_episodes(
    tmp_path, selection, checkpoints, episodes
):
    settings = config(
        tmp_path, selection=selection, checkpoints=checkpoints, episodes=3, final_episodes=50,
        racing={"kind": "none"},
    )  # fmt: skip
    (job,) = jobs(final_plan(settings))
    assert job.phase == "final" and job.episodes == episodes
    # No other checkpoint has a say in the fitness.
    points = [FitnessPoint(s, 0.5, 0.0, n) for s, n in zip(job.checkpoints, job.episodes)]
    spoilt = [p if p.episodes == 50 else FitnessPoint(p.step, 9.0, 0.0, 3) for p in points]
    assert select([spoilt], selection) == select([points], selection)


def test_a_final_fitness_is_measured_in_a_hundred_episodes_unless_told_otherwise(tmp_path):
    settings = config(tmp_path)
    (job,) = jobs(final_plan(settings))
    assert job.episodes[-1] == settings.final_episodes == 100
    assert build({"task": settings.task}, type(settings)).episodes == 20
