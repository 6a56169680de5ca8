"""From the directory of a search to its report and its films."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

import embodied_icrl
from embodied_icrl.common.config import to_dict
from embodied_icrl.reward_search.correlation import correlate
from embodied_icrl.reward_search.film import film_candidates
from embodied_icrl.reward_search.plans import takes
from embodied_icrl.reward_search.records import FINAL, Usage
from embodied_icrl.reward_search.report import write_report
from embodied_icrl.reward_search.report_data import Correlation, Cost, ReportData, Result, Video
from embodied_icrl.reward_search.search_config import SearchConfig, task_node, task_paths
from embodied_icrl.reward_search.store import Store, read_json, read_search
from embodied_icrl.reward_search.summary import Summary, Work, parse_summary
from embodied_icrl.reward_search.transcript import Transcript
from embodied_icrl.reward_search.transitions import record_episodes

STATUS = {"spent": "stopped"}  # how the report calls it


def report_search(store: Store, config: SearchConfig) -> Path:
    """Write `report.html` anew from what the directory holds, whatever state the search is in.

    Raises:
        RunError: it can't be written.
    """
    return write_report(report_data(store, config), store.report)


def report_data(store: Store, config: SearchConfig) -> ReportData:
    """What the report of a search shows."""
    summary = parse_summary(read_json(store.path / "summary.json"))
    film = read_json(store.path / "videos" / "film.json") or {}
    candidates = store.candidates()
    clocked = {candidate.id for candidate in candidates if store.clocked(candidate.id)}
    writer = summary.proposer + (f": {summary.model}" if summary.model else "")
    return ReportData(
        task=config.task.name,
        description=config.task.description,
        proposer=writer,
        language_model=summary.is_language_model,
        sandbox=summary.sandbox,
        candidates=tuple(candidates),
        best=summary.best,
        finals=_results(summary),
        terms=_terms(config),
        costs=_costs(store, config, summary),
        money_budget=getattr(getattr(config.proposer, "spending", None), "max_cost", None),
        reflections=summary.reflections,
        feedback=store.feedback(),
        not_deterministic=frozenset(summary.not_deterministic | clocked),
        videos=_videos(store, film, summary),
        correlation=_correlation(film, summary),
        settings=to_dict(config),
        command=summary.command,
        version=embodied_icrl.__version__,
        status=STATUS.get(summary.status, summary.status),  # type: ignore[arg-type]
    )


def film_best(store: Store, config: SearchConfig, best: str) -> None:
    """Film the best reward's policy beside the human-written one's, unless that is done.

    The states that the two visit also tell how far the two rewards agree. A failure is written
    down, not raised.

    Args:
        best: id of the best candidate.
    """
    record = store.path / "videos" / "film.json"
    wanted = takes(store, config, (best, "human") if config.baselines else (best,))
    policies = [os.path.relpath(take.weights, store.path.resolve()) for take in wanted]
    path = record.with_name("_".join(take.id for take in wanted) + ".mp4")
    done = read_json(record)
    is_same = isinstance(done, dict) and done.get("policies") == policies
    if not wanted or (is_same and path.is_file()):
        return
    footage = film_candidates(
        wanted, task_node(config.task), path, task_paths=task_paths(config.task)
    )
    found = None
    if footage.states:
        random = [np.array(episode) for episode in record_episodes(config.task)["random"]]
        found = correlate(
            (store.folder(best) / "reward.py").read_text(encoding="utf-8"),
            config.task.human_reward,
            config.task.fields,
            np.concatenate([*footage.states.values(), *random]),
            "of a random policy and of those in the video",
        )
    video = footage.video
    data = {
        "best": best,
        "policies": policies,
        "video": video.path.name if video is not None else None,
        "caption": video.caption if video is not None else "",
        "reason": footage.reason,
        "note": footage.note,
        "correlation": asdict(found) if found is not None else None,
    }
    store.write_json(record, data)


def filmed(store: Store) -> tuple[Path | None, str]:
    """The video of a search; without one, the reason."""
    film = read_json(store.path / "videos" / "film.json") or {}
    path = store.path / "videos" / str(film.get("video"))
    return (path, "") if path.is_file() else (None, str(film.get("reason") or "nothing was filmed"))


def _results(summary: Summary) -> tuple[Result, ...]:
    return tuple(
        Result(item.id, item.fitness, item.low, item.high, item.per_seed)
        for item in summary.finals
        if item.fitness is not None and item.status == "trained"
    )


def _terms(config: SearchConfig) -> Result | None:
    """What the search over terms reached in the run that `terms_run` names."""
    if config.terms_run is None:
        return None
    store, _ = read_search(config.terms_run)
    summary = parse_summary(read_json(store.path / "summary.json"))
    final = next((result for result in _results(summary) if result.id == summary.best), None)
    return None if final is None else Result(f"terms: {final.id}", *_numbers(final))


def _numbers(result: Result) -> tuple[float, float | None, float | None, tuple[float, ...]]:
    return result.mean, result.low, result.high, result.per_seed


def _costs(store: Store, config: SearchConfig, summary: Summary) -> tuple[Cost, ...]:
    """What each iteration took: questions from the transcript, steps from the summary."""
    paid: dict[int, list[Usage]] = {}
    for entry in Transcript(store.transcript).entries():
        if entry.usage is not None:
            paid.setdefault(entry.iteration, []).append(entry.usage)
    spending = getattr(config.proposer, "spending", None)
    costs = []
    for iteration in sorted({*summary.work, *paid}, key=lambda i: (i == FINAL, i)):
        work, usages = summary.work.get(iteration, Work()), paid.get(iteration, [])
        prompt = sum(usage.prompt_tokens for usage in usages)
        completion = sum(usage.completion_tokens for usage in usages)
        money = spending.cost(Usage(prompt, completion)) if spending is not None else None
        costs.append(
            Cost(iteration, len(usages), prompt, completion, money, work.env_steps, work.wall_s)
        )
    return tuple(costs)


def _videos(store: Store, film: Mapping[str, Any], summary: Summary) -> tuple[Video, ...]:
    path = store.path / "videos" / str(film.get("video"))
    if film.get("best") != summary.best or not path.is_file():
        return ()
    return (Video(path, str(film.get("caption"))),)


def _correlation(film: Mapping[str, Any], summary: Summary) -> Correlation | None:
    found = film.get("correlation")
    if film.get("best") != summary.best or not isinstance(found, dict):
        return None
    return Correlation(**found)
