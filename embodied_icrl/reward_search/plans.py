"""How a search trains: seeds, checkpoints and rungs, and where the trained policies lie."""

from __future__ import annotations

from pathlib import Path

from embodied_icrl.manipulation.task import Budget
from embodied_icrl.reward_search.film import Take
from embodied_icrl.reward_search.jobs import weights_file
from embodied_icrl.reward_search.records import BASELINES, INIT, Candidate, Phase
from embodied_icrl.reward_search.rounds import Entry, Plan, steps_of, training_seed
from embodied_icrl.reward_search.search_config import SearchConfig, task_node, task_paths
from embodied_icrl.reward_search.selection import counted
from embodied_icrl.reward_search.store import Store


def search_plan(config: SearchConfig) -> Plan:
    """Of the trainings that compare candidates."""
    budget = config.quick_budget
    steps = steps_of(budget.env_steps, config.checkpoints)
    episodes = (config.episodes,) * len(steps)
    return _plan(config, budget, "search", config.seeds, config.racing.rungs(steps), episodes)


def final_plan(config: SearchConfig) -> Plan:
    """Of the trainings at the end.

    Only the checkpoints that make the fitness are measured in many episodes; the others just show
    the way there.
    """
    budget = config.last_budget
    count = len(steps_of(budget.env_steps, config.checkpoints))
    last = counted(count, config.selection)
    episodes = (config.episodes,) * (count - last) + (config.final_episodes,) * last
    return _plan(config, budget, "final", config.final_seeds, (budget.env_steps,), episodes)


def _plan(
    config: SearchConfig,
    budget: Budget,
    phase: Phase,
    seeds: int,
    rungs: tuple[int, ...],
    episodes: tuple[int, ...],
) -> Plan:
    return Plan(
        task=task_node(config.task),
        task_paths=task_paths(config.task),
        budget=budget,
        seeds=tuple(training_seed(config.seed, phase, k) for k in range(seeds)),
        checkpoints=steps_of(budget.env_steps, config.checkpoints),
        rungs=rungs,
        episodes=episodes,
        phase=phase,
    )


def takes(store: Store, config: SearchConfig, names: tuple[str, ...]) -> list[Take]:
    """The trained policies of these candidates, first seed, as far as there are any.

    Those from the trainings at the end, once all have one; else those from the search.
    """
    final, search = final_plan(config), search_plan(config)
    finals = [_take(final, name, store.final_folder(name), 0) for name in names]
    if config.final_seeds and all(finals):
        return [take for take in finals if take is not None]
    found = []
    for name in names:
        # Baselines and `init` were trained in one stretch, candidates from rung to rung.
        is_whole = name in (*BASELINES, INIT) or len(search.rungs) == 1
        found.append(_take(search, name, store.folder(name), 0 if is_whole else search.rungs[-2]))
    return [take for take in found if take is not None]


def _take(plan: Plan, name: str, folder: Path, first: int) -> Take | None:
    if not plan.seeds:
        return None
    last, budget = plan.rungs[-1], plan.budget
    weights = weights_file(plan.job(Entry(Candidate(name, 0), folder), 0, first, last), last)
    if not weights.is_file():
        return None
    caption = "human-written" if name == "human" else f"found: {name}"
    return Take(name, caption, weights, budget.algorithm, budget.hyperparameters)
