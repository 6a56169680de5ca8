"""Which house a task is in, and what every house brings: goals, and places to start from."""

from __future__ import annotations

from collections import OrderedDict

import numpy as np

from embodied_icrl.common.errors import ConfigError
from embodied_icrl.common.seeds import derived_rng, derived_seed
from embodied_icrl.envs.object_nav_config import ObjectNavConfig
from embodied_icrl.houses.generate import TooManyObjectsError, generate_house, house_seed
from embodied_icrl.houses.json_io import load_house
from embodied_icrl.houses.spec import HouseSpec
from embodied_icrl.simulators.base import Simulator, goal_points
from embodied_icrl.simulators.scenes import HabitatScene

# A house, or the scene of another dataset.
Place = HouseSpec | HabitatScene

_TRIES = 20
# Of houses without place for their objects: a config that none has place for is refused soon.
_FULL_TRIES = 5
_TRY_STRIDE = 10**12


class House:
    """A house with its goals, and the places where an episode for a category may start.

    Attributes:
        spec: the house, or the scene of another dataset.
        instance_categories: int64 `[instance]`, -1 where the task doesn't ask for it.
        centres: float64 `[instance, 3]`, metres.
        goals: for each category the points `[point, 3]` from which an instance is within reach and
            in sight, maybe none.
        goal_instances: for each category the instances that these points belong to, int64
            `[point]`.
        starts: float64 `[start, 3]`.
    """

    def __init__(
        self, spec: Place, simulator: Simulator, row: int, config: ObjectNavConfig
    ) -> None:
        """Look around in the house that `simulator` has loaded at `row`."""
        self.spec = spec
        self.min_distance = config.min_distance
        self.max_distance = np.inf if config.max_distance is None else config.max_distance
        instances = simulator.instances(row)
        self.instance_categories = instances.categories
        self.centres = instances.centres
        self.goals: list[np.ndarray] = []
        self.goal_instances: list[np.ndarray] = []
        # Of the camera to the object, and the camera is ahead of an agent that faces it.
        reach = config.success_distance + config.body.camera_ahead
        for category in range(len(config.task_categories)):
            self._add_goals(category, simulator, row, reach)
        number = spec.seed if isinstance(spec, HouseSpec) else None
        rng = derived_rng(0, "starts", spec.name, 0 if number is None else number)
        self.starts = simulator.random_points(row, rng, config.start_points)
        self._start_indices: dict[int, np.ndarray] = {}

    def _add_goals(self, category: int, simulator: Simulator, row: int, reach: float) -> None:
        instances = self.instances_of(category)
        points = [goal_points(simulator, row, [int(i)], reach) for i in instances]
        self.goals.append(np.concatenate([np.empty((0, 3)), *points]))
        self.goal_instances.append(np.repeat(instances, [len(found) for found in points]))

    def instances_of(self, category: int) -> np.ndarray:
        """Numbers of the instances of a category."""
        return np.flatnonzero(self.instance_categories == category)

    def start_indices(self, category: int, simulator: Simulator, row: int) -> np.ndarray:
        """The starts that are neither too near to a category's goal nor too far, maybe none.

        Args:
            simulator: has this house, with its goals set, at `row`.
        """
        known = self._start_indices.get(category)
        if known is None:
            known = np.empty(0, dtype=np.int64)
            if len(self.goals[category]):
                distance = simulator.distances_from(row, category, self.starts)
                fits = (distance >= self.min_distance) & (distance <= self.max_distance)
                known = np.flatnonzero(fits & np.isfinite(distance))
            self._start_indices[category] = known
        return known

    def is_usable(self, simulator: Simulator, row: int) -> bool:
        """Whether the agent can be asked for anything here."""
        return any(self.start_indices(c, simulator, row).size for c in range(len(self.goals)))


class HouseSource:
    """Puts environments of a simulator into the houses of their tasks.

    A generated house, or a scene of a dataset, in which no start is as far from any goal as the
    config asks for is passed over: the task takes another one. So is a generated house that has no
    place for all its objects.

    Raises:
        HouseError, AssetError: a house file or a dataset can't be used.
        ConfigError: the split has no scenes.
    """

    def __init__(self, config: ObjectNavConfig, split: str) -> None:
        self.config = config
        self.split = split
        self._files: list[Place] = [load_house(p) for p in config.house_files]
        if config.scenes is not None:
            self._files = list(config.scenes.scenes_of(split))
        self._cache: OrderedDict[int, House] = OrderedDict()

    def enter(self, simulator: Simulator, row: int, task_id: int, seed: int) -> House:
        """Load the house of a task into `row` and set its goals.

        Raises:
            ConfigError: no house has a start that fits the config's distances, or a place for its
                objects.
        """
        full = 0
        first = self._number(task_id, seed)
        for attempt in range(1 if self.config.house_files else _TRIES):
            if self.config.scenes is not None:
                number = (first + attempt) % len(self._files)
            else:
                number = first + attempt * _TRY_STRIDE
            try:
                house = self._enter(simulator, row, number)
            except TooManyObjectsError:
                full += 1
                if full == _FULL_TRIES:
                    raise
                continue
            if house.is_usable(simulator, row):
                return house
        where = f"{_TRIES} generated houses"
        if self._files:
            where = f"scene {self._files[first].name}"
        if self.config.house_files:
            where = f"house file {self.config.house_files[first]}"
        raise ConfigError(
            f"{where}: no place is at least min_distance={self.config.min_distance:g} m away from "
            f"an object of {', '.join(self.config.task_categories)}; lower min_distance, raise "
            "max_distance, or use larger houses"
        )

    def _number(self, task_id: int, seed: int) -> int:
        """The number of a task's house within its split."""
        if self._files:
            return task_id % len(self._files)
        if self.config.n_houses and self.split == "train":
            return task_id % self.config.n_houses
        return derived_seed(seed, "houses", self.split) % _TRY_STRIDE // 2 + task_id

    def _enter(self, simulator: Simulator, row: int, number: int) -> House:
        house = self._cache.get(number)
        if house is None:
            spec = self._spec(number)
            simulator.load(row, spec)
            house = House(spec, simulator, row, self.config)
            self._cache[number] = house
            if len(self._cache) > self.config.cached_houses:
                self._cache.popitem(last=False)
        else:
            self._cache.move_to_end(number)
            simulator.load(row, house.spec)
        simulator.set_goals(row, house.goals)
        return house

    def _spec(self, number: int) -> Place:
        if self._files:
            return self._files[number]
        return generate_house(house_seed(self.split, number), self.config.houses)
