"""A training job from start to end: what it leaves, stopping, exact resume, refusals."""

from __future__ import annotations

import json
import os
import shutil
import signal
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from embodied_icrl.common.errors import ConfigError, ObservationError, RunError
from embodied_icrl.envs.darkroom import Darkroom, DarkroomConfig
from embodied_icrl.envs.grid_house_config import GridHouseConfig
from embodied_icrl.evaluation.in_context import EvaluationConfig
from embodied_icrl.runs.checkpoint import Checkpoint, find_checkpoint, load_checkpoint
from embodied_icrl.runs.metrics import read_metrics
from embodied_icrl.training.config import (
    CheckpointConfig,
    LoggingConfig,
    TrainConfig,
    TrainerConfig,
    TrainEvaluationConfig,
)
from embodied_icrl.training.evaluation import Evaluation
from embodied_icrl.training.job import train
from embodied_icrl.training.rollout import Collector
from embodied_icrl.training.trainer import Trainer
from tests.training.tiny import tiny_config

TIMES = ("wall_s", "steps_per_s", "time_collect_s", "time_update_s", "time_refresh_s")
QUICK_EVALUATION = EvaluationConfig(n_trials=4, n_episodes=2, num_envs=4, reference_trials=2)


def job_config(run: Path, *, steps: int = 800, **settings: Any) -> TrainConfig:
    settings.setdefault("checkpoint", CheckpointConfig(every_steps=0))
    return tiny_config(
        run=str(run),
        trainer=TrainerConfig(total_steps=steps),
        evaluation=TrainEvaluationConfig(every_steps=0, final=False, settings=QUICK_EVALUATION),
        logging=LoggingConfig(progress=False, tensorboard=False, figure_every_updates=0),
        **settings,
    )


def rows(run: Path) -> list[dict[str, Any]]:
    return [
        {key: value for key, value in row.items() if key not in TIMES} for row in read_metrics(run)
    ]


def test_a_run_leaves_what_was_promised(tmp_path: Path) -> None:
    config = replace(
        job_config(tmp_path / "run"),
        evaluation=TrainEvaluationConfig(every_steps=400, settings=QUICK_EVALUATION),
        logging=LoggingConfig(progress=False, tensorboard=True),
    )
    result = train(config)
    run = result.run
    assert result.signal == 0 and result.step >= 800
    log = read_metrics(run)
    needed = {
        "update", "step", "wall_s", "steps_per_s", "return_first", "return_last", "loss/policy",
        "loss/value", "entropy", "approx_kl", "clip_fraction", "grad_norm", "lr",
    }  # fmt: skip
    assert needed <= log[0].keys()
    assert log[0]["return_first"] is None and log[-1]["return_last"] is not None
    assert [row["update"] for row in log] == list(range(1, len(log) + 1))
    assert sum("eval/return_last" in row for row in log) == 2
    assert (run / "figures" / "training.png").stat().st_size > 10_000
    assert list((run / "tensorboard").iterdir())
    summary = json.loads((run / "evaluation" / f"training-step_{result.step}.json").read_text())
    assert summary["format"] == 1 and len(summary["metrics"]["return"]["mean"]) == 2


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"ppo": {"refresh": False, "shuffle_episodes": False, "context_gradient": "detached"}},
        {"policy": {"rope": "episode", "depth_dropout": 0.3, "window": 7}},
        {"env": GridHouseConfig(size=5, n_rooms=1, n_types=2, horizon=6, view_size=3)},
    ],
)
def test_resume_inside_a_trial_is_bit_identical(tmp_path: Path, settings: dict[str, Any]) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    train(job_config(whole, steps=1200, **settings))
    # 420 steps are no multiple of a trial's 80: the checkpoint falls inside one.
    first = train(job_config(parts, steps=420 if "env" not in settings else 350, **settings))
    state = json.loads((parts / "checkpoints" / f"step_{first.step}" / "state.json").read_text())
    assert state["counters"]["position"] != 0
    train(job_config(parts, steps=1200, **settings))
    # The schedules don't depend on total_steps here, so nothing else may differ either.
    assert rows(parts) == rows(whole)
    assert read_metrics(parts)[-1]["wall_s"] > read_metrics(parts)[0]["wall_s"]


def test_rows_after_the_checkpoint_are_cut(tmp_path: Path) -> None:
    run = tmp_path / "run"
    train(job_config(run, steps=400))
    with (run / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"update": 999, "step": 99999, "wall_s": 1.0}) + '\n{"upd')
    train(job_config(run, steps=800))
    updates = [row["update"] for row in read_metrics(run)]
    assert updates == list(range(1, len(updates) + 1))


