"""A small MuJoCo model as a Gymnasium environment: what our own manipulators share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from embodied_icrl.manipulation.render import Picture, RenderWindow, Scene, View

# Learns each of our small tasks, with 16 environments, in about 20 seconds of one core. The limit
# on the divergence keeps the high learning rate from ruining a training now and then.
PPO = {
    "n_steps": 64,
    "batch_size": 512,
    "n_epochs": 8,
    "learning_rate": 2e-3,
    "gamma": 0.95,
    "target_kl": 0.04,
}
ABOVE = View((0.0, 0.0, 0.0), 1.0, azimuth=90.0, elevation=-90.0, sites=True)


class PhysicsEnv(gym.Env[NDArray[np.float64], NDArray[Any]]):
    """Steps a model whose actuators take actions in [-1, 1], scaled to their control ranges.

    Args:
        xml: the model, as MJCF text.
        frame_skip: physics steps per action.
        begin: sets the positions of a new episode, given (env, generator).
        observe: the observation [width] of the current state.
        view: where `render` looks from.

    Attributes:
        model, data: MuJoCo's own.
    """

    def __init__(
        self,
        xml: str,
        *,
        frame_skip: int,
        begin: Callable[[PhysicsEnv, np.random.Generator], None],
        observe: Callable[[PhysicsEnv], NDArray[np.float64] | Sequence[float]],
        view: View = ABOVE,
    ) -> None:
        # Here, not above: tasks are listed without loading the simulator.
        import mujoco

        self.model = mujoco.MjModel.from_xml_string(xml)
        self.data = mujoco.MjData(self.model)
        self._reset, self._forward = mujoco.mj_resetData, mujoco.mj_forward
        self._step = mujoco.mj_step
        self.window = RenderWindow(view)
        self._frame_skip, self._begin, self._observe = frame_skip, begin, observe
        low, high = self.model.actuator_ctrlrange.T
        self._middle, self._half = (high + low) / 2, (high - low) / 2
        self.action_space = gym.spaces.Box(-1.0, 1.0, (self.model.nu,), np.float32)
        self._reset(self.model, self.data)
        self._forward(self.model, self.data)
        width = len(observe(self))
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (width,), np.float64)

    @property
    def dt(self) -> float:
        """Seconds per action."""
        return float(self.model.opt.timestep) * self._frame_skip

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float64], dict[str, Any]]:
        """Put the model into a new starting state."""
        super().reset(seed=seed)
        self._reset(self.model, self.data)
        self._begin(self, self.np_random)
        self._forward(self.model, self.data)
        return np.asarray(self._observe(self)), {}

    def step(
        self, action: NDArray[Any]
    ) -> tuple[NDArray[np.float64], float, bool, bool, dict[str, Any]]:
        """Hold the action (clipped to [-1, 1]) for `frame_skip` physics steps."""
        allowed = np.minimum(np.maximum(action, -1.0), 1.0)
        self.data.ctrl[:] = self._middle + self._half * allowed
        self._step(self.model, self.data, self._frame_skip)
        return np.asarray(self._observe(self)), 0.0, False, False, {}

    def render(self, width: int = 480, height: int = 360) -> Picture:
        """The current state as uint8 RGB, [height, width, 3]."""
        return self.window.picture(Scene(self.model, self.data), width, height)

    def close(self) -> None:
        """Close the window, if pictures were made."""
        self.window.close()


def clipped(action: NDArray[Any]) -> NDArray[np.float32]:
    """The nearest allowed action, [width]."""
    return np.asarray(np.clip(action, -1.0, 1.0), np.float32)
