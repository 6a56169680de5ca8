"""Is a house valid? Names, shapes, room to walk, nothing inside another, every object in sight."""

from __future__ import annotations

import re
from typing import Dict, Sequence, Union

import numpy as np

from embodied_icrl.common.config import suggest
from embodied_icrl.houses.catalogue import CATEGORIES
from embodied_icrl.houses.free_space import FreeSpace, free_space
from embodied_icrl.houses.furniture_models import FURNITURE_KINDS
from embodied_icrl.houses.geometry import (
    REST,
    Boxes,
    item_boxes,
    join_boxes,
    overlaps,
    rests_on,
    wall_boxes,
)
from embodied_icrl.houses.materials import rgb
from embodied_icrl.houses.models import load_model, model_extent
from embodied_icrl.houses.plan import common_edge
from embodied_icrl.houses.spec import (
    AGENT_HEIGHT,
    AGENT_RADIUS,
    ROOM_KINDS,
    Furniture,
    HouseError,
    HouseObject,
    HouseSpec,
    Item,
)
from embodied_icrl.houses.visibility import views_of

SMALLEST_ROOM = 1.0
# Exported files and folders are called like the house.
_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 _.-]{0,99}")


def check_house(spec: HouseSpec) -> None:
    """Raise if a house is not valid.

    Valid: every name is known and unique, meshes exist, rooms don't overlap, nothing is inside
    anything else, every object rests on something, the agent (a cylinder of radius 0.3 m) gets from
    every room to every other, and sees every object from within 2 m somewhere on its way.

    Raises:
        HouseError: the first thing that is wrong; the message starts with the field's dotted path.
    """
    _check_names(spec)
    _check_rooms(spec)
    _check_doorways(spec)
    _check_materials_and_meshes(spec)
    furniture = [item_boxes(item) for item in spec.furniture]
    objects = [item_boxes(item) for item in spec.objects]
    walls = wall_boxes(spec)
    _check_inside(spec, "furniture", spec.furniture, furniture)
    _check_inside(spec, "objects", spec.objects, objects)
    _check_overlaps(spec, walls, furniture, objects)
    _check_rest(spec, furniture)
    _check_reach(spec, walls, furniture, objects)


def _check_names(spec: HouseSpec) -> None:
    if not _FILE_NAME.fullmatch(spec.name):
        raise HouseError(
            f"name: exported files can't be called {spec.name!r}: use 1 to 100 letters (a-z, A-Z), "
            "digits, spaces, _ . and -, first a letter or a digit"
        )
    if not spec.rooms:
        raise HouseError("rooms: a house needs at least one room")
    rooms = _unique("rooms", [room.name for room in spec.rooms])
    furniture = _unique("furniture", [item.name for item in spec.furniture])
    _unique("objects", [item.name for item in spec.objects])
    for i, room in enumerate(spec.rooms):
        _known(f"rooms[{i}].kind", room.kind, ROOM_KINDS)
    for i, door in enumerate(spec.doorways):
        for j in range(2):
            _known(f"doorways[{i}].rooms[{j}]", door.rooms[j], rooms)
    for i, item in enumerate(spec.furniture):
        _known(f"furniture[{i}].kind", item.kind, FURNITURE_KINDS)
        _known(f"furniture[{i}].room", item.room, rooms)
    for i, thing in enumerate(spec.objects):
        _known(f"objects[{i}].category", thing.category, CATEGORIES)
        _known(f"objects[{i}].room", thing.room, rooms)
        if thing.receptacle is not None:
            _known(f"objects[{i}].receptacle", thing.receptacle, furniture)


def _unique(path: str, names: Sequence[str]) -> Dict[str, int]:
    """The positions of names, none of which may come twice."""
    positions: Dict[str, int] = {}
    for i, name in enumerate(names):
        if not name:
            raise HouseError(f"{path}[{i}].name: empty")
        if name in positions:
            raise HouseError(f"{path}[{i}].name: {name!r} is also {path}[{positions[name]}]")
        positions[name] = i
    return positions


