"""Scenes of Habitat as plain data, and episode files that put objects into them.

Episode files are JSON, mostly compressed (`*.json.gz`), in the format of habitat-lab's
rearrangement tasks: a list `episodes`, of each of which we read `scene_id`, `scene_dataset_config`,
`additional_obj_config_paths` and `rigid_objs`, a list of pairs of an object's configuration name
and its pose as a 4 x 4 matrix.
"""

from __future__ import annotations

import gzip
import json
import re
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Tuple, Union

from embodied_icrl.common.config import suggest
from embodied_icrl.common.errors import AssetError

# Of the names of configuration files, in the order in which they are taken off.
_ENDINGS = (".json", ".object_config", ".ao_config", ".glb")


@dataclass(frozen=True)
class PlacedObject:
    """An object that is added to a scene.

    Attributes:
        name: of its configuration, without the file's ending.
        category: what the agent may be asked for; "" if nothing.
        pose: 4 x 4 matrix row by row, from the object's frame to the scene's, metres.
    """

    name: str
    category: str
    pose: Tuple[float, ...]

    @property
    def position(self) -> Tuple[float, float, float]:
        """Where its origin is, metres."""
        return self.pose[3], self.pose[7], self.pose[11]


@dataclass(frozen=True)
class HabitatScene:
    """A scene that Habitat loads by itself, and objects to add to it.

    Attributes:
        dataset: path of the scene dataset configuration; "" for a bare scene file.
        scene: handle of the scene in it, or the path of a scene file.
        objects: to add.
        object_paths: folders with more object configurations.
        name: for people.
    """

    dataset: str
    scene: str
    objects: Tuple[PlacedObject, ...] = ()
    object_paths: Tuple[str, ...] = ()
    name: str = ""


def object_name(text: str) -> str:
    """`configs/024_bowl.object_config.json` as `024_bowl`."""
    name = text.replace("\\", "/").rsplit("/", 1)[-1]
    for ending in _ENDINGS:
        if name.endswith(ending):
            name = name[: -len(ending)]
    return name


def plain_category(name: str) -> str:
    """The category that an object's name suggests: `024_bowl` and `bowl_02` are bowls."""
    words = [word for word in re.split(r"[_\-\s]+", name) if word and not word.isdigit()]
    return "_".join(words).lower()


def read_episodes(
    path: Union[str, Path],
    data: Union[str, Path] = ".",
    categories: Optional[Mapping[str, str]] = None,
) -> List[HabitatScene]:
    """The scenes of an episode file, one per episode, in its order.

    Args:
        path: the file, `.json` or `.json.gz`.
        data: folder that the paths in the file start from; a path that begins with `data/` is also
            looked for inside this folder.
        categories: category of each object by its name; names that it lacks are no targets. Without
            it, `plain_category` decides.

    Raises:
        AssetError: the file can't be read or isn't of this format, or a scene dataset that it needs
            isn't there; the message names file, episode and field.
    """
    path = Path(path)
    node = read_json(path)
    episodes = node.get("episodes") if isinstance(node, dict) else None
    if not isinstance(episodes, list):
        raise AssetError(f"{path}: not an episode file: it has no list 'episodes'")
    scenes = []
    for index, episode in enumerate(episodes):
        where = f"{path}: episodes[{index}]"
        if not isinstance(episode, dict):
            raise AssetError(f"{where}: expected a mapping, got {type(episode).__name__}")
        scenes.append(_scene(episode, Path(data), categories, where))
    return scenes


def read_categories(path: Union[str, Path]) -> Dict[str, str]:
    """Category by object name, from a JSON mapping or lines `name,category` (a CSV file).

    Raises:
        AssetError: the file can't be read, or isn't of one of these formats.
    """
    path = Path(path)
    if path.suffix == ".json":
        node = read_json(path)
        if not isinstance(node, dict) or not all(isinstance(v, str) for v in node.values()):
            raise AssetError(f"{path}: expected a mapping from object names to categories")
        return {object_name(key): value for key, value in node.items()}
    found = {}
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise AssetError(f"{path}: can't read the categories ({error})") from error
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lower().startswith(("name,", "id,", "handle,")):
            continue
        name, comma, category = line.partition(",")
        if not comma or not category.strip():
            raise AssetError(f"{path}: line {number}: expected name,category, got {line!r}")
        found[object_name(name.strip())] = category.split(",")[0].strip()
    return found


