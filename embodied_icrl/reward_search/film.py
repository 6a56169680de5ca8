"""Films of trained policies, side by side in the same episodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from embodied_icrl.reward_search.report_data import Video


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


@dataclass(frozen=True)
class Footage:
    """What a filming gave.

    Attributes:
        video: None after a failure.
        reason: why there is none, one line.
        fitness: by id, of each episode.
        states: by id, the flat states of all episodes, [step, size]; for `correlate`.
    """

    video: Video | None
    reason: str | None = None
    fitness: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    states: Mapping[str, tuple[tuple[float, ...], ...]] = field(default_factory=dict)


def film_candidates(
    takes: Sequence[Take],
    task: Mapping[str, Any],
    path: str | Path,
    *,
    task_paths: Sequence[str] = (),
    episodes: int = 3,
    seed: int = 0,
    wall_s: float = 300.0,
) -> Footage:
    """Film policies acting without noise, all in the same episodes, in a child process.

    The child loads weights only: no reward code runs in it. A failure (no renderer, damaged
    weights, out of time) is returned, not raised: a search does not end for want of a film.

    Args:
        takes: one or more, from left to right.
        task: the task's configuration node, with its `_target_`.
        path: of the MP4; its folder is created.
        task_paths: directories outside the package where the task's module lies.
        episodes: how many are shown.
        seed: of the episodes' starting states.
        wall_s: seconds that filming may take.
    """
    raise NotImplementedError
