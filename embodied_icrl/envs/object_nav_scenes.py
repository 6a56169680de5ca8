"""Scenes that others have made, in place of generated houses: datasets, and episode files.

Both need the Habitat backend. Task i of a split takes scene i modulo the number of scenes; where
scenes have several layouts of objects, the tasks after that take the next layout of each.
"""

from __future__ import annotations

import glob
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Protocol

from embodied_icrl.common.config import option, suggest
from embodied_icrl.common.errors import AssetError, ConfigError
from embodied_icrl.common.seeds import derived_seed
from embodied_icrl.houses.generate import SPLITS
from embodied_icrl.simulators.datasets import DATASETS, find_dataset
from embodied_icrl.simulators.scenes import (
    HabitatScene,
    read_categories,
    read_episodes,
    read_json,
)

_DATASET_END, _SCENE_END = ".scene_dataset_config.json", ".scene_instance.json"
_HELD_OUT = ("validation", "test")
_ALIASES = {"validation": ("validation", "val"), "test": ("test",), "train": ("train",)}


class SceneSource(Protocol):
    """What gives object navigation its scenes."""

    def scenes_of(self, split: str) -> list[HabitatScene]:
        """The scenes of a split, at least one, always in the same order."""
        ...


@dataclass(frozen=True)
class DatasetScenes:
    """The scenes of a Habitat scene dataset, or bare scene files."""

    dataset: str = option(
        doc=f"{', '.join(DATASETS)}, or a path: *{_DATASET_END}, a scene file, or a folder of .glb"
    )
    data: str = option("data", "the folder of data sets that are given by name")
    scenes: tuple[str, ...] = option(("*",), "names of scenes; * and ? stand for other letters")
    splits: str = option(
        "", "JSON file with lists of scene names by split; empty: a share of them is held out"
    )
    test_share: float = option(0.2, "of the scenes, for test, and as many for validation")
    split_seed: int = option(0, "decides which")

    def __post_init__(self) -> None:
        _check_share(self.test_share)

    def scenes_of(self, split: str) -> list[HabitatScene]:
        """The scenes of a split.

        Raises:
            AssetError: the data set or a file isn't there; the message says where to get it.
            ConfigError: the split has no scenes.
        """
        where, found = self._found()
        names = [name for name in found if any(fnmatch(name, like) for like in self.scenes)]
        if not names:
            wanted = ", ".join(self.scenes)
            raise ConfigError(f"scenes.scenes: {where} has no {wanted}; {suggest(wanted, found)}")
        chosen = _of_split(names, split, self.splits, self.test_share, self.split_seed)
        return [found[name] for name in chosen]

    def _found(self) -> tuple[Path, dict[str, HabitatScene]]:
        """Where the scenes are, and all of them by name."""
        known = self.dataset in DATASETS
        path = find_dataset(self.dataset, self.data) if known else Path(self.dataset)
        if not path.exists():
            raise AssetError(
                f"scenes.dataset: there is no {path}; give a path or one of {', '.join(DATASETS)}"
            )
        if path.is_dir():
            path_list = sorted(path.rglob("*.glb"))
        elif path.name.endswith(_DATASET_END):
            return path, _dataset_scenes(path)
        else:
            path_list = [path]
        bare = [file for file in path_list if not file.name.endswith(".semantic.glb")]
        return path, {_stem(file): HabitatScene("", str(file), name=_stem(file)) for file in bare}


@dataclass(frozen=True)
class EpisodeScenes:
    """Scenes with objects in them, from episode files of rearrangement tasks (`*.json.gz`)."""

    files: tuple[str, ...] = option(doc="episode files, with * and ? for several")
    held_out_files: tuple[str, ...] = option(
        (), "those for validation and test; empty: scenes of `files` are held out instead"
    )
    data: str = option("data", "folder that paths in the files start from")
    needs: tuple[str, ...] = option(
        (), f"data sets that have to be there: {', '.join(DATASETS)}; checked first"
    )
    categories: str = option(
        "", "file with the category by object name; empty: the name says it, 024_bowl is a bowl"
    )
    splits: str = option(
        "", "JSON file with lists of scene names by split; empty: a share of them is held out"
    )
    test_share: float = option(0.2, "of the scenes, for test, and as many for validation")
    split_seed: int = option(0, "decides which")

    def __post_init__(self) -> None:
        _check_share(self.test_share)
        for name in self.needs:
            if name not in DATASETS:
                raise ConfigError(f"scenes.needs: no data set {name!r}; {suggest(name, DATASETS)}")
        if self.held_out_files and self.splits:
            raise ConfigError("scenes: give held_out_files or splits, not both")

    def scenes_of(self, split: str) -> list[HabitatScene]:
        """The scenes of a split: the first episode of every scene, then the second of each.

        Raises:
            AssetError: a data set or a file isn't there, or isn't of this format.
            ConfigError: the split has no scenes.
        """
        for name in self.needs:
            find_dataset(name, self.data)
        apart = bool(self.held_out_files)
        files = self.held_out_files if apart and split in _HELD_OUT else self.files
        names = read_categories(self.categories) if self.categories else None
        by_scene: dict[str, list[HabitatScene]] = {}
        for path in _expanded(files):
            for scene in read_episodes(path, self.data, names):
                by_scene.setdefault(_stem(Path(scene.scene)), []).append(scene)
        if not by_scene:
            raise AssetError(f"scenes.files: {', '.join(files)} have no episodes")
        wanted = list(by_scene)
        if not apart:
            wanted = _of_split(wanted, split, self.splits, self.test_share, self.split_seed)
        return _in_turns([by_scene[name] for name in wanted])


