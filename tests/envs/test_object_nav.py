"""Object navigation: the trial protocol, and the rules on a simulator without walls."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from embodied_icrl.envs.object_nav_config import ObjectNavConfig
from embodied_icrl.houses.generate import HouseConfig
from tests.envs.plain_simulator import PlainConfig
from tests.envs.protocol import CHECKS, check_episodes_ignore_the_past, check_oracle_is_optimal

NAMES = ("plant", "ball", "guitar", "suitcase", "backpack", "basket")
PLAIN = ObjectNavConfig(
    PlainConfig(),
    sensors={},
    categories=NAMES,
    houses=HouseConfig(n_rooms=1, n_objects=6, categories=NAMES),
    horizon=30,
    start_points=40,
)
AUTOMATIC = dataclasses.replace(
    PLAIN, stop="automatic", actions=("turn_right", "forward", "turn_left"), n_houses=7
)
CONFIGS = {"stop": PLAIN, "automatic": AUTOMATIC}
# `optimal_return` counts no turns, so the oracle gets less.
OWN_CHECKS = [check for check in CHECKS if check is not check_oracle_is_optimal]


@pytest.mark.parametrize("check", OWN_CHECKS, ids=lambda c: c.__name__.removeprefix("check_"))
@pytest.mark.parametrize("name", CONFIGS)
def test_protocol(name, check):
    if name == "stop" and check is check_episodes_ignore_the_past:
        pytest.skip("its random actions end episodes")
    check(CONFIGS[name].build)


@pytest.mark.parametrize("name", CONFIGS)
def test_oracle_finds_everything_and_nobody_gets_more_than_the_best_return(name):
    env = dataclasses.replace(CONFIGS[name], horizon=120).build(8, split="test")
    env.reset()
    found = []
    best = env.optimal_return()
    for _ in range(250):
        *_, info = env.step(env.oracle_action())
        ended = info.get("_episode", np.zeros(8, dtype=bool))
        if ended.any():
            found += list(info["episode"]["success"][ended])
            assert (info["episode"]["r"][ended] <= best[ended] + 1e-5).all()
        best = env.optimal_return()
    assert len(found) > 30
    assert np.mean(found) == 1.0
