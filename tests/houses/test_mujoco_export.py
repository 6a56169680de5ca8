"""The MuJoCo model of a house is the house: same places, same things, same sight lines."""

from __future__ import annotations

import time
from pathlib import Path

import mujoco
import numpy as np
import pytest

from embodied_icrl.houses.catalogue import SEMANTIC_IDS
from embodied_icrl.houses.frames import to_mujoco
from embodied_icrl.houses.free_space import free_space
from embodied_icrl.houses.generate import HouseConfig, generate_house
from embodied_icrl.houses.geometry import item_boxes, join_boxes, wall_boxes
from embodied_icrl.houses.models import model_extent
from embodied_icrl.houses.mujoco_export import geom_semantics, mujoco_spec, write_mjcf
from embodied_icrl.houses.spec import CAMERA_AHEAD, CAMERA_HEIGHT
from embodied_icrl.houses.view import Camera, cast, pixel_rays
from embodied_icrl.houses.visibility import views_of
from tests.houses.samples import house


def test_every_geom_knows_what_it_belongs_to() -> None:
    spec = house(7, 5)
    model = mujoco_spec(spec).compile()
    semantic, index = geom_semantics(model)
    assert model.nbody == 1 + len(spec.furniture) + len(spec.objects)
    for i, item in enumerate(spec.objects):
        geoms = np.nonzero(model.geom_bodyid == model.body(f"object/{item.name}").id)[0]
        assert len(geoms) and (index[geoms] == i).all()
        assert (semantic[geoms] == SEMANTIC_IDS[item.category]).all()
    for item in spec.furniture:
        geoms = np.nonzero(model.geom_bodyid == model.body(f"furniture/{item.name}").id)[0]
        assert (semantic[geoms] == SEMANTIC_IDS[item.kind]).all() and (index[geoms] == -1).all()
    floors = [model.geom(f"floor/{room.name}").id for room in spec.rooms]
    assert (semantic[floors] == SEMANTIC_IDS["floor"]).all()
    assert (semantic > 0).all()


def test_things_are_where_the_house_says() -> None:
    """A ray straight down onto an object hits it near its top."""
    spec = house(7, 5)
    model = mujoco_spec(spec).compile()
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    _, index = geom_semantics(model)
    hits = 0
    for i, item in enumerate(spec.objects):
        top = item.position[1] + float(model_extent(item.model)[1, 1])
        start = to_mujoco(np.array([item.position[0], top + 0.05, item.position[2]]))
        geom = np.zeros(1, dtype=np.int32)
        distance = mujoco.mj_ray(model, data, start, np.array([0.0, 0.0, -1.0]), None, 1, -1, geom)
        if index[geom[0]] == i:
            hits += 1
            assert distance < top + 0.06 - item.position[1]
    assert hits > 0.7 * len(spec.objects)  # the others stand in shelves or have an open top


@pytest.mark.parametrize("seed", [3, 8])
def test_what_the_generator_calls_visible_shows_ten_pixels(seed: int) -> None:
    """In the reference camera: 256 x 256, 90 degrees, tilted and turned in steps of 30 degrees."""
    spec = house(seed, 3)
    model = mujoco_spec(spec).compile()
    model.vis.global_.fovy = 90.0
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    _, index = geom_semantics(model)
    space = free_space(spec)
    region = space.main_region()
    boxes = [item_boxes(item) for item in (*spec.furniture, *spec.objects)]
    for i, item in enumerate(spec.objects):
        k = len(spec.furniture) + i
        around = join_boxes([wall_boxes(spec), *boxes[:k], *boxes[k + 1 :]])
        extent = model_extent(item.model)
        position = np.array(item.position)
        views = views_of(space, region, position, extent[1] - extent[0], around)
        assert len(views), item.name
        counts = []
        for x, z in views[:: max(1, len(views) // 3)]:
            heading = np.degrees(np.arctan2(x - position[0], z - position[2]))
            yaw = round(heading / 30) * 30
            ahead = CAMERA_AHEAD * np.array([-np.sin(np.radians(yaw)), -np.cos(np.radians(yaw))])
            eye = (x + ahead[0], CAMERA_HEIGHT, z + ahead[1])
            assert np.hypot(eye[0] - position[0], eye[2] - position[2]) <= 2.0
            best = 0
            for pitch in (-22.0, -52.0):
                camera = Camera(eye, yaw, pitch)
                geom, _, _ = cast(model, data, camera, pixel_rays(model, camera, 128, 128))
                best = max(best, int((index[geom[geom >= 0]] == i).sum()) * 4)
            counts.append(best)
        assert max(counts) >= 10, (item.name, counts)


def test_rays_at_foot_height_stop_at_what_the_map_calls_blocked() -> None:
    """From free points, nothing higher than a step is nearer than the agent's radius."""
    spec = house(8, 3)
    model = mujoco_spec(spec).compile()
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    space = free_space(spec)
    points = space.points(space.main_region())
    angles = np.radians(np.arange(0, 360, 10))
    rays = np.stack([np.cos(angles), np.sin(angles), np.zeros_like(angles)], axis=1)
    for x, z in points[:: max(1, len(points) // 60)]:
        for height in (0.1, 0.5, 1.0, 1.45):
            geom, distance, _ = cast(model, data, Camera((x, height, z), 0.0), rays)
            near = distance[geom >= 0]
            assert (near > 0.3 - 2e-3).all()


def test_the_written_model_loads_as_it_is(tmp_path: Path) -> None:
    spec = house(7, 2)
    path = write_mjcf(spec, tmp_path / "out")
    model = mujoco.MjModel.from_xml_path(str(path))
    plain = mujoco_spec(spec).compile()
    visible = model.geom_group < 4
    assert visible.sum() == plain.ngeom
    assert np.array_equal(model.geom_user[visible], plain.geom_user)
    assert np.allclose(model.geom_rgba[visible], plain.geom_rgba, atol=1e-5)


def test_with_collisions_a_ball_rests_on_a_table(tmp_path: Path) -> None:
    spec = generate_house(7, HouseConfig(n_rooms=2, n_objects=1))
    host = next(f for f in spec.furniture if f.kind in ("table", "coffee_table", "counter", "bed"))
    model = mujoco_spec(spec, collisions=True)
    above = to_mujoco(np.array(host.position) + [0.0, 1.6, 0.0])
    body = model.worldbody.add_body(name="probe", pos=above)
    body.add_freejoint()
    body.add_geom(type=mujoco.mjtGeom.mjGEOM_BOX, size=[0.05, 0.05, 0.05])
    compiled = model.compile()
    data = mujoco.MjData(compiled)
    for _ in range(600):
        mujoco.mj_step(compiled, data)
    height = float(data.body("probe").xpos[2])
    assert 0.3 < height < 1.0


def test_a_new_house_is_ready_in_a_fraction_of_a_second() -> None:
    start = time.process_time()
    count = 4
    for seed in range(100, 100 + count):
        mujoco_spec(generate_house(seed, HouseConfig(n_rooms=6))).compile()
    assert (time.process_time() - start) / count < 0.6  # 0.2 s on the machine of the README
