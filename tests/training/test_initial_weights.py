"""Weights to begin with, also from episodes of another length: the ladder of house rungs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from gymnasium import spaces

from embodied_icrl.cli.compose import compose
from embodied_icrl.common.config import build
from embodied_icrl.common.errors import ConfigError
from embodied_icrl.policy import Policy, PolicyConfig
from embodied_icrl.runs.checkpoint import save_checkpoint
from embodied_icrl.runs.run import Run
from embodied_icrl.training.initial_weights import load_weights
from tests.envs.plain_simulator import PlainConfig
from tests.policy.toy import OBSERVATIONS, make_policy

RUNGS = ("1room", "2rooms", "3rooms", "3rooms_stop", "4rooms")
LOOKUP = "encoder.lookup"


def saved(policy: Policy, folder: Path) -> str:
    tensors = {"policy": policy.state_dict()}
    save_checkpoint(Run(folder, {}), 1, tensors=tensors, state={}, policy=policy.describe())
    return str(folder)


def rung_policy(rung: str, seed: int) -> Policy:
    """A small policy with the spaces of a rung, whose sensors are those of a plain simulator."""
    config = build(compose("train", [f"env=house_nav_{rung}"])["env"])
    env = replace(config, simulator=PlainConfig()).build(1)
    torch.manual_seed(seed)
    observations, actions = env.single_observation_space, env.single_action_space
    return Policy(
        PolicyConfig(width=8, layers=1, heads=2, mlp_width=8),
        observations,
        actions,
        env.max_episode_steps,
    )


def test_each_rung_of_the_houses_begins_with_the_weights_of_the_one_before(tmp_path: Path) -> None:
    policies = [rung_policy(rung, seed) for seed, rung in enumerate(RUNGS)]
    assert len({policy.max_episode_steps for policy in policies}) == 3
    for number, (easier, harder) in enumerate(zip(policies, policies[1:], strict=False)):
        before = {name: weight.clone() for name, weight in easier.state_dict().items()}
        note = load_weights(harder, saved(easier, tmp_path / str(number)))
        after = harder.state_dict()
        old, new = before.pop(LOOKUP), after.pop(LOOKUP)
        assert all(torch.equal(after[name], weight) for name, weight in before.items())
        assert torch.equal(new[: len(old)], old)
        more = harder.max_episode_steps - easier.max_episode_steps
        assert len(new) == len(old) + more
        assert torch.equal(new[len(old) :], old[-2].expand(more, -1)), "the last step it acted at"
        assert bool(note) == bool(more)
        if more:
            assert f"{easier.max_episode_steps} steps, now {harder.max_episode_steps}" in note


def test_shorter_episodes_take_the_first_steps(tmp_path: Path) -> None:
    longer, shorter = make_policy(max_episode_steps=12), make_policy(max_episode_steps=7, seed=1)
    note = load_weights(shorter, saved(longer, tmp_path))
    old, new = longer.encoder.lookup, shorter.encoder.lookup
    assert torch.equal(new, old[: len(new)]) and len(old) == len(new) + 5
    assert "cut" in note


def test_what_is_ignored_and_how_weights_are_used_may_differ(tmp_path: Path) -> None:
    with_camera = spaces.Dict({**OBSERVATIONS.spaces, "camera": spaces.Box(0, 255, (9, 9, 3))})
    source = saved(make_policy(observations=with_camera, ignore=("camera",)), tmp_path)
    harder = make_policy(max_episode_steps=20, depth_dropout=0.1, attention="math", seed=1)
    assert load_weights(harder, source)


OTHER_SPEED = spaces.Dict({**OBSERVATIONS.spaces, "speed": spaces.Box(-2.0, 2.0, (3,))})
MORE = spaces.Dict({**OBSERVATIONS.spaces, "more": spaces.Discrete(9)})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"width": 32}, r"policy\.width is 16 there and 32 here"),
        ({"rope": "trial"}, r"policy\.rope is 'none' there and 'trial' here"),
        ({"observations": OTHER_SPEED}, "observation 'speed' is .*-1.* there and .*-2.* here"),
        ({"observations": MORE}, "observation 'more' is absent there"),
        ({"ignore": ("cell",)}, "observation 'cell' is .* there and absent here"),
        ({"actions": spaces.Discrete(6)}, "actions is .*5.* there and .*6.* here"),
    ],
    ids=["width", "rope", "bounds", "more to see", "less to see", "actions"],
)
def test_any_other_misfit_is_refused_by_name(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    source = saved(make_policy(), tmp_path)
    other = make_policy(max_episode_steps=13, seed=1, **changes)
    before = {name: weight.clone() for name, weight in other.state_dict().items()}
    with pytest.raises(ConfigError, match=f"doesn't fit this policy: {message}"):
        load_weights(other, source)
    assert all(torch.equal(weight, before[name]) for name, weight in other.state_dict().items())
