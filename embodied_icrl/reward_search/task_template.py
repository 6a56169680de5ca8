"""A slider that moves a block to a mark: a small task to start from.

Every method here can be changed; `embodied-icrl reward tasks` shows what it declares.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from embodied_icrl.manipulation.fields import Field
from embodied_icrl.manipulation.physics_env import PhysicsEnv, clipped
from embodied_icrl.manipulation.task import Budget, Env, Task

MODEL = """\
<mujoco>
  <option timestep="0.01" gravity="0 0 0"/>
  <worldbody>
    <body name="block">
      <joint name="slide" type="slide" axis="1 0 0" range="-0.5 0.5" limited="true"/>
      <geom type="box" size="0.03 0.03 0.03" mass="1"/>
    </body>
    <body name="mark" mocap="true"><site size="0.02"/></body>
  </worldbody>
  <actuator><velocity joint="slide" kv="20" ctrlrange="-0.5 0.5"/></actuator>
</mujoco>
"""

HUMAN_REWARD = """\
def compute_reward(state):
    distance = abs(state.block_position - state.mark_position)
    components = {"distance": -distance, "precision": np.exp(-((distance / 0.03) ** 2))}
    return sum(components.values()), components
"""

SPARSE_REWARD = """\
def compute_reward(state):
    reached = 1.0 if abs(state.block_position - state.mark_position) < 0.03 else 0.0
    return reached, {"reached": reached}
"""


@dataclass(frozen=True)
class NewTask(Task):
    """Success: the block within 3 cm of the mark."""

    name: ClassVar[str] = "new_task"
    description: ClassVar[str] = "Slide a block along a rail to a mark and leave it there."
    fields: ClassVar[tuple[Field, ...]] = (
        Field("block_position", (), "m", "where the block is on the rail"),
        Field("block_velocity", (), "m/s", "how fast it moves"),
        Field("mark_position", (), "m", "where it should be"),
        Field("action", (1,), "-", "commanded velocity, in [-1, 1] of 0.5 m/s"),
    )
    human_reward: ClassVar[str] = HUMAN_REWARD
    sparse_reward: ClassVar[str] = SPARSE_REWARD
    quick: ClassVar[Budget] = Budget(20_000, "ppo")
    full: ClassVar[Budget] = Budget(100_000, "ppo")

    def make_env(self) -> PhysicsEnv:
        """Any Gymnasium environment will do; this one steps the model above.

        It may end episodes before `horizon`. After `terminated`, the last moment counts for the
        steps left out; `truncated` just ends the episode, so switch off time limits that are too
        short (`gym.make(..., max_episode_steps=-1)`).
        """
        return PhysicsEnv(MODEL, frame_skip=4, begin=_begin, observe=_observe)

    def read_state(self, env: Env, observation: Any, action: NDArray[Any]) -> Mapping[str, Any]:
        """One value per declared field."""
        data = env.unwrapped.data  # type: ignore[attr-defined]
        return {
            "block_position": data.qpos[0],
            "block_velocity": data.qvel[0],
            "mark_position": data.mocap_pos[0, 0],
            "action": action,
        }

    def success(self, env: Env, observation: Any) -> bool:
        """Read from the simulator, never from a reward; fitness is its mean over the last steps."""
        data = env.unwrapped.data  # type: ignore[attr-defined]
        return bool(abs(data.qpos[0] - data.mocap_pos[0, 0]) < 0.03)

    def expert_action(self, env: Env, observation: Any) -> NDArray[Any]:
        """A scripted success, for the checks of rewards; return None if you have none."""
        data = env.unwrapped.data  # type: ignore[attr-defined]
        return clipped(10.0 * (data.mocap_pos[0, :1] - data.qpos))


def _begin(env: PhysicsEnv, rng: np.random.Generator) -> None:
    env.data.qpos[0] = rng.uniform(-0.4, -0.1)
    env.data.mocap_pos[0, 0] = rng.uniform(0.1, 0.4)


def _observe(env: PhysicsEnv) -> list[float]:
    position, mark = float(env.data.qpos[0]), float(env.data.mocap_pos[0, 0])
    return [position, float(env.data.qvel[0]), mark, mark - position]
