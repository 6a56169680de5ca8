"""Where jobs run: side by side on this machine, or on the machines of a Ray cluster."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Protocol

from embodied_icrl.common.config import option
from embodied_icrl.common.errors import ConfigError, UserError
from embodied_icrl.reward_search.findings import printable
from embodied_icrl.reward_search.jobs import Progress, Stopped, TrainingLimits, run_job
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

        A job whose worker dies or that raises is a failed result with `deterministic=False`, and
        is not written to disk: the same job can be run again. What concerns every job ends the
        whole run: a mistake in the settings, a sandbox that can't be set up, KeyboardInterrupt.
        The running jobs are then killed first.

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
            futures = {pool.submit(work, job): i for i, job in enumerate(jobs)}
            try:
                return _gathered(jobs, futures, on_done)
            except BaseException:
                stop.set()
                pool.shutdown(wait=True, cancel_futures=True)
                raise


def _gathered(
    jobs: Sequence[Job], futures: dict[Future[JobResult], int], on_done: OnDone | None
) -> list[JobResult]:
    results: dict[int, JobResult] = {}
    waiting = set(futures)
    while waiting:
        ended, waiting = wait(waiting, return_when=FIRST_COMPLETED)
        for future in sorted(ended, key=lambda item: futures[item]):
            i = futures[future]
            results[i] = crash_result(future.exception()) or future.result()
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
