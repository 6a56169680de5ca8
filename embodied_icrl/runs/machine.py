"""What a computation's last bits depend on: torch, the CPU, the threads."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any

import torch


def machine_facts() -> dict[str, Any]:
    """The facts that must agree for a resumed run to give bit-identical numbers on the CPU."""
    return {"torch": str(torch.__version__), "cpu": cpu_name(), "threads": torch.get_num_threads()}


def cpu_name() -> str:
    """The CPU's model name, or its architecture where the system doesn't tell."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
