"""Floor plans: rooms, doorways and objects are where they should be, and splits never share one."""

from __future__ import annotations

from collections import deque

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from embodied_icrl.common.errors import ConfigError
from embodied_icrl.envs.grid_layout import (
    SPLIT_SHARES,
    Layout,
    floor_plan,
    make_layout,
    room_capacity,
    split_of,
)


def regions(free: np.ndarray) -> int:
    """Number of connected parts of a bool grid."""
    left = {(int(r), int(c)) for r, c in np.argwhere(free)}
    count = 0
    while left:
        count += 1
        queue = deque([left.pop()])
        while queue:
            r, c = queue.popleft()
            for cell in ((r + 1, c), (r - 1, c), (r, c + 1), (r, c - 1)):
                if cell in left:
                    left.remove(cell)
                    queue.append(cell)
    return count


@st.composite
def plans(draw):
    size = draw(st.integers(3, 15))
    min_room = draw(st.integers(1, 3))
    most = room_capacity(size, size, min_room)
    n_rooms = draw(st.integers(1, max(1, min(9, most))))
    return size, n_rooms, min_room, np.random.default_rng(draw(st.integers(0, 2**32)))


@given(plans())
@settings(deadline=None)
def test_rooms_are_as_many_as_asked_and_all_connected(plan):
    size, n_rooms, min_room, rng = plan
    walls, doors = floor_plan(rng, size, n_rooms, min_room)
    assert not (walls & doors).any()
    assert doors.sum() == n_rooms - 1
    assert regions(~walls & ~doors) == n_rooms
    assert regions(~walls) == 1


@given(plans())
@settings(deadline=None)
def test_rooms_are_wide_enough_and_doorways_lead_through_walls(plan):
    size, n_rooms, min_room, rng = plan
    walls, doors = floor_plan(rng, size, n_rooms, min_room)
    room = np.pad(~walls & ~doors, 1)
    for row, column in np.argwhere(doors) + 1:
        across = room[row - 1, column] and room[row + 1, column]
        along = room[row, column - 1] and room[row, column + 1]
        assert across != along
    if n_rooms > 1:
        for lines in (room[1:-1], room.T[1:-1]):
            for line in lines:
                edges = np.flatnonzero(np.diff(line.astype(int)))
                assert all(edges[1::2] - edges[::2] >= min_room)


def draw_layout(split, seed, **changes):
    options = {"size": 9, "n_rooms": 2, "n_types": 4, **changes}
    return make_layout(np.random.default_rng(seed), split, **options)


@given(st.sampled_from(sorted(SPLIT_SHARES)), st.integers(0, 2**32), st.integers(1, 3))
@settings(deadline=None)
def test_objects_lie_apart_on_the_floors_of_rooms(split, seed, instances):
    layout = draw_layout(split, seed, n_rooms=3, instances=instances)
    placed = layout.objects >= 0
    assert not (placed & (layout.walls | layout.doors)).any()
    assert np.bincount(layout.objects[placed]).tolist() == [instances] * 4


@pytest.mark.parametrize("split", SPLIT_SHARES)
def test_a_house_belongs_to_the_split_it_was_made_for(split):
    assert {split_of(draw_layout(split, seed)) for seed in range(100)} == {split}


def test_splits_share_no_house_even_where_few_are_possible():
    """Two objects on 9 cells make 72 houses: each is in one split only."""
    houses = {}
    for split in SPLIT_SHARES:
        tiny = [draw_layout(split, seed, size=3, n_rooms=1, n_types=2) for seed in range(400)]
        houses[split] = {layout.objects.tobytes() for layout in tiny}
    sets = list(houses.values())
    assert sum(map(len, sets)) == len(set.union(*sets)) == 72


def test_a_split_without_houses_is_an_error():
    """There is only one house with one cell: two of the three splits have none."""
    still = np.zeros((1, 1), dtype=bool)
    owner = split_of(Layout(still, still, np.zeros((1, 1), dtype=np.int8)))
    draw_layout(owner, 0, size=1, n_rooms=1, n_types=1)
    for split in set(SPLIT_SHARES) - {owner}:
        with pytest.raises(ConfigError, match="raise size"):
            draw_layout(split, 0, size=1, n_rooms=1, n_types=1)


def test_shares_of_the_splits():
    """Of all houses, 60, 20 and 20% belong to training, validation and test."""
    rng = np.random.default_rng(0)
    found = []
    for _ in range(2000):
        walls, doors = floor_plan(rng, 9, 2, 2)
        objects = np.full((9, 9), -1, dtype=np.int8)
        objects.flat[rng.permutation(np.flatnonzero(~(walls | doors)))[:4]] = range(4)
        found.append(split_of(Layout(walls, doors, objects)))
    for split, share in (("train", 0.6), ("validation", 0.2), ("test", 0.2)):
        assert abs(found.count(split) / 2000 - share) < 0.04


def test_every_possible_cut_is_drawn():
    rng = np.random.default_rng(0)
    drawn = {floor_plan(rng, 9, 2, 2)[0].tobytes() for _ in range(2000)}
    assert len(drawn) == 2 * 5 * 9  # directions, lines, doorways
