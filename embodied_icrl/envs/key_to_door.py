"""Dark key-to-door: find a hidden key, then a hidden door.

The two-stage version of Darkroom in the Algorithm Distillation line of work (arXiv 2210.14215).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import gymnasium as gym
import numpy as np

from embodied_icrl.common.config import option
from embodied_icrl.common.errors import ConfigError
from embodied_icrl.envs import pictures
from embodied_icrl.envs.base import Observation, RenderState
from embodied_icrl.envs.batched import BatchedTrialEnv
from embodied_icrl.envs.counter import draw_below, trial_keys
from embodied_icrl.envs.held_out import HeldOutTasks
from embodied_icrl.envs.square_grid import NUM_ACTIONS, SquareGrid


@dataclass(frozen=True)
class KeyToDoorConfig:
    """Dark key-to-door: a hidden key pays 1, then a hidden door pays 1 and ends the episode."""

    dim: int = option(9, "side of the square grid, cells")
    horizon: int = option(50, "steps per episode")
    start: Literal["centre", "trial", "episode"] = option(
        "centre", "start cell: the centre, one drawn per trial, or one drawn per episode"
    )
    held_out: float = option(0.2, "fraction of the (key, door) pairs in the split test")
    split_seed: int = option(0, "decides which pairs are held out")

    def __post_init__(self) -> None:
        if self.horizon < 1:
            raise ConfigError(f"horizon={self.horizon} must be at least 1 step")

    def build(
        self,
        num_envs: int,
        *,
        split: str = "train",
        seed: int = 0,
        first_index: int = 0,
        total_envs: int | None = None,
    ) -> KeyToDoor:
        """The environments of a split; see `TrialVectorEnv` for the arguments."""
        return KeyToDoor(
            self, num_envs, split=split, seed=seed, first_index=first_index, total_envs=total_envs
        )


class KeyToDoor(BatchedTrialEnv):
    """Batched dark key-to-door.

    Observation: "position", column and row, nothing else: whether the key has been found shows in
    the reward only. Actions: up, down, left, right, stay. The first step that ends on the key pays
    1; after that the first step that ends on the door pays 1, is a success and terminates. Key and
    door are different cells, and the start is never the key's.
    """

    state_names = ("_cell", "_has_key")

    def __init__(
        self,
        config: KeyToDoorConfig,
        num_envs: int,
        *,
        split: str = "train",
        seed: int = 0,
        first_index: int = 0,
        total_envs: int | None = None,
    ) -> None:
        self.config = config
        self.grid = SquareGrid(config.dim)
        super().__init__(
            num_envs,
            self.grid.position_space(),
            gym.spaces.Discrete(NUM_ACTIONS),
            config.horizon,
            split=split,
            seed=seed,
            first_index=first_index,
            total_envs=total_envs,
        )
        # The centre can't hold the key if every episode starts there.
        self._key_cells = np.arange(self.grid.cells)
        if config.start == "centre":
            self._key_cells = np.delete(self._key_cells, self.grid.centre)
        count = len(self._key_cells) * (self.grid.cells - 1)
        self._pairs = HeldOutTasks(count, config.held_out, split, config.split_seed)
        self._trial_key = np.zeros(num_envs, dtype=np.uint64)
        self._key = np.zeros(num_envs, dtype=np.int64)
        self._door = np.zeros(num_envs, dtype=np.int64)
        self._cell = np.zeros(num_envs, dtype=np.int64)
        self._has_key = np.zeros(num_envs, dtype=bool)

    def split_pairs(self) -> tuple[np.ndarray, np.ndarray]:
        """All key and door cells of this split: int64 `[task]` each."""
        return self._key_and_door(self._pairs.items)

    def oracle_action(self, mask: np.ndarray | None = None) -> np.ndarray:
        return self.grid.toward(self._cell, np.where(self._has_key, self._door, self._key))

    def render_state(self, index: int) -> RenderState:
        door = (int(self._door[index]), "door", pictures.GREEN, "door")
        key = (int(self._key[index]), "key", pictures.GOLD, "key")
        marks = [door] if self._has_key[index] else [door, key]
        return self.grid.render(int(self._cell[index]), marks)

    def _key_and_door(self, items: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        place, other = np.divmod(items, self.grid.cells - 1)
        key = self._key_cells[place]
        return key, other + (other >= key)

    def _set_tasks(self, rows: np.ndarray, task_ids: np.ndarray) -> None:
        items = self._pairs.pick(self._seed, task_ids)
        self._key[rows], self._door[rows] = self._key_and_door(items)
        if self.config.start != "centre":
            self._trial_key[rows] = trial_keys(self._split, self._seed, task_ids)

    def _begin_episodes(self, rows: np.ndarray) -> None:
        self._has_key[rows] = False
        self._cell[rows] = self._starts(rows)
        to_key = self.grid.distance(self._cell[rows], self._key[rows])
        to_door = to_key + self.grid.distance(self._key[rows], self._door[rows])
        horizon = self.config.horizon
        self._optimal[rows] = (to_key <= horizon) * 1.0 + (to_door <= horizon)

    def _starts(self, rows: np.ndarray) -> np.ndarray:
        if self.config.start == "centre":
            return np.full(len(rows), self.grid.centre)
        episodes = self._episode[rows] if self.config.start == "episode" else 0 * rows
        other = draw_below(self._trial_key[rows], episodes, 0, self.grid.cells - 1)
        starts: np.ndarray = other + (other >= self._key[rows])
        return starts

    def _advance(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        self._cell = self.grid.moves[self._cell, actions]
        opened = self._has_key & (self._cell == self._door)
        picked = ~self._has_key & (self._cell == self._key)
        self._has_key |= picked
        self._success |= opened
        return (picked | opened).astype(np.float32), opened

    def _observe(self) -> Observation:
        return {"position": self.grid.xy[self._cell]}
