"""The training itself, without its sandbox: the same code in this process."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
import time
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch  # before the module under test, which would leave its compiler out
from safetensors.numpy import load_file

from embodied_icrl.common.errors import ConfigError
from embodied_icrl.reward_search import evaluation_child, training_child
from embodied_icrl.reward_search.algorithms import (
    _OURS,
    KEYS,
    actor_shape,
    completed,
    rollout_steps,
    steps_done,
)
from embodied_icrl.reward_search.evaluation_child import NOT_BUILT
from embodied_icrl.reward_search.job_files import plain
from embodied_icrl.reward_search.records import Job
from embodied_icrl.reward_search.sandbox import Limits, Outcome
from embodied_icrl.reward_search.training_child import train
from embodied_icrl.reward_search.training_env import MeteredReward, RewardFailure, RewardVecEnv
from embodied_icrl.reward_search.training_report import REPORT_FILE, STATE_FILE, weights_name
from tests.reward_search.tasks import TASK
from tests.reward_search.trainings import small_job

ALGORITHMS = ["ppo", "sac", "td3", "tqc"]


@pytest.fixture(autouse=True)
def _nothing_of_a_child_process_stays(monkeypatch):
    monkeypatch.setattr(training_child, "prepare_simulators", lambda task_paths: None)
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


def run(job: Job, before: str | None = None) -> Path:
    """Train; the folder that it wrote to."""
    work = Path(job.folder)
    work.mkdir()
    result = train({**plain(job), "work": str(work), "before": before})
    assert result == {"reason": None}
    return work


def failure(tmp_path: Path, source: str, **changes: object) -> str:
    job = small_job(tmp_path / "failing", source, **changes)
    Path(job.folder).mkdir()
    reason = train({**plain(job), "work": job.folder, "before": None})["reason"]
    assert isinstance(reason, str)
    return reason


def checkpoints(work: Path) -> list[dict]:
    lines = map(json.loads, (work / REPORT_FILE).read_text().splitlines())
    return [line for line in lines if "checkpoint" in line]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_training_in_two_stretches_ends_with_the_same_weights_as_in_one(tmp_path, algorithm):
    whole = small_job(tmp_path / "whole", algorithm=algorithm)
    first = replace(whole, folder=str(tmp_path / "1"), last_step=128, checkpoints=(128,))
    second = replace(whole, folder=str(tmp_path / "2"), first_step=128, checkpoints=(256,))
    at_once = run(whole)
    run(first)
    in_two = run(second, before=first.folder)
    assert (at_once / weights_name(256)).read_bytes() == (in_two / weights_name(256)).read_bytes()
    assert checkpoints(at_once)[-1] == checkpoints(in_two)[-1]


def test_the_same_job_twice_gives_the_same_weights_and_another_seed_others(tmp_path):
    job = small_job(tmp_path / "a")
    twice = run(replace(job, folder=str(tmp_path / "b")))
    other = run(replace(job, folder=str(tmp_path / "c"), seed=4))
    weights = (run(job) / weights_name(256)).read_bytes()
    assert weights == (twice / weights_name(256)).read_bytes()
    assert weights != (other / weights_name(256)).read_bytes()


def test_weights_change_from_checkpoint_to_checkpoint_and_hold_the_actor_alone(tmp_path):
    work = run(small_job(tmp_path / "a"))
    early, late = (load_file(work / weights_name(step)) for step in (128, 256))
    assert set(late) == {
        f"{layer}.{part}"
        for layer in ("mlp_extractor.policy_net.0", "mlp_extractor.policy_net.2", "action_net")
        for part in ("weight", "bias")
    }
    assert any(not np.array_equal(early[name], late[name]) for name in late)


def test_means_are_those_of_the_steps_since_the_last_checkpoint(tmp_path):
    source = (
        "def compute_reward(state):\n"
        "    x = float(state.action[0])\n"
        "    return 2.0 + x, {'constant': 2.0, 'moving': x}\n"
    )
    for line in checkpoints(run(small_job(tmp_path / "a", source))):
        assert line["components"]["constant"] == 2.0
        assert line["total"] == pytest.approx(2.0 + line["components"]["moving"])


def test_a_checkpoint_before_the_next_update_repeats_the_numbers(tmp_path):
    job = small_job(tmp_path / "a", last_step=140, checkpoints=(8, 100, 140))
    work = run(job)
    first, second, third = checkpoints(work)
    assert (first["steps"], second["steps"], third["steps"]) == (128, 128, 256)
    assert second["components"] == first["components"] != third["components"]


def test_training_makes_the_reward_larger(tmp_path):
    source = (
        "def compute_reward(state):\n"
        "    cost = -float(np.sum((state.action - 0.5) ** 2))\n"
        "    return cost, {'cost': cost}\n"
    )
    settings = {"n_steps": 64, "batch_size": 128, "n_epochs": 8, "learning_rate": 3e-3}
    steps = (512, 2560, 3072)
    job = small_job(
        tmp_path / "a", source, last_step=3072, checkpoints=steps, hyperparameters=settings
    )
    first, _, last = [line["total"] for line in checkpoints(run(job))]
    assert last > 0.8 * first


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("return 1.0 / (0.0 * state.action[0].item()), {}", "ZeroDivisionError in line 2"),
        ("return 1.0", "TypeError"),
        ("return float('nan'), {}", "the reward was nan"),
        ("return 1.0, {'a': float('inf')}", "component a was inf"),
        ("return 1.0, {'a' * 50: 1.0}", "short text"),
        ("return 1.0, {str(i): 1.0 for i in range(50)}", "more than 32 components"),
        ("return undefined, {}", "NameError in line 2"),
        ("return {}['\\x1b[31m' + 1000 * '<b>']", "KeyError in line 2"),
        ("return 1.0, {'a': [1]}", "TypeError"),
    ],
)
def test_faults_of_a_reward_are_told_in_one_short_line(tmp_path, body, reason):
    told = failure(tmp_path, f"def compute_reward(state):\n    {body}\n")
    assert reason in told
    assert len(told) <= 300 and told.isprintable()


def test_a_state_that_is_not_there_is_not_the_rewards_fault(tmp_path):
    job = small_job(tmp_path / "a", first_step=128, checkpoints=(256,))
    Path(job.folder).mkdir()
    result = train({**plain(job), "work": job.folder, "before": str(tmp_path / "nothing")})
    assert "FileNotFoundError" in result["reason"]
    assert result["by_machine"] is True and "limit" not in result


BROKEN_TASK = """
from dataclasses import dataclass
from embodied_icrl.common.errors import require
from embodied_icrl.manipulation.planar_reach import PlanarReach

