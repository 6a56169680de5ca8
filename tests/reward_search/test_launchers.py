"""Many jobs side by side: order, failures of one, an end to all."""

from __future__ import annotations

import os
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from embodied_icrl.common.errors import ConfigError, MissingDependencyError, RunError
from embodied_icrl.manipulation.task import Budget
from embodied_icrl.reward_search import launchers
from embodied_icrl.reward_search.job_files import earlier_stretches, trained_before, write_result
from embodied_icrl.reward_search.jobs import Progress, Stopped, TrainingLimits, finished
from embodied_icrl.reward_search.launchers import LocalLauncher, RayLauncher
from embodied_icrl.reward_search.parcels import pack, pack_earlier, unpack
from embodied_icrl.reward_search.racing import Racing
from embodied_icrl.reward_search.records import Candidate, FitnessPoint, JobResult
from embodied_icrl.reward_search.rounds import Entry, Plan, Rounds
from embodied_icrl.reward_search.search_progress import SearchProgress
from tests.reward_search.trainings import ATTACKS, NODE, attack, small_job

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


def test_a_job_that_breaks_down_once_is_begun_again_after_the_others(replace_run_job):
    """Its rivals meet the same race as if nothing had happened."""
    order = []

    def work(job, on_progress, stop):
        order.append(job.candidate)
        if order == ["0"]:
            raise OSError(12, "Cannot allocate memory")
        return ended(job)

    replace_run_job(work)
    told = []
    results = LocalLauncher(1).run(
        jobs_named("0", "1", "2"), on_done=lambda job, result: told.append(job.candidate)
    )
    assert [result.status for result in results] == ["done"] * 3
    assert [result.env_steps for result in results] == [0, 1, 2]
    assert order == ["0", "1", "2", "0"]
    assert sorted(told) == ["0", "1", "2"]


@pytest.mark.parametrize("crashes", [0, 1])
def test_a_race_ends_the_same_when_a_job_breaks_down_once(replace_run_job, tmp_path, crashes):
    left = [crashes]

    def work(job, on_progress, stop):
        if job.candidate == "c" and left[0]:
            left[0] -= 1
            raise OSError(5, "Input/output error")
        point = FitnessPoint(job.last_step, float("abcd".index(job.candidate)), 0.0, 1)
        return JobResult("done", env_steps=job.last_step - job.first_step, fitness=(point,))

    replace_run_job(work)
    plan = Plan(
        task=NODE,
        task_paths=(),
        budget=Budget(400, "ppo", 1),
        seeds=(1,),
        checkpoints=(100, 200, 400),
        rungs=(100, 200, 400),
        episodes=(1, 1, 1),
        phase="search",
    )
    entries = [Entry(Candidate(name, 1, source="x"), tmp_path / name) for name in "abcd"]
    rounds = Rounds(
        LocalLauncher(1),
        lambda runs: (runs[0][-1].mean, None, None),
        Racing().survivors,
        SearchProgress(enabled=False, spending=lambda: ""),
    )
    rounds.train(entries, plan, told=lambda candidate: None)
    assert {entry.candidate.id: entry.candidate.status for entry in entries} == {
        "a": "stopped", "b": "stopped", "c": "stopped", "d": "trained",
    }  # fmt: skip
    assert [entry.env_steps for entry in entries] == [100, 100, 200, 400]


@pytest.mark.parametrize("again", [False, True])
def test_what_larger_limits_have_run_again_counts_as_done_now(replace_run_job, tmp_path, again):
    plan = Plan(
        task=NODE,
        task_paths=(),
        budget=Budget(100, "ppo", 1),
        seeds=(1,),
        checkpoints=(100,),
        rungs=(100,),
        episodes=(1,),
        phase="search",
    )
    entry = Entry(Candidate("a", 1, source="x"), tmp_path / "a")
    job = plan.job(entry, 0, 0, 100)
    launchers.stretch_folder(job).mkdir(parents=True)
    before = JobResult("failed", "no more", env_steps=50, limit="memory")
    write_result(job, before, TrainingLimits(memory_mib=100))
    replace_run_job(
        lambda job, on_progress, stop: JobResult("done", env_steps=100) if again else before
    )
    told = []

    class Watched(SearchProgress):
        def trained(self, *args, before):
            told.append(before)

    rounds = Rounds(
        LocalLauncher(1),
        lambda runs: (0.5, None, None),
        Racing().survivors,
        Watched(enabled=False, spending=lambda: ""),
    )
    rounds.train([entry], plan, told=lambda candidate: None)
    assert told == [not again]


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
    # A shell's background jobs are started with interrupts ignored.
    before_test = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            LocalLauncher(1).run([job])
        thread.join()
    finally:
        signal.signal(signal.SIGINT, before_test)
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