def test_a_signal_stops_with_a_checkpoint_and_the_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = Trainer.update_once
    evaluated = TrainEvaluationConfig(every_steps=60, final=False, settings=QUICK_EVALUATION)

    def config(run: Path) -> TrainConfig:
        return replace(job_config(run), evaluation=evaluated)

    def update_and_signal(self: Trainer) -> dict[str, Any]:
        row = original(self)
        if row["update"] == 3:
            os.kill(os.getpid(), signal.SIGUSR1)
        return row

    whole, run = tmp_path / "whole", tmp_path / "run"
    train(config(whole))
    monkeypatch.setattr(Trainer, "update_once", update_and_signal)
    stopped = train(config(run))
    assert stopped.signal == signal.SIGUSR1
    assert [row["update"] for row in read_metrics(run)] == [1, 2, 3]
    assert signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL
    monkeypatch.undo()
    assert train(config(run)).signal == 0
    assert rows(run) == rows(whole)
    assert "eval/return_last" in rows(run)[2]


def evaluated_config(run: Path, **evaluation: Any) -> TrainConfig:
    """Two evaluations, after updates 7 and 14, the second one at the end."""
    settings = {"every_steps": 140, "settings": QUICK_EVALUATION, **evaluation}
    return replace(job_config(run, steps=270), evaluation=TrainEvaluationConfig(**settings))


def test_an_evaluation_that_fails_costs_no_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, run = tmp_path / "whole", tmp_path / "run"
    assert train(evaluated_config(whole)).finished
    evaluated = [row["update"] for row in rows(whole) if "eval/return_last" in row]
    assert len(evaluated) == 2 and evaluated[-1] == len(rows(whole))
    original = Evaluation.make

    def fail_at_the_end(self: Evaluation, *rest: Any) -> Any:
        if self.trainer.finished:
            raise ZeroDivisionError("no such house")
        return original(self, *rest)

    monkeypatch.setattr(Evaluation, "make", fail_at_the_end)
    for _ in range(2):  # the next start meets the same error, and does nothing else
        with pytest.raises(ZeroDivisionError):
            train(evaluated_config(run))
        assert len(rows(run)) == len(rows(whole))
        assert rows(run)[:-1] == rows(whole)[:-1]
        assert find_checkpoint(run).name == f"step_{rows(run)[-1]['step']}"
    # It can be had without, and at any later time.
    assert train(evaluated_config(run, final=False)).finished
    assert not any(key.startswith("eval/") for key in rows(run)[-1])
    monkeypatch.undo()
    assert train(evaluated_config(run)).finished
    assert rows(run) == rows(whole)
    files = [sorted(p.name for p in (path / "evaluation").iterdir()) for path in (whole, run)]
    assert files[0] == files[1] and len(files[0]) == 2


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("call", ["step", "optimal_return"])
def test_a_signal_cuts_an_evaluation_which_is_made_after_the_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, call: str
) -> None:
    whole, run = tmp_path / "whole", tmp_path / "run"
    config = evaluated_config(run)
    train(evaluated_config(whole))
    made: list[int] = []
    original = Evaluation.make
    answered = Darkroom.step if call == "step" else Darkroom.optimal_return
    steps = iter(range(10**6))

    def make(self: Evaluation, stop: Any) -> Any:
        made.append(0)
        if len(made) != number + 1:
            return original(self, stop)

        def answer_and_signal(envs: Darkroom, *rest: Any) -> Any:
            if next(steps) == 1:
                os.kill(os.getpid(), signal.SIGINT)
            return answered(envs, *rest)

        with monkeypatch.context() as patch:
            patch.setattr(Darkroom, call, answer_and_signal)
            return original(self, stop)

    monkeypatch.setattr(Evaluation, "make", make)
    stopped = train(config)
    monkeypatch.undo()
    assert stopped.signal == signal.SIGINT and not stopped.finished
    assert next(steps) <= 4  # at the next step, where a whole evaluation has dozens
    assert not any(key.startswith("eval/") for key in rows(run)[-1])
    assert find_checkpoint(run).name == f"step_{stopped.step}" == f"step_{rows(run)[-1]['step']}"
    assert train(config).finished
    assert rows(run) == rows(whole)


