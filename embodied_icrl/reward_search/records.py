"""What the parts of a reward search hand to each other: plain data, written to disk as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Phase = Literal["search", "final"]  # of a search; each is measured in episodes of its own
# What a training may run out of, by the limits that say how much of it there is.
LimitKind = Literal["wall", "cpu", "stall", "memory", "file", "disk"]
Message = Mapping[str, str]  # {"role": "system" | "user" | "assistant", "content": text}

BASELINES = ("human", "sparse")  # ids of the rewards that a task brings along
INIT = "init"  # id of the reward that a search began from
FINAL = -1  # the iteration that the trainings at the end are counted under
# What curves are called beside the components.
CURVES = ("step", "fitness", "total")


@dataclass(frozen=True)
class Parent:
    """The best reward so far, as the writers of the next ones see it.

    Attributes:
        candidate: its id.
        source: its code.
        fitness: its mean fitness.
        curves: for "fitness", "total" and every component, its values along training.
    """

    candidate: str
    source: str
    fitness: float
    curves: Mapping[str, tuple[float, ...]]


@dataclass(frozen=True)
class Request:
    """What a proposer is asked.

    Attributes:
        iteration: from 1.
        samples: the numbers of the answers wanted.
        attempt: 0, or how many answers without usable code came before for these samples.
        messages: the conversation for a language model.
        parent: None in the first iteration, unless the search began from a reward.
    """

    iteration: int
    samples: tuple[int, ...]
    attempt: int
    messages: tuple[Message, ...]
    parent: Parent | None = None


@dataclass(frozen=True)
class Usage:
    """What a call of a language model took.

    Attributes:
        prompt_tokens, completion_tokens: as the server counts them.
        estimated: the server didn't say; these are our guess.
    """

    prompt_tokens: int = 0
    completion_tokens: int = 0
    estimated: bool = False


@dataclass(frozen=True)
class Answer:
    """What a proposer answered for one sample: a text, or the reason why there is none.

    Where one call gave several answers, its usage stands in the first of them.
    """

    sample: int
    text: str | None
    error: str | None = None
    usage: Usage | None = None


@dataclass(frozen=True)
class Job:
    """One stretch of the training of one candidate with one seed, and the unit of work that is
    never repeated once it is finished.

    Attributes:
        candidate: its id.
        source: its reward code, untrusted.
        task: the task's configuration node, with its `_target_`.
        task_paths: directories outside the package where the task's module lies.
        algorithm, n_envs, hyperparameters: as in the task's `Budget`.
        seed: of this training.
        first_step, last_step: environment steps; a stretch that begins after 0 goes on from the
            state that the stretch before it left in `folder`.
        checkpoints: environment steps at which fitness is measured; the last is `last_step`.
        episodes: number of episodes of each measurement, in the order of `checkpoints`.
        phase: whose episodes it is measured in: those that candidates are compared in, or those
            held out for the trainings at the end.
        folder: the directory of this candidate and seed, absolute.
    """

    candidate: str
    source: str
    task: Mapping[str, Any]
    algorithm: str
    n_envs: int
    seed: int
    first_step: int
    last_step: int
    checkpoints: tuple[int, ...]
    folder: str
    episodes: tuple[int, ...]
    phase: Phase = "search"
    hyperparameters: Mapping[str, Any] = field(default_factory=dict)
    task_paths: tuple[str, ...] = ()


@dataclass(frozen=True)
class FitnessPoint:
    """Fitness at one moment of a training, from the separate evaluator.

    Attributes:
        step: environment steps trained.
        mean: over the episodes.
        success: share of the episodes that ended in success.
        episodes: how many there were.
    """

    step: int
    mean: float
    success: float
    episodes: int


@dataclass(frozen=True)
class JobResult:
    """How a job ended.

    Attributes:
        status: "done", or "failed" with a `reason` in one line.
        deterministic: False where another run might end otherwise: it was ended by the clock, or
            the machine failed it.
        env_steps: environment steps done in this stretch.
        fitness: one point per checkpoint reached.
        components: mean of each component per environment step, one value per checkpoint reached;
            untrusted names, limited in number and length.
        total: the same for the total reward.
        wall_s: seconds, training and evaluation.
        limit: the kind of limit by which it failed; None where it failed otherwise.
        sandbox: the layers in force, as `Layers.name` says; "" where that is not known.
    """

    status: Literal["done", "failed"]
    reason: str | None = None
    deterministic: bool = True
    env_steps: int = 0
    fitness: tuple[FitnessPoint, ...] = ()
    components: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    total: tuple[float, ...] = ()
    wall_s: float = 0.0
    limit: LimitKind | None = None
    sandbox: str = ""


@dataclass(frozen=True)
class Candidate:
    """One reward of a search: a row of the leaderboard and of the report.

    Attributes:
        id: like `i2_s05`; `human` and `sparse` are the baselines, `init` the reward begun from.
        iteration: from 1; 0 for the baselines and `init`.
        status: "refused" (by the checks), "failed" (in training), "stopped" (by racing),
            "trained", or "waiting".
        reason: why it is refused, failed or stopped.
        source: its code; None where an answer held none.
        parent: id of the candidate that the writer started from.
        fitness, low, high: mean with its 95% interval; None before the first measurement.
        env_steps: environment steps spent on it.
        curves: for "step", "fitness", "total" and every component, values along training.
    """

    id: str
    iteration: int
    status: Literal["waiting", "refused", "failed", "stopped", "trained"] = "waiting"
    reason: str | None = None
    source: str | None = None
    parent: str | None = None
    fitness: float | None = None
    low: float | None = None
    high: float | None = None
    env_steps: int = 0
    curves: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
