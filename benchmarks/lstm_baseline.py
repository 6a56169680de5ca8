"""A recurrent policy on the same task and wall time: sb3-contrib's RecurrentPPO in Darkroom.

    python benchmarks/lstm_baseline.py --run runs/demo --evaluation runs/demo/evaluation/X.json

trains the LSTM for as long as `runs/demo` took (its last `wall_s`), on the same environment, and
evaluates both alike: the same held-out tasks, episodes, statistics. The run used as many processes
as its configuration says, the LSTM uses one: `--seconds 1200 2400` trains for 1,200 s, evaluates,
goes on to 2,400 s in all and evaluates again, so that the table can show both. Evaluations don't
count. On a busy machine `--clock cpu` makes them CPU seconds.

The LSTM is trained as in RL^2 (arXiv 1611.02779): one episode of the library is a whole trial, so
the hidden state lives from the first to the last in-context episode, and the observation holds the
position, the previous action and reward, and a flag at the start of an episode.
"""

from __future__ import annotations

import argparse
import json
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
from gymnasium import spaces
from sb3_contrib import RecurrentPPO
from sb3_contrib.ppo_recurrent import MlpLstmPolicy
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.vec_env import VecEnv, VecNormalize

from embodied_icrl.common.config import build
from embodied_icrl.common.errors import ConfigError, UserError
from embodied_icrl.envs.base import TrialVectorEnv
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
    hidden: int = 128
    gamma: float = 0.99
    gae_lambda: float = 0.95
    entropy_coef: float = 0.01
    clip: float = 0.2


class TrialMemory:
    """What an RL^2 agent sees besides the observation, for several environments.

    Attributes:
        size: length of an observation vector.
    """

    def __init__(self, env: TrialVectorEnv) -> None:
        assert isinstance(env.single_observation_space, spaces.Dict)
        position = env.single_observation_space["position"]
        assert isinstance(position, spaces.MultiDiscrete)
        assert isinstance(env.single_action_space, spaces.Discrete)
        self._sides = [int(side) for side in position.nvec]
        self._actions = int(env.single_action_space.n)
        self._action = np.zeros((env.num_envs, self._actions), np.float32)
        self._reward = np.zeros((env.num_envs, 1), np.float32)
        self._start = np.zeros((env.num_envs, 1), np.float32)
        self.size = sum(self._sides) + self._actions + 2

    def begin_trial(self, mask: np.ndarray) -> None:
        """The masked environments have no past."""
        self._action[mask] = 0.0
        self._reward[mask] = 0.0
        self._start[mask] = 1.0

    def record(self, mask: np.ndarray, action: np.ndarray, reward: np.ndarray) -> None:
        """What the masked environments' last step was."""
        self._action[mask] = np.eye(self._actions, dtype=np.float32)[action[mask]]
        self._reward[mask, 0] = reward[mask]
        self._start[mask] = 0.0

    def begin_episode(self, mask: np.ndarray) -> None:
        """The masked environments' next observation is the first of an episode of the trial."""
        self._start[mask] = 1.0

    def vector(self, observation: Mapping[str, np.ndarray]) -> np.ndarray:
        """One-hot position, one-hot action, reward, flag: float32 `[env, size]`."""
        position = observation["position"]
        one_hots = [
            np.eye(side, dtype=np.float32)[position[:, axis]]
            for axis, side in enumerate(self._sides)
        ]
        return np.concatenate([*one_hots, self._action, self._reward, self._start], axis=1)


class TrialsAsEpisodes(VecEnv):
    """Trials of a batched environment as Stable-Baselines3 episodes, one after another.

    An ended episode is followed at once by the next one's first observation, with the last reward
    beside it: no step is spent on an action that is ignored.
    """

    def __init__(self, env: TrialVectorEnv, n_episodes: int) -> None:
        self.env = env
        self.n_episodes = n_episodes
        self.memory = TrialMemory(env)
        self.render_mode = None
        space = spaces.Box(0.0, np.inf, (self.memory.size,), np.float32)
        super().__init__(env.num_envs, space, env.single_action_space)
        self.episode = np.zeros(env.num_envs, np.int64)
        self.returns = np.zeros((env.num_envs, n_episodes))
        self.finished: list[np.ndarray] = []

    def reset(self) -> np.ndarray:
        everyone = np.ones(self.num_envs, dtype=bool)
        self._begin_trials(everyone)
        observation, _ = self.env.reset(options={"new_trial": True})
        return self.memory.vector(observation)

    def step_async(self, actions: np.ndarray) -> None:
        self.actions = np.asarray(actions)

    def step_wait(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[dict[str, Any]]]:
        observation, reward, terminated, truncated, _ = self.env.step(self.actions)
        reward = np.array(reward)
        everyone = np.ones(self.num_envs, dtype=bool)
        self.memory.record(everyone, self.actions, reward)
        self.returns[np.arange(self.num_envs), self.episode] += reward
        ended = np.asarray(terminated) | np.asarray(truncated)
        self.episode[ended] += 1
        over = self.episode >= self.n_episodes
        if (ended & ~over).any():
            self.memory.begin_episode(ended & ~over)
            observation, _ = self.env.reset(options={"reset_mask": ended & ~over})
        if over.any():
            self.finished += list(self.returns[over].copy())
            self._begin_trials(over)
            observation, _ = self.env.reset(options={"new_trial": True, "reset_mask": over})
        return self.memory.vector(observation), reward, over, [{} for _ in over]

    def _begin_trials(self, mask: np.ndarray) -> None:
        self.memory.begin_trial(mask)
        self.episode[mask] = 0
        self.returns[mask] = 0.0

    def close(self) -> None:
        self.env.close()

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        return [False] * self.num_envs

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        return [getattr(self, attr_name)] * self.num_envs

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        raise NotImplementedError("the environments share their attributes")

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> Any:
        raise NotImplementedError("the environments are one object")


