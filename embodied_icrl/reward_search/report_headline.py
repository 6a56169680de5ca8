"""The first lines of the report: the best reward against the baselines and against `terms`."""

from __future__ import annotations

from embodied_icrl.reward_search.records import BASELINES
from embodied_icrl.reward_search.report_charts import forest
from embodied_icrl.reward_search.report_data import Headline, ReportData, Result, headline
from embodied_icrl.reward_search.report_html import Markup, element, interval, join, number
from embodied_icrl.reward_search.report_score import human_normalised

_LABELS = {"human": "human-written", "sparse": "sparse"}


def headline_section(data: ReportData) -> Markup:
    """Fitness with intervals, the human-normalised score, and what a language model adds."""
    numbers = headline(data)
    best = numbers.results.get(data.best or "")
    if best is None:
        return element("p", "No reward has been trained to the end yet.", class_="lead")
    seeds = max(1, len(best.per_seed))
    count = f"{seeds} seed{'' if seeds == 1 else 's'}"
    how = (
        f"Mean of final trainings over {count}, in held-out episodes"
        if numbers.final
        else "From the search's own short trainings"
    )
    if any(result.low is not None for result in numbers.results.values()):
        how += ", with 95% intervals"
    rows = [(_label(name, data), _kind(name), result) for name, result in numbers.results.items()]
    if data.terms is not None and data.language_model and numbers.final:
        rows.insert(1, ("best of terms", "total", data.terms))
    note = f"{how}. Fitness is {data.fitness_name}; no reward takes part in it."
    return join(
        *(element("p", text, class_="warning") for text in _warnings(data, numbers)),
        element("div", *_cards(data, numbers, best), class_="cards"),
        element("div", forest(rows), class_="panel"),
        element("p", note, class_="faint"),
        _against_terms(data, numbers, best),
    )


def _warnings(data: ReportData, numbers: Headline) -> list[str]:
    """What is wrong with the final trainings."""
    texts = []
    for result in numbers.failed:
        count = len(result.per_seed)
        seeds = "no seed" if count == 0 else "1 seed" if count == 1 else f"{count} seeds"
        values = f" ({', '.join(map(number, result.per_seed))})" if count else ""
        texts.append(
            f"The final trainings of {_label(result.id, data)} failed: "
            f"{result.reason or 'no reason was recorded'}; {seeds} finished{values}."
        )
    if texts and not numbers.final:
        texts.append("All numbers here are therefore from the search's own short trainings.")
    return texts


def _cards(data: ReportData, numbers: Headline, best: Result) -> list[Markup]:
    cards = [_card(number(best.mean), f"fitness of the best reward, {best.id}")]
    for name in BASELINES:
        if name in numbers.results:
            text = f"fitness of the {_LABELS[name]} reward"
            cards.append(_card(number(numbers.results[name].mean), text))
    if numbers.normalised is not None:
        score = numbers.normalised
        bounds = f"interval {number(score.low)} to {number(score.high)}"
        how = score.reason if score.low is None else bounds
        text = f"human-normalised score, (best − sparse) / |human − sparse|; {how}"
        cards.append(_card(number(score.mean), text))
    elif all(name in numbers.results for name in BASELINES):
        text = "human-normalised score: none, the human and the sparse reward are equally fit"
        cards.append(_card(number(None), text))
    return cards


def _card(value: str, text: str) -> Markup:
    return element("div", element("b", value), element("span", text), class_="card")


def _against_terms(data: ReportData, numbers: Headline, best: Result) -> Markup:
    """How far the language model is from the search that needs none."""
    if not data.language_model:
        text = (
            "No language model took part: the rewards were composed from the declared fields by "
            "a seeded search (terms)."
            if data.proposer.startswith("terms")
            else "The answers come from a transcript: no language model was asked in this run."
        )
        return element("p", text)
    terms = data.terms
    if terms is None or terms.mean is None or best.mean is None or not numbers.final:
        missing = data.no_terms or (
            "that takes final trainings of this search and of one with the proposer terms on the "
            "same task."
        )
        text = f"How far it beats the search without a model (terms) is not known yet: {missing}"
        return element("p", text, class_="faint")
    lead = best.mean - terms.mean
    text = (
        f"The language model's best reward is {number(abs(lead))} "
        f"{'above' if lead > 0 else 'below'} the best of the search without a model "
        f"(terms: {interval(terms.mean, terms.low, terms.high)})"
    )
    if all(name in numbers.results for name in BASELINES):
        human, sparse = (numbers.results[name].mean for name in BASELINES)
        scores = [human_normalised(mean, human, sparse) for mean in (best.mean, terms.mean)]
        if scores[0] is not None and scores[1] is not None:
            text += f", {number(abs(scores[0] - scores[1]))} in human-normalised score"
    return element("p", f"{text}.{_overlap(best, terms)}")


def _overlap(one: Result, other: Result) -> str:
    if one.low is None or one.high is None or other.low is None or other.high is None:
        return ""
    overlap = one.low <= other.high and other.low <= one.high
    return f" Their intervals {'overlap' if overlap else 'do not overlap'}."


def _label(name: str, data: ReportData) -> str:
    return f"best: {name}" if name == data.best else _LABELS.get(name, name)


def _kind(name: str) -> str:
    return name if name in BASELINES else "best"
