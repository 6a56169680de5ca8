from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from embodied_icrl.cli.compose import compose
from embodied_icrl.common.config import build, to_dict
from embodied_icrl.common.errors import ConfigError, UserError
from embodied_icrl.manipulation.task import Budget
from embodied_icrl.reward_search.runner import check_settings
from embodied_icrl.reward_search.search_config import BudgetChange, SearchConfig
from tests.reward_search.small_search import config, reward

REPLAY = {
    "_target_": "embodied_icrl.reward_search.proposers.replay.ReplayConfig",
    "transcript": "nowhere.jsonl",
}


def test_the_yaml_has_every_key_with_the_default_of_the_class():
    node = compose("reward", ["task=planar_reach"])
    own = {"action", "argument", "output", "evaluate", "debug"}
    from_yaml = build({key: node[key] for key in node if key not in own}, SearchConfig)
    assert from_yaml == build({"task": node["task"]}, SearchConfig)
    assert to_dict(from_yaml).keys() == node.keys() - own


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"samples": 0}, "samples=0 must be at least 1"),
        ({"checkpoints": 2}, "checkpoints=4 or more, or racing.kind=none"),
        ({"quick": {"hyperparameters": {"seed": 1}}}, "hyperparameters.seed can't be set"),
        ({"full": {"env_steps": 0}}, "0 steps"),
        ({"full": {"hyperparameters": {"lr": 3}}}, "hyperparameters.lr: ppo has no such key"),
        ({"proposer": REPLAY}, "proposer.transcript=nowhere.jsonl"),
        ({"init": "nowhere.py"}, "init=nowhere.py: No such file"),
        ({"feedback_file": "nowhere.txt"}, "feedback_file=nowhere.txt: No such file"),
        ({"terms_run": "nowhere"}, "nowhere is not a run directory"),
    ],
)
def test_wrong_settings_are_found_before_a_directory_is_made(tmp_path, changes, message):
    folder = tmp_path / "run"
    with pytest.raises(UserError) as caught:
        check_settings(config(folder, **changes))
    assert message in str(caught.value) and "\n" not in str(caught.value)
    assert not folder.exists()


def test_a_first_reward_that_is_refused_is_found_too(tmp_path: Path):
    mine = tmp_path / "mine.py"
    mine.write_text("import os\n" + reward("mine"))
    with pytest.raises(ConfigError, match=r"init=.*mine.py: import, line 1"):
        check_settings(config(tmp_path / "run", init=str(mine)))


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        ({}, Budget(100, "ppo", 8, {"gamma": 0.9})),
        ({"env_steps": 7}, Budget(7, "ppo", 8, {"gamma": 0.9})),
        ({"hyperparameters": {"n_steps": 5}}, Budget(100, "ppo", 8, {"gamma": 0.9, "n_steps": 5})),
        ({"algorithm": "sac", "n_envs": 1}, Budget(100, "sac", 1, {})),
        ({"algorithm": "ppo"}, Budget(100, "ppo", 8, {"gamma": 0.9})),
    ],
)
def test_changes_to_a_budget(change: dict[str, Any], wanted: Budget):
    own = Budget(100, "ppo", 8, {"gamma": 0.9})
    assert build(change, BudgetChange).applied(own) == wanted
