"""Frontier exploration (Yamauchi 1997): a baseline that draws a map from what its rays meet.

It knows its own body and sensors and nothing of the house. It walks to the nearest place beside an
unknown one until it has seen what it is asked for, then to where that was, faces it and stops.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from embodied_icrl.common.errors import ConfigError
from embodied_icrl.envs.object_nav_config import ObjectNavConfig
from embodied_icrl.envs.object_nav_map import Cell, ExplorerMap, centre_of
from embodied_icrl.simulators.base import FIRST_CATEGORY, NOTHING, DetectorSensor, RaySensor
from embodied_icrl.simulators.poses import fan

# What is lower is driven over.
_LOW = 0.06
_SPACING = 0.1
_REPLAN = 4
# Its own place is known to be free this far beyond its body, metres.
_AROUND = 0.1
# It keeps this far inside of the distance at which it may stop, metres.
_MARGIN = 0.25


class FrontierExplorer:
    """Acts in the trials of an evaluation, from observations alone.

    Args:
        config: of the environment.
        num_envs: how many are stepped together.
        memory: trial: the map, with every object that has been seen, is kept over the trial;
            episode: it begins empty in each episode.

    Raises:
        ConfigError: there is no ray sensor.
    """

    def __init__(
        self, config: ObjectNavConfig, num_envs: int, memory: Literal["trial", "episode"]
    ) -> None:
        rays = [name for name, s in config.sensors.items() if isinstance(s, RaySensor)]
        if not rays:
            raise ConfigError("frontier exploration needs a RaySensor among the sensors")
        self.config, self.num_envs, self.memory = config, num_envs, memory
        self._rays = rays[0]
        self._detectors = [n for n, s in config.sensors.items() if isinstance(s, DetectorSensor)]
        sensor = config.sensors[self._rays]
        assert isinstance(sensor, RaySensor)
        self._range = sensor.max_distance
        right, up, ahead = fan(sensor.columns, sensor.rows, sensor.fov, sensor.vertical_fov).T
        tilt = np.radians(config.tilt_start)
        self._plan = np.stack([right, ahead * np.cos(tilt) - up * np.sin(tilt)], axis=1)
        self._rise = ahead * np.sin(tilt) + up * np.cos(tilt)
        self._names = {name: number for number, name in enumerate(config.actions)}
        self._turn = np.radians(config.turn_angle)

    def start(self, observation: Mapping[str, np.ndarray], trials: np.ndarray) -> None:
        """New trials: empty maps."""
        categories = len(self.config.task_categories)
        self._maps = [ExplorerMap.empty(categories) for _ in range(self.num_envs)]
        self._ways: list[list[Cell]] = [[] for _ in range(self.num_envs)]
        self._age = np.zeros(self.num_envs, dtype=np.int64)
        self._reach = np.full(self.num_envs, self.config.success_distance - _MARGIN)
        self._over = np.zeros(self.num_envs, dtype=bool)
        self._last = np.zeros(self.num_envs, dtype=np.int64)
        self._place = np.zeros((self.num_envs, 2))
        self._read(observation)

    def observe(
        self,
        observation: Mapping[str, np.ndarray],
        reward: np.ndarray,
        terminated: np.ndarray,
        truncated: np.ndarray,
        info: Mapping[str, Any],
    ) -> None:
        """Draw what is seen now."""
        for row in np.flatnonzero(self._over):
            self._begin_episode(int(row))
        self._over = np.asarray(terminated) | np.asarray(truncated)
        self._read(observation)

    def _begin_episode(self, row: int) -> None:
        self._ways[row], self._age[row], self._last[row] = [], 0, 0
        self._reach[row] = self.config.success_distance - _MARGIN
        if self.memory == "episode":
            self._maps[row] = ExplorerMap.empty(len(self.config.task_categories))

    def _read(self, observation: Mapping[str, np.ndarray]) -> None:
        """Where every agent is, and what its sensors tell of the plan."""
        before = self._place
        self._place = observation["gps"].astype(np.float64) * self.config.gps_range
        sine, cosine = observation["heading"].astype(np.float64).T
        self._heading = np.arctan2(sine, cosine)
        self._ahead = np.stack([-sine, cosine], axis=1)
        self._right = np.stack([cosine, sine], axis=1)
        self._target = np.asarray(observation["target"]).copy()
        self._camera = self._place + self.config.body.camera_ahead * self._ahead
        moved = np.linalg.norm(self._place - before, axis=1)
        forward = self._last == self._names["forward"]
        self._bumped = forward & (moved < 0.4 * self.config.forward_step)
        self._bumped &= observation["collided"][:, 0] > 0
        distance = observation[f"{self._rays}.distance"] * self._range
        seen = observation[f"{self._rays}.class"]
        self._in_view = np.zeros(self.num_envs, dtype=bool)
        for row in range(self.num_envs):
            self._draw(row, distance[row].astype(np.float64), seen[row])
            for name in self._detectors:
                visible = observation[f"{name}.visible"][row]
                self._note_objects(row, name, visible, observation[f"{name}.where"][row])

    def _draw(self, row: int, distance: np.ndarray, seen: np.ndarray) -> None:
        world = self._maps[row]
        plan = self._plan[:, :1] * self._right[row] + self._plan[:, 1:] * self._ahead[row]
        along = np.arange(_SPACING / 2, self._range, _SPACING)
        passed = along[None] < distance[:, None] - _SPACING / 2
        points = self._camera[row] + plan[:, None] * along[None, :, None]
        world.mark(world.seen, points[passed])
        hits = self._camera[row] + plan * distance[:, None]
        height = self.config.body.camera_height + self._rise * distance
        solid = (seen != NOTHING) & (height > _LOW) & (height < self.config.body.height)
        world.mark(world.seen, hits[seen != NOTHING])
        world.mark(world.blocked, hits[solid])
        world.mark_body(self._place[row], self.config.body.radius + _AROUND)
        if self._bumped[row]:
            ahead = self._place[row] + (self.config.body.radius + 0.1) * self._ahead[row]
            world.mark(world.blocked, ahead[None])
            self._ways[row] = []
        for category in np.unique(seen[seen >= FIRST_CATEGORY]) - FIRST_CATEGORY:
            found = hits[seen == FIRST_CATEGORY + category]
            world.objects[category] = found.mean(axis=0)
            self._in_view[row] |= category == self._target[row]

    def _note_objects(self, row: int, name: str, visible: np.ndarray, where: np.ndarray) -> None:
        sensor = self.config.sensors[name]
        assert isinstance(sensor, DetectorSensor)
        for category in np.flatnonzero(visible):
            left, ahead, part = where[category].astype(np.float64)
            way = ahead * self._ahead[row] - left * self._right[row]
            self._maps[row].objects[category] = self._camera[row] + part * sensor.max_distance * way
            self._in_view[row] |= category == self._target[row]

    def act(self, episode: np.ndarray) -> np.ndarray:
        """Actions of all agents."""
        for row in range(self.num_envs):
            self._last[row] = 0 if self._over[row] else self._act(row)
        return self._last.copy()

    def _act(self, row: int) -> int:
        known = self._maps[row].objects[self._target[row]]
        if np.isfinite(known).all():
            action = self._approach(row, known)
            if action is not None:
                return action
        return self._explore(row)

    def _approach(self, row: int, point: np.ndarray) -> int | None:
        """Walk to an object and stop there; None if there is no known way."""
        offset = point - self._camera[row]
        near = np.linalg.norm(offset) <= self._reach[row]
        if near:
            action = self._turn_to(row, point)
            if action is not None:
                return action
            if self._in_view[row] and "stop" in self._names:
                return self._names["stop"]
            # It should be in view here and isn't: look from nearer, and in the end forget it.
            self._reach[row] -= 0.4
            self._ways[row] = []
            if self._reach[row] < 0.5:
                self._maps[row].objects[self._target[row]] = np.nan
                self._reach[row] = self.config.success_distance - _MARGIN
        if not self._ways[row] or self._age[row] >= _REPLAN:
            # The camera is ahead of the body, and faces the object in the end.
            reach = max(self._reach[row], 0.3)
            way = self._maps[row].way_near(self._place[row], point, reach)
            if way is None:
                return None
            self._ways[row], self._age[row] = way, 0
        return self._walk(row)

    def _explore(self, row: int) -> int:
        world = self._maps[row]
        if not self._ways[row] or self._age[row] >= _REPLAN:
            way = world.way_to_frontier(self._place[row])
            if way is None:
                # All that it can get to has been seen, and not closely enough: begin anew.
                world.seen[:] = 0
                world.mark_body(self._place[row], self.config.body.radius + _AROUND)
                self._ways[row] = []
                return self._turn_action(1)
            self._ways[row], self._age[row] = way, 0
        end = centre_of(self._ways[row][-1])
        if np.linalg.norm(end - self._place[row]) > 2 * _SPACING + self.config.body.radius:
            return self._walk(row)
        return self._look_at_frontier(row, end)

    def _look_at_frontier(self, row: int, end: np.ndarray) -> int:
        """Turn to an unknown place close by; one that stays unknown is taken as seen."""
        self._ways[row] = []
        action = self._turn_to(row, end)
        if action is not None:
            return action
        world = self._maps[row]
        offsets = np.stack(np.meshgrid([-1, 0, 1], [-1, 0, 1]), axis=-1).reshape(-1, 2) * _SPACING
        world.mark(world.seen, end + offsets)
        return self._names["forward"]

    def _walk(self, row: int) -> int:
        """Along the way, by a point a few cells ahead on it."""
        way = self._ways[row]
        self._age[row] += 1
        while len(way) > 1 and np.linalg.norm(centre_of(way[0]) - self._place[row]) < 0.25:
            way.pop(0)
        action = self._turn_to(row, centre_of(way[0]))
        if action is not None:
            return action
        if len(way) == 1:
            self._ways[row] = []
        return self._names["forward"]

    def _turn_to(self, row: int, point: np.ndarray) -> int | None:
        """The turn that faces a point better than now, if one does."""
        right, ahead = point - self._place[row]
        off = np.arctan2(-right, ahead) - self._heading[row]
        k = round(float(((off + np.pi) % (2 * np.pi) - np.pi) / self._turn))
        return self._turn_action(k) if k else None

    def _turn_action(self, k: int) -> int:
        wanted, other = ("turn_left", "turn_right") if k > 0 else ("turn_right", "turn_left")
        return self._names[wanted if wanted in self._names else other]
