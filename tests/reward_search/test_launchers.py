"""Many jobs side by side: order, failures of one, an end to all."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import pytest

from embodied_icrl.common.errors import ConfigError, MissingDependencyError, RunError
from embodied_icrl.reward_search import launchers
from embodied_icrl.reward_search.jobs import Progress, Stopped, TrainingLimits, finished
from embodied_icrl.reward_search.launchers import LocalLauncher, RayLauncher
from embodied_icrl.reward_search.parcels import pack, unpack
from embodied_icrl.reward_search.records import JobResult
from tests.reward_search.trainings import ATTACKS, attack, small_job

pytestmark = pytest.mark.timeout(600)


def jobs_named(*names: str):
    return [small_job(f"/nowhere/{name}", candidate=name) for name in names]


@pytest.fixture
def replace_run_job(monkeypatch):
    """Jobs are a function of the test instead of child processes."""

    def replace(function):
        def run_job(job, limits, layers, on_progress, stop):
            return function(job, on_progress, stop)

        monkeypatch.setattr(launchers, "run_job", run_job)

    return replace


def ended(job) -> JobResult:
    return JobResult("done", env_steps=int(job.candidate))


def test_results_come_in_the_order_of_the_jobs_whatever_ends_first(replace_run_job):
    turns = {str(i): threading.Event() for i in range(3)}
    turns["2"].set()

    def work(job, on_progress, stop):
        assert turns[job.candidate].wait(60)
        return ended(job)

    order = []

    def done(job, result):
        assert threading.current_thread() is threading.main_thread()
        order.append(job.candidate)
        if job.candidate != "0":
            turns[str(int(job.candidate) - 1)].set()

    replace_run_job(work)
    results = LocalLauncher(3).run(jobs_named("0", "1", "2"), on_done=done)
    assert [result.env_steps for result in results] == [0, 1, 2]
    assert order == ["2", "1", "0"]


def test_no_more_jobs_at_once_than_workers_and_all_of_them_used(replace_run_job):
    lock, together = threading.Lock(), threading.Barrier(2)
    running, most = 0, 0

    def work(job, on_progress, stop):
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        together.wait(60)
        with lock:
            running -= 1
        return ended(job)

    replace_run_job(work)
    LocalLauncher(2).run(jobs_named(*map(str, range(6))))
    assert most == 2


def test_progress_names_its_job(replace_run_job):
    def work(job, on_progress, stop):
        on_progress(Progress(int(job.candidate), 1.0))
        return ended(job)

    replace_run_job(work)
    seen = []
    LocalLauncher(2).run(
        jobs_named("1", "2"), lambda job, told: seen.append((job.candidate, told.step))
    )
    assert sorted(seen) == [("1", 1), ("2", 2)]


def test_a_job_that_breaks_down_costs_its_own_slot_only(replace_run_job):
    def work(job, on_progress, stop):
        if job.candidate == "1":
            raise OSError(28, "No space left on device")
        return ended(job)

    replace_run_job(work)
    results = LocalLauncher(2).run(jobs_named("0", "1", "2"))
    assert [result.status for result in results] == ["done", "failed", "done"]
    assert "No space left" in results[1].reason
    assert not results[1].deterministic


@pytest.mark.parametrize("error", [RunError("wrong settings"), KeyboardInterrupt()])
def test_what_concerns_all_jobs_ends_them_all(replace_run_job, error):
    begun = threading.Event()
    stopped = []

    def work(job, on_progress, stop):
        if job.candidate == "1":
            assert begun.wait(60)
            raise error
        begun.set()
        assert stop.wait(60)
        stopped.append(job.candidate)
        raise Stopped("stopped")

    replace_run_job(work)
    with pytest.raises(type(error)):
        LocalLauncher(2).run(jobs_named("0", "1", "2"))
    assert stopped == ["0"]


def children_of_this_process() -> list[str]:
    paths = Path(f"/proc/{os.getpid()}/task").glob("*/children")
    return [child for path in paths for child in path.read_text().split()]


def test_an_interrupt_kills_the_child_processes(tmp_path):
    before = set(children_of_this_process())
    job = small_job(tmp_path / "a", attack(ATTACKS["stubborn"][0]))

    def interrupt():
        end = time.monotonic() + 120
        while set(children_of_this_process()) <= before and time.monotonic() < end:
            time.sleep(0.05)
        time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        LocalLauncher(1).run([job])
    thread.join()
    assert set(children_of_this_process()) <= before
    assert finished(job) is None


def test_numbers_of_workers_that_make_no_sense():
    with pytest.raises(ConfigError, match="workers"):
        LocalLauncher(-1)
    with pytest.raises(ConfigError, match="workers"):
        RayLauncher(-1)


def test_parcels_hold_what_the_next_stretch_and_the_evaluation_need(tmp_path):
    stretch = tmp_path / "here" / "stretch_0_128"
    (stretch / "weights").mkdir(parents=True)
    (stretch / "work").mkdir()
    for name in ("weights/w", "work/state.pt", "result.json", "work/other"):
        (stretch / name).write_text(name)
    parcel = pack(stretch, str(tmp_path / "here"))
    assert list(parcel)[-1] == "stretch_0_128/result.json"  # written last: then all is there
    unpack(parcel, str(tmp_path / "there"))
    there = tmp_path / "there" / "stretch_0_128"
    assert (there / "work" / "state.pt").read_text() == "work/state.pt"
    assert not (there / "work" / "other").exists()
    (stretch / "work" / "state.pt").unlink()
    (stretch / "work" / "state.pt").symlink_to("/etc/passwd")
    assert "stretch_0_128/work/state.pt" not in pack(stretch, str(tmp_path / "here"))
    for name in ("/etc/x", "../x"):
        with pytest.raises(ValueError, match="outside"):
            unpack({name: b""}, str(tmp_path / "there"))


def test_without_ray_the_error_says_what_to_install(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingDependencyError, match=r"embodied-icrl\[ray\]"):
        RayLauncher(1).run([])


@pytest.fixture
def cluster(monkeypatch):
    """A Ray cluster on this machine; starting one takes half a minute and more."""
    ray = pytest.importorskip("ray")
    monkeypatch.setenv("RAY_worker_niceness", "0")
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


@pytest.mark.slow
def test_jobs_on_a_local_ray_cluster_end_as_they_do_here(tmp_path, cluster):
    """Their files travel: a worker has its own folder, and a second stretch goes on elsewhere."""
    here = [small_job(tmp_path / "here"), small_job(tmp_path / "dead", attack(DEAD))]
    there = [small_job(tmp_path / "there"), small_job(tmp_path / "gone", attack(DEAD))]
    first = small_job(tmp_path / "two", last_step=128, checkpoints=(128,))
    second = small_job(tmp_path / "two", first_step=128, checkpoints=(256,))
    limits = TrainingLimits(start_s=500, stall_s=500, memory_mib=800)
    expected = LocalLauncher(2, limits).run(here)
    done, seen = [], []
    launcher = RayLauncher(2, limits)
    results = launcher.run(
        [*there, first],
        lambda job, progress: seen.append(progress.step),
        lambda job, result: done.append(job.folder),
    )
    more = launcher.run([second, there[0]])
    assert [strip(result) for result in results[:2]] == [strip(result) for result in expected]
    assert results[0] == more[1] == finished(there[0])
    assert sorted(done) == sorted(job.folder for job in [*there, first])
    weights = [
        launchers.stretch_folder(job) / "weights" / "weights_256.safetensors"
        for job in (here[0], there[0], second)
    ]
    assert len({path.read_bytes() for path in weights}) == 1
    assert all(0 < step <= 256 for step in seen)


DEAD = ATTACKS["dead"][0]


def strip(result: JobResult) -> JobResult:
    from dataclasses import replace

    return replace(result, wall_s=0.0)
