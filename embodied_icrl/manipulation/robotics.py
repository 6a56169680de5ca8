"""What the tasks on environments of gymnasium-robotics share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from embodied_icrl.common.errors import require
from embodied_icrl.manipulation.graded import GradedTask, StartKeeper
from embodied_icrl.manipulation.physics_env import PPO
from embodied_icrl.manipulation.task import Env

# Little noise at first: an action of 1 moves a gripper by 3 cm, and a cube is 5 cm wide.
FINE_PPO = {**PPO, "policy_kwargs": {"log_std_init": -1.0}}


@dataclass(frozen=True)
class RoboticsTask(GradedTask):
    """A task on an environment of gymnasium-robotics; its observation, flattened if in parts.

    Attributes:
        env_id: the environment's name with its version.
    """

    env_id: ClassVar[str]

    def make_env(self) -> Env:
        """The environment as gymnasium-robotics makes it, without its time limit.

        Raises:
            MissingDependencyError: gymnasium-robotics isn't installed.
        """
        robotics = require("gymnasium_robotics", "pip install 'gymnasium-robotics>=1.4'")
        gym.register_envs(robotics)
        env = gym.make(self.env_id, max_episode_steps=-1, disable_env_checker=True)
        return StartKeeper(env, self.left)


def point_velocity(model: Any, data: Any, site: int) -> NDArray[np.float64]:
    """Velocity of a site in the world's frame, m/s, [3]."""
    import mujoco

    twist = np.empty(6)  # angular first
    mujoco.mj_objectVelocity(model, data, int(mujoco.mjtObj.mjOBJ_SITE), site, twist, 0)
    return twist[3:]
