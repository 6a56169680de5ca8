"""A house as the MuJoCo backend holds it: compiled once, shared by all agents that are in it."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any, Dict, Sequence, Tuple

import numpy as np

from embodied_icrl.common.errors import require
from embodied_icrl.houses.check import check_house
from embodied_icrl.houses.frames import cosine_sine, rotate
from embodied_icrl.houses.models import load_model, model_extent
from embodied_icrl.houses.mujoco_export import OBJECTS, geom_semantics, mujoco_spec
from embodied_icrl.houses.spec import HouseSpec
from embodied_icrl.simulators.base import (
    FIRST_CATEGORY,
    FURNITURE,
    NOTHING,
    STRUCTURE,
    AgentBody,
    Instances,
)
from embodied_icrl.simulators.geodesic import distance_fields
from embodied_icrl.simulators.ground import Ground, build_ground

# Sets of goals whose distances a house remembers.
_KEPT_FIELDS = 4


@dataclass(frozen=True)
class Scene:
    """One house, ready to be seen and walked in.

    Attributes:
        spec: the house.
        model, data: MuJoCo's; nothing in them moves.
        ground: where an agent can be.
        instances: the target objects.
        classes: int8 `[geom + 1]`, what a ray that hits a geom shows; the last is that of geom -1.
        owners: int32 `[geom + 1]`, the instance that a geom belongs to, or -1.
        boxes: float64 `[instance, 2 (low, high), 3]`, upright boxes around the instances.
    """

    spec: HouseSpec
    model: Any
    data: Any
    ground: Ground
    instances: Instances
    classes: np.ndarray
    owners: np.ndarray
    boxes: np.ndarray
    _fields: OrderedDict[bytes, np.ndarray] = field(default_factory=OrderedDict, repr=False)

    def fields(self, goals: Sequence[np.ndarray]) -> np.ndarray:
        """Distance fields of goals `[point, 3]` each, computed once: `[goal, row, column]`."""
        key = b"|".join(goal.tobytes() for goal in goals)
        if key not in self._fields:
            flat = [goal[:, ::2] for goal in goals]
            self._fields[key] = distance_fields(self.ground.fine, self.ground.fine_region, flat)
        self._fields.move_to_end(key)
        while len(self._fields) > _KEPT_FIELDS:
            self._fields.popitem(last=False)
        return self._fields[key]


def build_scene(
    spec: HouseSpec, categories: Tuple[str, ...], body: AgentBody, refine: int, check: bool
) -> Scene:
    """Compile a house and measure its ground.

    Args:
        spec: the house.
        categories: of the task, in its order.
        body: of the agents.
        refine: see `build_ground`.
        check: look first whether the house is valid.

    Raises:
        HouseError: it isn't, or a mesh is missing.
    """
    mujoco = require("mujoco", "pip install 'mujoco>=3.5,<3.12'")
    if check:
        check_house(spec)
    model = mujoco_spec(spec).compile()
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    instances, boxes = house_instances(spec, categories)
    classes, owners = _tables(model, instances)
    ground = build_ground(spec, body.radius, body.height, refine)
    return Scene(spec, model, data, ground, instances, classes, owners, boxes)


def house_instances(spec: HouseSpec, categories: Tuple[str, ...]) -> Tuple[Instances, np.ndarray]:
    """The target objects of a house, and their boxes `[instance, 2, 3]`: lowest, highest corner."""
    numbers: Dict[str, int] = {name: i for i, name in enumerate(categories)}
    boxes = np.zeros((len(spec.objects), 2, 3))
    for i, item in enumerate(spec.objects):
        low, high = model_extent(item.model)
        half, middle = (high - low) / 2, rotate((low + high) / 2, item.yaw) + item.position
        c, s = (abs(float(part)) for part in cosine_sine(item.yaw))
        reach = np.array([c * half[0] + s * half[2], half[1], s * half[0] + c * half[2]])
        boxes[i] = middle - reach, middle + reach
    kinds = [numbers.get(item.category, -1) for item in spec.objects]
    names = tuple(item.name for item in spec.objects)
    centres = boxes.mean(axis=1) if len(boxes) else np.zeros((0, 3))
    return Instances(np.array(kinds, dtype=np.int64), centres, names), boxes


def _tables(model: Any, instances: Instances) -> Tuple[np.ndarray, np.ndarray]:
    """The class and the instance of each geom, with one more entry for none."""
    _, owner = geom_semantics(model)
    group = np.asarray(model.geom_group)
    owners = np.append(owner, -1).astype(np.int32)
    classes = np.full(model.ngeom + 1, FURNITURE, dtype=np.int8)
    classes[:-1][group < 2] = STRUCTURE
    kinds = np.append(instances.categories, -1)[owners]
    classes[kinds >= 0] = FIRST_CATEGORY + kinds[kinds >= 0]
    classes[-1] = NOTHING
    assert np.all((group == OBJECTS) == (owner >= 0))
    return classes, owners


def surface_of(spec: HouseSpec, instance: int) -> np.ndarray:
    """The triangles of a target object where it lies: float64 `[triangle, 3, 3]`, house frame."""
    item = spec.objects[instance]
    corners = np.concatenate([surface.triangles for surface in load_model(item.model)])
    return np.asarray(rotate(corners.astype(np.float64), item.yaw) + np.array(item.position))
