"""Random streams that depend on their names only.

Every stream is named by an integer seed and a path of names. Two streams with different names are
independent; the same names give the same numbers in every process and on every machine, whatever
else has been drawn before.
"""

from __future__ import annotations

import hashlib
import json
import operator
from typing import Union

import numpy as np

Name = Union[str, int]


def task_rng(split: str, seed: int, index: int) -> np.random.Generator:
    """The stream that draws task number `index` of a split: depends on its arguments only."""
    return derived_rng(seed, "task", split, index)


def derived_rng(seed: int, *names: Name) -> np.random.Generator:
    """A generator for the stream `names` under `seed`."""
    entropy = int.from_bytes(_digest(seed, names), "little")
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(entropy)))


def derived_seed(seed: int, *names: Name) -> int:
    """An integer in [0, 2**63) for the stream `names` under `seed`, for other libraries' seeds."""
    return int.from_bytes(_digest(seed, names)[:8], "little") >> 1


def _digest(seed: int, names: tuple[Name, ...]) -> bytes:
    parts = [name if isinstance(name, str) else operator.index(name) for name in (seed, *names)]
    if isinstance(parts[0], str):
        raise TypeError(f"a seed is an integer, not {seed!r}")
    return hashlib.sha256(json.dumps(parts).encode("utf-8")).digest()
