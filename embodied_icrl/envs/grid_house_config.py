"""The configuration of GridHouse, checked so that every task it asks for exists."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from embodied_icrl.common.config import option
from embodied_icrl.common.errors import ConfigError
from embodied_icrl.envs.grid_layout import room_capacity
from embodied_icrl.envs.object_kinds import KINDS

if TYPE_CHECKING:
    from embodied_icrl.envs.grid_house import GridHouse


@dataclass(frozen=True)
class GridHouseConfig:
    """GridHouse: find an object of the goal's type in a house of grid cells.

    Observation spaces depend on `size`, `view_size` and `max_types` only: configurations that agree
    in these can share weights, whatever their rooms and types.
    """

    size: int = option(9, "side of the square floor without the outer wall, cells")
    n_rooms: int | tuple[int, ...] = option(
        2, "rooms per house; a list draws one of its numbers for each task"
    )
    min_room: int = option(2, "smallest side of a room, cells")
    n_types: int = option(4, "object types in a house")
    max_types: int = option(5, "object types that observations have places for, at least n_types")
    instances: int = option(1, "objects of each type")
    view_size: int = option(5, "side of the square view around the agent, cells, odd")
    min_distance: int = option(3, "fewest moves between a start and the nearest goal")
    horizon: int = option(40, "steps per episode")
    step_cost: float = option(0.01, "taken off the reward at every step")

    @property
    def room_counts(self) -> tuple[int, ...]:
        """The numbers of rooms that a task may have."""
        return (self.n_rooms,) if isinstance(self.n_rooms, int) else tuple(self.n_rooms)

    def __post_init__(self) -> None:
        for key in ("size", "min_room", "n_types", "instances", "min_distance", "horizon"):
            if getattr(self, key) < 1:
                raise ConfigError(f"{key}={getattr(self, key)} must be at least 1")
        if self.step_cost < 0:
            raise ConfigError(f"step_cost={self.step_cost} is a cost: give it as 0 or more")
        if self.view_size < 3 or self.view_size % 2 == 0:
            raise ConfigError(f"view_size={self.view_size} must be an odd number from 3 up")
        if not self.n_types <= self.max_types <= len(KINDS):
            raise ConfigError(
                f"max_types={self.max_types} must lie between n_types={self.n_types} "
                f"and {len(KINDS)}"
            )
        self._check_rooms()
        self._check_places()

    def _check_rooms(self) -> None:
        capacity = room_capacity(self.size, self.size, self.min_room)
        if not self.room_counts:
            raise ConfigError("n_rooms is an empty list: give at least one number of rooms")
        for count in self.room_counts:
            if not 1 <= count <= capacity:
                raise ConfigError(
                    f"n_rooms={count} is out of range: a floor of size={self.size} has 1 to "
                    f"{capacity} rooms of min_room={self.min_room}"
                )

    def _check_places(self) -> None:
        """Every object needs a cell, and every goal a start that is far enough away."""
        # A wall with its doorway takes at most one line of cells that can't hold objects.
        floor = self.size**2 - (max(self.room_counts) - 1) * self.size
        objects = self.n_types * self.instances
        if objects > floor:
            raise ConfigError(
                f"{objects} objects (n_types * instances) may not fit into a house with "
                f"{floor} free cells; raise size"
            )
        # From any cell, one corner of the floor is at least size - 1 moves away.
        corner_is_far = self.instances == 1 and self.min_distance <= self.size - 1
        reach = self.min_distance - 1
        near = self.instances * (2 * reach * (reach + 1) + 1)
        if not corner_is_far and near >= floor:
            raise ConfigError(
                f"min_distance={self.min_distance} may leave no start that far from the goal; "
                "lower it or instances, or raise size"
            )

    def build(
        self,
        num_envs: int,
        *,
        split: str = "train",
        seed: int = 0,
        first_index: int = 0,
        total_envs: int | None = None,
    ) -> GridHouse:
        """The environments of a split; see `TrialVectorEnv` for the arguments."""
        from embodied_icrl.envs.grid_house import GridHouse

        return GridHouse(
            self, num_envs, split=split, seed=seed, first_index=first_index, total_envs=total_envs
        )
