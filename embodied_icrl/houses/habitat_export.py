"""A house as a Habitat scene dataset: stage, objects, scene instance, semantics.

Shading is baked into the base colours, and everything asks for the flat shader and no lights: the
pictures then don't depend on a light set-up, and colours are exact. There is no ceiling (it would
become a navmesh island), and the stage says where up is.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Tuple

import numpy as np

from embodied_icrl.common.files import atomic_write_bytes, atomic_write_json, atomic_write_text
from embodied_icrl.houses.catalogue import FLOOR_ID, SEMANTIC_IDS, WALL_ID
from embodied_icrl.houses.frames import house_quaternion
from embodied_icrl.houses.glb import Surface, glb_bytes, srgb_to_linear
from embodied_icrl.houses.models import item_surfaces, model_boxes, tint_of
from embodied_icrl.houses.spec import HouseObject, HouseSpec, Item
from embodied_icrl.houses.stage import box_triangles, stage_boxes

UP, FRONT = [0.0, 1.0, 0.0], [0.0, 0.0, -1.0]
SEMANTIC_COLOURS = {"floor": (0x40, 0x80, 0x40), "wall": (0x80, 0x40, 0x40)}
_LIGHT = np.array([0.35, 0.85, 0.4]) / np.sqrt(0.35**2 + 0.85**2 + 0.4**2)
_SHADES = 8


def write_habitat(spec: HouseSpec, folder: Path) -> Path:
    """Write a scene dataset with the house as its one scene.

    Returns:
        The dataset's configuration file; the scene is called like the house.

    Raises:
        HouseError: a mesh is missing.
    """
    for name in ("stages", "objects", "scenes", "semantics"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    _write_stage(spec, folder / "stages")
    _write_semantics(spec, folder)
    instances = _write_objects(spec, folder / "objects")
    scene = {
        "stage_instance": {"template_name": f"stages/{spec.name}"},
        "object_instances": instances,
        "default_lighting": "",
        "semantic_scene_instance": spec.name,
    }
    atomic_write_json(folder / "scenes" / f"{spec.name}.scene_instance.json", scene)
    dataset = {
        "stages": {"paths": {".json": ["stages"]}},
        "objects": {"paths": {".json": ["objects"]}},
        "scene_instances": {"paths": {".json": ["scenes"]}},
        "semantic_scene_descriptor_instances": {spec.name: f"semantics/{spec.name}.semantic.txt"},
    }
    path = folder / f"{spec.name}.scene_dataset_config.json"
    atomic_write_json(path, dataset)
    return path


def _write_stage(spec: HouseSpec, folder: Path) -> None:
    boxes = stage_boxes(spec)
    surfaces = [Surface(b.name, b.colour, box_triangles(b.low, b.high)) for b in boxes]
    atomic_write_bytes(
        folder / f"{spec.name}.glb", glb_bytes(baked(surfaces), spec.name, linear=False)
    )
    labels = []
    for kind, colour in SEMANTIC_COLOURS.items():
        triangles = [box_triangles(box.low, box.high) for box in boxes if box.kind == kind]
        # Vertex colours are linear light to Habitat, and the list of labels is not.
        r, g, b = srgb_to_linear([value / 255 for value in colour])
        labels.append(Surface(kind, (r, g, b), np.concatenate(triangles)))
    data = glb_bytes(labels, spec.name, linear=False, vertex_colours=True)
    atomic_write_bytes(folder / f"{spec.name}.semantic.glb", data)
    config = {
        "render_asset": f"{spec.name}.glb",
        "collision_asset": f"{spec.name}.glb",
        "semantic_asset": f"{spec.name}.semantic.glb",
        "up": UP,
        "front": FRONT,
        "semantic_up": UP,
        "semantic_front": FRONT,
        "origin": [0.0, 0.0, 0.0],
        "units_to_meters": 1.0,
        "shader_type": "flat",
        "force_flat_shading": True,
    }
    atomic_write_json(folder / f"{spec.name}.stage_config.json", config)


def _write_semantics(spec: HouseSpec, folder: Path) -> None:
    """The stage's labels as Habitat reads them, and all ids for people and programs."""
    lines = ["HM3D Semantic Annotations"]
    for kind, number in (("floor", FLOOR_ID), ("wall", WALL_ID)):
        r, g, b = SEMANTIC_COLOURS[kind]
        lines.append(f'{number},{r:02X}{g:02X}{b:02X},"{kind}",0')
    path = folder / "semantics" / f"{spec.name}.semantic.txt"
    atomic_write_text(path, "\n".join(lines) + "\n")
    atomic_write_json(folder / "semantics" / "ids.json", SEMANTIC_IDS)


def _write_objects(spec: HouseSpec, folder: Path) -> List[Dict[str, Any]]:
    """Write every model in use once per tint; returns the instances."""
    written: Dict[Tuple[str, Optional[str], int], str] = {}
    instances = []
    for item in spec.items:
        kind = item.category if isinstance(item, HouseObject) else item.kind
        key = (item.model, tint_of(item), SEMANTIC_IDS[kind])
        if key not in written:
            written[key] = _write_object(item, key, folder, set(written.values()))
        instances.append(_instance(item, written[key]))
    return instances


def _write_object(
    item: Item, key: Tuple[str, Optional[str], int], folder: Path, taken: set[str]
) -> str:
    model, tint, number = key
    name = "-".join(filter(None, [Path(model).stem, (tint or "").lstrip("#")]))
    if name in taken:
        name += "-" + hashlib.sha256(repr(key).encode()).hexdigest()[:8]
    data = glb_bytes(baked(item_surfaces(model, tint)), name, linear=False)
    atomic_write_bytes(folder / f"{name}.glb", data)
    atomic_write_bytes(folder / f"{name}.collision.glb", _collision(model, name))
    config = {
        "render_asset": f"{name}.glb",
        "collision_asset": f"{name}.collision.glb",
        "up": UP,
        "front": FRONT,
        "units_to_meters": 1.0,
        "semantic_id": number,
        "is_collidable": True,
        "join_collision_meshes": False,
        "shader_type": "flat",
        "force_flat_shading": True,
    }
    atomic_write_json(folder / f"{name}.object_config.json", config)
    return name


def _collision(model: str, name: str) -> bytes:
    """The boxes that agents bump into, the same as in MuJoCo, so that they go the same ways."""
    boxes = model_boxes(model)
    triangles = [box_triangles(tuple(low), tuple(high)) for low, high in boxes.tolist()]
    surface = Surface("boxes", (0.5, 0.5, 0.5), np.concatenate(triangles))
    return glb_bytes([surface], name, linear=False)


def _instance(item: Item, name: str) -> Dict[str, Any]:
    return {
        "template_name": f"objects/{name}",
        "translation_origin": "asset_local",
        "translation": [float(x) for x in item.position],
        "rotation": [round(x, 9) for x in house_quaternion(item.yaw)],
        "motion_type": "STATIC",
    }


def baked(surfaces: Sequence[Surface]) -> List[Surface]:
    """The surfaces with a light from above in their colours, in a few steps: one material each."""
    result = []
    for surface in surfaces:
        light = np.clip(surface.normals @ _LIGHT, 0.0, 1.0)
        steps = np.round(light * (_SHADES - 1)).astype(np.int64)
        for step in np.unique(steps):
            shade = 0.58 + 0.42 * step / (_SHADES - 1)
            r, g, b = (min(1.0, channel * shade) for channel in surface.colour)
            name = f"{surface.name}/{step}"
            result.append(Surface(name, (r, g, b), surface.triangles[steps == step]))
    return result
