"""What a training may use, and whether that is more than it was."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from embodied_icrl.common.config import option
from embodied_icrl.common.errors import ConfigError
from embodied_icrl.reward_search.records import LimitKind
from embodied_icrl.reward_search.sandbox import Limits

_FIELDS: dict[LimitKind, tuple[str, ...]] = {
    "wall": ("start_s", "s_per_step"),
    "cpu": ("cpu_start_s", "cpu_s_per_step"),
    "stall": ("stall_s",),
    "memory": ("memory_mib",),
    "file": ("file_mib",),
    "disk": ("disk_mib",),
}


@dataclass(frozen=True)
class TrainingLimits:
    """What one stretch of a training may use.

    Time is generous, as the machine may be busy: honest trainings never reach it, and those
    that make no step are ended sooner.
    """

    start_s: float = option(120.0, "seconds of wall clock beside the steps")
    s_per_step: float = option(0.05, "seconds of wall clock per environment step")
    cpu_start_s: int = option(60, "seconds of processor time beside the steps")
    cpu_s_per_step: float = option(0.03, "seconds of processor time per environment step")
    stall_s: float = option(120.0, "seconds without a step, at most")
    memory_mib: int = option(2048, "memory in MiB")
    file_mib: int = option(512, "size of a file in MiB")
    disk_mib: int = option(1024, "size of all files of a stretch in MiB")

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            if getattr(self, field.name) <= 0:
                raise ConfigError(f"limits.{field.name}={getattr(self, field.name)}: not positive")

    def training(self, steps: int) -> Limits:
        """For a child that trains so many environment steps."""
        return Limits(
            wall_s=self.start_s + self.s_per_step * steps,
            cpu_s=int(self.cpu_start_s + self.cpu_s_per_step * steps),
            memory_mib=self.memory_mib,
            file_mib=self.file_mib,
        )

    def evaluation(self, episodes: int) -> Limits:
        """For a child that measures policies in so many episodes, all of them together."""
        return self.training(1000 * episodes)  # no episode of a task is much longer than that

    def exceed(self, before: TrainingLimits, kind: LimitKind) -> bool:
        """Whether these give more of one kind than those of before."""
        return any(getattr(self, name) > getattr(before, name) for name in _FIELDS[kind])
