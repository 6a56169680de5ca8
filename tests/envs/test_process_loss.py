"""A worker that dies or hangs, and a caller that goes on with a fresh one."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from embodied_icrl.envs.process import ProcessTrialEnv
from embodied_icrl.envs.vector import make_envs
from embodied_icrl.envs.worker_handle import EnvWorkerError, EnvWorkerLostError
from tests.envs.protocol import assert_obs_equal, copy_obs, random_actions
from tests.envs.user_envs import faulty_config, ring_config

Make = Callable[..., ProcessTrialEnv]


@pytest.fixture
def processes() -> Iterator[Make]:
    """Environments in workers whose losses go to the list `losses`; ended with the test."""
    made: list[ProcessTrialEnv] = []

    def make(config: Any, num_envs: int, workers: int, limit: int = 3) -> ProcessTrialEnv:
        env = ProcessTrialEnv(config, num_envs, workers, seed=7)
        env.losses = []  # type: ignore[attr-defined]

        def on_loss(error: EnvWorkerLostError) -> None:
            env._timeout_s = 300.0  # a fresh worker may take its time, whatever the test is about
            if len(env.losses) == limit:  # type: ignore[attr-defined]
                raise error
            env.losses.append(error)  # type: ignore[attr-defined]

        env.on_loss = on_loss
        made.append(env)
        return env

    yield make
    for env in made:
        env.close()


def kill(env: ProcessTrialEnv, worker: int, number: int = signal.SIGKILL) -> None:
    os.kill(env._workers[worker].pid, number)


@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_a_step_goes_on_and_loses_nothing_of_the_others(processes: Make, how: str) -> None:
    config = ring_config(observations="box")
    env, calm = processes(config, 5, 3), make_envs(config, 5, seed=7)
    for each in (env, calm):
        each.reset()
    lost = slice(2, 4)  # 2 + 2 + 1
    others = np.array([True, True, False, False, True])
    actions = random_actions(calm, 24)
    for t, action in enumerate(actions):
        if t == 3:
            env._timeout_s = 4.0 if how == "stopped" else 300.0
            kill(env, 1, signal.SIGSTOP if how == "stopped" else signal.SIGKILL)
        obs, *flags, info = env.step(action)
        expected, *expected_flags, expected_info = calm.step(action)
        if t == 3:
            after = copy_obs(obs)
            assert not any(values[lost].any() for values in flags)
        for key in obs:
            np.testing.assert_array_equal(obs[key][others], expected[key][others])
        for ours, theirs in zip(flags, expected_flags, strict=True):
            np.testing.assert_array_equal(ours[others], theirs[others])
        if "_episode" in expected_info and expected_info["_episode"][others].any():
            ended = expected_info["_episode"] & others
            assert (info["_episode"] & others).tolist() == ended.tolist()
            np.testing.assert_array_equal(
                info["episode"]["r"][ended], expected_info["episode"]["r"][ended]
            )
    (error,) = env.losses  # type: ignore[attr-defined]
    assert (error.worker, error.rows) == (1, lost)
    assert ("did not answer 'step'" if how == "stopped" else "SIGKILL") in str(error)
    # They began their next trial.
    calm.reset(seed=7)
    expected, _ = calm.reset(options={"new_trial": True})
    assert_obs_equal(after, expected, lost)
    assert env.get_state()["task_id"].tolist() == [0, 1, 7, 8, 4]


@pytest.mark.parametrize("options", [{"new_trial": True, "task_ids": np.array([9, 8, 7, 6])}, {}])
def test_a_reset_to_a_new_trial_loses_nothing(processes: Make, options: dict[str, Any]) -> None:
    config = ring_config(observations="box")
    env, calm = processes(config, 4, 2), make_envs(config, 4, seed=7)
    if options:
        env.reset()
        calm.reset()
    kill(env, 0)
    obs, info = env.reset(options=options)
    expected, expected_info = calm.reset(options=options)
    assert_obs_equal(obs, expected)
    assert info["task_id"].tolist() == expected_info["task_id"].tolist()
    for action in random_actions(calm, 12):
        assert_obs_equal(env.step(action)[0], calm.step(action)[0])
    assert len(env.losses) == 1  # type: ignore[attr-defined]


def test_a_reset_to_the_next_episode_begins_a_trial_of_the_same_task(processes: Make) -> None:
    env = processes(ring_config(), 4, 2)
    env.reset()
    env.step(np.zeros(4, dtype=int))
    kill(env, 1)
    _, info = env.reset(options={"reset_mask": np.array([False, False, False, True])})
    assert info["task_id"].tolist() == [0, 1, 2, 3]
    assert [slot["steps"] for slot in env.get_state()["envs"]] == [1, 1, 0, 0]


def test_states_can_be_saved_and_restored(processes: Make) -> None:
    env = processes(ring_config(observations="box"), 4, 2)
    env.reset()
    env.step(np.zeros(4, dtype=int))
    saved = env.get_state()
    kill(env, 0)
    assert env.get_state()["task_id"].tolist() == [4, 5, 2, 3]
    kill(env, 0)
    env.set_state(saved)
    assert env.get_state()["task_id"].tolist() == [0, 1, 2, 3]
    other = make_envs(ring_config(observations="box"), 4, seed=7)
    other.set_state(saved)
    for action in random_actions(other, 12):
        assert_obs_equal(env.step(action)[0], other.step(action)[0])
    assert len(env.losses) == 2  # type: ignore[attr-defined]


def test_all_workers_at_once(processes: Make) -> None:
    env = processes(ring_config(), 4, 2)
    env.reset()
    for worker in (0, 1):
        kill(env, worker)
    _, reward, terminated, truncated, info = env.step(np.zeros(4, dtype=int))
    assert not (reward.any() or terminated.any() or truncated.any() or info)
    assert reward.dtype == np.float32 and terminated.dtype == bool
    assert [error.worker for error in env.losses] == [0, 1]  # type: ignore[attr-defined]


def test_a_fresh_worker_may_die_too_until_the_caller_has_enough(processes: Make) -> None:
    env = processes(faulty_config("exit", "reset"), 4, 2, limit=2)
    with pytest.raises(EnvWorkerLostError, match="exited with code 3 during 'reset'"):
        env.reset()
    assert len(env.losses) == 2  # type: ignore[attr-defined]


def test_an_exception_of_an_environment_is_no_loss(processes: Make) -> None:
    env = processes(faulty_config("raise"), 4, 2)
    env.reset()
    env.step(np.zeros(4, dtype=int))
    with pytest.raises(EnvWorkerError, match="lost its GPU"):
        env.step(np.zeros(4, dtype=int))
    assert env.losses == []  # type: ignore[attr-defined]
