"""What every trial environment must do: checks that take a function which makes the environment.

`make(num_envs, split=..., seed=..., first_index=..., total_envs=...)` returns a TrialVectorEnv.
Use: `@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from embodied_icrl.common.errors import ConfigError
from embodied_icrl.envs.base import RenderState, TrialVectorEnv

Make = Callable[..., TrialVectorEnv]
Step = tuple[dict[str, np.ndarray], np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]


def copy_obs(obs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {key: np.array(value) for key, value in obs.items()}


def assert_obs_equal(
    a: dict[str, np.ndarray], b: dict[str, np.ndarray], rows: Any = slice(None)
) -> None:
    assert a.keys() == b.keys()
    for key in a:
        np.testing.assert_array_equal(a[key][rows], b[key][rows], err_msg=key)


def random_actions(env: TrialVectorEnv, steps: int, seed: int = 0) -> list[np.ndarray]:
    env.action_space.seed(seed)
    return [env.action_space.sample() for _ in range(steps)]


def play(env: TrialVectorEnv, actions: list[np.ndarray]) -> list[Step]:
    """The results of the steps, copied (an environment may reuse its arrays)."""
    steps = []
    for action in actions:
        obs, reward, terminated, truncated, info = env.step(action)
        copied = (copy_obs(obs), reward.copy(), terminated.copy(), truncated.copy(), info)
        steps.append(copied)
    return steps


def assert_same_play(a: list[Step], b: list[Step], rows_a: Any = slice(None)) -> None:
    """Two plays agree; `rows_a` picks the rows of `a` that `b` has."""
    for (obs_a, *flags_a, info_a), (obs_b, *flags_b, info_b) in zip(a, b, strict=True):
        assert_obs_equal({key: value[rows_a] for key, value in obs_a.items()}, obs_b)
        for x, y in zip(flags_a, flags_b, strict=True):
            np.testing.assert_array_equal(x[rows_a], y)
        ended_a = info_a.get("_episode", np.zeros(len(flags_a[0]), dtype=bool))[rows_a]
        ended_b = info_b.get("_episode", np.zeros(len(flags_b[0]), dtype=bool))
        np.testing.assert_array_equal(ended_a, ended_b)
        for key in info_b.get("episode", {}) if ended_b.any() else ():
            if key != "t":
                values = info_a["episode"][key][rows_a][ended_b]
                np.testing.assert_array_equal(values, info_b["episode"][key][ended_b])


def steps_to_cover(env: TrialVectorEnv, episodes: int = 2) -> int:
    return episodes * (env.max_episode_steps + 1) + 3


def check_spaces_and_types(make: Make) -> None:
    env = make(3)
    assert env.metadata["autoreset_mode"] == AutoresetMode.NEXT_STEP
    obs, info = env.reset()
    assert info["task_id"].tolist() == [0, 1, 2]
    assert env.observation_space.contains(obs)
    for obs, reward, terminated, truncated, _ in play(env, random_actions(env, 60)):
        assert env.observation_space.contains(obs)
        assert (reward.dtype, reward.shape) == (np.float32, (3,))
        assert (terminated.dtype, terminated.shape) == (bool, (3,))
        assert (truncated.dtype, truncated.shape) == (bool, (3,))
        assert not (terminated & truncated).any()


def check_next_step_autoreset(make: Make) -> None:
    """An ending shows itself, the next step ignores its action, pays nothing and starts anew."""
    env, twin = make(4), make(4)
    obs, _ = env.reset()
    twin.reset()
    begun = np.zeros(4, dtype=int)
    length = np.zeros(4, dtype=int)
    total = np.zeros(4)
    before = np.zeros(4, dtype=bool)
    actions = random_actions(env, steps_to_cover(env, 3))
    other = random_actions(env, len(actions), seed=9)
    for action, different in zip(actions, other, strict=True):
        obs, reward, terminated, truncated, info = env.step(action)
        # The twin gets other actions where they must not matter.
        mixed = np.array(action)
        mixed[before] = different[before]
        twin_obs, twin_reward, *_ = twin.step(mixed)
        assert_obs_equal(obs, twin_obs)
        np.testing.assert_array_equal(reward, twin_reward)
        assert (reward[before] == 0).all()
        assert not (terminated | truncated)[before].any()
        length = np.where(before, 0, length + 1)
        total = np.where(before, 0.0, total + reward)
        begun += before
        before = terminated | truncated
        assert (length <= env.max_episode_steps).all()
        assert before[length == env.max_episode_steps].all()
        ended = info.get("_episode", np.zeros(4, dtype=bool))
        np.testing.assert_array_equal(ended, before)
        if before.any():
            episode = info["episode"]
            np.testing.assert_allclose(episode["r"][before], total[before], atol=1e-5)
            np.testing.assert_array_equal(episode["l"][before], length[before])
            assert (episode["t"][before] >= 0).all()
            assert set(np.unique(episode["success"])) <= {0, 1}
    assert (begun >= 2).all()


def check_deterministic(make: Make) -> None:
    a, b, other = make(3, seed=5), make(3, seed=5), make(3, seed=6)
    actions = random_actions(a, steps_to_cover(a))
    assert_obs_equal(a.reset()[0], b.reset()[0])
    other.reset()
    plays = [play(env, actions) for env in (a, b, other)]
    assert_same_play(plays[0], plays[1])
    with pytest.raises(AssertionError):
        assert_same_play(plays[0], plays[2])


def check_seeded_reset_starts_over(make: Make) -> None:
    used, fresh = make(3, seed=1), make(3, seed=7)
    actions = random_actions(used, 15)
    used.reset()
    used.reset(options={"new_trial": True})
    play(used, actions)
    obs, info = used.reset(seed=7)
    assert info["task_id"].tolist() == [0, 1, 2]
    assert_obs_equal(obs, fresh.reset()[0])
    assert_same_play(play(used, actions), play(fresh, actions))


def check_slots_are_part_of_the_job(make: Make) -> None:
    """Slots 1 and 2 of five are the same alone as among all, over several trials."""
    whole, part = make(5), make(2, first_index=1, total_envs=5)
    rows = slice(1, 3)
    actions = random_actions(whole, steps_to_cover(whole, 1))
    for trial in range(3):
        options = {"new_trial": True}
        obs, info = whole.reset(options=options)
        part_obs, part_info = part.reset(options=options)
        assert info["task_id"].tolist() == [5 * trial + slot for slot in range(5)]
        np.testing.assert_array_equal(info["task_id"][rows], part_info["task_id"])
        assert_obs_equal({key: value[rows] for key, value in obs.items()}, part_obs)
        mine = [action[rows] for action in actions]
        assert_same_play(play(whole, actions), play(part, mine), rows)


def check_tasks_by_number(make: Make) -> None:
    """Task i is the same in any slot, among any number of environments, before or after others."""
    a, b = make(4), make(2)
    a.reset()
    b.reset(options={"task_ids": np.array([40, 41])})
    play(a, random_actions(a, 7))
    ids = np.array([3, 41, 8, 40])
    options = {"new_trial": True, "task_ids": ids}
    obs, info = a.reset(options=options)
    np.testing.assert_array_equal(info["task_id"], ids)
    obs = copy_obs(obs)
    b_obs, _ = b.reset(options={"new_trial": True, "task_ids": np.array([41, 40])})
    picks = [1, 3]
    assert_obs_equal({key: value[picks] for key, value in obs.items()}, b_obs)
    actions = random_actions(a, steps_to_cover(a))
    mine = [action[picks] for action in actions]
    assert_same_play(play(a, actions), play(b, mine), picks)


def check_reset_mask(make: Make) -> None:
    """A masked reset leaves the other rows exactly where they were."""
    for options in ({}, {"new_trial": True}):
        env, twin = make(4), make(4)
        env.reset()
        twin.reset()
        actions = random_actions(env, steps_to_cover(env))
        play(env, actions[:5])
        before = play(twin, actions[:5])[-1][0]
        mask = np.array([False, True, False, True])
        obs, info = env.reset(options={**options, "reset_mask": mask})
        assert_obs_equal(obs, before, ~mask)
        expected = [0, 5, 2, 7] if options else [0, 1, 2, 3]
        assert info["task_id"].tolist() == expected
        ours, theirs = play(env, actions[5:]), play(twin, actions[5:])
        for (obs_a, *flags_a, _), (obs_b, *flags_b, _) in zip(ours, theirs, strict=True):
            assert_obs_equal(obs_a, obs_b, ~mask)
            for x, y in zip(flags_a, flags_b, strict=True):
                np.testing.assert_array_equal(x[~mask], y[~mask])
        _, info = env.reset(options={"new_trial": True})
        assert info["task_id"].tolist() == ([4, 9, 6, 11] if options else [4, 5, 6, 7])


def check_empty_mask_shows_current(make: Make) -> None:
    env = make(3)
    env.reset()
    current = play(env, random_actions(env, 4))[-1][0]
    obs, _ = env.reset(options={"reset_mask": np.zeros(3, dtype=bool)})
    assert_obs_equal(obs, current)


def check_episodes_ignore_the_past(make: Make) -> None:
    """Episode k of a task starts the same, whatever the agent did in the episodes before."""
    a, b = make(3), make(3)
    a.reset()
    b.reset()
    for episode in range(3):
        obs_a, _ = a.reset()
        play(b, random_actions(b, 2 + episode, seed=episode))
        obs_b, _ = b.reset()
        assert_obs_equal(obs_a, obs_b)


def check_state_is_exact(make: Make) -> None:
    """Saved in the middle of a trial, an environment goes on exactly from there."""
    env = make(3, first_index=1, total_envs=6)
    if not env.can_save_state:
        pytest.skip("this environment cannot save its state")
    env.reset()
    env.reset(options={"new_trial": True})
    steps = steps_to_cover(env)
    actions = random_actions(env, steps)
    for stop in (3, env.max_episode_steps, env.max_episode_steps + 1):
        play(env, actions[:stop])
        state = env.get_state()
        rest = play(env, actions[stop:])
        next_task = env.reset(options={"new_trial": True})
        other = make(3, first_index=1, total_envs=6)
        other.set_state(state)
        assert_same_play(rest, play(other, actions[stop:]))
        their_next = other.reset(options={"new_trial": True})
        assert_obs_equal(next_task[0], their_next[0])
        np.testing.assert_array_equal(next_task[1]["task_id"], their_next[1]["task_id"])


def check_oracle_is_optimal(make: Make) -> None:
    """Following the oracle returns exactly `optimal_return`, and random play never more."""
    env = make(6)
    if not env.has_oracle:
        pytest.skip("this environment has no oracle")
    env.reset()
    finished = 0
    for _ in range(steps_to_cover(env, 3)):
        best = env.optimal_return()
        assert best.dtype == np.float64
        *_, info = env.step(env.oracle_action())
        ended = info.get("_episode", np.zeros(6, dtype=bool))
        if ended.any():
            np.testing.assert_allclose(info["episode"]["r"][ended], best[ended], atol=1e-5)
        finished += int(ended.sum())
    assert finished >= 18
    env.reset(options={"new_trial": True})
    for action in random_actions(env, steps_to_cover(env, 3)):
        best = env.optimal_return()
        *_, info = env.step(action)
        if "_episode" in info:
            ended = info["_episode"]
            assert (info["episode"]["r"][ended] <= best[ended] + 1e-5).all()


def check_pictures(make: Make) -> None:
    env = make(2)
    env.reset()
    for _ in range(3):
        env.step(env.oracle_action())
        for index in range(2):
            state = env.render_state(index)
            assert isinstance(state, RenderState)
            for picture in (state.agent_view, state.map):
                assert picture.dtype == np.uint8 and picture.ndim == 3 and picture.shape[2] == 3
                assert (picture != picture[1, 1]).any()
            height, width, _ = state.map.shape
            for column, row, *_ in [state.pose, *state.targets]:
                assert 0 <= column < width and 0 <= row < height
            assert state.targets


def check_bad_input(make: Make) -> None:
    with pytest.raises(ConfigError, match=r"'holdout'.*train"):
        make(2, split="holdout")
    with pytest.raises(ConfigError, match="total_envs"):
        make(2, first_index=3, total_envs=4)
    env = make(2)
    half = np.array([True, False])
    with pytest.raises(ConfigError, match="reset_mask"):
        env.reset(options={"reset_mask": half})
    env.reset()
    for options, word in (
        ({"new_task": True}, "new_task"),
        ({"reset_mask": np.array([1, 0])}, "reset_mask"),
        ({"reset_mask": np.ones(3, dtype=bool)}, "reset_mask"),
        ({"task_ids": np.array([1, 2])}, "new_trial"),
        ({"new_trial": True, "task_ids": np.array([1.0, 2.0])}, "task_ids"),
        ({"new_trial": True, "task_ids": np.array([1, -2])}, "task_ids"),
    ):
        with pytest.raises(ConfigError, match=word):
            env.reset(options=options)
    with pytest.raises(ConfigError, match="seed"):
        env.reset(seed=3, options={"reset_mask": half})


CHECKS = [
    check_spaces_and_types,
    check_next_step_autoreset,
    check_deterministic,
    check_seeded_reset_starts_over,
    check_slots_are_part_of_the_job,
    check_tasks_by_number,
    check_reset_mask,
    check_empty_mask_shows_current,
    check_episodes_ignore_the_past,
    check_state_is_exact,
    check_oracle_is_optimal,
    check_pictures,
    check_bad_input,
]
