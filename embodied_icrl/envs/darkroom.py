"""Darkroom: find a hidden goal cell, and come back to it in every later episode.

The grid world of the Algorithm Distillation (arXiv 2210.14215) and DPT (arXiv 2306.14892) line of
work, with the paper's split of goals (ReLIC, arXiv 2410.02751) and one of (start, goal) pairs.
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
from embodied_icrl.envs.held_out import HeldOutTasks
from embodied_icrl.envs.square_grid import NUM_ACTIONS, SquareGrid


@dataclass(frozen=True)
class DarkroomConfig:
    """Darkroom: reward 1 for every step that ends on a hidden cell."""

    dim: int = option(9, "side of the square grid, cells")
    horizon: int = option(20, "steps per episode")
    split_by: Literal["start_goal", "goals"] = option(
        "start_goal",
        "what is held out: start_goal (pairs; the start is fixed within a trial) or goals "
        "(goal cells, every trial starts at `start`: the paper's split)",
    )
    start: tuple[int, int] | None = option(
        None, "column and row of the start if split_by=goals; null: the centre"
    )
    held_out: float = option(0.2, "fraction of the pairs or goals in the split test")
    split_seed: int = option(0, "decides which pairs or goals are held out")

    def __post_init__(self) -> None:
        if self.horizon < 1:
            raise ConfigError(f"horizon={self.horizon} must be at least 1 step")
        if self.start is not None:
            if self.split_by != "goals":
                raise ConfigError("start is for split_by=goals; with start_goal each trial has one")
            if not all(0 <= place < self.dim for place in self.start):
                raise ConfigError(
                    f"start={list(self.start)} lies outside the {self.dim} x {self.dim} grid"
                )

    def build(
        self,
        num_envs: int,
        *,
        split: str = "train",
        seed: int = 0,
        first_index: int = 0,
        total_envs: int | None = None,
    ) -> Darkroom:
        """The environments of a split; see `TrialVectorEnv` for the arguments."""
        return Darkroom(
            self, num_envs, split=split, seed=seed, first_index=first_index, total_envs=total_envs
        )


class Darkroom(BatchedTrialEnv):
    """Batched Darkroom.

    Observation: "position", column and row. Actions: up, down, left, right, stay. An episode always
    takes `horizon` steps; it is a success if any of them ended on the goal. The goal never lies on
    the start.
    """

    state_names = ("_cell",)

    def __init__(
        self,
        config: DarkroomConfig,
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
        self._pairs = HeldOutTasks(self._count_tasks(), config.held_out, split, config.split_seed)
        self._start = np.zeros(num_envs, dtype=np.int64)
        self._goal = np.zeros(num_envs, dtype=np.int64)
        self._cell = np.zeros(num_envs, dtype=np.int64)

    def split_pairs(self) -> tuple[np.ndarray, np.ndarray]:
        """All start and goal cells of this split: int64 `[task]` each."""
        return self._start_and_goal(self._pairs.items)

    def oracle_action(self, mask: np.ndarray | None = None) -> np.ndarray:
        return self.grid.toward(self._cell, self._goal)

    def render_state(self, index: int) -> RenderState:
        goal = (int(self._goal[index]), "square", pictures.GREEN, "goal")
        return self.grid.render(int(self._cell[index]), [goal])

    def _count_tasks(self) -> int:
        cells = self.grid.cells
        return cells - 1 if self.config.split_by == "goals" else cells * (cells - 1)

    def _start_and_goal(self, items: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if self.config.split_by == "start_goal":
            return self.grid.ordered_pair(items)
        start = self.grid.centre
        if self.config.start is not None:
            start = self.config.start[1] * self.config.dim + self.config.start[0]
        return np.full(len(items), start), items + (items >= start)

    def _set_tasks(self, rows: np.ndarray, task_ids: np.ndarray) -> None:
        items = self._pairs.pick(self._seed, task_ids)
        self._start[rows], self._goal[rows] = self._start_and_goal(items)

    def _begin_episodes(self, rows: np.ndarray) -> None:
        self._cell[rows] = self._start[rows]
        distance = self.grid.distance(self._start[rows], self._goal[rows])
        self._optimal[rows] = np.maximum(self.config.horizon - distance + 1, 0)

    def _advance(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        self._cell = self.grid.moves[self._cell, actions]
        on_goal = self._cell == self._goal
        self._success |= on_goal
        return on_goal.astype(np.float32), np.zeros(self.num_envs, dtype=bool)

    def _observe(self) -> Observation:
        return {"position": self.grid.xy[self._cell]}
