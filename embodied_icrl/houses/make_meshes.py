"""Write the mesh files of all models: `python -m embodied_icrl.houses.make_meshes [FOLDER]`.

The parts in `furniture_models` and `object_models` are turned into triangles with trimesh and
written as GLB: corners not shared (flat shading), one PBR base colour per material.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Sequence

import numpy as np

from embodied_icrl.common.errors import require
from embodied_icrl.common.paths import assets_dir
from embodied_icrl.houses.furniture_models import FURNITURE_MODELS
from embodied_icrl.houses.glb import Surface, glb_bytes
from embodied_icrl.houses.materials import rgb
from embodied_icrl.houses.object_models import OBJECT_MODELS
from embodied_icrl.houses.parts import TINT, Ball, Box, Lathe, Part, part_bounds


def all_parts() -> dict[str, Sequence[Part]]:
    """The parts of every model by its name."""
    furniture = {name: model.parts for name, model in FURNITURE_MODELS.items()}
    return {**furniture, **OBJECT_MODELS}


def part_triangles(part: Part) -> np.ndarray:
    """A part's surface: float64 `[triangle, 3 (corner), 3 (xyz)]`, corners counter-clockwise.

    Raises:
        MissingDependencyError: trimesh is not installed.
    """
    creation: Any = require("trimesh.creation", "pip install trimesh")
    if isinstance(part, Box):
        mesh = creation.box(bounds=[part.low, part.high])
    elif isinstance(part, Lathe):
        mesh = _turned(creation, part.profile, part.sides, part.turn)
        mesh.apply_translation([part.x, 0.0, part.z])
    elif isinstance(part, Ball):
        rings = max(part.sides // 2, 3)
        angles = np.linspace(0, np.pi, rings + 1)
        profile = np.stack([np.sin(angles), -np.cos(angles)], axis=1)
        profile[[0, -1], 0] = 0.0
        mesh = _turned(creation, profile, part.sides, 0.0)
        mesh.apply_scale(part.radii)
        mesh.apply_translation(part.centre)
    else:
        segment = [part.start, part.end]
        mesh = creation.cylinder(radius=part.radius, segment=segment, sections=part.sides)
    triangles = np.asarray(mesh.triangles, dtype=np.float64)
    size = np.linalg.norm(np.cross(triangles[:, 1] - triangles[:, 0],
                                   triangles[:, 2] - triangles[:, 0]), axis=1)  # fmt: skip
    return np.asarray(triangles[size > 1e-9])


def _turned(creation: Any, profile: Any, sides: int, turn: float) -> Any:
    """The solid of revolution about the y axis of a profile of (radius, y)."""
    mesh = creation.revolve(np.asarray(profile, dtype=np.float64), sections=sides)
    angle = np.radians(turn)
    c, s = np.cos(angle), np.sin(angle)
    # revolve turns about z; (x, y, z) -> (x, z, -y) keeps the orientation of the faces.
    matrix = np.eye(4)
    matrix[:3, :3] = [[c, -s, 0], [0, 0, 1], [-s, -c, 0]]
    mesh.apply_transform(matrix)
    return mesh


def model_surfaces(parts: Sequence[Part]) -> list[Surface]:
    """The triangles of a model by material, in order of first use."""
    surfaces = []
    for material in dict.fromkeys(part.material for part in parts):
        triangles = [part_triangles(part) for part in parts if part.material == material]
        r, g, b = rgb("wood" if material == TINT else material)
        rounded = np.round(np.concatenate(triangles), 5).astype(np.float32) + np.float32(0.0)
        surfaces.append(Surface(material, (r / 255, g / 255, b / 255), rounded))
    return surfaces


def write_meshes(folder: Path) -> list[Path]:
    """Write every model's GLB into a folder; returns the paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, parts in all_parts().items():
        if min(part_bounds(part)[0][1] for part in parts) < -0.01:
            raise ValueError(f"model {name!r} reaches below its underside")
        path = folder / f"{name}.glb"
        path.write_bytes(glb_bytes(model_surfaces(parts), name))
        paths.append(path)
    return paths


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else assets_dir() / "objects"
    for written in write_meshes(target):
        print(written)
