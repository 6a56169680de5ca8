"""House files: what is written is read back, and edits that break a house name the field."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from embodied_icrl.common.paths import assets_dir
from embodied_icrl.houses.json_io import house_from_dict, house_text, load_house, save_house
from embodied_icrl.houses.mujoco_export import mujoco_spec
from embodied_icrl.houses.spec import HouseError
from tests.houses.samples import house

Edit = Callable[[dict[str, Any]], None]


def edited(path: Path, edit: Edit) -> Path:
    """A house file with a change made by hand."""
    node = json.loads(house_text(house(4, 3)))
    edit(node)
    path.write_text(json.dumps(node))
    return path


def first(node: dict[str, Any], key: str, **wanted: Any) -> int:
    """The position of the first item with these values."""
    items = node[key]
    return next(i for i, x in enumerate(items) if all(x[k] == v for k, v in wanted.items()))


@given(st.integers(0, 30), st.integers(1, 4))
@settings(max_examples=6)
def test_a_file_holds_the_whole_house(seed: int, n_rooms: int) -> None:
    spec = house(seed, n_rooms)
    assert house_from_dict(json.loads(house_text(spec))) == spec


@pytest.mark.parametrize("name", ["my house-2.v1", "7", "x" * 100])
def test_a_house_may_be_called_what_a_file_may(tmp_path: Path, name: str) -> None:
    assert load_house(edited(tmp_path / "edited.json", put("name", name))).name == name


def test_a_saved_house_loads(tmp_path: Path) -> None:
    save_house(house(4, 3), tmp_path / "house.json")
    assert load_house(tmp_path / "house.json") == house(4, 3)


def put(path: str, value: Any) -> Edit:
    """An edit that sets `a.0.b` to a value."""

    def edit(node: dict[str, Any]) -> None:
        *parents, last = path.split(".")
        for part in parents:
            node = node[int(part)] if part.isdigit() else node[part]
        node[int(last) if last.isdigit() else last] = value  # type: ignore[index]

    return edit


def drop_doors(node: dict[str, Any]) -> None:
    node["doorways"] = []


def into_bed(node: dict[str, Any]) -> None:
    """A target on the floor where a bed stands."""
    bed = node["furniture"][first(node, "furniture", kind="bed")]
    x, _, z = bed["position"]
    node["objects"][0].update(
        category="books", model="books", room=bed["room"], position=[x, 0.0, z], receptacle=None
    )


def out_of_sight(node: dict[str, Any]) -> None:
    """A target on a wardrobe 2 m high, above the agent's eyes and far from its edges."""
    wardrobe = node["furniture"][first(node, "furniture", kind="wardrobe")]
    x, _, z = wardrobe["position"]
    node["objects"][0].update(
        category="bowl", model="bowl", room=wardrobe["room"], position=[x, 2.0, z],
        receptacle=wardrobe["name"],
    )  # fmt: skip


def twice(node: dict[str, Any]) -> None:
    node["objects"][1]["name"] = node["objects"][0]["name"]


