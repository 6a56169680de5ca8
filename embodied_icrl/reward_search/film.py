"""Films of trained policies, side by side in the same episodes."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from embodied_icrl.reward_search.report_data import Video
from embodied_icrl.reward_search.sandbox import Layers, Limits, run_sandboxed

EPISODES = 3
_LIMITS = Limits(cpu_s=3600, memory_mib=4096, file_mib=512, processes=8192)


@dataclass(frozen=True)
class Take:
    """One policy to film.

    Attributes:
        id: of the candidate.
        caption: what stands above its picture.
        weights: the safetensors file that its training left.
        algorithm: of the training, as in `Budget`.
        hyperparameters: of the algorithm; they give the network its shape.
    """

    id: str
    caption: str
    weights: Path
    algorithm: str
    hyperparameters: Mapping[str, Any] = field(default_factory=dict)

    def node(self) -> dict[str, Any]:
        """As a child process is told of it; see `actor.actor_of`."""
        return {
            "id": self.id,
            "caption": self.caption,
            "weights": str(Path(self.weights).resolve()),
            "algorithm": self.algorithm,
            "hyperparameters": dict(self.hyperparameters),
        }


@dataclass(frozen=True)
class Footage:
    """What a filming gave.

    Attributes:
        video: None after a failure.
        reason: why there is none, one line.
        fitness: by id, of each episode.
        states: by id, flat states of the episodes, [step, size]; for `correlate`.
        note: how to get better pictures, where they had to be drawn without OpenGL.
    """

    video: Video | None
    reason: str | None = None
    fitness: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    states: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)
    note: str = ""


def film_candidates(
    takes: Sequence[Take],
    task: Mapping[str, Any],
    path: str | Path,
    *,
    caption: str | None = None,
    task_paths: Sequence[str] = (),
    episodes: int = EPISODES,
    wall_s: float = 300.0,
) -> Footage:
    """Film policies that act without noise in the task's held-out episodes, in a child process.

    The child loads weights only: no reward code runs in it. It has no keys in its environment and
    limits on time and memory, but keeps the devices that rendering may need. A failure (damaged
    weights, out of time, nothing that can be drawn) is returned, not raised: a search does not
    end for want of a film.

    Args:
        takes: one or more, from left to right; different ids.
        task: the task's configuration node, with its `_target_`.
        path: of the MP4; its folder is created.
        caption: of the video in a report; made of those of the takes without it.
        task_paths: directories outside the package where the task's module lies.
        episodes: how many are shown, the same for all takes.
        wall_s: seconds that filming may take.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    # Beside the film, so that moving it is one rename.
    folder = tempfile.mkdtemp(prefix=".film-", dir=path.parent)
    try:
        made = Path(folder).resolve() / "film.mp4"
        payload = {
            "takes": [take.node() for take in takes],
            "task": dict(task),
            "task_paths": list(task_paths),
            "episodes": episodes,
            "path": str(made),
        }
        function = "embodied_icrl.reward_search.film_child:film"
        limits = Limits(wall_s, _LIMITS.cpu_s, _LIMITS.memory_mib, _LIMITS.file_mib,
                        _LIMITS.processes)  # fmt: skip
        outcome = run_sandboxed(function, payload, limits=limits, layers=Layers())
        if outcome.reason is not None:
            return Footage(None, outcome.reason)
        result = outcome.result
        if result["reason"] is not None:
            return Footage(None, result["reason"])
        os.replace(made, path)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    names = caption or " and ".join(take.caption for take in takes)
    return Footage(
        Video(path, names),
        fitness={name: tuple(values) for name, values in result["fitness"].items()},
        states={name: np.array(values, np.float64) for name, values in result["states"].items()},
        note=result["note"],
    )
