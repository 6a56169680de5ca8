"""Spaces of plain Gymnasium environments, turned into those that trial environments have.

Observations become a flat `gymnasium.spaces.Dict` of Box and Discrete spaces: nested Dict spaces
get dotted keys, a space that isn't a Dict gets the key "observation".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import create_empty_array

from embodied_icrl.common.errors import ConfigError, ObservationError

ROOT_KEY = "observation"
ActionSpace = spaces.Discrete | spaces.MultiDiscrete | spaces.Box


class ObservationBatch:
    """The newest observation of each of `num_envs` plain environments, as arrays `[env, ...]`.

    Attributes:
        space: of one environment, a flat Dict of Box and Discrete spaces (Discrete ones start
            at 0: a start offset is taken off the observations).
        arrays: by key, `[env, ...]`, written in place.

    Raises:
        ConfigError: a space that is neither Box nor Discrete nor a Dict of them, or two keys
            that are the same once dotted.
    """

    def __init__(self, space: gym.Space[Any], num_envs: int) -> None:
        flat: dict[str, gym.Space[Any]] = {}
        self._entries: list[tuple[str, tuple[str, ...], int]] = []
        for path, leaf in _leaves(space, ()):
            key = ".".join(path) or ROOT_KEY
            if key in flat:
                raise ConfigError(
                    f"two observation keys are called {key!r} once nested keys are dotted: "
                    "rename one"
                )
            flat[key] = _checked_leaf(key, leaf)
            self._entries.append((key, path, int(getattr(leaf, "start", 0))))
        if not flat:
            raise ConfigError("the observation space is an empty Dict: give it at least one key")
        self.space = spaces.Dict(flat)
        self.arrays: dict[str, np.ndarray] = {
            key: np.asarray(create_empty_array(leaf, num_envs)) for key, leaf in flat.items()
        }

    def write(self, row: int, observation: Any, where: str) -> None:
        """Store one environment's observation in its row.

        Raises:
            ObservationError: a key is missing, or a value has not the shape and type that the
                space promises. `where` names the environment in the message.
        """
        for key, path, start in self._entries:
            value = _look_up(observation, path, key, where)
            target = self.arrays[key][row : row + 1]
            array = np.asarray(value)
            if start:
                array = array - start
            if array.shape != target.shape[1:]:
                raise ObservationError(
                    f"observation {key!r} of {where} has shape {array.shape}, but its space "
                    f"says {target.shape[1:]}: correct one of them"
                )
            if not np.can_cast(array.dtype, target.dtype, "same_kind"):
                raise ObservationError(
                    f"observation {key!r} of {where} is {array.dtype}, but its space says "
                    f"{target.dtype}: correct one of them"
                )
            target[0] = array


def _look_up(observation: Any, path: tuple[str, ...], key: str, where: str) -> Any:
    for name in path:
        try:
            observation = observation[name]
        except (KeyError, TypeError, IndexError):
            raise ObservationError(
                f"the observation of {where} has no key {key!r}, which its space promises"
            ) from None
    return observation


def _leaves(
    space: gym.Space[Any], path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], gym.Space[Any]]]:
    if isinstance(space, spaces.Dict):
        for name, inner in space.spaces.items():
            yield from _leaves(inner, (*path, name))
    else:
        yield path, space


def _checked_leaf(key: str, space: gym.Space[Any]) -> gym.Space[Any]:
    if isinstance(space, spaces.Discrete):
        return spaces.Discrete(int(space.n))
    if isinstance(space, spaces.Box) and np.dtype(space.dtype).kind in "fiu":
        return space
    kind = f"{type(space).__name__}{' of ' + str(space.dtype) if space.dtype is not None else ''}"
    raise ConfigError(
        f"observation {key!r} is a {kind}; wrap the environment so that its observations are "
        "numeric Box, Discrete or Dict spaces"
    )


def checked_action_space(space: gym.Space[Any]) -> ActionSpace:
    """Return an action space that a policy can act in.

    Raises:
        ConfigError: not Discrete, one-dimensional MultiDiscrete or one-dimensional, bounded,
            floating-point Box.
    """
    if isinstance(space, spaces.Discrete):
        return space
    if isinstance(space, spaces.MultiDiscrete):
        if space.nvec.ndim != 1:
            raise ConfigError(
                f"the MultiDiscrete action space has shape {space.shape}; flatten it to one "
                "dimension in a wrapper"
            )
        return space
    if isinstance(space, spaces.Box):
        return _checked_box(space)
    raise ConfigError(
        f"the action space is a {type(space).__name__}; wrap the environment so that actions are "
        "Discrete, MultiDiscrete or Box"
    )


def _checked_box(space: spaces.Box) -> spaces.Box:
    if len(space.shape) != 1 or np.dtype(space.dtype).kind != "f":
        raise ConfigError(
            f"the Box action space has shape {space.shape} and type {space.dtype}; wrap the "
            "environment so that actions are one-dimensional floats"
        )
    if not space.is_bounded():
        raise ConfigError(
            "the Box action space is unbounded; give it finite low and high, for instance with "
            "gymnasium.wrappers.RescaleAction"
        )
    return space


def checked_actions(
    space: ActionSpace, actions: np.ndarray, num_envs: int, ignored: np.ndarray
) -> np.ndarray:
    """Check a batch of actions, `[env, ...]`, before any environment moves.

    Args:
        ignored: bool `[env]`, the rows whose action has no effect; they may hold anything.

    Raises:
        ValueError: a wrong shape or type, or a Discrete or MultiDiscrete action out of range.
    """
    actions = np.asarray(actions)
    integers = not isinstance(space, spaces.Box)
    shape = (num_envs, *(space.shape or ()))
    if actions.shape != shape or actions.dtype.kind not in ("iu" if integers else "fiu"):
        kind = "an integer" if integers else "a float"
        raise ValueError(
            f"actions must be {kind} array of shape {shape}, got {actions.dtype} of shape "
            f"{actions.shape}"
        )
    if isinstance(space, spaces.Box):
        return actions.astype(space.dtype, copy=False)
    low = space.start
    high = low + (space.n if isinstance(space, spaces.Discrete) else space.nvec)
    wrong = ((actions < low) | (actions >= high)).reshape(num_envs, -1).any(axis=1) & ~ignored
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        raise ValueError(f"action {actions[row]} of environment {row} is not in {space}")
    return actions


def env_action(space: ActionSpace, action: np.ndarray) -> Any:
    """One row of a batch of actions as a plain environment expects it, safe to keep."""
    if isinstance(space, spaces.Discrete):
        return int(action)
    return np.array(action, dtype=space.dtype)


def any_action(space: ActionSpace) -> Any:
    """Some valid action, for rows where none is asked for."""
    if isinstance(space, spaces.Box):
        return (space.low + space.high) / 2
    return space.start
