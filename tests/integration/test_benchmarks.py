"""The benchmarks measure what they say: variants that agree, right counts, files that parse."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from embodied_icrl.cli.bench import find_benchmarks, run_bench
from embodied_icrl.cli.errors import CommandStopped
from embodied_icrl.common.errors import ConfigError, UserError
from embodied_icrl.envs.darkroom import DarkroomConfig
from embodied_icrl.evaluation.trials import TrialLength, run_trials
from embodied_icrl.policy import PolicyConfig

ROOT = Path(__file__).resolve().parents[2]
TINY = PolicyConfig(layers=2, width=16, heads=2, mlp_width=16)


def load(name: str) -> ModuleType:
    """A script of benchmarks/, imported as it sees itself: with its folder on the path."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.pop(0)


common, acting = load("common"), load("acting")


def test_concatenating_variant_acts_like_the_policy_over_episodes():
    policy = acting.make_policy(TINY)
    env = acting.GridHouseConfig(horizon=4).build(3)
    stream = acting.TokenStream(policy, 3)
    stream.start(env.reset(seed=1)[0])
    cache = policy.new_cache(3, 14)
    empty = [torch.empty(3, 2, 0, 8)] * 2
    naive = acting.ConcatenatingActor(policy, empty, empty)
    for _ in range(14):
        action, *ours = policy.act(stream.current, cache, deterministic=True)
        theirs = naive.act(stream.current)
        assert torch.equal(action, theirs[0])
        for one, other in zip(ours, theirs[1:], strict=True):
            torch.testing.assert_close(one, other, atol=1e-5, rtol=0)
        result = env.step(policy.to_env_action(action))
        stream.push(*result[:4], action)
    assert int(cache.episode.min()) >= 2


def test_acting_rows_show_allocations_that_grow_only_for_the_concatenating_variant(monkeypatch):
    monkeypatch.setitem(acting.MODELS, "tiny", TINY)
    monkeypatch.setattr(acting, "steps_per_round", lambda config, context: 2)
    allocated: dict[str, list[int]] = {}
    for context in (64, 2048):
        for row in acting.time_variants("tiny", context, envs=2, rounds=2):
            allocated.setdefault(row["variant"], []).append(row["allocated_bytes_per_step"])
            assert len(row["cpu_ms_samples"]) == 2
            assert row["largest_difference"] < (0.1 if "bfloat16" in row["variant"] else 1e-5)
    for name in ("preallocated", "preallocated bfloat16"):
        assert allocated[name][0] == allocated[name][1]
    # Keys and values of 1,984 more tokens, twice: 2 layers x 2 x 2 envs x 16 numbers of 4 bytes.
    assert (
        allocated["concatenating"][1] - allocated["concatenating"][0] >= 1984 * 2 * 2 * 2 * 16 * 4
    )


@pytest.mark.parametrize("variant", ["concatenating", "preallocated", "preallocated bfloat16"])
def test_acting_memory_is_that_of_one_variant(monkeypatch, variant):
    monkeypatch.setitem(acting.MODELS, "tiny", TINY)
    row = acting.measure_memory("tiny", 16, variant, envs=2)
    assert row["peak_rss_mib"] >= row["peak_rss_before_acting_mib"] > 0


def test_a_variant_that_computes_something_else_stops_the_acting_benchmark(monkeypatch):
    monkeypatch.setitem(acting.MODELS, "tiny", TINY)
    monkeypatch.setattr(acting, "_first", lambda sink, like: torch.zeros_like(like))
    with pytest.raises(AssertionError, match="differ"):
        acting.time_variants("tiny", 16, envs=2, rounds=1)


@pytest.mark.parametrize(
    ("mode", "tokens"), [("full", 96), ("detached, newest", 32), ("detached, whole", 96)]
)
def test_update_rows_count_the_tokens_with_gradient(mode, tokens):
    row = load("update").make_row(mode, context=48, rounds=2, envs=2, segment=16)
    assert row["tokens"] == tokens
    assert row["tokens_per_cpu_s"] == pytest.approx(1e3 * tokens / row["cpu_ms"])
    assert row["peak_rss_mib"] >= row["peak_rss_before_mib"] > 0


def test_long_context_trains_one_whole_trial():
    row = load("long_context").make_row(num_envs=2, context=32, updates=4, horizon=7, dim=3)
    assert row["updates"] == 4
    assert row["env_steps"] == 2 * 32 * 7 // 8
    assert [update["full_update"] for update in row["per_update"]] == [False, False, False, True]
    assert row["within_limit"]


def test_env_rows_cover_every_world():
    rows = load("envs").measure((2, 3), steps=5, rounds=1)
    assert {(row["env"], row["num_envs"]) for row in rows} == {
        (name, n) for name in ("Darkroom", "dark key-to-door", "GridHouse") for n in (2, 3)
    }
    for row in rows:
        seconds = row["cpu_ms"] / 1e3
        assert row["env_steps_per_cpu_s"] == pytest.approx(row["num_envs"] / seconds)


