"""The oracle of object navigation: walks the shortest path, faces the object, and stops."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from embodied_icrl.envs.object_nav_config import ObjectNavConfig

if TYPE_CHECKING:
    from embodied_icrl.envs.object_nav import ObjectNav

# Forward is taken as it is if it saves at least this share of what the best heading saves.
_GOOD_ENOUGH = 0.75
_TURN_COST = 0.01
_MOVED = 0.02


class Oracle:
    """A follower of shortest paths that knows the house.

    Of the headings that turns lead to, it takes the one whose next step saves the most walking
    distance, unless the present one is almost as good. Where it stands on the goal it turns and
    tilts the camera towards the instance, and stops when that would succeed. Where too little of
    the instance shows, it walks on towards it.

    Attributes:
        tabu: int64 `[env]`, bit set of headings in which it failed to move from where it is.
        place: float64 `[env, 3]`, where it was at its last action.
        went: int64 `[env]`, heading of its last action if that was forward, else -1.
    """

    def __init__(self, config: ObjectNavConfig, num_envs: int) -> None:
        self.config = config
        names = {name: number for number, name in enumerate(config.actions)}
        self._names = names
        self._turn = np.radians(config.turn_angle)
        half = max(1, round(180.0 / config.turn_angle))
        self._turns = np.arange(-half + 1, half + 1)
        self._arrived = config.forward_step / 2 + 0.02
        self.tabu = np.zeros(num_envs, dtype=np.int64)
        self.place = np.zeros((num_envs, 3))
        self.went = np.full(num_envs, -1, dtype=np.int64)

    def begin(self, rows: np.ndarray) -> None:
        """Episodes begin in `rows`."""
        self.tabu[rows], self.went[rows] = 0, -1

    def act(self, env: ObjectNav, mask: np.ndarray) -> np.ndarray:
        """Actions `[env]`; rows outside of the mask turn or go ahead."""
        actions = np.zeros(env.num_envs, dtype=np.int64)
        for row in np.flatnonzero(mask):
            actions[row] = self._act(env, int(row))
        return actions

    def _act(self, env: ObjectNav, row: int) -> int:
        simulator = env.simulator
        if self.went[row] >= 0:
            moved = np.abs(simulator.positions[row] - self.place[row]).max() > _MOVED
            self.tabu[row] = 0 if moved else self.tabu[row] | 1 << self.went[row]
        self.place[row], self.went[row] = simulator.positions[row], -1
        if "stop" in self._names and env.may_succeed()[row] and env.would_succeed(row):
            return self._names["stop"]
        goal = int(env.targets[row])
        here = simulator.positions[row][None]
        distance = float(simulator.distances_from(row, goal, here)[0])
        if distance > self._arrived:
            return self._follow(env, row, goal, distance)
        action = self._face(env, row, goal)
        return self._nearer(env, row) if action is None else action

    def _nearer(self, env: ObjectNav, row: int) -> int:
        """Ahead, to where more may be seen; another way where that failed before."""
        yaw = float(env.simulator.yaw[row])
        if not self.tabu[row] >> self._heading(env, row, yaw) & 1:
            return self._step(env, row, yaw)
        return self._turn_action(1)

    def _face(self, env: ObjectNav, row: int, goal: int) -> int | None:
        """The action that brings an instance nearer to the middle of the view, if one does."""
        simulator, house = env.simulator, env.houses[row]
        here = simulator.positions[row]
        offsets = house.goals[goal] - here
        nearest = int((offsets[:, ::2] ** 2).sum(axis=1).argmin())
        x, y, z = house.centres[house.goal_instances[goal][nearest]] - here
        k = round(_wrap(np.arctan2(-x, -z) - simulator.yaw[row]) / self._turn)
        if k:
            return self._turn_action(k)
        body = self.config.body
        ahead = max(np.hypot(x, z) - body.camera_ahead, 0.05)
        lowest, highest = np.radians([self.config.tilt_lowest, self.config.tilt_highest])
        wanted = np.clip(np.arctan2(y - body.camera_height, ahead), lowest, highest)
        # A half step more than half, so that a tilt between two steps does not go to and fro.
        steps = (wanted - simulator.tilt[row]) / np.radians(self.config.look_angle)
        if steps > 0.6:
            return self._names.get("look_up")
        return self._names.get("look_down") if steps < -0.6 else None

    def _follow(self, env: ObjectNav, row: int, goal: int, distance: float) -> int:
        simulator = env.simulator
        yaw = simulator.yaw[row] + self._turns * self._turn
        ends = np.repeat(simulator.positions[row][None], len(yaw), axis=0)
        ends[:, 0] -= self.config.forward_step * np.sin(yaw)
        ends[:, 2] -= self.config.forward_step * np.cos(yaw)
        saved = distance - simulator.distances_from(row, goal, ends)
        allowed = np.array([not self.tabu[row] >> self._heading(env, row, y) & 1 for y in yaw])
        saved = np.where(allowed, saved, -np.inf)
        if not (saved > 0).any():
            off = np.abs(_wrap(yaw - simulator.way(env.targets)[row]))
            return self._towards(env, row, int(np.where(allowed, off, np.inf).argmin()))
        best = int((saved - _TURN_COST * np.abs(self._turns)).argmax())
        straight = int(np.flatnonzero(self._turns == 0)[0])
        good = saved[straight] >= _GOOD_ENOUGH * saved[best]
        return self._towards(env, row, straight if good else best)

    def _towards(self, env: ObjectNav, row: int, index: int) -> int:
        """The next action on the way to heading number `index` of `_turns`, and then ahead."""
        k = int(self._turns[index])
        return self._turn_action(k) if k else self._step(env, row, float(env.simulator.yaw[row]))

    def _step(self, env: ObjectNav, row: int, yaw: float) -> int:
        self.went[row] = self._heading(env, row, yaw)
        return self._names["forward"]

    def _heading(self, env: ObjectNav, row: int, yaw: float) -> int:
        """A number for a heading that is the same whenever the agent has it in this trial."""
        count = max(1, round(2 * np.pi / self._turn))
        steps = round(float(yaw - env.start_yaw[row]) / float(self._turn))
        return int(steps % count % 60)

    def _turn_action(self, k: int) -> int:
        """The action that begins `k` turns to the left; the long way round if there is no other."""
        wanted, other = ("turn_left", "turn_right") if k > 0 else ("turn_right", "turn_left")
        return self._names[wanted if wanted in self._names else other]


def _wrap(angle: np.ndarray | float) -> np.ndarray | float:
    """An angle in [-pi, pi)."""
    return (angle + np.pi) % (2 * np.pi) - np.pi
