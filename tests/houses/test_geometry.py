"""Boxes, sight lines, walls and free space against slow and simple versions of themselves."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from embodied_icrl.houses.frames import (
    cosine_sine,
    house_quaternion,
    mujoco_quaternion,
    rotate,
    to_mujoco,
)
from embodied_icrl.houses.free_space import (
    FreeSpace,
    bits_of,
    block,
    empty_map,
    flood,
    free_space,
    mask_of,
)
from embodied_icrl.houses.geometry import Boxes, blocked_rays, overlaps, wall_pieces
from embodied_icrl.houses.room_space import turned
from embodied_icrl.houses.spec import Doorway, HouseSpec, Room

coordinates = st.floats(-1, 1)
sizes = st.floats(0.1, 0.8)
yaws = st.one_of(st.sampled_from([0.0, 90.0, 180.0, 270.0]), st.floats(0, 360))


@st.composite
def boxes(draw: st.DrawFn) -> Boxes:
    centre = np.array([[draw(coordinates) for _ in range(3)]])
    half = np.array([[draw(sizes) for _ in range(3)]])
    return Boxes(centre, half, np.array([draw(yaws)]))


def inside(box: Boxes, points: np.ndarray, margin: float) -> np.ndarray:
    local = rotate(points - box.centre[0], -float(box.yaw[0]))
    return np.all(np.abs(local) < box.half[0] + margin, axis=-1)


def grid_in(box: Boxes, n: int = 15) -> np.ndarray:
    """Points of a grid that fills a box, faces included."""
    line = np.linspace(-1, 1, n)
    cube = np.stack(np.meshgrid(line, line, line), axis=-1).reshape(-1, 3)
    return rotate(cube * box.half[0], float(box.yaw[0])) + box.centre[0]


@given(boxes(), boxes())
@settings(max_examples=60)
def test_overlap_agrees_with_points_inside_both(a: Boxes, b: Boxes) -> None:
    found = bool(overlaps(a, b)[0, 0])
    if inside(b, grid_in(a), -0.01).any():
        assert found
    assert found == bool(overlaps(b, a)[0, 0])
    if found:
        assert inside(b, grid_in(a), 0.12).any()


@given(boxes(), st.tuples(*[st.floats(-3, 3)] * 6))
@settings(max_examples=60)
def test_a_sight_line_is_blocked_where_its_points_are_in_a_box(box: Boxes, ends: tuple) -> None:
    start, end = np.array([ends[:3]]), np.array([ends[3:]])
    way = start + np.linspace(0, 0.99, 400)[:, None] * (end - start)
    blocked = bool(blocked_rays(start, end, box)[0])
    if inside(box, way, -1e-6).any():
        assert blocked
    if blocked:
        assert inside(box, way, 0.03).any()


@given(st.integers(1, 12), st.integers(1, 12), st.integers(0, 2**32 - 1))
def test_flood_agrees_with_a_search(rows: int, columns: int, seed: int) -> None:
    mask = np.random.default_rng(seed).random((rows, columns)) < 0.65
    assert np.array_equal(mask_of(bits_of(mask), mask.shape), mask)
    space = FreeSpace(0.0, 0.0, 1.0, mask)
    left, regions = {(int(r), int(c)) for r, c in np.argwhere(mask)}, []
    while left:
        queue = [left.pop()]
        region = set(queue)
        while queue:
            r, c = queue.pop()
            for cell in ((r + 1, c), (r - 1, c), (r, c + 1), (r, c - 1)):
                if cell in left:
                    left.remove(cell)
                    region.add(cell)
                    queue.append(cell)
        regions.append(region)
    for region in regions:
        start = np.zeros_like(mask)
        start[next(iter(region))] = True
        found = mask_of(flood(bits_of(mask), bits_of(start), columns), mask.shape)
        assert {(int(r), int(c)) for r, c in np.argwhere(found)} == region
    assert space.main_region().sum() == max(map(len, regions), default=0)


@given(boxes(), st.floats(0.1, 0.5))
@settings(max_examples=40)
def test_blocked_cells_are_those_nearer_than_the_radius(box: Boxes, radius: float) -> None:
    space = empty_map((-2.5, -2.5, 2.5, 2.5), 0.1)
    block(space, box, radius)
    points = space.points(np.ones_like(space.free))
    flat = np.stack([points[:, 0], np.zeros(len(points)), points[:, 1]], axis=1)
    local = np.abs(rotate(flat - box.centre[0] * [1, 0, 1], -float(box.yaw[0])))
    gap = np.maximum(local - box.half[0], 0)
    distance = np.hypot(gap[:, 0], gap[:, 2])
    clear = np.abs(distance - radius) > 1e-6
    assert np.array_equal(space.free.reshape(-1)[clear], (distance >= radius)[clear])


def test_walls_have_the_openings_of_their_doorways() -> None:
    a = Room("a", "living", (0.0, 0.0, 4.0, 3.0))
    b = Room("b", "study", (4.0, 0.0, 7.0, 3.0))
    spec = HouseSpec(rooms=(a, b), doorways=(Doorway(("a", "b"), (4.0, 1.5), 1.0, 2.0),))
    pieces = wall_pieces(spec)

    def solid(x: float, y: float, z: float) -> bool:
        p = np.array([x, y, z])
        return any(np.all(p > piece.low) and np.all(p < piece.high) for piece in pieces)

    for x in (3.975, 4.025):
        assert not solid(x, 1.0, 1.5) and not solid(x, 1.9, 1.05)
        assert solid(x, 1.0, 0.9) and solid(x, 1.0, 2.1)
        assert solid(x, 2.2, 1.5)
    assert solid(2.0, 1.0, 0.02) and solid(6.975, 2.0, 1.5)
    assert not solid(2.0, 1.0, 1.5)
    region = free_space(spec).main_region()
    assert region[free_space(spec).index(1.0, 1.0)] and region[free_space(spec).index(6.0, 2.0)]
    closed = HouseSpec(rooms=(a, b))
    space = free_space(closed)
    region = space.main_region()
    assert region[space.index(1.0, 1.0)] and not region[space.index(6.0, 2.0)]


@given(st.tuples(*[st.floats(-5, 5)] * 3), st.floats(-720, 720))
def test_turning_agrees_in_both_frames(point: tuple, yaw: float) -> None:
    p = np.array(point)
    for frame, quaternion in ((lambda v: v, house_quaternion), (to_mujoco, mujoco_quaternion)):
        w, *axis = quaternion(yaw)
        u, v = np.array(axis), frame(p)
        turned_there = v + 2 * np.cross(u, np.cross(u, v) + w * v)
        assert np.allclose(turned_there, frame(rotate(p, yaw)), atol=1e-9)


@pytest.mark.parametrize("yaw", [0, 90, 180, 270, 360])
def test_quarter_turns_are_exact(yaw: int) -> None:
    c, s = cosine_sine(float(yaw))
    assert {abs(float(c)), abs(float(s))} == {0.0, 1.0}
    x, _, z = rotate(np.array([0.3, 0.0, 0.7]), float(yaw))
    assert turned(0.3, 0.7, yaw) == (x, z)


def test_at_yaw_90_the_front_points_to_minus_x() -> None:
    assert np.array_equal(rotate(np.array([0.0, 0.0, -1.0]), 90.0), [-1.0, 0.0, 0.0])