def write(folder: Path, first: int, last: int, *, state: bool) -> None:
    """A stretch as it is left."""
    job = small_job(folder, first_step=first, last_step=last, checkpoints=(last,))
    stretch = launchers.stretch_folder(job)
    for part in ("weights", "work"):
        (stretch / part).mkdir(parents=True)
    (stretch / "weights" / "w").write_text("w")
    if state:
        (stretch / "work" / "state.pt").write_text("state")
    point = FitnessPoint(last, 0.5, 0.0, 3)
    write_result(job, JobResult("done", fitness=(point,)), TrainingLimits())


def test_a_later_stretch_takes_along_what_it_could_be_trained_anew_by(tmp_path):
    here, there = tmp_path / "here", tmp_path / "there"
    write(here, 0, 128, state=True)
    write(here, 128, 256, state=True)
    job = small_job(here, first_step=256, last_step=384, checkpoints=(384,))
    unpack(pack_earlier(earlier_stretches(job), str(here)), str(there))
    assert sorted(str(path.relative_to(there)) for path in there.rglob("*") if path.is_file()) == [
        "stretch_0_128/result.json",
        "stretch_128_256/result.json",
        "stretch_128_256/weights/w",
        "stretch_128_256/work/state.pt",
    ]
    whole = trained_before(replace(job, folder=str(there)))
    assert (whole.first_step, whole.last_step, whole.checkpoints) == (0, 256, (128, 256))
    first = small_job(here)
    assert pack_earlier(earlier_stretches(first), str(here)) == {}


class FakeRay:
    """A cluster in this process, whose workers die when `die` says so."""

    def __init__(self, die) -> None:
        self.die, self.begun = die, []

    def Queue(self, actor_options):
        return SimpleNamespace(empty=lambda: True, shutdown=lambda force: None)

    def cluster_resources(self):
        return {"CPU": 1.0}

    def remote(self, num_cpus, max_retries):
        def begin(job, number, before, limits, queue):
            self.begun.append(job.candidate)
            return job.candidate, self.die(job, len(self.begun))

        return lambda function: SimpleNamespace(remote=begin)

    def wait(self, references, timeout):
        return references[:1], references[1:]

    def get(self, reference):
        candidate, dies = reference
        if dies:
            raise RuntimeError("the worker died")
        return JobResult("done", env_steps=int(candidate)), {}


@pytest.mark.parametrize(
    ("die", "status", "begun"),
    [
        (lambda job, count: count == 1, "done", ["0", "1", "0"]),
        (lambda job, count: job.candidate == "0", "failed", ["0", "1", "0"]),
        (lambda job, count: False, "done", ["0", "1"]),
    ],
    ids=["once", "always", "never"],
)
def test_a_dead_worker_of_a_cluster_is_forgiven_once(monkeypatch, tmp_path, die, status, begun):
    ray = FakeRay(die)
    monkeypatch.setattr(launchers, "require", lambda name, advice: ray)
    jobs = [small_job(tmp_path / name, candidate=name) for name in ("0", "1")]
    done = []
    dispatch = launchers._Dispatch(
        ray, RayLauncher(1), jobs, None, lambda job, result: done.append(job.candidate)
    )
    results = dispatch.run()
    assert [result.status for result in results] == [status, "done"]
    assert ray.begun == begun
    assert sorted(done) == ["0", "1"]


def test_without_ray_the_error_says_what_to_install(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingDependencyError, match="pip install 'ray>=2.40'"):
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
    return replace(result, wall_s=0.0)
