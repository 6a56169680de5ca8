"""Jobs from reward code to fitness, in real child processes: honest ones and hostile ones."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import threading
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from embodied_icrl.common.errors import ConfigError, RunError
from embodied_icrl.reward_search.evaluation_child import NOT_BUILT
from embodied_icrl.reward_search.job_files import job_hash, new_folders, plain, write_result
from embodied_icrl.reward_search.jobs import (
    Stopped,
    TrainingLimits,
    finished,
    remove_state,
    run_job,
    stretch_folder,
    weights_file,
)
from embodied_icrl.reward_search.launchers import LocalLauncher
from embodied_icrl.reward_search.records import FitnessPoint, Job, JobResult
from embodied_icrl.reward_search.sandbox import Layers, available_layers, run_sandboxed
from embodied_icrl.reward_search.training_report import STATE_FILE, TrainingReport
from embodied_icrl.reward_search.untrusted_files import (
    UntrustedFileError,
    folder_size,
    read_untrusted,
)
from tests.reward_search.trainings import ATTACKS, HONEST, attack, small_job

HERE = available_layers()
# A busy machine must not fail honest trainings.
LIMITS = TrainingLimits(start_s=500, stall_s=500, memory_mib=800, file_mib=64, disk_mib=64)
pytestmark = pytest.mark.timeout(600)  # many processes, on a machine that may be busy

KEYS = attack(
    """
def attack():
    pass

def compute_reward(state):
    os = hidden()["os"]
    found = [name for name in os.environ if "KEY" in name]
    for name in ("/root", "/home"):
        try:
            found += os.listdir(name)
        except:
            pass
    return 0.0, {"found": float(len(found))}
"""
)

USERS_TASK = '''
"""A task of one's own: how far the tip stays away counts, below zero."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from embodied_icrl.manipulation.planar_reach import PlanarReach


@dataclass(frozen=True)
class Away(PlanarReach):
    name: ClassVar[str] = "away"

    def measure(self, env, observation):
        data = env.unwrapped.data
        return -float(np.linalg.norm(data.site_xpos[0, :2] - data.mocap_pos[0, :2]))
