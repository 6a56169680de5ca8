"""Filming a trial while it runs: every token becomes a frame."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from PIL import Image

from embodied_icrl.common.errors import ConfigError
from embodied_icrl.envs.base import RenderState, TrialVectorEnv
from embodied_icrl.evaluation.actors import OracleActor, PolicyActor, RandomActor
from embodied_icrl.evaluation.scene import AttentionView, EpisodeRecord, Scene, draw_scene
from embodied_icrl.evaluation.video_writer import VideoWriter
from embodied_icrl.policy.attention_maps import AttentionMap, newest_attention

Acting = PolicyActor | OracleActor | RandomActor

_THUMBNAIL = 240


class Film:
    """An actor that films what another one does, in the one environment of ``env``.

    Args:
        actor: acts.
        env: one environment that can draw itself.
        writer: takes the frames.
        title: stands at the top.
        n_episodes: of the trial.
        n_demos: the first episodes, marked as the oracle's.
        attention: draw the panel of attention (for a `PolicyActor`).
        pause: further frames that show the end of an episode.
        on_frame: called after each environment step.
    """

    def __init__(
        self,
        actor: Acting,
        env: TrialVectorEnv,
        writer: VideoWriter,
        *,
        title: str,
        n_episodes: int,
        n_demos: int = 0,
        attention: bool = False,
        pause: int = 0,
        on_frame: Callable[[], None] | None = None,
    ) -> None:
        self.actor = actor
        self.env = env
        self.writer = writer
        self.title = title
        self.n_episodes = n_episodes
        self.n_demos = n_demos
        self.attention = attention
        self.pause = pause
        self.on_frame = on_frame
        self.episodes: list[EpisodeRecord] = []
        self.state: RenderState
        self.seen = _Seen()
        self.reward = 0.0
        self.action = ""
        self.ended = False

    def start(self, observation: Mapping[str, np.ndarray], trials: np.ndarray) -> None:
        """The trial begins."""
        self.actor.start(observation, trials)
        self._begin_episode()

    def act(self, episode: np.ndarray) -> np.ndarray:
        """Acts, and films the moment at which the action was chosen."""
        actions = self.actor.act(episode)
        view = self._look(self.actor) if self.attention else None
        picture = draw_scene(self._scene(view))
        for _ in range(1 + self.pause if self.ended else 1):
            self.writer.write(picture)
        if self.on_frame is not None:
            self.on_frame()
        self.action = action_text(self.env, actions[0])
        return actions

    def observe(
        self,
        observation: Mapping[str, np.ndarray],
        reward: np.ndarray,
        terminated: np.ndarray,
        truncated: np.ndarray,
        info: Mapping[str, Any],
    ) -> None:
        """Takes the result of a step into the record."""
        self.actor.observe(observation, reward, terminated, truncated, info)
        if self.ended:
            self._begin_episode()
            return
        now = self.episodes[-1]
        now.steps += 1
        self.reward = float(reward[0])
        now.returned += self.reward
        self._render()
        self.ended = bool(terminated[0] or truncated[0])
        if self.ended:
            now.finished = True
            success = info["episode"].get("success")
            now.success = None if success is None else bool(success[0])

    def finish(self) -> None:
        """Films the end of the last episode, at which nobody needs to act any more."""
        self.act(np.array([self.n_episodes]))

    def _begin_episode(self) -> None:
        best = float(self.env.optimal_return()[0]) if self.env.has_oracle else None
        demo = len(self.episodes) < self.n_demos
        self.episodes.append(EpisodeRecord(best=best, demo=demo))
        self.reward, self.action, self.ended = 0.0, "", False
        self._render()

    def _render(self) -> None:
        try:
            self.state = self.env.render_state(0)
        except NotImplementedError as error:
            raise ConfigError(f"can't film this environment: {error}") from error
        column, row, _ = self.state.pose
        self.episodes[-1].path.append((column, row))

    def _look(self, actor: Acting) -> AttentionView:
        assert isinstance(actor, PolicyActor)
        self.seen.append(len(self.episodes), self.episodes[-1].steps, self.state.agent_view)
        return self.seen.view(newest_attention(actor.policy, actor.token, actor.cache))

    def _scene(self, attention: AttentionView | None) -> Scene:
        return Scene(
            title=self.title,
            state=self.state,
            episodes=self.episodes,
            n_episodes=self.n_episodes,
            step=self.episodes[-1].steps,
            max_steps=self.env.max_episode_steps,
            reward=self.reward,
            action=self.action,
            attention=attention,
        )


@dataclass
class _Seen:
    """What the agent saw at every token of the trial."""

    episode: list[int] = field(default_factory=list)
    step: list[int] = field(default_factory=list)
    views: list[np.ndarray] = field(default_factory=list)

    def append(self, episode: int, step: int, view: np.ndarray) -> None:
        self.episode.append(episode)
        self.step.append(step)
        self.views.append(_thumbnail(view))

    def view(self, attention: AttentionMap) -> AttentionView:
        """Attention by episode, and the token with the most of it."""
        weights = attention.tokens[0].cpu().to(torch.float64).numpy()
        positions = attention.positions.cpu().numpy()
        mass = np.bincount(
            np.array(self.episode)[positions], weights=weights, minlength=self.episode[-1] + 1
        )
        top = int(positions[weights.argmax()])
        here = top == len(self.views) - 1
        where = "this step" if here else f"episode {self.episode[top]}, step {self.step[top]}"
        return AttentionView(
            episodes=mass[1:].tolist(),
            sink=float(attention.sink[0]),
            top_view=self.views[top],
            top_caption=f"most attended: {where} ({weights.max():.0%})",
        )


def _thumbnail(view: np.ndarray) -> np.ndarray:
    """A copy, made smaller where it is large: a trial may have thousands."""
    shrink = _THUMBNAIL / max(view.shape[:2])
    if shrink >= 1:
        return view.copy()
    size = (max(1, round(view.shape[1] * shrink)), max(1, round(view.shape[0] * shrink)))
    return np.array(Image.fromarray(view).resize(size, Image.Resampling.BOX))


def action_text(env: TrialVectorEnv, action: Any) -> str:
    """An action in words, if the environment has them, or numbers."""
    space = env.single_action_space
    if isinstance(space, spaces.Discrete):
        index = int(action) - int(space.start)
        return env.action_names[index] if env.action_names else str(int(action))
    return ", ".join(f"{value:.3g}" for value in np.atleast_1d(action).ravel())
