"""Frozen encoders: features are computed once, when an observation arrives, and stored.

A long context keeps a feature vector per step instead of a large frame, and the update never runs
the encoder. Its weights belong to the user: they are read from a file, not trained, and not saved
with the policy. What is saved is the SHA-256 of the file: it may lie elsewhere later, but another
one would give the policy features that it has never seen, and is refused.
"""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from embodied_icrl.common.config import option
from embodied_icrl.common.errors import ConfigError
from embodied_icrl.policy.config import EncoderConfig
from embodied_icrl.policy.observations import Features


@dataclass(frozen=True)
class FrozenEncoderConfig(EncoderConfig):
    """A pretrained network whose features of one key are stored.

    `module` names a function without arguments that returns a `torch.nn.Module`; the module takes
    the raw observations `[n, *space]` (uint8 for images) and returns features `[n, ...]`.
    """

    module: str = option(doc="dotted name of a function that returns the network")
    weights: str = option(doc="its weights: a .safetensors file, or one that torch.load reads")
    store_as: Literal["float16", "float32"] = option("float16", "number type of stored features")
    chunk: int = option(64, "observations per pass of the network")

    def __post_init__(self) -> None:
        if self.chunk < 1:
            raise ConfigError(f"chunk must be at least 1, got {self.chunk}")

    def build(self, key: str, space: spaces.Space[Any]) -> FrozenEncoder:
        """The encoder with its weights loaded.

        Raises:
            ConfigError: the function or the weights can't be found, or don't fit each other.
        """
        network = _import_function(self.module, key)()
        if not isinstance(network, nn.Module):
            raise ConfigError(f"encoders.{key}.module: {self.module} returned no torch module")
        try:
            network.load_state_dict(_load_weights(self.weights, key))
        except RuntimeError as error:
            reason = " ".join(str(error).split())[:200]
            raise ConfigError(
                f"encoders.{key}.weights: {self.weights} don't fit {self.module}: {reason}"
            ) from error
        with open(self.weights, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").digest()
        return FrozenEncoder(key, space, network, digest, getattr(torch, self.store_as), self.chunk)


class FrozenEncoder(Features):
    """Stores the features of a network that isn't trained; its input is normalised and projected.

    Args:
        key: observation key.
        space: its space.
        network: takes raw observations `[n, *space]`, returns `[n, ...]`.
        digest: SHA-256 of the file with its weights.
        stored_dtype: type of the stored features.
        chunk: observations per pass.
    """

    digest: Tensor

    def __init__(
        self,
        key: str,
        space: spaces.Space[Any],
        network: nn.Module,
        digest: bytes,
        stored_dtype: torch.dtype = torch.float16,
        chunk: int = 64,
    ) -> None:
        super().__init__(key, space)
        # In a tuple, so that it is no submodule: neither trained, nor saved, nor cast.
        self._network = (network.eval().requires_grad_(False),)
        self._network_device = torch.device("cpu")
        self.stored_dtype = stored_dtype
        self.chunk = chunk
        probe = np.zeros((1, *self.space_shape), dtype=space.dtype)
        self.feature_size = int(self._run(probe, self._network_device).shape[1])
        self.stored_shape = (self.feature_size,)
        self.norm = nn.LayerNorm(self.feature_size)
        self.register_buffer("digest", torch.tensor(list(digest), dtype=torch.uint8))

    def store(self, raw: np.ndarray, device: torch.device) -> Tensor:
        return self._run(raw, device)

    def forward(self, stored: Tensor) -> Tensor:
        features: Tensor = self.norm(stored.to(self.norm.weight.dtype))
        return features

    def _load_from_state_dict(self, state: dict[str, Any], prefix: str, *rest: Any) -> None:
        """Refuse the state of an encoder that had another file of weights.

        Raises:
            ConfigError: says which file was used here, and the digests of both.
        """
        # The first checkpoints did not say which file they had.
        theirs = state.setdefault(f"{prefix}digest", self.digest)
        if not torch.equal(theirs.cpu(), self.digest.cpu()):
            there, here = (bytes(digest.tolist()).hex() for digest in (theirs, self.digest))
            raise ConfigError(
                f"encoders.{self.key}.weights: the policy was trained with another file (SHA-256 "
                f"{there[:12]}...) than the one given ({here[:12]}...): give that one"
            )
        super()._load_from_state_dict(state, prefix, *rest)

    @torch.no_grad()
    def _run(self, raw: np.ndarray, device: torch.device) -> Tensor:
        network = self._network[0]
        if device != self._network_device:
            network.to(device)
            self._network_device = device
        parts = torch.split(torch.as_tensor(raw), self.chunk)
        features = torch.cat([network(part.to(device)).flatten(1) for part in parts])
        return features.to(self.stored_dtype)


def _import_function(name: str, key: str) -> Callable[[], Any]:
    where = f"encoders.{key}.module"
    module_name, _, attribute = name.rpartition(".")
    if not module_name:
        raise ConfigError(f"{where} must be a dotted name like package.function, got {name!r}")
    try:
        function = getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"{where}: can't import {name!r} ({error})") from error
    if not callable(function):
        raise ConfigError(f"{where}: {name!r} is not a function")
    return function  # type: ignore[no-any-return]


def _load_weights(path: str, key: str) -> dict[str, Tensor]:
    if not Path(path).is_file():
        raise ConfigError(
            f"encoders.{key}.weights: no file {path!r}; download it and set its path "
            f"(policy.encoders.{key}.weights=FILE, of a trained policy encoder_weights={{{key}: "
            "FILE})"
        )
    if path.endswith(".safetensors"):
        from safetensors.torch import load_file

        return load_file(path)
    weights: dict[str, Tensor] = torch.load(path, map_location="cpu", weights_only=True)
    return weights
