"""A user's environment file: a ring of cells with a hidden target, in many guises, with faults."""

from __future__ import annotations

import os
import signal
import sys
import time

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from embodied_icrl.envs.base import RenderState
from embodied_icrl.envs.trial_env import TrialEnvConfig

CELLS = 13
OBSERVATIONS = ("box", "discrete", "image", "dict")
ACTIONS = ("discrete", "multi_discrete", "box")
FAULTS = ("raise", "exit", "kill", "abort", "sys_exit", "hang")


class Ring(gym.Env):
    """Walk to the hidden cell and stay there; -0.1 per step elsewhere, 1 for the target."""

    def __init__(self, observations="dict", actions="discrete", note=None):
        self.kind, self.action_kind = observations, actions
        # Some environments keep what they were given: it must not be changed behind their back.
        self.seen = []
        box = spaces.Box(-1.0, 1.0, (2,), np.float32)
        cell = spaces.Discrete(CELLS, start=3)
        image = spaces.Box(0, 255, (16, 12, 3), np.uint8)
        self.observation_space = {
            "box": box,
            "discrete": cell,
            "image": image,
            "dict": spaces.Dict(
                {"camera": image, "body": spaces.Dict({"cell": cell, "noise": box})}
            ),
        }[observations]
        self.action_space = {
            "discrete": spaces.Discrete(3, start=-1),
            "multi_discrete": spaces.MultiDiscrete([3, 2], start=[-1, 0]),
            "box": box,
        }[actions]

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.target = int(options["task"]["target"])
        self.cell = (self.target + int(self.np_random.integers(5, 9))) % CELLS
        self.best = 1.0 - 0.1 * abs(self._way())
        return self._observe(), {}

    def step(self, action):
        self.seen.append(action)
        move, stay = self._decode(action)
        success = stay and self.cell == self.target
        self.cell = (self.cell + move) % CELLS
        reward = 1.0 if success else -0.1
        info = {"is_success": success, "sparse_reward": float(success)}
        if success:
            info["spl"] = 0.5
        return self._observe(), reward, success, False, info

    def oracle_action(self):
        move = int(np.sign(self._way()))
        return {
            "discrete": move,
            "multi_discrete": np.array([move, int(move == 0)]),
            "box": np.array([move, 1.0 if move == 0 else -1.0]),
        }[self.action_kind]

    def optimal_return(self):
        return self.best

    def render_state(self):
        picture = self._image()
        return RenderState(picture, picture, (self.cell, 0, None), [(self.target, 0, "target")])

    def get_state(self):
        generator = self.np_random.bit_generator.state
        return {"cell": self.cell, "best": self.best, "generator": generator}

    def set_state(self, state):
        self.cell, self.best = state["cell"], state["best"]
        self.np_random.bit_generator.state = state["generator"]

    def _way(self):
        return (self.target - self.cell + CELLS // 2) % CELLS - CELLS // 2

    def _decode(self, action):
        if self.action_kind == "discrete":
            assert type(action) is int
            return action, action == 0
        assert self.action_space.contains(action)
        move, stay = (int(round(float(x))) for x in action)
        return move, move == 0 and stay > 0

    def _image(self):
        picture = np.full((16, 12, 3), 20 * self.cell, np.uint8)
        picture[0, :, 1] = self.np_random.integers(255, size=12)
        return picture

    def _observe(self):
        noise = self.np_random.uniform(-1, 1, 2).astype(np.float32)
        if self.kind == "dict":
            body = {"cell": self.cell + 3, "noise": noise}
            return {"camera": self._image(), "body": body}
        values = {"box": noise, "discrete": np.int64(self.cell + 3)}
        return values[self.kind] if self.kind in values else self._image()


class FaultyRing(Ring):
    """Fails at step 2 of task 3 (or when reset with it, or when built)."""

    def __init__(self, fault, when="step", task=3):
        if when == "init":
            fail(fault)
        super().__init__("box")
        self.fault, self.when, self.faulty_task = fault, when, task

    def reset(self, *, seed=None, options=None):
        self.steps = 0
        self.task_id = options["task"]["id"]
        if self.when == "reset" and self.task_id == self.faulty_task:
            fail(self.fault)
        return super().reset(seed=seed, options=options)

    def step(self, action):
        self.steps += 1
        if self.when == "step" and self.steps == 2 and self.task_id == self.faulty_task:
            fail(self.fault)
        return super().step(action)


def fail(fault):
    if fault == "raise":
        raise RuntimeError("the simulator lost its GPU")
    if fault == "exit":
        os._exit(3)
    if fault == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if fault == "abort":
        os.abort()
    if fault == "sys_exit":
        sys.exit(5)
    if fault == "hang":
        stuck_in_the_simulator()
    if fault == "leave_a_child":
        if os.fork() == 0:
            time.sleep(5)
            os._exit(0)
        os._exit(4)


def stuck_in_the_simulator():
    time.sleep(60)


class Stateless(gym.Env):
    """Has nothing beyond Gymnasium: no state, no oracle, no success."""

    observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float64)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.drift = {**options}["task"]
        return self.np_random.normal(self.drift, 1.0, 1), {}

    def step(self, action):
        return self.np_random.normal(self.drift, 1.0, 1), float(action), False, False, {}


def sample_task(rng, split, index):
    return {"target": rng.integers(CELLS), "id": index}


def sample_drift(rng, split, index, scale=1.0):
    return float(rng.normal()) * scale


def ring_config(**kwargs):
    return TrialEnvConfig(
        make_env="tests.envs.user_envs.Ring",
        make_env_kwargs=kwargs,
        task_sampler="tests.envs.user_envs.sample_task",
        max_episode_steps=8,
    )


def faulty_config(fault, when="step"):
    return TrialEnvConfig(
        make_env="tests.envs.user_envs.FaultyRing",
        make_env_kwargs={"fault": fault, "when": when},
        task_sampler="tests.envs.user_envs.sample_task",
        max_episode_steps=8,
    )


def stateless_config():
    return TrialEnvConfig(
        make_env="tests.envs.user_envs.Stateless",
        task_sampler="tests.envs.user_envs.sample_drift",
        task_sampler_kwargs={"scale": 3.0},
        max_episode_steps=4,
        success="none",
    )
