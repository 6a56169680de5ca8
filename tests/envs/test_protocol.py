"""The trial protocol, on every environment and its variants."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium.error import ResetNeeded

from embodied_icrl.common.errors import ConfigError
from embodied_icrl.envs.darkroom import DarkroomConfig
from embodied_icrl.envs.grid_house import GridHouseConfig
from embodied_icrl.envs.key_to_door import KeyToDoorConfig
from tests.envs.protocol import CHECKS

CONFIGS = {
    "darkroom": DarkroomConfig(),
    "darkroom-goals": DarkroomConfig(dim=6, horizon=11, split_by="goals", start=(1, 4)),
    "key-to-door": KeyToDoorConfig(horizon=30),
    "key-to-door-trial": KeyToDoorConfig(dim=5, horizon=12, start="trial"),
    "key-to-door-episode": KeyToDoorConfig(dim=5, start="episode"),
    "grid-house": GridHouseConfig(),
    "grid-house-mixed": GridHouseConfig(size=11, n_rooms=(2, 3, 4), n_types=5, horizon=15),
    "grid-house-many": GridHouseConfig(n_rooms=4, instances=3, view_size=7, min_distance=2),
}


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))
@pytest.mark.parametrize("name", CONFIGS)
def test_protocol(name, check):
    check(CONFIGS[name].build)


@pytest.mark.parametrize("name", CONFIGS)
def test_held_out_split_keeps_the_protocol(name):
    env = CONFIGS[name].build(3, split="test", seed=4)
    env.reset()
    for _ in range(2 * env.max_episode_steps):
        best = env.optimal_return()
        *_, info = env.step(env.oracle_action())
        if "_episode" in info:
            ended = info["_episode"]
            np.testing.assert_allclose(info["episode"]["r"][ended], best[ended], atol=1e-5)


def test_step_before_reset():
    with pytest.raises(ResetNeeded):
        DarkroomConfig().build(2).step(np.zeros(2, dtype=int))


@pytest.mark.parametrize(
    "actions", [np.zeros(3, dtype=int), np.zeros(2), np.array([0, 5]), np.array([-1, 0])]
)
def test_wrong_actions(actions):
    env = DarkroomConfig().build(2)
    env.reset()
    with pytest.raises(ValueError, match="action"):
        env.step(actions)


def test_actions_that_are_ignored_may_be_anything():
    env = DarkroomConfig(horizon=1).build(2)
    env.reset()
    env.step(np.zeros(2, dtype=int))
    env.step(np.array([99, -1]))
    with pytest.raises(ValueError, match="99"):
        env.step(np.array([0, 99]))


def test_state_of_another_environment_is_refused():
    env = DarkroomConfig().build(3)
    env.reset()
    state = env.get_state()
    with pytest.raises(ConfigError, match="3 environments, not 2"):
        DarkroomConfig().build(2).set_state(state)
    with pytest.raises(ConfigError, match="split"):
        DarkroomConfig().build(3, split="test").set_state(state)
    with pytest.raises(ConfigError, match="format"):
        DarkroomConfig().build(3).set_state({**state, "format": 99})
