"""The checks of `embodied-icrl doctor`, each a function from its configuration to findings."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from embodied_icrl.cli.doctor import Check, DoctorConfig, Finding
from embodied_icrl.common.errors import AssetError, MissingDependencyError, UserError

TIMEOUT_S = 120.0
_HABITAT = """
import json, os, sys
import habitat_sim
names = ("cuda_enabled", "built_with_bullet", "vhacd_enabled", "audio_enabled")
flags = {name: getattr(habitat_sim, name, None) for name in names}
print("FOUND" + json.dumps({"version": habitat_sim.__version__, "flags": flags,
                            "python": sys.version.split()[0]}))
"""
_RENDER = """
import json
from embodied_icrl.houses.gl import gl_context
import mujoco
context = gl_context(8, 8)
model = mujoco.MjModel.from_xml_string("<mujoco/>")
gpu = mujoco.MjrContext(model, int(mujoco.mjtFontScale.mjFONTSCALE_100))
print("FOUND" + json.dumps({"backend": type(context).__module__.split(".")[-1]}))
"""


def check_python(config: DoctorConfig) -> list[Finding]:
    """Python, the machine, and this package."""
    version = importlib.metadata.version("embodied-icrl")
    cores = len(os.sched_getaffinity(0))
    text = f"embodied-icrl {version}, Python {platform.python_version()}, {cores} cores"
    return [Finding("package", "good", f"{text}, {platform.system()} {platform.machine()}")]


def check_torch(config: DoctorConfig) -> list[Finding]:
    """torch, and the GPUs that it can use."""
    import torch

    text = f"torch {torch.__version__}, {torch.get_num_threads()} threads"
    findings = [Finding("torch", "good", text)]
    if torch.cuda.is_available():
        for i in range(torch.cuda.device_count()):
            name, room = torch.cuda.get_device_name(i), torch.cuda.get_device_properties(i)
            memory = f"{room.total_memory / 2**30:.0f} GiB"
            bfloat16 = "bfloat16" if torch.cuda.is_bf16_supported() else "no bfloat16"
            findings.append(Finding("cuda", "good", f"device {i}: {name}, {memory}, {bfloat16}"))
        return findings
    gpu = Path("/proc/driver/nvidia").exists() or shutil.which("nvidia-smi") is not None
    if not gpu:
        return [*findings, Finding("cuda", "absent", "no NVIDIA GPU: training runs on the CPU")]
    if torch.version.cuda is None:
        advice = "install torch's CUDA build: https://pytorch.org/get-started/locally"
        return [*findings, Finding("cuda", "bad", "a GPU, but torch's CPU build", advice)]
    advice = (
        "nvidia-smi must list the GPU (in a container: start it with --gpus all), and its driver "
        f"must be new enough for CUDA {torch.version.cuda}"
    )
    return [*findings, Finding("cuda", "bad", "a GPU that torch can't use", advice)]


def check_mujoco(config: DoctorConfig) -> list[Finding]:
    """MuJoCo's release, and whether it can draw."""
    version = importlib.metadata.version("mujoco")
    release = tuple(int(part) for part in version.split(".")[:2])
    findings = [Finding("mujoco", "good", f"mujoco {version}")]
    if not (3, 5) <= release < (3, 12):
        advice = "pip install 'mujoco>=3.5,<3.12'"
        findings = [Finding("mujoco", "bad", f"mujoco {version} is not supported", advice)]
    found, said = _ask(sys.executable, _RENDER)
    if found is not None:
        findings.append(
            Finding("rendering", "good", f"draws without a display, {found['backend']}")
        )
    else:
        advice = "apt-get install libegl1 libgl1 (or libosmesa6); until then pictures are ray-cast"
        findings.append(Finding("rendering", "absent", said or "can't draw", advice))
    return findings


def check_egl(config: DoctorConfig) -> list[Finding]:
    """The EGL devices and which GPUs they are."""
    from embodied_icrl.houses.egl import egl_devices

    try:
        devices = egl_devices()
    except MissingDependencyError as error:
        text, _, advice = str(error).partition(": ")
        return [Finding("egl", "absent", text, advice)]
    if not devices:
        return [Finding("egl", "absent", "EGL lists no devices", "install libegl1 and libgl1")]
    lines = []
    for device in devices:
        what = "software" if device.software else device.name or device.file or "unknown"
        gpu = f", CUDA device {device.cuda}" if device.cuda is not None else ""
        lines.append(Finding("egl", "good", f"device {device.index}: {what}{gpu}"))
    return [*lines, *_unmapped_gpus({device.cuda for device in devices})]


def _unmapped_gpus(mapped: set[int | None]) -> list[Finding]:
    import torch

    missing = sorted(set(range(torch.cuda.device_count())) - mapped)
    if not missing:
        return []
    advice = (
        "the container lacks NVIDIA's graphics libraries: start it with "
        "NVIDIA_DRIVER_CAPABILITIES=all and install libglvnd0; meanwhile simulator.gpu=null draws "
        "on the CPU"
    )
    numbers = ", ".join(map(str, missing))
    return [Finding("egl", "bad", f"no EGL device for CUDA device {numbers}", advice)]


