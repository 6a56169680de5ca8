"""Scene sources: which scenes a task is in, and what is said when data is missing."""

import gzip
import json

import pytest

from embodied_icrl.common.errors import AssetError, ConfigError
from embodied_icrl.envs.object_nav_config import ObjectNavConfig
from embodied_icrl.envs.object_nav_scenes import DatasetScenes, EpisodeScenes
from embodied_icrl.simulators.habitat import HabitatConfig

SPLITS = ("train", "validation", "test")


@pytest.fixture
def dataset(tmp_path):
    """A scene dataset of twenty scene instances."""
    (tmp_path / "scenes").mkdir()
    for i in range(20):
        (tmp_path / "scenes" / f"apt_{i}.scene_instance.json").write_text("{}")
    path = tmp_path / "small.scene_dataset_config.json"
    path.write_text(json.dumps({"scene_instances": {"paths": {".json": ["scenes"]}}}))
    return path


def episode(scene, number, *names):
    pose = [[1, 0, 0, number], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]
    return {
        "episode_id": str(number),
        "scene_id": scene,
        "scene_dataset_config": "small.scene_dataset_config.json",
        "rigid_objs": [[f"{name}.object_config.json", pose] for name in names],
    }


def write_episodes(path, *episodes):
    path.write_bytes(gzip.compress(json.dumps({"episodes": list(episodes)}).encode()))
    return str(path)


def names(scenes):
    return [scene.name for scene in scenes]


def test_splits_of_a_dataset_are_disjoint_and_complete(dataset):
    source = DatasetScenes(str(dataset))
    parts = [names(source.scenes_of(split)) for split in SPLITS]
    assert [len(part) for part in parts] == [12, 4, 4]
    assert len(set().union(*parts)) == 20
    assert parts == [names(DatasetScenes(str(dataset)).scenes_of(split)) for split in SPLITS]
    other = DatasetScenes(str(dataset), split_seed=1)
    assert names(other.scenes_of("test")) != parts[2]
    scene = source.scenes_of("test")[0]
    assert scene.dataset == str(dataset) and scene.scene.startswith("apt_")


def test_scenes_by_pattern_and_by_a_file_of_splits(dataset, tmp_path):
    few = DatasetScenes(str(dataset), scenes=("apt_1", "apt_2", "apt_1?"))
    assert sum(len(few.scenes_of(split)) for split in SPLITS) == 12
    splits = tmp_path / "splits.json"
    splits.write_text(json.dumps({"train": ["apt_3", "apt_1"], "val": ["apt_7"]}))
    source = DatasetScenes(str(dataset), splits=str(splits))
    assert names(source.scenes_of("train")) == ["apt_3", "apt_1"]
    assert names(source.scenes_of("validation")) == names(source.scenes_of("test")) == ["apt_7"]
    splits.write_text(json.dumps({"train": ["apt_33"]}))
    with pytest.raises(ConfigError, match="no scene 'apt_33'; did you mean 'apt_3'"):
        source.scenes_of("train")
    with pytest.raises(ConfigError, match="no list 'test'"):
        source.scenes_of("test")
    with pytest.raises(ConfigError, match="has no kitchen_"):
        DatasetScenes(str(dataset), scenes=("kitchen_*",)).scenes_of("train")


def test_bare_scene_files_and_stages(tmp_path):
    for name in ("Denmark", "Eagan", "Cooper"):
        (tmp_path / f"{name}.glb").write_bytes(b"")
    (tmp_path / "Eagan.semantic.glb").write_bytes(b"")
    found = {
        scene.name: scene
        for split in SPLITS
        for scene in DatasetScenes(str(tmp_path), test_share=0.3).scenes_of(split)
    }
    assert set(found) == {"Denmark", "Eagan", "Cooper"}
    assert found["Eagan"].dataset == "" and found["Eagan"].scene.endswith("Eagan.glb")
    config = tmp_path / "stages.scene_dataset_config.json"
    config.write_text(json.dumps({"stages": {"paths": {".glb": ["*[a-z].glb"]}}}))
    scenes = DatasetScenes(str(config)).scenes_of("train")
    assert scenes[0].dataset == str(config) and scenes[0].scene.endswith(".glb")


