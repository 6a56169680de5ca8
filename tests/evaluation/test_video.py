from __future__ import annotations

import numpy as np
import pytest
import torch

from embodied_icrl.common.config import build
from embodied_icrl.common.errors import ConfigError
from embodied_icrl.envs.base import RenderState
from embodied_icrl.evaluation.actors import PolicyActor
from embodied_icrl.evaluation.film import Film, _Seen, action_text
from embodied_icrl.evaluation.in_context import EvaluationConfig, evaluate_in_context
from embodied_icrl.evaluation.scene import (
    AttentionView,
    EpisodeRecord,
    Scene,
    draw_scene,
    frame_size,
)
from embodied_icrl.evaluation.trials import TrialLength, run_trials
from embodied_icrl.evaluation.video import VideoConfig, record_trial
from embodied_icrl.policy.attention_maps import AttentionMap, newest_attention
from tests.evaluation.test_video_writer import decode
from tests.evaluation.tiny import DARKROOM, HOUSE, ScriptedConfig, tiny_policy
from tests.policy.toy import make_batch, make_policy


@pytest.mark.parametrize("attention", [False, True])
def test_a_film_of_a_trial_plays(tmp_path, attention):
    config = VideoConfig(n_episodes=2, attention=attention, fps=5, pause=0.6, n_demos=1)
    path = record_trial(tiny_policy(DARKROOM), DARKROOM, tmp_path / "a.mp4", config, title="tiny")
    codec, pix_fmt, rate, pictures = decode(path)
    assert (codec, pix_fmt, float(rate)) == ("h264", "yuv420p", 5.0)
    width, height = frame_size(attention)
    assert pictures[0].shape == (height, width, 3)
    assert width % 2 == height % 2 == 0
    # Per episode one frame per token (the terminal one too), which stays 3 frames longer.
    assert len(pictures) == 2 * (DARKROOM.horizon + 1 + 3)
    stays = np.abs(pictures[-1].astype(int) - pictures[-3].astype(int)).mean()
    moves = np.abs(pictures[-4].astype(int) - pictures[-6].astype(int)).mean()
    assert stays < moves


def test_what_is_filmed_is_what_the_evaluation_did():
    policy = tiny_policy(HOUSE).double()
    result = evaluate_in_context(
        policy, HOUSE, EvaluationConfig(n_trials=3, n_episodes=3, n_demos=1, references=False)
    )
    frames = []

    class Writer:
        def write(self, frame):
            frames.append(frame)

    env = HOUSE.build(1, split="test", seed=0)
    with PolicyActor(policy, env, 100, n_demos=1) as actor:
        film = Film(actor, env, Writer(), title="", n_episodes=3, n_demos=1, attention=True)
        run_trials(env, film, np.array([2]), TrialLength(3))
        film.finish()
    table = result.table
    assert [e.steps for e in film.episodes] == table.metrics["length"][2].tolist()
    assert [e.success for e in film.episodes] == table.metrics["success"][2].astype(bool).tolist()
    assert [e.best for e in film.episodes] == table.best_return[2].tolist()
    assert [e.demo for e in film.episodes] == [True, False, False]
    np.testing.assert_allclose(
        [e.returned for e in film.episodes], table.metrics["return"][2], atol=1e-5
    )
    for episode in film.episodes:
        assert len(episode.path) == episode.steps + 1
        assert episode.finished
    assert len(frames) == table.tokens[2]
    assert len(film.seen.views) == table.tokens[2]


@pytest.mark.parametrize("agent", ["oracle", "random"])
def test_other_agents_need_no_policy(tmp_path, agent):
    config = VideoConfig(n_episodes=1, agent=agent, pause=0)
    path = record_trial(None, HOUSE, tmp_path / "a.mp4", config)
    assert 1 < len(decode(path)[3]) <= HOUSE.horizon + 1


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"fps": 0}, "fps must be positive"),
        ({"n_episodes": 0}, "at least 1"),
        ({"n_demos": 10}, "n_demos=10 must be less"),
        ({"agent": "oracle", "attention": True}, "are for agent=policy"),
        ({"attention": True, "context": "shuffled"}, "can't follow context=shuffled"),
    ],
)
def test_bad_settings(settings, message):
    with pytest.raises(ConfigError, match=message):
        build(settings, VideoConfig)


