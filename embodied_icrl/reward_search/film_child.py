"""The inside of a filming: policies act from their weights, every step becomes a frame."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from embodied_icrl.common.config import build
from embodied_icrl.common.errors import UserError
from embodied_icrl.evaluation.canvas import FAINT, GREEN, INK, RED, RULE, Canvas
from embodied_icrl.evaluation.video_writer import VideoWriter
from embodied_icrl.manipulation.task import Task
from embodied_icrl.manipulation.task_env import TaskEnv
from embodied_icrl.reward_search.actor import Actor, actor_of
from embodied_icrl.reward_search.evaluation_child import evaluation_seed, thinned
from embodied_icrl.reward_search.findings import printable

MAX_STATES = 2000  # of one policy, handed back
PAUSE_S = 1.0  # at the end of an episode
PICTURE = (400, 300)
_MARGIN, _TOP = 16, 108  # the numbers stand above: players cover the lower edge


@dataclass
class Player:
    """One policy in its own environment, and what is known of its episodes.

    Attributes:
        observation: the newest one.
        ended: whether the running episode is over.
        met: by step of the running episode, whether the goal was met.
        fitness: of each finished episode.
        states: of all episodes.
    """

    id: str
    caption: str
    env: TaskEnv
    actor: Actor
    observation: NDArray[Any] = field(default_factory=lambda: np.zeros(0))
    ended: bool = False
    met: list[bool] = field(default_factory=list)
    fitness: list[float] = field(default_factory=list)
    states: list[list[float]] = field(default_factory=list)

    def begin(self, seed: int) -> None:
        """A new episode."""
        self.observation, _ = self.env.reset(seed=seed)
        self.ended, self.met = False, []

    def step(self) -> None:
        """One step; none once the episode is over."""
        if self.ended:
            return
        action = self.actor.act(self.observation)
        self.observation, _, terminated, truncated, info = self.env.step(action)
        self.met.append(bool(info["success"]))
        self.states.append(self.env.state_vector.tolist())
        self.ended = terminated or truncated
        if self.ended:
            self.fitness.append(float(info["fitness"]))


def film(payload: Mapping[str, Any]) -> dict[str, Any]:
    """Write the film.

    Args:
        payload: `takes`, each with `id`, `caption`, `weights`, `algorithm` and `hyperparameters`;
            `task`, `task_paths`, `episodes`; `path` of the MP4.

    Returns:
        `reason`, None or why there is no film; `fitness` and `states` by id; `note`, what the
        pictures lack.
    """
    sys.path[:0] = payload["task_paths"]
    players: list[Player] = []
    try:
        base: Any = Task
        task: Task = build(payload["task"], base, "task")
        for take in payload["takes"]:
            env = TaskEnv(task)
            players.append(Player(take["id"], take["caption"], env, actor_of(take, env)))
        _write(players, task, payload["episodes"], Path(payload["path"]))
        note = players[0].env.window.note
    except UserError as error:
        return {"reason": printable(str(error))}
    finally:
        for player in players:
            player.env.close()
    return {
        "reason": None,
        "fitness": {player.id: player.fitness for player in players},
        "states": {player.id: thinned(player.states, MAX_STATES) for player in players},
        "note": note,
    }


def _write(players: Sequence[Player], task: Task, episodes: int, path: Path) -> None:
    fps = _frame_rate(players[0].env)
    width = _MARGIN + len(players) * (PICTURE[0] + _MARGIN)
    size = (width, _TOP + PICTURE[1] + _MARGIN)
    with VideoWriter(path, fps, size) as writer:
        for episode in range(episodes):
            for player in players:
                player.begin(evaluation_seed(task, episode, "final"))
            writer.write(_frame(players, task, episode, episodes, size))
            while not all(player.ended for player in players):
                for player in players:
                    player.step()
                frame = _frame(players, task, episode, episodes, size)
                writer.write(frame)
            for _ in range(round(PAUSE_S * fps)):
                writer.write(frame)


def _frame_rate(env: TaskEnv) -> float:
    """Real time where the simulator tells its own and a video can show it."""
    dt = getattr(env.simulator.unwrapped, "dt", None)
    return float(np.clip(1 / dt, 10, 30)) if isinstance(dt, float) and dt > 0 else 20.0


def _frame(
    players: Sequence[Player], task: Task, episode: int, episodes: int, size: tuple[int, int]
) -> NDArray[np.uint8]:
    canvas = Canvas(*size)
    canvas.text((_MARGIN, 12), task.name, size=14, colour=FAINT)
    text = f"episode {episode + 1} of {episodes}"
    canvas.text((size[0] - _MARGIN, 12), text, size=14, colour=FAINT, anchor="ra")
    for index, player in enumerate(players):
        left = _MARGIN + index * (PICTURE[0] + _MARGIN)
        _panel(canvas, player, task, left)
    return canvas.array()


def _panel(canvas: Canvas, player: Player, task: Task, left: int) -> None:
    width, height = PICTURE
    canvas.text((left, 38), player.caption, size=18, bold=True, width=width)
    canvas.text((left, 68), f"step {len(player.met)} of {task.horizon}", size=15)
    text, colour = _status(player)
    canvas.text((left + width, 68), text, size=15, bold=True, colour=colour, anchor="ra")
    _timeline(canvas, player, task.horizon, (left, 92))
    canvas.picture((left, _TOP, width, height), player.env.render(width, height))


def _status(player: Player) -> tuple[str, tuple[int, int, int]]:
    """Whether the goal is met; at the end of the episode its fitness too."""
    reached = bool(player.met) and player.met[-1]
    words = "goal met" if reached else "goal not met"
    if player.ended:
        return f"{words}, fitness {player.fitness[-1]:.2f}", GREEN if reached else RED
    return words, GREEN if reached else INK


def _timeline(canvas: Canvas, player: Player, horizon: int, corner: tuple[int, int]) -> None:
    """A bar of the episode's steps: green where the goal was met."""
    left, top = corner
    unit = PICTURE[0] / horizon
    canvas.draw.rectangle((left, top, left + PICTURE[0], top + 8), fill=RULE)
    for step, met in enumerate(player.met):
        ends = (left + step * unit, top, left + (step + 1) * unit, top + 8)
        canvas.draw.rectangle(ends, fill=GREEN if met else FAINT)
