"""Acting speed and memory against context length: our cache, and one concatenated at every step.

A step is one `Policy.act` for 20 environments: encode a token each, append it to the memory of the
trial, attend to all of it, draw an action. Compared are

  preallocated   the cache of embodied_icrl.policy, written in place (float32 or bfloat16)
  concatenating  keys and values as tensors that grow by `torch.cat` at every step, with torch's
                 fused attention: what a transformer without a preallocated cache does

with the same weights and the same memory; that their outputs agree is checked before timing. The
memory holds random keys and values: how long a step takes doesn't depend on them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from common import (
    Row,
    Table,
    Variant,
    allocations,
    fresh_process,
    interleaved,
    parser,
    peak_rss_mib,
    per_item,
    ratio,
    run_benchmark,
    say,
)
from torch import Tensor

from embodied_icrl.envs.grid_house_config import GridHouseConfig
from embodied_icrl.policy import KVCache, Policy, PolicyConfig, StepBatch, TokenStream

ENVS = 20
TOLERANCE = 1e-5
CONTEXTS = (256, 1024, 4096, 16384)
QUICK_CONTEXTS = (64,)
MODELS = {
    "4 x 256": PolicyConfig(layers=4, width=256, heads=8, mlp_width=1024),
    "2 x 64": PolicyConfig(layers=2, width=64, heads=4, mlp_width=256),
}

Outputs = tuple[Tensor, Tensor, Tensor]


class ConcatenatingActor:
    """A policy that acts on keys and values concatenated anew at every step.

    Args:
        policy: its weights are used.
        keys, values: what it remembers, per layer `[env, heads, token, head_dim]`.
    """

    def __init__(self, policy: Policy, keys: list[Tensor], values: list[Tensor]) -> None:
        self.policy = policy
        self.keys, self.values = list(keys), list(values)

    @torch.inference_mode()
    def act(self, batch: StepBatch) -> Outputs:
        """The most likely actions, their log-probability and the values, each `[env]`."""
        transformer: Any = self.policy.transformer
        x = self.policy.encoder(batch)[:, 0]
        for layer, (block, sink) in enumerate(zip(transformer.blocks, transformer.sinks())):
            assert sink is not None
            fused = block.qkv(block.attention_norm(x)).view(len(x), 3, block.heads, 1, -1)
            q, k, v = fused.unbind(1)
            # The sink comes first, so that one concatenation does for both.
            keys = torch.cat([_first(sink[0], k), self.keys[layer], k], dim=2)
            values = torch.cat([_first(sink[1], v), self.values[layer], v], dim=2)
            attended = F.scaled_dot_product_attention(q, keys, values)
            self.keys[layer], self.values[layer] = keys[:, :, 1:], values[:, :, 1:]
            x = x + block.attention_out(attended.flatten(1))
            x = x + block.mlp(x)
        features = transformer.norm(x)
        params, value = self.policy.actor.params(features), self.policy.critic(features)
        action, log_prob = self.policy.actor.sample(params, None, True)
        return action, log_prob, value.squeeze(-1)


def _first(sink: Tensor, like: Tensor) -> Tensor:
    return sink[None, :, None].expand_as(like)


def make_policy(config: PolicyConfig, seed: int = 0) -> Policy:
    """An untrained policy for the GridHouse; its sinks are not zero, as after training."""
    env = GridHouseConfig().build(1)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        policy = Policy(
            config, env.single_observation_space, env.single_action_space, env.max_episode_steps
        ).eval()
        for name, parameter in policy.named_parameters():
            if name.endswith(("sink_key", "sink_value")):
                torch.nn.init.normal_(parameter)
    return policy


def make_token(policy: Policy, envs: int) -> StepBatch:
    """A token in the middle of an episode."""
    env = GridHouseConfig().build(envs)
    env.action_space.seed(0)
    stream = TokenStream(policy, envs)
    stream.start(env.reset(seed=0)[0])
    action = env.action_space.sample()
    result = env.step(action)
    return stream.push(*result[:4], policy.from_env_action(action))


def filled_cache(policy: Policy, envs: int, context: int, room: int) -> KVCache:
    """A memory of `context` random tokens with room for more."""
    cache = policy.new_cache(envs, context + room)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        # One environment at a time: in half precision the generator works on a copy.
        for env in range(envs):
            cache.data[:, :, env].normal_(generator=generator)
    cache.positions[:context] = torch.arange(context)
    cache.episode.zero_()
    cache.length = context
    return cache


class Preallocated:
    """The policy on its own cache; `reset` forgets the tokens since the beginning."""

    def __init__(self, policy: Policy, cache: KVCache, token: StepBatch) -> None:
        self.policy, self.cache, self.token = policy, cache, token
        self.context = cache.length

    def step(self) -> Outputs:
        return self.policy.act(self.token, self.cache, deterministic=True)

    def reset(self) -> None:
        self.cache.truncate(self.context)


class Concatenating:
    """The same on growing tensors, which begin as views of another cache's memory."""

    def __init__(self, policy: Policy, cache: KVCache, token: StepBatch) -> None:
        self.policy, self.token = policy, token
        self.memory = [
            [cache.data[layer, part, :, :, : cache.length] for layer in range(len(cache.data))]
            for part in (0, 1)
        ]
        self.reset()

    def step(self) -> Outputs:
        return self.actor.act(self.token)

    def reset(self) -> None:
        self.actor = ConcatenatingActor(self.policy, *self.memory)


Subject = Preallocated | Concatenating


