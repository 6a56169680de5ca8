"""Pictures of object navigation: the agent's view, and the house from above with what was seen."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from embodied_icrl.envs.base import RenderState
from embodied_icrl.houses.geometry import (
    Boxes,
    blocked_rays,
    house_bounds,
    item_boxes,
    join_boxes,
    wall_boxes,
)
from embodied_icrl.houses.spec import HouseSpec
from embodied_icrl.simulators.base import TopDown
from embodied_icrl.simulators.scenes import HabitatScene

if TYPE_CHECKING:
    from embodied_icrl.envs.object_nav import ObjectNav

VIEW_SIZE = 400
VIEW_ANGLE = 90.0
_CELL = 0.1
_FARTHEST = 5.0
# A place is seen if the floor is, or what stands on it at the height of a table.
_HEIGHTS = (0.02, 0.8)
_UNSEEN_SHADE = 0.55


class Explored:
    """Which parts of a house the agent has looked at in a trial, as far as it was drawn.

    Of a scene of another dataset, whose walls aren't known, all counts as seen.

    Attributes:
        trial: whose map it is.
        above: the house.
    """

    def __init__(
        self, spec: HouseSpec | HabitatScene, above: TopDown, trial: tuple[int, int]
    ) -> None:
        self.trial, self.above = trial, above
        self._has_walls = isinstance(spec, HouseSpec)
        if not isinstance(spec, HouseSpec):
            return
        x0, z0, x1, z1 = house_bounds(spec)
        self._x0, self._z0 = x0, z0
        shape = (max(1, round((z1 - z0) / _CELL)), max(1, round((x1 - x0) / _CELL)))
        self._seen = np.zeros(shape, dtype=bool)
        rows, columns = np.indices(shape)
        self._x, self._z = x0 + (columns + 0.5) * _CELL, z0 + (rows + 0.5) * _CELL
        self._boxes: Boxes = join_boxes(
            [wall_boxes(spec), *(item_boxes(item) for item in spec.furniture)]
        )

    def look(self, camera: np.ndarray, yaw: float) -> None:
        """Add what is in sight, within 5 m, of a camera `[3]` that looks along `yaw`."""
        if not self._has_walls:
            return
        dx, dz = self._x - camera[0], self._z - camera[2]
        distance = np.hypot(dx, dz)
        ahead = -np.sin(yaw) * dx - np.cos(yaw) * dz
        inside = (distance <= _FARTHEST) & (ahead >= np.cos(np.radians(VIEW_ANGLE / 2)) * distance)
        inside &= ~self._seen
        seen = np.zeros(int(inside.sum()), dtype=bool)
        for height in _HEIGHTS:
            places = np.stack(
                [self._x[inside], np.full(seen.size, height), self._z[inside]], axis=1
            )
            if len(places):
                seen |= ~blocked_rays(np.repeat(camera[None], seen.size, 0), places, self._boxes)
        self._seen[inside] = seen

    def shaded(self) -> np.ndarray:
        """The map with the part of the house that has not been seen darker."""
        if not self._has_walls:
            return self.above.picture
        picture, x0, z0, scale = (
            self.above.picture, self.above.x0, self.above.z0, self.above.scale
        )  # fmt: skip
        height, width, _ = picture.shape
        columns = ((np.arange(width) + 0.5) / scale + x0 - self._x0) / _CELL
        rows = ((np.arange(height) + 0.5) / scale + z0 - self._z0) / _CELL
        known = np.ones((height, width), dtype=bool)
        tall, wide = self._seen.shape
        in_rows = np.flatnonzero((rows >= 0) & (rows < tall))
        in_columns = np.flatnonzero((columns >= 0) & (columns < wide))
        cells = np.ix_(rows[in_rows].astype(int), columns[in_columns].astype(int))
        known[np.ix_(in_rows, in_columns)] = self._seen[cells]
        shaded = np.where(known[..., None], picture, picture * _UNSEEN_SHADE)
        return np.asarray(shaded.astype(np.uint8))


def render_house(env: ObjectNav, row: int, explored: Explored) -> RenderState:
    """Draw environment `row`, and remember in `explored` what its agent sees now."""
    simulator, house = env.simulator, env.houses[row]
    position, yaw = simulator.positions[row], float(simulator.yaw[row])
    body = env.config.body
    aim = np.array([-np.sin(yaw), 0.0, -np.cos(yaw)])
    camera = position + body.camera_ahead * aim + np.array([0.0, body.camera_height, 0.0])
    explored.look(camera, yaw)
    above = explored.above
    target = int(env.targets[row])
    targets = [
        ((x - above.x0) * above.scale, (z - above.z0) * above.scale, env.categories[target])
        for x, _, z in house.centres[house.instances_of(target)]
    ]
    pose = (
        (position[0] - above.x0) * above.scale,
        (position[2] - above.z0) * above.scale,
        -yaw,
    )
    view = simulator.picture(row, VIEW_SIZE, VIEW_SIZE, VIEW_ANGLE)
    return RenderState(
        agent_view=view,
        map=explored.shaded(),
        pose=(float(pose[0]), float(pose[1]), pose[2]),
        targets=[(float(x), float(z), label) for x, z, label in targets],
        target_label=env.categories[target].replace("_", " "),
        note=simulator.picture_note,
    )
