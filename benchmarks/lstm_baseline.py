"""A recurrent policy on the same task and wall time: sb3-contrib's RecurrentPPO in Darkroom.

    python benchmarks/lstm_baseline.py --run runs/demo --evaluation runs/demo/evaluation/X.json

trains the LSTM for as long as `runs/demo` took (its last `wall_s`), on the same environment, and
evaluates both alike: the same held-out tasks, episodes, statistics. The run used as many processes
as its configuration says, the LSTM uses one: `--seconds 1200 2400` trains two, for the given time
and for twice as long, so that the table can show both. Evaluations don't count. On a busy machine
`--clock cpu` makes them CPU seconds. Learning rate and entropy bonus decay over that time, as in
the demo.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import Row, Table, parser, run_benchmark, say
from recurrent import LstmActor, TrialsAsEpisodes, WholeTrialPolicy
from sb3_contrib import RecurrentPPO
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.vec_env import VecNormalize

from embodied_icrl.common.config import build
from embodied_icrl.common.errors import ConfigError, UserError
from embodied_icrl.envs.darkroom import DarkroomConfig
from embodied_icrl.evaluation.statistics import summarise_metrics
from embodied_icrl.evaluation.trials import TrialLength, run_trials


@dataclass(frozen=True)
class Hyperparameters:
    """Of RecurrentPPO; a rollout is one trial of every environment."""

    num_envs: int = 64
    minibatches: int = 4
    epochs: int = 4
    learning_rate: float = 1e-3
    learning_rate_end: float = 1e-4
    hidden: int = 128
    gamma: float = 0.99
    gae_lambda: float = 0.95
    entropy_coef: float = 0.01
    entropy_coef_end: float = 0.003
    clip: float = 0.2


class Baseline:
    """An LSTM in training, and its clock, which stops for evaluations."""

    def __init__(
        self, config: DarkroomConfig, n_episodes: int, settings: Hyperparameters, seed: int
    ) -> None:
        self.config, self.settings, self.seed = config, settings, seed
        self.n_episodes = n_episodes
        self.progress = 0.0
        env = config.build(settings.num_envs, split="train", seed=seed)
        self.trials = TrialsAsEpisodes(env, n_episodes)
        steps = n_episodes * config.horizon
        self.model = RecurrentPPO(
            WholeTrialPolicy,
            # Returns of a whole trial are large: unscaled, the critic's gradient drowns the rest.
            VecNormalize(self.trials, norm_obs=False, norm_reward=True, gamma=settings.gamma),
            learning_rate=lambda _: self.learning_rate(),
            n_steps=steps,
            batch_size=steps * settings.num_envs // settings.minibatches,
            n_epochs=settings.epochs,
            gamma=settings.gamma,
            gae_lambda=settings.gae_lambda,
            clip_range=settings.clip,
            ent_coef=settings.entropy_coef,
            policy_kwargs={"lstm_hidden_size": settings.hidden, "net_arch": []},
            seed=seed,
            device="cpu",
        )
        self.model.set_logger(Logger(None, []))
        self.rollout_steps = steps * settings.num_envs
        self.wall_s = self.cpu_s = 0.0

    def train(self, seconds: float, clock: str = "wall") -> None:
        """Train until the clock shows `seconds`; the rollout that runs then is finished."""
        said = 0.0
        while self.clock(clock) < seconds:
            self.progress = self.clock(clock) / seconds
            start, end = self.settings.entropy_coef, self.settings.entropy_coef_end
            self.model.ent_coef = start + (end - start) * self.progress
            wall, cpu = time.perf_counter(), time.process_time()
            self.model.learn(self.rollout_steps, reset_num_timesteps=False)
            self.wall_s += time.perf_counter() - wall
            self.cpu_s += time.process_time() - cpu
            if self.wall_s - said > 60.0:
                said = self.wall_s
                say(self._progress(self.clock(clock), seconds))

    def learning_rate(self) -> float:
        """Cosine decay, as ours."""
        peak, end = self.settings.learning_rate, self.settings.learning_rate_end
        return end + (peak - end) * 0.5 * (1 + math.cos(math.pi * self.progress))

    def clock(self, name: str) -> float:
        """Seconds of training so far: `wall` or `cpu`."""
        return self.wall_s if name == "wall" else self.cpu_s

    def _progress(self, done: float, seconds: float) -> str:
        returns = np.mean(self.trials.finished[-self.settings.num_envs :], axis=0)
        return (
            f"lstm_baseline: {done:,.0f} of {seconds:,.0f} s, "
            f"{self.model.num_timesteps:,} steps, training return in episode 1 {returns[0]:.2f}, "
            f"in episode {self.n_episodes} {returns[-1]:.2f}"
        )

    def evaluate(self, n_trials: int, split: str, seed: int) -> dict[str, Any]:
        """The in-context curve of the return on trials of a split, as `embodied-icrl evaluate`."""
        env = self.config.build(min(64, n_trials), split=split, seed=seed)
        env.reset()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            actor = LstmActor(self.model.policy, env)
            table = run_trials(env, actor, np.arange(n_trials), TrialLength(self.n_episodes))
        summary = summarise_metrics(table.metrics, table.start_step, seed=seed)
        curve: dict[str, Any] = summary["metrics"]["return"]
        return curve


def ends(curve: Mapping[str, Any]) -> Row:
    """First and last episode of an evaluation's curve."""
    return {
        name: {key: curve[key][index] for key in ("mean", "low", "high", "n")}
        for name, index in (("return_first", 0), ("return_last", -1))
    }