def test_a_signal_waits_for_evaluations_inside_a_trial_that_cant_be_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Darkroom, "can_save_state", False)
    whole, run = tmp_path / "whole", tmp_path / "run"
    train(evaluated_config(whole, every_steps=20))
    original = Trainer.update_once

    def update_and_signal(self: Trainer) -> dict[str, Any]:
        row = original(self)
        if row["update"] == 5:
            os.kill(os.getpid(), signal.SIGUSR1)
        return row

    monkeypatch.setattr(Trainer, "update_once", update_and_signal)
    stopped = train(evaluated_config(run, every_steps=20))
    assert stopped.signal and len(rows(run)) == 8
    assert ["eval/return_last" in row for row in rows(run)[4:]] == [True, True, True, False]
    monkeypatch.setattr(Trainer, "update_once", original)
    assert train(evaluated_config(run, every_steps=20)).finished
    assert rows(run) == rows(whole)


@pytest.mark.parametrize("call", ["_set_tasks", "optimal_return", "oracle_action"])
def test_held_out_tasks_that_fail_are_met_before_the_first_update(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    original = getattr(Darkroom, call)

    def fail(self: Darkroom, *rest: Any) -> Any:
        if self._split == "test":
            raise ZeroDivisionError("no such house")
        return original(self, *rest)

    monkeypatch.setattr(Darkroom, call, fail)
    with pytest.raises(ZeroDivisionError):
        train(evaluated_config(tmp_path / "run", every_steps=0))
    assert not (tmp_path / "run" / "metrics.jsonl").exists()
    # Who doesn't evaluate need not have them.
    assert train(evaluated_config(tmp_path / "run", every_steps=0, final=False)).finished


def test_a_misspelt_split_of_the_evaluation_is_met_before_the_first_update(
    tmp_path: Path,
) -> None:
    wrong = replace(QUICK_EVALUATION, split="tset")
    with pytest.raises(ConfigError, match="unknown split 'tset'"):
        train(evaluated_config(tmp_path / "run", settings=wrong))
    assert not (tmp_path / "run" / "config.yaml").exists()


def test_the_time_cap_saves_and_stops(tmp_path: Path) -> None:
    config = job_config(tmp_path / "run", steps=10**9)
    config = replace(config, trainer=TrainerConfig(total_steps=10**9, max_seconds=0.5))
    result = train(config)
    assert result.signal == 0 and not result.finished
    assert (result.run / "checkpoints" / f"step_{result.step}").is_dir()


@pytest.mark.parametrize("wanted", [True, False])
def test_what_is_not_saved_inside_trials_is_saved_at_their_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wanted: bool
) -> None:
    """Environments without state, and those that the user doesn't want saved."""
    from embodied_icrl.envs.batched import BatchedTrialEnv

    whole, parts = tmp_path / "whole", tmp_path / "parts"
    if wanted:
        monkeypatch.setattr(BatchedTrialEnv, "can_save_state", False)
    frequent = CheckpointConfig(every_steps=1, keep=0, inside_trials=wanted)
    train(job_config(whole, steps=960, checkpoint=frequent))
    for path in (whole / "checkpoints").glob("step_*"):
        assert json.loads((path / "state.json").read_text())["counters"]["position"] == 0
    # 430 steps are reached inside a trial: it is played to its end, and saved.
    once = CheckpointConfig(every_steps=0, inside_trials=wanted)
    stopped = train(job_config(parts, steps=430, checkpoint=once))
    assert stopped.step == 480
    train(job_config(parts, steps=960, checkpoint=frequent))
    assert rows(parts) == rows(whole)


def test_refusals_to_resume(tmp_path: Path) -> None:
    run = tmp_path / "run"
    config = job_config(run, steps=200)
    with pytest.raises(RunError, match="no run"):
        train(replace(config, resume=True))
    train(config)
    with pytest.raises(RunError, match="resume=true"):
        train(replace(config, resume=False))
    with pytest.raises(RunError, match=r"ppo\.gamma was 0\.99, now 0\.5"):
        train(job_config(run, steps=400, ppo={"gamma": 0.5}))
    with pytest.raises(RunError, match="may only grow"):
        train(job_config(run, steps=100))
    other = LoggingConfig(progress=False, tensorboard=False, log_every_s=3.0)
    assert train(replace(config, logging=other, threads=2)).step >= 200


def test_an_unwritable_run_directory_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(RunError, match="can't write to the run directory"):
        train(job_config(tmp_path / "file" / "run"))


