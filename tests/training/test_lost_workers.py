"""Training goes on when a worker is killed or hangs, and learns nothing from what is left of it."""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import signal
import socket
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist

from embodied_icrl.common.errors import WorkerError
from embodied_icrl.envs.process import ProcessTrialEnv
from embodied_icrl.envs.worker_handle import EnvWorkerLostError
from embodied_icrl.evaluation.in_context import EvaluationConfig
from embodied_icrl.runs.checkpoint import find_checkpoint, load_checkpoint
from embodied_icrl.runs.metrics import read_metrics
from embodied_icrl.training import distributed
from embodied_icrl.training.config import (
    CheckpointConfig,
    LoggingConfig,
    TrainConfig,
    TrainerConfig,
    TrainEvaluationConfig,
    VectorConfig,
)
from embodied_icrl.training.job import build_policy, train
from embodied_icrl.training.trainer import Trainer
from tests.training.test_update import collected, loss_and_gradient
from tests.training.tiny import tiny_config, tiny_trainer

TIMES = ("wall_s", "steps_per_s", "time_collect_s", "time_update_s", "time_refresh_s")
LOST = slice(2, 4)
EVALUATION = EvaluationConfig(n_trials=4, n_episodes=2, num_envs=4, workers=2, references=False)


def job_config(
    run: Path, *, steps: int = 300, workers: int = 2, trainer: Any = None, **settings: Any
) -> TrainConfig:
    """Four environments, 2 + 2; a trial is 24 tokens (80 steps of all four) in four updates."""
    config = tiny_config(
        run=str(run),
        trainer=TrainerConfig(total_steps=steps, **(trainer or {})),
        evaluation=TrainEvaluationConfig(every_steps=0, final=False, settings=EVALUATION),
        logging=LoggingConfig(progress=False, tensorboard=False, figure_every_updates=0),
        checkpoint=CheckpointConfig(every_steps=settings.pop("every_steps", 0), keep=0),
        **settings,
    )
    return replace(config, vector=VectorConfig(num_envs=4, workers=workers))


def rows(run: Path) -> list[dict[str, Any]]:
    return [
        {key: value for key, value in row.items() if key not in TIMES} for row in read_metrics(run)
    ]


Strike = Callable[..., None]


@pytest.fixture
def strike(monkeypatch: pytest.MonkeyPatch) -> Strike:
    """`strike({(request, count): workers})`: signal workers just before a request of training.

    Requests are counted by name in the environments of the split `train`, from 0.
    """
    exchange = ProcessTrialEnv._exchange

    def begin(plan: dict[tuple[str, int], tuple[int, ...]], number: int = signal.SIGKILL) -> None:
        seen: dict[str, int] = {}

        def exchange_and_strike(self: ProcessTrialEnv, name: str, arguments: Any) -> Any:
            whole = len(arguments) == len(self._shares) > 0
            if whole and name in ("step", "reset", "get_state"):
                split = "" if self._shares[0].split == "train" else "test "
                count = seen.get(split + name, 0)
                seen[split + name] = count + 1
                struck = plan.get((split + name, count), ())
                for worker in struck:
                    os.kill(self._workers[worker].pid, number)
                if struck and number == signal.SIGSTOP:
                    # Only here: a busy machine may need long to start the fresh worker.
                    patience, self._timeout_s = self._timeout_s, 4.0
                    try:
                        return exchange(self, name, arguments)
                    finally:
                        self._timeout_s = patience
            return exchange(self, name, arguments)

        monkeypatch.setattr(ProcessTrialEnv, "_exchange", exchange_and_strike)

    return begin


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("detached", [False, True])
def test_the_gradient_is_that_of_the_other_environments_alone(full: bool, detached: bool) -> None:
    trainer, bootstrap = collected(3)
    expected = loss_and_gradient(trainer, bootstrap, full=full, detached=detached, rows=[0, 1])
    whole = loss_and_gradient(trainer, bootstrap, full=full, detached=detached, rows=[0, 1, 2, 3])
    assert trainer.collector.drop(LOST)
    found = loss_and_gradient(trainer, bootstrap, full=full, detached=detached, rows=[0, 1, 2, 3])
    assert found[0] == pytest.approx(expected[0], abs=1e-12)
    torch.testing.assert_close(found[2], expected[2], atol=1e-12, rtol=1e-12)
    assert not torch.allclose(whole[2], expected[2])
    # Whatever became of them: their tokens, actions and rewards are of no consequence.
    trainer.rollout.reward[LOST] = 1e6
    trainer.rollout.action[LOST] = 0
    trainer.rollout.batch.step_in_episode[LOST] = 1
    again = loss_and_gradient(trainer, bootstrap, full=full, detached=detached, rows=[0, 1, 2, 3])
    assert torch.equal(again[2], found[2])


