"""The configuration of object navigation: body, sensors, houses, rules and reward."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from embodied_icrl.common.config import option, suggest
from embodied_icrl.common.errors import ConfigError
from embodied_icrl.envs.object_nav_frame import TrialFrame
from embodied_icrl.envs.object_nav_scenes import SceneSource
from embodied_icrl.houses.catalogue import CATEGORIES
from embodied_icrl.houses.generate import HouseConfig
from embodied_icrl.simulators.base import (
    AgentBody,
    CameraSensor,
    DetectorSensor,
    RaySensor,
    ReferenceCamera,
    Simulator,
)
from embodied_icrl.simulators.mujoco import MujocoConfig

if TYPE_CHECKING:
    from embodied_icrl.envs.object_nav import ObjectNav
    from embodied_icrl.envs.object_nav_frontier import FrontierExplorer

ACTIONS = ("forward", "turn_left", "turn_right", "look_up", "look_down", "stop")

Sensor = CameraSensor | RaySensor | DetectorSensor


class SimulatorConfig(Protocol):
    """What the config dataclass of a simulator backend can do."""

    def build(
        self,
        num_envs: int,
        sensors: Mapping[str, Sensor],
        categories: tuple[str, ...],
        body: AgentBody,
    ) -> Simulator:
        """A simulator of `num_envs` agents with that body and these sensors."""
        ...


@dataclass(frozen=True)
class ObjectNavConfig:
    """Extended object navigation: many episodes in a house, each asks for another category.

    The defaults are the rules of ReLIC's ExtObjNav (arXiv 2410.02751).
    """

    simulator: SimulatorConfig = option(MujocoConfig(), "the backend, by its _target_")
    body: AgentBody = option(AgentBody(), "of the agent")
    sensors: dict[str, Sensor] = option(
        {"head": CameraSensor(width=256, height=256)},
        "name: sensor, each with its _target_; observations are named after them",
    )
    categories: tuple[str, ...] = option(
        (),
        "what the agent can be asked for and its sensors tell apart; empty: those of houses; "
        "may be more than those, so that houses with fewer keep the observations",
    )

    houses: HouseConfig = option(HouseConfig(), "the houses that are generated")
    n_houses: int = option(
        0,
        "task i of the train split is in house i modulo this; 0, and held-out splits: every task "
        "in a new house",
    )
    house_files: tuple[str, ...] = option(
        (), "house files to use instead, in every split: task i is in file i modulo their number"
    )
    scenes: SceneSource | None = option(
        None, "scenes of others to use instead, by their _target_; they need the Habitat backend"
    )
    cached_houses: int = option(64, "houses kept with their goal points per process")

    actions: tuple[str, ...] = option(ACTIONS, f"which of {', '.join(ACTIONS)}, in which order")
    forward_step: float = option(0.25, "of forward, metres")
    turn_angle: float = option(30.0, "of turn_left and turn_right, degrees")
    look_angle: float = option(30.0, "of look_up and look_down, degrees")
    tilt_start: float = option(-22.0, "of the camera at an episode's start, degrees, up positive")
    tilt_lowest: float = option(-70.0, "degrees; looking farther down stops there")
    tilt_highest: float = option(10.0, "degrees; looking farther up stops there")

    horizon: int = option(500, "steps per episode")
    horizon_ends: Literal["terminated", "truncated"] = option(
        "terminated", "how the horizon ends an episode; truncated: it bootstraps from the value"
    )
    min_distance: float = option(1.0, "least walking distance from a start to its goal, metres")
    max_distance: float | None = option(None, "largest one, metres; null: no limit")
    start_points: int = option(256, "places per house where episodes may start")
    start_headings: int | None = option(
        None, "episodes start facing one of so many directions, evenly spread; null: any"
    )

    stop: Literal["action", "automatic"] = option(
        "action",
        "action: the agent must call stop, and a wrong one ends the episode; automatic (easier): "
        "the episode succeeds as soon as stop would, and an action stop only waits",
    )
    success_distance: float = option(
        2.0, "largest horizontal distance from the camera to the middle of an instance, metres"
    )
    min_pixels: int = option(10, "pixels of that instance that the reference camera must see")
    reference_camera: ReferenceCamera = option(ReferenceCamera(), "decides what is seen")

    success_reward: float = option(2.0, "paid on success")
    distance_reward: float = option(1.0, "paid per metre of walking distance to the goal saved")
    step_cost: float = option(0.001, "taken off the reward at every step")
    gps_range: float = option(10.0, "metres that the gps observation calls 1")
    frame: TrialFrame | None = option(
        None, "further observations in the frame of the trial's first pose; null: none"
    )

    @property
    def task_categories(self) -> tuple[str, ...]:
        """What the agent can be asked for, in the order of the target observation."""
        return self.categories or self.houses.categories or CATEGORIES

    def __post_init__(self) -> None:
        self._check_numbers()
        self._check_actions()
        self._check_categories()
        if self.n_houses < 0 or self.cached_houses < 1:
            raise ConfigError("n_houses must be 0 or more, and cached_houses at least 1")
        if self.n_houses and (self.house_files or self.scenes):
            key = "house_files" if self.house_files else "scenes"
            raise ConfigError(f"{key} says how many houses there are: leave n_houses at 0")
        if self.scenes is not None:
            self._check_scenes()
        if not self.tilt_lowest <= self.tilt_start <= self.tilt_highest:
            raise ConfigError(
                f"tilt_start={self.tilt_start} must lie between tilt_lowest={self.tilt_lowest} "
                f"and tilt_highest={self.tilt_highest}"
            )
        if self.start_headings is not None and self.start_headings < 1:
            raise ConfigError(f"start_headings={self.start_headings} must be at least 1 or null")
        if self.max_distance is not None and self.max_distance <= self.min_distance:
            raise ConfigError(
                f"max_distance={self.max_distance} must be more than "
                f"min_distance={self.min_distance}"
            )

    def _check_numbers(self) -> None:
        positive = ("forward_step", "turn_angle", "look_angle", "success_distance", "gps_range")
        for key in (*positive, "min_distance"):
            if getattr(self, key) <= 0:
                raise ConfigError(f"{key}={getattr(self, key)} must be more than 0")
        for key in ("horizon", "start_points", "min_pixels"):
            if getattr(self, key) < 1:
                raise ConfigError(f"{key}={getattr(self, key)} must be at least 1")
        for key in ("success_reward", "distance_reward", "step_cost"):
            if getattr(self, key) < 0:
                raise ConfigError(f"{key}={getattr(self, key)} must be 0 or more")

    def _check_actions(self) -> None:
        for name in self.actions:
            if name not in ACTIONS:
                raise ConfigError(f"no action {name!r}; {suggest(name, ACTIONS)}")
        if len(set(self.actions)) < len(self.actions):
            raise ConfigError(f"actions: {', '.join(self.actions)} names one twice")
        if "forward" not in self.actions or not {"turn_left", "turn_right"} & set(self.actions):
            raise ConfigError("actions: an agent needs forward and a turn to get anywhere")
        if self.stop == "action" and "stop" not in self.actions:
            raise ConfigError("actions must have stop, or set stop=automatic")

    def _check_scenes(self) -> None:
        if self.house_files:
            raise ConfigError("give house_files or scenes, not both")
        if isinstance(self.simulator, MujocoConfig):
            raise ConfigError(
                "scenes needs the Habitat backend: set simulator._target_="
                "embodied_icrl.simulators.habitat.HabitatConfig, or use generated houses"
            )
        if not self.categories:
            raise ConfigError("scenes needs categories: name what the agent is asked for")

    def _check_categories(self) -> None:
        if self.scenes is not None:
            return  # whatever the scenes' objects are called
        for category in self.categories:
            if category not in CATEGORIES:
                raise ConfigError(f"no category {category!r}; {suggest(category, CATEGORIES)}")
        if self.categories and not self.house_files:
            made = self.houses.categories or CATEGORIES
            strange = [name for name in made if name not in self.categories]
            if strange:
                raise ConfigError(
                    f"houses.categories: {strange[0]!r} is not one of categories; set both"
                )

    def build(
        self,
        num_envs: int,
        *,
        split: str = "train",
        seed: int = 0,
        first_index: int = 0,
        total_envs: int | None = None,
    ) -> ObjectNav:
        """The environments of a split; see `TrialVectorEnv` for the arguments."""
        from embodied_icrl.envs.object_nav import ObjectNav

        return ObjectNav(
            self, num_envs, split=split, seed=seed, first_index=first_index, total_envs=total_envs
        )

    def baselines(self, num_envs: int) -> dict[str, FrontierExplorer]:
        """Players that an evaluation compares with, made for `num_envs` environments.

        Frontier exploration that begins anew in each episode, and one that keeps its map over the
        trial; none where there is no ray sensor, which they see by.
        """
        from embodied_icrl.envs.object_nav_frontier import FrontierExplorer

        if not any(isinstance(sensor, RaySensor) for sensor in self.sensors.values()):
            return {}
        return {
            "frontier": FrontierExplorer(self, num_envs, "episode"),
            "frontier_map": FrontierExplorer(self, num_envs, "trial"),
        }
