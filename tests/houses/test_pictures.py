"""Pictures show the house: right colours at right places, with and without OpenGL."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest

from embodied_icrl.common.errors import MissingDependencyError
from embodied_icrl.houses import gl
from embodied_icrl.houses.materials import rgb
from embodied_icrl.houses.mujoco_export import mujoco_spec
from embodied_icrl.houses.spec import Furniture, HouseObject, HouseSpec, Room
from embodied_icrl.houses.top_down import WALL, top_down
from embodied_icrl.houses.view import (
    Camera,
    cast,
    first_person,
    interesting_camera,
    pixel_rays,
    ray_picture,
    rendered,
)
from tests.houses.samples import house

ROOM = Room("r", "living", (0.0, 0.0, 6.0, 4.0), "#204060", "#c0a080")
BED = Furniture("bed_0", "bed", "double_bed", "r", (3.0, 0.0, 2.0), 90.0, "#ff0000")
BALL = HouseObject("ball_0", "ball", "ball", "r", (1.0, 0.0, 1.0))
SMALL = HouseSpec(rooms=(ROOM,), furniture=(BED,), objects=(BALL,))


def test_the_map_has_everything_in_its_place() -> None:
    picture = top_down(SMALL, 50, labels=False)

    def colour(x: float, z: float) -> np.ndarray:
        column, row = picture.pixel(x, z)
        return picture.image[int(row), int(column)].astype(int)

    assert np.abs(colour(5.5, 3.5) - rgb(ROOM.floor)).max() < 8
    assert np.abs(colour(0.02, 2.0) - WALL).max() < 30
    red, pillow = colour(2.6, 2.0), colour(3.7, 1.6)
    assert red[0] > 200 and red[1] < 60  # the duvet is at the foot, which points to -x
    assert pillow.min() > 200
    assert colour(1.0, 1.0)[2] > colour(1.0, 1.0)[0]  # the ball's blue top
    assert np.abs(colour(-0.2, -0.2) - 248).max() < 5


def test_labels_leave_the_map_its_size() -> None:
    spec = house(7, 4)
    plain, labelled = top_down(spec, labels=False).image, top_down(spec).image
    assert plain.shape == labelled.shape
    assert (plain != labelled).any()


def test_a_camera_sees_what_is_ahead_and_not_what_is_behind() -> None:
    model = mujoco_spec(SMALL).compile()
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    ball = model.body("object/ball_0").id
    for yaw, seen in ((90.0, True), (270.0, False)):
        camera = Camera((2.5, 0.3, 1.0), yaw, -5.0)
        geom, distance, _ = cast(model, data, camera, pixel_rays(model, camera, 33, 33))
        hit = model.geom_bodyid[geom] == ball
        assert hit.any() == seen
        if seen:
            assert 1.3 < distance[hit].min() < 1.45
            columns = np.nonzero(hit.reshape(33, 33))[1]
            assert abs(columns.mean() - 16) < 1


def test_a_picture_from_rays_looks_like_a_rendered_one() -> None:
    model = mujoco_spec(SMALL).compile()
    camera = Camera((5.3, 1.2, 3.4), 60.0, -20.0)
    rays = ray_picture(model, camera, 96, 72)
    try:
        render = rendered(model, camera, 96, 72)
    except MissingDependencyError as error:
        pytest.skip(str(error))
    assert rays.shape == render.shape == (72, 96, 3)
    assert rays.dtype == render.dtype == np.uint8
    differences = np.abs(rays.astype(int) - render.astype(int)).mean(axis=-1)
    assert np.median(differences) < 25
    for picture in (rays, render):
        red = (picture[..., 0] > 120) & (picture[..., 1] < 70) & (picture[..., 2] < 70)
        assert 50 < red.sum() < 2000


def test_without_opengl_a_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gl.ctypes.util, "find_library", lambda name: None)
    monkeypatch.delenv("MUJOCO_GL", raising=False)
    model = mujoco_spec(SMALL).compile()
    camera = Camera((5.3, 1.2, 3.4), 60.0)
    picture, remark = first_person(model, camera, 32, 24)
    assert np.array_equal(picture, ray_picture(model, camera, 32, 24))
    assert "drawn from rays" in remark and "apt-get install libegl1 libgl1" in remark
    assert "\n" not in remark


def test_the_chosen_view_shows_several_things() -> None:
    spec = house(7, 4)
    model = mujoco_spec(spec).compile()
    camera = interesting_camera(spec, model)
    assert camera == interesting_camera(spec, model)
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    geom, _, _ = cast(model, data, camera, pixel_rays(model, camera, 64, 48))
    things = set(model.geom_bodyid[geom[geom >= 0]].tolist()) - {0}
    assert len(things) >= 4
