"""Writing an evaluation down: JSON for programs, CSV for spreadsheets, PNG for eyes."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from embodied_icrl.common.errors import RunError
from embodied_icrl.common.files import atomic_write_json, atomic_write_text
from embodied_icrl.evaluation.in_context import EvaluationConfig, EvaluationResult
from embodied_icrl.evaluation.plots import plot_in_context

CSV_COLUMNS = (
    "context", "trial", "episode", "demonstration", "start_step",
    "return", "success", "spl", "length", "best_return",
    "soft_spl", "path", "distance_to_goal", "collisions",
)  # fmt: skip


def combined_summary(results: Sequence[EvaluationResult]) -> dict[str, Any]:
    """The first result's summary; those of the others as ``controls`` by their context."""
    first, *others = [result.summary() for result in results]
    if others:
        parts = ("metrics", "first_third", "last_third", "regret")
        first["controls"] = {
            other["context"]: {part: other[part] for part in parts} for other in others
        }
    return first


def summaries_to_plot(report: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The curves of a report as `plot_in_context` takes them: the main one and its controls."""
    controls = report.get("controls", {})
    return [
        dict(report),
        *({**report, "context": name, **control} for name, control in controls.items()),
    ]


def episode_table(results: Sequence[EvaluationResult]) -> str:
    """CSV text with one row per trial and episode; episodes and columns without values are empty.

    Episodes count from 1, as in the figures; ``trial`` is the number of the task.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)
    for result in results:
        table = result.table
        columns: dict[str, np.ndarray] = dict(table.metrics)
        if table.best_return is not None:
            columns["best_return"] = table.best_return
        for row, episode in np.argwhere(table.start_step >= 0):
            values = {name: _cell(column[row, episode]) for name, column in columns.items()}
            values |= {
                "context": result.config.context,
                "trial": str(table.trial[row]),
                "episode": str(episode + 1),
                "demonstration": str(int(episode < result.config.n_demos)),
                "start_step": str(table.start_step[row, episode]),
            }
            writer.writerow([values.get(name, "") for name in CSV_COLUMNS])
    return text.getvalue()


def write_report(results: Sequence[EvaluationResult], output: Path) -> tuple[Path, Path, Path]:
    """Writes ``output`` (JSON) and, beside it, the CSV and PNG of the same name.

    Raises:
        RunError: the folder can't be written.
    """
    table, figure = output.with_suffix(".csv"), output.with_suffix(".png")
    report = combined_summary(results)
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        atomic_write_json(output, report)
        atomic_write_text(table, episode_table(results))
        plot_in_context(summaries_to_plot(report), figure)
    except OSError as error:
        raise RunError(f"can't write {output}: {error.strerror}; set output=FILE.json") from error
    return output, table, figure


def output_folder(run: Path, name: str) -> Path:
    """Folder ``name`` of the run, or the current folder if the run is read-only."""
    folder = run / name
    while not folder.exists():
        folder = folder.parent
    return run / name if os.access(folder, os.W_OK) else Path.cwd()


def default_name(
    checkpoint: str, config: EvaluationConfig, *, everything: bool = False, extra: str = ""
) -> str:
    """A file name without suffix that tells evaluations with other settings apart.

    What is at its default isn't named; how many environments run side by side changes no result.
    """
    parts = [checkpoint, config.split, "all" if everything else config.context]
    if config.n_trials != EvaluationConfig.n_trials:
        parts.append(f"{config.n_trials}_trials")
    if config.n_episodes is not None:
        parts.append(f"{config.n_episodes}_episodes")
    if config.n_steps is not None:
        parts.append(f"{config.n_steps}_steps")
    if config.n_demos:
        parts.append(f"{config.n_demos}_demos")
    if config.deterministic:
        parts.append("deterministic")
    if config.seed:
        parts.append(f"seed_{config.seed}")
    if not config.references:
        parts.append("no_references")
    elif config.reference_trials is not None:
        parts.append(f"{config.reference_trials}_reference_trials")
    if extra:
        parts.append(extra)
    return "-".join(parts)


def _cell(value: Any) -> str:
    return "" if np.isnan(value) else f"{float(value):.6g}"
