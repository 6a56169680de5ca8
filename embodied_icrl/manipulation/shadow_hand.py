"""The Shadow hand's tasks of gymnasium-robotics: bring fingertips together, turn a block."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from embodied_icrl.manipulation.fields import Field
from embodied_icrl.manipulation.physics_env import clipped
from embodied_icrl.manipulation.render import Marker, Scene, View
from embodied_icrl.manipulation.robotics import FINE_PPO, RoboticsTask
from embodied_icrl.manipulation.task import Budget, Env

FINGERTIPS = tuple(f"robot0:S_{finger}tip" for finger in ("ff", "mf", "rf", "lf", "th"))
REACHED = 0.01  # of success, metres over all five tips: the environment's own threshold
TURNED = 0.1  # of success, radians: the environment's own threshold
PALM = np.array((1.0, 0.87, 0.17))  # metres: above the middle of the palm
DROPPED = 0.1  # metres above the floor; the palm is higher

ACTION_FIELD = Field(
    "action", (20,), "-", "commanded joint positions, each in [-1, 1] of its range"
)
TIPS_FIELD = Field(
    "fingertip_positions", (5, 3), "m", "x, y, z of first, middle, ring, little finger, thumb"
)
PPO = {**FINE_PPO, "learning_rate": 1e-3}


@dataclass(frozen=True)
class HandReach(RoboticsTask):
    """Success: the root of the summed squares of the five tips' errors below 1 cm.

    A policy sees, of the order of 1: the joints' angles and velocities, the tips' places, and the
    way from each to its target.
    """

    env_id: ClassVar[str] = "HandReach-v3"
    name: ClassVar[str] = "hand_reach"
    description: ClassVar[str] = (
        "Move the fingertips of a Shadow hand to their target points, where in most episodes the "
        "thumb meets one finger, and keep them there."
    )
    fields: ClassVar[tuple[Field, ...]] = (
        TIPS_FIELD,
        Field("target_positions", (5, 3), "m", "where each of them should be"),
        Field("joint_velocities", (24,), "rad/s", "of wrist and fingers"),
        ACTION_FIELD,
    )
    human_reward: ClassVar[str] = """\
def compute_reward(state):
    errors = np.linalg.norm(state.fingertip_positions - state.target_positions, axis=1)
    total = np.sqrt(np.dot(errors, errors))
    components = {
        "distance": -10.0 * total,
        "precision": np.exp(-((total / 0.01) ** 2)),
        "worst": -5.0 * np.max(errors),
    }
    return sum(components.values()), components
"""
    sparse_reward: ClassVar[str] = """\
def compute_reward(state):
    distance = np.linalg.norm(state.fingertip_positions - state.target_positions)
    reached = 1.0 if distance < 0.01 else 0.0
    return reached, {"reached": reached}
