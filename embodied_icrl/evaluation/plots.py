"""Figures: the in-context learning curve of evaluations, the training curve of a run.

Figures are built as objects and saved with the Agg renderer; no global plotting state is used, so
this is safe in a training process and in threads.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from embodied_icrl.common.errors import RunError

LABELS = {
    "return": "return of the episode",
    "success": "share of successes",
    "spl": "SPL (success weighted by path length)",
    "length": "steps of the episode",
}
CONTEXTS = {
    "full": ("#1f5fbf", "o", "memory kept over the trial"),
    "cleared": ("#d9731a", "s", "memory cleared at each episode"),
    "shuffled": ("#2d8a4e", "^", "earlier episodes shuffled"),
}
_MORE_COLOURS = ("#7b4ab0", "#b03a6a", "#3a9db0", "#8a6d1d", "#555555")
_DPI = 120


def plot_in_context(results: Sequence[Mapping[str, Any]], path: str | Path) -> Path:
    """Draws metric against in-context episode for one or several evaluation summaries.

    Args:
        results: summaries as `EvaluationResult.summary()` returns them and the JSON files hold
            them; a key ``label`` names a curve, otherwise its context and, where the checkpoints
            differ, its checkpoint do. Privileged curves say so.
        path: of the PNG.
    """
    if not results:
        raise ValueError("nothing to plot")
    metrics = [m for m in LABELS if any(m in r["metrics"] for r in results)]
    metrics = [m for m in metrics if m != "length" or _varies(results, m)] or metrics
    rows = 2 if len(metrics) == 4 else 1
    columns = -(-len(metrics) // rows)
    figure = Figure(figsize=(5.2 * columns, 3.9 * rows + 1.0), layout="constrained")
    styles = _curve_styles(results)
    for index, metric in enumerate(metrics):
        axes = figure.add_subplot(rows, columns, index + 1)
        for result, style in zip(results, styles, strict=True):
            if metric in result["metrics"]:
                _draw_curve(axes, result["metrics"][metric], *style)
        _draw_references(axes, results, metric)
        _mark_demonstrations(axes, results)
        _dress(axes, metric)
    handles: dict[str, Any] = {}
    for axes in figure.axes:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    figure.legend(
        list(handles.values()),
        list(handles),
        loc="outside lower center",
        ncols=min(3, len(handles)),
        frameon=False,
        fontsize=9,
    )
    figure.suptitle(_title(results[0]), fontsize=11)
    return _save(figure, path)


def _varies(results: Sequence[Mapping[str, Any]], metric: str) -> bool:
    """Whether a metric says anything: where episodes have a fixed length, all are the same."""
    curves = [r["metrics"][metric]["mean"] for r in results if metric in r["metrics"]]
    return len({value for curve in curves for value in curve}) > 1


def _curve_styles(results: Sequence[Mapping[str, Any]]) -> list[tuple[str, str, str]]:
    """Colour, marker and label of each curve."""
    several = len({r.get("checkpoint") for r in results}) > 1
    styles: list[tuple[str, str, str]] = []
    used: set[str] = set()
    for result in results:
        colour, marker, text = CONTEXTS[result["context"]]
        if several:
            text = f"{result['checkpoint']}, {text}"
        if colour in used:
            colour = _MORE_COLOURS[(len(styles)) % len(_MORE_COLOURS)]
        used.add(colour)
        text = str(result.get("label") or text)
        if result.get("privileged"):
            text += " (privileged: reads a shaped reward)"
        styles.append((colour, marker, text))
    return styles


def _draw_curve(axes: Axes, curve: Mapping[str, Any], colour: str, marker: str, label: str) -> None:
    mean, low, high = (_floats(curve[key]) for key in ("mean", "low", "high"))
    episode = np.arange(1, mean.size + 1)
    size = 4.5 if mean.size <= 40 else 0.0
    axes.fill_between(episode, low, high, color=colour, alpha=0.18, linewidth=0)
    axes.plot(episode, mean, color=colour, marker=marker, markersize=size, lw=1.8, label=label)


def _draw_references(axes: Axes, results: Sequence[Mapping[str, Any]], metric: str) -> None:
    """Random policy and oracle as horizontal lines; those of the first summary that has them."""
    for name, style, text in (("oracle", "--", "oracle"), ("random", ":", "random policy")):
        for result in results:
            reference = (result.get("references") or {}).get(name) or {}
            if reference.get(metric) is not None:
                axes.axhline(reference[metric], color="#333333", ls=style, lw=1.4, label=text)
                break


def _mark_demonstrations(axes: Axes, results: Sequence[Mapping[str, Any]]) -> None:
    demos = max(int(r.get("n_demos", 0)) for r in results)
    if demos:
        axes.axvspan(0.5, demos + 0.5, color="#e8d9a8", alpha=0.5, lw=0, label="oracle acts")


def _dress(axes: Axes, metric: str) -> None:
    axes.set_xlabel("episode of the trial")
    axes.set_ylabel(LABELS[metric])
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    if metric == "length":
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(True, color="#dddddd", lw=0.7)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    if metric in ("success", "spl"):
        axes.set_ylim(-0.03, 1.03)
    else:
        low, high = axes.get_ylim()
        axes.set_ylim(min(low, 0.0), high + 0.03 * (high - low))


def _title(result: Mapping[str, Any]) -> str:
    parts = [str(result.get("experiment") or "in-context evaluation")]
    if result.get("checkpoint"):
        parts.append(str(result["checkpoint"]))
    trials = int(result["n_trials"])
    tasks = "held-out task" if result.get("split") == "test" else f"{result.get('split')} task"
    parts.append(f"{trials} {tasks}{'' if trials == 1 else 's'}, mean and 95% interval")
    return "   ".join(parts)


def plot_training(metrics: str | Path, path: str | Path) -> Path:
    """Draws a run's training curve from its ``metrics.jsonl``.

    The large panel holds the mean return of the first and the last episode of the training trials
    against environment steps, and the evaluations' (keys ``eval/return_first`` and
    ``eval/return_last``) where there are some; small panels hold losses, entropy and speed.

    Raises:
        RunError: the file is missing, damaged, or has no update yet.
    """
    rows = read_metrics(metrics)
    figure = Figure(figsize=(10.5, 6.6), layout="constrained")
    grid = figure.add_gridspec(3, 4, height_ratios=[1, 1, 0.95])
    main = figure.add_subplot(grid[:2, :])
    for key, colour, text in (
        ("return_last", "#1f5fbf", "last episode of a trial (training)"),
        ("return_first", "#d9731a", "first episode of a trial (training)"),
    ):
        _draw_series(main, rows, key, colour, text)
    for key, colour, text in (
        ("eval/return_last", "#0b2f66", "last episode of a trial (held-out tasks)"),
        ("eval/return_first", "#8a3d00", "first episode of a trial (held-out tasks)"),
    ):
        step, value = _series(rows, key)
        if step.size:
            main.plot(step, value, "D--", color=colour, ms=5, lw=1, label=text)
    main.set_ylabel("return of an episode")
    main.spines[["top", "right"]].set_visible(False)
    main.grid(True, color="#dddddd", lw=0.7)
    if main.get_legend_handles_labels()[0]:
        main.legend(loc="upper left", frameon=False, fontsize=9)
    for column, (key, text) in enumerate(
        (
            ("loss/policy", "policy loss"),
            ("loss/value", "value loss"),
            ("entropy", "entropy (nats)"),
            ("steps_per_s", "environment steps / s"),
        )
    ):
        axes = figure.add_subplot(grid[2, column])
        _draw_series(axes, rows, key, "#555555", None)
        axes.set_title(text, fontsize=9)
        axes.tick_params(labelsize=7)
        axes.spines[["top", "right"]].set_visible(False)
    for axes in figure.axes:
        axes.xaxis.set_major_formatter(FuncFormatter(_steps_text))
        ticks = 8 if axes is main else 4
        axes.xaxis.set_major_locator(MaxNLocator(nbins=ticks, steps=[1, 2, 5, 10]))
    main.set_xlabel("environment steps")
    return _save(figure, path)


def read_metrics(path: str | Path) -> list[dict[str, Any]]:
    """The updates of a ``metrics.jsonl``; a half-written last line (a killed run) is left out."""
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise RunError(f"can't read the metrics {path}: {error.strerror}") from error
    rows = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError as error:
            if number < len(lines):
                raise RunError(f"{path} line {number} is not JSON: {error.msg}") from error
    if not rows:
        raise RunError(f"{path} has no update yet: there is nothing to plot")
    return rows


def _series(rows: Sequence[Mapping[str, Any]], key: str) -> tuple[np.ndarray, np.ndarray]:
    pairs = [(r["step"], r[key]) for r in rows if r.get(key) is not None]
    points = np.array(pairs, dtype=np.float64).reshape(-1, 2)
    return points[:, 0], points[:, 1]


def _draw_series(
    axes: Axes, rows: Sequence[Mapping[str, Any]], key: str, colour: str, label: str | None
) -> None:
    """Raw values faintly, a running mean over a fiftieth of the run on top."""
    step, value = _series(rows, key)
    if not step.size:
        return
    width = max(1, value.size // 50)
    if width > 1:
        axes.plot(step, value, color=colour, alpha=0.25, lw=0.8)
    marker = "o" if value.size == 1 else None
    axes.plot(step, _smooth(value, width), color=colour, lw=1.7, marker=marker, label=label)


def _smooth(value: np.ndarray, width: int) -> np.ndarray:
    """Centred running mean whose window shrinks at both ends."""
    total = np.concatenate([[0.0], np.cumsum(value)])
    index = np.arange(value.size)
    half = np.minimum(np.minimum(index, value.size - 1 - index), width // 2)
    return np.asarray((total[index + half + 1] - total[index - half]) / (2 * half + 1))


def _steps_text(value: float, _: int) -> str:
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(value) >= size:
            return f"{value / size:g}{unit}"
    return f"{value:g}"


def _floats(values: Sequence[float | None]) -> np.ndarray:
    return np.array([np.nan if v is None else v for v in values], dtype=np.float64)


def _save(figure: Figure, path: str | Path) -> Path:
    """Writes the PNG whole or not at all: a viewer may be looking while a run goes on."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        FigureCanvasAgg(figure)
        figure.savefig(temporary, dpi=_DPI, format="png", facecolor="white")
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    return path
