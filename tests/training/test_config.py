"""Refusals of impossible training settings, each with the change to make."""

from __future__ import annotations

from typing import Any

import pytest

from embodied_icrl.common.config import build, to_dict
from embodied_icrl.common.errors import ConfigError
from embodied_icrl.training.config import PPOConfig


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_steps": 210, "updates_per_rollout": 4}, "use num_steps=208 or 212"),
        ({"num_steps": 3, "updates_per_rollout": 4}, "use num_steps=4"),
        ({"updates_per_rollout": 4, "num_steps": 8, "full_updates_per_rollout": 3}, "divide"),
        ({"minibatches": 4, "grad_accumulation": 3}, "not divisible"),
        ({"refresh": False}, "shuffle_episodes=false"),
        ({"gamma": 1.5}, r"\[0, 1\]"),
        ({"epochs": 0}, "at least 1"),
        ({"learning_rate": 0.0}, "positive"),
        ({"lerning_rate": 0.1}, "learning_rate"),
    ],
)
def test_refusals(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build(settings, PPOConfig)


def test_full_updates_are_evenly_spaced_and_end_the_rollout() -> None:
    def full(updates: int, number: int) -> list[int]:
        config = PPOConfig(
            num_steps=16, updates_per_rollout=updates, full_updates_per_rollout=number
        )
        return [u for u in range(1, updates + 1) if config.is_full(u)]

    assert full(8, 1) == [8]
    assert full(8, 2) == [4, 8]
    assert full(8, 0) == []
    assert full(1, 1) == [1]


def test_round_trip() -> None:
    config = PPOConfig(num_steps=64, updates_per_rollout=4, target_kl=0.1)
    assert build(to_dict(config), PPOConfig) == config
