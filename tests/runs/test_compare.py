from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from embodied_icrl.policy.frozen import FrozenEncoderConfig
from embodied_icrl.runs.compare import FREE_KEYS, FROZEN, compare_configs, flatten

BASE: dict[str, Any] = {
    "run": "runs/a",
    "seed": 0,
    "device": "cpu",
    "env": {"_target_": "a.B", "size": [3, 4]},
    "policy": {"encoders": {}, "window": None, "sink": "kv"},
    "ppo": {"refresh": True, "gamma": 0.99},
    "vector": {"num_envs": 8, "workers": 0},
    "trainer": {"total_steps": 100, "max_seconds": None},
    "evaluation": {"every_steps": 5, "settings": {"n_trials": 3}},
    "logging": {"wandb": False},
    "checkpoint": {"keep": 3},
}


def changed(key: str, value: Any) -> dict[str, Any]:
    """BASE with one dotted key set."""
    config: dict[str, Any] = {k: dict(v) if isinstance(v, dict) else v for k, v in BASE.items()}
    *groups, last = key.split(".")
    place = config
    for group in groups:
        place[group] = dict(place[group])
        place = place[group]
    place[last] = value
    return config


def test_equal_configs_are_accepted() -> None:
    assert compare_configs(BASE, changed("seed", 0)) == []


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("run", "elsewhere"),
        ("device", "cuda"),
        ("vector.workers", 2),
        ("evaluation.settings.n_trials", 9),
        ("logging.wandb", True),
        ("checkpoint.keep", 0),
        ("trainer.max_seconds", 60.0),
        ("trainer.total_steps", 101),
        ("logging.new_key", 1),
    ],
)
def test_free_and_growing_keys_may_change(key: str, value: Any) -> None:
    assert compare_configs(BASE, changed(key, value)) == []


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("seed", 1, "seed was 0, now 1"),
        ("seed", False, "seed was 0, now False"),
        ("ppo.refresh", 1, "ppo.refresh was True, now 1"),
        ("ppo.gamma", 0.9, "ppo.gamma was 0.99, now 0.9"),
        ("policy.window", 5, "policy.window was null, now 5"),
        ("policy.sink", "k", "policy.sink was 'kv', now 'k'"),
        ("env.size", [3, 5], "env.size was [3, 4], now [3, 5]"),
        ("env._target_", "a.C", "env._target_ was 'a.B', now 'a.C'"),
        ("vector.num_envs", 9, "vector.num_envs was 8, now 9"),
        ("ppo.clip", 0.2, "ppo.clip was absent, now 0.2"),
        ("trainer.total_steps", 99, "trainer.total_steps was 100, now 99 (it may only grow)"),
        ("trainer.total_steps", None, "trainer.total_steps was 100, now null"),
    ],
)
def test_everything_else_is_refused_with_old_and_new_value(
    key: str, value: Any, expected: str
) -> None:
    assert compare_configs(BASE, changed(key, value)) == [expected]


def test_a_key_that_is_gone_is_refused() -> None:
    new = changed("ppo", {"refresh": True})
    assert compare_configs(BASE, new) == ["ppo.gamma was 0.99, now absent"]


def test_a_free_group_does_not_free_names_that_begin_alike() -> None:
    assert compare_configs({"running": 1, "run": 2}, {"running": 2, "run": 3}) == [
        "running was 1, now 2"
    ]


leaves = st.none() | st.booleans() | st.integers() | st.text(max_size=3)
keys = st.text("abc", min_size=1, max_size=2)
trees = st.recursive(
    st.dictionaries(keys, leaves, max_size=3),
    lambda inner: st.dictionaries(keys, leaves | inner, max_size=3),
    max_leaves=6,
)


@given(trees, trees)
def test_a_difference_is_named_exactly_for_the_keys_that_differ(
    old: dict[str, Any], new: dict[str, Any]
) -> None:
    before, after = flatten(old), flatten(new)
    differing = {
        key
        for key in before.keys() | after.keys()
        if (key in before) != (key in after) or repr(before[key]) != repr(after[key])
    }
    refused = compare_configs(old, new, free=(), growing=())
    assert {line.split(" was ")[0] for line in refused} == differing
    assert compare_configs(old, new, free=tuple(differing), growing=()) == []


def test_the_default_free_keys_leave_the_science_alone() -> None:
    for key in ("seed", "env", "policy", "ppo", "dtype", "vector.num_envs", "init_from"):
        assert not any(key == free or key.startswith(free + ".") for free in FREE_KEYS)


def test_the_weights_of_a_frozen_encoder_may_lie_elsewhere() -> None:
    """Only theirs: a checkpoint doesn't know the files of others, nor may anything else change."""

    def encoder(target: str, weights: str, chunk: int = 64) -> dict[str, Any]:
        return changed(
            "policy.encoders",
            {"head": {"_target_": target, "weights": weights, "chunk": chunk}},
        )

    assert compare_configs(encoder(FROZEN, "a.pt"), encoder(FROZEN, "b/a.pt")) == []
    (other,) = compare_configs(encoder("mine.Config", "a.pt"), encoder("mine.Config", "b/a.pt"))
    assert other == "policy.encoders.head.weights was 'a.pt', now 'b/a.pt'"
    (chunk,) = compare_configs(encoder(FROZEN, "a.pt"), encoder(FROZEN, "b/a.pt", chunk=8))
    assert "chunk" in chunk
    assert len(compare_configs(encoder(FROZEN, "a.pt"), encoder("mine.Config", "b.pt"))) == 2


def test_that_encoder_is_called_so() -> None:
    assert f"{FrozenEncoderConfig.__module__}.{FrozenEncoderConfig.__qualname__}" == FROZEN
