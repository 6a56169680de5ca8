"""What a training says of itself while it runs: lines of JSON from an untrusted process."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from embodied_icrl.reward_search.algorithms import rollout_steps, steps_done
from embodied_icrl.reward_search.records import Job
from embodied_icrl.reward_search.unit_checks import MAX_COMPONENTS, MAX_NAME, NAME_CHARACTERS
from embodied_icrl.reward_search.untrusted_files import UntrustedFileError, read_untrusted

REPORT_FILE = "report.jsonl"
STATE_FILE = "state.pt"
MAX_REPORT = 8 * 2**20  # bytes


def weights_name(step: int) -> str:
    """The file that a training writes at a checkpoint."""
    return f"weights_{step}.safetensors"


class TrainingReport:
    """Reads a report as it grows.

    Attributes:
        step: environment steps since the training's beginning, never beyond what the job allows.
        problem: why the report can't be believed, or None.
    """

    def __init__(self, path: Path, job: Job) -> None:
        self._path, self._job = path, job
        rollout = rollout_steps(job.algorithm, job.hyperparameters, job.n_envs)
        self._last = steps_done(job.last_step, rollout)
        self._offset = 0
        self._rest = b""
        self._means: dict[int, tuple[float, dict[str, float]]] = {}
        self.step = steps_done(job.first_step, rollout)
        self.problem: str | None = None

    def read_on(self) -> bool:
        """Read what is new; whether the training has moved on."""
        before = self.step, len(self._means)
        try:
            data = read_untrusted(self._path, MAX_REPORT, self._offset)
        except UntrustedFileError as error:
            if self._path.is_symlink() or self._path.exists():
                self.problem = f"report: {error}"
            return False
        self._offset += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._take(line)
        return (self.step, len(self._means)) != before

    def totals(self, checkpoints: Sequence[int]) -> tuple[float, ...]:
        """Mean total per step up to each checkpoint."""
        return tuple(self._means.get(step, (0.0, {}))[0] for step in checkpoints)

    def components(self, checkpoints: Sequence[int]) -> dict[str, tuple[float, ...]]:
        """Mean of every component per step up to each checkpoint; 0 where it was not there."""
        parts = [self._means.get(step, (0.0, {}))[1] for step in checkpoints]
        names = list(dict.fromkeys(name for part in parts for name in part))
        return {
            name: tuple(part.get(name, 0.0) for part in parts) for name in names[:MAX_COMPONENTS]
        }

    def _take(self, line: bytes) -> None:
        try:
            data = json.loads(line)
            step = data["steps"]
            if type(step) is not int:
                raise ValueError("steps")
            self.step = max(self.step, min(step, self._last))
            if "checkpoint" in data:
                checkpoint = data["checkpoint"]
                if checkpoint not in self._job.checkpoints:
                    raise ValueError("checkpoint")
                self._means[checkpoint] = _number(data["total"]), _components(data["components"])
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
            self.problem = "the training's own process reported something else"


def _components(data: Any) -> dict[str, float]:
    if not isinstance(data, Mapping) or len(data) > MAX_COMPONENTS:
        raise ValueError("components")
    for name in data:
        if not 0 < len(name) <= MAX_NAME or not NAME_CHARACTERS.issuperset(name):
            raise ValueError("component name")
    return {name: _number(value) for name, value in data.items()}


def _number(value: Any) -> float:
    if type(value) not in (int, float) or not math.isfinite(value):
        raise ValueError("not a number")
    return float(value)