@pytest.mark.parametrize("normalize", ["none", "minibatch", "tokens"])
def test_a_minibatch_of_lost_environments_moves_no_weight(normalize: str) -> None:
    settings = {"minibatches": 4, "epochs": 3, "normalize_advantages": normalize}
    trainer, bootstrap = collected(1, ppo=settings)
    trainer.updater.update(trainer.rollout, trainer.cache, bootstrap, full=False, progress=0.0)
    assert trainer.updater.optimizer_steps == 12
    # Momentum would move the weights in a step without gradient.
    trainer.collector.drop(LOST)
    row = trainer.updater.update(
        trainer.rollout, trainer.cache, bootstrap, full=False, progress=0.0
    )
    assert trainer.updater.optimizer_steps == 12 + 6
    assert all(math.isfinite(value) for value in row.values())
    trainer.collector.drop(slice(0, 4))
    before = {name: value.clone() for name, value in trainer.policy.state_dict().items()}
    row = trainer.updater.update(
        trainer.rollout, trainer.cache, bootstrap, full=False, progress=0.0
    )
    assert all(math.isfinite(value) for value in row.values())
    for name, value in trainer.policy.state_dict().items():
        assert torch.equal(value, before[name]), name


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_run_goes_on_and_counts_the_loss(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], strike: Strike, how: signal.Signals
) -> None:
    strike({("step", 8): (1,)}, how)
    result = train(job_config(tmp_path / "run", trainer={"worker_timeout_s": 120.0}))
    assert result.finished
    log = rows(tmp_path / "run")
    # Step 8 lies in the second of four updates: three segments of two environments are lost.
    assert [row["workers_restarted"] for row in log[:5]] == [0, 1, 1, 1, 1]
    assert [row["tokens"] for row in log[:5]] == [24, 36, 48, 60, 84]
    lost = [row["env_steps_lost"] for row in log]
    assert lost[0] == 0 and 8 <= lost[1] <= 12 and lost[3] == lost[-1] <= 36
    assert log[3]["trial"] == 1 and log[3]["return_last"] is not None
    for row in log:
        assert all(math.isfinite(v) for k, v in row.items() if "return" not in k and v is not None)
    (line,) = capsys.readouterr().err.splitlines()
    ended = (
        "was killed by SIGKILL" if how == signal.SIGKILL else "did not answer 'step' within 120 s"
    )
    assert line.startswith(f"worker 1 (environments 2 to 3, split 'train', seed 0) {ended}")
    assert "a fresh worker takes its place (1 of at most 10)" in line
    assert "its environments sit out the rest of this rollout" in line


def test_the_others_learn_as_if_nothing_had_happened(strike: Strike) -> None:
    """Up to the weights after the rollout: those of a rollout whose mask was set by hand."""
    # Shuffles draw from one stream, as often as the environments have episodes.
    config = tiny_config(ppo={"shuffle_episodes": False})
    hand = tiny_trainer(config)
    collect = hand.collector.collect

    def collect_and_drop(steps: int) -> None:
        collect(steps)
        if hand.counters.position == 1:
            hand.collector.drop(LOST)

    hand.collector.collect = collect_and_drop  # type: ignore[method-assign]
    strike({("step", 8): (1,)})
    with ProcessTrialEnv(config.env, 4, 2) as envs:
        killed = Trainer(config, tiny_trainer(config).policy, envs, hand.ranks)
        for _ in range(4):
            ours, theirs = killed.update_once(), hand.update_once()
            for key in ("loss/policy", "loss/value", "entropy", "grad_norm"):
                assert ours[key] == pytest.approx(theirs[key], abs=1e-5), key
        assert killed.counters.workers_restarted == 1
        assert killed.counters.episode_metrics == hand.counters.episode_metrics
    for name, value in killed.policy.state_dict().items():
        # Rounding: the order in which an embedding adds up gradients depends on all its tokens.
        torch.testing.assert_close(value, hand.policy.state_dict()[name], atol=1e-6, rtol=0.0)


