"""The report's tables: leaderboard, failures, cost, settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from embodied_icrl.reward_search.records import BASELINES, FINAL, Candidate
from embodied_icrl.reward_search.report_charts import interval_glyph
from embodied_icrl.reward_search.report_data import Cost, ReportData, failures
from embodied_icrl.reward_search.report_html import (
    Child,
    Markup,
    count,
    duration,
    element,
    interval,
    join,
    number,
)
from embodied_icrl.reward_search.report_score import human_normalised
from embodied_icrl.reward_search.selection import ranked

MAX_NAMED = 12  # candidates that share a reason of failure


def table(
    heads: Sequence[str], rows: Sequence[Markup], *, label: str, kind: str | None = None,
    foot: Markup | None = None,
) -> Markup:  # fmt: skip
    """A table in a frame that scrolls by itself where the screen is narrow.

    Args:
        heads: of the columns; those that end in "#" hold numbers.
    """
    cells = [
        element("th", head.rstrip("#"), scope="col", class_="n" if head.endswith("#") else None)
        for head in heads
    ]
    body = element(
        "table",
        element("thead", element("tr", *cells)),
        element("tbody", *rows),
        element("tfoot", foot) if foot is not None else None,
        class_=kind,
    )
    return element("div", body, class_="scroll", role="region", aria_label=label, tabindex=0)


def leaderboard(data: ReportData) -> Markup:
    """All candidates in the order of `ranked`; ranks are of those trained to the end."""
    ordered = ranked(data.candidates)
    known = [v for c in ordered for v in (c.fitness, c.low, c.high) if v is not None]
    low, high = min(known, default=0.0), max(known, default=1.0)
    scale = (low, high if high > low else low + 1.0)
    rows = [
        _row(data, candidate, place if candidate.status == "trained" else None, scale)
        for place, candidate in enumerate(ordered, start=1)
    ]
    heads = ("rank#", "reward", "fitness#", "", "normalised#", "iteration#", "steps#", "state")
    return table(heads, rows, label="Leaderboard", kind="sortable")


def _row(
    data: ReportData, candidate: Candidate, rank: int | None, scale: tuple[float, float]
) -> Markup:
    name = candidate.id
    baselines = [data.trained_fitness(baseline) for baseline in BASELINES]
    score = human_normalised(candidate.fitness, *baselines)
    state = _state(candidate.status, candidate.reason)
    if name in data.not_deterministic:
        state.append(element("span", "A clock decided: it may end otherwise.", class_="reason"))
    own = candidate.iteration > 0
    value = interval(candidate.fitness, candidate.low, candidate.high)
    glyph = interval_glyph(candidate, scale) if candidate.fitness is not None else None
    kind = "best" if name == data.best else name if name in BASELINES else None
    return element(
        "tr",
        _number(str(rank) if rank else "", rank),
        element("td", element("a", name, href=f"#c-{name}"), class_="id", data_sort=name),
        _number(value if candidate.fitness is not None else "", candidate.fitness),
        element("td", glyph),
        _number("" if score is None else number(score), score),
        _number(str(candidate.iteration) if own else "", candidate.iteration if own else None),
        _number(count(candidate.env_steps), candidate.env_steps),
        element("td", *state, class_="why", data_sort=candidate.status),
        class_=kind,
    )


def _state(status: str, reason: str | None) -> list[Markup]:
    state = [element("span", status, class_=f"status-{status}")]
    return [*state, element("span", reason, class_="reason")] if reason else state


def _number(text: str, value: float | None) -> Markup:
    return element("td", text, class_="n", data_sort="" if value is None else repr(value))


def finals_table(data: ReportData) -> Markup | None:
    """The final trainings, seed by seed; of failed ones the seeds that finished all the same."""
    if not data.finals:
        return None
    rows = [
        element(
            "tr",
            element("td", result.id, class_="id"),
            element("td", interval(result.mean, result.low, result.high), class_="n"),
            element("td", ", ".join(map(number, result.per_seed)) or "–", class_="why"),
            element("td", *_state(result.status, result.reason), class_="why"),
        )
        for result in data.finals
    ]
    heads = ("reward", "fitness#", "of each seed", "state")
    return table(heads, rows, label="Final trainings")


def failure_table(data: ReportData) -> Markup:
    """Why candidates were refused, failed or stopped."""
    groups = failures(data.written)
    if not groups:
        return element("p", "No candidate failed or was stopped.", class_="faint")
    rows = []
    for (status, kind), group in groups.items():
        links: list[Child] = []
        for candidate in group[:MAX_NAMED]:
            links += [element("a", candidate.id, href=f"#c-{candidate.id}"), " "]
        if len(group) > MAX_NAMED:
            links.append(f"and {len(group) - MAX_NAMED} more")
        example = group[0].reason or ""
        rows.append(
            element(
                "tr",
                element("td", count(len(group)), class_="n"),
                element("td", status, class_=f"status-{status}"),
                element("td", kind),
                element("td", example if example != kind else "", class_="why faint"),
                element("td", *links),
            )
        )
    return table(("number#", "state", "reason", "for example", "rewards"), rows, label="Failures")


def cost_table(data: ReportData) -> Markup:
    """What the search spent, by iteration and in all."""
    if not data.costs:
        return element("p", "No cost was recorded.", class_="faint")
    with_model = any(cost.requests for cost in data.costs)
    heads = ["iteration"]
    if with_model:
        heads += ["requests#", "tokens read#", "tokens written#", "money#"]
    heads += ["environment steps#", "work#"]
    rows = [_cost_row(cost, _stage(cost.iteration), with_model) for cost in data.costs]
    prices = [cost.money for cost in data.costs if cost.money is not None]
    total = Cost(
        0,
        sum(cost.requests for cost in data.costs),
        sum(cost.prompt_tokens for cost in data.costs),
        sum(cost.completion_tokens for cost in data.costs),
        sum(prices) if prices else None,
        sum(cost.env_steps for cost in data.costs),
        sum(cost.wall_s for cost in data.costs),
    )
    note = None
    if data.money_budget is not None:
        text = f"The budget was {data.money_budget:g}, in the currency of the prices."
        note = element("p", text, class_="faint")
    foot = _cost_row(total, "in all", with_model)
    return join(table(heads, rows, label="Cost", foot=foot), note)


def _cost_row(cost: Cost, stage: str, with_model: bool) -> Markup:
    cells = [element("td", stage, class_="key")]
    texts = []
    if with_model:
        money = "–" if cost.money is None else f"{cost.money:.4f}"
        texts += [count(cost.requests), count(cost.prompt_tokens), count(cost.completion_tokens)]
        texts.append(money)
    texts += [count(cost.env_steps), duration(cost.wall_s)]
    return element("tr", *cells, *(element("td", text, class_="n") for text in texts))


def _stage(iteration: int) -> str:
    return {0: "baselines", FINAL: "final trainings"}.get(iteration, str(iteration))


def settings_table(settings: Mapping[str, Any]) -> Markup:
    """The configuration, one dotted key per line."""
    rows = [
        element("tr", element("td", key, class_="key"), element("td", text))
        for key, text in _flat(settings)
    ]
    return table(("setting", "value"), rows, label="Settings")


def _flat(settings: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    for key, value in settings.items():
        if isinstance(value, Mapping) and value:
            rows += _flat(value, f"{prefix}{key}.")
        else:
            rows.append((f"{prefix}{key}", "" if value is None else str(value)))
    return rows