def _dataset_scenes(path: Path) -> dict[str, HabitatScene]:
    """The scenes that a scene dataset configuration names; without any, its stages."""
    node = read_json(path)
    if not isinstance(node, dict):
        raise AssetError(f"{path}: not a scene dataset configuration")
    files = _listed(node, "scene_instances", path, f"*{_SCENE_END}")
    found = {
        file.name.removesuffix(_SCENE_END).removesuffix(".json"): HabitatScene(
            str(path), file.name.removesuffix(_SCENE_END).removesuffix(".json"), name=_stem(file)
        )
        for file in files
    }
    if not found:
        for file in _listed(node, "stages", path, "*.stage_config.json"):
            found[_stem(file)] = HabitatScene(str(path), str(file), name=_stem(file))
    if not found:
        raise AssetError(f"{path}: it names no scene that is there")
    return found


def _listed(node: Mapping[str, Any], key: str, path: Path, files: str) -> list[Path]:
    """The files of a list of folders and patterns in a scene dataset configuration."""
    section = node.get(key, {})
    paths = section.get("paths", {}) if isinstance(section, dict) else {}
    if not isinstance(paths, dict) or not all(isinstance(value, list) for value in paths.values()):
        raise AssetError(f"{path}: {key}.paths: expected lists of paths by file ending")
    found: set[Path] = set()
    for pattern in (pattern for patterns in paths.values() for pattern in patterns):
        for name in glob.glob(str(path.parent / str(pattern))):
            place = Path(name)
            found.update(place.glob(files) if place.is_dir() else [place])
    return sorted(found)


def _of_split(names: Sequence[str], split: str, file: str, share: float, seed: int) -> list[str]:
    """Those of some scene names that belong to a split.

    A file that names no validation scenes, or no test scenes, means the other held-out ones.
    """
    if split not in SPLITS:
        raise ConfigError(f"no split {split!r} of scenes; available: {', '.join(SPLITS)}")
    if file:
        chosen = _listed_split(Path(file), split)
        strange = [name for name in chosen if name not in names]
        if strange:
            near = suggest(strange[0], names)
            raise ConfigError(f"scenes.splits: {file}: no scene {strange[0]!r}; {near}")
    else:
        mixed = sorted(names, key=lambda name: derived_seed(seed, "scene", name))
        count = max(1, round(share * len(mixed)))
        parts = {"test": mixed[:count], "validation": mixed[count : 2 * count]}
        wanted = set(parts.get(split, mixed[2 * count :]))
        chosen = [name for name in names if name in wanted]
    if not chosen:
        raise ConfigError(
            f"the split {split} has none of the {len(names)} scenes: name more, or say which "
            "belongs where with scenes.splits=FILE"
        )
    return chosen


def _listed_split(file: Path, split: str) -> list[str]:
    node = read_json(file)
    lists = {}
    for name, aliases in _ALIASES.items():
        for alias in aliases:
            if isinstance(node, dict) and isinstance(node.get(alias), list):
                lists[name] = [str(value) for value in node[alias]]
    other = {"test": "validation", "validation": "test"}.get(split, split)
    if split not in lists and other not in lists:
        raise ConfigError(f"scenes.splits: {file} has no list {split!r}")
    return lists.get(split) or lists.get(other, [])


def _in_turns(groups: Sequence[Sequence[HabitatScene]]) -> list[HabitatScene]:
    """The first of every group, then the second of each that has one, and so on."""
    longest = max(len(group) for group in groups)
    return [group[i] for i in range(longest) for group in groups if i < len(group)]


def _expanded(patterns: Sequence[str]) -> list[Path]:
    found: list[Path] = []
    for pattern in patterns:
        names = sorted(glob.glob(pattern, recursive=True))
        if not names:
            raise AssetError(f"scenes.files: there is no episode file {pattern}")
        found.extend(Path(name) for name in names)
    return found


def _stem(path: Path) -> str:
    return path.name.split(".")[0]


def _check_share(share: float) -> None:
    if not 0 < share < 0.5:
        raise ConfigError(f"scenes.test_share={share} must be between 0 and 0.5")