# The LSTM baseline

DARKROOM = DarkroomConfig(dim=3, horizon=4)
EPISODES = 3
STEPS = EPISODES * DARKROOM.horizon


class Script:
    """Stands in for the LSTM: its hidden state counts steps, and steps choose actions."""

    def __init__(self, actions: np.ndarray) -> None:
        self.actions = actions
        self.seen: dict[int, np.ndarray] = {}

    def predict(self, vector, state, episode_start):
        count = np.zeros((1, len(vector), 1), np.int64) if state is None else state[0]
        assert episode_start.all() == (state is None)
        for env, step in enumerate(count[0, :, 0]):
            # At an ended episode the count stands still, so that the next token comes instead.
            self.seen.setdefault(int(step), np.zeros_like(vector))[env] = vector[env]
        index = np.minimum(count[0, :, 0], STEPS - 1)
        return self.actions[index, np.arange(len(vector))], (count + 1,)


def play_trials(actions: np.ndarray) -> tuple[Any, list[tuple[Any, ...]]]:
    """One trial of every environment as the library sees it."""
    recurrent = load("recurrent")
    envs = recurrent.TrialsAsEpisodes(DARKROOM.build(actions.shape[1], split="test"), EPISODES)
    vectors = [envs.reset()]
    results = []
    for action in actions:
        envs.step_async(action)
        vector, reward, done, _ = envs.step_wait()
        vectors.append(vector)
        results.append((reward, done))
    return envs, list(zip(vectors, results))


@pytest.fixture
def actions() -> np.ndarray:
    return np.random.default_rng(0).integers(5, size=(STEPS, 6))


def test_a_trial_is_one_episode_of_the_library(actions):
    envs, steps = play_trials(actions)
    rewards = np.array([reward for _, (reward, _) in steps])
    done = np.array([done for _, (_, done) in steps])
    assert not done[:-1].any()
    assert done[-1].all()
    np.testing.assert_allclose(
        np.stack(envs.finished), rewards.reshape(EPISODES, -1, 6).sum(axis=1).T
    )
    assert rewards.sum() > 0
    starts = np.array([vector[:, -1] for vector, _ in steps])
    np.testing.assert_array_equal(starts[:, 0], [1, 0, 0, 0] * EPISODES)
    np.testing.assert_array_equal(np.array([v[:, -2] for v, _ in steps[1:]]), rewards[:-1])
    previous = np.array([vector[:, 6:11].argmax(axis=1) for vector, _ in steps[1:]])
    np.testing.assert_array_equal(previous, actions[:-1])
    assert not steps[0][0][:, 6:12].any()


def test_evaluation_shows_the_lstm_what_training_showed_it(actions):
    envs, steps = play_trials(actions)
    script = Script(actions)
    env = DARKROOM.build(6, split="test")
    env.reset()
    table = run_trials(
        env, load("recurrent").LstmActor(script, env), np.arange(6), TrialLength(EPISODES)
    )
    for step, (vector, _) in enumerate(steps):
        np.testing.assert_array_equal(script.seen[step], vector)
    np.testing.assert_allclose(table.metrics["return"], np.stack(envs.finished))


def test_whole_sequences_give_the_librarys_numbers():
    recurrent = load("recurrent")
    network = torch.nn.LSTM(5, 4)
    features = torch.randn(3 * 7, 5)
    states = (torch.randn(1, 3, 4), torch.randn(1, 3, 4))
    for later_start in (False, True):
        starts = torch.zeros(3, 7)
        starts[1, 0] = 1.0
        starts[2, 4] = float(later_start)
        arguments = (features, states, starts.flatten(), network)
        output, final = recurrent.WholeTrialPolicy._process_sequence(*arguments)
        expected, expected_final = recurrent.MlpLstmPolicy._process_sequence(*arguments)
        torch.testing.assert_close(output, expected)
        torch.testing.assert_close(final[0], expected_final[0])


def test_the_lstm_trains_and_is_evaluated_like_our_agent(tmp_path):
    lstm = load("lstm_baseline")
    curve = {"mean": [1.0, 2.0], "low": [0.5, 1.5], "high": [1.5, 2.5], "n": [9, 9]}
    evaluation = tmp_path / "ours.json"
    report = {"n_trials": 5, "n_episodes": 2, "split": "test", "seed": 3, "context": "full"}
    report |= {"n_demos": 0, "checkpoint": "step_7", "metrics": {"return": curve}}
    evaluation.write_text(json.dumps(report))
    settings = lstm.Hyperparameters(num_envs=4, minibatches=2, epochs=1, hidden=8)
    arguments = argparse.Namespace(
        run=None, evaluation=evaluation, seconds=[0.01, 0.02], clock="cpu", n_trials=1, seed=0,
        **lstm.asdict(settings),
    )  # fmt: skip
    ours, first, second = lstm.measure(arguments)
    assert ours["return_last"] == {"mean": 2.0, "low": 1.5, "high": 2.5, "n": 9}
    assert first["evaluation"] == {"n_trials": 5, "n_episodes": 2, "split": "test", "seed": 3}
    assert first["return_first"]["n"] == 5
    assert len(first["curve"]["mean"]) == 2
    assert first["cpu_s"] >= 0.01
    assert second["cpu_s"] >= 0.02
    assert first["steps"] % (4 * 2 * DarkroomConfig().horizon) == 0
    report["context"] = "cleared"
    evaluation.write_text(json.dumps(report))
    with pytest.raises(ConfigError, match="context=full"):
        lstm.measure(arguments)


