"""The files of one checkpoint: how they are made, checked and read."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

from embodied_icrl.common.errors import RunError
from embodied_icrl.runs.machine import machine_facts
from embodied_icrl.runs.packing import unpack

FORMAT = 1
MANIFEST = "manifest.json"


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint whose files have been checked; tensors are read when asked for.

    Attributes:
        path: its directory, `.../checkpoints/step_N`.
        manifest: format, step, versions, machine, world size, file digests.
        state: what all ranks share, as JSON.
        policy: how to build the policy, or None if none was saved.
    """

    path: Path
    manifest: dict[str, Any]
    state: dict[str, Any]
    policy: dict[str, Any] | None

    @property
    def name(self) -> str:
        """`step_N`."""
        return self.path.name

    @property
    def step(self) -> int:
        """Environment steps at which it was saved."""
        return int(self.manifest["step"])

    @property
    def world_size(self) -> int:
        """How many ranks saved it."""
        return int(self.manifest["world_size"])

    def tensors(self, group: str, device: str | torch.device = "cpu") -> dict[str, Tensor]:
        """The tensors of a group by name.

        Raises:
            RunError: there is no such group.
        """
        path = self.path / f"{group}.safetensors"
        if path.name not in self.manifest["files"]:
            raise RunError(f"{self.path} holds no {group!r} tensors: use another checkpoint")
        return safetensors.torch.load_file(path, device=str(device))

    def rank_state(self, rank: int) -> dict[str, Any]:
        """What a rank saved for itself, arrays and tensors (on the CPU) in their places.

        Raises:
            RunError: there was no such rank.
        """
        if f"rank_{rank}.json" not in self.manifest["files"]:
            raise RunError(
                f"{self.path} was saved by {self.world_size} processes and has no rank {rank}: "
                f"resume it with {self.world_size}"
            )
        data = json.loads((self.path / f"rank_{rank}.json").read_text(encoding="utf-8"))
        has_tensors = f"rank_{rank}.safetensors" in self.manifest["files"]
        restored: dict[str, Any] = unpack(data, self.tensors(f"rank_{rank}") if has_tensors else {})
        return restored

    def differences(self, world_size: int = 1) -> list[str]:
        """What is different here and now, so that resumed metrics need not be bit-identical."""
        now = {**machine_facts(), "world_size": world_size}
        return [
            f"{key} was {self.manifest[key]!r}, now {value!r}"
            for key, value in now.items()
            if self.manifest[key] != value
        ]


def load_checkpoint(path: str | os.PathLike[str]) -> Checkpoint:
    """Open a checkpoint directory after checking every file against the manifest.

    Raises:
        RunError: it is damaged, incomplete, of a newer format, or not there.
    """
    folder = Path(path)
    manifest = verify(folder)
    state = json.loads((folder / "state.json").read_text(encoding="utf-8"))
    policy = None
    if "policy.json" in manifest["files"]:
        policy = json.loads((folder / "policy.json").read_text(encoding="utf-8"))
    return Checkpoint(folder, manifest, state, policy)


def verify(folder: Path) -> dict[str, Any]:
    """The manifest of a checkpoint whose files are all as they were written.

    Raises:
        RunError: it is damaged, incomplete, of a newer format, or not there.
    """
    if not folder.is_dir():
        raise RunError(f"there is no checkpoint {folder}")
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        known, files = int(manifest["format"]), dict(manifest["files"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunError(f"checkpoint {folder} is damaged: {MANIFEST} can't be read") from error
    if known > FORMAT:
        raise RunError(
            f"checkpoint {folder} has format {known}, newer than {FORMAT}: update embodied-icrl"
        )
    for name, digest in files.items():
        try:
            intact = file_digest(folder / name) == digest
        except OSError as error:
            raise RunError(f"checkpoint {folder} is damaged: {name} can't be read") from error
        if not intact:
            raise RunError(f"checkpoint {folder} is damaged: {name} is not as it was written")
    if "state.json" not in files:
        raise RunError(f"checkpoint {folder} is damaged: it lists no state.json")
    return dict(manifest)


def file_digest(path: Path) -> dict[str, Any]:
    """Size in bytes and SHA-256 of a file."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return {"bytes": path.stat().st_size, "sha256": digest}


def tensor_bytes(tensors: Mapping[str, Tensor]) -> bytes:
    """Named tensors as a safetensors file; views and tied tensors are stored in full."""
    own: dict[str, Tensor] = {}
    seen: set[int] = set()
    for name, tensor in tensors.items():
        plain = tensor.detach().cpu().contiguous()
        storage = plain.untyped_storage()
        if storage.data_ptr() in seen or storage.nbytes() != plain.nbytes:
            plain = plain.clone()
        seen.add(storage.data_ptr())
        own[name] = plain
    return bytes(safetensors.torch.save(own))
