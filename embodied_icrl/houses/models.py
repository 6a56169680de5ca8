"""Models of furniture and objects: their triangles, their boxes, their colours in a house."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Optional

import numpy as np

from embodied_icrl.common.config import suggest
from embodied_icrl.common.paths import assets_dir
from embodied_icrl.houses.furniture_models import FURNITURE_MODELS
from embodied_icrl.houses.glb import Surface, read_glb
from embodied_icrl.houses.materials import rgb
from embodied_icrl.houses.object_models import OBJECT_MODELS
from embodied_icrl.houses.parts import TINT, part_boxes
from embodied_icrl.houses.spec import Furniture, HouseError, Item


def model_path(model: str) -> Path:
    """The mesh file of a model: a name in assets/objects or a path to a .glb file.

    Raises:
        HouseError: there is no such file.
    """
    if model.endswith(".glb"):
        path = Path(model)
        if not path.is_file():
            raise HouseError(f"the mesh {path} does not exist")
        return path
    path = assets_dir() / "objects" / f"{model}.glb"
    if not path.is_file():
        known = [*FURNITURE_MODELS, *OBJECT_MODELS]
        if model in known:
            raise HouseError(f"the mesh {path} is missing: reinstall embodied-icrl or restore it")
        raise HouseError(
            f"no model {model!r}; give a path that ends in .glb, or {suggest(model, known)}"
        )
    return path


def load_model(model: str) -> tuple[Surface, ...]:
    """The triangles of a model by material, y up, in the model's frame.

    Raises:
        HouseError: the file is missing or can't be used.
    """
    path = model_path(model)
    return _read(str(path), path.stat().st_mtime_ns)


@lru_cache(maxsize=256)
def _read(path: str, modified: int) -> tuple[Surface, ...]:
    try:
        return tuple(read_glb(Path(path).read_bytes()))
    except (ValueError, KeyError, IndexError, TypeError, OSError) as error:
        raise HouseError(f"the mesh {path} can't be used: {error}") from error


@lru_cache(maxsize=256)
def _object_boxes(name: str) -> np.ndarray:
    return part_boxes(OBJECT_MODELS[name])


def model_boxes(model: str) -> np.ndarray:
    """Boxes that together hold the model: float64 `[box, 2 (low, high), 3]` in the model's frame.

    A model of ours has one for each of its parts, a model from elsewhere a single one.
    """
    if model in FURNITURE_MODELS:
        return FURNITURE_MODELS[model].boxes
    if model in OBJECT_MODELS:
        return _object_boxes(model)
    points = np.concatenate([s.triangles.reshape(-1, 3) for s in load_model(model)])
    return np.array([[points.min(axis=0), points.max(axis=0)]], dtype=np.float64)


def model_extent(model: str) -> np.ndarray:
    """The one box around a model: float64 `[2 (low, high), 3]`."""
    boxes = model_boxes(model)
    return np.array([boxes[:, 0].min(axis=0), boxes[:, 1].max(axis=0)])


def item_surfaces(model: str, tint: Optional[str] = None) -> list[Surface]:
    """A model's triangles with its material "tint" in the colour of the item."""
    surfaces = []
    for surface in load_model(model):
        colour = surface.colour
        if tint is not None and surface.name == TINT:
            r, g, b = rgb(tint)
            colour = (r / 255, g / 255, b / 255)
        surfaces.append(Surface(surface.name, colour, surface.triangles))
    return surfaces


def tint_of(item: Item) -> Optional[str]:
    """The tint of furniture; objects have none, so that a category always looks the same."""
    return item.tint if isinstance(item, Furniture) else None
