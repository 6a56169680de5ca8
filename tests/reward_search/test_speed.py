"""A reward is called at every step of every training: it must be cheap."""

from __future__ import annotations

import dataclasses
import resource
import time
from collections.abc import Callable

import numpy as np
import pytest

from embodied_icrl.manipulation.fetch import FetchReach
from embodied_icrl.manipulation.fields import StateLayout
from embodied_icrl.manipulation.planar_push import PlanarPush
from embodied_icrl.manipulation.planar_reach import PlanarReach
from embodied_icrl.manipulation.task_env import TaskEnv
from embodied_icrl.manipulation.valve_turn import ValveTurn
from embodied_icrl.reward_search.jobs import TrainingLimits, run_job
from embodied_icrl.reward_search.loading import load_reward
from embodied_icrl.reward_search.plans import search_plan
from embodied_icrl.reward_search.records import Candidate
from embodied_icrl.reward_search.rounds import Entry
from embodied_icrl.reward_search.sandbox import available_layers
from embodied_icrl.reward_search.search_config import SearchConfig

LIMIT_S = 20e-6
FETCH_SHARE = 0.15  # of a step of FetchReach; about 0.006 as measured
TRAINING_S = 30.0  # of processor time, on an undisturbed core of two GHz or more
# Processor time of the same work on slow cores, and on ones that share caches and their units of
# arithmetic with others.
SLOWER = 2.5
# Times of what runs under bubblewrap are not counted as our children's; the reward is our own.
LAYERS = dataclasses.replace(available_layers(), bubblewrap=False, user=False)
SMALL_TASKS = [PlanarReach(), PlanarPush(), ValveTurn()]


@pytest.mark.slow  # it asks how fast this machine is
@pytest.mark.parametrize("task", SMALL_TASKS, ids=lambda task: task.name)
def test_a_call_costs_at_most_twenty_microseconds(task):
    layout = StateLayout(task.fields)
    flat = np.linspace(0.1, 0.4, layout.size)
    reward = load_reward(task.human_reward)
    best = min(cpu_s(lambda: reward(layout.record(flat)), 200) for _ in range(30))
    assert best < LIMIT_S, f"{1e6 * best:.1f} us"


def test_a_call_is_a_small_share_of_a_step_of_fetch():
    """A ratio of processor times, the fastest of interleaved rounds: load slows both."""
    pytest.importorskip("gymnasium_robotics")
    task = FetchReach()
    reward, env = load_reward(task.human_reward), TaskEnv(task)
    try:
        env.reset(seed=0)
        action = np.zeros(env.action_space.shape, np.float32)
        env.step(action)
        flat = env.state_vector.copy()
        rounds = [
            (
                cpu_s(lambda: reward(env.layout.record(flat)), 200),
                cpu_s(lambda: env.step(action), 5),
            )
            for _ in range(20)
        ]
    finally:
        env.close()
    call, step = (min(times) for times in zip(*rounds))
    assert call < FETCH_SHARE * step, f"{1e6 * call:.1f} us of {1e6 * step:.1f} us"


@pytest.mark.slow  # it trains, and asks how fast this machine is
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("task", SMALL_TASKS, ids=lambda task: task.name)
def test_a_quick_training_with_its_evaluation_takes_half_a_minute(task, tmp_path):
    plan = search_plan(SearchConfig(task))
    entry = Entry(Candidate("human", 0, source=task.human_reward), tmp_path)
    # The clock may run: what counts is the processor time of the children that train and evaluate.
    limits = TrainingLimits(start_s=1500, stall_s=600)
    before = children_s()
    result = run_job(plan.job(entry, 0, 0, plan.rungs[-1]), limits, LAYERS)
    taken = children_s() - before
    print(f"{task.name}: {taken:.1f} s")
    assert taken > 1.0  # else the children's time was not counted
    assert (result.status, len(result.fitness)) == ("done", len(plan.checkpoints)), result.reason
    assert taken < SLOWER * TRAINING_S, f"{taken:.1f} s"


def cpu_s(call: Callable[[], object], count: int) -> float:
    """Processor time of a call, in seconds, mean over so many."""
    start = time.process_time()
    for _ in range(count):
        call()
    return (time.process_time() - start) / count


def children_s() -> float:
    """Processor time of all child processes that ended, and of theirs, in seconds."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
