"""The Adroit hand's tasks of gymnasium-robotics: open a door, hammer a nail.

The rewards are our own. Those of the environments have a wrong sign: they grow with the palm's
distance from the handle or the hammer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from embodied_icrl.manipulation.fields import Field
from embodied_icrl.manipulation.render import View
from embodied_icrl.manipulation.robotics import FINE_PPO, RoboticsTask, point_velocity
from embodied_icrl.manipulation.task import Budget, Env

OPEN = 1.35  # of success, radians: the environment's own threshold
UNLATCHED = 1.3  # radians that the handle is turned by when the door comes free
DRIVEN_IN = 0.01  # of success, metres: the environment's own threshold

PALM_FIELDS = (
    Field("palm_position", (3,), "m", "x, y, z of the middle of the palm; z is up"),
    Field("palm_velocity", (3,), "m/s", "its velocity"),
)
PPO = {**FINE_PPO, "n_steps": 128, "learning_rate": 1e-3, "gamma": 0.97}


@dataclass(frozen=True)
class AdroitDoor(RoboticsTask):
    """Success: the door opened by at least 1.35 rad.

    A policy sees, of the order of 1: the joints' angles, latch and door, the palm's place and the
    way from it to the handle.
    """

    env_id: ClassVar[str] = "AdroitHandDoor-v1"
    name: ClassVar[str] = "adroit_door"
    description: ClassVar[str] = (
        "Undo the latch of a door with an Adroit hand on an arm, pull the door open until it "
        "touches its stopper, and keep it open."
    )
    fields: ClassVar[tuple[Field, ...]] = (
        *PALM_FIELDS,
        Field("handle_position", (3,), "m", "x, y, z of the door's handle"),
        Field("latch_angle", (), "rad", "how far the handle is turned: 0 to 1.8"),
        Field("door_angle", (), "rad", "how far the door is open: 0 to 1.57; shut until unlatched"),
        Field("door_velocity", (), "rad/s", "how fast it opens"),
        Field("joint_velocities", (28,), "rad/s", "of arm (4, the first a slide in m/s) and hand"),
        Field("action", (28,), "-", "commanded joint positions, each in [-1, 1] of its range"),
    )
    human_reward: ClassVar[str] = """\
def compute_reward(state):
    distance = np.linalg.norm(state.palm_position - state.handle_position)
    opened = state.door_angle / 1.57
    components = {
        "reach": -0.5 * min(distance, 1.0),
        "latch": 0.5 * min(state.latch_angle, 1.8) / 1.8,
        "door": 4.0 * opened,
        "velocity": -1e-4 * np.dot(state.joint_velocities, state.joint_velocities),
        "success": 4.0 if state.door_angle > 1.35 else 0.0,
    }
    return sum(components.values()), components
"""
    sparse_reward: ClassVar[str] = """\
def compute_reward(state):
    opened = 1.0 if state.door_angle > 1.35 else 0.0
    return opened, {"opened": opened}
"""
    quick: ClassVar[Budget] = Budget(500_000, "ppo", 16, PPO)
    full: ClassVar[Budget] = Budget(5_000_000, "ppo", 16, PPO)
    view: ClassVar[View] = View((0.0, 0.0, 0.3), 1.6, azimuth=60.0, elevation=-20.0)

    horizon: int = 200

    def read_state(self, env: Env, observation: Any, action: NDArray[Any]) -> Mapping[str, Any]:
        """See `fields`."""
        simulator: Any = env.unwrapped
        data = simulator.data
        return {
            "palm_position": data.site_xpos[simulator.grasp_site_id],
            "palm_velocity": point_velocity(simulator.model, data, simulator.grasp_site_id),
            "handle_position": data.site_xpos[simulator.handle_site_id],
            "latch_angle": data.qpos[-1],
            "door_angle": data.qpos[simulator.door_hinge_addrs],
            "door_velocity": data.qvel[simulator.door_hinge_addrs],
            "joint_velocities": data.qvel[:28],
            "action": action,
        }

    def policy_observation(self, observation: Any) -> NDArray[np.float64]:
        """See the class."""
        joints, latch_and_door, palm = observation[:27], observation[27:29], observation[29:32]
        return np.concatenate(
            (2.0 * joints, latch_and_door, 10.0 * palm, -10.0 * observation[35:38])
        )

    def success(self, env: Env, observation: Any) -> bool:
        """Whether the door is open."""
        simulator: Any = env.unwrapped
        return bool(simulator.data.qpos[simulator.door_hinge_addrs] >= OPEN)

    def left(self, env: Env, observation: Any) -> float:
        """The share left: turning the latch is a fifth of the way, opening the door the rest."""
        simulator: Any = env.unwrapped
        qpos = simulator.data.qpos
        latch = min(float(qpos[-1]) / UNLATCHED, 1.0)
        return 1.0 - 0.2 * latch - 0.8 * float(qpos[simulator.door_hinge_addrs]) / OPEN


@dataclass(frozen=True)
class AdroitHammer(RoboticsTask):
    """Success: the nail's head within 1 cm of where it is when driven in.

    A policy sees, of the order of 1: the joints' angles, how deep the nail is, the palm's place,
    the way from it to the hammer and on to the nail, the hammer's angles and velocities, and the
    force on the nail.
    """

    env_id: ClassVar[str] = "AdroitHandHammer-v1"
    name: ClassVar[str] = "adroit_hammer"
    description: ClassVar[str] = (
        "Pick up a hammer with an Adroit hand on an arm and drive a nail into a board, all the way."
    )
    fields: ClassVar[tuple[Field, ...]] = (
        *PALM_FIELDS,
        Field("hammer_position", (3,), "m", "x, y, z of the hammer's handle; it lies on a table"),
        Field("head_position", (3,), "m", "x, y, z of the hammer's head"),
        Field("head_velocity", (3,), "m/s", "its velocity"),
        Field("nail_position", (3,), "m", "x, y, z of the nail's head"),
        Field("goal_position", (3,), "m", "where the nail's head is once the nail is driven in"),
        Field("joint_velocities", (26,), "rad/s", "of arm (2) and hand"),
        Field("action", (26,), "-", "commanded joint positions, each in [-1, 1] of its range"),
    )
    human_reward: ClassVar[str] = """\
