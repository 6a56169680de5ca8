"""The search over terms that another search is compared with in its report."""

from __future__ import annotations

from typing import Any

from embodied_icrl.common.errors import ConfigError
from embodied_icrl.reward_search.proposers.terms import TermsConfig
from embodied_icrl.reward_search.search_config import SearchConfig, task_node
from embodied_icrl.reward_search.store import read_json, read_search, task_code
from embodied_icrl.reward_search.summary import FinalResult, parse_summary


def best_of_terms(config: SearchConfig) -> FinalResult | None:
    """What the best reward of the search in `terms_run` reached at the end; None without one.

    Raises:
        RunError: there is no search in `terms_run`.
        ConfigError: it is not one over terms, not finished, or its fitness was measured in another
            way than here.
    """
    if config.terms_run is None:
        return None
    store, other = read_search(config.terms_run)
    summary = parse_summary(read_json(store.path / "summary.json"))
    final = next((item for item in summary.finals if item.id == summary.best), None)
    here, there = _measured(config), _measured(other)
    different = [name for name in here if here[name] != there[name]]
    problem = None
    if not isinstance(other.proposer, TermsConfig):
        problem = "its proposer is not terms"
    elif different:
        problem = f"another {' and '.join(different)} than here"
    elif read_json(store.path / "task.json") != task_code(config.task):
        problem = "the task's code has changed since; run its command again"
    elif summary.status != "finished":
        problem = f"it is not finished ({summary.status}); run its command again"
    elif final is None:
        problem = "it has no trainings at the end; run its command again with final_seeds=5"
    elif final.status != "trained":
        problem = f"its last trainings failed: {final.reason}"
    if problem is not None:
        raise ConfigError(f"terms_run={config.terms_run} can't be compared with: {problem}")
    return final


def _measured(config: SearchConfig) -> dict[str, Any]:
    """All that makes the fitness at the end of a search comparable with another's."""
    return {
        "task": task_node(config.task),
        "last budget": config.last_budget,
        "checkpoints": config.checkpoints,
        "final_episodes": config.final_episodes,
        "selection": config.selection,
    }