"""
    quick: ClassVar[Budget] = Budget(200_000, "ppo", 16, PPO)
    full: ClassVar[Budget] = Budget(2_000_000, "ppo", 16, PPO)
    view: ClassVar[View] = View((1.0, 0.85, 0.17), 0.45, azimuth=55.0, elevation=-30.0)

    horizon: int = 50

    def read_state(self, env: Env, observation: Any, action: NDArray[Any]) -> Mapping[str, Any]:
        """See `fields`."""
        return {
            "fingertip_positions": observation["achieved_goal"].reshape(5, 3),
            "target_positions": observation["desired_goal"].reshape(5, 3),
            "joint_velocities": observation["observation"][24:48],
            "action": action,
        }

    def policy_observation(self, observation: Any) -> NDArray[np.float64]:
        """See the class."""
        tips = observation["achieved_goal"]
        places = (tips.reshape(5, 3) - PALM).ravel()
        parts = (_joints(observation), 20.0 * places, 50.0 * (observation["desired_goal"] - tips))
        return np.concatenate(parts)

    def success(self, env: Env, observation: Any) -> bool:
        """Whether the tips are where they should be."""
        error = observation["achieved_goal"] - observation["desired_goal"]
        return bool(np.linalg.norm(error) < REACHED)

    def left(self, env: Env, observation: Any) -> float:
        """The tips' error beyond that of success, metres."""
        error = observation["achieved_goal"] - observation["desired_goal"]
        return float(np.linalg.norm(error)) - REACHED

    def expert_action(self, env: Env, observation: Any) -> NDArray[Any]:
        """Turns the joints down the tips' errors: damped least squares on their Jacobian."""
        import mujoco

        simulator: Any = env.unwrapped
        model, data = simulator.model, simulator.data
        jacobian = np.empty((5, 3, model.nv))
        for rows, name in zip(jacobian, FINGERTIPS):
            mujoco.mj_jacSite(model, data, rows, None, data.site(name).id)
        joints = model.actuator_trnid[:, 0]
        moved = jacobian.reshape(15, model.nv)[:, joints]
        for i, joint in enumerate(joints):  # a finger's last joint bends with the one before it
            if model.joint(joint).name[-4:] in ("FFJ1", "MFJ1", "RFJ1", "LFJ1"):
                moved[:, i] += jacobian.reshape(15, model.nv)[:, joint + 1]
        error = observation["desired_goal"] - observation["achieved_goal"]
        damping = 1e-4 * np.eye(len(joints))
        turn = np.linalg.solve(moved.T @ moved + damping, moved.T @ error)
        # From the last command, not the joints: the springs of the joints' drives leave an error.
        low, high = model.actuator_ctrlrange.T
        start = data.ctrl if data.ctrl.any() else data.qpos[joints]
        return clipped((start + 0.3 * turn - (low + high) / 2) / ((high - low) / 2))

    def scene(self, env: Env, observation: Any) -> Scene:
        """The hand, and a ball at each target."""
        shown = super().scene(env, observation)
        goals = observation["desired_goal"].reshape(5, 3).tolist()
        marks = tuple(Marker((x, y, z), 0.006) for x, y, z in goals)
        return Scene(shown.model, shown.data, marks)


