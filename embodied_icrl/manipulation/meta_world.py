"""Five of Meta-World's tasks, for where the package is installed: `make metaworld`."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from embodied_icrl.common.config import option
from embodied_icrl.common.errors import ConfigError, require
from embodied_icrl.manipulation.fields import Field
from embodied_icrl.manipulation.graded import GradedTask, StartKeeper
from embodied_icrl.manipulation.physics_env import clipped
from embodied_icrl.manipulation.render import Marker, Scene, View
from embodied_icrl.manipulation.task import Budget, Env

INSTALL = "make metaworld"
STEP_S = 0.0125  # seconds per action
CENTRE = np.array((0.0, 0.65, 0.2))  # metres: above the table, before the robot

GRIPPER_FIELDS = (
    Field("gripper_position", (3,), "m", "x, y, z of the point between the fingertips; z is up"),
    Field("gripper_velocity", (3,), "m/s", "velocity of the hand"),
    Field("finger_opening", (), "-", "0: closed, 1: open (0.1 m)"),
)
ACTION_FIELD = Field(
    "action", (4,), "-", "commanded hand motion x, y, z and finger effort (1 closes), in [-1, 1]"
)
PPO = {"n_steps": 256, "batch_size": 512, "n_epochs": 8, "learning_rate": 1e-3, "gamma": 0.98}


class SeededSawyer(gym.Wrapper[Any, Any, Any, Any]):
    """A Sawyer environment whose `reset(seed)` counts, with the target in its observation."""

    def __init__(self, env: Any) -> None:
        # As the package's own makers of environments set them, minus the fixed list of tasks.
        env._partially_observable = False
        del env.sawyer_observation_space  # computed anew, with room for the target
        env._freeze_rand_vec, env.seeded_rand_vec, env._set_task_called = False, True, True
        super().__init__(env)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode; with a seed, its object and target depend on that alone."""
        import mujoco

        simulator: Any = self.env
        if seed is not None:
            simulator.seed(seed)
        observation, info = simulator.reset()
        # The package places some objects after the last computation of positions: its own first
        # observation has those of the episode before.
        mujoco.mj_forward(simulator.model, simulator.data)
        now = simulator._get_curr_obs_combined_no_goal()
        observation[:18] = observation[18:36] = simulator._prev_obs = now
        return observation, info


