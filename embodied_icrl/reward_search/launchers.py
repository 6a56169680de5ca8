"""Where jobs run: side by side on this machine, or on the machines of a Ray cluster."""

from __future__ import annotations

import dataclasses
import os
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from embodied_icrl.common.config import option
from embodied_icrl.common.errors import ConfigError, UserError, require
from embodied_icrl.reward_search.findings import printable
from embodied_icrl.reward_search.jobs import (
    Progress,
    Stopped,
    TrainingLimits,
    earlier_stretches,
    finished,
    run_job,
    stretch_folder,
)
from embodied_icrl.reward_search.parcels import Parcel, pack, pack_earlier, unpack
from embodied_icrl.reward_search.records import Job, JobResult
from embodied_icrl.reward_search.sandbox import Layers, SandboxError, available_layers

OnProgress = Callable[[Job, Progress], None]
OnDone = Callable[[Job, JobResult], None]


class Launcher(Protocol):
    """Runs jobs."""

    def run(
        self,
        jobs: Sequence[Job],
        on_progress: OnProgress | None = None,
        on_done: OnDone | None = None,
    ) -> list[JobResult]:
        """The results of all jobs, in their order; finished ones are not run again.

        A job whose worker dies or that raises is begun once more after all others. If that breaks
        down too, it is a failed result with `deterministic=False`, and is not written to disk: the
        same job can be run again. What concerns every job ends the whole run: a mistake in the
        settings, a sandbox that can't be set up, KeyboardInterrupt. The running jobs are then
        killed first.

        Args:
            on_progress: called now and then while a job trains, from one thread at a time.
            on_done: called once for each job as it ends, in the order of ending, in the thread
                that called `run`.
        """
        ...


@dataclass(frozen=True)
class LocalLauncher:
    """Threads of this process, each of which looks after the children of one job."""

    workers: int = option(0, "jobs side by side; 0: as many as this machine has cores")
    limits: TrainingLimits = option(TrainingLimits, "what a training may use")

    def __post_init__(self) -> None:
        if self.workers < 0:
            raise ConfigError(f"workers={self.workers}: 0 or more")

    def run(
        self,
        jobs: Sequence[Job],
        on_progress: OnProgress | None = None,
        on_done: OnDone | None = None,
        *,
        layers: Layers | None = None,
    ) -> list[JobResult]:
        """See `Launcher`."""
        layers = layers if layers is not None else available_layers()
        stop, lock = threading.Event(), threading.Lock()

        def work(job: Job) -> JobResult:
            def tell(progress: Progress) -> None:
                with lock:
                    if on_progress is not None:
                        on_progress(job, progress)

            return run_job(job, self.limits, layers, tell, stop)

        workers = self.workers or len(os.sched_getaffinity(0))
        with ThreadPoolExecutor(workers, thread_name_prefix="job") as pool:
            try:
                return _gathered(jobs, lambda job: pool.submit(work, job), on_done)
            except BaseException:
                stop.set()
                pool.shutdown(wait=True, cancel_futures=True)
                raise


def _gathered(
    jobs: Sequence[Job], begin: Callable[[Job], Future[JobResult]], on_done: OnDone | None
) -> list[JobResult]:
    results: dict[int, JobResult] = {}
    futures = {begin(job): i for i, job in enumerate(jobs)}
    waiting, second = set(futures), set[int]()
    while waiting:
        ended, waiting = wait(waiting, return_when=FIRST_COMPLETED)
        for future in sorted(ended, key=lambda item: futures[item]):
            i = futures[future]
            crash = crash_result(future.exception())
            if crash is not None and i not in second:
                second.add(i)
                futures[again := begin(jobs[i])] = i
                waiting.add(again)
                continue
            results[i] = crash or future.result()
            if on_done is not None:
                on_done(jobs[i], results[i])
    return [results[i] for i in range(len(jobs))]


def crash_result(error: BaseException | None) -> JobResult | None:
    """The failed result of a job that raised `error`; None without one.

    Raises:
        BaseException: `error` itself, if it would end every other job as well.
    """
    if error is None:
        return None
    if isinstance(error, UserError | SandboxError | Stopped) or not isinstance(error, Exception):
        raise error
    reason = printable(f"the job itself broke down: {type(error).__name__}: {error}", 200)
    return JobResult("failed", reason, deterministic=False)


