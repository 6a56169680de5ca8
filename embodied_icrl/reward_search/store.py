"""The directory of a search: everything that must not be done twice, each file whole or absent.

config.yaml                 every key of the configuration, defaults filled
transcript.jsonl            every answer, see `embodied_icrl.reward_search.transcript`
prompts/                    every question, see `embodied_icrl.reward_search.prompt_files`
accounting.json             tokens and money spent
task.json                   hashes of the files that the task is made of
iterations.json             the iterations begun, with a person's words for each
candidates/ID/              answer.md, reward.py, checks.json, candidate.json, seed_K/
baselines/ID/               the same for the rewards that the task brings along
final/ID/seed_K/            the trainings at the end, final.json their fitness
best/reward.py              the best reward so far
leaderboard.json            all candidates, the best first
correlation.json            of the best reward with the human-written one
summary.json  report.html  videos/

A search goes on by doing everything again from the start, and looking up here what is done.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from embodied_icrl.common.config import build, to_dict
from embodied_icrl.common.errors import RunError
from embodied_icrl.common.files import atomic_write_json, atomic_write_text
from embodied_icrl.manipulation.task import Task
from embodied_icrl.reward_search.checks import CheckReport
from embodied_icrl.reward_search.findings import parse_finding
from embodied_icrl.reward_search.records import BASELINES, Candidate
from embodied_icrl.reward_search.search_config import (
    FREE_KEYS,
    GROWING_KEYS,
    SearchConfig,
)
from embodied_icrl.reward_search.selection import ranked
from embodied_icrl.reward_search.task_code import changed_file, digests
from embodied_icrl.reward_search.transcript import read_lines
from embodied_icrl.runs.run import Run, load_run, open_run, run_errors

TRANSCRIPT = "transcript.jsonl"
REMAINS = ("candidates", "baselines", TRANSCRIPT, "leaderboard.json")
# The rows of the leaderboard: nothing in them depends on a clock.
ROW = ("id", "iteration", "status", "fitness", "low", "high", "env_steps", "reason")


class Store:
    """An open directory of a search; while it is open for writing, no other search can open it.

    Every method that writes raises RunError if the disk is full or gone.
    """

    def __init__(self, run: Run) -> None:
        self.run = run
        self.path = run.path

    @property
    def transcript(self) -> Path:
        """`transcript.jsonl`, whether or not it is there."""
        return self.path / TRANSCRIPT

    @property
    def accounting(self) -> Path:
        """`accounting.json`, whether or not it is there."""
        return self.path / "accounting.json"

    @property
    def report(self) -> Path:
        """`report.html`, whether or not it is there."""
        return self.path / "report.html"

    @property
    def best_reward(self) -> Path:
        """`best/reward.py`, whether or not it is there."""
        return self.path / "best" / "reward.py"

    def folder(self, candidate: str) -> Path:
        """The folder of a candidate or baseline, whether or not it is there."""
        return self.path / ("baselines" if candidate in BASELINES else "candidates") / candidate

    def final_folder(self, candidate: str) -> Path:
        """The folder of its trainings at the end, whether or not it is there."""
        return self.path / "final" / candidate

    def write_text(self, path: Path, text: str) -> None:
        """A file of the run, whole or not at all, its folder made."""
        with run_errors(f"can't write to {self.path}", "free some space; the same command goes on"):
            path.parent.mkdir(parents=True, exist_ok=True)
            atomic_write_text(path, text)

    def write_json(self, path: Path, data: Any) -> None:
        """The same for JSON; a file that has this content is left alone."""
        with run_errors(f"can't write to {self.path}", "free some space; the same command goes on"):
            path.parent.mkdir(parents=True, exist_ok=True)
            if read_json(path) != data:
                atomic_write_json(path, data)

    def save_checks(self, candidate: str, source: str, report: CheckReport) -> None:
        """What the checks said of code for this sample: a clock may have had a say in it.

        What they said of its earlier code stays.
        """
        findings = [dataclasses.asdict(finding) for finding in report.findings]
        data = {
            "source": _digest(source),
            "accepted": report.accepted,
            "deterministic": report.deterministic,
            "findings": findings,
        }
        self.write_json(self._checks_file(candidate), [*self._checks(candidate), data])

    def checks(self, candidate: str, source: str) -> CheckReport | None:
        """What the checks said of this code before; None if they weren't done."""
        for data in self._checks(candidate):
            try:
                if data["source"] == _digest(source):
                    findings = tuple(parse_finding(finding) for finding in data["findings"])
                    return CheckReport(findings, bool(data["deterministic"]))
            except (KeyError, TypeError, ValueError):
                continue
        return None

    def clocked(self, candidate: str) -> bool:
        """Whether a clock ended a check of its code, so that another run may end otherwise."""
        checks = self._checks(candidate)
        return any(isinstance(c, dict) and c.get("deterministic") is False for c in checks)

    def _checks_file(self, candidate: str) -> Path:
        return self.folder(candidate) / "checks.json"

    def _checks(self, candidate: str) -> list[Any]:
        data = read_json(self._checks_file(candidate))
        return data if isinstance(data, list) else []

    def begin_iteration(self, iteration: int, feedback: str | None) -> str | None:
        """Note that an iteration begins, with what a person has to say about it.

        Words that an earlier iteration was given already are not given again.

        Returns:
            the words for this iteration: those of its first beginning.
        """
        path = self.path / "iterations.json"
        begun = read_json(path)
        begun = begun if isinstance(begun, dict) else {}
        key = str(iteration)
        if key not in begun:
            begun[key] = feedback if feedback not in begun.values() else None
            self.write_json(path, begun)
        words = begun[key]
        return words if isinstance(words, str) else None

    def feedback(self) -> dict[int, str]:
        """A person's words by the iteration that they were given to."""
        begun = read_json(self.path / "iterations.json")
        items = begun.items() if isinstance(begun, dict) else ()
        return {int(key): text for key, text in items if isinstance(text, str)}

    def save_candidate(self, candidate: Candidate) -> None:
        """Its `candidate.json`."""
        path = self.folder(candidate.id) / "candidate.json"
        self.write_json(path, _plain(dataclasses.asdict(candidate)))

    def save_leaderboard(self, candidates: Sequence[Candidate]) -> None:
        """`leaderboard.json`, the best first."""
        rows = [{key: getattr(candidate, key) for key in ROW} for candidate in ranked(candidates)]
        self.write_json(self.path / "leaderboard.json", rows)

    def candidates(self) -> list[Candidate]:
        """All that have a whole `candidate.json`, baselines first, then in the order of writing."""
        paths = [
            *self.path.glob("baselines/*/candidate.json"),
            *self.path.glob("candidates/*/candidate.json"),
        ]
        found = [_candidate(read_json(path)) for path in paths]
        return sorted((c for c in found if c is not None), key=lambda c: (c.iteration, c.id))

    def best(self) -> str | None:
        """Id of the best candidate so far; None before there is one."""
        summary = read_json(self.path / "summary.json")
        best = summary.get("best") if isinstance(summary, dict) else None
        return best if isinstance(best, str) else None

    def close(self) -> None:
        """Let other processes open it for writing."""
        self.run.close()