def test_the_tokens_of_the_other_trial_follow_the_protocol(strike: Strike) -> None:
    """The next observation begins an episode, so that no episode grows beyond its longest."""
    strike({("step", 8): (1,)})
    config = tiny_config()
    with ProcessTrialEnv(config.env, 4, 2) as envs:
        trainer = Trainer(config, tiny_trainer(config).policy, envs, tiny_trainer().ranks)
        trainer.collector.start_trial(trainer._task_ids())
        trainer.collector.collect(24)
    batch = trainer.rollout.tokens()
    assert batch.step_in_episode[0].tolist() == [0, 1, 2, 3, 4, 5] * 4
    assert batch.step_in_episode[3].tolist() == [0, 1, 2, 3, 4, 5, 0, 1, 2] + [
        0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5, 0, 1, 2,
    ]  # fmt: skip
    assert batch.prev_action[3, 9] == -1 and batch.prev_reward[3, 9] == 0
    assert trainer.rollout.lost.tolist() == [False, False, True, True]


def test_nothing_is_lost_at_the_start_of_a_trial(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], strike: Strike
) -> None:
    train(job_config(tmp_path / "calm", workers=0))
    strike({("reset", 0): (0,), ("reset", 2): (0, 1)})
    train(job_config(tmp_path / "run"))
    calm, run = rows(tmp_path / "calm"), rows(tmp_path / "run")
    assert [row.pop("workers_restarted") for row in run][-1] == 3
    for row in calm:
        del row["workers_restarted"]
    assert run == calm
    assert capsys.readouterr().err.count("nothing is lost") == 3


def test_a_rollout_with_no_environment_left_is_given_up(tmp_path: Path, strike: Strike) -> None:
    strike({("step", 8): (0, 1)})
    assert train(job_config(tmp_path / "run")).finished
    log = rows(tmp_path / "run")
    # The second update learns from the next trial's first segment.
    assert [row["tokens"] for row in log[:3]] == [24, 48, 72]
    assert [row["trial"] for row in log[:6]] == [0, 1, 1, 1, 2, 2]
    assert log[1]["env_steps_lost"] == log[-1]["env_steps_lost"] > 0
    assert log[-1]["workers_restarted"] == 2


@pytest.mark.parametrize("request_", [("step", 8), ("get_state", 1)])
def test_resume_after_a_loss_is_bit_identical(
    tmp_path: Path, strike: Strike, monkeypatch: pytest.MonkeyPatch, request_: tuple[str, int]
) -> None:
    """The checkpoint falls into the trial that the loss cut, once in the very act of saving."""
    every = {"every_steps": 1}
    strike({request_: (1,)})
    train(job_config(tmp_path / "whole", **every))
    strike({request_: (1,)})
    first = train(job_config(tmp_path / "parts", steps=40, **every))
    monkeypatch.undo()
    assert first.step < 60
    checkpoint = load_checkpoint(find_checkpoint(tmp_path / "parts"))
    assert checkpoint.rank_state(0)["trial"]["rollout"]["lost"].tolist() == [0, 0, 1, 1]
    train(job_config(tmp_path / "parts", **every))
    assert rows(tmp_path / "parts") == rows(tmp_path / "whole")
    assert rows(tmp_path / "whole")[-1]["workers_restarted"] == 1


@pytest.mark.parametrize(("limit", "said"), [(0, 0), (1, 1)])
def test_the_limit_ends_the_training_and_the_run_goes_on(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    strike: Strike,
    monkeypatch: pytest.MonkeyPatch,
    limit: int,
    said: int,
) -> None:
    run = tmp_path / "run"
    config = job_config(run, trainer={"max_worker_restarts": limit}, every_steps=1)
    strike({("step", 14): (1,), ("step", 20): (0,)})
    with pytest.raises(WorkerError, match=r"worker \d .* was killed by SIGKILL") as caught:
        train(config)
    assert isinstance(caught.value, EnvWorkerLostError)
    notes = getattr(caught.value, "__notes__", [])
    assert any("max_worker_restarts=1" in note for note in notes) == bool(limit)
    assert len(capsys.readouterr().err.splitlines()) == said
    saved = len(rows(run))
    assert saved == (2 if limit == 0 else 3)
    monkeypatch.undo()
    more = replace(config, trainer=replace(config.trainer, max_worker_restarts=5))
    assert train(more).finished
    assert [row["update"] for row in rows(run)] == list(range(1, len(rows(run)) + 1))


