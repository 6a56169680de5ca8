"""The public scene data sets: where they lie, their licences, how to get them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Dict, Union

from embodied_icrl.common.errors import AssetError


@dataclass(frozen=True)
class Dataset:
    """A data set of scenes that somebody else publishes; nothing of it comes with this package.

    Attributes:
        title: its name.
        folder: where it lies inside the data folder, as habitat-sim's own downloader puts it.
        config: its scene dataset configuration, relative to `folder`; "" for bare scene files.
        licence: under which terms.
        source: where to get it.
    """

    title: str
    folder: str
    config: str
    licence: str
    source: str


DATASETS: Dict[str, Dataset] = {
    "hssd": Dataset(
        "HSSD (hssd-hab)",
        "scene_datasets/hssd-hab",
        "hssd-hab.scene_dataset_config.json",
        "CC BY-NC 4.0",
        "https://huggingface.co/datasets/hssd/hssd-hab",
    ),
    "replica_cad": Dataset(
        "ReplicaCAD",
        "replica_cad",
        "replicaCAD.scene_dataset_config.json",
        "CC BY 4.0",
        "https://huggingface.co/datasets/ai-habitat/ReplicaCAD_dataset",
    ),
    "hm3d": Dataset(
        "HM3D",
        "scene_datasets/hm3d",
        "hm3d_annotated_basis.scene_dataset_config.json",
        "Matterport's terms for academic use",
        "https://aihabitat.org/datasets/hm3d",
    ),
    "gibson": Dataset(
        "Gibson",
        "scene_datasets/gibson",
        "",
        "Gibson's licence agreement, for non-commercial use",
        "https://github.com/StanfordVL/GibsonEnv",
    ),
}


def find_dataset(name: str, data: Union[str, Path]) -> Path:
    """The scene dataset configuration of a data set, or its folder if it has none.

    Args:
        name: a key of `DATASETS`.
        data: the data folder, often called `data`.

    Raises:
        AssetError: it isn't there; the message says what was looked for and where to get it.
    """
    dataset = DATASETS[name]
    folder = Path(data) / dataset.folder
    path = folder / dataset.config if dataset.config else folder
    there = path.is_file() if dataset.config else any(folder.glob("*.glb"))
    if not there:
        raise AssetError(
            f"the data set {dataset.title} is not in {path if dataset.config else folder}: get it "
            f"from {dataset.source} (licence: {dataset.licence}) and put it, or a link to it, at "
            f"{folder}, or name the folder above with data=DIR"
        )
    return path
