"""The Fetch robot's tasks of gymnasium-robotics: reach, push, slide, pick and place."""

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

RADIUS = 0.05  # of success, metres: the environments' own threshold
SLOWING = 0.9  # of a sliding puck, m/s^2
STEP_S = 0.04  # seconds per action
CENTRE = np.array((1.34, 0.75, 0.5))  # metres: above the table, before the robot

PPO = {"n_steps": 128, "batch_size": 256, "n_epochs": 10, "learning_rate": 1e-3, "gamma": 0.95}

GRIPPER_FIELDS = (
    Field("gripper_position", (3,), "m", "x, y, z of the point between the fingers; z is up"),
    Field("gripper_velocity", (3,), "m/s", "its velocity"),
    Field("finger_opening", (), "m", "distance between the fingers: 0 closed, 0.1 open"),
)
OBJECT_FIELDS = (
    Field("object_position", (3,), "m", "x, y, z of the centre of a cube, 0.05 m wide"),
    Field("object_velocity", (3,), "m/s", "its velocity"),
)
ACTION_FIELD = Field(
    "action", (4,), "-", "commanded gripper motion x, y, z and finger opening, each in [-1, 1]"
)

SPARSE_OBJECT = """\
def compute_reward(state):
    distance = np.linalg.norm(state.object_position - state.target_position)
    reached = 1.0 if distance < 0.05 else 0.0
    return reached, {"reached": reached}
"""


@dataclass(frozen=True)
class FetchTask(RoboticsTask):
    """What the Fetch tasks share.

    A policy sees, in tenths of metres and of the order of 1: the gripper's place, the way from it
    to the object and on to the target, the object's angles, and how fast all this changes.

    Attributes:
        has_fingers: whether the fingers move; a policy sees them then.
    """

    has_fingers: ClassVar[bool] = False
    view: ClassVar[View] = View((1.3, 0.75, 0.5), 1.3, azimuth=132.0, elevation=-20.0)

    horizon: int = 50

    def read_state(self, env: Env, observation: Any, action: NDArray[Any]) -> Mapping[str, Any]:
        """See `fields`."""
        seen = observation["observation"]
        dt = env.unwrapped.dt  # type: ignore[attr-defined]
        values = {
            "gripper_position": seen[:3],
            "target_position": observation["desired_goal"],
            "action": action,
        }
        if len(seen) == 10:
            velocity, fingers = seen[5:8], seen[3:5]
        else:
            # Object velocities are relative to the gripper's; both are distances per step of dt.
            velocity, fingers = seen[20:23], seen[9:11]
            values["object_position"] = seen[3:6]
            values["object_velocity"] = (seen[14:17] + velocity) / dt
        values["gripper_velocity"] = velocity / dt
        values["finger_opening"] = fingers[0] + fingers[1]
        return values

    def policy_observation(self, observation: Any) -> NDArray[np.float64]:
        """See the class."""
        seen, target = observation["observation"], observation["desired_goal"]
        gripper = seen[:3]
        place = 10.0 * (gripper - CENTRE)
        if len(seen) == 10:
            return np.concatenate((place, 10.0 * (target - gripper), 5.0 / STEP_S * seen[5:8]))
        thing, velocity = seen[3:6], seen[20:23]
        ways = 10.0 * np.concatenate((thing - gripper, target - thing))
        speeds = 5.0 / STEP_S * np.concatenate((velocity, seen[14:17] + velocity))
        parts = [place, ways, speeds, seen[11:14], 0.5 / STEP_S * seen[17:20]]
        if self.has_fingers:
            parts += [20.0 * seen[9:11], 1.0 / STEP_S * seen[23:25]]
        return np.concatenate(parts)

    def success(self, env: Env, observation: Any) -> bool:
        """Whether gripper or object is within 5 cm of the target."""
        difference = observation["achieved_goal"] - observation["desired_goal"]
        return bool(difference @ difference < RADIUS**2)

    def left(self, env: Env, observation: Any) -> float:
        """Metres from the 5 cm around the target."""
        difference = observation["achieved_goal"] - observation["desired_goal"]
        return float(np.linalg.norm(difference)) - RADIUS

    def scene(self, env: Env, observation: Any) -> Scene:
        """The robot, and a ball at the target."""
        shown = super().scene(env, observation)
        x, y, z = observation["desired_goal"].tolist()
        return Scene(shown.model, shown.data, (Marker((x, y, z), 0.02),))


