"""Configuration of the policy."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from embodied_icrl.common.config import option
from embodied_icrl.common.errors import ConfigError

if TYPE_CHECKING:
    import gymnasium

    from embodied_icrl.policy.observations import Observation

SinkVariant = Literal["none", "token", "kv", "k", "v", "zero"]
RopeVariant = Literal["none", "episode", "trial"]
RewardInput = Literal["none", "sparse", "full"]
AttentionBackend = Literal["auto", "sdpa", "math"]
CacheDtype = Literal["float32", "bfloat16", "float16"]


class EncoderConfig(ABC):
    """How one key of the observation is read, in place of the default for its space.

    Subclasses are frozen dataclasses; a configuration names one by its `_target_`.
    """

    @abstractmethod
    def build(self, key: str, space: gymnasium.Space[Any]) -> Observation:
        """The reader of observation `key`, whose single-environment space is `space`."""


@dataclass(frozen=True)
class PolicyConfig:
    """The transformer that acts: its size, its memory and what it reads."""

    width: int = option(64, "size of a token's vector")
    layers: int = option(2, "number of transformer layers")
    heads: int = option(4, "attention heads per layer; must divide width")
    mlp_width: int = option(256, "hidden units of each layer's MLP")
    activation: Literal["relu", "gelu"] = option("relu", "activation of the MLPs")
    sink: SinkVariant = option(
        "kv",
        "extra key and value that every query sees: none, token (a learned input token), "
        "kv (both trained), k or v (that one trained, the other 0), zero (both 0)",
    )
    rope: RopeVariant = option(
        "none", "rotary positions by index of the episode or of the token in the trial"
    )
    inter_episode: bool = option(True, "attend to earlier episodes of the trial too")
    window: int | None = option(None, "attend to the newest `window` tokens only; null for all")
    depth_dropout: float = option(0.0, "chance of skipping a layer in the update's forward")
    reward_input: RewardInput = option(
        "full", "previous reward that the policy reads: none, sparse (its success part), full"
    )
    attention: AttentionBackend = option(
        "auto", "attention kernel: sdpa (fused), math (the plain equation, slow), auto (sdpa)"
    )
    cache_dtype: CacheDtype = option("float32", "number type of the memory's keys and values")
    encoders: dict[str, EncoderConfig] = option(
        {}, "encoder per observation key, by _target_; others get the default for their space"
    )
    ignore: tuple[str, ...] = option(
        (), "observation keys that the policy doesn't read; baselines and films may still need them"
    )

    def __post_init__(self) -> None:
        for key in ("width", "layers", "heads", "mlp_width"):
            if getattr(self, key) < 1:
                raise ConfigError(f"{key} must be at least 1, got {getattr(self, key)}")
        if self.width % self.heads:
            raise ConfigError(f"width {self.width} must be a multiple of heads {self.heads}")
        if self.rope != "none" and self.head_dim % 2:
            raise ConfigError(
                f"rope={self.rope} needs an even head size, got width / heads = {self.head_dim}"
            )
        if self.window is not None and self.window < 1:
            raise ConfigError(f"window must be at least 1 or null, got {self.window}")
        if not 0.0 <= self.depth_dropout < 1.0:
            raise ConfigError(f"depth_dropout must be in [0, 1), got {self.depth_dropout}")

    @property
    def head_dim(self) -> int:
        """Size of one head's keys and values."""
        return self.width // self.heads