@dataclass(frozen=True)
class RayLauncher:
    """The machines of a Ray cluster; they share no disk, as files travel with the jobs.

    Every machine has this package and the task's packages; a task of one's own lies at the same
    path on all of them. The sandbox of a job is that of the machine it runs on.
    """

    workers: int = option(0, "jobs side by side; 0: as many as the cluster has processors")
    limits: TrainingLimits = option(TrainingLimits, "what a training may use")
    address: str | None = option(None, "of an existing cluster; null: one on this machine")

    def __post_init__(self) -> None:
        if self.workers < 0:
            raise ConfigError(f"workers={self.workers}: 0 or more")

    def run(
        self,
        jobs: Sequence[Job],
        on_progress: OnProgress | None = None,
        on_done: OnDone | None = None,
    ) -> list[JobResult]:
        """See `Launcher`.

        Raises:
            MissingDependencyError: Ray isn't installed.
            ConfigError: no cluster answers at `address`.
        """
        ray = require("ray", "pip install 'ray>=2.40'")
        is_ours = not ray.is_initialized()
        if is_ours:
            _connect(ray, self.address, self.workers)
        try:
            return _Dispatch(ray, self, jobs, on_progress, on_done).run()
        finally:
            if is_ours:
                ray.shutdown()


def _connect(ray: Any, address: str | None, workers: int) -> None:
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "error"}
    if address is None:
        # Ray's workers are nice to all others by default: on a busy machine they would stand still.
        os.environ.setdefault("RAY_worker_niceness", "0")
        cores = workers or len(os.sched_getaffinity(0))
        ray.init(num_cpus=cores, include_dashboard=False, **quiet)
        return
    try:
        ray.init(address=address, **quiet)
    except (ConnectionError, ValueError) as error:
        first_line = printable(str(error), 150)
        raise ConfigError(f"ray_address={address}: no Ray cluster there ({first_line})") from error


class _Dispatch:
    """One run on a Ray cluster."""

    def __init__(
        self,
        ray: Any,
        launcher: RayLauncher,
        jobs: Sequence[Job],
        on_progress: OnProgress | None,
        on_done: OnDone | None,
    ) -> None:
        self._ray, self._jobs, self._limits = ray, jobs, launcher.limits
        self._on_progress, self._on_done = on_progress, on_done
        self._most = launcher.workers or max(1, int(ray.cluster_resources().get("CPU", 1)))
        self._queue = require("ray.util.queue", "pip install 'ray>=2.40'").Queue(
            actor_options={"num_cpus": 0}
        )
        # No retries by Ray, which would not look for the files anew.
        self._remote = ray.remote(num_cpus=1, max_retries=0)(run_shipped)
        self._waiting = deque(range(len(jobs)))
        self._second: set[int] = set()  # begun once more
        self._running: dict[Any, int] = {}
        self._results: dict[int, JobResult] = {}

    def run(self) -> list[JobResult]:
        """All results, in the order of the jobs."""
        try:
            while self._waiting or self._running:
                while self._waiting and len(self._running) < self._most:
                    self._begin(self._waiting.popleft())
                if not self._running:
                    continue
                ended, _ = self._ray.wait(list(self._running), timeout=0.5)
                self._tell()
                for reference in ended:
                    self._end(reference)
        finally:
            for reference in self._running:
                self._ray.cancel(reference, force=True)
            self._queue.shutdown(force=True)
        return [self._results[i] for i in range(len(self._jobs))]

    def _begin(self, i: int) -> None:
        job = self._jobs[i]
        result = finished(job, self._limits)
        if result is not None:
            self._close(i, result)
            return
        parcel = pack_earlier(earlier_stretches(job), job.folder)
        reference = self._remote.remote(job, i, parcel, self._limits, self._queue)
        self._running[reference] = i

    def _end(self, reference: Any) -> None:
        i = self._running.pop(reference)
        try:
            result, parcel = self._ray.get(reference)
            unpack(parcel, self._jobs[i].folder)
        except Exception as error:
            crash = crash_result(error)
            assert crash is not None
            if i not in self._second:
                self._second.add(i)
                self._waiting.append(i)
                return
            result = crash
        self._close(i, result)

    def _close(self, i: int, result: JobResult) -> None:
        self._results[i] = result
        if self._on_done is not None:
            self._on_done(self._jobs[i], result)

    def _tell(self) -> None:
        while not self._queue.empty():
            i, progress = self._queue.get()
            if self._on_progress is not None and i not in self._results:
                self._on_progress(self._jobs[i], progress)


def run_shipped(
    job: Job, number: int, before: Parcel, limits: TrainingLimits, queue: Any
) -> tuple[JobResult, Parcel]:
    """`run_job` in a folder of the machine that this runs on.

    Args:
        number: of the job, for its progress in `queue`.
        before: files of the stretches that it goes on from.

    Returns:
        The result, and the files that the job's own folder is to hold.
    """
    with tempfile.TemporaryDirectory(prefix="reward-job-") as folder:
        Path(folder).chmod(0o755)  # the sandbox may be another user
        here = dataclasses.replace(job, folder=folder)
        unpack(before, folder)
        result = run_job(here, limits, on_progress=lambda told: queue.put((number, told)))
        return result, pack(stretch_folder(here), folder)
