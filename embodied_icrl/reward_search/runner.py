"""One search from its configuration: opens the directory, puts the parts together, and reports."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

from embodied_icrl.common.errors import ConfigError, UserError
from embodied_icrl.reward_search.accounting import Accounting
from embodied_icrl.reward_search.algorithms import completed
from embodied_icrl.reward_search.checks import CheckReport, check_reward
from embodied_icrl.reward_search.launchers import Launcher, LocalLauncher, RayLauncher
from embodied_icrl.reward_search.plans import final_plan, search_plan
from embodied_icrl.reward_search.proposers.recorded import open_proposer
from embodied_icrl.reward_search.rounds import Rounds
from embodied_icrl.reward_search.sandbox import available_layers
from embodied_icrl.reward_search.search import Outcome, Parts, Search, reward_of, words_of
from embodied_icrl.reward_search.search_config import SearchConfig
from embodied_icrl.reward_search.search_progress import SearchProgress
from embodied_icrl.reward_search.search_report import (
    correlate_best,
    film_best,
    filmed,
    report_search,
)
from embodied_icrl.reward_search.selection import select
from embodied_icrl.reward_search.store import Store, open_store
from embodied_icrl.reward_search.terms_run import best_of_terms
from embodied_icrl.reward_search.transitions import record_episodes
from embodied_icrl.reward_search.writing import Check
from embodied_icrl.runs.run import run_errors

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)


class SearchStopped(BaseException):
    """A signal asks for an end. Like KeyboardInterrupt, nothing but a search's owner catches it."""

    def __init__(self, number: int) -> None:
        super().__init__(f"stopped by signal {number}")
        self.signal = number


def run_search(config: SearchConfig, *, command: str = "") -> Outcome:
    """Search, or go on with the search in `config.folder`.

    Args:
        command: what a person ran, for the report.

    Raises:
        SearchStopped: by a signal; all that was finished is on disk, and the report is written.
        RunError: the directory can't be used.
        ConfigError: something in the configuration doesn't fit.
        MissingDependencyError: the task's or the proposer's packages aren't installed.
    """
    check = check_settings(config)
    store = open_store(config)
    try:
        return _search(config, store, check, command)
    finally:
        store.close()


def check_settings(config: SearchConfig) -> Check:
    """Find what is wrong with the settings before a directory is made that remembers them.

    Returns:
        the checks of reward code for the task.

    Raises:
        ConfigError: something in the configuration doesn't fit.
        RunError: there is no search in `terms_run`.
        MissingDependencyError: the task's or the proposer's packages aren't installed.
    """
    search_plan(config)
    for budget in (config.quick_budget, config.last_budget):
        completed(budget.algorithm, budget.hyperparameters, budget.n_envs)
    config.proposer.build(config.task, seed=config.seed, accounting=Accounting())
    words_of(config.feedback_file)
    best_of_terms(config)
    check = make_check(config)
    if config.init is not None:
        report = check(reward_of(config.init))
        if not report.accepted:
            raise ConfigError(f"init={config.init}: {report.findings[0].text}")
    return check


def _search(config: SearchConfig, store: Store, check: Check, command: str) -> Outcome:
    proposer = open_proposer(config.proposer, config.task, seed=config.seed, folder=store.path)
    accounting, layers = proposer.accounting, available_layers().name
    progress = SearchProgress(
        enabled=config.progress, spending=lambda: accounting.line if accounting.totals.calls else ""
    )
    with progress, stop_signals():
        progress.notice(f"searching in {store.path}; sandbox: {layers}")
        rounds = make_rounds(config, make_launcher(config), progress)
        parts = Parts(proposer, check, rounds, search_plan(config), final_plan(config))
        search = Search(config, store, parts, progress)
        search.summary.sandbox = layers
        search.summary.command = command
        return finish(search)


def finish(search: Search) -> Outcome:
    """Run a search, film its best, and leave a report, whatever happens."""
    config, store = search.config, search.store
    advice = "mend that; the same command goes on"
    with run_errors(f"can't go on with {store.path}", advice), _reported(search):
        outcome = search.run()
        search.save("running")
        if outcome.best is not None:
            _look_at(outcome.best.id, search)
        search.save(outcome.status)
        report_search(store, config)
        return outcome


def _look_at(best: str, search: Search) -> None:
    """Film the best reward's policy, and compare the reward with the human-written one."""
    config, store, progress = search.config, search.store, search.progress
    footage = None
    if config.video:
        progress.say("filming the best")
        footage = film_best(store, config, best)
        path, reason = filmed(store)
        if path is None:
            progress.notice(f"no film: {reason}")
        elif footage is not None and footage.note:
            progress.say(footage.note)
    correlate_best(store, config, best, footage.states if footage is not None else None)


@contextmanager
def _reported(search: Search) -> Iterator[None]:
    """Leave a leaderboard and a report of what there is, when it ends before its time."""
    try:
        yield
    except BaseException:
        # The disk may be full: the first error is the one to tell.
        with suppress(UserError, OSError):
            search.save("stopped")
            report_search(search.store, search.config)
        raise


@contextmanager
def stop_signals() -> Iterator[None]:
    """Within, the first stop signal raises SearchStopped in the main thread; others are ignored
    while its children are ended."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    seen: list[int] = []

    def handle(number: int, frame: FrameType | None) -> None:
        if not seen:
            seen.append(number)
            raise SearchStopped(number)

    previous: dict[signal.Signals, Any] = {n: signal.signal(n, handle) for n in STOP_SIGNALS}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def make_launcher(config: SearchConfig) -> Launcher:
    """Where the trainings run."""
    if config.launcher == "ray":
        return RayLauncher(config.workers, config.limits, config.ray_address)
    return LocalLauncher(config.workers, config.limits)


def make_check(config: SearchConfig) -> Check:
    """The checks of reward code for the task, on transitions that are recorded once, here.

    Raises:
        MissingDependencyError: the task's packages aren't installed.
    """
    episodes = record_episodes(config.task, config.seed)

    def check(source: str) -> CheckReport:
        return check_reward(source, config.task, components=config.components, episodes=episodes)

    return check


def make_rounds(config: SearchConfig, launcher: Launcher, progress: SearchProgress) -> Rounds:
    """What trains, compares and stops."""
    return Rounds(
        launcher,
        lambda points: select(points, config.selection),
        config.racing.survivors,
        progress,
    )
