"""What a house is: plain data, in metres and degrees, in the frame of `frames`.

Rooms are rectangles that meet at common edges. Walls are not listed: every room has a wall slab of
`wall_thickness` along the inside of each edge, with the openings that the doorways cut.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional, Tuple, Union

from embodied_icrl.common.config import option
from embodied_icrl.common.errors import AssetError

FORMAT = 1
ROOM_KINDS = ("living", "kitchen", "bedroom", "bath", "dining", "study", "corridor")
# The agent: Fetch's base, as in arXiv 2410.02751.
AGENT_RADIUS = 0.3
AGENT_HEIGHT = 1.5
CAMERA_HEIGHT = 1.2
CAMERA_AHEAD = 0.25

Bounds = Tuple[float, float, float, float]
Position = Tuple[float, float, float]


class HouseError(AssetError):
    """A house file or specification is wrong; the message names the field by its dotted path."""


@dataclass(frozen=True)
class Room:
    """A rectangle of floor with four walls."""

    name: str = option(doc="unique, like bedroom_1")
    kind: str = option(doc="one of ROOM_KINDS")
    bounds: Bounds = option(doc="x0, z0, x1, z1 of its edges, metres")
    floor: str = option("oak", "colour of the floor: a name of materials.COLOURS or #rrggbb")
    wall: str = option("white", "colour of the walls, likewise")


@dataclass(frozen=True)
class Doorway:
    """An opening in the common edge of two rooms."""

    rooms: Tuple[str, str] = option(doc="names of the two rooms")
    position: Tuple[float, float] = option(doc="x, z of its middle, on the common edge, metres")
    width: float = option(0.9, "metres")
    height: float = option(2.1, "metres")


@dataclass(frozen=True)
class Furniture:
    """A piece of furniture."""

    name: str = option(doc="unique in the house, like chair_3")
    kind: str = option(doc="one of FURNITURE_KINDS")
    model: str = option(doc="a mesh in assets/objects, or a path to a .glb file")
    room: str = option(doc="name of the room it stands in")
    position: Position = option(doc="x, y, z of the middle of its underside, metres")
    yaw: float = option(0.0, "degrees about y, counter-clockwise from above; 0: front towards -z")
    tint: Optional[str] = option(None, "colour of the material named tint; null: the mesh's own")


@dataclass(frozen=True)
class HouseObject:
    """An object that the agent may be asked for."""

    name: str = option(doc="unique in the house, like mug_0")
    category: str = option(doc="one of CATEGORIES")
    model: str = option(doc="a mesh in assets/objects, or a path to a .glb file")
    room: str = option(doc="name of the room it lies in")
    position: Position = option(doc="x, y, z of the middle of its underside, metres")
    yaw: float = option(0.0, "degrees about y")
    receptacle: Optional[str] = option(None, "name of the furniture it lies on; null: the floor")


Item = Union[Furniture, HouseObject]


@dataclass(frozen=True)
class HouseSpec:
    """A house. `seed` is that of the generator, None for a house of other origin."""

    format: int = option(FORMAT, "version of this file format")
    name: str = option("house", "names exported files: letters, digits, spaces, _ . and -")
    seed: Optional[int] = option(None, "the generator's seed")
    wall_height: float = option(2.5, "metres")
    wall_thickness: float = option(0.05, "of one room's slab; between rooms there are two, metres")
    rooms: Tuple[Room, ...] = option((), "rooms")
    doorways: Tuple[Doorway, ...] = option((), "doorways")
    furniture: Tuple[Furniture, ...] = option((), "furniture")
    objects: Tuple[HouseObject, ...] = option((), "target objects")

    @property
    def items(self) -> Tuple[Item, ...]:
        """The furniture, then the objects."""
        return (*self.furniture, *self.objects)

    def room(self, name: str) -> Room:
        """The room of that name; KeyError if there is none."""
        for room in self.rooms:
            if room.name == name:
                return room
        raise KeyError(name)
