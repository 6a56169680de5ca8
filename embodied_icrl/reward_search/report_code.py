"""Reward code in the report: as it is, or as what changed since the code it was made from."""

from __future__ import annotations

import difflib

from embodied_icrl.reward_search.records import Candidate
from embodied_icrl.reward_search.report_data import ReportData, lineage
from embodied_icrl.reward_search.report_html import Markup, element, join

MAX_COMPARED_LINES = 500  # comparing takes time that grows with their square
_KINDS = {"+": "added", "-": "removed", "@": "place"}


def code(source: str) -> Markup:
    """Code as it is."""
    return element("pre", element("code", source), tabindex=0)


def difference(old: str, new: str) -> Markup:
    """What changed, line by line, with three lines around each change."""
    before, after = old.splitlines(), new.splitlines()
    if max(len(before), len(after)) > MAX_COMPARED_LINES:
        return join(element("p", "Too long to compare.", class_="faint"), code(new))
    changed = list(difflib.unified_diff(before, after, lineterm="", n=3))[2:]
    if not changed:
        return element("p", "The code is the same.", class_="faint")
    # Each span is a block: it ends its line, so no line ends are needed between them.
    lines = [element("span", line, class_=_KINDS.get(line[:1])) for line in changed]
    return element("pre", element("code", *lines), tabindex=0)


def candidate_code(data: ReportData, candidate: Candidate) -> Markup:
    """The whole code, and what changed since its parent where that is known."""
    if candidate.source is None:
        return element("p", "The answer held no code.", class_="faint")
    parent = data.candidate(candidate.parent)
    if parent is None or parent.source is None:
        return code(candidate.source)
    return join(
        element("h3", f"Changes since {parent.id}"),
        difference(parent.source, candidate.source),
        element("h3", "Code"),
        code(candidate.source),
    )


def generations(data: ReportData) -> Markup:
    """How the best code came about: from generation to generation, the first one in full."""
    chain = [c for c in lineage(data, data.best) if c.source is not None]
    parts: list[Markup] = []
    for index, candidate in enumerate(chain):
        assert candidate.source is not None
        old = chain[index - 1] if index else None
        title = f"From {old.id} to {candidate.id}" if old else f"It began with {candidate.id}"
        shown = difference(old.source or "", candidate.source) if old else code(candidate.source)
        parts.append(element("details", element("summary", title), shown, open=index > 0))
    return join(*parts)
