"""GridHouse: find objects in an unknown house, and remember for later episodes where they were.

The fast sibling of object navigation in rendered houses: rooms, walls, doorways, objects that stay
where they are within a trial, and a target type that changes from episode to episode.
"""

from __future__ import annotations

import gymnasium as gym
import numpy as np

from embodied_icrl.common.seeds import task_rng
from embodied_icrl.envs.base import Observation, RenderState
from embodied_icrl.envs.batched import BatchedTrialEnv
from embodied_icrl.envs.counter import draw_below, trial_keys
from embodied_icrl.envs.grid_house_config import GridHouseConfig
from embodied_icrl.envs.grid_house_render import render_house
from embodied_icrl.envs.grid_layout import SPLIT_SHARES, Layout, make_layout
from embodied_icrl.envs.grid_vision import (
    FAR,
    FIRST_TYPE,
    STEPS,
    LocalView,
    distance_table,
    move_table,
)


class GridHouse(BatchedTrialEnv):
    """Batched GridHouse.

    Observation, with `v = view_size` and `m = max_types`:

    - "view": MultiBinary `[v * v * (m + 3)]`, for each cell of the window around the agent (row by
      row, north up) the bits wall, doorway, unseen, object of type 0 .. m - 1. A seen free cell
      has none. Walls hide what is behind them.
    - "visible": MultiBinary `[m]`, whether an object of each type is in view.
    - "position": column and row of the agent.
    - "goal": the type to find in this episode.

    Actions: up, down, left, right; walls stop the agent. The step that ends on an object of the
    goal's type pays 1 and terminates; every step costs `step_cost`. Goal type and start are drawn
    anew in each episode, the start at least `min_distance` moves away from the goal. SPL counts
    every step, those against walls too.
    """

    splits = tuple(SPLIT_SHARES)
    state_names = ("_cell", "_goal", "_shortest")

    def __init__(
        self,
        config: GridHouseConfig,
        num_envs: int,
        *,
        split: str = "train",
        seed: int = 0,
        first_index: int = 0,
        total_envs: int | None = None,
    ) -> None:
        self.config = config
        size, max_types = config.size, config.max_types
        self._vision = LocalView(size, config.view_size)
        self._bits = _code_bits(max_types)
        cells, view_cells = size**2, config.view_size**2
        super().__init__(
            num_envs,
            gym.spaces.Dict(
                {
                    "view": gym.spaces.MultiBinary(view_cells * self._bits.shape[1]),
                    "visible": gym.spaces.MultiBinary(max_types),
                    "position": gym.spaces.MultiDiscrete([size, size]),
                    "goal": gym.spaces.Discrete(max_types),
                }
            ),
            gym.spaces.Discrete(len(STEPS)),
            config.horizon,
            split=split,
            seed=seed,
            first_index=first_index,
            total_envs=total_envs,
        )
        self._xy = np.stack(np.divmod(np.arange(cells), size)[::-1], axis=1)
        self._trial_key = np.zeros(num_envs, dtype=np.uint64)
        self._walls = np.zeros((num_envs, size, size), dtype=bool)
        self._doors = np.zeros((num_envs, size, size), dtype=bool)
        self._objects = np.full((num_envs, size, size), -1, dtype=np.int8)
        self._moves = np.zeros((num_envs, cells, len(STEPS)), dtype=np.int16)
        self._distance = np.zeros((num_envs, config.n_types, cells), dtype=np.int16)
        self._codes = np.zeros((num_envs, cells, view_cells), dtype=np.uint8)
        self._presence = np.zeros((num_envs, cells, max_types), dtype=np.int8)
        self._cell = np.zeros(num_envs, dtype=np.int64)
        self._goal = np.zeros(num_envs, dtype=np.int64)
        self._shortest = np.zeros(num_envs, dtype=np.int64)

    def layout(self, index: int) -> Layout:
        """The house of environment `index`."""
        return Layout(
            self._walls[index].copy(), self._doors[index].copy(), self._objects[index].copy()
        )

    def oracle_action(self, mask: np.ndarray | None = None) -> np.ndarray:
        rows = self._rows
        reached = self._moves[rows, self._cell]
        left = self._distance[rows[:, None], self._goal[:, None], reached]
        best: np.ndarray = left.argmin(axis=1)
        return best

    def render_state(self, index: int) -> RenderState:
        cell = int(self._cell[index])
        side = self.config.view_size
        view = self._codes[index, cell].reshape(side, side)
        row, column = divmod(cell, self.config.size)
        return render_house(self.layout(index), view, (row, column), int(self._goal[index]))

    def _set_tasks(self, rows: np.ndarray, task_ids: np.ndarray) -> None:
        if not rows.size:
            return
        layouts = [self._draw_layout(int(index)) for index in task_ids]
        walls = np.stack([layout.walls for layout in layouts])
        doors = np.stack([layout.doors for layout in layouts])
        objects = np.stack([layout.objects for layout in layouts])
        types = np.arange(self.config.max_types)
        goals = objects[:, None] == types[: self.config.n_types, None, None]
        codes = self._vision.table(walls, doors, objects)
        self._trial_key[rows] = trial_keys(self._split, self._seed, task_ids)
        self._walls[rows], self._doors[rows], self._objects[rows] = walls, doors, objects
        self._moves[rows] = move_table(walls)
        self._distance[rows] = distance_table(walls, goals)
        self._codes[rows] = codes
        for kind in types:
            self._presence[rows, :, kind] = (codes == FIRST_TYPE + kind).any(axis=-1)

    def _draw_layout(self, task_id: int) -> Layout:
        rng = task_rng(self._split, self._seed, task_id)
        rooms = self.config.room_counts
        return make_layout(
            rng,
            self._split,
            size=self.config.size,
            n_rooms=rooms[rng.integers(len(rooms))],
            n_types=self.config.n_types,
            instances=self.config.instances,
            min_room=self.config.min_room,
        )

    def _begin_episodes(self, rows: np.ndarray) -> None:
        if not rows.size:
            return
        keys, episodes = self._trial_key[rows], self._episode[rows]
        goal = draw_below(keys, episodes, 0, self.config.n_types)
        distance = self._distance[rows, goal]
        far_enough = (distance >= self.config.min_distance) & (distance != FAR)
        counts = far_enough.cumsum(axis=1)
        chosen = draw_below(keys, episodes, 1, counts[:, -1])
        cell = (counts > chosen[:, None]).argmax(axis=1)
        shortest = distance[np.arange(len(rows)), cell]
        self._goal[rows], self._cell[rows], self._shortest[rows] = goal, cell, shortest
        paid = np.where(shortest <= self.config.horizon, 1.0, 0.0)
        steps = np.minimum(shortest, self.config.horizon)
        self._optimal[rows] = paid - self.config.step_cost * steps

    def _advance(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        self._cell = self._moves[self._rows, self._cell, actions].astype(np.int64)
        reached = self._distance[self._rows, self._goal, self._cell] == 0
        self._success |= reached
        return (reached - self.config.step_cost).astype(np.float32), reached

    def _observe(self) -> Observation:
        codes = self._codes[self._rows, self._cell]
        return {
            "view": self._bits[codes].reshape(self.num_envs, -1),
            "visible": self._presence[self._rows, self._cell],
            "position": self._xy[self._cell],
            "goal": self._goal.copy(),
        }

    def _episode_extras(self) -> dict[str, np.ndarray]:
        spl = (
            self._success * self._shortest / np.maximum(np.maximum(self._shortest, self._steps), 1)
        )
        return {"spl": spl.astype(np.float32)}


def _code_bits(max_types: int) -> np.ndarray:
    """The bits of each cell code: int8 `[code, bit]`; a free cell has none."""
    codes = FIRST_TYPE + max_types
    bits = np.zeros((codes, codes - 1), dtype=np.int8)
    bits[1:] = np.eye(codes - 1, dtype=np.int8)
    return bits
