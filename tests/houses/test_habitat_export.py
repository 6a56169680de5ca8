"""The Habitat dataset: every reference leads to a file, and the files say what the house says."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from embodied_icrl.houses.catalogue import SEMANTIC_IDS
from embodied_icrl.houses.frames import rotate
from embodied_icrl.houses.glb import linear_to_srgb, read_glb
from embodied_icrl.houses.habitat_export import baked, write_habitat
from embodied_icrl.houses.models import item_surfaces
from embodied_icrl.houses.spec import HouseSpec
from tests.houses.glb_rules import check_glb, values
from tests.houses.samples import house

SCENE_KEYS = {"stage_instance", "object_instances", "default_lighting", "semantic_scene_instance"}
INSTANCE_KEYS = {"template_name", "translation_origin", "translation", "rotation", "motion_type"}


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, HouseSpec]:
    spec = house(7, 4)
    return write_habitat(spec, tmp_path_factory.mktemp("habitat")), spec


def read(path: Path) -> dict:
    return json.loads(path.read_text())


def test_the_dataset_names_folders_and_files_that_exist(exported: tuple[Path, HouseSpec]) -> None:
    path, spec = exported
    dataset = read(path)
    assert path.name == f"{spec.name}.scene_dataset_config.json"
    for group in ("stages", "objects", "scene_instances"):
        for folder in dataset[group]["paths"][".json"]:
            assert (path.parent / folder).is_dir()
    (label,) = dataset["semantic_scene_descriptor_instances"].values()
    assert (path.parent / label).is_file()


def test_the_scene_places_every_item_once(exported: tuple[Path, HouseSpec]) -> None:
    path, spec = exported
    scene = read(path.parent / "scenes" / f"{spec.name}.scene_instance.json")
    assert set(scene) == SCENE_KEYS
    stage = path.parent / f"{scene['stage_instance']['template_name']}.stage_config.json"
    assert stage.is_file()
    dataset = read(path)
    assert scene["semantic_scene_instance"] in dataset["semantic_scene_descriptor_instances"]
    items = [*spec.furniture, *spec.objects]
    assert len(scene["object_instances"]) == len(items)
    for instance, item in zip(scene["object_instances"], items):
        assert set(instance) == INSTANCE_KEYS
        assert instance["translation"] == [float(x) for x in item.position]
        assert all(isinstance(x, float) for x in instance["translation"])
        w, *axis = instance["rotation"]
        front, u = np.array([0.0, 0.0, -1.0]), np.array(axis)
        turned = front + 2 * np.cross(u, np.cross(u, front) + w * front)
        assert np.allclose(turned, rotate(front, item.yaw), atol=1e-6)
        config = read(path.parent / f"{instance['template_name']}.object_config.json")
        kind = getattr(item, "category", None) or item.kind
        assert config["semantic_id"] == SEMANTIC_IDS[kind]


def test_all_meshes_are_well_formed_and_configs_say_where_up_is(
    exported: tuple[Path, HouseSpec],
) -> None:
    root = exported[0].parent
    configs = [*root.glob("stages/*.stage_config.json"), *root.glob("objects/*.object_config.json")]
    assert len(configs) > 20
    for path in configs:
        config = read(path)
        assert np.dot(config["up"], config["front"]) == 0
        assert config["up"] == [0, 1, 0] and config["front"] == [0, 0, -1]
        for key in ("render_asset", "collision_asset", "semantic_asset"):
            if key in config:
                check_glb((path.parent / config[key]).read_bytes())


def test_the_stage_is_floors_and_walls_without_a_ceiling(exported: tuple[Path, HouseSpec]) -> None:
    path, spec = exported
    surfaces = read_glb((path.parent / "stages" / f"{spec.name}.glb").read_bytes())
    points = np.concatenate([s.triangles.reshape(-1, 3) for s in surfaces])
    bounds = np.array([room.bounds for room in spec.rooms])
    assert np.allclose(points.min(axis=0)[[0, 2]], bounds[:, :2].min(axis=0), atol=1e-5)
    assert np.allclose(points.max(axis=0)[[0, 2]], bounds[:, 2:].max(axis=0), atol=1e-5)
    assert points[:, 1].max() == pytest.approx(spec.wall_height)
    area = 0.0
    for surface in surfaces:
        a, b, c = np.moveaxis(surface.triangles.astype(float), 1, 0)
        up = (surface.normals[:, 1] > 0.99) & (surface.triangles[:, :, 1].max(axis=1) > 2.0)
        area += 0.5 * np.linalg.norm(np.cross(b - a, c - a), axis=1)[up].sum()
    rooms = (bounds[:, 2] - bounds[:, 0]) * (bounds[:, 3] - bounds[:, 1])
    assert area < 0.15 * rooms.sum()  # the tops of the walls, nothing more


def test_stage_semantics_have_a_colour_per_label(exported: tuple[Path, HouseSpec]) -> None:
    path, spec = exported
    root = path.parent
    lines = (root / "semantics" / f"{spec.name}.semantic.txt").read_text().splitlines()
    labels = {}
    for line in lines[1:]:
        number, colour, name, _ = line.split(",")
        labels[tuple(bytes.fromhex(colour))] = (int(number), name.strip('"'))
    assert set(labels.values()) == {(1, "floor"), (2, "wall")}
    data = (root / "stages" / f"{spec.name}.semantic.glb").read_bytes()
    document = check_glb(data)
    binary = data[-document["buffers"][0]["byteLength"] :]
    found = set()
    for primitive in document["meshes"][0]["primitives"]:
        colours = values(document, primitive["attributes"]["COLOR_0"], binary)
        for row in np.unique(colours, axis=0):
            # Habitat takes vertex colours for linear light.
            found.add(tuple(round(255 * x) for x in linear_to_srgb(row[:3] / 255)))
    assert found == set(labels)
    assert read(root / "semantics" / "ids.json") == SEMANTIC_IDS


def test_baked_shading_keeps_all_triangles_and_dims_what_faces_down() -> None:
    plain = item_surfaces("coffee_table", "white")
    shaded = baked(plain)
    assert sum(len(s.triangles) for s in shaded) == sum(len(s.triangles) for s in plain)
    bright = [s for s in shaded if (s.normals[:, 1] > 0.9).all()]
    dark = [s for s in shaded if (s.normals[:, 1] < -0.9).any()]
    assert min(s.colour[0] for s in bright) > 1.3 * max(s.colour[0] for s in dark)


def test_colours_are_written_as_they_show(exported: tuple[Path, HouseSpec]) -> None:
    """Habitat's flat shader shows base colours as they are: no conversion to linear light."""
    data = exported[0].parent / "objects" / "duck.glb"
    if not data.exists():
        data = next(iter((exported[0].parent / "objects").glob("*.glb")))
    document = check_glb(data.read_bytes())
    factors = [m["pbrMetallicRoughness"]["baseColorFactor"][:3] for m in document["materials"]]
    read_back = [s.colour for s in read_glb(data.read_bytes())]
    assert np.allclose([linear_to_srgb(f) for f in factors], read_back, atol=1e-6)
