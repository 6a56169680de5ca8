"""Running trials in lockstep and writing down what happened in each of their episodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from embodied_icrl.envs.base import TrialVectorEnv

# Our name of a metric -> its key in the environments' `info["episode"]`.
METRIC_KEYS = {
    "return": "r",
    "success": "success",
    "spl": "spl",
    "soft_spl": "soft_spl",
    "length": "l",
    "path": "path",
    "distance_to_goal": "distance_to_goal",
    "collisions": "collisions",
}


class Actor(Protocol):
    """Something that acts in trials: a policy with its memory, the oracle, chance."""

    def start(self, observation: Mapping[str, np.ndarray], trials: np.ndarray) -> None:
        """New trials, whose numbers are ``trials: int [env]``, begin with ``observation``."""

    def act(self, episode: np.ndarray) -> np.ndarray:
        """Environment actions ``[env, ...]``; ``episode: int [env]`` counts from 0 in a trial."""

    def observe(
        self,
        observation: Mapping[str, np.ndarray],
        reward: np.ndarray,
        terminated: np.ndarray,
        truncated: np.ndarray,
        info: Mapping[str, Any],
    ) -> None:
        """What the environments answered to the last actions."""


@dataclass(frozen=True)
class TrialLength:
    """When a trial is over.

    ``n_episodes``: after so many episodes, each run to its end. ``n_steps``: no episode starts at
    token ``n_steps`` of the trial or later; one that has started still runs to its end, so that
    slow episodes are not lost. With both, whichever comes first.
    """

    n_episodes: int | None
    n_steps: int | None = None

    def allows(self, episode: int, token: int) -> bool:
        """Whether episode number ``episode`` (from 0) may start at token number ``token``."""
        within = self.n_episodes is None or episode < self.n_episodes
        return within and (self.n_steps is None or token < self.n_steps)

    def capacity(self, max_episode_steps: int) -> int:
        """The most tokens that a trial can have."""
        longest = max_episode_steps + 1
        limits = []
        if self.n_episodes is not None:
            limits.append(self.n_episodes * longest)
        if self.n_steps is not None:
            limits.append(self.n_steps + longest - 1)
        return min(limits)


@dataclass(frozen=True)
class TrialTable:
    """What happened, by trial and episode.

    Attributes:
        trial: int64 ``[trial]``, the numbers of the trials, which are their tasks' numbers too.
        metrics: those that the environment has of ``METRIC_KEYS``, ``length`` in steps, ``path``
            and ``distance_to_goal`` in metres: float64 ``[trial, episode]``, NaN where the episode
            never started.
        start_step: int64 ``[trial, episode]``, the token of the trial with which the episode
            starts (terminal tokens counted), -1 where it never did.
        best_return: float64 ``[trial, episode]``, the oracle's return; None without an oracle.
        tokens: int64 ``[trial]``, length of the trials, terminal tokens counted.
    """

    trial: np.ndarray
    metrics: dict[str, np.ndarray]
    start_step: np.ndarray
    best_return: np.ndarray | None
    tokens: np.ndarray


class _Recorder:
    """Collects the episodes of one batch of trials."""

    def __init__(self, trials: np.ndarray, length: TrialLength, recorded: np.ndarray) -> None:
        self.trials = trials
        self.length = length
        self.recorded = recorded
        self.rows = np.arange(trials.size)
        self.episode = np.zeros(trials.size, dtype=np.int64)
        self.done = ~recorded
        self.tokens = np.zeros(trials.size, dtype=np.int64)
        self.start: list[list[int]] = [[] for _ in trials]
        self.best: list[list[float]] = [[] for _ in trials]
        self.values: list[list[dict[str, float]]] = [[] for _ in trials]

    def begin(self, mask: np.ndarray, token: int, best: np.ndarray | None) -> None:
        """The masked environments' current token, number ``token``, starts an episode."""
        for i in np.flatnonzero(mask & ~self.done):
            if not self.length.allows(int(self.episode[i]), token):
                self.done[i] = True
                continue
            self.start[i].append(token)
            if best is not None:
                self.best[i].append(float(best[i]))

    def end(self, info: Mapping[str, Any], token: int) -> int:
        """Writes down the episodes that ended with token ``token``; returns how many."""
        mask = info.get("_episode")
        if mask is None:
            return 0
        ended = np.flatnonzero(np.asarray(mask) & ~self.done)
        arrays = {n: info["episode"][k] for n, k in METRIC_KEYS.items() if k in info["episode"]}
        for i in ended:
            self.values[i].append({name: float(array[i]) for name, array in arrays.items()})
            self.tokens[i] = token + 1
            self.episode[i] += 1
            if self.length.n_episodes is not None and self.episode[i] >= self.length.n_episodes:
                self.done[i] = True
        return int(ended.size)

    def table(self) -> TrialTable:
        rows = np.flatnonzero(self.recorded)
        width = max(len(self.start[i]) for i in rows)
        names = [n for n in METRIC_KEYS if any(n in v for i in rows for v in self.values[i])]
        values = {
            name: [[value.get(name, np.nan) for value in self.values[i]] for i in rows]
            for name in names
        }
        has_best = any(self.best[i] for i in rows)
        return TrialTable(
            trial=self.trials[rows].astype(np.int64),
            metrics={name: _padded(lists, width, np.nan) for name, lists in values.items()},
            start_step=_padded([self.start[i] for i in rows], width, -1).astype(np.int64),
            best_return=_padded([self.best[i] for i in rows], width, np.nan) if has_best else None,
            tokens=self.tokens[rows],
        )


