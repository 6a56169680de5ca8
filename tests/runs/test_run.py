from __future__ import annotations

import errno
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import yaml

from embodied_icrl.common import files
from embodied_icrl.common.config import build, option, to_dict
from embodied_icrl.common.errors import ConfigError, RunError
from embodied_icrl.runs.run import load_run, open_run

CONFIG = {
    "seed": 0,
    "ppo": {"lr": 1e-05, "clip": None},
    "trainer": {"total_steps": 10},
    "logging": {"wandb": False},
    "names": ["å", "1e-3", "yes", ""],
}


def refusal(*arguments: Any, **options: Any) -> str:
    with pytest.raises(RunError) as caught:
        open_run(*arguments, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_new_run_stores_its_configuration(tmp_path: Path) -> None:
    run = open_run(tmp_path / "deep" / "run", CONFIG)
    assert not run.resumed
    assert load_run(run.path).config == CONFIG
    assert run.folder("videos").is_dir()


def test_auto_continues_and_keeps_the_newest_free_settings(tmp_path: Path) -> None:
    open_run(tmp_path, CONFIG).close()
    grown = {**CONFIG, "trainer": {"total_steps": 20}, "logging": {"wandb": True}}
    run = open_run(tmp_path, grown)
    assert run.resumed
    assert load_run(tmp_path).config == grown


def test_resume_true_needs_a_run_and_false_needs_none(tmp_path: Path) -> None:
    assert "no run" in refusal(tmp_path / "a", CONFIG, resume=True)
    assert not (tmp_path / "a").exists()
    open_run(tmp_path / "a", CONFIG, resume=False).close()
    assert "resume=true" in refusal(tmp_path / "a", CONFIG, resume=False)
    assert open_run(tmp_path / "a", CONFIG, resume=True).resumed
    with pytest.raises(ValueError, match="'true'"):
        open_run(tmp_path / "a", CONFIG, resume="true")  # type: ignore[arg-type]


def test_other_settings_are_refused_and_the_run_is_untouched(tmp_path: Path) -> None:
    open_run(tmp_path, CONFIG).close()
    before = (tmp_path / "config.yaml").read_bytes()
    message = refusal(tmp_path, {**CONFIG, "seed": 1, "ppo": {"lr": 2e-05, "clip": 0.1}})
    for part in ("seed was 0, now 1", "ppo.lr was 1e-05, now 2e-05", "ppo.clip was null, now 0.1"):
        assert part in message
    assert (tmp_path / "config.yaml").read_bytes() == before


def test_many_differences_are_counted(tmp_path: Path) -> None:
    open_run(tmp_path, {str(i): 0 for i in range(9)}).close()
    assert "and 4 more" in refusal(tmp_path, {str(i): 1 for i in range(9)})


def test_a_run_from_before_a_key_existed_gets_its_default(tmp_path: Path) -> None:
    from dataclasses import dataclass

    @dataclass(frozen=True)
    class Config:
        seed: int = option(0)
        new: float = option(1.0)

    def fill(stored: dict[str, Any]) -> dict[str, Any]:
        return to_dict(build(stored, Config))

    open_run(tmp_path, {"seed": 0}).close()
    assert "new was absent" in refusal(tmp_path, to_dict(Config()))
    assert "new was 1.0, now 2.0" in refusal(tmp_path, to_dict(Config(new=2.0)), fill_defaults=fill)
    assert open_run(tmp_path, to_dict(Config()), fill_defaults=fill).resumed

    def removed(stored: dict[str, Any]) -> dict[str, Any]:
        raise ConfigError("unknown key 'new'")

    assert "unknown key 'new'" in refusal(tmp_path, {"seed": 0}, fill_defaults=removed)


def test_unwritable_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("in the way")
    assert "Not a directory" in refusal(tmp_path / "file" / "run", CONFIG)
    assert "File exists" in refusal(tmp_path / "file", CONFIG)

    def denied(*arguments: Any) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(files, "write_synced", denied)
    message = refusal(tmp_path / "run", CONFIG)
    assert "Permission denied" in message
    assert "choose another run=" in message


def test_leftovers_of_a_run_are_not_written_over(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text("")
    assert "metrics.jsonl but no config.yaml" in refusal(tmp_path, CONFIG)


@pytest.mark.parametrize("text", ["a: [", "just text", "- 1"])
def test_a_damaged_configuration_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.yaml").write_text(text)
    assert "config.yaml" in refusal(tmp_path, CONFIG)
    with pytest.raises(RunError, match="config.yaml"):
        load_run(tmp_path)


def test_what_is_no_run_cannot_be_loaded(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="does not exist"):
        load_run(tmp_path / "nowhere")
    with pytest.raises(RunError, match="no config.yaml"):
        load_run(tmp_path)


def test_loading_writes_nothing(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(CONFIG))
    load_run(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["config.yaml"]


def test_a_second_process_is_refused_while_the_first_one_writes(tmp_path: Path) -> None:
    run = open_run(tmp_path, CONFIG)
    code = (
        "import sys; from embodied_icrl.runs.run import open_run, load_run\n"
        f"config = load_run({str(tmp_path)!r}).config\n"
        f"open_run({str(tmp_path)!r}, config)"
    )
    other = [sys.executable, "-c", code]
    refused = subprocess.run(other, capture_output=True, text=True)
    assert refused.returncode != 0
    assert "another process is writing" in refused.stderr
    run.close()
    assert subprocess.run(other, capture_output=True).returncode == 0


def test_ranks_open_together_and_rank_0_writes(tmp_path: Path) -> None:
    barrier = threading.Barrier(3)
    resumed: dict[int, bool] = {}

    def rank(number: int) -> None:
        run = open_run(
            tmp_path / "run", CONFIG, resume=False, rank=number, barrier=lambda: barrier.wait(10)
        )
        resumed[number] = run.resumed

    threads = [threading.Thread(target=rank, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert resumed == {0: False, 1: False, 2: False}
    assert load_run(tmp_path / "run").config == CONFIG
