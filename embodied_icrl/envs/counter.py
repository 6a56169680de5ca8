"""Random numbers without a state: each is a hash of a trial's key, the episode and a draw number.

Episode k of a trial looks the same whatever happened before it, thousands of environments draw in
a handful of array operations, and there is no generator state to save.
"""

from __future__ import annotations

import numpy as np

from embodied_icrl.common.seeds import derived_seed

_GOLDEN = 0x9E3779B97F4A7C15
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)


def trial_keys(split: str, seed: int, task_ids: np.ndarray) -> np.ndarray:
    """One key per task id: uint64 `[task]`, from (split, seed, id) only."""
    keys = [derived_seed(seed, "episodes", split, int(index)) for index in task_ids]
    return np.array(keys, dtype=np.uint64)


def draw_below(
    keys: np.ndarray, episodes: np.ndarray, draw: int, bound: np.ndarray | int
) -> np.ndarray:
    """A number in [0, bound) for each key.

    Args:
        keys: uint64 `[row]`.
        episodes: index of the episode within its trial, int64 `[row]`.
        draw: which draw of the episode this is.
        bound: exclusive upper limit, a number or int64 `[row]`, at most 2**32.

    Returns:
        int64 `[row]`, each value as probable as the others to within 2**-21.
    """
    bits = _mix(keys + np.uint64(_GOLDEN) * episodes.astype(np.uint64))
    bits = _mix(bits + np.uint64(_GOLDEN * (draw + 1) % 2**64))
    fraction = (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53
    drawn: np.ndarray = (fraction * bound).astype(np.int64)
    return drawn


def _mix(bits: np.ndarray) -> np.ndarray:
    """The finaliser of splitmix64 (Steele, Lea, Flood 2014): each bit flips half of them."""
    bits = (bits ^ (bits >> np.uint64(30))) * _MIX_1
    bits = (bits ^ (bits >> np.uint64(27))) * _MIX_2
    mixed: np.ndarray = bits ^ (bits >> np.uint64(31))
    return mixed