def _known(path: str, value: str, names: Union[Sequence[str], Dict[str, int]]) -> None:
    if value not in names:
        raise HouseError(f"{path}: unknown {value!r}; {suggest(value, list(names))}")


def _check_rooms(spec: HouseSpec) -> None:
    for name, least in (("wall_height", AGENT_HEIGHT), ("wall_thickness", 0.01)):
        if getattr(spec, name) < least:
            raise HouseError(f"{name}: use at least {least} m, not {getattr(spec, name)}")
    for i, room in enumerate(spec.rooms):
        x0, z0, x1, z1 = room.bounds
        if min(x1 - x0, z1 - z0) < SMALLEST_ROOM:
            raise HouseError(
                f"rooms[{i}].bounds: x0, z0, x1, z1 must be at least {SMALLEST_ROOM} m apart, "
                f"got {list(room.bounds)}"
            )
        for j, other in enumerate(spec.rooms[:i]):
            a0, b0, a1, b1 = other.bounds
            if min(x1, a1) - max(x0, a0) > 1e-6 and min(z1, b1) - max(z0, b0) > 1e-6:
                raise HouseError(f"rooms[{i}].bounds: {room.name!r} overlaps rooms[{j}]")


def _check_doorways(spec: HouseSpec) -> None:
    narrowest = 2 * AGENT_RADIUS + 0.15
    for i, door in enumerate(spec.doorways):
        if door.width < narrowest:
            raise HouseError(
                f"doorways[{i}].width: the agent needs {narrowest:.2f} m, not {door.width}"
            )
        if not AGENT_HEIGHT < door.height <= spec.wall_height:
            raise HouseError(
                f"doorways[{i}].height: use more than {AGENT_HEIGHT} m and at most wall_height, "
                f"{spec.wall_height} m, not {door.height}"
            )
        if door.rooms[0] == door.rooms[1]:
            raise HouseError(f"doorways[{i}].rooms: {door.rooms[0]!r} twice; name two rooms")
        edge = common_edge(spec.room(door.rooms[0]).bounds, spec.room(door.rooms[1]).bounds)
        if edge is None:
            raise HouseError(
                f"doorways[{i}].rooms: {door.rooms[0]!r} and {door.rooms[1]!r} have no common edge"
            )
        along_x, coordinate, start, end = edge
        along, across = door.position if along_x else door.position[::-1]
        margin = door.width / 2 + spec.wall_thickness
        if abs(across - coordinate) > 1e-3 or not start + margin <= along <= end - margin:
            raise HouseError(
                f"doorways[{i}].position: must lie on {'z' if along_x else 'x'} = {coordinate:g} "
                f"with {'x' if along_x else 'z'} from {start + margin:g} to {end - margin:g}, "
                f"got {list(door.position)}"
            )


def _check_materials_and_meshes(spec: HouseSpec) -> None:
    for i, room in enumerate(spec.rooms):
        _check_colour(f"rooms[{i}].floor", room.floor)
        _check_colour(f"rooms[{i}].wall", room.wall)
    for i, item in enumerate(spec.items):
        count = len(spec.furniture)
        path = f"furniture[{i}]" if i < count else f"objects[{i - count}]"
        if isinstance(item, Furniture) and item.tint is not None:
            _check_colour(f"{path}.tint", item.tint)
        try:
            load_model(item.model)
        except HouseError as error:
            raise HouseError(f"{path}.model: {error}") from error


def _check_colour(path: str, colour: str) -> None:
    try:
        rgb(colour)
    except ValueError as error:
        raise HouseError(f"{path}: {error}") from error


def _check_inside(
    spec: HouseSpec, path: str, items: Sequence[Item], boxes: Sequence[Boxes]
) -> None:
    """Everything lies between the walls of its room."""
    t = spec.wall_thickness - 2e-3
    for i, (item, own) in enumerate(zip(items, boxes)):
        x0, z0, x1, z1 = spec.room(item.room).bounds
        low, high = (own.centre - own.reach).min(axis=0), (own.centre + own.reach).max(axis=0)
        if low[0] < x0 + t or low[2] < z0 + t or high[0] > x1 - t or high[2] > z1 - t:
            raise HouseError(
                f"{path}[{i}].position: {item.name!r} does not lie between the walls of "
                f"{item.room!r}"
            )
        if low[1] < -REST:
            raise HouseError(f"{path}[{i}].position: {item.name!r} reaches below the floor")