StepHook = Callable[[int, int], None]


def run_trials(
    env: TrialVectorEnv,
    actor: Actor,
    trials: np.ndarray,
    length: TrialLength,
    *,
    on_step: StepHook | None = None,
) -> TrialTable:
    """Runs the tasks numbered ``trials: int [trial]``, as many at a time as ``env`` has rows.

    Environments whose trial is over wait for the others of their batch: nothing that they do then
    is recorded. ``on_step(steps, episodes)`` hears of newly recorded steps and episodes.
    """
    tables = []
    for first in range(0, trials.size, env.num_envs):
        batch = trials[first : first + env.num_envs]
        # The last batch may be short: the rows left over repeat a task and are not recorded.
        ids = np.concatenate([batch, np.full(env.num_envs - batch.size, batch[0])])
        recorded = np.arange(env.num_envs) < batch.size
        tables.append(_run_batch(env, actor, ids, recorded, length, on_step))
    return join_tables(tables)


def _run_batch(
    env: TrialVectorEnv,
    actor: Actor,
    ids: np.ndarray,
    recorded: np.ndarray,
    length: TrialLength,
    on_step: StepHook | None,
) -> TrialTable:
    observation, _ = env.reset(options={"new_trial": True, "task_ids": ids.astype(np.int64)})
    recorder = _Recorder(ids, length, recorded)
    recorder.begin(np.ones(env.num_envs, dtype=bool), 0, _best(env))
    actor.start(observation, ids)
    ended = np.zeros(env.num_envs, dtype=bool)
    token = 0
    while True:
        running = ~recorder.done & ~ended
        result = env.step(actor.act(recorder.episode))
        observation, reward, terminated, truncated, info = result
        token += 1
        if ended.any():
            recorder.begin(ended, token, _best(env))
        finished = recorder.end(info, token)
        if on_step is not None:
            on_step(int(running.sum()), finished)
        actor.observe(observation, reward, terminated, truncated, info)
        if recorder.done.all():
            return recorder.table()
        ended = np.asarray(terminated) | np.asarray(truncated)


def _best(env: TrialVectorEnv) -> np.ndarray | None:
    return env.optimal_return() if env.has_oracle else None


def join_tables(tables: Sequence[TrialTable]) -> TrialTable:
    """One table of all trials; episodes that some never reached are filled up."""
    width = max(table.start_step.shape[1] for table in tables)
    names = [n for n in METRIC_KEYS if any(n in table.metrics for table in tables)]

    def wide(arrays: Sequence[np.ndarray], fill: float) -> np.ndarray:
        return np.concatenate(
            [np.pad(a, ((0, 0), (0, width - a.shape[1])), constant_values=fill) for a in arrays]
        )

    empty = [np.full(table.start_step.shape, np.nan) for table in tables]
    best = [t.best_return if t.best_return is not None else e for t, e in zip(tables, empty)]
    return TrialTable(
        trial=np.concatenate([table.trial for table in tables]),
        metrics={
            name: wide([t.metrics.get(name, e) for t, e in zip(tables, empty, strict=True)], np.nan)
            for name in names
        },
        start_step=wide([table.start_step for table in tables], -1),
        best_return=wide(best, np.nan) if any(t.best_return is not None for t in tables) else None,
        tokens=np.concatenate([table.tokens for table in tables]),
    )


def _padded(rows: Sequence[Sequence[float]], width: int, fill: float) -> np.ndarray:
    array = np.full((len(rows), width), fill, dtype=np.float64)
    for i, row in enumerate(rows):
        array[i, : len(row)] = row
    return array
