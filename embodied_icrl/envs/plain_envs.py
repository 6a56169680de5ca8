"""Building the plain Gymnasium environments of a `TrialEnv`, with errors that teach."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym

from embodied_icrl.common.config import suggest
from embodied_icrl.common.errors import ConfigError

PlainEnv = gym.Env[Any, Any]
MakeEnv = Callable[[], PlainEnv]


def build_envs(make_env: MakeEnv, indices: Sequence[int]) -> list[PlainEnv]:
    """Build one environment per index (of the environment in the whole job).

    Raises:
        ConfigError: `make_env` returns something else, the same environment twice, or
            environments whose spaces differ.
        Exception: whatever `make_env` raises, with the attribute `env_index` and a note.
    """
    envs: list[PlainEnv] = []
    for index in indices:
        try:
            env = make_env()
        except Exception as error:
            error.add_note(f"while building environment {index}")
            error.env_index = index  # type: ignore[attr-defined]
            raise
        _check_new(env, envs, index)
        envs.append(env)
    return envs


def _check_new(env: Any, others: list[PlainEnv], index: int) -> None:
    if not isinstance(env, gym.Env):
        raise ConfigError(
            f"make_env returned a {type(env).__module__}.{type(env).__qualname__}; it must return "
            "a new gymnasium.Env"
        )
    if any(env is other for other in others):
        raise ConfigError(
            "make_env returned the same environment twice; it must build a new one at every call"
        )
    for name in ("observation_space", "action_space"):
        if others and getattr(env, name) != getattr(others[0], name):
            raise ConfigError(
                f"the {name} of environment {index} differs from that of the one before: make_env "
                "must always build the same"
            )


def horizon(env: PlainEnv, max_episode_steps: int | None) -> int:
    """The given episode length, or what the environment's spec says.

    Raises:
        ConfigError: neither says a positive number.
    """
    if max_episode_steps is None and env.spec is not None:
        max_episode_steps = env.spec.max_episode_steps
    if max_episode_steps is None:
        raise ConfigError(
            f"{env.unwrapped!r} does not say how long an episode may be: set max_episode_steps"
        )
    if max_episode_steps < 1:
        raise ConfigError(f"max_episode_steps must be at least 1, not {max_episode_steps}")
    return int(max_episode_steps)


def import_dotted(name: str, key: str) -> Callable[..., Any]:
    """Import `package.module.attribute`.

    Args:
        name: the dotted name.
        key: the configuration key that holds it, for messages.

    Raises:
        ConfigError: there is no such module or callable. An error inside the module passes
            through unchanged.
    """
    module_name, _, attribute = name.rpartition(".")
    if not module_name:
        raise ConfigError(f"{key}: {name!r} names no module; write module.function")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not (module_name + ".").startswith(error.name + "."):
            raise
        raise ConfigError(
            f"{key}: there is no module {error.name!r} for {name!r}; put its file into the folder "
            "given with --config-dir, or install it"
        ) from error
    if not hasattr(module, attribute):
        public = [other for other in vars(module) if not other.startswith("_")]
        advice = suggest(attribute, public)
        raise ConfigError(f"{key}: module {module_name!r} has no {attribute!r}; {advice}")
    function = getattr(module, attribute)
    if not callable(function):
        raise ConfigError(f"{key}: {name!r} is a {type(function).__name__}, not a function")
    return function  # type: ignore[no-any-return]