def test_environments_that_can_not_be_filmed(tmp_path):
    scripted = ScriptedConfig()
    path = tmp_path / "a.mp4"
    with pytest.raises(ConfigError, match="can't film this environment"):
        record_trial(tiny_policy(scripted), scripted, path, VideoConfig())
    with pytest.raises(ConfigError, match="no oracle"):
        record_trial(None, scripted, path, VideoConfig(agent="oracle"))
    with pytest.raises(ConfigError, match="needs a policy"):
        record_trial(None, DARKROOM, path, VideoConfig())
    assert not path.exists()


def scene(**settings) -> Scene:
    state = RenderState(
        agent_view=np.full((6, 6, 3), 90, np.uint8),
        map=np.full((40, 60, 3), 240, np.uint8),
        pose=(50.0, 30.0, None),
        targets=[(20.0, 10.0, "lamp")],
        target_label="lamp",
    )
    episodes = [
        EpisodeRecord([(5.0, 5.0), (5.0, 35.0)], 1.0, 3, 2.0, finished=True, success=False),
        EpisodeRecord([(10.0, 30.0), (50.0, 30.0)], 0.5, 1, 2.0),
    ]
    values = {
        "title": "a title", "state": state, "episodes": episodes, "n_episodes": 4, "step": 1,
        "max_steps": 9, "reward": 0.5,
    }  # fmt: skip
    return Scene(**{**values, **settings})


def changed(a: np.ndarray, b: np.ndarray) -> tuple[int, int, int, int]:
    """Bounding box (left, top, right, bottom) of the pixels that differ."""
    rows, columns = np.nonzero((a != b).any(axis=2))
    return columns.min(), rows.min(), columns.max() + 1, rows.max() + 1


def test_the_frame_shows_path_agent_and_target_on_the_map():
    picture = draw_scene(scene())
    # The map of 60 x 40 fills the panel's 400 pixels of width from (448, 178.67) on.
    scale, left, top = 400 / 60, 448, 112 + (400 - 267) // 2

    def at(column, row):
        return picture[round(top + row * scale), round(left + column * scale)].tolist()

    assert at(30, 30) == [31, 95, 191], "this episode's path"
    assert at(50, 30) == [31, 95, 191], "the agent"
    assert at(5, 20)[0] < 200, "the earlier path, faint"
    assert at(5, 20) != at(30, 30)
    assert at(40, 5) == [240, 240, 240], "the map itself"
    ring = picture[round(top + 10 * scale), round(left + 20 * scale) - 11].tolist()
    assert ring == [45, 138, 78], "a ring around the target"


def test_each_number_has_its_place_in_the_frame():
    base = draw_scene(scene())
    assert changed(base, draw_scene(scene(title="another")))[3] < 36
    left, _, right, bottom = changed(base, draw_scene(scene(step=8)))
    assert right < 600 and bottom < 80 and left > 100
    _, top, right, _ = changed(base, draw_scene(scene(reward=-1.0)))
    assert top > 520 and right < 448
    heading = scene()
    heading.state.pose = (50.0, 30.0, 1.0)
    assert changed(base, draw_scene(heading))[1] > 112


def test_many_episodes_and_long_texts_fit():
    episodes = [EpisodeRecord([(1.0, 1.0)], -1.0 * k, 9, finished=True) for k in range(70)]
    episodes.append(EpisodeRecord([(1.0, 1.0)]))
    crowded = scene(
        episodes=episodes,
        n_episodes=None,
        title="word " * 200,
        action="left " * 50,
        attention=AttentionView([0.01] * 71, 0.29, np.zeros((3, 9, 3), np.uint8), "top " * 60),
    )
    picture = draw_scene(crowded)
    assert picture.shape[:2][::-1] == frame_size(True)
    background = picture[0, 0]
    assert (picture[:, -12:] == background).all(), "nothing runs over the right edge"
    assert (picture[-4:] == background).all()