def open_store(config: SearchConfig) -> Store:
    """Make the directory of a search, or open an existing one to go on with it.

    Raises:
        RunError: it exists or doesn't, against `resume`; it was made with other settings, or with
            another version of the task's files; another search is writing to it; or it can't be
            written.
    """
    folder = config.folder
    if not (folder / "config.yaml").is_file():
        remains = [name for name in REMAINS if (folder / name).exists()]
        if remains:
            raise RunError(
                f"{folder} holds {' and '.join(remains)} but no config.yaml: choose another run="
            )
    # Until the first answer the writer may still change: a misspelt model is found out this late.
    is_answered = any(True for _ in read_lines(folder / TRANSCRIPT))
    run = open_run(
        folder,
        to_dict(config),
        resume=config.resume,
        free=FREE_KEYS if is_answered else (*FREE_KEYS, "proposer"),
        growing=GROWING_KEYS,
        fill_defaults=lambda stored: to_dict(build(stored, SearchConfig)),
    )
    store = Store(run)
    try:
        _hold_task_code(store, config)
    except BaseException:
        store.close()
        raise
    return store


def _hold_task_code(store: Store, config: SearchConfig) -> None:
    """Refuse to go on with another version of the task: its numbers would be mixed."""
    path, now = store.path / "task.json", task_code(config.task)
    before = read_json(path)
    if before is not None:
        if not isinstance(before, dict) or not isinstance(before.get("files"), dict):
            raise RunError(
                f"{path} is of an earlier version, which noted less of the task's code; "
                "choose another run="
            )
        changed = changed_file(config.task, before["files"], now["files"])
        if changed is not None:
            raise RunError(
                f"{changed} since the search in {store.path} began: choose another run=, "
                "or put the file back"
            )
    store.write_json(path, now)


def task_code(task: Task) -> dict[str, dict[str, str]]:
    """What `task.json` holds; raises RunError if a file of the task can't be read."""
    return {"files": digests(task)}


def read_search(path: str | Path) -> tuple[Store, SearchConfig]:
    """The directory of a search for reading, and its configuration.

    Raises:
        RunError: there is none, or it can't be read.
        ConfigError: its configuration doesn't fit this version of the package.
    """
    run = load_run(path)
    if "proposer" not in run.config or "task" not in run.config:
        raise RunError(f"{path} is a run, but not of `embodied-icrl reward search`")
    return Store(run), build(run.config, SearchConfig)


def read_json(path: Path) -> Any:
    """A file's JSON; None if it is absent or torn."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def _candidate(data: Any) -> Candidate | None:
    """A candidate from its file; None if that holds something else."""
    try:
        curves: Mapping[str, Sequence[float]] = data.pop("curves")
        return Candidate(**data, curves={name: tuple(values) for name, values in curves.items()})
    except (AttributeError, KeyError, TypeError):
        return None


def _plain(data: dict[str, Any]) -> dict[str, Any]:
    """Tuples as the lists that JSON makes of them, so that a file can be compared."""
    plain: dict[str, Any] = json.loads(json.dumps(data, allow_nan=False))
    return plain


def _digest(source: str) -> str:
    return hashlib.sha256(source.encode()).hexdigest()
