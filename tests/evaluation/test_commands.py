"""`embodied-icrl evaluate` and `video` from the command line's arguments to the files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from embodied_icrl.cli.compose import compose
from embodied_icrl.cli.evaluate import EvaluateConfig, env_name, print_report, run_evaluate
from embodied_icrl.cli.video import VideoCommandConfig, run_video
from embodied_icrl.common.config import describe
from embodied_icrl.common.errors import ConfigError, RunError
from embodied_icrl.evaluation.in_context import EvaluationConfig
from embodied_icrl.evaluation.video import VideoConfig
from tests.evaluation.test_video_writer import decode
from tests.evaluation.tiny import HOUSE, save_run, tiny_policy


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    return save_run(tmp_path_factory.mktemp("run"), tiny_policy(HOUSE), HOUSE)


def evaluate(*overrides: str) -> None:
    few = ["n_trials=5", "num_envs=3", "progress=false", "threads=0"]
    run_evaluate(OmegaConf.create(compose("evaluate", [*few, *overrides])))


def video(*overrides: str) -> None:
    run_video(OmegaConf.create(compose("video", ["threads=0", *overrides])))


@pytest.mark.parametrize(
    ("name", "classes"),
    [
        ("evaluate", (EvaluateConfig, EvaluationConfig)),
        ("video", (VideoCommandConfig, VideoConfig)),
    ],
)
def test_the_yaml_lists_every_key_with_its_default(name, classes):
    node = compose(name)
    documented = {item.key: item for cls in reversed(classes) for item in describe(cls)}
    assert set(node) - {"hydra", "env"} == set(documented)
    for key, item in documented.items():
        if key not in ("run", "context", "n_episodes"):
            assert node[key] == item.default, key


def test_a_report_goes_into_the_run(run, capsys):
    evaluate(f"run={run}")
    folder = run / "evaluation"
    name = "step_7-test-full-5_trials"
    assert sorted(p.name for p in folder.iterdir()) == [
        f"{name}.{e}" for e in ("csv", "json", "png")
    ]
    report = json.loads((folder / f"{name}.json").read_text())
    assert (report["experiment"], report["checkpoint"]) == ("tiny", "step_7")
    assert (report["n_trials"], report["n_episodes"]) == (5, 3), "as the experiment evaluates"
    assert report["trained_steps"] == 30
    printed = capsys.readouterr().out
    assert "last third" in printed
    assert str(folder / f"{name}.png") in printed


def test_all_controls_in_one_report(run, tmp_path, capsys):
    evaluate(f"run={run}", "context=all", f"output={tmp_path}/a.json", "n_episodes=2")
    report = json.loads((tmp_path / "a.json").read_text())
    assert set(report["controls"]) == {"cleared", "shuffled"}
    printed = capsys.readouterr().out
    for word in ("full", "cleared", "shuffled", "oracle", "random"):
        assert word in printed


def test_a_changed_environment_and_longer_trials(run, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("os.access", lambda path, mode: False)
    evaluate(f"run={run}", "++env.horizon=5", "n_steps=60", "checkpoint=7")
    (path,) = tmp_path.glob("*.json")
    assert path.name == "step_7-test-full-5_trials-60_steps-horizon_5.json"
    report = json.loads(path.read_text())
    assert max(report["metrics"]["length"]["mean"]) <= 5
    assert report["longer_than_training"] is True
    assert "longer than in training" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("overrides", "error", "message"),
    [
        (["context=every"], ConfigError, "context"),
        (["n_trials=none"], ConfigError, "n_trials"),
        (["++env.horizont=5"], ConfigError, "did you mean 'horizon'"),
        (["++env.horizon=50"], ConfigError, "max_episode_steps=8"),
        (["env=darkroom"], ConfigError, "doesn't fit this environment"),
        (["checkpoint=3"], RunError, "no checkpoint '3'"),
        (["split=tset"], ConfigError, "unknown split 'tset'"),
        (["output=/dev/null/a.json"], RunError, "can't write"),
    ],
)
def test_wrong_commands_say_what_to_change(run, overrides, error, message):
    with pytest.raises(error, match=message) as caught:
        evaluate(f"run={run}", *overrides)
    assert "\n" not in str(caught.value)


def test_without_a_run():
    with pytest.raises(ConfigError, match="missing key 'run'"):
        evaluate()
    with pytest.raises(ConfigError, match="give run=DIR"):
        video()


def test_videos_of_a_run(run, capsys):
    video(f"run={run}", "n_trials=2", "trial=1", "attention=true", "n_episodes=1", "pause=0")
    printed = capsys.readouterr().out.split()
    names = [f"step_7-test-trial_{i}-1_episodes-attention.mp4" for i in (1, 2)]
    assert printed == [str(run / "videos" / name) for name in names]
    for path in printed:
        assert len(decode(path)[3]) > 1


def test_the_oracle_can_be_filmed_without_a_run(tmp_path, capsys):
    video("env=darkroom", "++env.horizon=2", "agent=oracle", "pause=0", f"output={tmp_path}/a.mp4")
    assert len(decode(tmp_path / "a.mp4")[3]) == 10 * (2 + 1), "ten episodes"


def test_environment_changes_in_file_names():
    assert env_name({}) == ""
    assert env_name({"n_rooms": [2, 4], "a": "x/y"}) == "n_rooms__2__4_-a_x_y"
    assert env_name({"_target_": "m.n.DarkroomConfig"}) == "target_Darkroom"


def test_the_table_of_many_references_loses_no_number_in_a_narrow_window(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "60")
    third = {"mean": -0.1234, "low": -0.2345, "high": -0.0123}
    names = ("random", "frontier", "frontier_map", "oracle")
    report = {
        "experiment": "a_run", "checkpoint": "step_1", "split": "test", "context": "full",
        "metrics": {"distance_to_goal": {}}, "longer_than_training": False, "privileged": True,
        "references": {name: {"distance_to_goal": 1.23} for name in names},
        "first_third": {"distance_to_goal": third}, "last_third": {"distance_to_goal": third},
    }  # fmt: skip
    print_report(report, [])
    printed = capsys.readouterr().out
    assert "…" not in printed
    assert "privileged: the policy reads a shaped reward" in printed
    assert "distance_to_goal" in printed
    assert printed.count("-0.123 [-0.234, -0.0123]") == 2
    assert all(name in printed for name in names)
