"""Random numbers that belong to a trial, however many trials run side by side."""

from __future__ import annotations

import numpy as np

from embodied_icrl.common.seeds import derived_rng

_BLOCK = 64


class TrialNoise:
    """For each of a batch of trials its own stream of uniform numbers in (0, 1).

    The numbers of a trial depend on ``seed``, ``name``, the trial's number and the step only.
    They are drawn in blocks, because a generator call per trial and step would cost more than the
    environment.

    Args:
        trials: int ``[env]``, the trials' numbers.
        width: numbers per trial and step.
    """

    def __init__(self, seed: int, name: str, trials: np.ndarray, width: int) -> None:
        self._streams = [derived_rng(seed, name, int(trial)) for trial in trials]
        self._width = width
        self._block = np.empty((len(self._streams), 0, width))
        self._next = 0

    def draw(self) -> np.ndarray:
        """The next numbers of every trial, float64 ``[env, width]``."""
        if self._next == self._block.shape[1]:
            shape = (_BLOCK, self._width)
            self._block = np.stack([stream.random(shape) for stream in self._streams])
            # The open interval: an inverse distribution function has no value at 0.
            np.clip(self._block, 2.0**-54, 1.0 - 2.0**-53, out=self._block)
            self._next = 0
        self._next += 1
        return self._block[:, self._next - 1]
