"""The few collective operations that training needs; without a process group they do nothing."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor

from embodied_icrl.common.errors import ConfigError
from embodied_icrl.evaluation.loading import choose_device

# Ranks wait for rank 0's evaluations, which may take far longer than an update.
TIMEOUT = timedelta(hours=6)


@dataclass(frozen=True)
class Ranks:
    """This process among the others of the job (as torchrun numbers them)."""

    rank: int
    world_size: int
    device: torch.device

    @property
    def is_main(self) -> bool:
        return self.rank == 0

    def sum(self, tensor: Tensor) -> Tensor:
        """Add up over all ranks, in place."""
        if self.world_size > 1:
            dist.all_reduce(tensor)
        return tensor

    def any(self, flag: int) -> int:
        """The largest value over all ranks."""
        if self.world_size == 1:
            return flag
        tensor = torch.tensor(flag, device=self.device)
        dist.all_reduce(tensor, op=dist.ReduceOp.MAX)
        return int(tensor.item())

    def barrier(self) -> None:
        if self.world_size > 1:
            dist.barrier()

    def broadcast(self, tensors: Iterable[Tensor]) -> None:
        """Give every rank the values of rank 0."""
        if self.world_size > 1:
            for tensor in tensors:
                dist.broadcast(tensor, src=0)


class FlatGradients:
    """Sums all gradients over the ranks in one all-reduce through one preallocated buffer."""

    def __init__(self, parameters: list[torch.nn.Parameter], ranks: Ranks) -> None:
        self.parameters = parameters
        self.ranks = ranks
        size = sum(p.numel() for p in parameters) if ranks.world_size > 1 else 0
        self.buffer = torch.zeros(size, dtype=parameters[0].dtype, device=ranks.device)

    def reduce(self) -> None:
        if self.ranks.world_size == 1:
            return
        pieces = torch.split(self.buffer, [p.numel() for p in self.parameters])
        # A parameter that the loss doesn't reach has no gradient on any rank, and gets none here.
        used = [
            (parameter.grad, piece)
            for parameter, piece in zip(self.parameters, pieces, strict=True)
            if parameter.grad is not None
        ]
        for gradient, piece in used:
            piece.copy_(gradient.reshape(-1))
        self.ranks.sum(self.buffer)
        for gradient, piece in used:
            gradient.copy_(piece.view_as(gradient))


def local_device(name: str) -> torch.device:
    """The device of this process: `auto`, `cpu`, `cuda` (the GPU of its local rank), `cuda:N`.

    `auto` takes GPUs only if there is one for every process of this machine.

    Raises:
        ConfigError: there is no such device, or `cuda` finds fewer GPUs than processes.
    """
    gpus = _count_gpus()
    processes = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    if name == "auto":
        name = "cuda" if gpus >= processes else "cpu"
    if name == "cuda" and 0 < gpus < processes:
        raise ConfigError(
            f"device=cuda needs a GPU for each of {processes} processes, and there is {gpus}: use "
            f"processes={gpus} or device=cpu"
        )
    if name == "cuda":
        name = f"cuda:{os.environ.get('LOCAL_RANK', '0')}"
    device = choose_device(name)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    return device


def describe_devices(name: str, ranks: Ranks) -> tuple[str, str | None]:
    """What the job trains on, and a warning if `auto` (the device's `name`) passed over GPUs."""
    device, gpus = ranks.device, _count_gpus()
    text = device.type if ranks.world_size == 1 else f"{ranks.world_size} x {device.type}"
    if device.type == "cuda":
        text += f" ({torch.cuda.get_device_name(device)})"
    warning = None
    if name == "auto" and device.type == "cpu" and gpus:
        warning = (
            f"device=auto passes over {gpus} GPU{'s' if gpus > 1 else ''}, fewer than there are "
            f"processes: processes={gpus} trains on {'them' if gpus > 1 else 'it'}"
        )
    return f"training on {text}", warning


def _count_gpus() -> int:
    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def join(device: torch.device) -> Ranks:
    """Join the job that torchrun started (gloo on CPUs, NCCL on GPUs), or be a job of one."""
    world_size = int(os.environ.get("WORLD_SIZE", "1"))
    if world_size > 1 and not dist.is_initialized():
        dist.init_process_group(
            "nccl" if device.type == "cuda" else "gloo",
            timeout=TIMEOUT,
            device_id=device if device.type == "cuda" else None,
        )
    return Ranks(int(os.environ.get("RANK", "0")), world_size, device)


def leave() -> None:
    """Leave the job, if this process joined one."""
    if dist.is_initialized():
        dist.destroy_process_group()