def test_attention_per_episode_and_the_most_attended_view():
    seen = _Seen()
    for token, (episode, step) in enumerate([(1, 0), (1, 1), (1, 2), (2, 0), (2, 1)]):
        seen.append(episode, step, np.full((2, 2, 3), token, np.uint8))
    weights = torch.tensor([[0.1, 0.3, 0.0, 0.2, 0.1]])
    view = seen.view(AttentionMap(weights, torch.tensor([0.3]), torch.arange(5), torch.zeros(1)))
    assert view.episodes == pytest.approx([0.4, 0.3])
    assert view.sink == pytest.approx(0.3)
    assert (view.top_view == 1).all()
    assert view.top_caption == "most attended: episode 1, step 1 (30%)"
    # With a window, the oldest tokens are gone.
    part = AttentionMap(weights[:, 2:], torch.tensor([0.7]), torch.arange(2, 5), torch.zeros(1))
    view = seen.view(part)
    assert view.episodes == pytest.approx([0.0, 0.3])
    assert view.top_caption == "most attended: episode 2, step 0 (20%)"


@pytest.mark.parametrize("sink", ["none", "token", "kv", "k", "v", "zero"])
@pytest.mark.parametrize(
    ("span", "ring"),
    [
        ({}, False),
        ({"inter_episode": False}, False),
        ({"window": 4}, True),
        ({"window": 4}, False),
        ({"rope": "episode"}, False),
        ({"rope": "trial"}, False),
    ],
    ids=str,
)
def test_attention_maps_are_those_of_acting(sink, span, ring):
    policy = make_policy(sink=sink, **span)
    batch = make_batch(policy, 3, 12)
    cache = policy.new_cache(3, 12, ring=ring)
    ids = batch.episode_start.cumsum(dim=1)
    for step in range(12):
        token = batch.steps(step, step + 1)
        _, _, value = policy.act(token, cache, deterministic=True)
        found = newest_attention(policy, token, cache)
        torch.testing.assert_close(found.value, value, atol=1e-10, rtol=0)
        total = found.tokens.sum(dim=1) + found.sink
        torch.testing.assert_close(total, torch.ones(3, dtype=torch.float64))
        assert bool((found.sink > 0).all()) is (sink != "none")
        held = found.positions
        assert held.tolist() == list(range(step + 1 - len(held), step + 1))
        visible = torch.ones(3, len(held), dtype=torch.bool)
        if "inter_episode" in span:
            visible = ids[:, held] == ids[:, step : step + 1]
        if "window" in span:
            visible &= held > step - 4
        assert torch.equal(found.tokens > 0, visible)


def test_attention_maps_respect_forgotten_tokens_and_half_precision():
    policy = make_policy(cache_dtype="bfloat16")
    batch = make_batch(policy, 2, 6)
    cache = policy.new_cache(2, 6)
    for step in range(6):
        if step == 4:
            cache.forget(np.array([True, False]))
        token = batch.steps(step, step + 1)
        _, _, value = policy.act(token, cache, deterministic=True)
    found = newest_attention(policy, token, cache)
    torch.testing.assert_close(found.value, value, atol=1e-10, rtol=0)
    assert (found.tokens > 0).tolist() == [[False] * 4 + [True] * 2, [True] * 6]
    with pytest.raises(ValueError, match="memory is empty"):
        newest_attention(policy, token, policy.new_cache(2, 6))


def test_actions_in_words():
    assert action_text(DARKROOM.build(1), 4) == "stay"
    assert action_text(ScriptedConfig().build(1), 6) == "6"