def test_weights_of_another_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train(job_config(tmp_path / "a", steps=200))
    config = replace(job_config(tmp_path / "b", steps=200), init_from=str(tmp_path / "a"), seed=5)
    begun: list[dict[str, Any]] = []
    original = Trainer.update_once

    def update_once(self: Trainer) -> dict[str, Any]:
        if not begun:
            begun.append({k: v.clone() for k, v in self.policy.state_dict().items()})
        return original(self)

    monkeypatch.setattr(Trainer, "update_once", update_once)
    train(config)
    monkeypatch.undo()
    source = load_checkpoint(find_checkpoint(tmp_path / "a")).tensors("policy")
    assert all((begun[0][name] == tensor).all() for name, tensor in source.items())
    # A run that goes on doesn't need them again.
    shutil.move(tmp_path / "a", tmp_path / "moved")
    train(replace(config, trainer=TrainerConfig(total_steps=400)))
    shutil.move(tmp_path / "moved", tmp_path / "a")
    with pytest.raises(ConfigError, match="doesn't fit this policy: .*policy"):
        train(
            replace(job_config(tmp_path / "c", policy={"width": 32}), init_from=str(tmp_path / "a"))
        )
    with pytest.raises(RunError, match="nowhere"):
        train(replace(job_config(tmp_path / "d"), init_from=str(tmp_path / "nowhere")))
    # What failed before it began doesn't stand in the way of the corrected command.
    assert train(job_config(tmp_path / "d", steps=200)).finished


def test_a_bad_observation_names_key_environment_and_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from embodied_icrl.envs.darkroom import Darkroom

    original = Darkroom._observe
    calls = iter(range(10**6))

    def observe(self: Darkroom) -> dict[str, np.ndarray]:
        observation = original(self)
        if next(calls) == 9:
            bad = observation["position"].copy()
            bad[2] = 77
            return {"position": bad}
        return observation

    monkeypatch.setattr(Darkroom, "_observe", observe)
    with pytest.raises(ObservationError, match="'position' of environment 2 at step 9"):
        train(job_config(tmp_path / "run"))


def test_a_changed_number_of_processes_goes_on_with_new_tasks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    first = train(job_config(run, steps=420))
    path = run / "checkpoints" / f"step_{first.step}"
    manifest = json.loads((path / "manifest.json").read_text())
    manifest["world_size"] = 3
    (path / "manifest.json").write_text(json.dumps(manifest))
    begun = json.loads((path / "state.json").read_text())["counters"]["trial"] + 1
    met: list[int] = []
    start = Collector.start_trial

    def start_trial(self: Collector, task_ids: np.ndarray) -> None:
        met.extend(task_ids.tolist())
        start(self, task_ids)

    monkeypatch.setattr(Collector, "start_trial", start_trial)
    result = train(job_config(run, steps=800))
    assert result.step >= 800
    assert "world_size was 3, now 1" in capsys.readouterr().err
    # Three processes of 4 environments have begun so many trials; none of their tasks comes again.
    assert min(met) == 3 * begun * 4 and len(set(met)) == len(met)


def test_a_run_goes_on_where_another_kind_of_device_left_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    train(job_config(run, steps=420))
    train(job_config(run, steps=500))
    assert "warning" not in capsys.readouterr().err
    original = Checkpoint.rank_state

    def of_a_gpu(self: Checkpoint, rank: int) -> dict[str, Any]:
        generators = dict.fromkeys(("act_generator", "dropout_generator"), np.zeros(16, np.uint8))
        return original(self, rank) | generators | {"device": "cuda"}

    monkeypatch.setattr(Checkpoint, "rank_state", of_a_gpu)
    # A generator of another device would be refused by torch.
    assert train(job_config(run, steps=600)).finished
    assert (
        "warning: device was 'cuda', now 'cpu': not bit-identical from here on"
        in capsys.readouterr().err
    )


def test_depends_on_the_seed_only(tmp_path: Path) -> None:
    runs = {}
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        train(replace(job_config(tmp_path / name, steps=200), seed=seed))
        runs[name] = rows(tmp_path / name)
    assert runs["a"] == runs["b"]
    assert runs["a"] != runs["c"]


def test_no_thread_is_left(tmp_path: Path) -> None:
    before = threading.active_count()
    train(job_config(tmp_path / "run", steps=200))
    assert threading.active_count() == before


def test_learning_happens_on_one_task(tmp_path: Path) -> None:
    # 3 x 3 cells: enough to see the return rise, far from solving anything.
    env = DarkroomConfig(dim=3, horizon=8)
    ppo = {
        "num_steps": 36, "updates_per_rollout": 2, "epochs": 3, "minibatches": 4,
        "learning_rate": 3e-3,
    }  # fmt: skip
    train(job_config(tmp_path / "run", steps=60_000, env=env, ppo=ppo, num_envs=32))
    log = read_metrics(tmp_path / "run")
    early = np.mean([row["return_last"] for row in log[4:12]])
    late = np.mean([row["return_last"] for row in log[-8:]])
    assert late > 1.5 * early
