"""A finger that turns a three-spoked valve to an angle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import cos, pi, sin
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from embodied_icrl.common.paths import assets_dir
from embodied_icrl.manipulation.fields import Field
from embodied_icrl.manipulation.physics_env import ABOVE, PPO, PhysicsEnv, clipped
from embodied_icrl.manipulation.render import View
from embodied_icrl.manipulation.task import Budget, Env, Task

ORBIT = 0.1  # metres from the valve's centre where the scripted finger pushes
TOLERANCE = 0.1  # of success, radians

HUMAN_REWARD = """\
def compute_reward(state):
    error = state.target_angle - state.valve_angle
    radius = np.linalg.norm(state.finger_position)
    components = {
        "error": -2.0 * abs(error),
        "precision": 2.0 * np.exp(-((error / 0.1) ** 2)),
        "engaged": -2.0 * abs(radius - 0.1),
    }
    return sum(components.values()), components
"""

SPARSE_REWARD = """\
def compute_reward(state):
    turned = 1.0 if abs(state.target_angle - state.valve_angle) < 0.1 else 0.0
    return turned, {"turned": turned}
"""


@dataclass(frozen=True)
class ValveTurn(Task):
    """Success: the valve within 0.1 rad of the target angle."""

    name: ClassVar[str] = "valve_turn"
    description: ClassVar[str] = (
        "Turn a valve with three spokes to a target angle by pushing a spoke with a finger."
    )
    fields: ClassVar[tuple[Field, ...]] = (
        Field("finger_position", (2,), "m", "x and y of the fingertip; the valve is at the origin"),
        Field("finger_velocity", (2,), "m/s", "its velocity"),
        Field("valve_angle", (), "rad", "how far the valve is turned, counter-clockwise"),
        Field("valve_velocity", (), "rad/s", "how fast it turns"),
        Field("spoke_tips", (3, 2), "m", "x and y of the outer ends of the spokes (0.15 m long)"),
        Field("target_angle", (), "rad", "the angle that the valve should have"),
        Field("action", (2,), "-", "commanded finger velocity, each part in [-1, 1] of 0.5 m/s"),
    )
    human_reward: ClassVar[str] = HUMAN_REWARD
    sparse_reward: ClassVar[str] = SPARSE_REWARD
    quick: ClassVar[Budget] = Budget(120_000, "ppo", 16, PPO)
    view: ClassVar[View] = replace(ABOVE, distance=0.6)
    full: ClassVar[Budget] = Budget(500_000, "ppo", 16, PPO)

    horizon: int = 60

    def make_env(self) -> PhysicsEnv:
        """Valve and finger; the finger does at most 0.5 m/s per axis, an action lasts 0.04 s."""
        xml = (assets_dir() / "manipulation" / "valve_turn.xml").read_text()
        return PhysicsEnv(xml, frame_skip=4, begin=_begin, observe=_observe, view=self.view)

    def read_state(self, env: Env, observation: Any, action: NDArray[Any]) -> Mapping[str, Any]:
        """See `fields`."""
        data = env.unwrapped.data  # type: ignore[attr-defined]
        return {
            "finger_position": data.qpos[:2],
            "finger_velocity": data.qvel[:2],
            "valve_angle": data.qpos[2],
            "valve_velocity": data.qvel[2],
            "spoke_tips": data.site_xpos[:, :2],
            "target_angle": _target_angle(data),
            "action": action,
        }

    def success(self, env: Env, observation: Any) -> bool:
        """Whether the valve is within 0.1 rad of the target angle."""
        data = env.unwrapped.data  # type: ignore[attr-defined]
        return abs(_target_angle(data) - float(data.qpos[2])) < TOLERANCE

    def expert_action(self, env: Env, observation: Any) -> NDArray[Any]:
        """Circles in the target's direction until a spoke is met and turned far enough."""
        data = env.unwrapped.data  # type: ignore[attr-defined]
        error = _target_angle(data) - float(data.qpos[2])
        if abs(error) < 0.03:
            return np.zeros(2, np.float32)
        x, y = data.qpos[:2].tolist()
        radius = max(np.hypot(x, y), 1e-6)
        outward, tangent = np.array([x, y]) / radius, np.array([-y, x]) / radius
        speed = np.sign(error) * min(0.8, 4 * abs(error) + 0.1)
        velocity = speed * tangent - 10.0 * (radius - ORBIT) * outward
        return clipped(velocity)


def _target_angle(data: Any) -> float:
    """The target marker's angle in radians; its quaternion turns about z only."""
    w, _, _, z = data.mocap_quat[0].tolist()
    return 2 * float(np.arctan2(z, w))


def _begin(env: PhysicsEnv, rng: np.random.Generator) -> None:
    valve = rng.uniform(-0.3, 0.3)
    target = valve + rng.choice((-1, 1)) * rng.uniform(0.5, 1.2)
    # Between the two lower spokes.
    angle = -pi / 2 + valve + rng.uniform(-0.3, 0.3)
    env.data.qpos[:] = ORBIT * cos(angle), ORBIT * sin(angle), valve
    env.data.mocap_quat[0] = cos(target / 2), 0.0, 0.0, sin(target / 2)


def _observe(env: PhysicsEnv) -> list[float]:
    """All of it is of the order of 1, as networks need it: tenths of metres, radians."""
    x, y, angle = env.data.qpos.tolist()
    target = _target_angle(env.data)
    spokes = [cos(3 * angle), sin(3 * angle)]  # the valve looks the same after a third of a turn
    return [10 * x, 10 * y, angle, *env.data.qvel.tolist(), *spokes, target, 2 * (target - angle)]
