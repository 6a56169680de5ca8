"""A finite set of tasks, part of it held out, dealt in shuffled rounds."""

from __future__ import annotations

import numpy as np

from embodied_icrl.common.errors import ConfigError
from embodied_icrl.common.seeds import derived_rng


class HeldOutTasks:
    """Which of `count` items belong to a split, and which of them is task number i.

    A shuffle seeded by `split_seed` puts the last `held_out` of the items into "test", the others
    into "train". Tasks 0 to n - 1 are the n items of the split in an order drawn from `seed`, the
    next n are the same items in another order, and so on: every item comes up equally often.

    Args:
        count: number of items.
        held_out: fraction of them in the split "test", in (0, 1).
        split: "train" or "test".
        split_seed: decides which items are held out; the same for both splits.

    Attributes:
        items: int64 `[n]`, the items of the split.

    Raises:
        ConfigError: one of the two splits would be empty.
    """

    def __init__(self, count: int, held_out: float, split: str, split_seed: int) -> None:
        tests = round(count * held_out)
        if not 0 < tests < count:
            raise ConfigError(
                f"held_out={held_out} of {count} tasks leaves a split empty; choose another "
                "fraction or a larger grid"
            )
        shuffled = derived_rng(split_seed, "held out").permutation(count)
        self.items = shuffled[count - tests :] if split == "test" else shuffled[: count - tests]
        self._split = split
        self._order: tuple[tuple[int, int], np.ndarray] | None = None

    def pick(self, seed: int, task_ids: np.ndarray) -> np.ndarray:
        """The items that are tasks `task_ids` (int64 `[row]`) under `seed`: int64 `[row]`."""
        rounds, places = np.divmod(task_ids, len(self.items))
        picked = np.empty(len(task_ids), dtype=np.int64)
        for number in np.unique(rounds):
            of_round = rounds == number
            picked[of_round] = self._shuffled(seed, int(number))[places[of_round]]
        return picked

    def _shuffled(self, seed: int, number: int) -> np.ndarray:
        if self._order is None or self._order[0] != (seed, number):
            rng = derived_rng(seed, "order of tasks", self._split, number)
            self._order = ((seed, number), self.items[rng.permutation(len(self.items))])
        return self._order[1]