def compute_reward(state):
    reach = np.linalg.norm(state.palm_position - state.hammer_position)
    strike = np.linalg.norm(state.head_position - state.nail_position)
    left = np.linalg.norm(state.nail_position - state.goal_position)
    lifted = state.hammer_position[2] > 0.04 and state.head_position[2] > 0.04
    components = {
        "reach": -0.5 * reach,
        "lift": 0.5 if lifted else 0.0,
        "strike": -1.0 * strike,
        "nail": -10.0 * left,
        "velocity": -1e-4 * np.dot(state.joint_velocities, state.joint_velocities),
        "success": 5.0 if left < 0.01 else 0.0,
    }
    return sum(components.values()), components
"""
    sparse_reward: ClassVar[str] = """\
def compute_reward(state):
    left = np.linalg.norm(state.nail_position - state.goal_position)
    driven = 1.0 if left < 0.01 else 0.0
    return driven, {"driven": driven}
"""
    quick: ClassVar[Budget] = Budget(500_000, "ppo", 16, PPO)
    full: ClassVar[Budget] = Budget(5_000_000, "ppo", 16, PPO)
    view: ClassVar[View] = View((0.0, -0.1, 0.2), 1.3, azimuth=45.0, elevation=-25.0)

    horizon: int = 200

    def read_state(self, env: Env, observation: Any, action: NDArray[Any]) -> Mapping[str, Any]:
        """See `fields`."""
        simulator: Any = env.unwrapped
        model, data = simulator.model, simulator.data
        palm, head = simulator.S_grasp_site_id, simulator.tool_site_id
        return {
            "palm_position": data.site_xpos[palm],
            "palm_velocity": point_velocity(model, data, palm),
            "hammer_position": data.xpos[simulator.obj_body_id],
            "head_position": data.site_xpos[head],
            "head_velocity": point_velocity(model, data, head),
            "nail_position": data.site_xpos[simulator.target_obj_site_id],
            "goal_position": data.site_xpos[simulator.goal_site_id],
            "joint_velocities": data.qvel[:26],
            "action": action,
        }

    def policy_observation(self, observation: Any) -> NDArray[np.float64]:
        """See the class."""
        joints, nail_depth, hammer_speeds = np.split(observation[:33], (26, 27))
        palm, hammer, angles, nail = observation[33:45].reshape(4, 3)
        lengths = 10.0 * np.concatenate((palm, hammer - palm, nail - hammer))
        parts = (2.0 * joints, 30.0 * nail_depth, 5.0 * hammer_speeds, lengths, angles)
        return np.concatenate((*parts, observation[45:]))

    def success(self, env: Env, observation: Any) -> bool:
        """Whether the nail is driven in."""
        simulator: Any = env.unwrapped
        sites = simulator.data.site_xpos
        left = sites[simulator.target_obj_site_id] - sites[simulator.goal_site_id]
        return bool(np.linalg.norm(left) < DRIVEN_IN)

    def left(self, env: Env, observation: Any) -> float:
        """Metres that the nail still goes in, and a tenth of those from the hammer's head to it.

        At the start that tenth is about a quarter of all: a hammer that is brought to the nail is
        worth something before the first blow.
        """
        simulator: Any = env.unwrapped
        sites = simulator.data.site_xpos
        nail = sites[simulator.target_obj_site_id]
        deep = float(np.linalg.norm(nail - sites[simulator.goal_site_id])) - DRIVEN_IN
        return deep + 0.1 * float(np.linalg.norm(nail - sites[simulator.tool_site_id]))
