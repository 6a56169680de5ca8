"""Target objects: categories onto furniture and floor, each where the agent can see it."""

from __future__ import annotations

from typing import Dict, List, Optional, Sequence, Tuple

import numpy as np

from embodied_icrl.houses.catalogue import PLACES
from embodied_icrl.houses.free_space import FreeSpace
from embodied_icrl.houses.furniture_models import FURNITURE_MODELS, Surface
from embodied_icrl.houses.geometry import REST, Boxes, item_boxes, join_boxes, overlaps, rests_on
from embodied_icrl.houses.models import model_extent
from embodied_icrl.houses.room_space import RoomSpace, footprint, turned
from embodied_icrl.houses.spec import Furniture, HouseObject
from embodied_icrl.houses.visibility import VIEWS_NEEDED, views_of

SURFACE_TRIES = 3  # places on one surface
FURNITURE_TRIES = 5  # pieces of furniture for one object
FLOOR_TRIES = 12
EDGE = 0.02  # between an object and the edge of its surface, metres


def put_on_floor(
    rng: np.random.Generator, category: str, rooms: Sequence[RoomSpace]
) -> Optional[HouseObject]:
    """An object on the floor of a room that suits it, or None; the room keeps its place."""
    suited = [space for space in rooms if space.room.kind in PLACES[category].floors]
    if not suited:
        return None
    radius = _radius(category)
    for _ in range(FLOOR_TRIES):
        space = suited[int(rng.integers(len(suited)))]
        x0, z0, x1, z1 = space.inner
        side, share = int(rng.integers(5)), float(rng.random())
        inset = radius + 0.05 + 0.3 * float(rng.random())
        x, z = (
            (x0 + share * (x1 - x0), z0 + inset), (x0 + inset, z0 + share * (z1 - z0)),
            (x0 + share * (x1 - x0), z1 - inset), (x1 - inset, z0 + share * (z1 - z0)),
            (x0 + share * (x1 - x0), z0 + float(rng.random()) * (z1 - z0)),
        )[side]  # fmt: skip
        x, z = round(x, 2), round(z, 2)
        rect = footprint(x, z, 2 * radius, 2 * radius, 0)
        if space.fits(rect, 0.05) and space.add([rect]):
            yaw = float(rng.integers(72) * 5)
            return HouseObject("", category, category, space.room.name, (x, 0.0, z), yaw)
    return None


def _radius(model: str) -> float:
    """Of the upright cylinder around a model's origin that holds it, rounded up to 1 cm."""
    reach = np.abs(model_extent(model)[:, ::2]).max(axis=0)
    return float(np.ceil(100 * np.sqrt((reach * reach).sum()))) / 100


class Placer:
    """Puts objects onto a house's furniture and keeps track of what they hide from one another."""

    def __init__(
        self, space: FreeSpace, region: np.ndarray, furniture: Sequence[Furniture], fixed: Boxes
    ) -> None:
        """
        Args:
            space: map of the house with everything that stands on its floor.
            region: the cells of it that the agent gets to.
            furniture: what objects can lie on.
            fixed: boxes of walls and furniture.
        """
        self.space, self.region, self.furniture, self.fixed = space, region, furniture, fixed
        self.placed: List[HouseObject] = []
        self._boxes: List[Boxes] = []
        self._views: List[np.ndarray] = []
        self._used: Dict[Tuple[str, int], int] = {}

    def put_on_furniture(self, rng: np.random.Generator, category: str) -> bool:
        """Put an object on furniture that suits it, in sight of the agent; False if none does."""
        kinds = PLACES[category].receptacles
        hosts = [item for item in self.furniture if item.kind in kinds]
        for i in rng.permutation(len(hosts))[:FURNITURE_TRIES]:
            host = hosts[i]
            surfaces, under = FURNITURE_MODELS[host.model].surfaces, item_boxes(host)
            for j in rng.permutation(len(surfaces))[:2]:
                for _ in range(SURFACE_TRIES):
                    candidate = _on_surface(rng, category, host, surfaces[j])
                    # Between two cushions there is nothing to lie on.
                    rests = candidate is not None and rests_on(candidate, under, REST)
                    if candidate is not None and rests and self.keep(candidate):
                        return True
        return False

    def keep(self, candidate: HouseObject) -> bool:
        """Add an object if it touches no other, is in sight, and leaves the others in sight."""
        boxes = item_boxes(candidate)
        near = np.array(candidate.position)
        for other, theirs in zip(self.placed, self._boxes):
            gap = np.abs(near - np.array(other.position))
            if gap[0] < 0.8 and gap[2] < 0.8 and overlaps(boxes, theirs, -0.01).any():
                return False
        views = self._seen_from(candidate, join_boxes([self.fixed, *self._boxes]))
        if len(views) < VIEWS_NEEDED:
            return False
        if not self._leaves_others_in_sight(candidate, boxes):
            return False
        self.placed.append(candidate)
        self._boxes.append(boxes)
        return True

    def _seen_from(self, item: HouseObject, around: Boxes) -> np.ndarray:
        extent = model_extent(item.model)
        size = extent[1] - extent[0]
        return views_of(self.space, self.region, np.array(item.position), size, around)

    def _leaves_others_in_sight(self, candidate: HouseObject, boxes: Boxes) -> bool:
        for i, other in enumerate(self.placed):
            gap = np.abs(np.array(candidate.position) - np.array(other.position))
            if max(gap[0], gap[2]) > 0.9:
                continue
            rest = [self.fixed, boxes, *self._boxes[:i], *self._boxes[i + 1 :]]
            if len(self._seen_from(other, join_boxes(rest))) < VIEWS_NEEDED:
                return False
        return True


def _on_surface(
    rng: np.random.Generator, category: str, host: Furniture, surface: Surface
) -> Optional[HouseObject]:
    """An object at a random place of a surface, or None where it is too large for it."""
    extent = model_extent(category)
    width, height, depth = (2 * np.abs(extent).max(axis=0)).tolist()
    if height / 2 > surface.clear - 0.01:
        return None
    quarter = int(rng.integers(2)) * 90 if width != depth else 0
    w, d = (depth, width) if quarter else (width, depth)
    slack_x, slack_z = (
        surface.x1 - surface.x0 - w - 2 * EDGE,
        surface.z1 - surface.z0 - d - 2 * EDGE,
    )
    u, v, flip = float(rng.random()), float(rng.random()), int(rng.integers(2)) * 180
    if slack_x < 0 or slack_z < 0:
        return None
    dx = surface.x0 + EDGE + w / 2 + u * slack_x
    dz = surface.z0 + EDGE + d / 2 + v * slack_z
    x, z = turned(dx, dz, int(host.yaw))
    position = (round(host.position[0] + x, 3), surface.y, round(host.position[2] + z, 3))
    yaw = float((int(host.yaw) + quarter + flip) % 360)
    return HouseObject("", category, category, host.room, position, yaw, host.name)
