"""Moves, distances and occlusion in grid houses, against slow and plain versions."""

from __future__ import annotations

from collections import deque

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from embodied_icrl.envs.grid_layout import floor_plan, make_layout
from embodied_icrl.envs.grid_vision import (
    DOOR,
    FAR,
    FIRST_TYPE,
    FREE,
    UNSEEN,
    WALL,
    LocalView,
    distance_table,
    move_table,
)


def random_walls(seed: int, houses: int = 3, size: int = 7) -> np.ndarray:
    return np.random.default_rng(seed).random((houses, size, size)) < 0.3


def plain_distances(walls: np.ndarray, goals: list[tuple[int, int]]) -> np.ndarray:
    distance = np.full(walls.shape, FAR)
    queue = deque()
    for goal in goals:
        distance[goal] = 0
        queue.append(goal)
    while queue:
        r, c = queue.popleft()
        for y, x in ((r + 1, c), (r - 1, c), (r, c + 1), (r, c - 1)):
            inside = 0 <= y < walls.shape[0] and 0 <= x < walls.shape[1]
            if inside and not walls[y, x] and distance[y, x] == FAR:
                distance[y, x] = distance[r, c] + 1
                queue.append((y, x))
    return distance


@given(st.integers(0, 10**6))
@settings(deadline=None)
def test_distances_equal_a_breadth_first_search(seed):
    walls = random_walls(seed)
    rng = np.random.default_rng(seed + 1)
    goals = (rng.random((3, 2, 7, 7)) < 0.06) & ~walls[:, None]
    table = distance_table(walls, goals)
    for house in range(3):
        for kind in range(2):
            places = [tuple(place) for place in np.argwhere(goals[house, kind])]
            expected = plain_distances(walls[house], places)
            np.testing.assert_array_equal(table[house, kind].reshape(7, 7), expected)


@given(st.integers(0, 10**6))
@settings(deadline=None)
def test_moves_stop_at_walls_and_at_the_edge(seed):
    walls = random_walls(seed)
    table = move_table(walls)
    for house in range(3):
        for cell in range(49):
            r, c = divmod(cell, 7)
            for move, (y, x) in enumerate(((r - 1, c), (r + 1, c), (r, c - 1), (r, c + 1))):
                free = 0 <= y < 7 and 0 <= x < 7 and not walls[house, y, x]
                assert table[house, cell, move] == (y * 7 + x if free else cell)


def view_of(walls, cell, view_size=5, doors=None, objects=None):
    size = len(walls)
    doors = np.zeros_like(walls) if doors is None else doors
    objects = np.full(walls.shape, -1, dtype=np.int8) if objects is None else objects
    table = LocalView(size, view_size).table(walls[None], doors[None], objects[None])
    return table[0, cell[0] * size + cell[1]].reshape(view_size, view_size)


def picture(text: str) -> np.ndarray:
    return np.array([[char == "#" for char in line] for line in text.split()])


def test_an_open_floor_is_seen_whole():
    view = view_of(np.zeros((9, 9), dtype=bool), (4, 4), view_size=7)
    assert (view == FREE).all()


def test_outside_is_wall_and_nothing_behind_it():
    view = view_of(np.zeros((9, 9), dtype=bool), (0, 1))
    assert (view[0] == UNSEEN).all()
    assert (view[1] == WALL).all()
    assert view[2].tolist() == [WALL, FREE, FREE, FREE, FREE]


def test_a_wall_hides_the_room_behind_it_but_a_doorway_shows_it():
    walls = picture("....... ....... ....... ####### ....... ....... .......")
    shut = view_of(walls, (2, 3))
    assert (shut[3] == WALL).all() and (shut[4] == UNSEEN).all() and (shut[:3] == FREE).all()
    doors = np.zeros_like(walls)
    walls[3, 3], doors[3, 3] = False, True
    ajar = view_of(walls, (2, 3), doors=doors)
    assert ajar[3].tolist() == [WALL, WALL, DOOR, WALL, WALL]
    assert ajar[4].tolist() == [UNSEEN, FREE, FREE, FREE, UNSEEN]


def test_a_pillar_hides_the_cell_behind_it_only():
    walls = picture("....... ....... ...#... ....... ....... ....... .......")
    view = view_of(walls, (3, 3))
    assert view[1, 2] == WALL and view[0, 2] == UNSEEN
    assert (view == UNSEEN).sum() == 1


def test_objects_are_seen_only_where_nothing_hides_them():
    walls = picture("....... ....... ....... ####### ....... ....... .......")
    objects = np.full((7, 7), -1, dtype=np.int8)
    objects[1, 2], objects[4, 3] = 1, 2
    view = view_of(walls, (2, 3), objects=objects)
    assert view[1, 1] == FIRST_TYPE + 1
    assert (view == FIRST_TYPE + 2).sum() == 0


@given(st.integers(0, 10**6), st.sampled_from([3, 5, 7, 9]))
@settings(deadline=None, max_examples=30)
def test_sight_is_symmetric_and_shows_what_is_there(seed, view_size):
    size, half = 7, view_size // 2
    walls = random_walls(seed, houses=1)
    objects = np.where(walls, -1, np.random.default_rng(seed).integers(-1, 3, walls.shape))
    table = LocalView(size, view_size).table(walls, np.zeros_like(walls), objects.astype(np.int8))
    views = table[0].reshape(size, size, view_size, view_size)
    free = [tuple(cell) for cell in np.argwhere(~walls[0])]
    for r, c in free:
        assert views[r, c, half, half] != UNSEEN
        for y, x in free:
            if max(abs(r - y), abs(c - x)) <= half:
                there = views[r, c, y - r + half, x - c + half]
                back = views[y, x, r - y + half, c - x + half]
                assert (there == UNSEEN) == (back == UNSEEN)
                kind = objects[0, y, x]
                assert there in (UNSEEN, FIRST_TYPE + kind if kind >= 0 else FREE)


@given(st.integers(0, 10**6), st.integers(2, 6))
@settings(deadline=None, max_examples=30)
def test_no_sight_through_closed_walls(seed, n_rooms):
    """With all doorways bricked up, nothing of another room is seen from inside a room."""
    walls, doors = floor_plan(np.random.default_rng(seed), 9, n_rooms, 1)
    walls = walls | doors
    table = LocalView(9, 7).table(
        walls[None], np.zeros_like(walls)[None], np.full((1, 9, 9), -1, dtype=np.int8)
    )
    for cell in np.argwhere(~walls):
        reach = plain_distances(walls, [tuple(cell)])
        view = table[0, cell[0] * 9 + cell[1]].reshape(7, 7)
        for r, c in np.argwhere(view == FREE) + cell - 3:
            assert reach[r, c] != FAR


def test_tables_of_one_house_do_not_depend_on_the_others():
    rng = np.random.default_rng(0)
    houses = [make_layout(rng, "train", size=9, n_rooms=3, n_types=4) for _ in range(4)]
    vision = LocalView(9, 5)
    stacked = [np.stack([getattr(h, key) for h in houses]) for key in ("walls", "doors", "objects")]
    together = vision.table(*stacked)
    alone = vision.table(*(part[2:3] for part in stacked))
    np.testing.assert_array_equal(together[2], alone[0])