@dataclass(frozen=True)
class MetaWorldTask(GradedTask):
    """What the Meta-World tasks share.

    A policy sees what the environment's 39 numbers say, in tenths of metres and of the order of 1:
    the hand's place, the ways from it to object and target and from that to this, the fingers'
    opening, how the object lies, how fast all this changes, and a second object if there is one.

    A task of one's own needs the six class attributes of its declaration, `env_name`, `policy` and
    `object_field`, and `success` and `left`.

    Attributes:
        env_name: Meta-World's name of the environment, with its version.
        policy: the class in `metaworld.policies` that is its expert.
        object_field: what the object is called in the fields, "" where a reward reads none.
    """

    env_name: ClassVar[str]
    policy: ClassVar[str]
    object_field: ClassVar[str] = "object"
    view: ClassVar[View] = View((0.0, 0.68, 0.12), 1.35, azimuth=135.0, elevation=-25.0)

    horizon: int = option(150, "steps per episode, at most 500")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.horizon > 500:
            raise ConfigError(f"horizon={self.horizon}: Meta-World's episodes end after 500 steps")

    def make_env(self) -> Env:
        """The environment with a new place for object and target in each episode.

        Raises:
            MissingDependencyError: metaworld isn't installed.
        """
        environments = require("metaworld.env_dict", INSTALL).ALL_V3_ENVIRONMENTS
        return StartKeeper(SeededSawyer(environments[self.env_name]()), self.left)

    def read_state(self, env: Env, observation: Any, action: NDArray[Any]) -> Mapping[str, Any]:
        """See `fields`."""
        simulator: Any = env.unwrapped
        # The observation holds the step before, too: hand, fingers and object each.
        values = {
            "gripper_position": simulator.tcp_center,
            "gripper_velocity": (observation[0:3] - observation[18:21]) / simulator.dt,
            "finger_opening": observation[3],
            "target_position": observation[36:39],
            "action": action,
        }
        if self.object_field:
            moved = observation[4:7] - observation[22:25]
            values[f"{self.object_field}_position"] = observation[4:7]
            values[f"{self.object_field}_velocity"] = moved / simulator.dt
        return values

    def policy_observation(self, observation: Any) -> NDArray[np.float64]:
        """See the class."""
        now, before, target = observation[:18], observation[18:36], observation[36:]
        hand, thing = now[:3], now[4:7]
        lengths = (hand - CENTRE, thing - hand, target - hand, target - thing)
        moved = (now[:7] - before[:7]) / STEP_S
        opening = (2.0 * now[3:4] - 1.0, 0.1 * moved[3:4])
        # Zeros stand for no second object.
        second = 10.0 * (now[11:14] - CENTRE) if now[11:14].any() else now[11:14]
        speeds = (5.0 * moved[:3], 5.0 * moved[4:])
        parts = (10.0 * np.concatenate(lengths), *opening, *speeds, now[7:11], second, now[14:])
        return np.concatenate(parts)

    def expert_action(self, env: Env, observation: Any) -> NDArray[Any]:
        """Meta-World's own scripted policy."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about actions beyond the bounds, in every episode
            # A copy: some of the policies write to what they are given.
            action = self._expert.get_action(np.array(observation))
        return clipped(action)

    @cached_property
    def _expert(self) -> Any:
        return getattr(require("metaworld.policies", INSTALL), self.policy)()

    def scene(self, env: Env, observation: Any) -> Scene:
        """The robot, and a ball at the target."""
        shown = super().scene(env, observation)
        x, y, z = observation[36:39].tolist()
        return Scene(shown.model, shown.data, (Marker((x, y, z), 0.02),))


def _sparse(radius: float) -> str:
    return f"""\
def compute_reward(state):
    distance = np.linalg.norm(state.object_position - state.target_position)
    reached = 1.0 if distance < {radius} else 0.0
    return reached, {{"reached": reached}}
"""


def _object_fields(name: str, what: str) -> tuple[Field, ...]:
    return (
        Field(f"{name}_position", (3,), "m", f"x, y, z of {what}"),
        Field(f"{name}_velocity", (3,), "m/s", "its velocity"),
    )


@dataclass(frozen=True)
class MetaWorldReach(MetaWorldTask):
    """Success: the gripper within 5 cm of the target."""

    env_name: ClassVar[str] = "reach-v3"
    policy: ClassVar[str] = "SawyerReachV3Policy"
    object_field: ClassVar[str] = ""
    name: ClassVar[str] = "metaworld_reach"
    description: ClassVar[str] = (
        "Move the gripper of a Sawyer robot arm to a target point in the air and keep it there."
    )
    fields: ClassVar[tuple[Field, ...]] = (
        *GRIPPER_FIELDS,
        Field("target_position", (3,), "m", "x, y, z of the target point"),
        ACTION_FIELD,
    )
    human_reward: ClassVar[str] = """\
def compute_reward(state):
    distance = np.linalg.norm(state.gripper_position - state.target_position)
    components = {"distance": -2.0 * distance, "precision": np.exp(-((distance / 0.05) ** 2))}
    return sum(components.values()), components
"""
    sparse_reward: ClassVar[str] = """\
def compute_reward(state):
    distance = np.linalg.norm(state.gripper_position - state.target_position)
    reached = 1.0 if distance < 0.05 else 0.0
    return reached, {"reached": reached}
