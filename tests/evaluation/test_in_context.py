from __future__ import annotations

import csv
import io
import json
from dataclasses import fields, replace

import numpy as np
import pytest
import torch

from embodied_icrl.common.config import build
from embodied_icrl.common.errors import ConfigError
from embodied_icrl.evaluation.in_context import (
    EvaluationConfig,
    evaluate_in_context,
    measure_references,
)
from embodied_icrl.evaluation.plots import _curve_styles
from embodied_icrl.evaluation.report import (
    combined_summary,
    default_name,
    episode_table,
    output_folder,
    summaries_to_plot,
    write_report,
)
from tests.envs.user_envs import ring_config
from tests.evaluation.tiny import DARKROOM, HOUSE, ScriptedConfig, tiny_policy


def config(**settings) -> EvaluationConfig:
    return EvaluationConfig(**{"n_trials": 7, "n_episodes": 4, "num_envs": 3, **settings})


def test_the_contract_of_the_json():
    result = evaluate_in_context(
        tiny_policy(HOUSE),
        HOUSE,
        config(),
        trained_steps=20,
        labels={"experiment": "tiny", "checkpoint": "step_5"},
    )
    summary = json.loads(json.dumps(result.summary(), allow_nan=False))
    scalars = {key: value for key, value in summary.items() if not isinstance(value, dict)}
    expected = {
        "format": 1, "experiment": "tiny", "checkpoint": "step_5", "split": "test",
        "n_trials": 7, "context": "full", "n_demos": 0, "deterministic": False, "seed": 0,
    }  # fmt: skip
    assert expected.items() <= scalars.items()
    assert set(summary["metrics"]) == {"return", "success", "spl", "length"}
    for curve in summary["metrics"].values():
        assert set(curve) == {"mean", "low", "high", "n"}
        assert {len(values) for values in curve.values()} == {4}
        assert curve["n"] == [7] * 4
    assert set(summary["references"]) == {"random", "oracle"}
    for reference in summary["references"].values():
        assert set(reference) == {"return", "success", "spl", "length"}
    assert summary["references"]["oracle"]["success"] == 1.0
    assert summary["references"]["oracle"]["spl"] == 1.0
    for part in ("first_third", "last_third"):
        assert set(summary[part]["return"]) == {"mean", "low", "high", "n"}
    total = np.array(result.table.best_return - result.table.metrics["return"]).sum(axis=1)
    assert summary["regret"]["total"]["mean"] == pytest.approx(total.mean())
    assert summary["trial_steps"] == result.table.tokens.max()
    assert summary["longer_than_training"] is bool(result.table.tokens.max() > 20)


@pytest.mark.parametrize(
    ("env_config", "reads", "privileged"),
    [
        (ring_config(observations="box"), "full", True),
        (ring_config(observations="box"), "sparse", False),
        (ring_config(observations="box"), "none", False),
        (DARKROOM, "full", False),
    ],
    ids=["shaped", "its success part", "unread", "not shaped"],
)
def test_a_curve_of_a_policy_that_reads_a_shaped_reward_is_privileged(
    env_config, reads, privileged
):
    policy = tiny_policy(env_config, reward_input=reads)
    result = evaluate_in_context(policy, env_config, config(n_trials=1, references=False))
    summary = result.summary()
    assert summary["privileged"] is privileged
    (style,) = _curve_styles([summary])
    assert ("privileged" in style[2]) == privileged


def test_an_environment_without_oracle():
    scripted = ScriptedConfig()
    result = evaluate_in_context(tiny_policy(scripted), scripted, config())
    summary = result.summary()
    assert summary["references"]["oracle"] is None
    assert summary["regret"] is None
    assert summary["longer_than_training"] is None
    # Hand-made returns: 1 + task + 10 * episode.
    assert summary["metrics"]["return"]["mean"] == [4.0, 14.0, 24.0, 34.0]
    assert summary["references"]["random"]["return"] == 19.0
    assert "spl" not in summary["metrics"]
    with pytest.raises(ConfigError, match="n_demos=0"):
        evaluate_in_context(tiny_policy(scripted), scripted, config(n_demos=1))


@pytest.mark.parametrize("context", ["full", "cleared", "shuffled"])
@pytest.mark.parametrize("deterministic", [True, False])
def test_results_do_not_depend_on_how_many_trials_run_side_by_side(context, deterministic):
    policy = tiny_policy(HOUSE).double()
    results = [
        evaluate_in_context(
            policy,
            HOUSE,
            config(context=context, deterministic=deterministic, num_envs=n, references=False),
        )
        for n in (1, 3, 7, 64)
    ]
    first = results[0].table
    for other in results[1:]:
        np.testing.assert_array_equal(first.start_step, other.table.start_step)
        for name, values in first.metrics.items():
            np.testing.assert_array_equal(values, other.table.metrics[name])
        np.testing.assert_array_equal(first.best_return, other.table.best_return)


