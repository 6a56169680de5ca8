"""`embodied-icrl reward` as a person uses it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from embodied_icrl.cli.errors import exit_status
from embodied_icrl.cli.main import dispatch
from embodied_icrl.reward_search import evaluate, launchers
from embodied_icrl.reward_search.job_files import finished, stretch_folder, write_result
from embodied_icrl.reward_search.records import FitnessPoint, Job, JobResult
from embodied_icrl.reward_search.training_limits import TrainingLimits
from tests.reward_search.small_search import config, mixed, search
from tests.reward_search.tasks import CORPUS

pytestmark = pytest.mark.timeout(900)  # every command starts processes
GOOD = CORPUS / "ordinary" / "helpers_and_typing.py"


def reward(*words: str, cwd: Path) -> tuple[int, list[str], str]:
    done = subprocess.run(
        [sys.executable, "-m", "embodied_icrl", "reward", *words],
        cwd=cwd, capture_output=True, text=True, timeout=400, check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    return done.returncode, done.stdout.splitlines(), done.stderr


def test_check_accepts_and_names_the_sandbox(tmp_path):
    code, out, err = reward("check", str(GOOD), "task=planar_reach", cwd=tmp_path)
    assert (code, out) == (0, ["accepted"])
    assert err.startswith("sandbox: ")
    assert list(tmp_path.iterdir()) == []


def test_check_refuses_with_one_line_per_finding_and_does_nothing(tmp_path):
    planted = tmp_path / "planted"
    odd = tmp_path / 'an "odd", name.py'
    odd.write_text(
        f"import os\nos.system('touch {planted}')\n"
        "def compute_reward(state):\n    return state.nothing, {}\n"
    )
    code, out, _ = reward("check", odd.name, "task=planar_reach", cwd=tmp_path)
    assert code == 1
    assert out[0] == "import, line 1: only numpy (as np) and math are there"
    assert any(line.startswith("attribute, line 4: state has no field 'nothing'") for line in out)
    assert all(line.split(",")[0].isalpha() for line in out)
    assert [path.name for path in tmp_path.iterdir()] == [odd.name]


def test_check_reads_answers_with_code_blocks(tmp_path):
    (tmp_path / "answer.md").write_text("There is no reward.\n")
    code, out, _ = reward("check", "answer.md", "task=planar_reach", cwd=tmp_path)
    assert code == 1
    assert out == [
        "signature, whole file: no function compute_reward(state) in the answer (no code)"
    ]


def test_usage_errors_are_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for words, message in (
        ((), "say what to do"),
        (("check",), "name a file"),
        (("check", "nothing.py"), "nothing.py: No such file"),
        (("check", str(GOOD)), "name a task: task=NAME, one of adroit_door, "),
        (("chek", str(GOOD)), "'chek'"),
        (("new", "my task", "output=."), "lower-case letters"),
        (("new", "json", "output=lab"), "hide a module"),
    ):
        code = exit_status(lambda words=words: dispatch(["reward", *words]), debug=False)
        out, err = capsys.readouterr()
        assert (code, out) == (2, ""), words
        assert message in err and err.count("\n") == 1, err


def test_a_task_of_ones_own(tmp_path):
    code, out, _ = reward("new", "my_slide", "output=lab", cwd=tmp_path)
    assert code == 0 and out[:2] == ["lab/my_slide.py", "lab/task/my_slide.yaml"]
    code, out, err = reward("tasks", "--config-dir", "lab", cwd=tmp_path)
    listed = [line.split(":")[0] for line in out if line and line[0] != " "]
    assert code == 0, err
    assert {"my_slide", "planar_reach", "planar_push", "valve_turn", "fetch_push"} <= set(listed)
    code, out, _ = reward("tasks", "--config-dir", "lab", "task=my_slide", cwd=tmp_path)
    text = "\n".join(out)
    assert "block_position  number  m" in text
    source = text[text.index("    def compute_reward") :].replace("\n    ", "\n")[4:]
    (tmp_path / "mine.py").write_text(source)
    words = ("check", "mine.py", "--config-dir", "lab", "task=my_slide", "components=sum")
    assert reward(*words, cwd=tmp_path)[:2] == (0, ["accepted"])
    words = ("check", "mine.py", "--config-dir", "lab", "task._target_=my_slide.MySlide")
    assert reward(*words, cwd=tmp_path)[:2] == (0, ["accepted"])
    code, _, err = reward("new", "my_slide", "output=lab", cwd=tmp_path)
    assert code == 2 and "is there already" in err


NEEDED_MIB = 3000
POINT = FitnessPoint(2000, 0.5, 0.25, 7)


@pytest.fixture
def trainings(monkeypatch) -> list[TrainingLimits]:
    """Trainings and measurements that take no time; the limits of each training that is run."""
    run: list[TrainingLimits] = []

    def run_job(job: Job, limits: TrainingLimits, *args: object) -> JobResult:
        before = finished(job, limits)
        if before is not None:
            return before
        run.append(limits)
        result = JobResult("failed", "no more memory", limit="memory")
        if limits.memory_mib >= NEEDED_MIB:
            result = JobResult("done", env_steps=job.last_step, fitness=(POINT,))
        stretch_folder(job).mkdir(parents=True, exist_ok=True)
        write_result(job, result, limits)
        return result

    monkeypatch.setattr(launchers, "run_job", run_job)
    monkeypatch.setattr(
        evaluate, "evaluate_weights", lambda *args, **options: ((POINT,), None, True, None)
    )
    return run


def evaluated(*words: str) -> int:
    command = ["reward", "evaluate", *words, "evaluate.seeds=2", "workers=1"]
    return exit_status(lambda: dispatch(command), debug=False)


def test_a_larger_limit_mends_the_evaluation_of_a_best_reward(tmp_path, capsys, trainings):
    search(config(tmp_path, iterations=1, limits={"stall_s": 55.0}), mixed)
    for _ in range(2):  # the failure stands
        assert evaluated(f"run={tmp_path}", "limits.file_mib=600") == 1
        assert "no more memory" in capsys.readouterr().err
    assert len(trainings) == 2
    # What changes nothing may be said again.
    same = ("full.env_steps=2000", "task.horizon=20", "video=true", "final_episodes=100")
    assert evaluated(f"run={tmp_path}", f"limits.memory_mib={NEEDED_MIB}", *same) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["fitness"]["per_seed"] == [0.5, 0.5]
    assert len(trainings) == 4
    assert (trainings[-1].memory_mib, trainings[-1].stall_s) == (NEEDED_MIB, 55.0)


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("full.env_steps=500", "full.env_steps was 2000, now 500"),
        ("full.hyperparameters.gamma=0.9", "full.hyperparameters.gamma was absent, now 0.9"),
        ("task.horizon=30", "task.horizon was 20, now 30"),
        ("task=planar_push", "task._target_ was "),
        ("final_seeds=9", "final_seeds was 2, now 9"),
        ("final_episodes=9", "final_episodes was 100, now 9"),
        ("seed=1", "seed was 0, now 1"),
        ("selection=max", "selection was 'mean_last', now 'max'"),
    ],
)
def test_other_settings_are_not_passed_over_where_a_best_reward_is_evaluated(
    searched, capsys, trainings, word, told
):
    assert evaluated(f"run={searched}", word) == 2
    out, err = capsys.readouterr()
    assert told in err and err.count("\n") == 1 and out == ""
    assert "leave them out" in err and f"{searched}/best/reward.py" in err
    assert trainings == []


@pytest.fixture(scope="module")
def searched(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("searched") / "run"
    search(config(folder, iterations=1), mixed)
    return folder