@dataclass(frozen=True)
class Broken(PlanarReach):
    def make_env(self):
        {failure}
"""


@pytest.mark.parametrize(
    ("failure", "told"),
    [
        (None, "ConfigError: task._target_: cannot import 'broken_"),
        ("require('nowhere', 'get it')", "MissingDependencyError: nowhere is not installed"),
        ("import nowhere", "ModuleNotFoundError: No module named 'nowhere'"),
        ("open('/nowhere')", "FileNotFoundError: "),
    ],
    ids=["module", "package", "import", "file"],
)
def test_what_a_machine_lacks_of_a_task_is_not_the_rewards_fault(
    tmp_path, monkeypatch, failure, told
):
    name = f"broken_{zlib.crc32(told.encode())}"  # what is imported once stays
    if failure is not None:
        (tmp_path / f"{name}.py").write_text(BROKEN_TASK.format(failure=failure))
    monkeypatch.syspath_prepend(tmp_path)
    job = small_job(tmp_path / "a", task={"_target_": f"{name}.Broken", "horizon": 20})
    Path(job.folder).mkdir()
    payload = {**plain(job), "work": job.folder, "before": None}
    result = train(payload)
    assert result["reason"].startswith(f"{NOT_BUILT}: {told}")
    assert result["by_machine"] is True
    monkeypatch.setattr(evaluation_child, "prepare_simulators", lambda task_paths: None)
    evaluated = evaluation_child.evaluate({**payload, "weights": []})
    assert evaluated == {"points": [], **result}


def test_memory_that_a_task_does_not_get_is_named_as_that(monkeypatch):
    with pytest.raises(MemoryError), evaluation_child.building():
        bytearray(10**15)
    told = {"points": [], "reason": f"{NOT_BUILT}: ConfigError: MemoryError", "by_machine": True}
    outcome = Outcome(told, None, True, 1.0)
    monkeypatch.setattr(evaluation_child, "run_sandboxed", lambda *args, **options: outcome)
    job = small_job("/nowhere")
    _, reason, _, limit = evaluation_child.evaluate_weights(
        {},
        task=job.task,
        algorithm=job.algorithm,
        hyperparameters=job.hyperparameters,
        episodes={},
        phase="search",
        limits=Limits(),
    )
    assert (reason, limit) == (told["reason"], "memory")


def test_a_state_that_a_limit_cuts_off_names_the_limit(tmp_path):
    """In a process of its own, as its limits can't be raised again."""
    job = small_job(tmp_path / "a", hyperparameters={"policy_kwargs": {"net_arch": [256, 256]}})
    Path(job.folder).mkdir()
    payload = {**plain(job), "work": job.folder, "before": None}
    code = (
        "import resource, json, sys; from embodied_icrl.reward_search import training_child;"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (700_000, 700_000));"
        "print(json.dumps(training_child.train(json.load(sys.stdin))))"
    )
    command = [sys.executable, "-c", code]
    ended = subprocess.run(command, input=json.dumps(payload), capture_output=True, text=True)
    result = json.loads(ended.stdout)
    assert (result["by_machine"], result["limit"]) == (True, "file")
    assert not (Path(job.folder) / STATE_FILE).exists()


