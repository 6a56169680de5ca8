"""From the directory of a search to its report and its films."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import embodied_icrl
from embodied_icrl.common.config import to_dict
from embodied_icrl.common.errors import UserError
from embodied_icrl.reward_search.correlation import correlate
from embodied_icrl.reward_search.film import Footage, Take, film_candidates
from embodied_icrl.reward_search.plans import takes
from embodied_icrl.reward_search.records import FINAL, Usage
from embodied_icrl.reward_search.report import write_report
from embodied_icrl.reward_search.report_data import Correlation, Cost, ReportData, Result, Video
from embodied_icrl.reward_search.search_config import SearchConfig, task_node, task_paths
from embodied_icrl.reward_search.store import Store, read_json
from embodied_icrl.reward_search.summary import FinalResult, Summary, Work, parse_summary
from embodied_icrl.reward_search.terms_run import best_of_terms
from embodied_icrl.reward_search.transcript import Transcript
from embodied_icrl.reward_search.transitions import record_episodes
from embodied_icrl.reward_search.visited import EPISODES, visited_states

STATUS = {"spent": "stopped"}  # how the report calls it
AT_THE_END = "that comes at the end of the search"


def report_search(store: Store, config: SearchConfig) -> Path:
    """Write `report.html` anew from what the directory holds, whatever state the search is in.

    Raises:
        RunError: it can't be written.
    """
    return write_report(report_data(store, config), store.report)


def report_data(store: Store, config: SearchConfig) -> ReportData:
    """What the report of a search shows."""
    summary = parse_summary(read_json(store.path / "summary.json"))
    film = _record(_film_file(store), summary.best)
    videos, no_video = _videos(store, config, film, summary.best)
    correlation, no_correlation = _correlation(store, summary.best)
    terms, no_terms = _terms(config)
    candidates = store.candidates()
    clocked = {candidate.id for candidate in candidates if store.clocked(candidate.id)}
    writer = summary.proposer + (f": {summary.model}" if summary.model else "")
    return ReportData(
        task=config.task.name,
        description=config.task.description,
        proposer=writer,
        language_model=summary.is_language_model,
        sandbox=summary.sandbox_line,
        candidates=tuple(candidates),
        best=summary.best,
        finals=tuple(map(_result, summary.finals)),
        terms=terms,
        no_terms=no_terms,
        costs=_costs(store, config, summary),
        money_budget=getattr(getattr(config.proposer, "spending", None), "max_cost", None),
        reflections=summary.reflections,
        feedback=store.feedback(),
        not_deterministic=frozenset(summary.not_deterministic | clocked),
        videos=videos,
        no_video=no_video,
        video_note=str(film.get("note") or ""),
        correlation=correlation,
        no_correlation=no_correlation,
        settings=to_dict(config),
        command=summary.command,
        version=embodied_icrl.__version__,
        status=STATUS.get(summary.status, summary.status),  # type: ignore[arg-type]
    )


def film_best(store: Store, config: SearchConfig, best: str) -> Footage | None:
    """Film the best reward's policy beside the human-written one's, unless that is done.

    A failure is written down, not raised.

    Args:
        best: id of the best candidate.

    Returns:
        What was filmed; None where that was done before.
    """
    record = _film_file(store)
    wanted, policies = _policies(store, config, best)
    path = record.with_name("_".join(take.id for take in wanted) + ".mp4")
    if _record(record, best).get("policies") == policies and path.is_file():
        return None
    if wanted:
        node, paths = task_node(config.task), task_paths(config.task)
        footage = film_candidates(wanted, node, path, task_paths=paths)
    else:
        footage = Footage(None, "no trained policy was found")
    video = footage.video
    data = {
        "best": best,
        "policies": policies,
        "video": video.path.name if video is not None else None,
        "caption": video.caption if video is not None else "",
        "reason": footage.reason,
        "note": footage.note,
    }
    store.write_json(record, data)
    return footage


def correlate_best(
    store: Store,
    config: SearchConfig,
    best: str,
    states: Mapping[str, NDArray[np.float64]] | None = None,
) -> None:
    """Measure how far the best reward agrees with the human-written one, unless that is done.

    A failure is written down, not raised.

    Args:
        best: id of the best candidate.
        states: that its policy and the human reward's visited in a film, by id; recorded without.
    """
    path = _correlation_file(store)
    wanted, policies = _policies(store, config, best)
    done = _record(path, best)
    if done.get("policies") == policies and done.get("correlation") is not None:
        return
    found, reason = None, "no trained policy was found"
    if wanted and not states:
        states, problem = visited_states(
            wanted,
            task_node(config.task),
            limits=config.limits.evaluation(EPISODES * len(wanted)),
            task_paths=task_paths(config.task),
        )
        reason = problem or ""
    if wanted and states:
        random = [np.array(episode) for episode in record_episodes(config.task)["random"]]
        found = correlate(
            (store.folder(best) / "reward.py").read_text(encoding="utf-8"),
            config.task.human_reward,
            config.task.fields,
            np.concatenate([*states.values(), *random]),
            f"of a random policy and of those trained with {' and '.join(states)}",
        )
        reason = "" if found else "one of the two rewards could not be computed on all states"
    correlation = asdict(found) if found is not None else None
    data = {"best": best, "policies": policies, "correlation": correlation, "reason": reason}
    store.write_json(path, data)


def filmed(store: Store) -> tuple[Path | None, str]:
    """The video of a search; without one, the reason."""
    film = read_json(_film_file(store)) or {}
    path = store.path / "videos" / str(film.get("video"))
    return (path, "") if path.is_file() else (None, str(film.get("reason") or "nothing was filmed"))


def _film_file(store: Store) -> Path:
    return store.path / "videos" / "film.json"


def _correlation_file(store: Store) -> Path:
    return store.path / "correlation.json"


def _record(path: Path, best: str | None) -> dict[str, Any]:
    """What a file holds of this best reward; nothing where it is of another."""
    data = read_json(path)
    return data if isinstance(data, dict) and data.get("best") == best else {}


def _policies(store: Store, config: SearchConfig, best: str) -> tuple[Sequence[Take], list[str]]:
    """The trained policies of the best and of the human reward, and where their weights lie."""
    wanted = takes(store, config, (best, "human") if config.baselines else (best,))
    return wanted, [os.path.relpath(take.weights, store.path.resolve()) for take in wanted]


def _result(final: FinalResult) -> Result:
    """A final training for the report; of a failed one, the mean would be one of the lucky."""
    if final.status != "trained":
        return Result(final.id, None, None, None, final.per_seed, final.status, final.reason)
    return Result(final.id, final.fitness, final.low, final.high, final.per_seed)


def _terms(config: SearchConfig) -> tuple[Result | None, str]:
    """What the search over terms reached in the run that `terms_run` names, or why none did."""
    try:
        final = best_of_terms(config)
    except UserError as error:
        return None, str(error)
    if final is None:
        return None, ""
    return replace(_result(final), id=f"terms: {final.id}"), ""


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


def _videos(
    store: Store, config: SearchConfig, film: Mapping[str, Any], best: str | None
) -> tuple[tuple[Video, ...], str]:
    """The film of the best, or why there is none."""
    path = store.path / "videos" / str(film.get("video"))
    if path.is_file():
        return (Video(path, str(film.get("caption"))),), ""
    if film:
        return (), str(film.get("reason") or f"{path.name} is gone")
    return (), "" if best is None else AT_THE_END if config.video else "video=false"


def _correlation(store: Store, best: str | None) -> tuple[Correlation | None, str]:
    """Of the best with the human reward, or why it is not known."""
    record = _record(_correlation_file(store), best)
    found = record.get("correlation")
    if isinstance(found, dict):
        return Correlation(**found), ""
    return None, "" if best is None else str(record.get("reason") or AT_THE_END)
