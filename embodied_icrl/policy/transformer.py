"""Pre-norm transformer with Sink-KV attention, in two forms that give the same numbers.

`Transformer.forward` runs many tokens at once (training, and filling the cache);
`Transformer.step` runs one token per environment on the cache (acting).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from embodied_icrl.policy.attention import sink_attention
from embodied_icrl.policy.config import PolicyConfig
from embodied_icrl.policy.decode import Decoder

ROPE_BASE = 10_000.0

_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": F.relu, "gelu": F.gelu}

KeysValues = tuple[Tensor, Tensor]
Memory = Callable[[int, Tensor, Tensor], KeysValues]
"""Takes a layer and the new tokens' keys and values, returns those of all tokens to attend to."""


@dataclass(frozen=True)
class Span:
    """Where a run of tokens stands, and what it sees.

    Attributes:
        query_start: index of the first new token among the keys.
        groups: `[env, keys]`; tokens see those of their own group only. None: all.
        rotation: cosine and sine for rotary positions, or None.
    """

    query_start: int = 0
    groups: Tensor | None = None
    rotation: tuple[Tensor, Tensor] | None = None


class Block(nn.Module):
    """One layer: attention and an MLP, each on a normalised input, each added to the stream."""

    def __init__(self, config: PolicyConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.head_dim = config.head_dim
        self.window = config.window
        self.backend = config.attention
        self.activation = _ACTIVATIONS[config.activation]
        width = config.width
        self.attention_norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.attention_out = nn.Linear(width, width)
        self.mlp_norm = nn.LayerNorm(width)
        self.mlp_in = nn.Linear(width, config.mlp_width)
        self.mlp_out = nn.Linear(config.mlp_width, width)
        self.sink_key: Tensor | None
        self.sink_value: Tensor | None
        self._add_sink("sink_key", config.sink, trained_in=("kv", "k"))
        self._add_sink("sink_value", config.sink, trained_in=("kv", "v"))
        self._init_weights(config.layers)

    def _add_sink(self, name: str, variant: str, trained_in: tuple[str, str]) -> None:
        zeros = torch.zeros(self.heads, self.head_dim)
        if variant in ("none", "token"):
            self.register_buffer(name, None)
        elif variant in trained_in:
            self.register_parameter(name, nn.Parameter(zeros))
        else:
            self.register_buffer(name, zeros, persistent=False)

    def _init_weights(self, layers: int) -> None:
        for part in self.qkv.weight.chunk(3):
            nn.init.orthogonal_(part)
        nn.init.orthogonal_(self.mlp_in.weight, gain=2**0.5)
        for out in (self.attention_out, self.mlp_out):
            nn.init.orthogonal_(out.weight, gain=(2 * layers) ** -0.5)
        for linear in (self.qkv, self.attention_out, self.mlp_in, self.mlp_out):
            nn.init.zeros_(linear.bias)

    def sink(self) -> KeysValues | None:
        """This layer's own sink, None where there is none or it comes from a token."""
        if self.sink_key is None or self.sink_value is None:
            return None
        return self.sink_key, self.sink_value

    def project(self, x: Tensor) -> Tensor:
        """Queries, keys and values `[..., 3, heads, head_dim]` of `[..., width]`."""
        fused: Tensor = self.qkv(self.attention_norm(x))
        return fused.view(*x.shape[:-1], 3, self.heads, self.head_dim)

    def mlp(self, x: Tensor) -> Tensor:
        """The MLP's contribution to `[..., width]`."""
        out: Tensor = self.mlp_out(self.activation(self.mlp_in(self.mlp_norm(x))))
        return out

    def forward(
        self,
        x: Tensor,
        index: int,
        span: Span,
        memory: Memory | None,
        sink: KeysValues | None,
        keep: Tensor | None,
    ) -> Tensor:
        """Tokens `[env, step, width]` through the layer; `keep` scales its contributions."""
        q, k, v = self.project(x).permute(2, 0, 3, 1, 4)
        if span.rotation is not None:
            q, k = rotate(q, *span.rotation), rotate(k, *span.rotation)
        if memory is not None:
            k, v = memory(index, k, v)
        sink_k, sink_v = (None, None) if sink is None else sink
        attended = sink_attention(
            q,
            k,
            v,
            sink_k,
            sink_v,
            query_start=span.query_start,
            episode_ids=span.groups,
            window=self.window,
            backend=self.backend,
        )
        out = self.attention_out(attended.transpose(1, 2).flatten(2))
        x = x + (out if keep is None else out * keep)
        out = self.mlp(x)
        return x + (out if keep is None else out * keep)

    def step(
        self,
        x: Tensor,
        index: int,
        decoder: Decoder,
        rotation: tuple[Tensor, Tensor] | None,
        sink: KeysValues | None,
    ) -> Tensor:
        """One token per environment, `[env, width]`, through the layer."""
        qkv = self.project(x)
        if rotation is not None:
            qkv[:, :2] = rotate(qkv[:, :2], *rotation)
        attended = decoder.attend(index, qkv[:, 0], qkv[:, 1:], sink)
        x = x + self.attention_out(attended.flatten(1).to(x.dtype))
        return x + self.mlp(x)


class Transformer(nn.Module):
    """The layers and the final norm.

    A rotary position turns queries and keys; the sink's key is never turned.
    """

    sink_token: nn.Parameter | None

    def __init__(self, config: PolicyConfig) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.width)
        self.depth_dropout = config.depth_dropout
        self.head_dim = config.head_dim
        if config.sink == "token":
            self.sink_token = nn.Parameter(torch.randn(config.width))
        else:
            self.sink_token = None

    def forward(
        self,
        x: Tensor,
        span: Span,
        memory: Memory | None = None,
        generator: torch.Generator | None = None,
        depth_dropout: bool = False,
    ) -> Tensor:
        """Features `[env, step, width]` of tokens of the same shape.

        Args:
            x: tokens.
            span: their place and sight.
            memory: joins their keys and values with earlier ones; None where there are none.
            generator: randomness of depth-dropout.
            depth_dropout: skip whole layers per environment, at the configured rate.
        """
        sinks = self.sinks()
        for index, block in enumerate(self._layers()):
            keep = self._keep(x, generator) if depth_dropout and self.depth_dropout > 0 else None
            x = block(x, index, span, memory, sinks[index], keep)
        features: Tensor = self.norm(x)
        return features

    def step(self, x: Tensor, decoder: Decoder, rotation: tuple[Tensor, Tensor] | None) -> Tensor:
        """Features `[env, width]` of one token per environment; writes to the decoder's cache."""
        for index, (block, sink) in enumerate(zip(self._layers(), self.sinks(), strict=True)):
            x = block.step(x, index, decoder, rotation, sink)
        features: Tensor = self.norm(x)
        return features

    def sinks(self) -> list[KeysValues | None]:
        """Each layer's sink key and value `[heads, head_dim]`, None without a sink.

        A sink token attends to itself only, so its attention returns its own value, and its way
        through the layers needs no other token.
        """
        if self.sink_token is None:
            return [block.sink() for block in self._layers()]
        sinks: list[KeysValues | None] = []
        x: Tensor = self.sink_token
        for block in self._layers():
            _, key, value = block.project(x).unbind()
            sinks.append((key, value))
            x = x + block.attention_out(value.flatten())
            x = x + block.mlp(x)
        return sinks

    def rotation(self, positions: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Cosine and sine `[..., head_dim / 2]` of rotary angles at `positions`."""
        # Made here, not kept in a buffer: that would be rounded with the weights' type.
        size, device = self.head_dim, positions.device
        exponent = torch.arange(0, size, 2, dtype=torch.float64, device=device) / size
        angles = positions[..., None] * ROPE_BASE**-exponent
        return angles.cos().to(dtype), angles.sin().to(dtype)

    def _layers(self) -> list[Block]:
        return cast(list[Block], list(self.blocks))

    def _keep(self, x: Tensor, generator: torch.Generator | None) -> Tensor:
        """Scale of a layer's contribution per environment: 0, or 1 / (1 - rate)."""
        kept = 1.0 - self.depth_dropout
        draw = torch.rand(x.shape[0], 1, 1, generator=generator, device=x.device)
        return (draw < kept).to(x.dtype) / kept


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary encoding of `[..., head_dim]`; cosine and sine broadcast against half of it.

    Source: RoFormer, arXiv 2104.09864; the pairs are (i, i + head_dim / 2).
    """
    first, second = x.chunk(2, dim=-1)
    cos, sin = cos.to(x.dtype), sin.to(x.dtype)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)
