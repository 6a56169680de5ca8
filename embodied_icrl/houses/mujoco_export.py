"""A house as a MuJoCo model.

Geoms carry two numbers in `geom_user`: the semantic id (`catalogue.SEMANTIC_IDS`) and the position
of the target object in `spec.objects`, or -1. Bodies are called furniture/NAME and object/NAME.
Groups: 0 floors, 1 walls, 2 furniture, 3 target objects, 4 collision boxes (if asked for).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, Tuple

import numpy as np

from embodied_icrl.common.errors import require
from embodied_icrl.common.files import atomic_write_text
from embodied_icrl.houses.catalogue import semantic_id
from embodied_icrl.houses.frames import mujoco_quaternion, to_mujoco
from embodied_icrl.houses.geometry import house_bounds
from embodied_icrl.houses.models import item_surfaces, model_boxes, tint_of
from embodied_icrl.houses.spec import HouseObject, HouseSpec, Item
from embodied_icrl.houses.stage import stage_boxes

FLOORS, WALLS, FURNITURE, OBJECTS, COLLISIONS = range(5)
# Vertical field of view of a free camera, degrees.
FIELD_OF_VIEW = 65.0


def mujoco_spec(spec: HouseSpec, *, collisions: bool = False) -> Any:
    """A house as `mujoco.MjSpec`; `.compile()` gives the model.

    Args:
        spec: a valid house.
        collisions: let things bump into the house: floors, walls, and invisible boxes around the
            parts of furniture and objects. Without, nothing collides and compiling is faster.

    Raises:
        MissingDependencyError: mujoco is not installed.
        HouseError: a mesh is missing.
    """
    mujoco = require("mujoco", "pip install 'mujoco>=3.5,<3.12'")
    model = mujoco.MjSpec()
    model.modelname = spec.name
    model.nuser_geom = 2
    _set_visuals(mujoco, model, spec)
    for box in stage_boxes(spec):
        low, high = np.array(box.low), np.array(box.high)
        model.worldbody.add_geom(
            name=box.name,
            type=mujoco.mjtGeom.mjGEOM_BOX,
            pos=to_mujoco((low + high) / 2),
            size=np.abs(to_mujoco(high - low)) / 2,
            rgba=[*box.colour, 1.0],
            userdata=[semantic_id(box.kind), -1],
            group=FLOORS if box.kind == "floor" else WALLS,
            **_contacts(collisions),
        )
    builder = _Builder(mujoco, model, collisions)
    for item in spec.furniture:
        builder.add(item, f"furniture/{item.name}", semantic_id(item.kind), -1)
    for i, thing in enumerate(spec.objects):
        builder.add(thing, f"object/{thing.name}", semantic_id(thing.category), i)
    return model


def write_mjcf(spec: HouseSpec, folder: Path) -> Path:
    """Write a house as one MJCF file with its meshes inside, collisions included; the path."""
    folder.mkdir(parents=True, exist_ok=True)
    model = mujoco_spec(spec, collisions=True)
    model.compile()
    path = folder / f"{spec.name}.xml"
    atomic_write_text(path, model.to_xml())
    return path


def _contacts(collisions: bool) -> Dict[str, int]:
    return {"contype": int(collisions), "conaffinity": int(collisions)}


def _set_visuals(mujoco: Any, model: Any, spec: HouseSpec) -> None:
    x0, z0, x1, z1 = house_bounds(spec)
    extent = max(x1 - x0, z1 - z0, 4.0)
    model.stat.extent = extent
    model.stat.center = to_mujoco(np.array([(x0 + x1) / 2, 1.0, (z0 + z1) / 2]))
    model.visual.map.znear = 0.03 / extent
    model.visual.map.zfar = 4.0
    model.visual.global_.fovy = FIELD_OF_VIEW
    model.add_texture(
        name="sky",
        type=mujoco.mjtTexture.mjTEXTURE_SKYBOX,
        builtin=mujoco.mjtBuiltin.mjBUILTIN_GRADIENT,
        rgb1=[0.78, 0.86, 0.93],
        rgb2=[0.55, 0.68, 0.82],
        width=16,
        height=96,
    )
    model.visual.headlight.ambient = [0.5, 0.5, 0.5]
    model.visual.headlight.diffuse = [0.2, 0.2, 0.2]
    model.visual.headlight.specular = [0.0, 0.0, 0.0]
    for direction, strength in (((0.35, 0.55, -0.75), 0.32), ((-0.6, -0.3, -0.75), 0.14)):
        light = model.worldbody.add_light(dir=direction, castshadow=False)
        light.type = mujoco.mjtLightType.mjLIGHT_DIRECTIONAL
        light.pos = [0.0, 0.0, 6.0]
        light.diffuse = [strength] * 3
        light.ambient = [0.0] * 3
        light.specular = [0.0] * 3


class _Builder:
    """Adds items; items of the same model share their meshes."""

    def __init__(self, mujoco: Any, model: Any, collisions: bool) -> None:
        self.mujoco, self.model, self.collisions = mujoco, model, collisions
        self.meshes: Dict[Tuple[str, int], str] = {}

    def add(self, item: Item, name: str, semantic: int, index: int) -> None:
        body = self.model.worldbody.add_body(
            name=name,
            pos=to_mujoco(np.array(item.position)),
            quat=mujoco_quaternion(item.yaw),
        )
        group = OBJECTS if isinstance(item, HouseObject) else FURNITURE
        for i, surface in enumerate(item_surfaces(item.model, tint_of(item))):
            body.add_geom(
                type=self.mujoco.mjtGeom.mjGEOM_MESH,
                meshname=self._mesh(item.model, i, surface.triangles),
                rgba=[*surface.colour, 1.0],
                userdata=[semantic, index],
                group=group,
                contype=0,
                conaffinity=0,
            )
        if self.collisions:
            self._add_collisions(body, item)

    def _mesh(self, model: str, part: int, triangles: np.ndarray) -> str:
        key = (model, part)
        if key not in self.meshes:
            stem = Path(model).stem
            taken = any(
                name.startswith(f"{stem}.") for (m, _), name in self.meshes.items() if m != model
            )
            name = f"{stem}.{len(self.meshes)}.{part}" if taken else f"{stem}.{part}"
            corners = to_mujoco(triangles.reshape(-1, 3)).astype(np.float64)
            mesh = self.model.add_mesh(name=name)
            mesh.uservert = corners.reshape(-1)
            mesh.userface = np.arange(len(corners), dtype=np.int32)
            # Flat panels have no volume to compute an inertia from.
            mesh.inertia = self.mujoco.mjtMeshInertia.mjMESH_INERTIA_SHELL
            self.meshes[key] = name
        return self.meshes[key]

    def _add_collisions(self, body: Any, item: Item) -> None:
        for low, high in model_boxes(item.model):
            body.add_geom(
                type=self.mujoco.mjtGeom.mjGEOM_BOX,
                pos=to_mujoco((low + high) / 2),
                size=np.maximum(np.abs(to_mujoco(high - low)) / 2, 1e-3),
                rgba=[0.0, 0.0, 0.0, 0.0],
                userdata=[0, -1],
                group=COLLISIONS,
            )


def geom_semantics(model: Any) -> Tuple[np.ndarray, np.ndarray]:
    """The semantic id and the target object's index (or -1) of each geom: int32 `[ngeom]` each."""
    user = np.asarray(model.geom_user).astype(np.int32)
    return user[:, 0].copy(), user[:, 1].copy()