def _check_overlaps(
    spec: HouseSpec, walls: Boxes, furniture: Sequence[Boxes], objects: Sequence[Boxes]
) -> None:
    """Nothing is inside anything else; rugs may lie under furniture and objects."""
    solid = [i for i, item in enumerate(spec.furniture) if item.kind != "rug"]
    rugs = [i for i, item in enumerate(spec.furniture) if item.kind == "rug"]
    placed = [("furniture", i, furniture[i]) for i in solid]
    placed += [("objects", i, boxes) for i, boxes in enumerate(objects)]
    groups = [placed, [("furniture", i, furniture[i]) for i in rugs]]
    for group in groups:
        owner = np.repeat(np.arange(len(group)), [len(boxes) for _, _, boxes in group])
        everything = join_boxes([boxes for _, _, boxes in group])
        hits = overlaps(everything, everything) & (owner[:, None] < owner[None])
        if hits.any():
            first, second = (owner[k[0]] for k in np.nonzero(hits))
            raise HouseError(
                f"{group[second][0]}[{group[second][1]}].position: {_name(spec, group[second])!r} "
                f"is inside {_name(spec, group[first])!r} ({group[first][0]}[{group[first][1]}])"
            )
    for path, i, boxes in placed:
        if overlaps(boxes, walls).any():
            name = _name(spec, (path, i, boxes))
            raise HouseError(f"{path}[{i}].position: {name!r} is inside a wall")


def _name(spec: HouseSpec, entry: tuple[str, int, Boxes]) -> str:
    items: Sequence[Item] = spec.furniture if entry[0] == "furniture" else spec.objects
    return items[entry[1]].name


def _check_rest(spec: HouseSpec, furniture: Sequence[Boxes]) -> None:
    """Objects lie on the floor or on a box of their receptacle."""
    index = {item.name: i for i, item in enumerate(spec.furniture)}
    for i, item in enumerate(spec.objects):
        y = item.position[1]
        if item.receptacle is None:
            if abs(y) > REST:
                raise HouseError(
                    f"objects[{i}].position: {item.name!r} is at y = {y:g} m, not on the floor; "
                    "name its receptacle or put it at y = 0"
                )
            continue
        own = furniture[index[item.receptacle]]
        if not rests_on(item, own, REST):
            raise HouseError(
                f"objects[{i}].position: {item.name!r} does not lie on {item.receptacle!r}, which "
                f"has no surface at y = {y:g} m there"
            )


def _check_reach(
    spec: HouseSpec, walls: Boxes, furniture: Sequence[Boxes], objects: Sequence[Boxes]
) -> None:
    """The agent gets into every room and sees every object."""
    space = free_space(spec)
    region = space.main_region()
    for i, room in enumerate(spec.rooms):
        if not region[space.inside(room.bounds)].any():
            raise HouseError(
                f"rooms[{i}]: the agent (radius {AGENT_RADIUS} m) can't get into {room.name!r} "
                "from the rest of the house; clear its doorways or add one"
            )
    fixed = [walls, *furniture]
    for i, item in enumerate(spec.objects):
        extent = model_extent(item.model)
        around = join_boxes([*fixed, *objects[:i], *objects[i + 1 :]])
        if not _in_sight(item, extent[1] - extent[0], around, space, region):
            raise HouseError(
                f"objects[{i}].position: {item.name!r} can't be reached: from nowhere that the "
                "agent gets to is it in sight within 2 m"
            )


def _in_sight(
    item: HouseObject, size: np.ndarray, around: Boxes, space: FreeSpace, region: np.ndarray
) -> bool:
    """Whether an object is in sight from somewhere: from a few places, else from any."""
    position = np.array(item.position)
    return any(len(views_of(space, region, position, size, around, n)) for n in (36, 100_000))
