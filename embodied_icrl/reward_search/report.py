"""The report of a search: one HTML page that needs no network and no other files."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from urllib.parse import quote

from embodied_icrl.common.errors import RunError
from embodied_icrl.common.files import atomic_write_text
from embodied_icrl.reward_search.records import Candidate
from embodied_icrl.reward_search.report_charts import curves, iterations_chart
from embodied_icrl.reward_search.report_code import candidate_code, generations
from embodied_icrl.reward_search.report_data import ReportData, Video
from embodied_icrl.reward_search.report_headline import headline_section
from embodied_icrl.reward_search.report_html import (
    Child,
    Markup,
    element,
    interval,
    join,
    number,
)
from embodied_icrl.reward_search.report_style import SCRIPT, STYLE, content_policy
from embodied_icrl.reward_search.report_tables import (
    cost_table,
    failure_table,
    finals_table,
    leaderboard,
    settings_table,
)

__all__ = ["ReportData", "write_report"]

MAX_EMBEDDED = 4 * 2**20  # bytes of one video


def write_report(report: ReportData, path: str | Path) -> Path:
    """Write the page, whole or not at all.

    Every text in it is escaped, and the page forbids the browser to load anything and to run any
    script but its own. Videos lie in the page itself while they are small; larger ones are linked
    by their path relative to the page.

    Args:
        report: what to show; it may be that of a search that still runs.
        path: of the HTML file; its folder is created.

    Raises:
        RunError: the file can't be written.
    """
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic_write_text(path, render_report(report, path.parent))
    except OSError as error:
        raise RunError(f"can't write the report {path}: {error.strerror}") from error
    return path


def render_report(data: ReportData, folder: Path) -> str:
    """The page as text.

    Args:
        data: what to show.
        folder: where the page will lie; links to large videos are relative to it.
    """
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=content_policy()),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", f"Reward search: {data.task}"),
        element("style", Markup(STYLE)),
    )
    sections: list[tuple[str, str, Markup | None]] = [
        ("videos", "Videos", _videos(data, folder)),
        ("leaderboard", "Leaderboard", _leaderboard(data)),
        ("finals", "Final trainings", finals_table(data)),
        ("iterations", "Fitness over iterations", _iterations(data)),
        ("best", "The best reward", _best(data)),
        ("candidates", "All rewards", _candidates(data)),
        ("failures", "Failures and early stops", failure_table(data)),
        ("reflections", "What the writer was told", _told(data)),
        ("cost", "Cost", cost_table(data)),
        ("settings", "Settings", _settings(data)),
    ]
    shown = [(name, title, body) for name, title, body in sections if body is not None]
    links = [element("a", title, href=f"#{name}") for name, title, _ in shown]
    body = element(
        "body",
        element("header", *_top(data), headline_section(data)),
        element("nav", *links, aria_label="Sections"),
        element(
            "main",
            *(element("section", element("h2", t), b, id=n) for n, t, b in shown),
        ),
        element("script", Markup(SCRIPT)),
    )
    return f"<!DOCTYPE html>\n{element('html', head, body, lang='en')}\n"


def _top(data: ReportData) -> list[Markup]:
    weak = data.sandbox.startswith("weak")
    done = max((c.iteration for c in data.candidates), default=0)
    states = {
        "finished": "finished",
        "running": f"still running: iteration {done}",
        "stopped": f"stopped in iteration {done}",
    }
    writer = "language model" if data.language_model else "no language model"
    chips = [
        element("li", f"{data.proposer} ({writer})"),
        element("li", f"sandbox: {data.sandbox}", class_="warn" if weak else None),
        element("li", states[data.status], class_=None if data.status == "finished" else "warn"),
        element("li", f"embodied-icrl {data.version}") if data.version else None,
    ]
    return [
        element("h1", f"Reward search: {data.task}"),
        element("p", data.description, class_="lead"),
        element("ul", *chips, class_="chips"),
    ]


def _videos(data: ReportData, folder: Path) -> Markup | None:
    if not data.videos:
        return element("p", f"No film: {data.no_video}", class_="faint") if data.no_video else None
    videos = element("div", *(_video(video, folder) for video in data.videos), class_="videos")
    return join(videos, element("p", data.video_note, class_="faint") if data.video_note else None)


def _video(video: Video, folder: Path) -> Markup:
    caption = element("figcaption", video.caption)
    try:
        small = video.path.stat().st_size <= MAX_EMBEDDED
        data = video.path.read_bytes() if small else b""
    except OSError as error:
        text = f"{video.path.name} can't be read: {error.strerror}"
        return element("figure", element("p", text, class_="faint"), caption)
    link = quote(os.path.relpath(video.path, folder))
    source = f"data:video/mp4;base64,{base64.b64encode(data).decode()}" if small else link
    # Written by hand: `element` would look at each of the megabytes for what to escape.
    tag = Markup(f'<video controls loop muted playsinline preload="metadata" src="{source}">')
    beside = None if small else element("a", f"Open {video.path.name}", href=link)
    return element("figure", tag, Markup("</video>"), caption, beside)


def _leaderboard(data: ReportData) -> Markup:
    known = any(candidate.low is not None for candidate in data.candidates)
    intervals = ", with 95% intervals" if known else ""
    note = (
        f"Fitness in the search's own short trainings{intervals}; "
        "normalised is (fitness − sparse) / |human − sparse|."
    )
    return join(element("p", note, class_="faint"), leaderboard(data))


def _iterations(data: ReportData) -> Markup | None:
    if not any(c.fitness is not None for c in data.written):
        return None
    chart = iterations_chart(data.candidates, data.best)
    note = "Hollow: stopped early by racing. The line is the best so far."
    return join(
        element("div", element("div", chart, class_="scroll"), class_="panel"),
        element("p", note, class_="faint"),
    )


def _best(data: ReportData) -> Markup | None:
    best = data.candidate(data.best)
    if best is None:
        return None
    agreement = None
    if data.correlation is not None:
        found = data.correlation
        text = (
            f"Correlation with the human-written reward on {found.states:,} states "
            f"({found.origin}): Pearson {number(found.pearson)}, "
            f"Spearman {number(found.spearman)}. A good reward need not agree with it."
        )
        agreement = element("p", text)
    elif data.no_correlation:
        text = f"Correlation with the human-written reward: not known: {data.no_correlation}"
        agreement = element("p", text, class_="faint")
    chain = generations(data)
    return join(
        element("p", "Values along its training:", class_="faint") if best.curves else None,
        curves(best.curves) if best.curves else None,
        agreement,
        element("h3", "How its code came about"),
        chain,
    )


def _candidates(data: ReportData) -> Markup:
    return join(*(_candidate(data, candidate) for candidate in data.candidates))


def _candidate(data: ReportData, candidate: Candidate) -> Markup:
    value = interval(candidate.fitness, candidate.low, candidate.high)
    words: list[Child] = [
        element("b", candidate.id),
        element("span", candidate.status, class_=f"status-{candidate.status}"),
        f" · {value}" if candidate.fitness is not None else None,
    ]
    return element(
        "details",
        element("summary", *words),
        element("p", candidate.reason) if candidate.reason else None,
        curves(candidate.curves) if candidate.curves else None,
        candidate_code(data, candidate),
        id=f"c-{candidate.id}",
    )


def _told(data: ReportData) -> Markup | None:
    parts: list[Markup] = []
    for iteration in sorted(data.reflections.keys() | data.feedback.keys()):
        if iteration in data.feedback:
            words = element("pre", data.feedback[iteration], class_="prose", tabindex=0)
            title = element("summary", f"A person's words to iteration {iteration}")
            parts.append(element("details", title, words))
        if iteration in data.reflections:
            words = element("pre", data.reflections[iteration], class_="prose", tabindex=0)
            title = element("summary", f"After iteration {iteration}")
            parts.append(element("details", title, words))
    return join(*parts) if parts else None


def _settings(data: ReportData) -> Markup:
    command = None
    if data.command:
        command = join(element("p", "The same search again:"), _command(data.command))
    listed = element("details", element("summary", "All settings"), settings_table(data.settings))
    return join(command, listed if data.settings else None)


def _command(command: str) -> Markup:
    return element("pre", element("code", command), class_="prose", tabindex=0)