"""
    quick: ClassVar[Budget] = Budget(100_000, "ppo", 8, PPO)
    full: ClassVar[Budget] = Budget(500_000, "ppo", 8, PPO)

    def success(self, env: Env, observation: Any) -> bool:
        """Whether the gripper is within 5 cm of the target."""
        simulator: Any = env.unwrapped
        return bool(np.linalg.norm(simulator.tcp_center - observation[36:39]) <= 0.05)

    def left(self, env: Env, observation: Any) -> float:
        """Metres from the 5 cm around the target."""
        simulator: Any = env.unwrapped
        return float(np.linalg.norm(simulator.tcp_center - observation[36:39])) - 0.05


@dataclass(frozen=True)
class MetaWorldPush(MetaWorldTask):
    """Success: the puck within 5 cm of the target."""

    env_name: ClassVar[str] = "push-v3"
    policy: ClassVar[str] = "SawyerPushV3Policy"
    name: ClassVar[str] = "metaworld_push"
    description: ClassVar[str] = (
        "Move a puck over a table to a target place with the gripper of a Sawyer robot arm."
    )
    fields: ClassVar[tuple[Field, ...]] = (
        *GRIPPER_FIELDS,
        *_object_fields("object", "the puck's centre (radius 0.02)"),
        Field("target_position", (3,), "m", "where the puck should be"),
        ACTION_FIELD,
    )
    human_reward: ClassVar[str] = """\
def compute_reward(state):
    reach = np.linalg.norm(state.gripper_position - state.object_position)
    distance = np.linalg.norm(state.object_position - state.target_position)
    components = {
        "reach": -1.0 * reach,
        "grasp": 0.3 * (1.0 - state.finger_opening) if reach < 0.04 else 0.0,
        "distance": -3.0 * distance,
        "success": 2.0 if distance < 0.05 else 0.0,
    }
    return sum(components.values()), components
"""
    sparse_reward: ClassVar[str] = _sparse(0.05)
    quick: ClassVar[Budget] = Budget(300_000, "ppo", 8, PPO)
    full: ClassVar[Budget] = Budget(2_000_000, "ppo", 8, PPO)

    def success(self, env: Env, observation: Any) -> bool:
        """Whether the puck is within 5 cm of the target."""
        return bool(np.linalg.norm(observation[4:7] - observation[36:39]) <= 0.05)

    def left(self, env: Env, observation: Any) -> float:
        """Metres from the 5 cm around the target."""
        return float(np.linalg.norm(observation[4:7] - observation[36:39])) - 0.05


@dataclass(frozen=True)
class MetaWorldPickPlace(MetaWorldTask):
    """Success: the puck within 7 cm of the target."""

    env_name: ClassVar[str] = "pick-place-v3"
    policy: ClassVar[str] = "SawyerPickPlaceV3Policy"
    name: ClassVar[str] = "metaworld_pick_place"
    description: ClassVar[str] = (
        "Grasp a puck on a table with the gripper of a Sawyer robot arm and hold it at a target "
        "point in the air."
    )
    fields: ClassVar[tuple[Field, ...]] = MetaWorldPush.fields
    human_reward: ClassVar[str] = """\
def compute_reward(state):
    reach = np.linalg.norm(state.gripper_position - state.object_position)
    distance = np.linalg.norm(state.object_position - state.target_position)
    held = reach < 0.03 and state.finger_opening < 0.8
    lifted = held and state.object_position[2] > 0.04
    components = {
        "reach": -1.0 * reach,
        "grasp": 0.5 * (1.0 - state.finger_opening) if reach < 0.03 else 0.0,
        "lift": 0.5 if lifted else 0.0,
        "distance": 2.0 * (1.0 - np.tanh(5.0 * distance)) if lifted else 0.0,
        "success": 2.0 if distance < 0.07 else 0.0,
    }
    return sum(components.values()), components
