from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from embodied_icrl.common import paths
from embodied_icrl.common.errors import AssetError

ROOT = Path(__file__).resolve().parents[2]

REPORT = """
import json, embodied_icrl
from embodied_icrl.common import paths
print(json.dumps({"package": embodied_icrl.__file__, "configs": str(paths.config_dir()),
                  "assets": str(paths.assets_dir()), "checkout": str(paths.checkout_dir())}))
"""


def report(folder: Path, environment: dict[str, str] | None = None) -> dict[str, str]:
    """What a fresh interpreter, started in `folder`, says about the paths."""
    result = subprocess.run(
        [sys.executable, "-c", REPORT],
        cwd=folder,
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(result.stdout)  # type: ignore[no-any-return]


def files_below(folder: Path) -> set[str]:
    names = (path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    return {name for name in names if "__pycache__" not in name}


def test_a_checkout_is_found_from_any_folder(tmp_path: Path) -> None:
    found = report(tmp_path)
    assert found["configs"] == str(ROOT / "sim_configs")
    assert found["assets"] == str(ROOT / "assets")
    assert found["checkout"] == str(ROOT)


def test_a_wheel_installed_elsewhere_brings_configurations_and_assets(tmp_path: Path) -> None:
    pip = [sys.executable, "-m", "pip", "-q", "--disable-pip-version-check"]
    options = ["--no-deps", "--no-index"]
    subprocess.run(
        [*pip, "wheel", *options, "--no-build-isolation", "-w", str(tmp_path), str(ROOT)],
        check=True,
    )
    (wheel,) = tmp_path.glob("embodied_icrl-*.whl")
    site = tmp_path / "site"
    subprocess.run([*pip, "install", *options, "--target", str(site), str(wheel)], check=True)

    found = report(tmp_path, {"PYTHONPATH": str(site)})
    package = site / "embodied_icrl"
    assert found["package"] == str(package / "__init__.py")
    assert found["configs"] == str(package / "_data" / "sim_configs")
    assert found["assets"] == str(package / "_data" / "assets")
    assert found["checkout"] == "None"
    assert files_below(ROOT / "sim_configs") <= files_below(Path(found["configs"]))
    assert files_below(ROOT / "assets") <= files_below(Path(found["assets"]))
    assert files_below(ROOT / "embodied_icrl") <= files_below(package)

    top_level = {name.split("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert {name for name in top_level if not name.endswith(".dist-info")} == {"embodied_icrl"}


def test_a_missing_folder_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "_PACKAGE", tmp_path / "embodied_icrl")
    for find in (paths.config_dir, paths.assets_dir):
        with pytest.raises(AssetError, match="reinstall"):
            find()
    assert paths.checkout_dir() is None


def test_bundled_assets_are_found_from_any_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    bundled = paths.assets_dir() / "checkpoints" / "demo"
    assert paths.with_assets("assets/checkpoints/demo") == bundled
    assert paths.with_assets("runs/demo") == Path("runs/demo")
    (tmp_path / "assets" / "checkpoints" / "demo").mkdir(parents=True)
    assert paths.with_assets("assets/checkpoints/demo") == Path("assets/checkpoints/demo")
