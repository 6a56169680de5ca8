"""`embodied-icrl doctor` tells what it sees, and never falls over it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from embodied_icrl.cli.doctor import DoctorConfig, Finding, examine, print_finding
from embodied_icrl.cli.doctor_checks import CHECKS, check_data, check_habitat
from embodied_icrl.houses.egl import EglDevice
from embodied_icrl.simulators.datasets import DATASETS, find_dataset

COMMAND = Path(sys.executable).with_name("embodied-icrl")


def habitat(tmp_path, answer):
    """The finding for an interpreter that answers so."""
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\n{answer}\n")
    python.chmod(0o755)
    (finding,) = check_habitat(DoctorConfig(simulator_python=str(python)))
    return finding


def found(version, **flags):
    return f"echo FOUND'{json.dumps({'version': version, 'python': '3.9.1', 'flags': flags})}'"


def test_the_command(tmp_path):
    output = tmp_path / "findings.json"
    run = subprocess.run(
        [COMMAND, "doctor", f"data={tmp_path}", f"output={output}"], capture_output=True, text=True
    )
    findings = json.loads(output.read_text())
    assert {f["check"] for f in findings} >= {"package", "torch", "mujoco", "sandbox", "data"}
    bad = [f for f in findings if f["status"] == "bad"]
    assert run.returncode == (1 if bad else 0), run.stdout + run.stderr
    assert all(f["advice"] for f in findings if f["status"] != "good" and f["check"] != "cuda")
    for finding in findings:
        assert finding["check"] in run.stdout


def test_a_check_that_fails_is_a_finding(capsys):
    def broken(config):
        raise RuntimeError("no such thing")

    findings = examine(DoctorConfig(), {"broken": broken, "package": CHECKS["package"]})
    assert [f.status for f in findings] == ["bad", "good"]
    assert "RuntimeError: no such thing" in capsys.readouterr().out


def test_habitat_without_bullet_or_too_old(tmp_path):
    good = habitat(tmp_path, found("0.3.3", built_with_bullet=True, cuda_enabled=False))
    assert good.status == "good" and "0.3.3 in Python 3.9.1: built_with_bullet" in good.text
    assert (
        "HABITAT_WITH_BULLET" in habitat(tmp_path, found("0.3.3", built_with_bullet=False)).advice
    )
    assert habitat(tmp_path, found("0.2.5", built_with_bullet=True)).status == "bad"


def test_an_interpreter_without_habitat(tmp_path):
    (here,) = check_habitat(DoctorConfig(simulator_python=None))
    assert here.status in ("absent", "good")
    error = "echo \"ModuleNotFoundError: No module named 'habitat_sim'\" >&2; exit 1"
    assert habitat(tmp_path, error).status == "bad"  # asked for by name
    aborted = habitat(tmp_path, "echo 'GL::Context: no device' >&2; kill -ABRT $$")
    assert "no device" in aborted.text
    gone = check_habitat(DoctorConfig(simulator_python=str(tmp_path / "nothing")))
    assert gone[0].status == "bad"


def test_a_gpu_that_egl_does_not_know(monkeypatch):
    import torch

    devices = [EglDevice(0, 1, "/dev/dri/card0", False, "GPU"), EglDevice(1, None, "", True, "")]
    monkeypatch.setattr("embodied_icrl.houses.egl.egl_devices", lambda: devices)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    *good, bad = CHECKS["egl"](DoctorConfig())
    assert [f.status for f in good] == ["good", "good"] and "CUDA device 1" in good[0].text
    assert bad.status == "bad" and "CUDA device 0" in bad.text
    assert "NVIDIA_DRIVER_CAPABILITIES" in bad.advice


@pytest.mark.parametrize("name", DATASETS)
def test_data_sets(name, tmp_path):
    from embodied_icrl.common.errors import AssetError

    dataset = DATASETS[name]
    with pytest.raises(AssetError, match=f"(?s){dataset.source}.*{dataset.licence[:8]}"):
        find_dataset(name, tmp_path)
    folder = tmp_path / dataset.folder
    folder.mkdir(parents=True)
    (folder / (dataset.config or "Denmark.glb")).write_text("{}")
    assert find_dataset(name, tmp_path).exists()
    statuses = {f.text.split(":")[0]: f.status for f in check_data(DoctorConfig(str(tmp_path)))}
    assert statuses[dataset.title] == "good"
    assert list(statuses.values()).count("good") == 1


def test_long_text_is_folded(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "60")
    print_finding(Finding("data", "absent", "word " * 40, "advice " * 20))
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 60