# What they share, and the command


def test_variants_take_turns_and_are_prepared_untimed():
    calls: list[str] = []
    variants = {
        name: common.Variant(lambda n=name: calls.append(n), lambda n=name: calls.append(f"({n})"))
        for name in ("a", "b")
    }
    samples = common.interleaved(variants, rounds=2, warmup=1)
    assert {name: len(taken) for name, taken in samples.items()} == {"a": 2, "b": 2}
    assert calls == ["(b)", "b", "(a)", "a", "(a)", "a", "(b)", "b", "(b)", "b", "(a)", "a"]


def test_ratio_is_the_median_over_rounds():
    slow = [common.Sample(3.0, 2.0), common.Sample(30.0, 20.0), common.Sample(4.0, 100.0)]
    fast = [common.Sample(1.0, 1.0), common.Sample(10.0, 5.0), common.Sample(2.0, 1.0)]
    assert common.ratio(slow, fast) == 4.0
    assert common.ratio(slow, fast, "wall_s") == 3.0


def test_allocations_count_what_torch_takes():
    total, largest = common.allocations(lambda: (torch.zeros(256), torch.zeros(1024)))
    assert (total, largest) == (5 * 1024, 4 * 1024)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads Linux's own number")
def test_peak_memory_is_this_process_own_peak():
    before = common.peak_rss_mib()
    np.ones(64 * 2**20, np.uint8)
    assert common.peak_rss_mib() >= before
    code = (
        "import sys; sys.path.insert(0, 'benchmarks'); import common; print(common.peak_rss_mib())"
    )
    command = [sys.executable, "-c", code]
    child = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert 0 < float(child.stdout) < before


def test_rows_come_from_fresh_processes_and_failures_name_their_arguments(tmp_path):
    script = tmp_path / "counting.py"
    script.write_text(
        "import json, sys\n"
        "count = json.loads(sys.argv[2])['count']\n"
        "print('something else')\n"
        f"print({common.ROW_MARK!r} + json.dumps({{'sum': sum(range(count))}}))\n"
        "sys.exit(count > 5)\n"
    )
    assert common.fresh_process(str(script), count=4) == {"sum": 6}
    with pytest.raises(UserError, match=r"counting\.py failed with status 1 at {'count': 6}"):
        common.fresh_process(str(script), count=6)


def test_bench_writes_table_facts_and_numbers(tmp_path):
    output = tmp_path / "new" / "envs.json"
    words = ["bench", "envs", "quick=true", f"output={output}"]
    command = [sys.executable, "-m", "embodied_icrl", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "GridHouse" in done.stdout
    result = json.loads(output.read_text())
    assert result["benchmark"] == "envs"
    assert result["quick"] is True
    assert result["machine"]["cores"] == os.cpu_count()
    assert result["command"].startswith("python benchmarks/envs.py --output ")
    assert len(result["rows"]) == 3


def test_bench_names_what_there_is():
    with pytest.raises(ConfigError, match="available: acting, envs, habitat, long_context"):
        run_bench({"name": "actin"})
    with pytest.raises(ConfigError, match=r"bench NAME, one of acting, envs"):
        run_bench({})


def test_bench_outside_a_checkout_says_so(tmp_path):
    for checkout in (None, tmp_path):
        with pytest.raises(ConfigError, match="source checkout"):
            find_benchmarks(checkout)


def test_bench_passes_words_on_and_fails_with_the_script(capfd):
    with pytest.raises(CommandStopped) as stopped:
        run_bench({"name": "envs", "arguments": ["--nonsense", 3]})
    assert stopped.value.code == 2
    assert "unrecognized arguments: --nonsense 3" in capfd.readouterr().err


def test_a_file_that_cannot_be_written_stops_before_measuring(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    arguments = argparse.Namespace(row=None, quick=True, output=tmp_path / "file" / "envs.json")
    table = common.Table("nothing", {})
    assert common.run_benchmark("x.py", arguments, lambda: pytest.fail("measured"), table) == 2
    assert capsys.readouterr().err.startswith("error: can't make the folder of")