def check_habitat(config: DoctorConfig) -> list[Finding]:
    """habitat-sim here or in another interpreter: version and how it was built."""
    python = config.simulator_python or sys.executable
    found, said = _ask(python, _HABITAT)
    if found is None:
        advice = (
            "only the Habitat scenes need it; there is no working wheel on PyPI: see "
            "docs/habitat.md, and name its interpreter with simulator_python=PATH"
        )
        if "No module named 'habitat_sim'" not in said:
            return [Finding("habitat-sim", "bad", f"can't be imported: {said}", advice)]
        asked_for = config.simulator_python is not None
        text = f"not installed in {python}"
        return [Finding("habitat-sim", "bad" if asked_for else "absent", text, advice)]
    flags = [name for name, value in found["flags"].items() if value]
    text = f"habitat-sim {found['version']} in Python {found['python']}: {', '.join(flags)}"
    release = tuple(int(part) for part in found["version"].split(".")[:2])
    if release < (0, 3):
        return [Finding("habitat-sim", "bad", text, "0.3.x is needed: see docs/habitat.md")]
    if not found["flags"]["built_with_bullet"]:
        return [Finding("habitat-sim", "bad", text, "it needs Bullet: HABITAT_WITH_BULLET=ON")]
    return [Finding("habitat-sim", "good", text)]


def check_data(config: DoctorConfig) -> list[Finding]:
    """The public data sets in the data folder."""
    from embodied_icrl.simulators.datasets import DATASETS, find_dataset

    findings = []
    for name, dataset in DATASETS.items():
        try:
            path = find_dataset(name, config.data)
            findings.append(Finding("data", "good", f"{dataset.title}: {path}"))
        except AssetError:
            where = Path(config.data) / dataset.folder
            advice = f"optional; {dataset.source}, licence: {dataset.licence}"
            findings.append(Finding("data", "absent", f"{dataset.title}: not in {where}", advice))
    return findings


def check_video(config: DoctorConfig) -> list[Finding]:
    """Whether a video can be written."""
    import numpy as np

    from embodied_icrl.evaluation.video_writer import VideoWriter

    try:
        with (
            tempfile.TemporaryDirectory() as folder,
            VideoWriter(Path(folder) / "try.mp4", 10, (64, 64)) as writer,
        ):
            writer.write(np.zeros((64, 64, 3), np.uint8))
    except UserError as error:
        return [Finding("video", "bad", str(error), "pip install --force-reinstall av")]
    return [Finding("video", "good", f"H.264 through PyAV {importlib.metadata.version('av')}")]


def check_sandbox(config: DoctorConfig) -> list[Finding]:
    """How generated reward code would be confined."""
    from embodied_icrl.reward_search.sandbox import available_layers

    layers = available_layers()
    if not layers.name.startswith("weak"):
        return [Finding("sandbox", "good", layers.name)]
    advice = (
        "install bubblewrap (apt-get install bubblewrap) and allow user namespaces, or use a "
        "kernel with Landlock, before searching with a language model"
    )
    return [Finding("sandbox", "absent", layers.name, advice)]


def check_memory(config: DoctorConfig) -> list[Finding]:
    """Shared memory, which workers hand observations over in."""
    if not Path("/dev/shm").is_dir():
        return [Finding("memory", "bad", "there is no /dev/shm", "mount a tmpfs there")]
    free = shutil.disk_usage("/dev/shm").free / 2**20
    if free < 256:
        advice = "in a container: --shm-size=2g or --ipc=host"
        return [Finding("memory", "bad", f"only {free:.0f} MiB of shared memory are free", advice)]
    return [Finding("memory", "good", f"{free:.0f} MiB of shared memory free")]


def _ask(python: str, code: str) -> tuple[Any, str]:
    """Run code in a process of its own, since graphics libraries may abort it.

    Returns:
        what it printed as JSON after the word FOUND, or None; and its last line of complaint.
    """
    environment = {**os.environ, "MAGNUM_LOG": "quiet", "HABITAT_SIM_LOG": "quiet"}
    try:
        run = subprocess.run(
            [python, "-c", code], capture_output=True, text=True, timeout=TIMEOUT_S, env=environment
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return None, str(error)
    for line in run.stdout.splitlines():
        if line.startswith("FOUND"):
            return json.loads(line[len("FOUND") :]), ""
    lines = run.stderr.strip().splitlines()
    return None, lines[-1] if lines else f"ended with status {run.returncode}"


CHECKS: dict[str, Check] = {
    "package": check_python,
    "torch": check_torch,
    "mujoco": check_mujoco,
    "egl": check_egl,
    "video": check_video,
    "memory": check_memory,
    "sandbox": check_sandbox,
    "habitat-sim": check_habitat,
    "data": check_data,
}