class WholeTrialPolicy(MlpLstmPolicy):
    """The library's policy, which walks a sequence step by step if a trial begins in it.

    Where trials begin at the first step of sequences only, as here, the LSTM takes the whole
    sequence at once: the same numbers, faster, so that the baseline gets more steps done.
    """

    @staticmethod
    def _process_sequence(
        features: torch.Tensor,
        lstm_states: tuple[torch.Tensor, torch.Tensor],
        episode_starts: torch.Tensor,
        lstm: torch.nn.LSTM,
    ) -> tuple[torch.Tensor, Any]:
        sequences = lstm_states[0].shape[1]
        starts = episode_starts.reshape(sequences, -1)
        if not starts[:, 1:].any():
            keep = (1.0 - starts[:, 0]).view(1, sequences, 1)
            lstm_states = (keep * lstm_states[0], keep * lstm_states[1])
            episode_starts = torch.zeros_like(episode_starts)
        walk: Any = MlpLstmPolicy._process_sequence
        output, states = walk(features, lstm_states, episode_starts, lstm)
        return output, states


class LstmActor:
    """The trained LSTM in our evaluation (`embodied_icrl.evaluation.trials.Actor`).

    Our environments show the observation that ended an episode and ignore the action after it; the
    LSTM, which was trained without that token, leaves it out here too.
    """

    def __init__(self, policy: Any, env: TrialVectorEnv) -> None:
        self.policy = policy
        self.memory = TrialMemory(env)
        self.everyone = np.ones(env.num_envs, dtype=bool)

    def start(self, observation: Mapping[str, np.ndarray], trials: np.ndarray) -> None:
        self.memory.begin_trial(self.everyone)
        self.vector = self.memory.vector(observation)
        self.state: tuple[np.ndarray, ...] | None = None
        self.trial_start = self.everyone
        self.ended = ~self.everyone

    def act(self, episode: np.ndarray) -> np.ndarray:
        action, state = self.policy.predict(self.vector, self.state, self.trial_start)
        if self.state is not None:
            old = self.state
            state = tuple(
                np.where(self.ended[None, :, None], before, after)
                for before, after in zip(old, state, strict=True)
            )
        self.state, self.trial_start, self.action = state, ~self.everyone, action
        return np.asarray(action)

    def observe(
        self,
        observation: Mapping[str, np.ndarray],
        reward: np.ndarray,
        terminated: np.ndarray,
        truncated: np.ndarray,
        info: Mapping[str, Any],
    ) -> None:
        self.memory.record(~self.ended, self.action, np.asarray(reward))
        self.memory.begin_episode(self.ended)
        self.ended = np.asarray(terminated) | np.asarray(truncated)
        self.vector = self.memory.vector(observation)


class Baseline:
    """An LSTM in training, and its clock, which stops for evaluations."""

    def __init__(
        self, config: DarkroomConfig, n_episodes: int, settings: Hyperparameters, seed: int
    ) -> None:
        self.config, self.settings, self.seed = config, settings, seed
        self.n_episodes = n_episodes
        env = config.build(settings.num_envs, split="train", seed=seed)
        self.trials = TrialsAsEpisodes(env, n_episodes)
        steps = n_episodes * config.horizon
        self.model = RecurrentPPO(
            WholeTrialPolicy,
            # Returns of a whole trial are large: unscaled, the critic's gradient drowns the rest.
            VecNormalize(self.trials, norm_obs=False, norm_reward=True, gamma=settings.gamma),
            learning_rate=settings.learning_rate,
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

    def train_until(self, seconds: float, clock: str = "wall") -> None:
        """Train until the clock shows `seconds`; the rollout that runs then is finished."""
        said = self.wall_s
        while self.clock(clock) < seconds:
            wall, cpu = time.perf_counter(), time.process_time()
            self.model.learn(self.rollout_steps, reset_num_timesteps=False)
            self.wall_s += time.perf_counter() - wall
            self.cpu_s += time.process_time() - cpu
            if self.wall_s - said > 60.0:
                said = self.wall_s
                say(self._progress(self.clock(clock), seconds))

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
    baseline = Baseline(config, evaluation["n_episodes"], settings, arguments.seed)
    for seconds in sorted(marks):
        baseline.train_until(seconds, arguments.clock)
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
    options.add_argument("--seconds", type=float, nargs="+", help="train so long; evaluate at each")
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
