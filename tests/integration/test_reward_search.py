"""`embodied-icrl reward search` as a person uses it, with real trainings of a few hundred steps."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
import zlib
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from embodied_icrl.cli.errors import exit_status
from embodied_icrl.cli.main import dispatch
from tests.reward_search.chat_server import chat_server, completion, send

pytestmark = pytest.mark.timeout(900)  # every command starts many processes

TINY = (
    "iterations=2", "samples=1", "workers=2", "racing=none", "checkpoints=1", "episodes=1",
    "quick.env_steps=256", "quick.n_envs=2", "quick.hyperparameters.n_steps=128",
    "baselines=false", "final_seeds=0", "video=false",
)  # fmt: skip
TASK = ("task=planar_reach", "task.horizon=20")


def start(*words: str, cwd: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "embodied_icrl", "reward", *words],
        cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip


def reward(*words: str, cwd: Path) -> tuple[int, str, str]:
    process = start(*words, cwd=cwd)
    out, err = process.communicate(timeout=400)
    return process.returncode, out, err


def done(*words: str, cwd: Path) -> str:
    code, out, err = reward(*words, cwd=cwd)
    assert code == 0, err
    return out


def board(folder: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads((folder / "leaderboard.json").read_text())
    return rows


def test_search_replay_report_and_evaluation(tmp_path):
    out = done("search", *TASK, *TINY, "run=a", cwd=tmp_path)
    assert "best reward: a/best/reward.py" in out
    assert (tmp_path / "a" / "report.html").stat().st_size > 1000
    assert {row["id"] for row in board(tmp_path / "a")} == {"i1_s00", "i2_s00"}
    assert all(row["env_steps"] == 256 for row in board(tmp_path / "a"))

    replay = ("proposer=replay", "proposer.transcript=a", "proposer.strict=true")
    done("search", *TASK, *TINY, "run=b", *replay, cwd=tmp_path)
    assert board(tmp_path / "a") == board(tmp_path / "b")

    (tmp_path / "a" / "report.html").unlink()
    assert done("report", "run=a", cwd=tmp_path) == "a/report.html\n"
    assert (tmp_path / "a" / "report.html").exists()


def test_a_file_is_evaluated_and_a_task_of_ones_own_is_searched_and_filmed(tmp_path):
    done("new", "my_slide", "output=lab", cwd=tmp_path)
    lab = ("--config-dir", "lab", "task=my_slide", "task.horizon=20")
    budget = ("quick.env_steps=256", "full.env_steps=256", "full.n_envs=2",
              "full.hyperparameters.n_steps=128")  # fmt: skip
    words = [word for word in TINY if word.split("=")[0] not in ("video", "baselines")]
    words += ["iterations=1", "final_seeds=1", *budget]
    out = done("search", *lab, *words, "run=a", cwd=tmp_path)
    assert "trained once more: human, fitness" in out
    videos = list((tmp_path / "a" / "videos").glob("*.mp4"))
    film = json.loads((tmp_path / "a" / "videos" / "film.json").read_text())
    assert videos or film["reason"]
    if videos:
        done("video", "--config-dir", "lab", "run=a", "output=film.mp4", cwd=tmp_path)
        assert (tmp_path / "film.mp4").read_bytes() == videos[0].read_bytes()

    small = ("evaluate.seeds=1", "evaluate.episodes=2", "workers=2")
    best = json.loads(done("evaluate", "--config-dir", "lab", "run=a", *small, cwd=tmp_path))
    assert (best["episodes"], len(best["fitness"]["per_seed"])) == (2, 1)
    (tmp_path / "mine.py").write_bytes((tmp_path / "a" / "best" / "reward.py").read_bytes())
    mine = json.loads(
        done("evaluate", "mine.py", *lab, *words, *small, "output=m.json", cwd=tmp_path)
    )
    assert mine["fitness"] == best["fitness"]
    assert json.loads((tmp_path / "m.json").read_text()) == mine
    (tmp_path / "mine.py").write_text("import os\n")
    code, out, _ = reward("evaluate", "mine.py", *lab, *words, *small, cwd=tmp_path)
    assert code == 1 and "import, line 1" in out


def test_a_signal_stops_it_and_the_same_command_goes_on(tmp_path):
    words = ("search", *TASK, *TINY, "quick.env_steps=2560", "run=a")
    process = start(*words, cwd=tmp_path)
    deadline = time.monotonic() + 300
    while not list(tmp_path.glob("a/candidates/*/seed_0/stretch_*/work")):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=300)
    assert process.returncode == 128 + signal.SIGTERM, err
    assert "the same command goes on from there (a)" in err and "Traceback" not in err
    assert (tmp_path / "a" / "report.html").exists()
    done(*words, cwd=tmp_path)
    assert {row["status"] for row in board(tmp_path / "a")} == {"trained"}


def test_usage_errors_are_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for words, message in (
        (("search",), "name a task: task=NAME"),
        (("search", *TASK, "sample=3"), "did you mean 'samples'"),
        (("search", *TASK, "racing=half"), "available: halving, none"),
        (("search", *TASK, "proposer=openai"), "proposer.model"),
        (("report",), "run=DIR"),
        (("evaluate", "run=nowhere"), "nowhere"),
        (("evaluate", "nothing.py", *TASK), "nothing.py: No such file"),
    ):
        code = exit_status(lambda words=words: dispatch(["reward", *words]), debug=False)
        err = capsys.readouterr().err
        lines = err.splitlines()
        assert code == 2, (words, err)
        assert message in lines[-1] and lines[-1].startswith("error: "), err
        assert len(lines) == 1, err
    assert list(tmp_path.iterdir()) == []  # nothing that would refuse the right command


@pytest.mark.slow
def test_on_a_ray_cluster_it_ends_with_the_same_leaderboard(tmp_path):
    pytest.importorskip("ray")
    words = ("search", *TASK, *TINY, "samples=2", "racing=halving", "checkpoints=4")
    done(*words, "run=here", cwd=tmp_path)
    done(*words, "run=there", "launcher=ray", cwd=tmp_path)
    assert board(tmp_path / "there") == board(tmp_path / "here")
    weights = [
        {path.relative_to(folder): path.read_bytes() for path in folder.glob("**/weights/*")}
        for folder in (tmp_path / "here", tmp_path / "there")
    ]
    assert weights[0] == weights[1] != {}


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_killed_at_20_random_moments_it_ends_with_the_same_leaderboard(tmp_path):
    pytest.importorskip("openai")
    with chat_server(model) as server:
        words = ("search", *TASK, *TINY, "samples=2", "racing=halving", "checkpoints=4",
                 "proposer=openai", "proposer.model=poet-1",
                 f"proposer.base_url={server.url}")  # fmt: skip
        began = time.monotonic()
        done(*words, "run=whole", cwd=tmp_path)
        seconds = time.monotonic() - began
        assert len(server.bodies) == 2  # one call per iteration
        drawn, kills, number = random.Random(5), 0, 0
        while kills < 20:
            folder = tmp_path / f"a{number}"
            had, paid, asked = trained(folder), stored_calls(folder), len(server.bodies)
            process = start(*words, f"run={folder.name}", cwd=tmp_path)
            time.sleep(drawn.uniform(0.1, 0.6) * seconds)
            process.kill()
            process.communicate()
            killed = process.returncode == -signal.SIGKILL
            kills, number = kills + killed, number + (not killed)
            assert had.items() <= trained(folder).items()
            # Only an answer that was under way when the process died is asked for again.
            lost = len(server.bodies) - asked - (stored_calls(folder) - paid)
            assert 0 <= lost <= killed
        done(*words, f"run=a{number}", cwd=tmp_path)
    for folder in (tmp_path / f"a{index}" for index in range(number + 1)):
        assert board(folder) == board(tmp_path / "whole")
        assert stored_calls(folder) == 2


def model(handler: BaseHTTPRequestHandler, body: Any) -> None:
    """Answers that depend on the question, as those of a language model at temperature 0."""
    weight = zlib.crc32(json.dumps(body["messages"]).encode()) % 100
    texts = [
        "```python\ndef compute_reward(state):\n"
        "    distance = np.linalg.norm(state.tip_position - state.target_position)\n"
        f"    near = np.exp(-{weight + 1 + index} * distance)\n"
        '    return near, {"near": near}\n```'
        for index in range(body["n"])
    ]
    send(handler, 200, json.dumps(completion(texts)).encode())


def trained(folder: Path) -> dict[Path, int]:
    """Every finished training, and when it ended, in ns."""
    return {path: path.stat().st_mtime_ns for path in folder.glob("**/stretch_*/result.json")}


def stored_calls(folder: Path) -> int:
    """Calls of the server whose answers are on disk; all samples of an iteration in one."""
    path = folder / "transcript.jsonl"
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    answers = [json.loads(line) for line in lines if line.endswith("\n")]
    keys = [(answer["iteration"], answer["sample"], answer["attempt"]) for answer in answers]
    assert len(keys) == len(set(keys))
    return len({(iteration, attempt) for iteration, _, attempt in keys})