def test_an_evaluation_begins_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], strike: Strike
) -> None:
    evaluation = TrainEvaluationConfig(every_steps=100, final=True, settings=EVALUATION)

    def config(name: str) -> TrainConfig:
        return replace(job_config(tmp_path / name, workers=0, steps=200), evaluation=evaluation)

    train(config("calm"))
    strike({("test step", 3): (1,)})
    train(config("run"))
    calm, run = rows(tmp_path / "calm"), rows(tmp_path / "run")
    assert run[-1].pop("workers_restarted") == 1
    evaluated = next(row for row in run if "eval/return_last" in row)
    assert evaluated["workers_restarted"] == 1
    for row in [*calm, *run]:
        row.pop("workers_restarted", None)
    assert run == calm
    assert "split 'test'" in (line := capsys.readouterr().err) and "begins again" in line
    texts = [
        sorted((path.name, path.read_text()) for path in (tmp_path / name / "evaluation").iterdir())
        for name in ("calm", "run")
    ]
    assert json.dumps(texts[0]) == json.dumps(texts[1])


def test_a_worker_lost_in_an_evaluation_is_counted_across_a_resume(
    tmp_path: Path, strike: Strike, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checkpoint is saved before it, and before that a worker is lost in the act of saving."""
    evaluation = TrainEvaluationConfig(every_steps=100, final=True, settings=EVALUATION)

    def config(name: str, steps: int) -> TrainConfig:
        base = job_config(tmp_path / name, steps=steps, every_steps=100)
        return replace(base, evaluation=evaluation)

    plan = {("get_state", 0): (0,), ("test step", 3): (1,)}
    strike(plan)
    train(config("whole", 200))
    monkeypatch.undo()
    strike(plan)
    train(config("parts", 100))
    monkeypatch.undo()
    train(config("parts", 200))
    assert [row["workers_restarted"] for row in rows(tmp_path / "whole")][-2:] == [2, 2]
    assert rows(tmp_path / "parts") == rows(tmp_path / "whole")


def run_rank(rank: int, port: int, queue: Any) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=2)
    config = tiny_config(num_envs=2, ppo={"minibatches": 2, "grad_accumulation": 2})
    ranks = distributed.Ranks(rank, 2, torch.device("cpu"))
    with ProcessTrialEnv(config.env, 2, 1, first_index=2 * rank, total_envs=4) as envs:
        trainer = Trainer(config, build_policy(config, envs, ranks.device), envs, ranks)
        log = []
        for update in range(6):
            if (rank, update) == (1, 1):
                os.kill(envs._workers[0].pid, signal.SIGKILL)
            log.append(trainer.update_once())
    weights = {name: value.numpy() for name, value in trainer.policy.state_dict().items()}
    queue.put((rank, [{k: v for k, v in row.items() if k not in TIMES} for row in log], weights))
    dist.barrier()
    dist.destroy_process_group()


def test_the_other_process_of_a_job_goes_on() -> None:
    """All environments of the second process are lost, and the first doesn't wait or go astray."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    processes = [context.Process(target=run_rank, args=(r, port, queue)) for r in range(2)]
    for process in processes:
        process.start()
    results = {}
    for _ in processes:
        rank, log, weights = queue.get(timeout=150)
        results[rank] = (log, weights)
    for process in processes:
        process.join(30)
        assert process.exitcode == 0
    log = results[0][0]
    assert log == results[1][0]
    assert [row["tokens"] for row in log] == [24, 36, 48, 60, 84, 108]
    assert [row["workers_restarted"] for row in log] == [0, 1, 1, 1, 1, 1]
    for name, value in results[0][1].items():
        np.testing.assert_array_equal(value, results[1][1][name])


def test_lost_episodes_stay_out_of_the_returns() -> None:
    trainer = tiny_trainer()
    episodes = trainer.collector.episodes
    for row, value in enumerate((1.0, 2.0, 30.0, 40.0)):
        episodes.finished[row].append({"r": value})
    assert episodes.first_and_last()["return_first"] == (73.0, 4)
    assert episodes.first_and_last([False, False, True, True])["return_first"] == (3.0, 2)
    trainer.collector.start_trial(np.arange(4))
    assert not episodes.first_and_last()
