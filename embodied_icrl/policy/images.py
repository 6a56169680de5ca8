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


MAX_CLASSES = 128
"""More classes than this are no class picture: each is a channel of the network's input."""


@dataclass(frozen=True)
class ImageEncoderConfig(EncoderConfig):
    """A trained convolutional network for pictures: see `is_image`."""

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
            raise ConfigError(
                f"observation {key!r} is no picture (uint8 or bounded floats with three axes, "
                f"uint8 with two, or up to {MAX_CLASSES} classes from 0 on with two): {space}"
            )
        return ImageEncoder(key, space, self)


def is_image(space: spaces.Space[Any]) -> bool:
    """Whether a space holds pictures.

    These are uint8 `[H, W, C]`, `[C, H, W]` or, up to 255, `[H, W]`; bounded floats `[H, W, C]` or
    `[C, H, W]` (depth); and classes, integers `[H, W]` from 0 to fewer than `MAX_CLASSES`.
    """
    if not isinstance(space, spaces.Box):
        return False
    if len(space.shape) == 3:
        return space.dtype == np.uint8 or (_has_floats(space) and space.is_bounded("both"))
    return _is_grey(space) or _classes(space) > 0


def _has_floats(space: spaces.Box) -> bool:
    return space.dtype is not None and space.dtype.kind == "f"


def _is_grey(space: spaces.Box) -> bool:
    return space.dtype == np.uint8 and len(space.shape) == 2 and bool((space.high == 255).all())


def _classes(space: spaces.Box) -> int:
    """How many classes a picture `[H, W]` of them tells apart; 0: it is none."""
    if space.dtype is None or space.dtype.kind not in "iu" or len(space.shape) != 2:
        return 0
    count = int(space.high.max()) + 1
    return count if (space.low == 0).all() and 2 <= count <= MAX_CLASSES else 0


class ImageEncoder(Features):
    """Strided 3 x 3 convolutions, flattened.

    All pictures are stored as uint8, so that a long context stays small, and divided by 255 inside.
    Floats are spread over 0 to 255 between the bounds of the space, and cut to them: a depth of up
    to 10 m is kept in steps of 4 cm, in half the memory of float16. Each class is a channel, 1
    where it is and 0 elsewhere.
    """

    def __init__(self, key: str, space: spaces.Space[Any], config: ImageEncoderConfig) -> None:
        super().__init__(key, space)
        assert isinstance(space, spaces.Box)
        self.stored_shape = self.space_shape
        self.stored_dtype = torch.uint8
        self.classes = 0 if _is_grey(space) else _classes(space)
        self._floats: tuple[np.ndarray, np.ndarray] | None = None
        if _has_floats(space):
            extent = np.where(space.high > space.low, space.high - space.low, 1)
            self._floats = space.low, 255 / extent
        shape = self.space_shape if len(self.space_shape) == 3 else (*self.space_shape, 1)
        first, last = shape[0], shape[-1]
        self.channels_last = (
            len(self.space_shape) == 2
            or config.layout == "hwc"
            or (config.layout == "auto" and last <= first)
        )
        channels = self.classes or (last if self.channels_last else first)
        height, width = shape[:2] if self.channels_last else shape[1:]
        # One channel per class takes as much memory as that many pictures in grey.
        self.chunk = max(1, config.chunk * 4 // max(4, self.classes))
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
        if self._floats is not None:
            low, scale = self._floats
            raw = np.rint(((raw - low) * scale).clip(0, 255))
        return torch.tensor(raw, dtype=torch.uint8, device=device)

    def first_bad(self, array: Any) -> int | None:
        if not self.classes:
            return super().first_bad(array)
        good = ((np.asarray(array) >= 0) & (np.asarray(array) < self.classes)).all(axis=(1, 2))
        return None if good.all() else int(np.argmin(good))

    def what_is_bad(self) -> str:
        return "is outside of its space" if self.classes else super().what_is_bad()

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
        features: Tensor = self.network(self._channels(images))
        return features

    def _channels(self, images: Tensor) -> Tensor:
        """Stored pictures as the network reads them, `[n, channel, H, W]`."""
        dtype = next(self.network.parameters()).dtype
        if self.classes:
            each = torch.arange(self.classes, dtype=torch.uint8, device=images.device)
            return (images[:, None] == each[:, None, None]).to(dtype)
        if images.dim() == 3:
            images = images[..., None]
        return (images.movedim(-1, 1) if self.channels_last else images).to(dtype) / 255
