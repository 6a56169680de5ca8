"""Targets of the Makefile that write to the checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from embodied_icrl.common.paths import checkout_dir


@pytest.mark.skipif(shutil.which("make") is None, reason="no make here")
def test_the_lock_leaves_out_what_does_not_resolve_beside_the_rest(tmp_path):
    checkout = checkout_dir()
    assert checkout is not None
    for name in ("metaworld", "habitat_sim", "other_one"):
        folder = tmp_path / f"{name}-3.1.1.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 3.1.1\n")
    lock = tmp_path / "lock.txt"
    lock.write_text("# How it is made.\nold==1\n")
    bin_folder = Path(sys.executable).parent
    subprocess.run(
        ["make", "lock", f"LOCK={lock}", f"BIN={bin_folder}"],
        cwd=checkout, check=True, env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )  # fmt: skip
    comment, *pins = lock.read_text().splitlines()
    assert comment == "# How it is made."
    names = {pin.split("==")[0].lower().replace("-", "_") for pin in pins}
    assert {"other_one", "numpy", "mujoco"} <= names
    assert not names & {"metaworld", "habitat_sim", "embodied_icrl", "old"}
    assert not any("+" in pin for pin in pins if pin.startswith("torch=="))
