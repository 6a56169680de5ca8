"""One policy update of partial-update PPO (ReLIC, arXiv 2410.02751, section 3)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from embodied_icrl.common.errors import TrainingError
from embodied_icrl.policy import KVCache, Policy, StepBatch
from embodied_icrl.training.config import PPOConfig
from embodied_icrl.training.distributed import FlatGradients, Ranks
from embodied_icrl.training.loss import STATISTICS, Targets, ppo_loss
from embodied_icrl.training.returns import advantages
from embodied_icrl.training.rollout import Rollout


@dataclass(frozen=True)
class Bootstrap:
    """The token after the last one of the rollout so far; arrays [env]."""

    value: np.ndarray
    terminal: np.ndarray
    terminated: np.ndarray


@dataclass(frozen=True)
class Piece:
    """A stretch of tokens to evaluate and the part of it that the loss covers.

    Tokens `first` to `stop`, the ones before `first` being constant keys and values of the cache;
    the loss covers tokens from `loss_from` on.
    """

    first: int
    stop: int
    loss_from: int


def context_pieces(length: int, segment: int, *, full: bool, detached: bool) -> list[Piece]:
    """How an update walks `length` tokens per environment, the newest `segment` of them new."""
    start = length - segment
    if not detached:
        return [Piece(0, length, 0 if full else start)]
    if not full:
        return [Piece(start, length, start)]
    return [Piece(first, first + segment, first) for first in range(0, length, segment)]


class Updater:
    """Turns rollouts into optimiser steps; knows nothing of observations."""

    def __init__(
        self,
        policy: Policy,
        config: PPOConfig,
        ranks: Ranks,
        *,
        rng: np.random.Generator,
        dropout: torch.Generator,
        autocast: torch.dtype | None = None,
    ) -> None:
        self.policy = policy
        self.config = config
        self.ranks = ranks
        self.rng = rng
        self.dropout = dropout
        self.autocast = autocast
        self.parameters = [p for p in policy.parameters() if p.requires_grad]
        optimizer = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[config.optimizer]
        self.optimizer = optimizer(
            self.parameters,
            lr=config.learning_rate,
            eps=config.adam_eps,
            weight_decay=config.weight_decay,
            foreach=True,
        )
        self.optimizer_steps = 0
        self.gradients = FlatGradients(self.parameters, ranks)

    def update(
        self, rollout: Rollout, cache: KVCache, bootstrap: Bootstrap, *, full: bool, progress: float
    ) -> dict[str, float]:
        """Run all epochs on the newest segment (`full`: on the whole rollout so far).

        Args:
            rollout: tokens so far; the newest `config.segment` of them were collected since the
                last update.
            cache: keys and values of the last refresh, read in detached mode only.
            bootstrap: the token after the last one.
            full: cover the whole rollout instead of the newest segment.
            progress: share of the training done, 0 to 1 (schedules).

        Returns:
            metrics of the update: losses, entropy, KL, ... averaged over all valid tokens and
            ranks.

        Raises:
            TrainingError: the gradient is not finite.
        """
        config = self.config
        pieces = context_pieces(
            rollout.length,
            config.segment,
            full=full,
            detached=config.context_gradient == "detached",
        )
        loss_from = min(piece.loss_from for piece in pieces)
        targets = self._targets(rollout, bootstrap, loss_from)
        plan = [self._groups(rollout.num_envs) for _ in range(config.epochs)]
        counts = self._normalisation(targets, plan)
        self._schedule(progress)
        entropy_coef = self._entropy_coef(progress)

        self.policy.train()
        device = rollout.reward.device
        sums = torch.zeros(len(STATISTICS) + 1, dtype=torch.float64, device=device)
        grad_norms: list[Tensor] = []
        start_deviation = 0.0
        epochs_done = 0
        for epoch, groups in enumerate(plan):
            before = sums.clone()
            for g, group in enumerate(groups):
                count, mean, std = counts[epoch][g]
                if not count:
                    continue  # on every rank: nothing to learn from, and momentum is no gradient
                self.optimizer.zero_grad(set_to_none=True)
                for rows in group:
                    for loss, part in self._losses(
                        rollout, cache, targets, rows, pieces, loss_from,
                        (count, mean, std), entropy_coef,
                    ):  # fmt: skip
                        loss.backward()  # type: ignore[no-untyped-call]
                        sums += part
                grad_norms.append(self._step())
                if len(grad_norms) == 1:
                    first = self.ranks.sum(sums.clone())
                    start_deviation = float(first[-2] / first[-1])
            epochs_done = epoch + 1
            if config.target_kl is not None:
                kl = self.ranks.sum(sums - before)
                if (
                    float(kl[STATISTICS.index("approx_kl")] / kl[-1].clamp(min=1))
                    > config.target_kl
                ):
                    break
        self.policy.eval()
        return self._metrics(sums, grad_norms, targets, entropy_coef, start_deviation, epochs_done)

    # -- what an update is made of ------------------------------------------------------------

    def _targets(self, rollout: Rollout, bootstrap: Bootstrap, loss_from: int) -> Targets:
        """What the loss compares with, for tokens `loss_from` to the end, [env, step]."""
        span = slice(loss_from, rollout.length)
        value = rollout.value[:, span]
        terminal = rollout.batch.terminal[:, span]

        def extended(array: Tensor, last: np.ndarray) -> np.ndarray:
            return np.concatenate([array.cpu().numpy(), last[:, None]], axis=1)

        advantage = advantages(
            rollout.reward[:, span].cpu().numpy(),
            extended(value, bootstrap.value),
            extended(terminal, bootstrap.terminal),
            extended(rollout.terminated[:, span], bootstrap.terminated),
            gamma=self.config.gamma,
            gae_lambda=self.config.gae_lambda,
        )
        advantages_ = torch.from_numpy(advantage.astype(np.float32)).to(value.device)
        return Targets(
            log_prob=rollout.log_prob[:, span],
            value=value,
            advantage=advantages_,
            returns=advantages_ + value,
            valid=~(terminal | rollout.lost[:, None]),
        )

    def _groups(self, num_envs: int) -> list[list[Tensor]]:
        """A random partition of the environments: optimiser steps -> minibatches -> rows."""
        order = self.rng.permutation(num_envs)
        minibatches = [
            torch.from_numpy(np.sort(rows)).to(self.ranks.device)
            for rows in np.array_split(order, self.config.minibatches)
        ]
        size = self.config.grad_accumulation
        return [minibatches[i : i + size] for i in range(0, len(minibatches), size)]

    def _normalisation(
        self, targets: Targets, plan: list[list[list[Tensor]]]
    ) -> list[list[tuple[float, float, float]]]:
        """Valid tokens, and mean and deviation of their advantages, of every optimiser step.

        Over all ranks, with one all-reduce per update. A step whose environments are all lost, or
        at an episode's end, has none.
        """
        valid = targets.valid.double()
        advantage = targets.advantage.double() * valid
        moments = torch.stack([valid.sum(1), advantage.sum(1), advantage.square().sum(1)], 1)
        table = torch.stack(
            [moments[torch.cat(group)].sum(0) for groups in plan for group in groups]
        )
        count, total, square = self.ranks.sum(table).cpu().unbind(1)
        mode = self.config.normalize_advantages
        if mode == "tokens":  # every epoch covers all tokens once
            steps = len(plan[0])
            tokens = count[:steps].sum().clamp(min=1.0)
            total, square = total[:steps].sum() / tokens, square[:steps].sum() / tokens
            total, square = total * count, square * count
        divisor = count.clamp(min=1.0)
        mean = total / divisor
        std = (square / divisor - mean.square()).clamp(min=0.0).sqrt()
        if mode == "none":
            mean, std = torch.zeros_like(mean), torch.ones_like(std)
        rows = iter(zip(count.tolist(), mean.tolist(), std.tolist(), strict=True))
        return [[next(rows) for _ in groups] for groups in plan]

    def _losses(
        self,
        rollout: Rollout,
        cache: KVCache,
        targets: Targets,
        rows: Tensor,
        pieces: list[Piece],
        offset: int,
        normalisation: tuple[float, float, float],
        entropy_coef: float,
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Loss and statistics of a minibatch of environments, one pair per piece of its context."""
        count, mean, std = normalisation
        scale = 1.0 if self.config.normalize_advantages == "none" else 1.0 / (std + 1e-8)
        tokens = rollout.tokens()
        for piece in pieces:
            batch = tokens.steps(piece.first, piece.stop).rows(rows)
            actions = rollout.action[:, piece.first : piece.stop][rows]
            log_prob, entropy, value = self._evaluate(batch, actions, cache, rows, piece.first)
            kept = slice(piece.loss_from - piece.first, None)
            span = slice(piece.loss_from - offset, piece.stop - offset)
            part = Targets(
                log_prob=targets.log_prob[rows, span],
                value=targets.value[rows, span],
                advantage=(targets.advantage[rows, span] - mean) * scale,
                returns=targets.returns[rows, span],
                valid=targets.valid[rows, span],
            )
            loss, sums = ppo_loss(
                log_prob[:, kept], entropy[:, kept], value[:, kept], part,
                count=count,
                clip=self.config.clip,
                clip_value=self.config.clip_value,
                value_coef=self.config.value_coef,
                entropy_coef=entropy_coef,
            )  # fmt: skip
            valid = part.valid.sum(dtype=torch.float64)[None]
            yield loss, torch.cat([sums.double(), valid])

    def _evaluate(
        self, batch: StepBatch, actions: Tensor, cache: KVCache, rows: Tensor, first: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        past = cache.past(first, rows) if first else None
        device = self.ranks.device.type
        with torch.autocast(device, self.autocast, enabled=self.autocast is not None):
            return self.policy.evaluate_actions(batch, actions, past, generator=self.dropout)

    def _step(self) -> Tensor:
        """One optimiser step on the accumulated gradients of all ranks; returns their norm."""
        self.gradients.reduce()
        norm = torch.nn.utils.clip_grad_norm_(self.parameters, self.config.max_grad_norm)
        if not math.isfinite(float(norm)):
            raise TrainingError(
                f"the gradient became {float(norm)} at optimiser step {self.optimizer_steps}: "
                "lower ppo.learning_rate or look for huge rewards or observations; "
                "the last checkpoint is intact"
            )
        self.optimizer_steps += 1
        warmup = self.config.warmup_optimizer_steps
        ramp = min(1.0, self.optimizer_steps / warmup) if warmup else 1.0
        for group in self.optimizer.param_groups:
            group["lr"] = self.learning_rate * ramp
        self.optimizer.step()
        return norm

    def _schedule(self, progress: float) -> None:
        peak, end = self.config.learning_rate, self.config.learning_rate_end
        progress = min(max(progress, 0.0), 1.0)
        self.learning_rate = (
            peak if end is None else end + (peak - end) * 0.5 * (1 + math.cos(math.pi * progress))
        )

    def _entropy_coef(self, progress: float) -> float:
        start, end = self.config.entropy_coef, self.config.entropy_coef_end
        return start if end is None else start + (end - start) * min(max(progress, 0.0), 1.0)

    def _metrics(
        self,
        sums: Tensor,
        grad_norms: list[Tensor],
        targets: Targets,
        entropy_coef: float,
        start_deviation: float,
        epochs_done: int,
    ) -> dict[str, float]:
        valid = targets.valid
        residual = (targets.returns - targets.value)[valid].double()
        returns = targets.returns[valid].double()
        moments = torch.stack(
            [residual.square().sum(), residual.sum(), returns.square().sum(), returns.sum()]
        )
        total = self.ranks.sum(torch.cat([sums, moments, valid.sum()[None].double()])).tolist()
        *means, count, res_sq, res, ret_sq, ret, n = total
        n = max(n, 1.0)
        result = {name: m / max(count, 1.0) for name, m in zip(STATISTICS, means, strict=True)}
        variance = ret_sq / n - (ret / n) ** 2
        unexplained = res_sq / n - (res / n) ** 2
        result |= {
            "explained_variance": 1.0 - unexplained / variance if variance > 1e-12 else 0.0,
            "grad_norm": float(torch.stack(grad_norms).mean()) if grad_norms else 0.0,
            "lr": float(self.optimizer.param_groups[0]["lr"]),
            "entropy_coef": entropy_coef,
            "ratio_deviation_at_start": start_deviation,
            "epochs": float(epochs_done),
        }
        return result
