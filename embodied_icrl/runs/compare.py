"""Which changes of configuration a run can be resumed with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

# A key is free if it, or a group it lies in, is named here: it changes how the run is watched or
# where it is computed, not what it computes.
FREE_KEYS = (
    "run",
    "resume",
    "debug",
    "processes",
    "device",
    "threads",
    "vector.workers",
    "trainer.max_seconds",
    "trainer.max_worker_restarts",
    "trainer.worker_timeout_s",
    "evaluation",
    "logging",
    "checkpoint",
)
GROWING_KEYS = ("trainer.total_steps",)
# Where an encoder of this class has its weights is free too: a checkpoint knows the file's
# SHA-256, and takes no other.
FROZEN = "embodied_icrl.policy.frozen.FrozenEncoderConfig"

_ABSENT = object()


def compare_configs(
    old: Mapping[str, Any],
    new: Mapping[str, Any],
    *,
    free: Sequence[str] = FREE_KEYS,
    growing: Sequence[str] = GROWING_KEYS,
) -> list[str]:
    """The differences that a resumed run can't have, each with its old and its new value.

    Args:
        old: the run's configuration, defaults filled (`common.config.to_dict`).
        new: the configuration asked for, defaults filled.
        free: dotted keys, or groups of keys, that may change.
        growing: dotted keys of numbers that may grow.

    Returns:
        lines like ``ppo.gamma was 0.99, now 0.9``; empty if the run can be resumed.
    """
    before, after = flatten(old), flatten(new)
    free = (*free, *(_weight_files(before) & _weight_files(after)))
    refused = []
    for key in [*before, *(key for key in after if key not in before)]:
        was, now = before.get(key, _ABSENT), after.get(key, _ABSENT)
        if _same(was, now) or _is_free(key, free):
            continue
        if key in growing and _is_number(was) and _is_number(now):
            if now < was:
                refused.append(f"{key} was {_text(was)}, now {_text(now)} (it may only grow)")
        else:
            refused.append(f"{key} was {_text(was)}, now {_text(now)}")
    return refused


def flatten(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """A nested mapping as one of dotted keys; an empty mapping inside stays a value."""
    flat: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, Mapping) and value:
            flat.update(flatten(value, f"{prefix}{key}."))
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def _weight_files(flat: Mapping[str, Any]) -> set[str]:
    """The keys that name the weights of frozen encoders."""
    suffix = "._target_"
    return {
        f"{key.removesuffix(suffix)}.weights"
        for key, value in flat.items()
        if key.endswith(suffix) and value == FROZEN
    }


def _same(was: Any, now: Any) -> bool:
    # In Python True == 1, but the two don't configure the same thing.
    return isinstance(was, bool) == isinstance(now, bool) and bool(was == now)


def _is_free(key: str, free: Sequence[str]) -> bool:
    return any(key == name or key.startswith(name + ".") for name in free)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _text(value: Any) -> str:
    if value is _ABSENT:
        return "absent"
    return "null" if value is None else repr(value)
