"""A trained policy in NumPy: acts from weights that an untrusted process wrote, without torch.

Stable-baselines3's own policies would need their pickled settings; here the shape of the network
comes from the configuration, and a file of weights must fit it to the letter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from embodied_icrl.common.errors import UserError
from embodied_icrl.reward_search.algorithms import ActorShape, actor_shape

Array = NDArray[np.float32]


class WeightsError(UserError):
    """A file of weights is damaged, or isn't one of this policy."""


class Actor:
    """The deterministic policy of a trained network.

    Args:
        shape: of the network.
        layers: weight [out, in] and bias [out] of each linear layer.
        action_space: a Box, or a Discrete for PPO.
    """

    def __init__(
        self, shape: ActorShape, layers: list[tuple[Array, Array]], action_space: gym.Space[Any]
    ) -> None:
        self._layers = [(np.ascontiguousarray(weight.T), bias) for weight, bias in layers]
        self._activation = _ACTIVATIONS[shape.activation]
        self._squashed = shape.algorithm != "ppo"
        self._space = action_space

    def act(self, observation: NDArray[Any]) -> NDArray[Any]:
        """The most likely action for observations [width] or [batch, width]."""
        hidden = np.asarray(observation, np.float32)
        for weight, bias in self._layers[:-1]:
            hidden = self._activation(hidden @ weight + bias)
        weight, bias = self._layers[-1]
        output: NDArray[Any] = hidden @ weight + bias
        if isinstance(self._space, gym.spaces.Discrete):
            return np.asarray(self._space.start + np.argmax(output, axis=-1))
        assert isinstance(self._space, gym.spaces.Box)
        low, high = self._space.low.ravel(), self._space.high.ravel()
        if self._squashed:
            output = low + np.float32(0.5) * (np.tanh(output) + np.float32(1)) * (high - low)
        shape = (*output.shape[:-1], *self._space.shape)
        actions: NDArray[Any] = np.clip(output, low, high).reshape(shape)
        return actions.astype(self._space.dtype)


def load_actor(
    path: str | Path,
    algorithm: str,
    hyperparameters: Mapping[str, Any],
    observation_space: gym.Space[Any],
    action_space: gym.Space[Any],
) -> Actor:
    """The policy in a safetensors file.

    Args:
        hyperparameters: those that it was trained with; they give the network its shape.
        observation_space: a flat Box, as of `TaskEnv`.

    Raises:
        WeightsError: tensors are missing, surplus, of another shape or type, or not finite.
        ConfigError: no such network.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load

    shape = actor_shape(algorithm, hyperparameters)
    try:
        tensors = load(Path(path).read_bytes())
    except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
        raise WeightsError(f"weights can't be read: {error}") from error
    widths = [_width(observation_space), *shape.hidden, _width(action_space)]
    layers = []
    expected = set()
    for name, width, before in zip(shape.layer_names(), widths[1:], widths):
        expected |= {f"{name}.weight", f"{name}.bias"}
        weight = _checked(tensors, f"{name}.weight", (width, before))
        layers.append((weight, _checked(tensors, f"{name}.bias", (width,))))
    surplus = sorted(set(tensors) - expected)
    if surplus:
        raise WeightsError(f"weights have a tensor {surplus[0]!r} that the policy has no place for")
    return Actor(shape, layers, action_space)


def actor_of(take: Mapping[str, Any], env: gym.Env[Any, Any]) -> Actor:
    """The policy that a `Take.node` describes, for an environment of its task.

    Raises:
        WeightsError, ConfigError: see `load_actor`.
    """
    return load_actor(
        take["weights"],
        take["algorithm"],
        take["hyperparameters"],
        env.observation_space,
        env.action_space,
    )


def _width(space: gym.Space[Any]) -> int:
    """Numbers that the network takes in from a space, or gives out for one."""
    size = space.n if isinstance(space, gym.spaces.Discrete) else np.prod(space.shape or ())
    return int(size)


def _checked(tensors: Mapping[str, NDArray[Any]], name: str, shape: tuple[int, ...]) -> Array:
    tensor = tensors.get(name)
    if tensor is None:
        raise WeightsError(f"weights have no tensor {name!r}")
    if tensor.shape != shape or tensor.dtype != np.float32:
        found = f"{tensor.dtype} {list(tensor.shape)}"
        raise WeightsError(f"weights {name!r} are {found} instead of float32 {list(shape)}")
    if not np.isfinite(tensor).all():
        raise WeightsError(f"weights {name!r} are not all finite")
    return tensor


_ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "tanh": np.tanh,
    "relu": lambda x: np.maximum(x, np.float32(0)),
    "elu": lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, np.float32(0)))),
}