"""
    sparse_reward: ClassVar[str] = _sparse(0.07)
    quick: ClassVar[Budget] = Budget(300_000, "ppo", 8, PPO)
    full: ClassVar[Budget] = Budget(3_000_000, "ppo", 8, PPO)

    def success(self, env: Env, observation: Any) -> bool:
        """Whether the puck is within 7 cm of the target."""
        return bool(np.linalg.norm(observation[4:7] - observation[36:39]) <= 0.07)

    def left(self, env: Env, observation: Any) -> float:
        """Metres from the 7 cm around the target."""
        return float(np.linalg.norm(observation[4:7] - observation[36:39])) - 0.07


@dataclass(frozen=True)
class MetaWorldDoorOpen(MetaWorldTask):
    """Success: the handle within 8 cm of its target along x."""

    env_name: ClassVar[str] = "door-open-v3"
    policy: ClassVar[str] = "SawyerDoorOpenV3Policy"
    object_field: ClassVar[str] = "handle"
    name: ClassVar[str] = "metaworld_door_open"
    description: ClassVar[str] = (
        "Pull a door open by its handle with the gripper of a Sawyer robot arm."
    )
    fields: ClassVar[tuple[Field, ...]] = (
        *GRIPPER_FIELDS,
        *_object_fields("handle", "the door's handle, which swings about the hinge"),
        Field("target_position", (3,), "m", "where the handle is with the door open"),
        ACTION_FIELD,
    )
    human_reward: ClassVar[str] = """\
def compute_reward(state):
    behind = state.handle_position + np.array([0.02, 0.0, 0.0])
    reach = np.linalg.norm(state.gripper_position - behind)
    distance = abs(state.handle_position[0] - state.target_position[0])
    components = {
        "reach": -1.0 * reach,
        "door": -4.0 * distance,
        "success": 2.0 if distance < 0.08 else 0.0,
    }
    return sum(components.values()), components
"""
    sparse_reward: ClassVar[str] = """\
def compute_reward(state):
    distance = abs(state.handle_position[0] - state.target_position[0])
    opened = 1.0 if distance < 0.08 else 0.0
    return opened, {"opened": opened}
"""
    quick: ClassVar[Budget] = Budget(300_000, "ppo", 8, PPO)
    full: ClassVar[Budget] = Budget(2_000_000, "ppo", 8, PPO)

    def success(self, env: Env, observation: Any) -> bool:
        """Whether the handle is where it is with the door open."""
        return bool(abs(observation[4] - observation[36]) <= 0.08)

    def left(self, env: Env, observation: Any) -> float:
        """Metres along x from the 8 cm around the target."""
        return float(abs(observation[4] - observation[36])) - 0.08


@dataclass(frozen=True)
class MetaWorldDrawerOpen(MetaWorldTask):
    """Success: the handle within 3 cm of its target."""

    env_name: ClassVar[str] = "drawer-open-v3"
    policy: ClassVar[str] = "SawyerDrawerOpenV3Policy"
    object_field: ClassVar[str] = "handle"
    name: ClassVar[str] = "metaworld_drawer_open"
    description: ClassVar[str] = (
        "Pull a drawer open by its handle with the gripper of a Sawyer robot arm."
    )
    fields: ClassVar[tuple[Field, ...]] = (
        *GRIPPER_FIELDS,
        *_object_fields("handle", "the drawer's handle"),
        Field("target_position", (3,), "m", "where the handle is with the drawer open"),
        ACTION_FIELD,
    )
    human_reward: ClassVar[str] = """\
def compute_reward(state):
    reach = np.linalg.norm(state.gripper_position - state.handle_position)
    distance = np.linalg.norm(state.handle_position - state.target_position)
    components = {
        "reach": -1.0 * reach,
        "drawer": -5.0 * distance,
        "success": 2.0 if distance < 0.03 else 0.0,
    }
    return sum(components.values()), components
"""
    sparse_reward: ClassVar[str] = _sparse(0.03).replace("object_position", "handle_position")
    quick: ClassVar[Budget] = Budget(300_000, "ppo", 8, PPO)
    full: ClassVar[Budget] = Budget(2_000_000, "ppo", 8, PPO)

    def success(self, env: Env, observation: Any) -> bool:
        """Whether the handle is where it is with the drawer open."""
        return bool(np.linalg.norm(observation[4:7] - observation[36:39]) <= 0.03)

    def left(self, env: Env, observation: Any) -> float:
        """Metres from the 3 cm around the target."""
        return float(np.linalg.norm(observation[4:7] - observation[36:39])) - 0.03
