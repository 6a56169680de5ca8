"""The one way to get environments: in this process, or in workers."""

from __future__ import annotations

from typing import Protocol

from embodied_icrl.common.errors import ConfigError
from embodied_icrl.envs.base import TrialVectorEnv
from embodied_icrl.envs.process import ProcessTrialEnv


class EnvConfig(Protocol):
    """What the config dataclass of an environment can do."""

    def build(
        self,
        num_envs: int,
        *,
        split: str = "train",
        seed: int = 0,
        first_index: int = 0,
        total_envs: int | None = None,
    ) -> TrialVectorEnv:
        """Build environments `first_index` to `first_index + num_envs - 1` of `total_envs`."""
        ...


def make_envs(
    env_config: EnvConfig,
    num_envs: int,
    *,
    split: str = "train",
    seed: int = 0,
    first_index: int = 0,
    total_envs: int | None = None,
    workers: int = 0,
    timeout_s: float = 300.0,
) -> TrialVectorEnv:
    """Build the environments of a config; what they return doesn't depend on `workers`.

    Workers cost about 0.1 ms per worker and step, so they pay where an environment's step takes
    longer than that (rendering, physics), and a batched grid world is faster without.

    Args:
        env_config: a config dataclass such as `DarkroomConfig` or `TrialEnvConfig`.
        num_envs: number of environments.
        split: which tasks.
        seed: of tasks and episodes.
        first_index: index of the first environment in the whole job of `total_envs`.
        workers: 0: in this process; else the number of worker processes.
        timeout_s: longest time (seconds) that a call may wait for workers.

    Raises:
        ConfigError: the config, the split or `workers` can't be used.
        WorkerError: the environments could not be built in a worker.
    """
    if workers < 0:
        raise ConfigError(f"workers must be 0 or more, not {workers}")
    if workers == 0:
        return env_config.build(
            num_envs, split=split, seed=seed, first_index=first_index, total_envs=total_envs
        )
    return ProcessTrialEnv(
        env_config,
        num_envs,
        workers,
        split=split,
        seed=seed,
        first_index=first_index,
        total_envs=total_envs,
        timeout_s=timeout_s,
    )