def our_row(evaluation: Mapping[str, Any], run: Path | None) -> Row:
    """The transformer's row, from its evaluation file and its run."""
    row: Row = {"agent": "Sink-KV transformer", "processes": None, "seconds": None, "steps": None}
    if run is not None:
        last, config = last_metrics(run), run_config(run)
        row |= {"seconds": last["wall_s"], "steps": last["step"]}
        row["processes"] = config.get("processes", 1)
    curve = evaluation["metrics"]["return"]
    return {**row, **ends(curve), "curve": curve, "checkpoint": evaluation["checkpoint"]}


def last_metrics(run: Path) -> dict[str, Any]:
    from embodied_icrl.runs.metrics import read_metrics

    rows = read_metrics(run)
    if not rows:
        raise UserError(f"{run} has no finished update: let it train, or give --seconds")
    return rows[-1]


def run_config(run: Path) -> Mapping[str, Any]:
    from embodied_icrl.runs.run import load_run

    return load_run(run).config


def measure(arguments: argparse.Namespace) -> list[Row]:
    rows = []
    evaluation: dict[str, Any] = {"n_trials": arguments.n_trials, "n_episodes": 10}
    evaluation |= {"split": "test", "seed": 0, "context": "full", "n_demos": 0}
    if arguments.evaluation is not None:
        evaluation |= json.loads(arguments.evaluation.read_text())
        if evaluation["context"] != "full" or evaluation["n_demos"]:
            raise ConfigError(f"{arguments.evaluation} must have context=full and n_demos=0")
        rows.append(our_row(evaluation, arguments.run))
    config: Any = DarkroomConfig()
    if arguments.run is not None:
        config = build(run_config(arguments.run)["env"])
    if not isinstance(config, DarkroomConfig):
        raise ConfigError(f"{arguments.run} is not a Darkroom run: this baseline plays Darkroom")
    marks = arguments.seconds
    if marks is None:
        if arguments.run is None:
            raise ConfigError("how long to train? give --run RUN or --seconds N")
        marks = [last_metrics(arguments.run)["wall_s"]]
    settings = Hyperparameters(
        **{name: getattr(arguments, name) for name in asdict(Hyperparameters())}
    )
    for seconds in marks:
        baseline = Baseline(config, evaluation["n_episodes"], settings, arguments.seed)
        baseline.train(seconds, arguments.clock)
        curve = baseline.evaluate(evaluation["n_trials"], evaluation["split"], evaluation["seed"])
        recent = baseline.trials.finished[-settings.num_envs :]
        rows.append(
            {
                "agent": "LSTM, RecurrentPPO",
                "processes": 1,
                "seconds": baseline.wall_s,
                "cpu_s": baseline.cpu_s,
                "steps": baseline.model.num_timesteps,
                **ends(curve),
                "curve": curve,
                "training_curve": [float(statistics.fmean(x)) for x in zip(*recent)],
                "hyperparameters": asdict(settings),
                "seed": arguments.seed,
                "evaluation": {
                    key: evaluation[key] for key in ("n_trials", "n_episodes", "split", "seed")
                },
            }
        )
    return rows


def _interval(value: Mapping[str, Any]) -> str:
    return f"{value['mean']:.2f} [{value['low']:.2f}, {value['high']:.2f}]"


TABLE = Table(
    "Darkroom, held-out tasks: return in the first and the last episode of a trial [95% interval]",
    {
        "agent": lambda r: r["agent"],
        "processes": lambda r: str(r["processes"] or "?"),
        "wall s": lambda r: f"{r['seconds']:,.0f}" if r["seconds"] else "?",
        "CPU s": lambda r: f"{r['cpu_s']:,.0f}" if "cpu_s" in r else "?",
        "steps": lambda r: f"{r['steps'] / 1e6:.2f}M" if r["steps"] else "?",
        "first episode": lambda r: _interval(r["return_first"]),
        "last episode": lambda r: _interval(r["return_last"]),
    },
)


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--run", type=Path, help="run directory to compare with")
    options.add_argument("--evaluation", type=Path, help="its evaluation (JSON, context=full)")
    options.add_argument("--seconds", type=float, nargs="+", help="train one LSTM for each")
    options.add_argument("--clock", choices=("wall", "cpu"), default="wall", help="of --seconds")
    options.add_argument("--n-trials", type=int, default=200, help="held-out trials")
    options.add_argument("--seed", type=int, default=0)
    for name, value in asdict(Hyperparameters()).items():
        flag = "--" + name.replace("_", "-")
        options.add_argument(flag, type=type(value), default=value, help=f"default {value}")
    arguments = options.parse_args()
    if arguments.quick:
        arguments.seconds, arguments.n_trials, arguments.num_envs = [2.0], 8, 8
    return run_benchmark(__file__, arguments, lambda: measure(arguments), TABLE)


if __name__ == "__main__":
    sys.exit(main())
