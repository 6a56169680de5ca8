"""The mesh files: as the script makes them, well formed, and unlike one another."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
import trimesh

from embodied_icrl.common.paths import assets_dir
from embodied_icrl.houses.catalogue import CATEGORIES
from embodied_icrl.houses.furniture_models import FURNITURE_MODELS
from embodied_icrl.houses.glb import Surface, glb_bytes, read_glb
from embodied_icrl.houses.make_meshes import all_parts, write_meshes
from embodied_icrl.houses.models import item_surfaces, model_extent
from embodied_icrl.houses.mujoco_export import mujoco_spec
from embodied_icrl.houses.spec import HouseObject, HouseSpec, Room
from embodied_icrl.houses.view import Camera, ray_picture
from tests.houses.glb_rules import check_glb

OBJECTS = assets_dir() / "objects"


def test_making_the_meshes_again_gives_the_files_in_assets(tmp_path: Path) -> None:
    write_meshes(tmp_path)
    assert {p.name for p in tmp_path.iterdir()} == {p.name for p in OBJECTS.iterdir()}
    for path in tmp_path.iterdir():
        made, kept = read_glb(path.read_bytes()), read_glb((OBJECTS / path.name).read_bytes())
        assert [(s.name, s.colour) for s in made] == [(s.name, s.colour) for s in kept]
        for a, b in zip(made, kept):
            assert np.allclose(a.triangles, b.triangles, atol=2e-5), path.name


def test_the_meshes_are_few_megabytes() -> None:
    assert sum(path.stat().st_size for path in OBJECTS.iterdir()) < 3e6


@pytest.mark.parametrize("name", sorted(all_parts()))
def test_a_mesh_is_well_formed_and_as_large_as_its_parts_say(name: str) -> None:
    data = (OBJECTS / f"{name}.glb").read_bytes()
    check_glb(data)
    points = np.concatenate([s.triangles.reshape(-1, 3) for s in read_glb(data)])
    low, high = model_extent(name)
    assert np.all(points.min(axis=0) >= low - 1e-4) and np.all(points.max(axis=0) <= high + 1e-4)
    assert np.allclose(points.min(axis=0), low, atol=0.035)
    assert np.allclose(points.max(axis=0), high, atol=0.035)


def test_trimesh_reads_the_same_triangles() -> None:
    for name in ("teapot", "tall_bookshelf"):
        data = (OBJECTS / f"{name}.glb").read_bytes()
        scene = trimesh.load(io.BytesIO(data), file_type="glb")
        theirs = np.concatenate([mesh.triangles for mesh in scene.dump()])
        ours = np.concatenate([surface.triangles for surface in read_glb(data)])
        assert theirs.shape == ours.shape
        assert np.allclose(np.sort(theirs.reshape(-1, 9), 0), np.sort(ours.reshape(-1, 9), 0))


def test_solids_are_closed_and_face_outwards() -> None:
    """The signed volume of each model is positive: no part is inside out."""
    for name in all_parts():
        for surface in read_glb((OBJECTS / f"{name}.glb").read_bytes()):
            a, b, c = np.moveaxis(surface.triangles.astype(float), 1, 0)
            assert (a * np.cross(b, c)).sum() > 0, (name, surface.name)


def test_another_writers_file_is_read_with_its_transforms() -> None:
    mesh = trimesh.creation.box((1, 2, 3))
    mesh.visual = trimesh.visual.TextureVisuals(
        material=trimesh.visual.material.PBRMaterial(baseColorFactor=[255, 0, 0, 255], name="red")
    )
    scene = trimesh.Scene()
    matrix = trimesh.transformations.rotation_matrix(np.pi / 2, [0, 0, 1], [0, 0, 0])
    matrix[:3, 3] = [5, 0, 0]
    scene.add_geometry(mesh, transform=matrix)
    (surface,) = read_glb(scene.export(file_type="glb"))
    points = surface.triangles.reshape(-1, 3)
    assert np.allclose(points.min(axis=0), [4, -0.5, -1.5], atol=1e-6)
    assert np.allclose(points.max(axis=0), [6, 0.5, 1.5], atol=1e-6)
    assert np.allclose(surface.colour, [1, 0, 0])


def test_colours_survive_the_way_through_linear_light() -> None:
    triangle = np.eye(3, dtype=np.float32)[None]
    surfaces = [Surface("a", (0.2, 0.5, 0.9), triangle)]
    (back,) = read_glb(glb_bytes(surfaces, "x"))
    assert np.allclose(back.colour, (0.2, 0.5, 0.9), atol=1e-4)
    document = check_glb(glb_bytes(surfaces, "x", linear=False, vertex_colours=True))
    factor = document["materials"][0]["pbrMetallicRoughness"]["baseColorFactor"]
    assert factor == [0.2, 0.5, 0.9, 1.0]


@pytest.mark.parametrize("cut", [0, 10, 30, 200, -40])
def test_a_damaged_file_is_refused(cut: int) -> None:
    data = (OBJECTS / "mug.glb").read_bytes()
    with pytest.raises(ValueError):
        read_glb(data[:cut])


def test_tints_colour_furniture_and_nothing_else() -> None:
    plain = {s.name: s.colour for s in item_surfaces("sofa")}
    red = {s.name: s.colour for s in item_surfaces("sofa", "#ff0000")}
    assert red["tint"] == (1.0, 0.0, 0.0)
    assert {k: v for k, v in red.items() if k != "tint"} == {
        k: v for k, v in plain.items() if k != "tint"
    }
    assert all("tint" not in {s.name for s in item_surfaces(c)} for c in CATEGORIES)


def test_every_furniture_model_has_tints_that_are_colours() -> None:
    for name, model in FURNITURE_MODELS.items():
        assert model.tints, name
        for tint in model.tints:
            item_surfaces(name, tint)


def look_at(category: str, yaw: float) -> np.ndarray:
    """An object 1 m away in a 64 x 64 picture, as it shows: RGB of its pixels, others black."""
    extent = model_extent(category)
    room = Room("r", "living", (-2.0, -2.0, 2.0, 2.0), "#808080", "#808080")
    thing = HouseObject("a", category, category, "r", (0.0, 0.0, 0.0), yaw)
    middle = float(extent[1, 1]) / 2
    camera = Camera((0.0, middle + 0.42, 0.9), 0.0, -25.0)
    with_it, without = (
        ray_picture(
            mujoco_spec(HouseSpec(rooms=(room,), objects=objects)).compile(), camera, 64, 64
        )
        for objects in ((thing,), ())
    )
    shown = np.any(with_it != without, axis=-1)
    return np.where(shown[..., None], with_it, 0)


def signature(picture: np.ndarray) -> np.ndarray:
    """Shares of a few coarse colours among an object's pixels, and how many there are."""
    pixels = picture[picture.any(axis=-1)].astype(float) / 255
    r, g, b = pixels.T
    strongest, weakest = pixels.max(axis=1), pixels.min(axis=1)
    chroma = strongest - weakest
    hue = np.arctan2(np.sqrt(3) * (g - b), 2 * r - g - b) % (2 * np.pi)
    coloured = chroma > 0.25
    bins = np.where(
        coloured, (hue / (2 * np.pi) * 12 + 0.5).astype(int) % 12, 12 + (strongest > 0.5)
    )
    histogram = np.bincount(bins, minlength=14) / len(pixels)
    return np.concatenate([histogram, [np.log(len(pixels)) / 4]])


def test_categories_can_be_told_apart_at_64_pixels() -> None:
    """The nearest category in colours and size, from other sides, is the category itself."""
    known = {c: [signature(look_at(c, yaw)) for yaw in (20.0, 140.0, 260.0)] for c in CATEGORIES}
    right = 0
    for category in CATEGORIES:
        seen = signature(look_at(category, 80.0))
        distance = {c: min(np.abs(seen - s).sum() for s in known[c]) for c in CATEGORIES}
        right += min(distance, key=lambda c: distance[c]) == category
    assert right >= len(CATEGORIES) - 2