@dataclass(frozen=True)
class FetchReach(FetchTask):
    """Success: the gripper within 5 cm of the target."""

    env_id: ClassVar[str] = "FetchReach-v4"
    name: ClassVar[str] = "fetch_reach"
    description: ClassVar[str] = (
        "Move the gripper of a Fetch robot arm to a target point in the air and keep it there."
    )
    fields: ClassVar[tuple[Field, ...]] = (
        *GRIPPER_FIELDS,
        Field("target_position", (3,), "m", "x, y, z of the target point"),
        ACTION_FIELD,
    )
    human_reward: ClassVar[str] = """\
def compute_reward(state):
    distance = np.linalg.norm(state.gripper_position - state.target_position)
    components = {"distance": -distance, "precision": np.exp(-((distance / 0.05) ** 2))}
    return sum(components.values()), components
"""
    sparse_reward: ClassVar[str] = SPARSE_OBJECT.replace("object_position", "gripper_position")
    quick: ClassVar[Budget] = Budget(30_000, "ppo", 8, PPO)
    full: ClassVar[Budget] = Budget(100_000, "ppo", 8, PPO)

    def expert_action(self, env: Env, observation: Any) -> NDArray[Any]:
        """Straight to the target."""
        return _towards(observation["observation"][:3], observation["desired_goal"], fingers=0.0)


@dataclass(frozen=True)
class FetchPush(FetchTask):
    """Success: the cube within 5 cm of the target."""

    env_id: ClassVar[str] = "FetchPush-v4"
    name: ClassVar[str] = "fetch_push"
    description: ClassVar[str] = (
        "Push a cube over a table to a target place with the closed gripper of a Fetch robot arm."
    )
    fields: ClassVar[tuple[Field, ...]] = (
        *GRIPPER_FIELDS,
        *OBJECT_FIELDS,
        Field("target_position", (3,), "m", "x, y, z where the cube's centre should be"),
        ACTION_FIELD,
    )
    human_reward: ClassVar[str] = """\
def compute_reward(state):
    to_target = state.target_position - state.object_position
    to_object = state.object_position - state.gripper_position
    distance = np.linalg.norm(to_target)
    reach = np.linalg.norm(to_object)
    behind = np.dot(to_target, to_object) / (distance * reach + 1e-6)
    touching = np.exp(-max(reach - 0.05, 0.0) / 0.1)
    components = {
        "distance": 2.0 * (1.0 - np.tanh(4.0 * distance)),
        "approach": 0.5 * touching * (1.0 + behind) if distance > 0.05 else 1.0,
        "success": 1.0 if distance < 0.05 else 0.0,
    }
    return sum(components.values()), components
"""
    sparse_reward: ClassVar[str] = SPARSE_OBJECT
    quick: ClassVar[Budget] = Budget(300_000, "ppo", 16, FINE_PPO)
    full: ClassVar[Budget] = Budget(2_000_000, "ppo", 16, FINE_PPO)

    def expert_action(self, env: Env, observation: Any) -> NDArray[Any]:
        """Over the cube to the place behind it, down, and along the line to the target."""
        seen, target = observation["observation"], observation["desired_goal"]
        gripper, cube = seen[:3], seen[3:6]
        offset = (target - cube)[:2]
        distance = float(np.linalg.norm(offset))
        if distance < 0.02:
            return _towards(gripper, gripper, fingers=-1.0)
        forward = offset / distance
        side = np.array([-forward[1], forward[0]])
        relative = (gripper - cube)[:2]
        along, across = relative @ forward, relative @ side
        behind = np.append(cube[:2] - 0.08 * forward, cube[2])
        lined_up = along < -0.03 and abs(across) < 0.015
        if lined_up and gripper[2] - cube[2] < 0.03:
            aim = np.append(gripper[:2] + 0.05 * forward - across * side, cube[2])
            return _towards(gripper, aim, fingers=-1.0, gain=8.0 + 40.0 * min(distance, 0.2))
        if not lined_up:  # from above, so that the cube is not touched on the way
            near = np.linalg.norm((gripper - behind)[:2]) < 0.02
            behind[2] = cube[2] + (0.0 if near else 0.1)
            if not near and gripper[2] - cube[2] < 0.06:
                behind[:2] = gripper[:2]
        return _towards(gripper, behind, fingers=-1.0)


