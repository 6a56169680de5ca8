"""Episode files of rearrangement tasks, as scenes."""

import copy
import gzip
import json

import pytest

from embodied_icrl.common.errors import AssetError
from embodied_icrl.simulators.scenes import (
    object_name,
    plain_category,
    read_categories,
    read_episodes,
)

POSE = [[1.0, 0.0, 0.0, 2.5], [0.0, 1.0, 0.0, 0.75], [0.0, 0.0, 1.0, -3], [0.0, 0.0, 0.0, 1.0]]
EPISODE = {
    "episode_id": "17",
    "scene_id": "102344049",
    "scene_dataset_config": "data/scene_datasets/hssd-hab/hssd-hab.scene_dataset_config.json",
    "additional_obj_config_paths": ["data/objects/ycb/configs"],
    "start_position": [0, 0, 0],
    "start_rotation": [0, 0, 0, 1],
    "ao_states": {},
    "rigid_objs": [
        ["configs/024_bowl.object_config.json", POSE],
        ["wall_panel.object_config.json", copy.deepcopy(POSE)],
    ],
    "targets": {"024_bowl_:0000": POSE},
    "markers": [],
    "target_receptacles": [],
    "goal_receptacles": [],
    "name_to_receptacle": {},
    "info": {},
}


@pytest.fixture
def data(tmp_path):
    """A data folder with an HSSD of one file."""
    config = tmp_path / "scene_datasets/hssd-hab/hssd-hab.scene_dataset_config.json"
    config.parent.mkdir(parents=True)
    config.write_text("{}")
    return tmp_path


def write(path, *episodes):
    text = json.dumps({"config": None, "episodes": list(episodes)})
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text)
    return path


@pytest.mark.parametrize("name", ["episodes.json", "episodes.json.gz"])
def test_scene_and_objects(data, name):
    (scene,) = read_episodes(write(data / name, EPISODE), data)
    assert scene.dataset.startswith(str(data)) and scene.scene == "102344049"
    assert scene.name == "102344049/17"
    bowl, panel = scene.objects
    assert (bowl.name, bowl.category) == ("024_bowl", "bowl")
    assert bowl.position == (2.5, 0.75, -3.0)
    assert scene.object_paths[0].endswith("objects/ycb/configs")
    (scene,) = read_episodes(data / name, data, {"024_bowl": "dish"})
    assert [item.category for item in scene.objects] == ["dish", ""]


def test_a_bare_scene_file(tmp_path):
    (tmp_path / "Denmark.glb").write_bytes(b"")
    episode = {"scene_id": "Denmark.glb", "scene_dataset_config": "default", "rigid_objs": []}
    (scene,) = read_episodes(write(tmp_path / "e.json", episode), tmp_path)
    assert scene.dataset == "" and scene.scene.endswith("Denmark.glb") and scene.objects == ()


def test_a_missing_data_set_is_named_with_its_licence(tmp_path):
    path = write(tmp_path / "e.json", EPISODE)
    with pytest.raises(AssetError, match=r"episodes\[0\] needs the data set HSSD.*CC BY-NC"):
        read_episodes(path, tmp_path)


def without(key):
    return {k: v for k, v in EPISODE.items() if k != key}


def changed(*steps):
    """The episode with the last step's value at the place that the others lead to."""
    episode = copy.deepcopy(EPISODE)
    *way, last, value = steps
    place = episode
    for step in way:
        place = place[step]
    place[last] = value
    return episode


@pytest.mark.parametrize(
    ("episode", "message"),
    [
        (without("scene_id"), r"episodes\[0\]\.scene_id: expected a text"),
        (without("rigid_objs"), r"episodes\[0\]\.rigid_objs: expected a list"),
        (changed("scene_id", 7), r"scene_id: expected a text; got 7"),
        (changed("rigid_objs", 0, ["bowl"]), r"rigid_objs\[0\]: expected a pair"),
        (changed("rigid_objs", 1, 1, 2, [1, 2]), r"rigid_objs\[1\]: wall_panel's pose"),
        (changed("rigid_objs", 1, 1, 2, 0, "x"), r"rigid_objs\[1\]: wall_panel's pose"),
        (changed("additional_obj_config_paths", "here"), "additional_obj_config_paths"),
        (changed("scene_dataset_config", "elsewhere.json"), "needs elsewhere.json"),
        (5, r"episodes\[0\]: expected a mapping, got int"),
    ],
)
def test_a_wrong_episode_names_its_field(data, episode, message):
    with pytest.raises(AssetError, match=message):
        read_episodes(write(data / "e.json", episode), data)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "not JSON"),
        (b"[]", "no list 'episodes'"),
        (b'{"episodes": {}}', "no list 'episodes'"),
        (gzip.compress(b'{"episodes": []}', mtime=0)[:-9], "can't read"),
        (b"\xff\xfe", "not JSON"),
    ],
)
def test_a_damaged_file(tmp_path, content, message):
    path = tmp_path / "e.json.gz"
    path.write_bytes(content)
    with pytest.raises(AssetError, match=message):
        read_episodes(path, tmp_path)
    with pytest.raises(AssetError, match="can't read"):
        read_episodes(tmp_path / "none.json", tmp_path)


def test_names():
    assert object_name("data\\objects/025_mug.object_config.json") == "025_mug"
    assert object_name("chair_3.glb") == "chair_3"
    assert plain_category("002_master_chef_can") == "master_chef_can"
    assert plain_category("Mug-03") == "mug"


def test_category_files(tmp_path):
    table = tmp_path / "names.csv"
    table.write_text("name,category\n024_bowl.object_config.json, dish ,x\n\n025_mug,cup\n")
    assert read_categories(table) == {"024_bowl": "dish", "025_mug": "cup"}
    mapping = tmp_path / "names.json"
    mapping.write_text('{"024_bowl": "dish"}')
    assert read_categories(mapping) == {"024_bowl": "dish"}
    table.write_text("024_bowl dish\n")
    with pytest.raises(AssetError, match="line 1"):
        read_categories(table)
    mapping.write_text('{"024_bowl": 3}')
    with pytest.raises(AssetError, match="a mapping"):
        read_categories(mapping)