def stacked(node: dict[str, Any]) -> None:
    chair = next(f for f in node["furniture"] if f["kind"] not in ("rug", "window", "picture"))
    node["furniture"].append({**chair, "name": "copy"})


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (put("format", 99), "format: 99"),
        (put("name", ""), "name: .* called ''"),
        (put("name", "../evil/x"), "name: .* called '../evil/x'.* a letter or a digit"),
        (put("name", "/tmp/x"), "name: .* called '/tmp/x'"),
        (put("name", ".hidden"), "name: .* called '.hidden'"),
        (put("name", "a\\b"), "name: .* called 'a"),
        (put("name", "two\nlines"), r"name: .* called 'two\\nlines'"),
        (put("name", "ends\n"), r"name: .* called 'ends\\n'"),
        (put("name", "x" * 101), "name: .* use 1 to 100 letters"),
        (put("rooms", []), "rooms: a house needs"),
        (put("rooms.0.kind", "bedrom"), r"rooms\[0\].kind: unknown 'bedrom'; .* 'bedroom'"),
        (put("rooms.0.bounds", [0, 0, 4]), r"rooms\[0\].bounds: expected 4 values"),
        (put("rooms.0.bounds", [3, 0, 0, 4]), r"rooms\[0\].bounds: x0, z0, x1, z1 must be"),
        (put("rooms.1.bounds", [0, 0, 30, 30]), r"rooms\[\d\].bounds: .* overlaps rooms"),
        (put("rooms.0.floor", "oaak"), r"rooms\[0\].floor: no colour 'oaak'"),
        (put("rooms.0.flor", "oak"), r"unknown key 'rooms\[0\].flor'; did you mean 'floor'"),
        (put("doorways.0.width", 0.5), r"doorways\[0\].width: the agent needs 0.75 m"),
        (put("doorways.0.height", 1.2), r"doorways\[0\].height"),
        (put("doorways.0.rooms", ["kitchen_0", "cellar"]), r"doorways\[0\].rooms\[1\]: unknown"),
        (put("doorways.0.position", [99, 99]), r"doorways\[0\].position: must lie on"),
        (put("furniture.2.kind", "sofas"), r"furniture\[2\].kind: unknown 'sofas'"),
        (put("furniture.2.model", "throne"), r"furniture\[2\].model: no model 'throne'"),
        (put("furniture.2.model", "mine/throne.glb"), r"furniture\[2\].model: the mesh .*throne"),
        (put("furniture.2.yaw", "left"), r"furniture\[2\].yaw: expected float"),
        (put("furniture.2.position", [900.0, 0.0, 0.0]), r"furniture\[2\].position: .* walls"),
        (put("objects.0.category", "cup"), r"objects\[0\].category: unknown 'cup'"),
        (put("objects.0.room", "attic"), r"objects\[0\].room: unknown 'attic'"),
        (put("objects.0.receptacle", "table_77"), r"objects\[0\].receptacle: unknown"),
        (put("objects.0.position.1", 1.9), r"objects\[0\].position: "),
        (twice, r"objects\[1\].name: .* is also objects\[0\]"),
        (stacked, r"furniture\[\d+\].position: 'copy' is inside"),
        (drop_doors, r"rooms\[\d\]: the agent \(radius 0.3 m\) can't get into"),
        (into_bed, r"objects\[0\].position: .* is inside 'bed_0' \(furniture\[\d+\]\)"),
        (out_of_sight, r"objects\[0\].position: .* can't be reached"),
    ],
)  # fmt: skip
def test_a_broken_file_names_the_field(tmp_path: Path, edit: Edit, message: str) -> None:
    path = edited(tmp_path / "edited.json", edit)
    with pytest.raises(HouseError, match=message) as caught:
        load_house(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "[1, 2]", "{", '{"rooms": 3}'])
def test_what_is_no_house_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "house.json"
    path.write_text(text)
    with pytest.raises(HouseError, match=r"house\.json"):
        load_house(path)
    with pytest.raises(HouseError, match="can't read"):
        load_house(tmp_path / "absent.json")


def test_a_model_of_ones_own_is_found_beside_the_file(tmp_path: Path) -> None:
    (tmp_path / "meshes").mkdir()
    shutil.copy(assets_dir() / "objects" / "duck.glb", tmp_path / "meshes" / "mine.glb")
    node = json.loads(house_text(house(4, 3)))
    index = next(i for i, item in enumerate(node["objects"]) if item["receptacle"] is not None)

    def use(node: dict[str, Any]) -> None:
        node["objects"] = [{**node["objects"][index], "model": "meshes/mine.glb"}]

    spec = load_house(edited(tmp_path / "house.json", use))
    assert Path(spec.objects[0].model) == (tmp_path / "meshes" / "mine.glb").resolve()
    model = mujoco_spec(spec).compile()
    assert model.body(f"object/{spec.objects[0].name}").geomnum[0] == 3
    (tmp_path / "meshes" / "mine.glb").write_bytes(b"glTF but not really")
    with pytest.raises(HouseError, match=r"objects\[0\].model: the mesh .*mine.glb can't be used"):
        load_house(tmp_path / "house.json")
