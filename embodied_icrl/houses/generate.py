"""The house generator: a whole number in, a valid house out, the same on every machine.

The last digit of a seed says what a house is for: 8 validation, 9 test, all others training. So
the splits never share a house, and the next house is one whole number away.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from dataclasses import dataclass
from typing import List, Optional, Sequence, Tuple, TypeVar

import numpy as np

from embodied_icrl.common.config import option, suggest
from embodied_icrl.common.errors import ConfigError
from embodied_icrl.common.seeds import derived_rng
from embodied_icrl.houses.catalogue import CATEGORIES, PLACES
from embodied_icrl.houses.check import check_house
from embodied_icrl.houses.free_space import free_space
from embodied_icrl.houses.furnish import furnish
from embodied_icrl.houses.geometry import house_bounds, item_boxes, join_boxes, wall_boxes
from embodied_icrl.houses.plan import floor_plan
from embodied_icrl.houses.populate import Placer, put_on_floor
from embodied_icrl.houses.room_space import RoomSpace
from embodied_icrl.houses.spec import Furniture, HouseError, HouseObject, HouseSpec, Room

MAX_ROOMS = 12
SPLITS = ("train", "validation", "test")
_PLAN_TRIES = 50
_HOUSE_TRIES = 12


@dataclass(frozen=True)
class HouseConfig:
    """What houses to generate."""

    n_rooms: Optional[int] = option(None, "rooms, 1 to 12; null: drawn between the next two")
    min_rooms: int = option(1, "fewest rooms")
    max_rooms: int = option(6, "most rooms, up to 12")
    n_objects: Optional[int] = option(None, "target objects; null: 4 per room")
    categories: Tuple[str, ...] = option((), "categories of target objects; empty: all 24")
    floor_share: float = option(0.25, "share of objects on the floor, where the category allows it")
    density: float = option(1.0, "probability that a piece of furniture a room asks for is there")

    def __post_init__(self) -> None:
        for name in ("n_rooms", "min_rooms", "max_rooms"):
            value = getattr(self, name)
            if value is not None and not 1 <= value <= MAX_ROOMS:
                raise ConfigError(f"{name}: use 1 to {MAX_ROOMS} rooms, not {value}")
        if self.min_rooms > self.max_rooms:
            raise ConfigError(
                f"min_rooms: {self.min_rooms} is more than max_rooms={self.max_rooms}"
            )
        if self.n_objects is not None and self.n_objects < 1:
            raise ConfigError(f"n_objects: use at least 1, not {self.n_objects}")
        for i, category in enumerate(self.categories):
            if category not in CATEGORIES:
                near = suggest(category, list(CATEGORIES))
                raise ConfigError(f"categories[{i}]: no category {category!r}; {near}")
        for name in ("floor_share", "density"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise ConfigError(f"{name}: use a share from 0 to 1, not {getattr(self, name)}")


class TooManyObjectsError(ConfigError):
    """Objects of one house didn't find a place; in most houses of the same config they may."""


def house_seed(split: str, index: int) -> int:
    """The seed of house number `index` of a split; different numbers give different seeds.

    Raises:
        ConfigError: there is no such split, or the number is negative.
    """
    if index < 0:
        raise ConfigError(f"houses are numbered from 0, not {index}")
    if split == "train":
        return index // 8 * 10 + index % 8
    if split == "validation":
        return index * 10 + 8
    if split == "test":
        return index * 10 + 9
    raise ConfigError(f"no split {split!r} of houses; available: {', '.join(SPLITS)}")


def split_of(seed: int) -> str:
    """The split that a house seed belongs to."""
    return {8: "validation", 9: "test"}.get(seed % 10, "train")


def generate_house(seed: int, config: Optional[HouseConfig] = None) -> HouseSpec:
    """Generate a house; it depends on its arguments only and has passed `check_house`.

    Raises:
        ConfigError: the seed is negative.
        TooManyObjectsError: so many objects don't fit into the rooms of this house.
    """
    config = config or HouseConfig()
    if seed < 0:
        raise ConfigError(f"seed: use a whole number from 0, not {seed}")
    fewest, most = config.min_rooms, config.max_rooms
    size_rng = derived_rng(seed, "house", "size")
    n_rooms = config.n_rooms or int(size_rng.integers(fewest, most + 1))
    n_objects = config.n_objects or 4 * n_rooms
    best, fault = 0, ""
    for attempt in range(_HOUSE_TRIES):
        spec = _attempt(seed, attempt, n_rooms, n_objects, config)
        if spec is None:
            continue
        if len(spec.objects) < n_objects:
            best = max(best, len(spec.objects))
            continue
        try:
            check_house(spec)
        except HouseError as error:
            fault = f" (with all of them, {error})"
        else:
            return spec
    raise TooManyObjectsError(
        f"n_objects: only {best} of {n_objects} objects find a place in house {seed} with "
        f"{n_rooms} rooms{fault}: ask for fewer, for more rooms, or for more categories"
    )