def test_seed_and_split_change_the_trials():
    policy = tiny_policy(HOUSE)

    def lengths(**settings):
        result = evaluate_in_context(policy, HOUSE, config(references=False, **settings))
        return result.table.metrics["length"].tolist()

    assert lengths() == lengths()
    assert lengths() != lengths(seed=1)
    assert lengths() != lengths(split="train")


def test_training_is_not_disturbed():
    policy = tiny_policy(DARKROOM).train()
    weights = {name: value.clone() for name, value in policy.state_dict().items()}
    torch.manual_seed(7)
    np.random.seed(7)
    states = torch.get_rng_state(), np.random.get_state()[1].copy()
    for context in ("full", "shuffled"):
        evaluate_in_context(policy, DARKROOM, config(context=context, n_demos=1))
    assert policy.training
    assert torch.equal(states[0], torch.get_rng_state())
    np.testing.assert_array_equal(states[1], np.random.get_state()[1])
    for name, value in policy.state_dict().items():
        assert torch.equal(value, weights[name])


def test_worker_processes_give_the_same_result():
    policy = tiny_policy(HOUSE)
    here = evaluate_in_context(policy, HOUSE, config(references=False, num_envs=4))
    there = evaluate_in_context(policy, HOUSE, config(references=False, num_envs=4, workers=2))
    np.testing.assert_array_equal(here.table.metrics["return"], there.table.metrics["return"])


def test_demonstrated_episodes_are_as_good_as_the_oracles():
    result = evaluate_in_context(tiny_policy(HOUSE), HOUSE, config(n_demos=2))
    spl = result.summary()["metrics"]["spl"]["mean"]
    assert spl[:2] == [1.0, 1.0]
    assert max(spl[2:]) < 1.0
    assert result.summary()["regret"]["per_episode"]["mean"][0] == pytest.approx(0, abs=1e-6)
    own = result.table.metrics["return"][:, 2:]
    assert result.first_and_last()["return_first"] == pytest.approx(own[:, 0].mean())
    assert result.first_and_last()["return_last"] == pytest.approx(own[:, 1].mean())


def test_references_are_not_measured_twice():
    given = measure_references(DARKROOM, config())
    assert given["random"]["return"] < given["oracle"]["return"]
    marked = {"random": {"return": -5.0}, "oracle": None}
    result = evaluate_in_context(tiny_policy(DARKROOM), DARKROOM, config(), references=marked)
    assert result.summary()["references"] == marked
    none = evaluate_in_context(tiny_policy(DARKROOM), DARKROOM, config(references=False))
    assert none.summary()["references"] == {"random": None, "oracle": None}


def test_references_can_run_fewer_trials():
    scripted = ScriptedConfig()
    few = measure_references(scripted, config(reference_trials=2))
    assert few["random"]["return"] == np.mean([1 + i + 10 * k for i in range(2) for k in range(4)])


def test_the_oracles_mean_is_the_optimal_return():
    result = evaluate_in_context(tiny_policy(DARKROOM), DARKROOM, config())
    oracle = result.references["oracle"]["return"]
    assert oracle == pytest.approx(result.table.best_return.mean())


def test_longer_trials_than_in_training_run_and_are_reported():
    policy = tiny_policy(HOUSE)
    result = evaluate_in_context(
        policy, HOUSE, config(n_episodes=None, n_steps=60), trained_steps=30
    )
    summary = result.summary()
    assert summary["longer_than_training"] is True
    assert summary["trial_steps"] >= 60
    assert summary["n_episodes"] is None
    assert summary["n_steps"] == 60
    counted = len(summary["metrics"]["return"]["mean"])
    shares = (result.table.start_step >= 0).mean(axis=0)
    assert (shares[:counted] >= 0.9).all()
    assert counted == shares.size or shares[counted] < 0.9


