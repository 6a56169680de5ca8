"""The command line as a person uses it: statuses, errors, several processes, signals."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from embodied_icrl import __version__
from embodied_icrl.cli.compose import compose
from embodied_icrl.cli.main import dispatch
from embodied_icrl.common.config import build, to_dict
from embodied_icrl.common.paths import config_dir
from embodied_icrl.runs.metrics import read_metrics
from embodied_icrl.training.config import TrainConfig

TINY = [
    "env.dim=3", "env.horizon=5", "vector.num_envs=4", "ppo.num_steps=24", "ppo.minibatches=2",
    "policy.width=16", "policy.mlp_width=32", "policy.heads=2", "evaluation.final=false",
    "logging.tensorboard=false",
]  # fmt: skip


def start(*words: str, cwd: Path | None = None) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "embodied_icrl", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=cwd,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def run(*words: str, cwd: Path | None = None) -> tuple[int, str, str]:
    process = start(*words, cwd=cwd)
    out, err = process.communicate(timeout=150)
    return process.returncode, out, err


def test_help_lists_commands_groups_and_documented_keys() -> None:
    code, out, _ = run("--help")
    assert code == 0 and "train" in out and "evaluate" in out and "video" in out
    code, out, _ = run("train", "--help")
    assert code == 0
    assert "demo" in out and "ppo.gamma=0.99" in out and "discount per step" in out


def test_help_shows_the_keys_of_the_groups_that_are_chosen(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def keys(*words: str) -> dict[str, str]:
        """The keys that are listed, each with the line below it."""
        dispatch(list(words))
        lines = [*capsys.readouterr().out.splitlines(), ""]
        pairs = zip(lines, lines[1:])
        return {key.partition("=")[0].strip(): doc for key, doc in pairs if "=" in key}

    darkroom, house = keys("train", "--help"), keys("train", "--help", "env=house_nav_3rooms")
    assert "env.dim" in darkroom and "env.forward_step" not in darkroom
    assert "env.dim" not in house and house["env.forward_step"].strip() == "of forward, metres"
    # Also of a class that a class's key holds.
    assert house["env.sensors.rays.columns"].strip() == "rays side by side"
    openai = keys("reward", "check", "--help", "proposer=openai", "task=planar_reach")
    assert openai["proposer.spending.max_cost"].strip() == "money; needs the prices"
    assert "task.horizon" in openai and "proposer.fresh" not in openai
    assert "env.n_rooms" in keys("evaluate", "-h", "env=grid_house")
    # Other keys have their defaults there.
    dispatch(["train", "--help", "ppo.gamma=0.5"])
    assert "ppo.gamma=0.99" in capsys.readouterr().out


def test_help_explains_a_users_own_configuration(tmp_path: Path) -> None:
    lab = tmp_path / "my lab, one"
    (lab / "env").mkdir(parents=True)
    (lab / "shelf.py").write_text(
        "from dataclasses import dataclass\n"
        "from embodied_icrl.common.config import option\n"
        "@dataclass(frozen=True)\n"
        "class Shelf:\n"
        "    boards: int = option(3, 'boards of the shelf')\n"
    )
    (lab / "env" / "shelf.yaml").write_text("_target_: shelf.Shelf\nboards: 4\n")
    code, out, err = run("train", "--config-dir", lab.name, "--help", "env=shelf", cwd=tmp_path)
    assert code == 0, err
    assert "object_nav, shelf" in out and "  env.boards=4\n      boards of the shelf\n" in out
    words = ("train", "--config-dir", lab.name, "env=shelf", "env.baords=1")
    code, _, err = run(*words, cwd=tmp_path)
    assert code == 2 and "did you mean 'env.boards'" in err


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    dispatch(["--version"])
    assert capsys.readouterr().out == f"embodied-icrl {__version__}\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["trian"], "did you mean 'train'"),
        (["train", "ppo.lerning_rate=1"], "did you mean 'ppo.learning_rate'"),
        (["train", "experiment=demmo"], "available: dark_key_to_door"),
        (["train", "ppo.num_steps=211"], "use num_steps=210 or 212"),
        (["train", "ppo.epochs=many"], "ppo.epochs"),
        (["train", "name=a,b"], "quote"),
        (["train", "--config-dir", "nowhere"], "no such directory"),
        (["train", "--help", "env=drakroom"], "available: dark_key_to_door"),
        (["evaluate", "run=nowhere"], "nowhere"),
        (["train", "init_from=nowhere", "run=r"], "nowhere"),
        (["train", "device=cuda", "run=r"], "device=cpu"),
        (["train", "processes=2", "init_from=nowhere", "run=r"], "nowhere"),
        (["train", "processes=2", "run=/proc/r"], "run directory"),
    ],
)
def test_usage_errors_are_one_line_and_status_2(
    words: list[str], message: str, tmp_path: Path
) -> None:
    code, _, err = run(*words, cwd=tmp_path)
    assert code == 2, err
    assert message in err
    assert len(err.strip().splitlines()) == 1, err


def test_a_users_config_directory_needs_nothing_from_the_package(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from dataclasses import dataclass\n"
        "from embodied_icrl.envs.darkroom import DarkroomConfig\n"
        "@dataclass(frozen=True)\n"
        "class Mine(DarkroomConfig):\n"
        "    dim: int = 3\n"
    )
    (tmp_path / "env").mkdir()
    (tmp_path / "env" / "mine.yaml").write_text("_target_: mine.Mine\nhorizon: 5\ndim: 3\n")
    words = [word for word in TINY if not word.startswith("env.")]
    code, _, err = run(
        "train", "--config-dir", str(tmp_path), "env=mine", f"run={tmp_path}/run",
        "trainer.total_steps=100", *words,
    )  # fmt: skip
    assert code == 0, err
    assert read_metrics(tmp_path / "run")


def test_two_processes_train_and_a_signal_stops_them_with_a_checkpoint(tmp_path: Path) -> None:
    words = ["train", "processes=2", f"run={tmp_path}/run", *TINY]
    process = start(*words, "trainer.total_steps=100_000_000")
    metrics = tmp_path / "run" / "metrics.jsonl"
    deadline = time.monotonic() + 100
    while not (metrics.exists() and metrics.read_text().count("\n") >= 3):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.1)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM, err
    assert "Traceback" not in err
    assert "checkpoint saved" in err
    done = read_metrics(tmp_path / "run")[-1]["step"]
    assert (tmp_path / "run" / "checkpoints" / f"step_{done}").is_dir()
    code, _, err = run(*words, f"trainer.total_steps={done + 400}")
    assert code == 2 and "may only grow" in err  # the first command asked for more


def test_two_processes_resume_inside_a_trial_bit_for_bit(tmp_path: Path) -> None:
    def rows(name: str, steps: int) -> list[dict[str, object]]:
        code, _, err = run(
            "train", "processes=2", f"run={tmp_path}/{name}", *TINY, "ppo.updates_per_rollout=4",
            f"trainer.total_steps={steps}",
        )  # fmt: skip
        assert code == 0, err
        times = ("wall_s", "steps_per_s", "time_collect_s", "time_update_s", "time_refresh_s")
        return [
            {key: value for key, value in row.items() if key not in times}
            for row in read_metrics(tmp_path / name)
        ]

    whole = rows("whole", 800)
    part = rows("parts", 440)
    assert part[-1]["update"] % 4 != 0  # inside a trial
    assert rows("parts", 800) == whole


def test_a_failing_rank_ends_the_job_with_its_traceback(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text(
        "from dataclasses import dataclass\n"
        "from embodied_icrl.envs.darkroom import DarkroomConfig\n"
        "@dataclass(frozen=True)\n"
        "class Broken(DarkroomConfig):\n"
        "    dim: int = 3\n"
        "    def build(self, *args, first_index=0, **rest):\n"
        "        envs = super().build(*args, first_index=first_index, **rest)\n"
        "        if first_index:\n"
        "            steps, step = iter(range(99)), envs.step\n"
        "            def fail(actions):\n"
        "                if next(steps) == 40:\n"
        "                    raise ZeroDivisionError('wheels came off')\n"
        "                return step(actions)\n"
        "            envs.step = fail\n"
        "        return envs\n"
    )
    (tmp_path / "env").mkdir()
    (tmp_path / "env" / "broken.yaml").write_text("_target_: broken.Broken\nhorizon: 5\ndim: 3\n")
    words = [word for word in TINY if not word.startswith("env.")]
    started = time.monotonic()
    code, _, err = run(
        "train", "--config-dir", str(tmp_path), "env=broken", f"run={tmp_path}/run", "processes=2",
        "trainer.total_steps=1_000_000", *words,
    )  # fmt: skip
    assert code == 1
    assert "wheels came off" in err and "in fail" in err
    assert "training process 1 failed" in err
    assert time.monotonic() - started < 120


# Experiments with the settings of the paper, among which are some of the ablations'.
OF_THE_PAPER = ("darkroom_relic", "house_nav_rgb", "extobjnav")


def test_every_experiment_and_ablation_composes_into_a_valid_config() -> None:
    for name in sorted(path.stem for path in (config_dir() / "experiment").glob("*.yaml")):
        config = build(resolved(compose("train", [f"experiment={name}"])), TrainConfig)
        assert config.name == name
        for ablation in (config_dir() / "ablation").glob("*.yaml"):
            changed = compose("train", [f"experiment={name}", f"ablation={ablation.stem}"])
            same = build(resolved(changed), TrainConfig) == config
            may_be_the_same = ablation.stem in ("rope_episode", "sink_k")
            assert not same or (may_be_the_same and name.startswith(OF_THE_PAPER))


def test_the_configuration_files_name_every_key_with_its_default() -> None:
    """Hydra refuses overrides of keys that the files don't have, so they must have all."""
    composed = resolved(compose("train"))
    defaults = to_dict(TrainConfig(env=build(composed["env"])))
    for group in ("policy", "ppo", "vector", "trainer", "logging", "checkpoint", "env"):
        assert composed[group] == defaults[group], group
    assert composed["evaluation"].keys() == defaults["evaluation"].keys()
    assert composed["evaluation"]["settings"].keys() == defaults["evaluation"]["settings"].keys()
    assert composed.keys() == defaults.keys()


def test_environment_files_name_every_key() -> None:
    for path in (config_dir() / "env").glob("*.yaml"):
        composed = resolved(compose("train", [f"env={path.stem}"]))
        assert composed["env"].keys() == to_dict(build(composed["env"]), target=True).keys()


def resolved(node: dict[str, object]) -> dict[str, object]:
    from omegaconf import OmegaConf

    plain = OmegaConf.to_container(OmegaConf.create(node), resolve=True)
    assert isinstance(plain, dict)
    return json.loads(json.dumps(plain))


def test_a_reader_that_has_had_enough_is_no_error() -> None:
    command = f"{sys.executable} -m embodied_icrl train --help | head -1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60)
    assert done.stdout.startswith("embodied-icrl train") and done.stderr == ""