def _attempt(
    seed: int, attempt: int, n_rooms: int, n_objects: int, config: HouseConfig
) -> Optional[HouseSpec]:
    """One draw of a whole house; None if its rooms are not connected."""
    spec = _empty_house(seed, attempt, n_rooms)
    spaces = [RoomSpace(room, spec.doorways, spec.wall_thickness) for room in spec.rooms]
    furniture: List[Furniture] = []
    for space in spaces:
        rng = derived_rng(seed, "house", attempt, "furniture", space.room.name)
        furniture += furnish(rng, space, _outer_sides(spec, space.room), config.density)
    spec = dataclasses.replace(spec, furniture=_named(furniture, "kind"))
    rng = derived_rng(seed, "house", attempt, "objects")
    order = _category_order(rng, config.categories or CATEGORIES, n_objects)
    kinds = {item.kind for item in furniture}
    on_floor, on_furniture = [], []
    for category in order[:n_objects]:
        places, draw = PLACES[category], float(rng.random())
        has_host = not kinds.isdisjoint(places.receptacles)
        floor = bool(places.floors) and (not has_host or draw < config.floor_share)
        item = put_on_floor(rng, category, spaces) if floor else None
        if item is not None:
            on_floor.append(item)
        else:
            on_furniture.append(category)
    on_furniture += order[n_objects:]
    placer = _placer(spec, on_floor)
    if placer is None:
        return None
    for item in on_floor:
        placer.keep(item)  # one that nobody sees is left out; that only frees space
    for category in on_furniture:
        if len(placer.placed) >= n_objects:
            break
        placer.put_on_furniture(rng, category)
    return dataclasses.replace(spec, objects=_named(placer.placed, "category"))


def _placer(spec: HouseSpec, on_floor: Sequence[HouseObject]) -> Optional[Placer]:
    """A placer for the furnished house; None if the agent can't get into every room."""
    space = free_space(dataclasses.replace(spec, objects=tuple(on_floor)))
    region = space.main_region()
    if not all(region[space.inside(room.bounds)].any() for room in spec.rooms):
        return None
    fixed = join_boxes([wall_boxes(spec), *(item_boxes(item) for item in spec.furniture)])
    return Placer(space, region, spec.furniture, fixed)


def _category_order(
    rng: np.random.Generator, categories: Sequence[str], n_objects: int
) -> List[str]:
    """Categories to try, each once before any comes twice, with spare rounds for failures."""
    rounds = -(-n_objects // len(categories)) + 3
    return [categories[i] for _ in range(rounds) for i in rng.permutation(len(categories))]


def _empty_house(seed: int, attempt: int, n_rooms: int) -> HouseSpec:
    rng = derived_rng(seed, "house", attempt, "plan")
    for _ in range(_PLAN_TRIES):
        plan = floor_plan(rng, n_rooms)
        if plan is not None:
            rooms, doorways = plan
            return HouseSpec(name=f"house_{seed}", seed=seed, rooms=rooms, doorways=doorways)
    raise RuntimeError(f"no floor plan with {n_rooms} rooms for seed {seed}")


def _outer_sides(spec: HouseSpec, room: Room) -> List[int]:
    """The sides of a room that are outer walls: 0 at z0, 1 at x0, 2 at z1, 3 at x1."""
    x0, z0, x1, z1 = house_bounds(spec)
    a0, b0, a1, b1 = room.bounds
    return [i for i, same in enumerate((b0 == z0, a0 == x0, b1 == z1, a1 == x1)) if same]


T = TypeVar("T", Furniture, HouseObject)


def _named(items: Sequence[T], attribute: str) -> Tuple[T, ...]:
    """The items with names like chair_0, chair_1."""
    counts: Counter[str] = Counter()
    named = []
    for item in items:
        word = getattr(item, attribute)
        named.append(dataclasses.replace(item, name=f"{word}_{counts[word]}"))
        counts[word] += 1
    return tuple(named)
