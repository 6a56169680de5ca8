"""What habitat-sim reads and what is kept for it: exported houses, navigation meshes.

Everything in the cache folder is named by a hash of what it was made from, and appears in one
rename: processes may share it, and deleting it costs nothing but time.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
import secrets
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Tuple

import embodied_icrl
from embodied_icrl.common.errors import AssetError
from embodied_icrl.common.files import atomic_write_text, fsync_directory
from embodied_icrl.houses.habitat_export import write_habitat
from embodied_icrl.houses.json_io import house_text
from embodied_icrl.houses.spec import HouseError, HouseSpec
from embodied_icrl.simulators.scenes import HabitatScene, PlacedObject

# Of the exported files; another one, and houses are exported again.
_VERSION = 3


@dataclass(frozen=True)
class SceneFiles:
    """A scene as habitat-sim finds it.

    Attributes:
        dataset: path of the scene dataset configuration; "default" for a bare scene file.
        handle: of the scene in it, or the path of the scene file.
        objects, object_paths: to add, as in `HabitatScene`.
        key: names what is cached for this scene.
        name: for people.
    """

    dataset: str
    handle: str
    objects: Tuple[PlacedObject, ...]
    object_paths: Tuple[str, ...]
    key: str
    name: str


def cache_folder(path: str) -> Path:
    """The folder itself, or the user's usual place for caches if it is empty."""
    if path:
        return Path(path).resolve()
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "embodied_icrl" / "habitat"


def scene_files(scene: Any, cache: Path) -> SceneFiles:
    """Where the files of a scene are; a house is exported when it is first asked for.

    Raises:
        HouseError: it is no scene, or a mesh of the house is missing.
        AssetError: there is no such file.
    """
    if isinstance(scene, HouseSpec):
        return _house_files(scene, cache)
    if not isinstance(scene, HabitatScene):
        raise HouseError(
            f"the Habitat backend loads a HouseSpec or a HabitatScene, not a {type(scene).__name__}"
        )
    bare = not scene.dataset
    for path in (scene.scene if bare else scene.dataset, *scene.object_paths):
        if not Path(path).exists():
            raise AssetError(f"scene {scene.name or scene.scene}: there is no {path}")
    main = Path(scene.scene if bare else scene.dataset).resolve()
    stamp = main.stat()
    key = _digest(dataclasses.astuple(scene), str(main), stamp.st_size, stamp.st_mtime_ns)
    return SceneFiles(
        dataset="default" if bare else str(main),
        handle=str(main) if bare else scene.scene,
        objects=scene.objects,
        object_paths=tuple(str(Path(path).resolve()) for path in scene.object_paths),
        key=key,
        name=scene.name or scene.scene,
    )


def _house_files(spec: HouseSpec, cache: Path) -> SceneFiles:
    models = sorted({item.model for item in spec.items if item.model.endswith(".glb")})
    contents = []
    for path in models:
        try:
            contents.append(hashlib.sha256(Path(path).read_bytes()).hexdigest())
        except OSError as error:
            raise HouseError(f"house {spec.name}: can't read the model {path} ({error})") from error
    key = _digest(house_text(spec), contents, embodied_icrl.__version__, _VERSION)
    folder = cache / "houses" / key

    def write(place: Path) -> None:
        write_habitat(spec, place)
        # What is in a cache is named by hashes; this says it to people.
        atomic_write_text(place / "house.json", house_text(spec))

    made_once(folder, write)
    dataset = folder / f"{spec.name}.scene_dataset_config.json"
    return SceneFiles(str(dataset), spec.name, (), (), key, spec.name)


def made_once(folder: Path, write: Callable[[Path], None]) -> None:
    """Let `write` fill a new folder, which then takes its place in one rename.

    A folder that is there already is kept, whoever made it.
    """
    if folder.is_dir():
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = folder.with_name(f".{folder.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
    try:
        temporary.mkdir()
        write(temporary)
        with contextlib.suppress(OSError):  # somebody else was faster
            os.rename(temporary, folder)
        if not folder.is_dir():
            raise AssetError(f"can't write {folder}: free some space or set simulator.cache")
        fsync_directory(folder.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def navmesh_path(cache: Path, scene_key: str, *settings: Any) -> Path:
    """Where the navigation mesh of a scene is kept, for an agent's shape and the mesh's cells."""
    return cache / "navmeshes" / f"{_digest(scene_key, settings)}.navmesh"


def save_in_place(path: Path, save: Callable[[str], Any]) -> None:
    """Let `save` write a file beside `path`, which then takes its place in one rename."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.stem}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
    try:
        save(str(temporary))
        os.replace(temporary, path)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()


def _digest(*parts: Any) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:32]
