"""The floors that a habitat worker needs, in Python 3.9 with NumPy alone, where one is found.

EMBODIED_ICRL_PYTHON39 names it, if it isn't called python3.9.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from embodied_icrl.houses.generate import HouseConfig, generate_house
from embodied_icrl.houses.json_io import house_text

ROOT = Path(__file__).resolve().parents[2]
CODE = """
import importlib, json, pkgutil, sys
import embodied_icrl
names = [
    module.name
    for folder in ("common", "houses", "simulators")
    for package in [importlib.import_module("embodied_icrl." + folder)]
    for module in pkgutil.iter_modules(package.__path__, package.__name__ + ".")
]
for name in names:
    importlib.import_module(name)
from embodied_icrl.houses.generate import HouseConfig, generate_house
from embodied_icrl.houses.json_io import house_text
from embodied_icrl.simulators.habitat import HabitatConfig
from embodied_icrl.simulators.habitat_files import scene_files
from pathlib import Path
spec = generate_house(7, HouseConfig(n_rooms=3))
files = scene_files(spec, Path(sys.argv[1]))
extra = sorted({"torch", "mujoco", "trimesh", "gymnasium", "omegaconf"} & set(sys.modules))
print(json.dumps([sys.version_info[:2], len(names), house_text(spec), files.dataset, extra]))
"""


def old_pythons() -> list[str]:
    """Interpreters of Python 3.9 that have NumPy."""
    names = ["python3.9", os.environ.get("EMBODIED_ICRL_PYTHON39", "")]
    found = [path for name in names if name and (path := shutil.which(name))]
    question = "import sys, numpy; sys.exit(sys.version_info[:2] != (3, 9))"
    return [
        p for p in found if subprocess.run([p, "-c", question], capture_output=True).returncode == 0
    ]


@pytest.mark.parametrize("old", [False, True], ids=["this Python", "Python 3.9"])
def test_lower_floors_import_and_make_the_same_houses(old: bool, tmp_path: Path) -> None:
    pythons = old_pythons() if old else [sys.executable]
    if not pythons:
        pytest.skip("no Python 3.9 with NumPy (EMBODIED_ICRL_PYTHON39=PATH)")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [pythons[0], "-c", CODE, str(tmp_path)],
        capture_output=True, text=True, env=environment, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    version, count, house, dataset, extra = json.loads(done.stdout)
    assert (version == [3, 9]) is old and count > 40 and extra == []
    assert house == house_text(generate_house(7, HouseConfig(n_rooms=3)))
    assert Path(dataset).is_file()
