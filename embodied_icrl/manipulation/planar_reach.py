"""A planar arm with two joints that reaches for a point."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import atan2, cos, pi, sin, sqrt
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from embodied_icrl.common.paths import assets_dir
from embodied_icrl.manipulation.fields import Field
from embodied_icrl.manipulation.physics_env import ABOVE, PPO, PhysicsEnv, clipped
from embodied_icrl.manipulation.render import View
from embodied_icrl.manipulation.task import Budget, Env, Task

LINK = 0.2  # metres, both links
RADIUS = 0.05  # of success, metres

HUMAN_REWARD = """\
def compute_reward(state):
    distance = np.linalg.norm(state.tip_position - state.target_position)
    components = {
        "distance": -distance,
        "precision": np.exp(-((distance / 0.05) ** 2)),
        "effort": -0.01 * np.dot(state.action, state.action),
    }
    return sum(components.values()), components
"""

SPARSE_REWARD = """\
def compute_reward(state):
    distance = np.linalg.norm(state.tip_position - state.target_position)
    reached = 1.0 if distance < 0.05 else 0.0
    return reached, {"reached": reached}
"""


@dataclass(frozen=True)
class PlanarReach(Task):
    """Success: the tip within 5 cm of the target."""

    name: ClassVar[str] = "planar_reach"
    description: ClassVar[str] = (
        "Move the tip of a two-joint planar arm to a target point and keep it there."
    )
    fields: ClassVar[tuple[Field, ...]] = (
        Field("joint_angles", (2,), "rad", "angles of shoulder and elbow"),
        Field("joint_velocities", (2,), "rad/s", "their rates of change"),
        Field("tip_position", (2,), "m", "x and y of the arm's tip; the shoulder is the origin"),
        Field("target_position", (2,), "m", "x and y of the target point"),
        Field("action", (2,), "-", "commanded joint speeds, each in [-1, 1] of 3 rad/s"),
    )
    human_reward: ClassVar[str] = HUMAN_REWARD
    sparse_reward: ClassVar[str] = SPARSE_REWARD
    quick: ClassVar[Budget] = Budget(120_000, "ppo", 16, PPO)
    view: ClassVar[View] = ABOVE
    full: ClassVar[Budget] = Budget(500_000, "ppo", 16, PPO)

    def make_env(self) -> PhysicsEnv:
        """The arm; a joint does at most 3 rad/s, an action lasts 0.04 s."""
        xml = (assets_dir() / "manipulation" / "planar_reach.xml").read_text()
        return PhysicsEnv(xml, frame_skip=4, begin=_begin, observe=_observe, view=self.view)

    def read_state(self, env: Env, observation: Any, action: NDArray[Any]) -> Mapping[str, Any]:
        """See `fields`."""
        data = env.unwrapped.data  # type: ignore[attr-defined]
        return {
            "joint_angles": data.qpos,
            "joint_velocities": data.qvel,
            "tip_position": data.site_xpos[0, :2],
            "target_position": data.mocap_pos[0, :2],
            "action": action,
        }

    def success(self, env: Env, observation: Any) -> bool:
        """Whether the tip is within 5 cm of the target."""
        data = env.unwrapped.data  # type: ignore[attr-defined]
        x, y = (data.site_xpos[0, :2] - data.mocap_pos[0, :2]).tolist()
        return bool(x * x + y * y < RADIUS**2)

    def expert_action(self, env: Env, observation: Any) -> NDArray[Any]:
        """Turns both joints towards the solution of the arm's inverse kinematics."""
        data = env.unwrapped.data  # type: ignore[attr-defined]
        goal = _joint_angles(*data.mocap_pos[0, :2].tolist())
        error = (goal - data.qpos + pi) % (2 * pi) - pi
        return clipped(3.0 * error)


def _begin(env: PhysicsEnv, rng: np.random.Generator) -> None:
    env.data.qpos[:] = rng.uniform((-pi, -2.5), (pi, 2.5))
    radius, angle = rng.uniform(0.12, 0.38), rng.uniform(-pi, pi)
    env.data.mocap_pos[0, :2] = radius * cos(angle), radius * sin(angle)


def _observe(env: PhysicsEnv) -> list[float]:
    """All of it is of the order of 1, as networks need it: lengths in links, speeds in commands."""
    first, second = env.data.qpos.tolist()
    speeds = [speed / 3 for speed in env.data.qvel.tolist()]
    target_x, target_y, _ = env.data.mocap_pos[0].tolist()
    tip_x, tip_y, _ = env.data.site_xpos[0].tolist()
    lengths = [target_x, target_y, target_x - tip_x, target_y - tip_y]
    angles = [cos(first), sin(first), cos(second), sin(second)]
    return [*angles, *speeds, *(length / LINK for length in lengths)]


def _joint_angles(x: float, y: float) -> NDArray[np.float64]:
    """Shoulder and elbow, in radians, that bring the tip to (x, y)."""
    distance = min(sqrt(x * x + y * y), 2 * LINK)
    bend = np.arccos(distance / (2 * LINK))  # between the upper link and the line to the target
    return np.array([atan2(y, x) - bend, 2 * bend])
