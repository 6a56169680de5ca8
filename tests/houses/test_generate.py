"""Generated houses are valid, the same everywhere, and never in two splits."""

from __future__ import annotations

import dataclasses
import hashlib
import subprocess
import sys
from collections import Counter

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from embodied_icrl.common.errors import ConfigError
from embodied_icrl.houses.catalogue import CATEGORIES, PLACES, SEMANTIC_IDS
from embodied_icrl.houses.check import check_house
from embodied_icrl.houses.free_space import free_space
from embodied_icrl.houses.furniture_models import FURNITURE_KINDS, FURNITURE_MODELS
from embodied_icrl.houses.generate import (
    HouseConfig,
    TooManyObjectsError,
    generate_house,
    house_seed,
    split_of,
)
from embodied_icrl.houses.json_io import house_text
from embodied_icrl.houses.plan import common_edge
from embodied_icrl.houses.spec import AGENT_RADIUS, ROOM_KINDS, HouseError, HouseSpec
from tests.houses.samples import house

# The first 16 hex digits of the SHA-256 of house files: these houses must never change by accident.
KNOWN = {
    (0, 1): "69b8aa087aff6282",
    (7, 4): "1936edac198982e1",
    (12345, 8): "9053c0d84288cc2c",
}


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@example(19866, 4)  # an object once lay over the gap between two cushions
@given(st.integers(0, 10**9), st.integers(1, 12))
@settings(max_examples=10, suppress_health_check=[HealthCheck.too_slow])
def test_every_house_is_valid_and_has_what_was_asked_for(seed: int, n_rooms: int) -> None:
    spec = generate_house(seed, HouseConfig(n_rooms=n_rooms))
    check_house(spec)
    assert len(spec.rooms) == n_rooms
    assert len(spec.objects) == 4 * n_rooms
    assert spec.seed == seed


SHARES = st.sampled_from([0.0, 0.25, 0.5, 1.0]) | st.floats(0.0, 1.0)
CONFIGS = st.integers(1, 8).flatmap(
    lambda n_rooms: st.builds(
        HouseConfig,
        n_rooms=st.just(n_rooms),
        n_objects=st.integers(1, 4 * n_rooms),
        categories=st.lists(st.sampled_from(CATEGORIES), unique=True).map(tuple),
        floor_share=SHARES,
        density=SHARES,
    )
)


def check_options_are_kept(seed: int, config: HouseConfig) -> None:
    try:
        spec = generate_house(seed, config)
    except TooManyObjectsError:
        return  # small rooms, many objects
    check_house(spec)
    assert len(spec.rooms) == config.n_rooms
    assert len(spec.objects) == config.n_objects
    assert {item.category for item in spec.objects} <= set(config.categories or CATEGORIES)
    if config.floor_share == 0.0:
        kinds = {item.kind for item in spec.furniture}
        for item in spec.objects:
            assert item.receptacle or kinds.isdisjoint(PLACES[item.category].receptacles)


@given(st.integers(0, 10**9), CONFIGS)
@settings(max_examples=12, suppress_health_check=[HealthCheck.too_slow])
def test_every_house_is_valid_whatever_is_asked_for(seed: int, config: HouseConfig) -> None:
    check_options_are_kept(seed, config)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@given(st.integers(0, 10**9), CONFIGS)
@settings(max_examples=200, suppress_health_check=[HealthCheck.too_slow])
def test_hundreds_of_houses_are_valid_whatever_is_asked_for(seed: int, config: HouseConfig) -> None:
    check_options_are_kept(seed, config)


def test_a_house_that_fails_the_check_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    config, tried = HouseConfig(n_rooms=1, n_objects=2), []

    def fails_once(spec: HouseSpec) -> None:
        tried.append(spec)
        if len(tried) == 1:
            raise HouseError("objects[0].position: 'mug_0' can't be reached")

    monkeypatch.setattr("embodied_icrl.houses.generate.check_house", fails_once)
    assert generate_house(5, config) == tried[1] != tried[0]

    def fails(spec: HouseSpec) -> None:
        raise HouseError("objects[0].position: 'mug_0' can't be reached")

    monkeypatch.setattr("embodied_icrl.houses.generate.check_house", fails)
    with pytest.raises(TooManyObjectsError, match=r"in house 5 .*'mug_0' can't be reached\): ask"):
        generate_house(5, config)


@given(st.integers(0, 10**6), st.integers(1, 12))
@settings(max_examples=6, suppress_health_check=[HealthCheck.too_slow])
def test_the_agent_walks_from_any_room_to_any_other(seed: int, n_rooms: int) -> None:
    """A plain search over a grid of its own, without the bit sets of the generator."""
    spec = generate_house(seed, HouseConfig(n_rooms=n_rooms, n_objects=1))
    space = free_space(spec, radius=AGENT_RADIUS, cell=0.1)
    left = {(int(r), int(c)) for r, c in np.argwhere(space.free)}
    rooms = {room.name: 0 for room in spec.rooms}
    best: dict[str, int] = {}
    while left:
        queue, reached = [left.pop()], Counter(rooms)
        while queue:
            row, column = queue.pop()
            x, z = space.x0 + (column + 0.5) * space.cell, space.z0 + (row + 0.5) * space.cell
            for room in spec.rooms:
                x0, z0, x1, z1 = room.bounds
                reached[room.name] += x0 < x < x1 and z0 < z < z1
            for step in ((1, 0), (-1, 0), (0, 1), (0, -1)):
                cell = (row + step[0], column + step[1])
                if cell in left:
                    left.remove(cell)
                    queue.append(cell)
        best = max(best, dict(reached), key=lambda region: sum(region.values()))
    assert all(best[room.name] > 0 for room in spec.rooms)


