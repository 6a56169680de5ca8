"""The actions of `embodied-icrl reward` that train, or show what was trained."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from embodied_icrl.cli.errors import CommandStopped
from embodied_icrl.cli.reward import RewardConfig, read_source, task_files
from embodied_icrl.common.config import build, to_dict
from embodied_icrl.common.errors import ConfigError
from embodied_icrl.common.files import atomic_write_text
from embodied_icrl.reward_search.evaluate import evaluate_reward
from embodied_icrl.reward_search.records import Candidate
from embodied_icrl.reward_search.runner import (
    SearchStopped,
    check_settings,
    make_launcher,
    make_rounds,
    run_search,
    stop_signals,
)
from embodied_icrl.reward_search.search_config import FREE_KEYS, SearchConfig
from embodied_icrl.reward_search.search_progress import SearchProgress
from embodied_icrl.reward_search.search_report import film_best, filmed, report_search
from embodied_icrl.reward_search.store import open_store, read_search
from embodied_icrl.reward_search.summary import FinalResult
from embodied_icrl.runs.compare import compare_configs

NOTHING_TRAINED = 1  # exit status of a search that found no reward


def search(config: RewardConfig, settings: Mapping[str, Any]) -> None:
    """Search, or go on with a search, and print where the results are.

    Raises:
        CommandStopped: a signal ended it (128 + its number), or no reward could be trained (1).
    """
    searched = search_config(settings)
    folder = searched.folder
    try:
        outcome = run_search(searched, command=command_line())
    except SearchStopped as stop:
        print(
            f"stopped by signal {stop.signal}; the same command goes on from there ({folder})",
            file=sys.stderr,
        )
        raise CommandStopped(128 + stop.signal) from None
    if outcome.best is None:
        print(f"no reward could be trained; reasons: {folder / 'report.html'}", file=sys.stderr)
        raise CommandStopped(NOTHING_TRAINED)
    print(f"best reward: {folder / 'best' / 'reward.py'}, fitness {outcome.best.fitness:.3f}")
    for final in outcome.finals:
        print(f"trained once more: {_final_text(final)}")
    print(f"report: {folder / 'report.html'}")


def _final_text(final: FinalResult) -> str:
    if final.fitness is None or final.status != "trained":
        return f"{final.id} {final.status}: {final.reason}"
    interval = "" if final.low is None else f" [{final.low:.3f}, {final.high:.3f}]"
    seeds = len(final.per_seed)
    return f"{final.id}, fitness {final.fitness:.3f}{interval}, seeds: {seeds}"


def evaluate(config: RewardConfig, settings: Mapping[str, Any]) -> None:
    """Train a reward with several seeds, measure the policies on held-out episodes, print it.

    With `run=DIR` alone it is the best reward of that search, whose trainings at the end are looked
    up; with a file, it is that reward, and the trainings lie in `run`.

    Raises:
        ConfigError: there is no such reward, or the search had other settings.
        CommandStopped: a signal (128 + its number), or the checks refuse the file (1).
    """
    pick = _best_of_run if config.argument is None else _reward_of_file
    searched, candidate = pick(config, settings)
    keys = config.evaluate
    store = open_store(searched)
    progress = SearchProgress(enabled=searched.progress, spending=lambda: "")
    try:
        with progress, stop_signals():
            rounds = make_rounds(searched, make_launcher(searched), progress)
            progress.begin(f"{candidate.id} with {keys.seeds} seeds", [candidate.id])
            folder = store.final_folder(candidate.id)
            trained = replace(searched, final_seeds=keys.seeds)
            found = evaluate_reward(trained, candidate, folder, rounds, keys.episodes)
    except SearchStopped as stop:
        raise CommandStopped(128 + stop.signal) from None
    finally:
        store.close()
    result = {"format": 1, "task": searched.task.name, "reward": candidate.id, **found.to_json()}
    text = json.dumps(result, indent=2)
    if config.output is not None:
        Path(config.output).parent.mkdir(parents=True, exist_ok=True)
        atomic_write_text(config.output, text + "\n")
    print(text)


def _best_of_run(
    config: RewardConfig, settings: Mapping[str, Any]
) -> tuple[SearchConfig, Candidate]:
    store, searched = read_search(_run(config))
    name = store.best()
    candidate = next((c for c in store.candidates() if c.id == name), None)
    if candidate is None:
        raise ConfigError(f"{config.run}: no reward of this search is trained yet")
    wanted = _as_given(searched, settings)
    others = compare_configs(to_dict(searched), to_dict(wanted), free=FREE_KEYS, growing=())
    if others:
        told = "; ".join(others[:5])
        raise ConfigError(
            f"the search in {config.run} had other settings ({told}): leave them out "
            "(evaluate.seeds and evaluate.episodes may be set), or evaluate the file "
            f"{store.best_reward}, with task=NAME and another run="
        )
    # Where and how it is computed is said here; the limits grow from those of the search.
    free = {key: settings[key] for key in ("run", "workers", "launcher", "ray_address", "progress")}
    same = replace(searched, resume="auto", limits=wanted.limits, **free)
    return same, Candidate(candidate.id, 0, source=candidate.source)


def _as_given(searched: SearchConfig, settings: Mapping[str, Any]) -> SearchConfig:
    """The configuration of a search with the keys that stand on the command line."""
    from hydra.core.hydra_config import HydraConfig

    node = to_dict(searched)
    for word in HydraConfig.get().overrides.task:
        key = word.lstrip("+~").partition("=")[0]
        if key.partition(".")[0] in settings:  # else it isn't the search's
            _take(node, settings, key)
    return build(node, SearchConfig)


def _take(node: dict[str, Any], settings: Mapping[str, Any], key: str) -> None:
    """Give a dotted key, or a whole group, the value that it has in `settings`."""
    first, _, rest = key.partition(".")
    inner, given = node.get(first), settings.get(first)
    if rest and isinstance(inner, dict) and isinstance(given, Mapping):
        _take(inner, given, rest)
    else:
        node[first] = given


def _reward_of_file(
    config: RewardConfig, settings: Mapping[str, Any]
) -> tuple[SearchConfig, Candidate]:
    name = str(config.argument)
    searched = search_config(settings)
    if config.run is None:
        run = f"runs/evaluate_{searched.task.name}_{Path(name).stem}"
        searched = replace(searched, run=run)
    source = read_source(name)
    report = check_settings(searched)(source)
    if not report.accepted:
        print(*(finding.text for finding in report.findings), sep="\n")
        raise CommandStopped(1)
    return searched, Candidate("reward", 0, source=source)


def search_config(settings: Mapping[str, Any]) -> SearchConfig:
    """The typed configuration of a search.

    Raises:
        ConfigError: no task, or a key doesn't fit.
    """
    if not settings.get("task"):
        raise ConfigError(f"name a task: task=NAME, one of {', '.join(sorted(task_files()))}")
    return build(settings, SearchConfig)


def command_line() -> str:
    """What a person typed, for the report."""
    words = [word for word in sys.argv[1:] if not word.startswith("action=")]
    return " ".join(["embodied-icrl reward search", *map(shlex.quote, words)])


def make_report(config: RewardConfig, settings: Mapping[str, Any]) -> None:
    """Write the report of a search anew, whatever state the search is in; print its path."""
    print(report_search(*read_search(_run(config))))


def make_video(config: RewardConfig, settings: Mapping[str, Any]) -> None:
    """Film the best reward's policy beside the human-written one's; print the video's path.

    Raises:
        ConfigError: nothing is trained yet, or it can't be filmed here.
    """
    store, searched = read_search(_run(config))
    best = store.best()
    if best is None:
        raise ConfigError(f"{config.run}: no reward of this search is trained yet")
    film_best(store, searched, best)
    path, reason = filmed(store)
    if path is None:
        raise ConfigError(f"{config.run}: no video: {reason}")
    report_search(store, searched)
    if config.output is not None:
        Path(config.output).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, config.output)
        path = Path(config.output)
    print(path)


def _run(config: RewardConfig) -> str:
    if config.run is None:
        raise ConfigError("name the directory of a search: run=DIR")
    return config.run