def make_subjects(config: PolicyConfig, context: int, envs: int, room: int) -> dict[str, Subject]:
    """The variants with the same weights and, rounding aside, the same memory."""
    policy = make_policy(config)
    half = make_policy(replace(config, cache_dtype="bfloat16"))
    token = make_token(policy, envs)
    cache = filled_cache(policy, envs, context, room)
    return {
        "concatenating": Concatenating(policy, cache, token),
        "preallocated": Preallocated(policy, cache, token),
        "preallocated bfloat16": Preallocated(half, filled_cache(half, envs, context, room), token),
    }


def largest_difference(a: Subject, b: Subject, steps: int = 2) -> float:
    """Largest difference of log-probabilities and values over some steps."""
    largest = 0.0
    for _ in range(steps):
        for one, other in list(zip(a.step(), b.step()))[1:]:
            largest = max(largest, float((one - other).abs().max()))
    a.reset()
    b.reset()
    return largest


def steps_per_round(config: PolicyConfig, context: int) -> int:
    """Enough for the clock, and a round of the slowest variant within a few seconds."""
    return max(2, min(50, 4_000_000 // (context * config.layers * config.width)))


def time_variants(model: str, context: int, envs: int = ENVS, rounds: int = 7) -> list[Row]:
    """Rows of all variants at one context length.

    Raises:
        AssertionError: the variants don't compute the same.
    """
    config = MODELS[model]
    steps = steps_per_round(config, context)
    subjects = make_subjects(config, context, envs, steps)
    ours, naive = subjects["preallocated"], subjects["concatenating"]
    difference = largest_difference(ours, naive)
    assert difference < TOLERANCE, f"variants differ by {difference} at context {context}"
    half = largest_difference(ours, subjects["preallocated bfloat16"])
    for subject in subjects.values():
        subject.reset()

    def rounds_of(subject: Subject) -> Variant:
        return Variant(lambda: [subject.step() for _ in range(steps)], prepare=subject.reset)

    samples = interleaved({n: rounds_of(s) for n, s in subjects.items()}, rounds)
    rows = []
    for name, subject in subjects.items():
        subject.reset()
        allocated, largest = allocations(subject.step)
        timing = per_item(samples[name], steps)
        rows.append(
            {
                "model": model,
                "context": context,
                "variant": name,
                "envs": envs,
                "steps_per_sample": steps,
                **timing,
                "env_steps_per_s": 1e3 * envs / timing["wall_ms"],
                "env_steps_per_cpu_s": 1e3 * envs / timing["cpu_ms"],
                "speedup_cpu": ratio(samples["concatenating"], samples[name]),
                "speedup_wall": ratio(samples["concatenating"], samples[name], "wall_s"),
                "largest_difference": half if "bfloat16" in name else difference,
                "allocated_bytes_per_step": allocated,
                "largest_allocation_bytes": largest,
            }
        )
    return rows


def measure_memory(model: str, context: int, variant: str, envs: int = ENVS) -> Row:
    """Peak resident memory of one variant alone, with tensors of its own."""
    config = MODELS[model]
    if "bfloat16" in variant:
        config = replace(config, cache_dtype="bfloat16")
    policy = make_policy(config)
    token = make_token(policy, envs)
    step: Callable[[], Outputs]
    if variant == "concatenating":
        # No second reference to the tensors: each is freed once its successor is there.
        shape = (envs, config.heads, context, config.head_dim)
        keys, values = ([torch.randn(shape) for _ in range(config.layers)] for _ in range(2))
        step = partial(ConcatenatingActor(policy, keys, values).act, token)
        del keys, values
    else:
        step = Preallocated(policy, filled_cache(policy, envs, context, room=4), token).step
    before = peak_rss_mib()
    for _ in range(3):
        step()
    return {"peak_rss_mib": peak_rss_mib(), "peak_rss_before_acting_mib": before}


def make_row(kind: str, **arguments: object) -> Row:
    """In a fresh process: the rows of one context length, or the memory of one variant."""
    if kind == "time":
        return {"rows": time_variants(**arguments)}  # type: ignore[arg-type]
    return measure_memory(**arguments)  # type: ignore[arg-type]


def measure_all(contexts: tuple[int, ...], envs: int, rounds: int) -> list[Row]:
    rows: list[Row] = []
    for model in MODELS:
        for context in contexts:
            say(f"acting: {model}, context {context}")
            sizes = {"model": model, "context": context, "envs": envs}
            timed = fresh_process(__file__, kind="time", rounds=rounds, **sizes)["rows"]
            for row in timed:
                memory = fresh_process(__file__, kind="memory", variant=row["variant"], **sizes)
                rows.append(row | memory)
    return rows


TABLE = Table(
    "Acting, one thread; a step is one token of every environment; speedups over concatenating",
    {
        "envs": lambda r: str(r["envs"]),
        "layers x width": lambda r: r["model"],
        "context": lambda r: f"{r['context']:,}",
        "variant": lambda r: r["variant"],
        "CPU ms/step": lambda r: f"{r['cpu_ms']:.1f}",
        "wall ms/step": lambda r: f"{r['wall_ms']:.1f}",
        "env steps/CPU s": lambda r: f"{r['env_steps_per_cpu_s']:,.0f}",
        "CPU speedup": lambda r: f"{r['speedup_cpu']:.1f}x",
        "wall speedup": lambda r: f"{r['speedup_wall']:.1f}x",
        "allocated/step": lambda r: f"{r['allocated_bytes_per_step'] / 2**20:,.2f} MiB",
        "peak RSS": lambda r: f"{r['peak_rss_mib']:,.0f} MiB",
    },
)


def main() -> int:
    arguments = parser(__doc__).parse_args()

    def rows() -> list[Row]:
        if arguments.quick:
            return measure_all(QUICK_CONTEXTS, envs=2, rounds=2)
        return measure_all(CONTEXTS, envs=ENVS, rounds=7)

    return run_benchmark(__file__, arguments, rows, TABLE, make_row)


if __name__ == "__main__":
    sys.exit(main())