def test_rooms_fill_the_plan_and_doorways_lie_on_common_edges() -> None:
    for seed in range(6):
        spec = house(seed, 7)
        areas = [(r.bounds[2] - r.bounds[0]) * (r.bounds[3] - r.bounds[1]) for r in spec.rooms]
        bounds = np.array([room.bounds for room in spec.rooms])
        whole = np.prod(bounds[:, 2:].max(axis=0) - bounds[:, :2].min(axis=0))
        assert sum(areas) == pytest.approx(whole)
        assert {room.kind for room in spec.rooms} <= set(ROOM_KINDS)
        for door in spec.doorways:
            edge = common_edge(spec.room(door.rooms[0]).bounds, spec.room(door.rooms[1]).bounds)
            assert edge is not None
            assert door.width >= 0.9


def test_there_are_enough_kinds_and_categories_and_houses_use_them() -> None:
    assert len(FURNITURE_KINDS) >= 15
    assert len(CATEGORIES) >= 20
    assert set(PLACES) == set(CATEGORIES)
    assert len(set(SEMANTIC_IDS.values())) == len(SEMANTIC_IDS)
    kinds, categories, floor = Counter(), Counter(), 0
    for seed in range(6):
        spec = house(seed, 7)
        kinds.update(item.kind for item in spec.furniture)
        categories.update(item.category for item in spec.objects)
        floor += sum(item.receptacle is None for item in spec.objects)
    assert len(kinds) >= 20
    assert set(categories) == set(CATEGORIES)
    assert 10 < floor < 80


def test_every_category_has_surfaces_that_can_hold_it() -> None:
    surfaces = {model.kind for model in FURNITURE_MODELS.values() if model.surfaces}
    for category, places in PLACES.items():
        assert set(places.receptacles) <= surfaces, category
        assert set(places.floors) <= set(ROOM_KINDS), category
        assert places.receptacles or places.floors, category


def test_objects_lie_where_their_category_belongs() -> None:
    spec = house(3, 7)
    furniture = {item.name: item for item in spec.furniture}
    for item in spec.objects:
        if item.receptacle is None:
            assert spec.room(item.room).kind in PLACES[item.category].floors
        else:
            assert furniture[item.receptacle].kind in PLACES[item.category].receptacles


def test_houses_are_the_same_on_every_machine() -> None:
    found = {key: digest(house_text(house(*key))) for key in KNOWN}
    assert found == KNOWN


def test_another_process_generates_the_same_house() -> None:
    code = (
        "from embodied_icrl.houses.generate import *; from embodied_icrl.houses.json_io import *;"
        "print(house_text(generate_house(21, HouseConfig(n_rooms=5))), end='')"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout == house_text(house(21, 5))


def test_neighbouring_seeds_are_different_houses() -> None:
    texts = {
        house_text(dataclasses.replace(house_of, seed=None, name=""))
        for house_of in (generate_house(seed, HouseConfig(n_rooms=2)) for seed in range(40))
    }  # fmt: skip
    assert len(texts) == 40


@given(st.integers(0, 10**7), st.integers(0, 10**7))
def test_splits_never_share_a_seed(first: int, second: int) -> None:
    splits = ("train", "validation", "test")
    for split in splits:
        assert split_of(house_seed(split, first)) == split
        assert (house_seed(split, first) == house_seed(split, second)) == (first == second)


def test_all_seeds_belong_to_a_split_and_are_counted() -> None:
    numbered = {house_seed("train", i) for i in range(80)}
    numbered |= {house_seed(split, i) for split in ("validation", "test") for i in range(10)}
    assert numbered == set(range(100))


def test_options_shape_the_house() -> None:
    config = HouseConfig(n_rooms=3, n_objects=7, categories=("mug", "books"), floor_share=0.0)
    spec = generate_house(4, config)
    assert len(spec.objects) == 7
    assert {item.category for item in spec.objects} == {"mug", "books"}
    assert all(item.receptacle is not None for item in spec.objects)
    sparse = generate_house(4, HouseConfig(n_rooms=3, n_objects=1, density=0.5))
    assert len(sparse.furniture) < len(spec.furniture)
    sizes = {
        len(generate_house(s, HouseConfig(min_rooms=2, max_rooms=3, n_objects=2)).rooms)
        for s in range(12)
    }
    assert sizes == {2, 3}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_rooms": 13}, "n_rooms: use 1 to 12"),
        ({"n_rooms": 0}, "n_rooms: use 1 to 12"),
        ({"min_rooms": 5, "max_rooms": 4}, "min_rooms: 5 is more than max_rooms=4"),
        ({"n_objects": 0}, "n_objects"),
        ({"categories": ("mugg",)}, r"categories\[0\].*did you mean 'mug'"),
        ({"floor_share": 1.5}, "floor_share"),
    ],
)
def test_wrong_options_are_named(options: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        HouseConfig(**options)


def test_too_many_objects_are_refused_with_what_fits() -> None:
    with pytest.raises(ConfigError, match=r"n_objects: only \d+ of 60 .* house 2 with 1 rooms"):
        generate_house(2, HouseConfig(n_rooms=1, n_objects=60))
    with pytest.raises(ConfigError, match="seed"):
        generate_house(-1)
    with pytest.raises(ConfigError, match="available: train, validation, test"):
        house_seed("tset", 0)
