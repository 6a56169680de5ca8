"""The declaration of a manipulation task: everything that the reward search knows about it."""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from embodied_icrl.common.config import option
from embodied_icrl.common.errors import ConfigError
from embodied_icrl.manipulation.fields import Field
from embodied_icrl.manipulation.render import Scene, View

Env = gym.Env[Any, Any]


@dataclass(frozen=True)
class Budget:
    """What one training of a policy may spend.

    Attributes:
        env_steps: environment steps, those of all copies together.
        algorithm: the inner reinforcement learning algorithm.
        n_envs: copies of the environment that are stepped side by side in one process.
        hyperparameters: keyword arguments of the algorithm's constructor in stable-baselines3
            (sb3-contrib for tqc); plain values only, so that they can be written as JSON.

    Raises:
        ConfigError: a number that isn't positive.
    """

    env_steps: int
    algorithm: Literal["ppo", "sac", "td3", "tqc"]
    n_envs: int = 8
    hyperparameters: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        if self.env_steps < 1 or self.n_envs < 1:
            raise ConfigError(f"{self.env_steps} steps in {self.n_envs} environments: no budget")


@dataclass(frozen=True)
class Task(abc.ABC):
    """A task, and at once its configuration: a frozen dataclass whose options are its settings.

    Everything here is cheap until `make_env` builds the simulator, so that tasks can be listed
    where their packages aren't installed.

    Attributes:
        name: one word.
        description: the one sentence that a writer of rewards is told.
        fields: what a reward may read.
        human_reward, sparse_reward: source of two baselines, in the form of every candidate:
            `compute_reward(state) -> (total, components)`.
        quick, full: budgets of a training that compares candidates, and of a final one.
        hold_steps: default fitness looks at so many last steps of an episode.
        view: where videos are filmed from.
    """

    name: ClassVar[str]
    description: ClassVar[str]
    fields: ClassVar[tuple[Field, ...]]
    human_reward: ClassVar[str]
    sparse_reward: ClassVar[str]
    quick: ClassVar[Budget]
    full: ClassVar[Budget]
    hold_steps: ClassVar[int] = 10
    view: ClassVar[View] = View((0.0, 0.0, 0.0), 1.5)

    horizon: int = option(50, "steps per episode, at most")

    def __post_init__(self) -> None:
        if self.horizon < 1:
            raise ConfigError(f"horizon={self.horizon} must be at least 1")

    @abc.abstractmethod
    def make_env(self) -> Env:
        """The simulator as a Gymnasium environment; its own reward is never used.

        An episode ends after `horizon` steps, or before where the environment says `terminated` or
        `truncated`; make it without its own time limit where that is shorter.

        Raises:
            MissingDependencyError: a package that it needs isn't installed.
        """

    @abc.abstractmethod
    def read_state(self, env: Env, observation: Any, action: NDArray[Any]) -> Mapping[str, Any]:
        """The declared fields by name, after a step with `action` that gave `observation`."""

    @abc.abstractmethod
    def success(self, env: Env, observation: Any) -> bool:
        """Whether the goal is met at this moment, from the simulator alone."""

    def measure(self, env: Env, observation: Any) -> float:
        """The truth about one moment that fitness is made of; here: 1 for success, else 0."""
        return float(self.success(env, observation))

    def fitness(self, measures: Sequence[float]) -> float:
        """How good an episode was, from `measure` after each of its steps; no reward is involved.

        In an episode that the environment terminated, the last measure stands for the steps that
        are missing to `horizon` too: what was reached, or lost, at its end holds from there on.
        One that was truncated, by `horizon` or by the environment's own time limit, has the
        measures of its steps alone.

        Here: the mean over the last `hold_steps` steps, so that passing through the goal is
        worth little and staying there is worth 1.
        """
        return float(np.mean(measures[-self.hold_steps :]))

    def policy_observation(self, observation: Any) -> Any:
        """What a policy sees of an observation of the environment; a function of it alone.

        Networks need components of the order of 1: override it where the environment's own are
        raw metres, and return an array [width]. Scale by constants: a policy is a file of weights,
        which must mean the same wherever it acts. `read_state`, `success` and `expert_action` are
        given the environment's observation in any case.

        Here: the observation as it is; `TaskEnv` flattens it if it has parts.
        """
        return observation

    def expert_action(self, env: Env, observation: Any) -> NDArray[Any] | None:
        """What a scripted policy does; None where there is none for the task."""
        return None

    def scene(self, env: Env, observation: Any) -> Scene:
        """What a picture of this moment shows; here: the environment's own MuJoCo model.

        Raises:
            ConfigError: the environment has none.
        """
        simulator: Any = env.unwrapped
        if not hasattr(simulator, "model") or not hasattr(simulator, "data"):
            raise ConfigError(
                f"task {self.name}: its environment has no MuJoCo `model` and `data`; "
                "override `scene` to film it"
            )
        return Scene(simulator.model, simulator.data)
