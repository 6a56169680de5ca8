"""`embodied-icrl house` as a person uses it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import cv2
import mujoco
import pytest

from embodied_icrl.houses.json_io import load_house


def run(*words: str, cwd: Path, **variables: str) -> tuple[int, str, str]:
    result = subprocess.run(
        [sys.executable, "-m", "embodied_icrl", "house", *words],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**os.environ, "OMP_NUM_THREADS": "1", **variables},
        timeout=170,
    )
    return result.returncode, result.stdout, result.stderr


def test_show_leaves_the_house_and_its_pictures(tmp_path: Path) -> None:
    words = ["show", "seed=19", "n_rooms=3", f"output={tmp_path}/out"]
    code, out, err = run(*words, cwd=tmp_path, MUJOCO_GL="disable")
    assert code == 0, err
    assert "test split" in out and "3 rooms" in out
    assert "view.png: drawn from rays" in out  # this run may not use OpenGL
    spec = load_house(tmp_path / "out" / "house.json")
    assert len(spec.rooms) == 3 and spec.seed == 19
    assert cv2.imread(f"{tmp_path}/out/view.png").shape == (480, 640, 3)
    assert min(cv2.imread(f"{tmp_path}/out/top_down.png").shape[:2]) > 200
    node = json.loads((tmp_path / "out" / "house.json").read_text())
    node["objects"][0]["position"][1] += 0.7
    (tmp_path / "edited.json").write_text(json.dumps(node))
    code, out, err = run("show", f"file={tmp_path}/edited.json", cwd=tmp_path)
    assert code == 2
    assert "objects[0].position" in err and "edited.json" in err
    assert len(err.strip().splitlines()) == 1


def test_exports_load_as_they_are(tmp_path: Path) -> None:
    code, out, err = run("export", "seed=7", "n_rooms=2", f"output={tmp_path}/m", cwd=tmp_path)
    assert code == 0, err
    model = mujoco.MjModel.from_xml_path(out.strip())
    assert model.ngeom > 50
    words = ["export", "seed=7", "n_rooms=2", f"output={tmp_path}/h", "format=habitat"]
    code, out, err = run(*words, cwd=tmp_path)
    assert code == 0, err
    assert json.loads(Path(out.strip()).read_text())["stages"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "embodied-icrl house show"),
        (["shwo"], "can't 'shwo'"),
        (["show", "n_rooms=30"], "n_rooms"),
        (["export", "format=usd"], "format"),
        (["show", "categories=[mugg]"], "did you mean 'mug'"),
    ],
)
def test_usage_errors_are_one_line_and_status_2(
    words: list[str], message: str, tmp_path: Path
) -> None:
    code, _, err = run(*words, cwd=tmp_path)
    assert code == 2, err
    assert message in err
    assert len(err.strip().splitlines()) == 1, err
    assert not list(tmp_path.iterdir())
