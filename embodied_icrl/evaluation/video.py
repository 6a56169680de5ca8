"""Videos of trials: what the agent sees, where it goes, and what it remembers."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from embodied_icrl.common.config import option
from embodied_icrl.common.errors import ConfigError
from embodied_icrl.envs.base import TrialVectorEnv
from embodied_icrl.envs.vector import EnvConfig, make_envs
from embodied_icrl.evaluation.actors import (
    OracleActor,
    PolicyActor,
    RandomActor,
    check_fit,
)
from embodied_icrl.evaluation.film import Acting, Film
from embodied_icrl.evaluation.scene import frame_size
from embodied_icrl.evaluation.trials import TrialLength, run_trials
from embodied_icrl.evaluation.video_writer import VideoWriter
from embodied_icrl.policy import Policy

__all__ = ["VideoConfig", "VideoWriter", "record_trial"]

_CONTEXT_TEXT = {
    "full": "",
    "cleared": "memory cleared at each episode",
    "shuffled": "earlier episodes shuffled",
}


@dataclass(frozen=True)
class VideoConfig:
    """What is filmed, and how."""

    split: str = option(
        "test", "tasks to film: test (held out), train, or validation where the environment has it"
    )
    trial: int = option(0, "number of the (first) trial: that of its task")
    n_episodes: int = option(10, "episodes of the trial")
    agent: Literal["policy", "oracle", "random"] = option("policy", "who acts")
    context: Literal["full", "cleared", "shuffled"] = option(
        "full", "the agent's memory, as in evaluate"
    )
    n_demos: int = option(0, "first episodes in which the oracle acts and the agent watches")
    deterministic: bool = option(False, "take the most likely action instead of sampling")
    seed: int = option(0, "of tasks and sampled actions, as in evaluate")
    attention: bool = option(False, "show which past tokens the policy attends to")
    fps: float = option(6.0, "environment steps per second of video")
    pause: float = option(1.0, "how long the end of an episode stays on screen, seconds")

    def __post_init__(self) -> None:
        if self.fps <= 0 or self.pause < 0:
            raise ConfigError("fps must be positive, and pause not negative")
        if self.n_episodes < 1 or self.trial < 0:
            raise ConfigError("n_episodes must be at least 1, and trial not negative")
        if not 0 <= self.n_demos < self.n_episodes:
            raise ConfigError(f"n_demos={self.n_demos} must be less than n_episodes")
        if self.agent != "policy" and (self.attention or self.n_demos or self.context != "full"):
            raise ConfigError("attention, n_demos and context are for agent=policy")
        if self.attention and self.context == "shuffled":
            raise ConfigError("attention=true can't follow context=shuffled: leave out one of them")


def record_trial(
    policy: Policy | None,
    env_config: EnvConfig,
    path: str | Path,
    config: VideoConfig,
    *,
    title: str = "",
    on_frame: Callable[[], None] | None = None,
    say: Callable[[str], None] | None = None,
) -> Path:
    """Films one trial; the policy does what it does in an evaluation with the same seed.

    Args:
        policy: acts; not needed for ``agent: oracle`` or ``random``.
        path: of the MP4.
        title: stands at the top, e.g. experiment and checkpoint.
        on_frame: called after each environment step.
        say: takes a line about the pictures of the agent's view, if there is one.

    Raises:
        ConfigError: the environment draws no pictures, has no oracle, or doesn't fit the policy.
    """
    length = TrialLength(config.n_episodes)
    with ExitStack() as stack:
        env = make_envs(env_config, 1, split=config.split, seed=config.seed)
        stack.callback(env.close)
        actor = _make_actor(policy, env, config, length.capacity(env.max_episode_steps))
        if isinstance(actor, PolicyActor):
            stack.enter_context(actor)
        size = frame_size(config.attention)
        writer = stack.enter_context(VideoWriter(path, config.fps, size))
        film = Film(
            actor,
            env,
            writer,
            title=_title(title, config),
            n_episodes=config.n_episodes,
            n_demos=config.n_demos,
            attention=config.attention,
            pause=round(config.pause * config.fps),
            on_frame=on_frame,
        )
        run_trials(env, film, np.array([config.trial]), length)
        film.finish()
        if say is not None and film.state.note:
            say(film.state.note)
    return Path(path)


def _title(title: str, config: VideoConfig) -> str:
    """What stands at the top of every frame."""
    tasks = "held-out task" if config.split == "test" else f"task of split {config.split}"
    parts = [
        title,
        {"oracle": "the oracle acts", "random": "a random agent"}.get(config.agent, ""),
        f"trial on {tasks} {config.trial}",
        _CONTEXT_TEXT[config.context],
        "most likely actions" if config.deterministic else "",
    ]
    return ",  ".join(part for part in parts if part)


def _make_actor(
    policy: Policy | None, env: TrialVectorEnv, config: VideoConfig, capacity: int
) -> Acting:
    if (config.agent == "oracle" or config.n_demos) and not env.has_oracle:
        raise ConfigError("this environment has no oracle: leave out n_demos and agent=oracle")
    if config.agent == "oracle":
        return OracleActor(env)
    if config.agent == "random":
        return RandomActor(env, config.seed)
    if policy is None:
        raise ConfigError("agent=policy needs a policy: give a run, or film agent=oracle or random")
    check_fit(policy, env)
    return PolicyActor(
        policy,
        env,
        capacity,
        context=config.context,
        n_demos=config.n_demos,
        deterministic=config.deterministic,
        seed=config.seed,
    )
