"""`embodied-icrl house show` and `embodied-icrl house export`."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from embodied_icrl.common.config import build, option
from embodied_icrl.common.errors import ConfigError
from embodied_icrl.houses.generate import HouseConfig, generate_house, split_of
from embodied_icrl.houses.habitat_export import write_habitat
from embodied_icrl.houses.json_io import load_house, save_house
from embodied_icrl.houses.mujoco_export import mujoco_spec, write_mjcf
from embodied_icrl.houses.spec import HouseSpec
from embodied_icrl.houses.top_down import top_down
from embodied_icrl.houses.view import first_person, interesting_camera

ACTIONS = ("show", "export")
VIEW_SIZE = (640, 480)


@dataclass(frozen=True)
class HouseCommandConfig(HouseConfig):
    """The keys of `sim_configs/house.yaml`."""

    action: str | None = option(None, "show or export")
    seed: int = option(0, "which house")
    file: str | None = option(None, "a house file to read instead")
    output: str | None = option(None, "folder to write to")
    format: Literal["mjcf", "habitat"] = option("mjcf", "what to export")
    debug: bool = option(False, "full tracebacks for usage errors")


def run_house(node: Any) -> None:
    """Make or read a house; write its pictures or its export, and print where they are.

    Raises:
        ConfigError: a key is wrong.
        HouseError: the house file is not valid; the message names the field.
    """
    config = build(node, HouseCommandConfig)
    if config.action not in ACTIONS:
        asked = "say what to do" if config.action is None else f"can't {config.action!r} a house"
        raise ConfigError(f"{asked}: embodied-icrl house show, or embodied-icrl house export")
    if config.file is not None:
        spec = load_house(config.file)
    else:
        spec = generate_house(config.seed, config)
    folder = Path(spec.name if config.output is None else config.output)
    folder.mkdir(parents=True, exist_ok=True)
    if config.action == "show":
        show(spec, folder)
    elif config.format == "mjcf":
        print(write_mjcf(spec, folder))
    else:
        print(write_habitat(spec, folder))


def show(spec: HouseSpec, folder: Path) -> None:
    """Leave house.json, top_down.png and view.png in a folder, and say what is in the house."""
    save_house(spec, folder / "house.json")
    write_png(folder / "top_down.png", top_down(spec).image)
    model = mujoco_spec(spec).compile()
    picture, remark = first_person(model, interesting_camera(spec, model), *VIEW_SIZE)
    write_png(folder / "view.png", picture)
    origin = f"seed {spec.seed}, {split_of(spec.seed)} split" if spec.seed is not None else "a file"
    sizes = f"{len(spec.rooms)} rooms, {len(spec.furniture)} pieces of furniture"
    print(f"{spec.name} ({origin}): {sizes}")
    counts = Counter(item.category for item in spec.objects)
    print("objects: " + ", ".join(f"{n} {c}" if n > 1 else c for c, n in sorted(counts.items())))
    for name in ("house.json", "top_down.png", "view.png"):
        print(folder / name)
    if remark:
        print(f"view.png: {remark}")


def write_png(path: Path, image: np.ndarray) -> None:
    """Write uint8 RGB `[height, width, 3]`."""
    import cv2

    if not cv2.imwrite(str(path), image[:, :, ::-1]):
        raise OSError(f"can't write {path}")