@dataclass(frozen=True)
class HandBlock(RoboticsTask):
    """Success: the block within 0.1 rad of its target orientation.

    A policy sees, of the order of 1: the joints' angles and velocities, where the block is, how it
    lies and moves, and the turn that is left.
    """

    env_id: ClassVar[str] = "HandManipulateBlockRotateZ-v1"
    name: ClassVar[str] = "hand_block"
    description: ClassVar[str] = (
        "Turn a block that lies in the palm of a Shadow hand about its vertical axis to a target "
        "orientation, without dropping it."
    )
    fields: ClassVar[tuple[Field, ...]] = (
        Field("block_position", (3,), "m", "x, y, z of its centre; z is up, dropped below 0.1"),
        Field("block_velocity", (3,), "m/s", "its velocity"),
        Field("block_spin", (3,), "rad/s", "its angular velocity, in the block's frame"),
        Field("turn_left", (3,), "rad", "the turn to the target, as a vector along its axis"),
        Field("palm_position", (3,), "m", "x, y, z of the palm"),
        TIPS_FIELD,
        Field("joint_velocities", (24,), "rad/s", "of wrist and fingers"),
        ACTION_FIELD,
    )
    human_reward: ClassVar[str] = """\
def compute_reward(state):
    angle = np.linalg.norm(state.turn_left)
    reach = np.mean(np.linalg.norm(state.fingertip_positions - state.block_position, axis=1))
    components = {
        "turn": 1.0 / (angle + 0.1),
        "reach": -2.0 * reach,
        "dropped": -5.0 if state.block_position[2] < 0.1 else 0.0,
        "effort": -0.005 * np.dot(state.action, state.action),
        "success": 5.0 if angle < 0.1 else 0.0,
    }
    return sum(components.values()), components
"""
    sparse_reward: ClassVar[str] = """\
def compute_reward(state):
    turned = 1.0 if np.linalg.norm(state.turn_left) < 0.1 else 0.0
    return turned, {"turned": turned}
"""
    quick: ClassVar[Budget] = Budget(200_000, "ppo", 16, PPO)
    full: ClassVar[Budget] = Budget(5_000_000, "ppo", 16, PPO)
    view: ClassVar[View] = HandReach.view

    horizon: int = 100

    def read_state(self, env: Env, observation: Any, action: NDArray[Any]) -> Mapping[str, Any]:
        """See `fields`."""
        simulator: Any = env.unwrapped
        seen, data = observation["observation"], simulator.data
        names = simulator._model_names
        tips = [names.site_name2id[name] for name in FINGERTIPS]
        return {
            "block_position": observation["achieved_goal"][:3],
            "block_velocity": seen[48:51],
            "block_spin": seen[51:54],
            "turn_left": _turn(observation["achieved_goal"][3:], observation["desired_goal"][3:]),
            "palm_position": data.xpos[names.body_name2id["robot0:palm"]],
            "fingertip_positions": data.site_xpos[tips],
            "joint_velocities": seen[24:48],
            "action": action,
        }

    def policy_observation(self, observation: Any) -> NDArray[np.float64]:
        """See the class."""
        block, moves = observation["achieved_goal"], observation["observation"][48:54]
        turn = _turn(block[3:], observation["desired_goal"][3:])
        motion = (5.0 * moves[:3], 0.5 * moves[3:])
        place = 20.0 * (block[:3] - PALM)
        return np.concatenate((_joints(observation), place, block[3:], *motion, turn))

    def success(self, env: Env, observation: Any) -> bool:
        """Whether the block is turned as it should be.

        A rotation has two quaternions; the environment's own measure knows one of them only.
        """
        turn = _turn(observation["achieved_goal"][3:], observation["desired_goal"][3:])
        return bool(np.linalg.norm(turn) < TURNED)

    def left(self, env: Env, observation: Any) -> float:
        """The turn beyond that of success, radians; the largest one for a dropped block."""
        achieved = observation["achieved_goal"]
        if achieved[2] < DROPPED:
            return np.pi
        return float(np.linalg.norm(_turn(achieved[3:], observation["desired_goal"][3:]))) - TURNED

    def scene(self, env: Env, observation: Any) -> Scene:
        """The hand, and beside it a pale block as it should lie."""
        import mujoco

        shown = super().scene(env, observation)
        data = mujoco.MjData(shown.model)
        mujoco.mj_copyData(data, shown.model, shown.data)
        beside = data.joint("object:joint").qpos[:3] + (0.12, 0.0, 0.0)
        data.joint("target:joint").qpos[:] = np.append(beside, observation["desired_goal"][3:])
        mujoco.mj_kinematics(shown.model, data)
        return Scene(shown.model, data)


def _joints(observation: Any) -> NDArray[np.float64]:
    """Angles and velocities of the hand's joints, of the order of 1, [48]."""
    seen = observation["observation"]
    return np.concatenate((2.0 * seen[:24], 0.2 * seen[24:48]))


def _turn(start: NDArray[np.float64], end: NDArray[np.float64]) -> NDArray[np.float64]:
    """The shortest turn from one orientation to another, rad along its axis in the world, [3].

    Args:
        start, end: unit quaternions (w, x, y, z); both signs of one mean the same.
    """
    w0, x0, y0, z0 = start.tolist()
    w1, x1, y1, z1 = end.tolist()
    w = w1 * w0 + x1 * x0 + y1 * y0 + z1 * z0  # of end * conjugate(start)
    axis = np.array(
        (
            -w1 * x0 + x1 * w0 - y1 * z0 + z1 * y0,
            -w1 * y0 + x1 * z0 + y1 * w0 - z1 * x0,
            -w1 * z0 - x1 * y0 + y1 * x0 + z1 * w0,
        )
    )
    if w < 0:
        w, axis = -w, -axis
    length = float(np.linalg.norm(axis))
    return axis * (2 * np.arctan2(length, w) / length if length > 1e-12 else 2.0)