'''


@dataclasses.dataclass(frozen=True)
class Batch:
    """Jobs that ran side by side."""

    folder: Path
    jobs: dict[str, Job]
    results: dict[str, JobResult]


@pytest.fixture(scope="module")
def batch(tmp_path_factory) -> Batch:
    """All attacks side by side, with honest trainings between them."""
    folder = tmp_path_factory.mktemp("batch")
    os.environ["EMBODIED_TEST_KEY"] = "a key"
    (folder / "tasks").mkdir()
    (folder / "tasks" / "away_task.py").write_text(USERS_TASK)
    sources = {name: attack(code) for name, (code, _) in ATTACKS.items()}
    jobs = {
        name: small_job(folder / name, source, candidate=name) for name, source in sources.items()
    }
    jobs["honest"] = small_job(folder / "honest")
    jobs["keys"] = small_job(folder / "keys", KEYS, candidate="keys")
    jobs["users_task"] = small_job(
        folder / "users_task",
        task={"_target_": "away_task.Away", "horizon": 20},
        task_paths=(str(folder / "tasks"),),
    )
    jobs["half"] = small_job(folder / "half", last_step=128, checkpoints=(128,))
    others = {name: job for name, job in jobs.items() if name != "stubborn"}
    try:
        results = dict(
            zip(others, LocalLauncher(2, LIMITS).run(list(others.values())), strict=True)
        )
    finally:
        del os.environ["EMBODIED_TEST_KEY"]
    soon = dataclasses.replace(LIMITS, stall_s=4)
    results["stubborn"] = run_job(jobs["stubborn"], soon)
    return Batch(folder, jobs, results)


def test_an_honest_training_ends_with_fitness_at_every_checkpoint(batch):
    result, job = batch.results["honest"], batch.jobs["honest"]
    assert (result.status, result.reason, result.deterministic) == ("done", None, True)
    assert [point.step for point in result.fitness] == [128, 256]
    assert all(0.0 <= point.mean <= 1.0 and point.episodes == 3 for point in result.fitness)
    assert set(result.components) == {"distance", "precision", "effort"}
    assert all(len(values) == 2 for values in result.components.values())
    assert result.total == pytest.approx(np.sum(list(result.components.values()), axis=0))
    assert result.env_steps == 256
    assert load_file(weights_file(job, 256))["action_net.bias"].shape == (2,)


@pytest.mark.parametrize("name", [name for name, (_, reason) in ATTACKS.items() if reason])
def test_an_attack_costs_its_own_slot_and_the_reason_is_told(batch, name):
    result = batch.results[name]
    assert result.status == "failed"
    assert ATTACKS[name][1] in result.reason
    assert len(result.reason) <= 300 and result.reason.isprintable()
    assert result.fitness == ()


def test_only_what_a_clock_ended_may_end_otherwise_another_time(batch):
    by_clock = {name for name, result in batch.results.items() if not result.deterministic}
    assert {"stubborn", "files", "slow"} <= by_clock
    assert not by_clock & {"honest", "nan_weights", "forged", "dead", "users_task"}


def test_what_a_limit_ended_says_which(batch):
    limits = {name: result.limit for name, result in batch.results.items() if result.limit}
    assert limits == {"memory": "memory", "files": "disk", "stubborn": "stall"}


def test_results_name_the_sandbox(batch):
    assert {result.sandbox for result in batch.results.values()} == {HERE.name}


def test_forks_do_not_get_anywhere(batch):
    assert batch.results["forks"].status == "failed"
    if HERE.seccomp:
        assert "PermissionError" in batch.results["forks"].reason


def test_success_patched_in_the_training_does_not_reach_the_evaluator(batch):
    result = batch.results["patched_success"]
    assert result.status == "done"
    assert all(point.mean <= 1.0 for point in result.fitness)
    weak = [point.mean for point in result.fitness]
    assert max(weak) < 0.9  # a constant reward teaches nothing


def test_a_corrupted_training_is_the_only_one_that_suffers(batch, tmp_path):
    """Its neighbours end with the same bits as alone."""
    assert batch.results["corrupted_observations"].status == "done"
    alone = small_job(tmp_path / "alone")
    result = run_job(alone, LIMITS)
    beside = batch.results["honest"]
    assert dataclasses.replace(result, wall_s=0) == dataclasses.replace(beside, wall_s=0)
    for step in alone.checkpoints:
        expected = weights_file(batch.jobs["honest"], step).read_bytes()
        assert weights_file(alone, step).read_bytes() == expected


def test_the_sandbox_does_not_change_a_single_bit(batch, tmp_path, monkeypatch):
    """Confined too early, torch would find no vector instructions, and round otherwise."""
    import torch

    from embodied_icrl.reward_search import training_child

    monkeypatch.setattr(training_child, "prepare_simulators", lambda task_paths: None)
    threads = torch.get_num_threads()
    job = small_job(tmp_path)
    result = training_child.train({**plain(job), "work": str(tmp_path), "before": None})
    torch.set_num_threads(threads)
    assert result == {"reason": None}
    confined = weights_file(batch.jobs["honest"], 256).read_bytes()
    assert (tmp_path / "weights_256.safetensors").read_bytes() == confined


def test_reported_names_are_plain(batch):
    names = [name for result in batch.results.values() for name in result.components]
    assert names and not any(set(name) & set("<>&\"'") for name in names)


def test_children_inherit_no_keys_and_see_no_home(batch):
    result = batch.results["keys"]
    assert result.status == "done", result.reason
    if HERE.bubblewrap or HERE.landlock:
        assert result.components["found"] == (0.0, 0.0)


def test_a_task_of_ones_own_with_a_negative_fitness_is_no_failure(batch):
    result = batch.results["users_task"]
    assert result.status == "done", result.reason
    assert all(point.mean < 0 for point in result.fitness)


def test_nothing_is_written_outside_the_folders_of_the_jobs(batch):
    assert {path.name for path in batch.folder.iterdir()} == {*batch.jobs, "tasks"}


def test_a_second_stretch_goes_on_and_a_finished_job_is_not_run_again(batch):
    first = batch.jobs["half"]
    second = dataclasses.replace(first, first_step=128, last_step=256, checkpoints=(256,))
    seen = []
    result = run_job(second, LIMITS, on_progress=seen.append)
    assert result.status == "done", result.reason
    assert result.env_steps == 128
    whole = batch.jobs["honest"]
    assert weights_file(second, 256).read_bytes() == weights_file(whole, 256).read_bytes()
    assert result.fitness == batch.results["honest"].fitness[1:]
    assert seen and seen[-1].step <= 256
    written = written_at(second)
    assert run_job(second, LIMITS) == result == finished(second)
    assert written_at(second) == written


def written_at(job: Job) -> int:
    return (stretch_folder(job) / "result.json").stat().st_mtime_ns


def test_a_missing_state_is_trained_once_more_and_nothing_else_changes(tmp_path):
    """Another rival is out of the race than before: the first stretches' states are gone."""
    ends = (128, 256, 384)
    whole = small_job(tmp_path / "whole", last_step=384, checkpoints=ends)
    parts = [
        small_job(tmp_path / "parts", first_step=end - 128, last_step=end, checkpoints=(end,))
        for end in ends
    ]
    expected = run_job(whole, LIMITS)
    results = [run_job(job, LIMITS) for job in parts[:2]]
    remove_state(parts[1])
    assert not list(tmp_path.glob(f"parts/*/work/{STATE_FILE}"))
    results.append(run_job(parts[2], LIMITS))
    assert sum((result.fitness for result in results), ()) == expected.fitness
    assert sum((result.total for result in results), ()) == expected.total
    assert [result.env_steps for result in results] == [128, 128, 128]
    assert weights_file(parts[2], 384).read_bytes() == weights_file(whole, 384).read_bytes()
    names = sorted(path.name for path in (tmp_path / "parts").iterdir())
    assert names == ["stretch_0_128", "stretch_128_256", "stretch_256_384"]
    assert finished(parts[0]) == results[0]


def test_a_training_that_a_limit_ended_is_run_again_with_a_larger_one_only(tmp_path):
    job, short = (
        small_job(tmp_path / "a"),
        dataclasses.replace(LIMITS, start_s=0.2, s_per_step=1e-6),
    )
    result = run_job(job, short)
    assert (result.status, result.limit) == ("failed", "wall")
    written = written_at(job)
    more_memory = dataclasses.replace(short, memory_mib=900)
    assert run_job(job, short) == run_job(job, more_memory) == result
    assert written_at(job) == written
    again = run_job(job, LIMITS)
    assert again.status == "done", again.reason
    assert run_job(job, short) == again


def test_a_training_that_was_killed_from_outside_is_run_again(tmp_path, monkeypatch):
    """As by a kernel without memory, or by a service that is stopped."""

    def killed(*args, on_poll, **kwargs):
        def kill() -> None:
            for child in Path(f"/proc/{os.getpid()}/task").glob("*/children"):
                for pid in child.read_text().split():
                    command = Path(f"/proc/{pid}/cmdline").read_bytes()
                    if b"training_child:train" in command:
                        os.kill(int(pid), signal.SIGKILL)

        return run_sandboxed(*args, on_poll=kill, **kwargs)

    job = small_job(tmp_path / "a")
    with monkeypatch.context() as patch:
        patch.setattr("embodied_icrl.reward_search.jobs.run_sandboxed", killed)
        result = run_job(job, LIMITS)
    assert (result.status, result.reason) == ("failed", "killed by signal 9")
    assert not result.deterministic and result.limit is None
    assert finished(job) is None
    assert run_job(job, LIMITS).status == "done"


BROKEN_TASK = """
import sys
from dataclasses import dataclass
from embodied_icrl.manipulation.planar_reach import PlanarReach

@dataclass(frozen=True)
class Broken(PlanarReach):
    def make_env(self):
        if "embodied_icrl.reward_search.training_child" not in sys.modules:
            import nowhere
        return super().make_env()
"""


def test_a_task_that_the_machine_can_not_build_fails_no_reward_for_good(tmp_path):
    """Its training ends well; its evaluation lacks a package."""
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "broken_task.py").write_text(BROKEN_TASK)
    job = small_job(
        tmp_path / "a",
        task={"_target_": "broken_task.Broken", "horizon": 20},
        task_paths=(str(tmp_path / "tasks"),),
    )
    result = run_job(job, LIMITS)
    assert result.reason == f"{NOT_BUILT}: ModuleNotFoundError: No module named 'nowhere'"
    assert (result.status, result.deterministic, result.limit) == ("failed", False, None)
    assert result.fitness == ()
    assert finished(job) is None


# What follows starts no child process.


def done(folder: Path, **changes) -> tuple[Job, JobResult]:
    job = small_job(folder, **changes)
    result = JobResult(
        "done",
        env_steps=256,
        fitness=(FitnessPoint(128, -0.25, 0.0, 3), FitnessPoint(256, 0.5, 1 / 3, 3)),
        components={"a": (0.1, 0.2)},
        total=(0.1, 0.2),
        wall_s=1.5,
    )
    new_folders(stretch_folder(job), Layers())
    write_result(job, result, LIMITS)
    return job, result


def test_a_result_is_read_as_it_was_written(tmp_path):
    job, result = done(tmp_path)
    assert finished(job) == result
    failed = JobResult("failed", "line 3: no", limit="memory", sandbox="seccomp + limits")
    write_result(job, failed, LIMITS)
    assert finished(job) == failed


@pytest.mark.parametrize(
    ("failure", "more", "less"),
    [
        ({"limit": "wall", "deterministic": False}, {"start_s": 501.0}, {"cpu_start_s": 999}),
        ({"limit": "wall", "deterministic": False}, {"s_per_step": 0.06}, {"s_per_step": 0.04}),
        ({"limit": "cpu", "deterministic": False}, {"cpu_start_s": 61}, {"start_s": 900.0}),
        ({"limit": "cpu", "deterministic": False}, {"cpu_s_per_step": 0.04}, {"stall_s": 900.0}),
        ({"limit": "stall", "deterministic": False}, {"stall_s": 501.0}, {"start_s": 900.0}),
        ({"limit": "memory"}, {"memory_mib": 801}, {"memory_mib": 799}),
        ({"limit": "file"}, {"file_mib": 65}, {"disk_mib": 999}),
        ({"limit": "disk", "deterministic": False}, {"disk_mib": 65}, {"file_mib": 999}),
    ],
    ids=lambda value: " ".join(map(str, value.values())),
)
def test_a_failure_by_a_limit_stands_until_that_limit_is_raised(tmp_path, failure, more, less):
    job, _ = done(tmp_path)
    failed = JobResult("failed", "no more", **failure)
    write_result(job, failed, LIMITS)
    for limits in (None, LIMITS, dataclasses.replace(LIMITS, **less)):
        assert finished(job, limits) == failed
    assert finished(job, dataclasses.replace(LIMITS, **more)) is None


def test_a_failure_of_the_reward_itself_stands_whatever_the_limits_are(tmp_path):
    job, _ = done(tmp_path)
    failed = JobResult("failed", "line 3: no")
    write_result(job, failed, LIMITS)
    large = TrainingLimits(*(100 * value for value in dataclasses.astuple(LIMITS)))
    assert finished(job) == finished(job, large) == failed


def test_a_failure_that_the_machine_had_a_part_in_is_not_the_end(tmp_path):
    job, result = done(tmp_path)
    write_result(job, JobResult("failed", "killed by signal 9", deterministic=False), LIMITS)
    assert finished(job) is None
    by_clock = dataclasses.replace(result, deterministic=False)
    write_result(job, by_clock, LIMITS)
    assert finished(job) == by_clock  # done is done


@pytest.mark.parametrize(
    "changes",
    [
        {"source": HONEST + "\n"},
        {"seed": 4},
        {"episodes": (3, 4)},
        {"phase": "final"},
        {"hyperparameters": {"n_steps": 64}},
        {"task": {"_target_": "x"}},
        {"n_envs": 2},
        {"checkpoints": (256,)},
    ],
)
def test_a_result_of_another_job_is_not_taken(tmp_path, changes):
    job, _ = done(tmp_path)
    assert finished(dataclasses.replace(job, **changes)) is None


def test_a_run_directory_may_be_moved(tmp_path):
    job, result = done(tmp_path / "here")
    (tmp_path / "here").rename(tmp_path / "there")
    assert finished(dataclasses.replace(job, folder=str(tmp_path / "there"))) == result
    assert job_hash(job) == job_hash(dataclasses.replace(job, folder="/elsewhere"))


def test_a_damaged_result_is_not_a_finished_job(tmp_path):
    job, _ = done(tmp_path)
    path = stretch_folder(job) / "result.json"
    whole = path.read_bytes()
    damaged = [whole[:cut] for cut in range(0, len(whole) - 1, 37)]
    data = json.loads(whole)
    data["result"]["fitness"][0]["mean"] = 0.75
    damaged += [json.dumps(data).encode(), b"[]", b"{}", b"null", b"\xff"]
    for content in damaged:
        path.write_bytes(content)
        assert finished(job) is None
    path.write_bytes(whole)
    assert finished(job) is not None


def test_a_stretch_without_the_one_before_it_is_refused(tmp_path):
    job = small_job(tmp_path, first_step=128, checkpoints=(256,))
    with pytest.raises(RunError, match="no finished stretch .* ends at step 128"):
        run_job(job)
    done(tmp_path, last_step=128, checkpoints=(128,), source="another = 1")
    with pytest.raises(RunError, match="128"):
        run_job(job)
    before, _ = done(tmp_path, last_step=128, checkpoints=(128,))
    write_result(before, JobResult("failed", "line 3: no"), LIMITS)
    with pytest.raises(RunError, match="128"):
        run_job(job)


def test_a_job_that_is_told_to_stop_leaves_no_result(tmp_path):
    stop = threading.Event()
    stop.set()
    job = small_job(tmp_path / "a")
    with pytest.raises(Stopped):
        run_job(job, stop=stop)
    assert finished(job) is None


def test_what_an_interrupted_run_left_is_removed(tmp_path):
    folder = tmp_path / "stretch_0_256"
    (folder / "work").mkdir(parents=True)
    (folder / "work" / "old").write_text("x")
    (folder / "result.json").write_text("{")
    work = new_folders(folder, Layers())
    assert list(work.iterdir()) == []
    assert sorted(path.name for path in folder.iterdir()) == ["weights", "work"]
    with pytest.raises(RunError, match="absolute"):
        new_folders(Path("relative"), Layers())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root trains candidates as another user")
def test_a_folder_that_the_other_user_can_not_enter_is_an_error_that_says_so(tmp_path):
    (tmp_path / "closed").mkdir(mode=0o700)
    with pytest.raises(RunError, match="closed to other users"):
        new_folders(tmp_path / "closed" / "a", Layers(user=True))
    new_folders(tmp_path / "closed" / "a", Layers(user=True, bubblewrap=True))


def test_limits_grow_with_the_steps():
    small, large = TrainingLimits().training(1_000), TrainingLimits().training(1_000_000)
    assert small.wall_s < large.wall_s and small.cpu_s < large.cpu_s
    few, many = TrainingLimits().evaluation(1), TrainingLimits().evaluation(200)
    assert few.cpu_s >= 60 and many.cpu_s - few.cpu_s >= 199 * 10
    with pytest.raises(ConfigError, match="stall_s"):
        TrainingLimits(stall_s=0)


@pytest.mark.parametrize(
    "line",
    [
        b"no json",
        b'{"steps": "many"}',
        b'{"steps": true}',
        b"[1]",
        b'{"steps": 1, "checkpoint": 5, "total": 0, "components": {}}',
        b'{"steps": 1, "checkpoint": [], "total": 0, "components": {}}',
        b'{"steps": 1, "checkpoint": 128, "total": NaN, "components": {}}',
        b'{"steps": 1, "checkpoint": 128, "total": 0, "components": {"<b>": 1}}',
        b'{"steps": 1, "checkpoint": 128, "total": 0, "components": {"": 1}}',
        b'{"steps": 1, "checkpoint": 128, "total": 0, "components": {"a": "1"}}',
        b'{"steps": 1, "checkpoint": 128, "total": 1' + b"0" * 400 + b', "components": {}}',
        b"[" * 100_000,
        b'{"steps": 1' + b"0" * 5000 + b"}",
    ],
)
def test_a_report_of_another_form_is_not_believed(tmp_path, line):
    path = tmp_path / "report.jsonl"
    path.write_bytes(b'{"steps": 100}\n' + line + b"\n")
    report = TrainingReport(path, small_job(tmp_path))
    report.read_on()
    assert report.problem is not None
    assert report.totals((128,)) == (0.0,) and report.components((128,)) == {}


def test_a_report_is_read_as_it_grows(tmp_path):
    path = tmp_path / "report.jsonl"
    report = TrainingReport(path, small_job(tmp_path))
    assert not report.read_on()
    path.write_text('{"steps": 100}\n{"st')
    assert report.read_on() and report.step == 100
    assert not report.read_on()
    with path.open("a") as file:
        file.write('eps": 10000000}\n')
    assert report.read_on() and report.step == 256  # no more than the job allows
    assert report.problem is None


def test_files_of_untrusted_processes_are_plain_and_small(tmp_path):
    plain = tmp_path / "plain"
    plain.write_bytes(b"12345")
    assert read_untrusted(plain, 5) == b"12345"
    assert read_untrusted(plain, 5, offset=3) == b"45"
    (tmp_path / "link").symlink_to(plain)
    os.mkfifo(tmp_path / "pipe")
    for name, limit in (("link", 5), ("pipe", 5), ("plain", 4), ("missing", 5), (".", 5)):
        with pytest.raises(UntrustedFileError):
            read_untrusted(tmp_path / name, limit)


def test_the_size_of_a_folder_follows_no_links_and_has_an_end(tmp_path):
    (tmp_path / "deep" / "deeper").mkdir(parents=True)
    (tmp_path / "deep" / "deeper" / "file").write_bytes(b"x" * 100)
    (tmp_path / "link").symlink_to("/")
    assert 100 <= folder_size(tmp_path) < 200
    assert folder_size(tmp_path, most_entries=3) > 10**18


def test_a_folder_that_can_not_be_looked_into_has_no_known_size(tmp_path, monkeypatch):
    def closed(path):
        raise PermissionError(path)

    monkeypatch.setattr(os, "scandir", closed)
    assert folder_size(tmp_path) > 10**18


def test_what_stands_in_the_place_of_a_file_to_remove_ends_nothing(tmp_path):
    job, _ = done(tmp_path)
    state = stretch_folder(job) / "work" / STATE_FILE
    state.mkdir()
    remove_state(job)
    state.rmdir()
    state.symlink_to(tmp_path)
    remove_state(job)
    assert not state.is_symlink() and tmp_path.is_dir()
    remove_state(job)