@dataclass(frozen=True)
class FetchSlide(FetchTask):
    """Success: the puck within 5 cm of the target."""

    env_id: ClassVar[str] = "FetchSlide-v4"
    name: ClassVar[str] = "fetch_slide"
    description: ClassVar[str] = (
        "Hit a puck with the closed gripper of a Fetch robot arm so that it slides over a slippery "
        "table and stops at a target place out of the arm's reach."
    )
    fields: ClassVar[tuple[Field, ...]] = (
        *GRIPPER_FIELDS,
        Field("object_position", (3,), "m", "x, y, z of the centre of a puck, 0.05 m wide"),
        Field("object_velocity", (3,), "m/s", "its velocity"),
        Field("target_position", (3,), "m", "x, y, z where the puck's centre should be"),
        ACTION_FIELD,
    )
    human_reward: ClassVar[str] = FetchPush.human_reward.replace("4.0 * distance", "2.0 * distance")
    sparse_reward: ClassVar[str] = SPARSE_OBJECT
    quick: ClassVar[Budget] = Budget(300_000, "ppo", 16, FINE_PPO)
    full: ClassVar[Budget] = Budget(3_000_000, "ppo", 16, FINE_PPO)
    view: ClassVar[View] = View((1.3, 0.75, 0.45), 1.7, azimuth=132.0, elevation=-25.0)

    def expert_action(self, env: Env, observation: Any) -> NDArray[Any]:
        """Behind the puck, then along the line until it is fast enough to slide to the target."""
        seen, target = observation["observation"], observation["desired_goal"]
        gripper, puck = seen[:3], seen[3:6]
        simulator: Any = env.unwrapped
        speed = np.linalg.norm(seen[14:17] + seen[20:23]) / simulator.dt
        offset = (target - puck)[:2]
        distance = float(np.linalg.norm(offset))
        forward = offset / (distance + 1e-9)
        side = np.array([-forward[1], forward[0]])
        relative = (gripper - puck)[:2]
        along, across = relative @ forward, relative @ side
        needed = np.sqrt(2 * SLOWING * distance)  # m/s; an action of 1 is about as fast
        stroke = np.append(needed * forward - 6 * across * side, (0.0, -1.0))
        if speed > 0.1:  # it was hit: push on until it is fast enough
            pushing = speed < 0.95 * needed and along > -0.06
            return clipped(stroke) if pushing else _towards(gripper, gripper, fingers=-1.0)
        if abs(across) < 0.004 and along < -0.03 and gripper[2] - puck[2] < 0.02:
            return clipped(stroke)
        behind = np.append(puck[:2] - 0.1 * forward, puck[2])
        near = np.linalg.norm((gripper - behind)[:2]) < 0.02
        behind[2] = puck[2] + (0.0 if near else 0.1)
        if not near and gripper[2] - puck[2] < 0.06:
            behind[:2] = gripper[:2]
        return _towards(gripper, behind, fingers=-1.0)


@dataclass(frozen=True)
class FetchPickAndPlace(FetchTask):
    """Success: the cube within 5 cm of the target."""

    env_id: ClassVar[str] = "FetchPickAndPlace-v4"
    has_fingers: ClassVar[bool] = True
    name: ClassVar[str] = "fetch_pick_and_place"
    description: ClassVar[str] = (
        "Grasp a cube on a table with a Fetch robot arm and hold it at a target point, "
        "which may be in the air."
    )
    fields: ClassVar[tuple[Field, ...]] = (
        *GRIPPER_FIELDS,
        *OBJECT_FIELDS,
        Field("target_position", (3,), "m", "x, y, z where the cube's centre should be"),
        ACTION_FIELD,
    )
    human_reward: ClassVar[str] = """\
def compute_reward(state):
    distance = np.linalg.norm(state.object_position - state.target_position)
    reach = np.linalg.norm(state.gripper_position - state.object_position)
    grasped = reach < 0.03 and state.finger_opening < 0.06
    components = {
        "reach": -reach,
        "grasp": 0.5 if grasped else 0.0,
        "distance": 2.0 * (1.0 - np.tanh(5.0 * distance)) if grasped else 0.0,
        "success": 2.0 if distance < 0.05 else 0.0,
    }
    return sum(components.values()), components
"""
    sparse_reward: ClassVar[str] = SPARSE_OBJECT
    quick: ClassVar[Budget] = Budget(300_000, "ppo", 16, FINE_PPO)
    full: ClassVar[Budget] = Budget(3_000_000, "ppo", 16, FINE_PPO)

    def expert_action(self, env: Env, observation: Any) -> NDArray[Any]:
        """Over the cube, down, close, and to the target."""
        seen, target = observation["observation"], observation["desired_goal"]
        gripper, cube, opening = seen[:3], seen[3:6], float(seen[9] + seen[10])
        offset = cube - gripper
        if np.linalg.norm(offset[:2]) > 0.015 and np.linalg.norm(offset) > 0.02:
            return _towards(gripper, cube + (0.0, 0.0, 0.08), fingers=1.0)
        if np.linalg.norm(offset) > 0.015 and opening > 0.055:
            return _towards(gripper, cube, fingers=1.0)
        if opening > 0.055:
            return _towards(gripper, gripper, fingers=-1.0)
        return _towards(gripper, target + (gripper - cube), fingers=-1.0)


def _towards(
    position: NDArray[Any], goal: NDArray[Any], *, fingers: float, gain: float = 12.0
) -> NDArray[np.float32]:
    """The action that moves the gripper towards `goal`; an action of 1 is about 3 cm."""
    action = np.append(gain * (goal - position), fingers)
    return clipped(action)
