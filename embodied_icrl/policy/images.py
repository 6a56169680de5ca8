"""A small convolutional network for images of any size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from embodied_icrl.common.config import option
from embodied_icrl.common.errors import ConfigError
from embodied_icrl.policy.config import EncoderConfig
from embodied_icrl.policy.observations import Features

SMALLEST_MAP = 8
"""Strided convolutions follow one another until the longer side is at most this."""


@dataclass(frozen=True)
class ImageEncoderConfig(EncoderConfig):
    """A trained convolutional network for uint8 images `[H, W, C]` or `[C, H, W]`."""

    channels: int = option(16, "channels of the first convolution; doubled by each, up to 64")
    layout: str = option("auto", "hwc, chw, or auto: the shorter of first and last side is C")
    chunk: int = option(1024, "images per pass; bounds the memory of a long context")

    def __post_init__(self) -> None:
        if self.layout not in ("auto", "hwc", "chw"):
            raise ConfigError(f"layout must be auto, hwc or chw, got {self.layout!r}")
        if self.channels < 1 or self.chunk < 1:
            raise ConfigError("channels and chunk must be at least 1")

    def build(self, key: str, space: spaces.Space[Any]) -> ImageEncoder:
        """The encoder of one image key."""
        if not is_image(space):
            raise ConfigError(f"observation {key!r} is no uint8 image with three axes: {space}")
        return ImageEncoder(key, space, self)


def is_image(space: spaces.Space[Any]) -> bool:
    """Whether a space holds uint8 arrays with three axes."""
    return isinstance(space, spaces.Box) and space.dtype == np.uint8 and len(space.shape) == 3


class ImageEncoder(Features):
    """Strided 3 x 3 convolutions, flattened. Images are stored as uint8, divided by 255 inside."""

    def __init__(self, key: str, space: spaces.Space[Any], config: ImageEncoderConfig) -> None:
        super().__init__(key, space)
        self.stored_shape = self.space_shape
        self.stored_dtype = torch.uint8
        self.chunk = config.chunk
        first, last = self.space_shape[0], self.space_shape[-1]
        self.channels_last = config.layout == "hwc" or (config.layout == "auto" and last <= first)
        channels = last if self.channels_last else first
        height, width = self.space_shape[:2] if self.channels_last else self.space_shape[1:]
        layers: list[nn.Module] = []
        out = config.channels
        while not layers or max(height, width) > SMALLEST_MAP:
            stride = 2 if max(height, width) > SMALLEST_MAP else 1
            conv = nn.Conv2d(channels, out, kernel_size=3, stride=stride, padding=1)
            nn.init.orthogonal_(conv.weight, gain=2**0.5)
            nn.init.zeros_(conv.bias)  # type: ignore[arg-type]
            layers += [conv, nn.ReLU()]
            height, width = -(-height // stride), -(-width // stride)
            channels, out = out, min(2 * out, 64)
        self.network = nn.Sequential(*layers, nn.Flatten())
        self.feature_size = channels * height * width

    def store(self, raw: np.ndarray, device: torch.device) -> Tensor:
        return torch.tensor(raw, dtype=torch.uint8, device=device)

    def forward(self, stored: Tensor) -> Tensor:
        """Images `[n, *space]` to features `[n, feature_size]`.

        More than `chunk` images go through in turn; their activations are computed again in the
        backward pass instead of being kept.
        """
        if len(stored) <= self.chunk:
            return self._features(stored)
        parts = torch.split(stored, self.chunk)
        if not torch.is_grad_enabled():
            return torch.cat([self._features(part) for part in parts])
        return torch.cat(
            [
                checkpoint(self._features, part, use_reentrant=False, preserve_rng_state=False)
                for part in parts
            ]
        )

    def _features(self, images: Tensor) -> Tensor:
        dtype = next(self.network.parameters()).dtype
        pixels = images.movedim(-1, 1) if self.channels_last else images
        features: Tensor = self.network(pixels.to(dtype) / 255)
        return features