def test_code_that_fails_while_it_is_loaded(tmp_path):
    assert "loaded" in failure(tmp_path, "x = [].y\ndef compute_reward(state):\n    return 0.0, {}")


def test_a_call_that_never_ends_is_ended(tmp_path):
    start = time.process_time()
    told = failure(tmp_path, "def compute_reward(state):\n    while True:\n        pass\n")
    assert "more than" in told
    assert time.process_time() - start < 30


def test_many_short_calls_are_not_taken_for_one_that_never_ends():
    reward = MeteredReward(lambda state: (sum(range(20_000)), {}))
    with reward.timed():
        end = time.process_time() + 1.1  # two ticks
        while time.process_time() < end:
            reward(None)


def test_a_reward_beyond_all_measure_is_a_failed_training_not_a_crash(tmp_path):
    source = "def compute_reward(state):\n    return 1e300 * state.action[0].item(), {}\n"
    job = small_job(tmp_path / "a", source)
    Path(job.folder).mkdir()
    result = train({**plain(job), "work": job.folder, "before": None})
    assert result["reason"] is None or result["reason"].startswith("training: ")


@pytest.mark.parametrize(
    "hyperparameters",
    [
        {"learning_rat": 1e-3},
        {"seed": 1},
        {"policy_kwargs": {"net_arch": "wide"}},
        {"policy_kwargs": {"activation_fn": "os.system"}},
        {"policy_kwargs": {"features_extractor_class": "x"}},
        {"use_sde": True},
    ],
)
def test_hyperparameters_that_can_not_be_are_named(tmp_path, hyperparameters):
    told = failure(tmp_path, TASK.human_reward, hyperparameters=hyperparameters)
    assert "ConfigError" in told
    assert any(key in told for key in [*hyperparameters, *hyperparameters.get("policy_kwargs", {})])


def test_environments_side_by_side_are_those_that_stable_baselines_expects():
    env = RewardVecEnv(TASK, lambda state: (1.0, {}), 2)
    try:
        env.seed(5)
        first = env.reset()
        other = RewardVecEnv(TASK, lambda state: (1.0, {}), 2)
        other.seed(5)
        assert np.array_equal(first, other.reset())
        assert not np.array_equal(first[0], first[1])
        kept = first.copy()
        for step in range(TASK.horizon):
            observations, rewards, dones, infos = env.step(np.zeros((2, 2), np.float32))
            assert dones.all() == (step == TASK.horizon - 1)
        assert np.array_equal(first, kept), "a later step wrote into an earlier observation"
        assert rewards.tolist() == [1.0, 1.0]
        assert infos[0]["TimeLimit.truncated"]
        assert not np.array_equal(infos[0]["terminal_observation"], observations[0])
    finally:
        env.close()


def test_rollouts_and_defaults():
    assert rollout_steps("ppo", {}, 8) == 2048
    assert rollout_steps("ppo", {"n_steps": 10}, 8) == 80
    assert rollout_steps("sac", {"train_freq": 2}, 4) == 8
    assert [steps_done(step, 80) for step in (0, 1, 80, 81)] == [0, 80, 80, 160]
    assert completed("td3", {}, 1)["action_noise"] > 0
    with pytest.raises(ConfigError, match="ppo"):
        actor_shape("pp", {})


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_what_can_be_set_is_what_the_algorithm_takes(algorithm):
    taken = set(inspect.signature(training_child._ALGORITHMS[algorithm].__init__).parameters)
    ours = {"self", "_init_setup_model", "use_sde", "sde_sample_freq", "use_sde_at_warmup", *_OURS}
    assert set(KEYS[algorithm]) == taken - ours
    with pytest.raises(ConfigError, match="hyperparameters.learning_rat: .*'learning_rate'"):
        completed(algorithm, {"learning_rat": 1.0}, 1)


def test_metered_reward_passes_through_what_is_right():
    reward = MeteredReward(lambda state: (np.float64(2.0), {"a": 1, "b": np.float32(1.0)}))
    assert reward(None)[0] == 2.0
    assert reward.take_means() == (2.0, {"a": 1.0, "b": 1.0})
    with pytest.raises(RewardFailure, match="KeyError"):
        MeteredReward(lambda state: {}["x"])(None)
