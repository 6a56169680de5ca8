from __future__ import annotations

import json

import numpy as np
import pytest
from PIL import Image

from embodied_icrl.common.errors import RunError
from embodied_icrl.evaluation.plots import plot_in_context, plot_training, read_metrics


def summary(context: str = "full", episodes: int = 6, **extra):
    line = np.linspace(1.0, 5.0, episodes)
    curve = {
        "mean": list(line),
        "low": list(line - 0.5),
        "high": [*(line[:-1] + 0.5), None],
        "n": [9] * episodes,
    }
    return {
        "experiment": "demo",
        "checkpoint": "step_10",
        "split": "test",
        "n_trials": 9,
        "context": context,
        "n_demos": 0,
        "metrics": {"return": curve, "length": curve},
        "references": {"random": {"return": 0.2, "length": 6.0}, "oracle": None},
        **extra,
    }


def picture(path) -> np.ndarray:
    return np.asarray(Image.open(path).convert("RGB")).astype(int)


def count(image: np.ndarray, colour: tuple[int, int, int]) -> int:
    return int((np.abs(image - np.array(colour)).sum(axis=2) < 12).sum())


def test_curves_of_all_controls_are_visible(tmp_path):
    results = [summary("full"), summary("cleared"), summary("shuffled")]
    for shift, result in enumerate(results):
        for curve in result["metrics"].values():
            curve["mean"] = [m + 3 * shift for m in curve["mean"]]
    path = plot_in_context(results, tmp_path / "figures" / "curve.png")
    image = picture(path)
    assert image.shape[1] > 1000, "two panels side by side"
    for colour in ((31, 95, 191), (217, 115, 26), (45, 138, 78)):
        assert count(image, colour) > 300
    assert [p.name for p in path.parent.iterdir()] == ["curve.png"]


def test_demonstrations_are_shaded(tmp_path):
    plain = picture(plot_in_context([summary()], tmp_path / "a.png"))
    shaded = picture(plot_in_context([summary(n_demos=2)], tmp_path / "b.png"))
    sand = (243, 236, 212)
    assert count(plain, sand) < 50
    assert count(shaded, sand) > 5000


def test_checkpoints_get_curves_of_their_own_colours(tmp_path):
    second = summary(checkpoint="step_20")
    second["metrics"]["return"]["mean"] = [9.0] * 6
    second["metrics"]["length"]["mean"] = [9.0] * 6
    image = picture(plot_in_context([summary(), second], tmp_path / "a.png"))
    assert count(image, (31, 95, 191)) > 300
    assert count(image, (176, 58, 106)) + count(image, (123, 74, 176)) > 300


def test_a_single_episode_and_a_single_metric(tmp_path):
    one = summary(episodes=1)
    del one["metrics"]["length"]
    assert picture(plot_in_context([one], tmp_path / "a.png")).size > 0


def test_nothing_to_plot():
    with pytest.raises(ValueError, match="nothing to plot"):
        plot_in_context([], "unused.png")


def write_metrics(path, rows, tail=""):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows) + tail)
    return path


def rows(count: int = 120):
    for u in range(count):
        yield {
            "update": u,
            "step": 100 * u,
            "steps_per_s": 50.0,
            "return_first": None if u < 3 else 1.0,
            "return_last": None if u < 3 else 1.0 + u / 40,
            "loss/policy": 0.1,
            "loss/value": 0.2,
            "entropy": 1.0,
        }


def test_training_figure(tmp_path):
    metrics = write_metrics(tmp_path / "metrics.jsonl", rows())
    image = picture(plot_training(metrics, tmp_path / "training.png"))
    assert count(image, (31, 95, 191)) > 300
    assert count(image, (217, 115, 26)) > 300
    evaluated = [*rows(), {"step": 12000, "eval/return_first": 1.0, "eval/return_last": 4.0}]
    metrics = write_metrics(tmp_path / "metrics.jsonl", evaluated)
    again = picture(plot_training(metrics, tmp_path / "training.png"))
    assert count(image, (11, 47, 102)) == 0
    assert count(again, (11, 47, 102)) > 20


def test_training_figure_of_a_run_that_has_just_begun(tmp_path):
    metrics = write_metrics(tmp_path / "metrics.jsonl", list(rows(1)))
    assert plot_training(metrics, tmp_path / "training.png").exists()


def test_a_half_written_last_line_is_left_out_and_damage_elsewhere_is_not(tmp_path):
    path = write_metrics(tmp_path / "metrics.jsonl", list(rows(3)), tail='{"update": 3, "st')
    assert [row["update"] for row in read_metrics(path)] == [0, 1, 2]
    path.write_text('{"update": 0\n{"update": 1}\n')
    with pytest.raises(RunError, match="line 1 is not JSON"):
        read_metrics(path)


def test_missing_and_empty_metrics(tmp_path):
    with pytest.raises(RunError, match="can't read the metrics"):
        plot_training(tmp_path / "metrics.jsonl", tmp_path / "a.png")
    (tmp_path / "metrics.jsonl").write_text("")
    with pytest.raises(RunError, match="no update yet"):
        plot_training(tmp_path / "metrics.jsonl", tmp_path / "a.png")


def test_a_length_that_never_changes_is_not_drawn(tmp_path):
    fixed = summary()
    fixed["metrics"]["length"] = {**fixed["metrics"]["length"], "mean": [6.0] * 6}
    with_length = picture(plot_in_context([summary()], tmp_path / "a.png"))
    without = picture(plot_in_context([fixed], tmp_path / "b.png"))
    assert without.shape[1] < 0.6 * with_length.shape[1]