def test_ten_episodes_unless_told_otherwise():
    assert EvaluationConfig().length.n_episodes == 10
    assert EvaluationConfig(n_steps=500).length.n_episodes is None
    assert EvaluationConfig(n_episodes=3, n_steps=500).length.n_episodes == 3


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_trials": 0}, "n_trials=0"),
        ({"n_episodes": 0}, "n_episodes=0"),
        ({"num_envs": -1}, "num_envs=-1"),
        ({"n_demos": -1}, "must not be negative"),
        ({"n_demos": 4}, "leaves the agent none of n_episodes=4"),
        ({"context": "forgotten"}, "context"),
    ],
)
def test_bad_settings(settings, message):
    with pytest.raises(ConfigError, match=message):
        build({"n_episodes": 4, **settings}, EvaluationConfig)


def results_of_all_controls():
    policy = tiny_policy(HOUSE)
    references = measure_references(HOUSE, config())
    return [
        evaluate_in_context(
            policy,
            HOUSE,
            config(context=context, n_demos=1),
            references=references,
            labels={"experiment": "tiny", "checkpoint": "step_5"},
        )
        for context in ("full", "cleared", "shuffled")
    ]


def test_the_report_files(tmp_path):
    results = results_of_all_controls()
    paths = write_report(results, tmp_path / "new" / "report.json")
    assert [p.name for p in paths] == ["report.json", "report.csv", "report.png"]
    assert sorted(p.name for p in (tmp_path / "new").iterdir()) == sorted(p.name for p in paths)
    report = json.loads(paths[0].read_text())
    assert report == json.loads(json.dumps(combined_summary(results)))
    assert report["context"] == "full"
    assert set(report["controls"]) == {"cleared", "shuffled"}
    curves = summaries_to_plot(report)
    assert [curve["context"] for curve in curves] == ["full", "cleared", "shuffled"]
    assert curves[1]["metrics"] == report["controls"]["cleared"]["metrics"]
    assert paths[2].read_bytes().startswith(b"\x89PNG")


def test_the_csv_has_a_row_per_trial_and_episode():
    results = results_of_all_controls()
    rows = list(csv.DictReader(io.StringIO(episode_table(results))))
    assert len(rows) == 3 * 7 * 4
    table = results[1].table
    row = rows[7 * 4 + 2 * 4 + 3]
    assert (row["context"], row["trial"], row["episode"]) == ("cleared", "2", "4")
    assert float(row["return"]) == pytest.approx(table.metrics["return"][2, 3], rel=1e-5)
    assert float(row["best_return"]) == pytest.approx(table.best_return[2, 3], rel=1e-5)
    assert int(row["start_step"]) == table.start_step[2, 3]
    assert [r["demonstration"] for r in rows[:4]] == ["1", "0", "0", "0"]


def test_file_names_tell_settings_apart():
    assert default_name("step_5", EvaluationConfig()) == "step_5-test-full"
    changed = EvaluationConfig(n_episodes=30, n_demos=2, deterministic=True, seed=4)
    name = default_name("step_5", changed, everything=True, extra="n_rooms_4")
    assert name == "step_5-test-all-30_episodes-2_demos-deterministic-seed_4-n_rooms_4"
    few = EvaluationConfig(n_trials=5, references=False)
    assert default_name("step_5", few) == "step_5-test-full-5_trials-no_references"
    rough = EvaluationConfig(reference_trials=20)
    assert default_name("step_5", rough) == "step_5-test-full-20_reference_trials"


SAME_RESULTS = {"num_envs": 1, "workers": 2}


def test_every_setting_that_changes_a_report_changes_its_name():
    """Whoever adds a setting must say which it is."""
    others = {
        "split": "train", "n_trials": 5, "n_episodes": 3, "n_steps": 40, "context": "cleared",
        "n_demos": 1, "deterministic": True, "seed": 3, "references": False,
        "reference_trials": 7, **SAME_RESULTS,
    }  # fmt: skip
    assert {field.name for field in fields(EvaluationConfig)} == others.keys()
    default = EvaluationConfig()
    for key, value in others.items():
        changed = default_name("step_5", replace(default, **{key: value}))
        assert (changed == "step_5-test-full") == (key in SAME_RESULTS), key


def test_a_read_only_run_gets_its_report_in_the_current_folder(tmp_path, monkeypatch):
    run = tmp_path / "run"
    run.mkdir()
    monkeypatch.chdir(tmp_path)
    assert output_folder(run, "evaluation") == run / "evaluation"
    # Permissions don't bind the superuser, who may run the tests.
    monkeypatch.setattr("os.access", lambda path, mode: path != run)
    assert output_folder(run, "evaluation") == tmp_path


def test_fewer_trials_than_workers():
    config = EvaluationConfig(n_trials=2, n_episodes=1, workers=3)
    inside = measure_references(DARKROOM, replace(config, workers=0))
    assert measure_references(DARKROOM, config) == inside
