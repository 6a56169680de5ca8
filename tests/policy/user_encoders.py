"""What a user would bring: a pretrained network, and an encoder of their own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from embodied_icrl.common.config import option
from embodied_icrl.policy.config import EncoderConfig
from embodied_icrl.policy.observations import Features


class Backbone(nn.Module):
    """Counts its calls; features `[n, 2, 3]` of uint8 images `[n, 4, 4, 3]`."""

    calls = 0

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(48, 6)

    def forward(self, images: Tensor) -> Tensor:
        type(self).calls += 1
        features: Tensor = self.linear(images.flatten(1).float() / 255)
        return features.view(-1, 2, 3)


def not_a_module() -> int:
    return 3


@dataclass(frozen=True)
class SquaresConfig(EncoderConfig):
    """A trained encoder of numbers and their squares."""

    gain: float = option(1.0, "factor of the squares")

    def build(self, key: str, space: spaces.Space[Any]) -> Squares:
        return Squares(key, space, self.gain)


class Squares(Features):
    def __init__(self, key: str, space: spaces.Space[Any], gain: float) -> None:
        super().__init__(key, space)
        self.stored_shape, self.stored_dtype = self.space_shape, torch.float32
        self.feature_size = 2 * self.space_shape[0]
        self.gain = nn.Parameter(torch.tensor(gain))

    def store(self, raw: np.ndarray, device: torch.device) -> Tensor:
        return torch.tensor(raw, dtype=torch.float32, device=device)

    def forward(self, stored: Tensor) -> Tensor:
        numbers = stored.to(self.gain.dtype)
        return torch.cat([numbers, self.gain * numbers.square()], dim=-1)
