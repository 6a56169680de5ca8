"""The oracle of object navigation: walks the shortest path, faces the object, and stops."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from embodied_icrl.envs.object_nav_config import ObjectNavConfig

if TYPE_CHECKING:
    from embodied_icrl.envs.object_nav import ObjectNav

# Metres that a turn counts as, and that going straight on may lose against the best heading.
_TURN_COST, _SLACK = 0.03, 0.04
# A step that moves less than this has failed, metres.
_MOVED = 0.03
# What a place counts for at which the agent has looked in vain, metres.
_IN_VAIN = 1.0
_CELL = 0.1

Place = tuple[int, int]


class Oracle:
    """A follower of shortest paths that knows the house.

    At each new place it tries out where a step in every heading ends, with the simulator's own
    collisions, and takes the heading that leaves the shortest walk. Where none makes it shorter,
    as before a gap that is hardly wider than the agent, it corrects what it thinks of the place
    and goes on from the next best: learning real-time A* (Korf 1990), which never stays in a dead
    end. On the goal it turns and tilts the camera to the instance, and stops if that succeeds.

    Attributes:
        wanted: float64 `[env]`, the yaw to take the next step in, NaN where it must choose first.
    """

    def __init__(self, config: ObjectNavConfig, num_envs: int) -> None:
        self.config = config
        self._names = {name: number for number, name in enumerate(config.actions)}
        self._turn = np.radians(config.turn_angle)
        half = max(1, round(180.0 / config.turn_angle))
        turns = np.arange(-half + 1, half + 1)
        self._turns = turns[np.argsort(np.abs(turns), kind="stable")]
        self._arrived = config.forward_step / 2 + 0.02
        self.wanted = np.full(num_envs, np.nan)
        self._learned: list[dict[Place, float]] = [{} for _ in range(num_envs)]

    def begin(self, rows: np.ndarray) -> None:
        """Episodes begin in `rows`."""
        self.wanted[rows] = np.nan
        for row in rows:
            self._learned[row] = {}

    def forget(self) -> None:
        """Forget the dead ends of the running episodes."""
        self._learned = [{} for _ in self._learned]

    def act(self, env: ObjectNav, mask: np.ndarray) -> np.ndarray:
        """Actions `[env]`; rows outside of the mask hold any."""
        actions = np.zeros(env.num_envs, dtype=np.int64)
        may, distance = env.may_succeed(), env.simulator.distance(env.targets)
        walking = []
        for row in np.flatnonzero(mask):
            action = None
            if "stop" in self._names and may[row] and env.would_succeed(int(row)):
                action = self._names["stop"]
            elif self._left(int(row), env.simulator.positions[row], distance[row]) < self._arrived:
                action = self._face(env, int(row))
            if action is None:
                walking.append(int(row))
            else:
                actions[row] = action
        rows = np.array(walking, dtype=np.int64)
        self._choose(env, rows[np.isnan(self.wanted[rows])], distance)
        for row in rows:
            off = _wrap(self.wanted[row] - env.simulator.yaw[row])
            k = round(float(off / self._turn))
            actions[row] = self._turn_action(k) if k else self._names["forward"]
        return actions

    def moved(self, rows: np.ndarray) -> None:
        """The agents `rows` are at a new place."""
        self.wanted[rows] = np.nan

    def _choose(self, env: ObjectNav, rows: np.ndarray, distance: np.ndarray) -> None:
        """Choose the headings of agents `rows`."""
        if not rows.size:
            return
        simulator = env.simulator
        place, yaw, tilt = (
            a[rows].copy() for a in (simulator.positions, simulator.yaw, simulator.tilt)
        )
        steps = np.zeros(env.num_envs)
        steps[rows] = self.config.forward_step
        values = np.full((len(self._turns), rows.size), np.inf)
        for i, k in enumerate(self._turns):
            simulator.place(rows, place, yaw + k * self._turn, tilt)
            moved = simulator.forward(steps)[rows]
            left = simulator.distance(env.targets)[rows]
            for j, row in enumerate(rows):
                if moved[j] >= _MOVED:
                    there = self._left(int(row), simulator.positions[row], left[j])
                    values[i, j] = self.config.forward_step + there + _TURN_COST * abs(k)
            if i == 0 and (values[0] <= distance[rows] + _SLACK).all():
                break
        simulator.place(rows, place, yaw, tilt)
        for j, row in enumerate(rows):
            best = int(values[:, j].argmin())
            best = 0 if values[0, j] <= values[best, j] + _SLACK else best
            self.wanted[row] = yaw[j] + self._turns[best] * self._turn
            if np.isfinite(values[best, j]):
                self._learn(int(row), place[j], float(values[best, j]))

    def _left(self, row: int, place: np.ndarray, distance: float) -> float:
        """What is left to walk from a place `[3]`: the distance, or more if it has learned so."""
        return max(float(distance), self._learned[row].get(_cell(place), 0.0))

    def _learn(self, row: int, place: np.ndarray, left: float) -> None:
        known = self._learned[row]
        known[_cell(place)] = max(left, known.get(_cell(place), 0.0))

    def _face(self, env: ObjectNav, row: int) -> int | None:
        """The action that brings an instance nearer to the middle of the view; None: it is there,
        and the place is marked as one from which it can't be seen."""
        simulator, house, goal = env.simulator, env.houses[row], int(env.targets[row])
        here = simulator.positions[row]
        offsets = house.goals[goal] - here
        nearest = int((offsets[:, ::2] ** 2).sum(axis=1).argmin())
        x, y, z = house.centres[house.goal_instances[goal][nearest]] - here
        k = round(float(_wrap(np.arctan2(-x, -z) - simulator.yaw[row]) / self._turn))
        if k:
            return self._turn_action(k)
        body = self.config.body
        ahead = max(np.hypot(x, z) - body.camera_ahead, 0.05)
        lowest, highest = np.radians([self.config.tilt_lowest, self.config.tilt_highest])
        wanted = np.clip(np.arctan2(y - body.camera_height, ahead), lowest, highest)
        # A little more than half a step, so that a tilt between two steps does not go to and fro.
        steps = (wanted - simulator.tilt[row]) / np.radians(self.config.look_angle)
        look = self._names.get("look_up" if steps > 0 else "look_down")
        if abs(steps) > 0.6 and look is not None:
            return look
        self._learn(row, here, _IN_VAIN)
        self.wanted[row] = np.nan
        return None

    def _turn_action(self, k: int) -> int:
        """The action that begins `k` turns to the left; the long way round if there is no other."""
        wanted, other = ("turn_left", "turn_right") if k > 0 else ("turn_right", "turn_left")
        return self._names[wanted if wanted in self._names else other]


def _cell(place: np.ndarray) -> Place:
    return round(float(place[0]) / _CELL), round(float(place[2]) / _CELL)


def _wrap(angle: float) -> float:
    """An angle in [-pi, pi)."""
    return float((angle + np.pi) % (2 * np.pi) - np.pi)
