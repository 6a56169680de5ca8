"""A search whose parts are small: canned answers, checks by a word, trainings that take no time.

Run as a program, it searches in the directory given: what a kill test kills.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from embodied_icrl.common.files import atomic_write_json
from embodied_icrl.manipulation.planar_reach import PlanarReach
from embodied_icrl.reward_search.accounting import Accounting
from embodied_icrl.reward_search.checks import CheckReport
from embodied_icrl.reward_search.findings import Finding
from embodied_icrl.reward_search.plans import final_plan, search_plan
from embodied_icrl.reward_search.proposers.recorded import RecordedProposer, open_proposer
from embodied_icrl.reward_search.records import Answer, FitnessPoint, Job, JobResult, Request, Usage
from embodied_icrl.reward_search.runner import finish, make_rounds
from embodied_icrl.reward_search.search import Outcome, Parts, Search
from embodied_icrl.reward_search.search_config import SearchConfig
from embodied_icrl.reward_search.search_progress import SearchProgress
from embodied_icrl.reward_search.store import open_store
from embodied_icrl.reward_search.transcript import Transcript


def reward(mark: str) -> str:
    """Code that carries a mark, for `Fake` things to find."""
    return f"def compute_reward(state):\n    return 0.0, {{}}  # {mark}\n"


def answer(mark: str) -> str:
    return f"Here it is.\n```python\n{reward(mark)}```\n"


class FakeProposer:
    """Answers by a function of (iteration, sample, attempt); counts what was paid for.

    A text of None is an answer that was held back. A call gives `per_call` answers, or those before
    the one that it stops at. Every paid answer is a line of `log`, written when it is paid: before
    anyone can store it. A kill in between would have it paid twice, which nobody can avoid; kills
    at a write to disk, as in the tests, never fall there.
    """

    name = "fake"
    model = "fake-1"
    is_language_model = True

    def __init__(
        self,
        text: Callable[[int, int, int], str | None],
        log: Path,
        stops_at: Callable[[int, int, int], Exception | None] = lambda i, s, a: None,
        per_call: int = 2,
    ) -> None:
        self.text = text
        self.log = log
        self.stops_at = stops_at
        self.per_call = per_call
        self.requests: list[Request] = []

    def propose(self, request: Request) -> Iterator[tuple[Answer, ...]]:
        self.requests.append(request)
        samples = request.samples
        while samples:
            call = self._call(request, samples[: self.per_call])
            samples = samples[len(call) :]
            yield call

    def _call(self, request: Request, samples: Sequence[int]) -> tuple[Answer, ...]:
        keys, answers = [], []
        for sample in samples:
            key = (request.iteration, sample, request.attempt)
            error = self.stops_at(*key)
            if error is not None and not answers:
                raise error
            if error is not None:
                break
            text = self.text(*key)
            usage = None if answers else Usage(100, 10)
            answers.append(Answer(sample, text, None if text else "held back", usage))
            keys.append(json.dumps(key))
        append(self.log, "\n".join(keys))
        return tuple(answers)

    def expected_cost(self, request: Request, iterations: int) -> str:
        return f"{iterations} iterations may cost a fortune"


class FakeLauncher:
    """Fitness by a hash of source, seed and step; results stay in the job's folder as with the
    real one. Every training that is done is a line of `log`.

    Marks in the source: "good 0.7" sets the last fitness, "broken" fails in training.
    """

    def __init__(self, log: Path, pause_s: float = 0.0) -> None:
        self.log = log
        self.pause_s = pause_s

    def run(
        self,
        jobs: Sequence[Job],
        on_progress: Any = None,
        on_done: Callable[[Job, JobResult], None] | None = None,
    ) -> list[JobResult]:
        results = []
        for job in jobs:
            results.append(self._run(job))
            if on_done is not None:
                on_done(job, results[-1])
        return results

    def _run(self, job: Job) -> JobResult:
        path = Path(job.folder) / f"fake_{job.first_step}_{job.last_step}.json"
        if not path.exists():
            time.sleep(self.pause_s)
            path.parent.mkdir(parents=True, exist_ok=True)
            atomic_write_json(path, dataclasses.asdict(fake_result(job)))
            place = Path(job.folder).parent.parent.name
            append(self.log, f"{place} {job.candidate} {job.seed} {job.first_step}")
        data = json.loads(path.read_text())
        data["fitness"] = tuple(FitnessPoint(**point) for point in data["fitness"])
        return JobResult(**data)


def fake_result(job: Job) -> JobResult:
    if "broken" in job.source:
        return JobResult("failed", "the reward is nan at step 3", env_steps=job.first_step)
    points = tuple(
        FitnessPoint(step, fake_fitness(job, step), 0.0, episodes)
        for step, episodes in zip(job.checkpoints, job.episodes, strict=True)
    )
    means = tuple(point.mean for point in points)
    steps = job.last_step - job.first_step
    return JobResult("done", None, True, steps, points, {"near": means}, means, 0.01)


def fake_fitness(job: Job, step: int) -> float:
    share = step / 1000
    if "good" in job.source:
        return float(job.source.split("good ")[1].split()[0]) * share
    digest = hashlib.sha256(f"{job.source} {job.seed}".encode()).digest()
    return digest[0] / 1000 * share


def fake_check(source: str) -> CheckReport:
    if "refuse" in source:
        return CheckReport((Finding("import", 2, "only numpy is there"),))
    return CheckReport(())


def append(path: Path, line: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(descriptor, (line + "\n").encode())
    os.close(descriptor)


def config(folder: Path, **changes: Any) -> SearchConfig:
    from embodied_icrl.common.config import build

    node = {
        "task": PlanarReach(horizon=20), "run": str(folder), "iterations": 2, "samples": 3,
        "final_seeds": 2, "workers": 2, "video": False, "progress": False, "checkpoints": 4,
        "quick": {"env_steps": 1000}, "full": {"env_steps": 2000}, **changes,
    }  # fmt: skip
    return build(node, SearchConfig)


def search(
    config: SearchConfig,
    text: Callable[[int, int, int], str | None],
    *,
    proposer: FakeProposer | Literal["configured"] | None = None,
    pause_s: float = 0.0,
    check: Callable[[str], CheckReport] = fake_check,
) -> Outcome:
    """Search in `config.folder` with parts that take no time."""
    store = open_store(config)
    try:
        if proposer == "configured":
            recorded = open_proposer(config.proposer, config.task, seed=0, folder=store.path)
        else:
            asked = proposer or FakeProposer(text, store.path / "paid.log")
            transcript = Transcript(store.transcript)
            recorded = RecordedProposer(asked, transcript, Accounting(store.accounting))
        progress = SearchProgress(enabled=config.progress, spending=lambda: "")
        launcher = FakeLauncher(store.path / "trained.log", pause_s)
        rounds = make_rounds(config, launcher, progress)
        parts = Parts(recorded, check, rounds, search_plan(config), final_plan(config))
        return finish(Search(config, store, parts, progress))
    finally:
        store.close()


def mixed(iteration: int, sample: int, attempt: int) -> str | None:
    """Answers of every kind."""
    if (iteration, sample, attempt) == (1, 0, 0):
        return "I would rather not."
    if sample == 1 and attempt == 0:
        return answer("refuse")
    if (iteration, sample) == (2, 2):
        return answer("broken")
    return answer(f"reward {iteration} {sample} {attempt}")


if __name__ == "__main__":
    search(config(Path(sys.argv[1]), iterations=3), mixed, pause_s=float(sys.argv[2]))