def test_episodes_come_in_turns_of_scenes(dataset, tmp_path):
    episodes = [episode(f"apt_{i // 3}", i, "024_bowl") for i in range(18)]
    path = write_episodes(tmp_path / "train.json.gz", *episodes)
    source = EpisodeScenes((path,), data=str(tmp_path))
    train = source.scenes_of("train")
    assert len(train) == 12 and len({scene.scene for scene in train[:4]}) == 4
    assert names(train)[:2] == [f"{s.scene}/{int(s.scene[4:]) * 3}" for s in train[:2]]
    assert train[0].objects[0].category == "bowl"
    apart = EpisodeScenes((path,), (write_episodes(tmp_path / "val.json.gz", episode("apt_9", 0)),))
    apart = EpisodeScenes(apart.files, apart.held_out_files, data=str(tmp_path))
    assert len(apart.scenes_of("train")) == 18
    assert names(apart.scenes_of("test")) == names(apart.scenes_of("validation")) == ["apt_9/0"]


def test_missing_data_is_named(tmp_path):
    with pytest.raises(AssetError, match="HSSD.*CC BY-NC.*hssd-hab"):
        EpisodeScenes(("x",), data=str(tmp_path), needs=("hssd",)).scenes_of("train")
    with pytest.raises(AssetError, match="no episode file .*none"):
        EpisodeScenes((str(tmp_path / "none*.json"),), data=str(tmp_path)).scenes_of("train")
    with pytest.raises(AssetError, match="ReplicaCAD.*CC BY 4.0"):
        DatasetScenes("replica_cad", data=str(tmp_path)).scenes_of("train")
    with pytest.raises(AssetError, match="there is no .*nowhere"):
        DatasetScenes(str(tmp_path / "nowhere")).scenes_of("train")
    broken = tmp_path / "broken.scene_dataset_config.json"
    for text, wanted in (
        ("[]", "not a scene dataset"),
        ('{"stages": {"paths": {".glb": "x"}}}', "expected lists"),
        ("{}", "names no scene"),
        ("{", "not JSON"),
    ):
        broken.write_text(text)
        with pytest.raises(AssetError, match=wanted):
            DatasetScenes(str(broken)).scenes_of("train")


def test_configurations_are_checked():
    habitat = HabitatConfig()
    source = DatasetScenes("hssd")
    with pytest.raises(ConfigError, match="Habitat backend"):
        ObjectNavConfig(scenes=source, categories=("bowl",))
    with pytest.raises(ConfigError, match="needs categories"):
        ObjectNavConfig(scenes=source, simulator=habitat)
    with pytest.raises(ConfigError, match="leave n_houses at 0"):
        ObjectNavConfig(scenes=source, simulator=habitat, categories=("bowl",), n_houses=3)
    with pytest.raises(ConfigError, match="not both"):
        ObjectNavConfig(
            scenes=source, simulator=habitat, categories=("bowl",), house_files=("a.json",)
        )
    config = ObjectNavConfig(scenes=source, simulator=habitat, categories=("bowl", "mug"))
    assert config.task_categories == ("bowl", "mug")
    with pytest.raises(ConfigError, match="test_share"):
        DatasetScenes("hssd", test_share=0.6)
    with pytest.raises(ConfigError, match="did you mean 'hssd'"):
        EpisodeScenes(("x",), needs=("hsd",))


def test_a_missing_data_set_is_found_before_any_simulator_is_made(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = ObjectNavConfig(
        scenes=EpisodeScenes(("x",), needs=("hssd",)),
        simulator=HabitatConfig(),
        categories=("bowl",),
    )
    with pytest.raises(AssetError, match="licence: CC BY-NC"):
        config.build(1)