def read_json(path: Path) -> Any:
    """What a JSON file holds, compressed or not.

    Raises:
        AssetError: it can't be read, or is no JSON.
    """
    try:
        data = path.read_bytes()
        if data[:2] == b"\x1f\x8b":
            data = gzip.decompress(data)
        return json.loads(data.decode("utf-8"))
    except (OSError, EOFError, zlib.error) as error:
        raise AssetError(f"{path}: can't read the file ({error})") from error
    except ValueError as error:
        raise AssetError(f"{path}: not JSON ({error})") from error


def _scene(
    episode: Mapping[str, Any], data: Path, categories: Optional[Mapping[str, str]], where: str
) -> HabitatScene:
    scene = _text(episode, "scene_id", where)
    dataset = _text(episode, "scene_dataset_config", where, missing="default")
    folders = episode.get("additional_obj_config_paths") or []
    if not isinstance(folders, list) or not all(isinstance(f, str) for f in folders):
        raise AssetError(f"{where}.additional_obj_config_paths: expected a list of paths")
    objects = episode.get("rigid_objs")
    if not isinstance(objects, list):
        raise AssetError(f"{where}.rigid_objs: expected a list of pairs of a name and a matrix")
    placed = [
        _placed(item, categories, f"{where}.rigid_objs[{i}]") for i, item in enumerate(objects)
    ]
    number = str(episode.get("episode_id", ""))
    return HabitatScene(
        dataset="" if dataset == "default" else str(_found(dataset, data, where)),
        scene=scene if dataset != "default" else str(_found(scene, data, where)),
        objects=tuple(placed),
        object_paths=tuple(str(_under(folder, data)) for folder in folders),
        name="/".join(filter(None, [Path(scene).stem.split(".")[0], number])),
    )


def _text(episode: Mapping[str, Any], key: str, where: str, missing: Optional[str] = None) -> str:
    value = episode.get(key, missing)
    if not isinstance(value, str) or not value:
        near = suggest(key, list(episode)) if key not in episode else f"got {value!r}"
        raise AssetError(f"{where}.{key}: expected a text; {near}")
    return value


def _placed(item: Any, categories: Optional[Mapping[str, str]], where: str) -> PlacedObject:
    if not isinstance(item, list) or len(item) != 2 or not isinstance(item[0], str):
        raise AssetError(f"{where}: expected a pair of a name and a 4 x 4 matrix")
    name = object_name(item[0])
    rows = item[1]
    good = isinstance(rows, list) and len(rows) == 4
    good = good and all(isinstance(row, list) and len(row) == 4 for row in rows)
    numbers = [value for row in rows for value in row] if good else []
    if not good or not all(type(value) in (int, float) for value in numbers):
        raise AssetError(f"{where}: {name}'s pose is not a 4 x 4 matrix of numbers")
    category = plain_category(name) if categories is None else categories.get(name, "")
    return PlacedObject(name, category, tuple(float(value) for value in numbers))


def _under(path: str, data: Path) -> Path:
    """A path of the file, as it is or inside the data folder."""
    plain = Path(path)
    inside = plain.relative_to("data") if plain.parts[:1] == ("data",) else plain
    options = [data / plain, data / inside, plain]
    return next((option for option in options if option.exists()), data / inside)


def _found(path: str, data: Path, where: str) -> Path:
    from embodied_icrl.simulators.datasets import DATASETS

    found = _under(path, data)
    if found.exists():
        return found
    for dataset in DATASETS.values():
        if Path(dataset.folder).name in Path(path).parts:
            raise AssetError(
                f"{where} needs the data set {dataset.title}, and {found} is not there: get it "
                f"from {dataset.source} (licence: {dataset.licence}) and put it, or a link to "
                f"it, at {data / dataset.folder}"
            )
    raise AssetError(f"{where} needs {path}, which is neither there nor in {data}")
