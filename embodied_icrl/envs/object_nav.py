"""Extended object navigation: find one object after another in a house that stays the same.

Written against `simulators.base`, so that every backend plays by the same rules.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np

from embodied_icrl.envs.base import Observation, RenderState, check_split
from embodied_icrl.envs.batched import BatchedTrialEnv
from embodied_icrl.envs.counter import draw_below, trial_keys
from embodied_icrl.envs.object_nav_config import ObjectNavConfig
from embodied_icrl.envs.object_nav_houses import House, HouseSource
from embodied_icrl.envs.object_nav_oracle import Oracle
from embodied_icrl.envs.object_nav_render import Explored, render_house
from embodied_icrl.envs.object_nav_success import SuccessRule
from embodied_icrl.houses.generate import SPLITS
from embodied_icrl.simulators.base import ArraySpec, Simulator

_FINE = 2**31


class ObjectNav(BatchedTrialEnv):
    """Batched object navigation.

    A trial is a house. Each episode draws a category and a start pose, both from the split, the
    seed, the task's number and the episode's only. Observation, besides the sensors':

    - "target": the category to find, Discrete.
    - "gps": how far the agent is to the right and ahead of the trial's first pose, in parts of
      `gps_range`, and "heading": sine and cosine of its yaw relative to that pose, float32 `[2]`.
    - "collided": whether the last `forward` met something, MultiBinary `[1]`.

    Success: the camera is within `success_distance` of the middle of an instance, in the plan, and
    the reference camera sees `min_pixels` of the same instance, when `stop` is called (`stop:
    action`; otherwise the episode has failed) or at any step (`stop: automatic`).

    Reward: metres by which the walking distance to the goal has shrunk, the success reward, less
    the cost of a step. The goal is every place from which an agent that faces an instance sees it,
    and has its camera within `success_distance` of it. `info["episode"]` has, besides success:
    "spl" and "soft_spl" by metres walked, "path" and "shortest" (metres; shortest is the walking
    distance from the start to the goal), "distance_to_goal" (metres, at the end) and "collisions".
    """

    splits = SPLITS
    state_names = (
        "_target", "_origin", "_hits", "_path", "_distance", "_shortest", "_touch",
        "_position", "_yaw", "_tilt", "_oracle_wanted",
    )  # fmt: skip

    def __init__(
        self,
        config: ObjectNavConfig,
        num_envs: int,
        *,
        split: str = "train",
        seed: int = 0,
        first_index: int = 0,
        total_envs: int | None = None,
    ) -> None:
        check_split(split, self.splits)
        self.config = config
        self.action_names = config.actions
        self.categories = config.task_categories
        # First, since it is fast and may find that a dataset is missing.
        self._source = HouseSource(config, split)
        self.simulator: Simulator = config.simulator.build(
            num_envs, config.sensors, self.categories, config.body
        )
        try:
            specs = self.simulator.observation_specs()
            spaces = {key: _space(spec) for key, spec in specs.items()} | self._own_spaces()
            super().__init__(
                num_envs,
                gym.spaces.Dict(spaces),
                gym.spaces.Discrete(len(config.actions)),
                config.horizon,
                split=split,
                seed=seed,
                first_index=first_index,
                total_envs=total_envs,
            )
        except BaseException:
            self.simulator.close()
            raise
        self._make_actions()
        self._make_arrays(specs)

    def _own_spaces(self) -> dict[str, gym.Space[Any]]:
        frame = self.config.frame
        n = len(self.categories)
        return ({} if frame is None else frame.spaces(self.config.sensors, n)) | {
            "target": gym.spaces.Discrete(len(self.categories)),
            "gps": gym.spaces.Box(-np.inf, np.inf, (2,), np.float32),
            "heading": gym.spaces.Box(-1.0, 1.0, (2,), np.float32),
            "collided": gym.spaces.MultiBinary(1),
        }

    def _make_actions(self) -> None:
        """What each action moves, turns and tilts (metres, radians), by its number."""
        config = self.config
        turn, look = np.radians([config.turn_angle, config.look_angle])
        step = {"forward": config.forward_step}
        self._action_step = np.array([step.get(name, 0.0) for name in config.actions])
        turns = {"turn_left": turn, "turn_right": -turn}
        self._action_turn = np.array([turns.get(name, 0.0) for name in config.actions])
        tilts = {"look_up": look, "look_down": -look}
        self._action_tilt = np.array([tilts.get(name, 0.0) for name in config.actions])
        self._action_stops = np.array([name == "stop" for name in config.actions])
        limits = np.radians([config.tilt_lowest, config.tilt_start, config.tilt_highest])
        self._lowest, self._tilt_start, self._highest = limits

    def _make_arrays(self, specs: Mapping[str, ArraySpec]) -> None:
        n = self.num_envs
        self._out = {
            key: np.zeros((n, *spec.shape), dtype=spec.dtype) for key, spec in specs.items()
        }
        self.houses: list[House] = []
        self._explored: dict[int, Explored] = {}
        self._trial_key = np.zeros(n, dtype=np.uint64)
        self._target = np.zeros(n, dtype=np.int64)
        self._origin = np.zeros((n, 3))  # x, z and yaw of the trial's first pose
        self._hits = np.zeros(n, dtype=np.int64)
        self._touch = np.zeros(n, dtype=bool)
        self._path = np.zeros(n)
        self._distance = np.zeros(n)
        self._shortest = np.ones(n)
        # Where saved states keep the simulator's poses; the simulator has the true ones.
        self._position, self._yaw, self._tilt = np.zeros((n, 3)), np.zeros(n), np.zeros(n)
        self._rule = SuccessRule(self.config, self.simulator, n)
        self._oracle = Oracle(self.config, n)
        self._oracle_wanted = self._oracle.wanted

    @property
    def targets(self) -> np.ndarray:
        """The category that every environment is asked for, and the number of its goal: `[env]`."""
        return self._target

    def step(
        self, actions: np.ndarray
    ) -> tuple[Observation, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        observation, reward, terminated, truncated, info = super().step(actions)
        if self.config.distance_reward:
            # A success ends its episode, so that it is paid at this very step.
            info["sparse_reward"] = (self.config.success_reward * self._success).astype(np.float32)
        if self.config.horizon_ends == "truncated":
            truncated = terminated & (self._steps >= self.config.horizon) & ~self._over
            terminated = terminated & ~truncated
        return observation, reward, terminated, truncated, info

    def oracle_action(self, mask: np.ndarray | None = None) -> np.ndarray:
        wanted = np.ones(self.num_envs, dtype=bool) if mask is None else mask
        return self._oracle.act(self, wanted & ~self._ended)

    def optimal_return(self) -> np.ndarray:
        """An upper limit: the walking distance saved, and success, in as many steps as forward
        needs for it. Turning, tilting and what a coarse step overshoots are not counted."""
        return super().optimal_return()

    def may_succeed(self) -> np.ndarray:
        """Where `would_succeed` may be true, cheaply: bool `[env]`."""
        return self._rule.may_hold()

    def would_succeed(self, row: int) -> bool:
        """Whether an agent that stopped here would have found what it was asked for."""
        return self._rule.holds(row)

    def render_state(self, index: int) -> RenderState:
        key = (int(self._tasks.ids[index]), int(self._tasks.trials[index]))
        explored = self._explored.get(index)
        if explored is None or explored.trial != key:
            above = self.simulator.top_down(index)
            explored = self._explored[index] = Explored(self.houses[index].spec, above, key)
        return render_house(self, index, explored)

    def get_state(self) -> dict[str, Any]:
        simulator = self.simulator
        self._position[:], self._yaw[:] = simulator.positions, simulator.yaw
        self._tilt[:] = simulator.tilt
        return super().get_state()

    def set_state(self, state: Mapping[str, Any]) -> None:
        super().set_state(state)
        # What was seen and learned after that moment is forgotten.
        self._explored.clear()
        self._oracle.forget()
        if self._started:
            for row in self._rows:
                self._rule.aim(int(row), self.houses[row], int(self._target[row]))
            self.simulator.place(self._rows, self._position, self._yaw, self._tilt)

    def close_extras(self, **kwargs: Any) -> None:
        self.simulator.close()

    def _set_tasks(self, rows: np.ndarray, task_ids: np.ndarray) -> None:
        if not self.houses:
            # The first reset, or a state that is restored, covers every environment.
            self.houses = [
                self._source.enter(self.simulator, row, int(task), self._seed)
                for row, task in enumerate(task_ids)
            ]
        else:
            for row, task in zip(rows, task_ids, strict=True):
                self.houses[row] = self._source.enter(
                    self.simulator, int(row), int(task), self._seed
                )
        self._trial_key[rows] = trial_keys(self._split, self._seed, task_ids)

    def _begin_episodes(self, rows: np.ndarray) -> None:
        if not rows.size:
            return
        keys, episodes = self._trial_key[rows], self._episode[rows]
        order = np.argsort(
            [draw_below(keys, episodes, 2 + c, _FINE) for c in range(len(self.categories))],
            axis=0,
            kind="stable",
        )
        where = draw_below(keys, episodes, 0, _FINE) / _FINE
        turn = draw_below(keys, episodes, 1, _FINE) / _FINE
        if self.config.start_headings is not None:
            turn = np.floor(turn * self.config.start_headings) / self.config.start_headings
        yaw = turn * 2 * np.pi
        positions = np.empty((rows.size, 3))
        for i, row in enumerate(rows):
            self._target[row], starts = self._draw_target(int(row), order[:, i])
            positions[i] = starts[int(where[i] * len(starts))]
            self._rule.aim(int(row), self.houses[row], int(self._target[row]))
        self.simulator.place(rows, positions, yaw, np.full(rows.size, self._tilt_start))
        first = episodes == 0
        self._origin[rows[first], :2] = positions[first][:, ::2]
        self._origin[rows[first], 2] = yaw[first]
        self._hits[rows], self._path[rows], self._touch[rows] = 0, 0.0, False
        self._oracle.begin(rows)
        self._distance[rows] = self.simulator.distance(self._target)[rows]
        self._shortest[rows] = self._distance[rows]
        self._optimal[rows] = self._best_return(self._shortest[rows])

    def _draw_target(self, row: int, order: np.ndarray) -> tuple[int, np.ndarray]:
        """The first category of an order `[category]` that can be asked for, and its starts."""
        house = self.houses[row]
        for category in order:
            found = house.start_indices(int(category), self.simulator, row)
            if found.size:
                return int(category), house.starts[found]
        raise RuntimeError("the house source lets nobody into a house without a goal")

    def _best_return(self, shortest: np.ndarray) -> np.ndarray:
        config = self.config
        steps = np.ceil(shortest / config.forward_step - 1e-9) + (config.stop == "action")
        in_time = steps <= config.horizon
        saved = np.where(in_time, shortest, config.horizon * config.forward_step)
        best = config.distance_reward * saved + config.success_reward * in_time
        return np.asarray(best - config.step_cost * np.minimum(steps, config.horizon))

    def _advance(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        config, simulator = self.config, self.simulator
        running = ~self._ended
        steps = np.where(running, self._action_step[actions], 0.0)
        self._path += simulator.forward(steps)
        self._oracle.moved(steps > 0)
        self._touch = simulator.collided & (steps > 0)
        self._hits += self._touch
        tilt = simulator.tilt
        tilted = np.clip(tilt + self._action_tilt[actions], self._lowest, self._highest)
        simulator.turn(self._action_turn[actions], tilted - tilt)
        distance = simulator.distance(self._target)
        # Where rounding leaves the agent off the map of distances it keeps the last one.
        distance = np.where(np.isfinite(distance), distance, self._distance)
        saved = self._distance - distance
        self._distance = distance
        if config.stop == "action":
            ends = running & self._action_stops[actions]
            asks = ends
        else:
            ends = asks = running & self.may_succeed()
        for row in np.flatnonzero(asks):
            self._success[row] = self.would_succeed(int(row))
        reward = config.distance_reward * saved - config.step_cost
        reward += config.success_reward * self._success
        self._over = ends if config.stop == "action" else self._success.copy()
        return reward.astype(np.float32), self._over.copy()

    def _observe(self) -> Observation:
        simulator = self.simulator
        simulator.observe(self._out)
        right, ahead = self._origin_axes()
        moved = simulator.positions[:, ::2] - self._origin[:, :2]
        gps = np.stack([(moved * right).sum(axis=1), (moved * ahead).sum(axis=1)], axis=1)
        turned = simulator.yaw - self._origin[:, 2]
        return {
            **self._out,
            **self._in_frame(gps, turned),
            "target": self._target.copy(),
            "gps": (gps / self.config.gps_range).astype(np.float32),
            "heading": np.stack([np.sin(turned), np.cos(turned)], axis=1).astype(np.float32),
            "collided": self._touch[:, None].astype(np.int8),
        }

    def _in_frame(self, gps: np.ndarray, turned: np.ndarray) -> Observation:
        config = self.config
        if config.frame is None:
            return {}
        found = config.frame.observe(
            gps, turned, self._target, self._out, config.sensors, config.body
        )
        if "seen_at" in found:
            found["seen_at"] /= np.float32(config.gps_range)
        return found

    def _origin_axes(self) -> tuple[np.ndarray, np.ndarray]:
        """To the right and ahead, for one in the trial's first pose: (x, z) `[env, 2]` each."""
        yaw = self._origin[:, 2]
        sine, cosine = np.sin(yaw), np.cos(yaw)
        return np.stack([cosine, -sine], axis=1), np.stack([-sine, -cosine], axis=1)

    def _episode_extras(self) -> dict[str, np.ndarray]:
        shortest = self._shortest
        short = shortest / np.maximum(shortest, self._path)
        progress = np.clip(1.0 - self._distance / shortest, 0.0, 1.0)
        extras = {
            "spl": self._success * short,
            # An agent that has found the object is as near as the task asks it to be.
            "soft_spl": np.where(self._success, 1.0, progress) * short,
            "path": self._path,
            "shortest": shortest,
            "distance_to_goal": self._distance,
            "collisions": self._hits,
        }
        return {name: values.astype(np.float32) for name, values in extras.items()}


def _space(spec: ArraySpec) -> gym.Space[Any]:
    """The Gymnasium space of a sensor's observation."""
    dtype = np.dtype(spec.dtype)
    if spec.classes > 2 and len(spec.shape) == 1:
        return gym.spaces.MultiDiscrete([spec.classes] * spec.shape[0], dtype=dtype)
    if dtype == np.int8 and (spec.low, spec.high) == (0, 1):
        return gym.spaces.MultiBinary(spec.shape)
    return gym.spaces.Box(spec.low, spec.high, spec.shape, dtype)
