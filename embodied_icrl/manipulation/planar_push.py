"""A round pusher that slides a puck to a place on a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from embodied_icrl.common.paths import assets_dir
from embodied_icrl.manipulation.fields import Field
from embodied_icrl.manipulation.physics_env import ABOVE, PPO, PhysicsEnv, clipped
from embodied_icrl.manipulation.render import View
from embodied_icrl.manipulation.task import Budget, Env, Task

CONTACT = 0.08  # metres between the centres of pusher and puck when they touch
RADIUS = 0.05  # of success, metres

HUMAN_REWARD = """\
def compute_reward(state):
    to_target = state.target_position - state.puck_position
    to_puck = state.puck_position - state.pusher_position
    distance = np.linalg.norm(to_target)
    reach = np.linalg.norm(to_puck)
    behind = np.dot(to_target, to_puck) / (distance * reach + 1e-6)
    touching = np.exp(-max(reach - 0.08, 0.0) / 0.1)
    components = {
        "distance": np.exp(-distance / 0.1),
        "approach": 0.25 * touching * (1.0 + behind) if distance > 0.05 else 0.5,
        "success": 1.0 if distance < 0.05 else 0.0,
    }
    return sum(components.values()), components
"""

SPARSE_REWARD = """\
def compute_reward(state):
    distance = np.linalg.norm(state.target_position - state.puck_position)
    reached = 1.0 if distance < 0.05 else 0.0
    return reached, {"reached": reached}
"""


@dataclass(frozen=True)
class PlanarPush(Task):
    """Success: the puck within 5 cm of the target."""

    name: ClassVar[str] = "planar_push"
    description: ClassVar[str] = "Push a puck across a table to a target place and leave it there."
    fields: ClassVar[tuple[Field, ...]] = (
        Field("pusher_position", (2,), "m", "x and y of the pusher's centre (radius 0.03)"),
        Field("pusher_velocity", (2,), "m/s", "its velocity"),
        Field("puck_position", (2,), "m", "x and y of the puck's centre (radius 0.05)"),
        Field("puck_velocity", (2,), "m/s", "its velocity; it stops soon after a push"),
        Field("target_position", (2,), "m", "x and y where the puck should lie"),
        Field("action", (2,), "-", "commanded pusher velocity, each part in [-1, 1] of 0.6 m/s"),
    )
    human_reward: ClassVar[str] = HUMAN_REWARD
    sparse_reward: ClassVar[str] = SPARSE_REWARD
    quick: ClassVar[Budget] = Budget(120_000, "ppo", 16, PPO)
    view: ClassVar[View] = ABOVE
    full: ClassVar[Budget] = Budget(500_000, "ppo", 16, PPO)

    horizon: int = 60

    def make_env(self) -> PhysicsEnv:
        """The table; the pusher does at most 0.6 m/s per axis, an action lasts 0.04 s."""
        xml = (assets_dir() / "manipulation" / "planar_push.xml").read_text()
        return PhysicsEnv(xml, frame_skip=4, begin=_begin, observe=_observe, view=self.view)

    def read_state(self, env: Env, observation: Any, action: NDArray[Any]) -> Mapping[str, Any]:
        """See `fields`."""
        data = env.unwrapped.data  # type: ignore[attr-defined]
        return {
            "pusher_position": data.qpos[:2],
            "pusher_velocity": data.qvel[:2],
            "puck_position": data.qpos[2:],
            "puck_velocity": data.qvel[2:],
            "target_position": data.mocap_pos[0, :2],
            "action": action,
        }

    def success(self, env: Env, observation: Any) -> bool:
        """Whether the puck is within 5 cm of the target."""
        data = env.unwrapped.data  # type: ignore[attr-defined]
        x, y = (data.qpos[2:] - data.mocap_pos[0, :2]).tolist()
        return bool(x * x + y * y < RADIUS**2)

    def expert_action(self, env: Env, observation: Any) -> NDArray[Any]:
        """Gets behind the puck, as seen from the target, and pushes along the line."""
        data = env.unwrapped.data  # type: ignore[attr-defined]
        pusher, puck, target = data.qpos[:2], data.qpos[2:], data.mocap_pos[0, :2]
        distance = float(np.linalg.norm(target - puck))
        if distance < 0.015:
            return np.zeros(2, np.float32)
        forward = (target - puck) / distance
        side = np.array([-forward[1], forward[0]])
        along, across = (pusher - puck) @ forward, (pusher - puck) @ side
        if along < 0 and abs(across) < 0.02:  # behind: push, and steer to the line
            velocity = forward * min(1.0, 8 * distance + 0.1) - side * 20.0 * across
        elif along < -CONTACT:
            velocity = -side * np.sign(across) - forward * 0.1
        else:  # beside or in front: step aside, then back
            away = np.sign(across) if across else 1.0
            clear = abs(across) > CONTACT + 0.02
            velocity = -forward + (0.0 if clear else 1.0) * side * away
        return clipped(velocity)


def _begin(env: PhysicsEnv, rng: np.random.Generator) -> None:
    """Target and pusher lie in any direction from the puck: as a rule the way to push it leads
    around it first, which a reward for success alone does not teach."""
    puck = rng.uniform((-0.1, -0.1), (0.1, 0.1))
    env.data.qpos[2:] = puck
    env.data.qpos[:2] = puck + _away(rng, 0.12, 0.25)
    env.data.mocap_pos[0, :2] = puck + _away(rng, 0.15, 0.25)


def _away(rng: np.random.Generator, nearest: float, farthest: float) -> NDArray[np.float64]:
    """A step in any direction, metres `[2]`."""
    angle = rng.uniform(0.0, 2 * np.pi)
    return rng.uniform(nearest, farthest) * np.array([np.cos(angle), np.sin(angle)])


def _observe(env: PhysicsEnv) -> NDArray[np.float64]:
    """All of it is of the order of 1, as networks need it: tenths of metres, commanded speeds."""
    position, target = env.data.qpos, env.data.mocap_pos[0, :2]
    relative = (position[2:] - position[:2], target - position[2:])
    lengths = np.concatenate((position, target, *relative))
    return np.concatenate((10 * lengths, env.data.qvel / 0.6))
