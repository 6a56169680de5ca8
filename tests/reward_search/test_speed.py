"""A reward is called at every step of every training: it must be cheap."""

from __future__ import annotations

import time

import numpy as np
import pytest

from embodied_icrl.manipulation.fields import StateLayout
from embodied_icrl.manipulation.planar_push import PlanarPush
from embodied_icrl.manipulation.planar_reach import PlanarReach
from embodied_icrl.manipulation.valve_turn import ValveTurn
from embodied_icrl.reward_search.loading import load_reward

LIMIT_S = 20e-6


@pytest.mark.slow  # it asks how fast this machine is
@pytest.mark.parametrize("task", [PlanarReach(), PlanarPush(), ValveTurn()], ids=lambda t: t.name)
def test_a_call_costs_at_most_twenty_microseconds(task):
    layout = StateLayout(task.fields)
    flat = np.linspace(0.1, 0.4, layout.size)
    reward = load_reward(task.human_reward)
    calls, best = 200, np.inf
    for _ in range(30):  # the fastest round: of processor time, with as little of others' as can be
        start = time.process_time()
        for _ in range(calls):
            reward(layout.record(flat))
        best = min(best, (time.process_time() - start) / calls)
    assert best < LIMIT_S, f"{1e6 * best:.1f} us"
