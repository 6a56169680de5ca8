"""Tokens from environment steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from embodied_icrl.common.errors import ObservationError, UserError
from embodied_icrl.envs.trial_env import TrialEnv
from embodied_icrl.policy import StepBatch, TokenStream
from tests.envs.user_envs import CELLS, Ring, sample_task
from tests.policy.toy import make_policy

ENVS = 2
NO = np.zeros(ENVS, bool)


def observation(step: int) -> dict[str, np.ndarray]:
    cell = np.array([[step % 5, 0], [step % 5, 1]])
    return {"cell": cell, "speed": np.full((ENVS, 3), step / 10, np.float32)}


def make_stream(**config: Any) -> TokenStream:
    return TokenStream(make_policy(**config), ENVS, max_episode_steps=4)


def fields(token: StepBatch, env: int) -> dict[str, Any]:
    names = ("prev_action", "prev_reward", "episode_start", "terminal", "step_in_episode")
    return {name: getattr(token, name)[env, 0].tolist() for name in names}


def test_a_trial_with_autoreset() -> None:
    stream = make_stream()
    token = stream.start(observation(0))
    assert token.shape == (ENVS, 1)
    assert token.stored["cell"][:, 0].tolist() == [[0, 0], [0, 1]]
    first = {
        "prev_action": -1,
        "prev_reward": 0.0,
        "episode_start": True,
        "terminal": False,
        "step_in_episode": 0,
    }
    assert fields(token, 0) == fields(token, 1) == first

    token = stream.push(observation(1), [0.5, 0.0], NO, NO, torch.tensor([3, 4]))
    assert fields(token, 0) == {
        "prev_action": 3,
        "prev_reward": 0.5,
        "episode_start": False,
        "terminal": False,
        "step_in_episode": 1,
    }
    assert token.stored["speed"][0, 0].tolist() == pytest.approx([0.1] * 3)

    # Environment 0 terminates, 1 goes on: the end is a token with its reward and its action.
    token = stream.push(
        observation(2), np.array([1.0, 2.0]), np.array([True, False]), NO, torch.tensor([2, 1])
    )
    assert fields(token, 0) == {
        "prev_action": 2,
        "prev_reward": 1.0,
        "episode_start": False,
        "terminal": True,
        "step_in_episode": 2,
    }
    assert stream.terminal.tolist() == [True, False]

    # The autoreset: its action and reward are nobody's.
    token = stream.push(observation(3), [9.0, 0.0], NO, NO, torch.tensor([4, 4]))
    assert fields(token, 0) == first
    assert fields(token, 1)["step_in_episode"] == 3
    assert stream.episode_start.tolist() == [True, False]

    token = stream.push(
        observation(4), [0.0, 0.0], NO, np.array([False, True]), torch.tensor([1, 0])
    )
    assert fields(token, 0)["step_in_episode"] == 1 and not fields(token, 0)["episode_start"]
    assert fields(token, 1)["terminal"] and fields(token, 1)["step_in_episode"] == 4


def test_an_episode_of_one_step_and_one_that_ends_at_once_again() -> None:
    stream = make_stream()
    stream.start(observation(0))
    ended = np.array([True, False])
    stream.push(observation(1), [1, 0], ended, NO, torch.tensor([1, 1]))
    token = stream.push(observation(2), [0, 0], NO, NO, torch.tensor([1, 1]))
    assert fields(token, 0)["episode_start"]
    token = stream.push(observation(3), [1, 0], ended, NO, torch.tensor([2, 1]))
    assert fields(token, 0)["terminal"] and fields(token, 0)["step_in_episode"] == 1


def test_a_new_trial_forgets_the_old_one() -> None:
    stream = make_stream()
    stream.start(observation(0))
    stream.push(observation(1), [1, 1], np.array([True, True]), NO, torch.tensor([1, 1]))
    token = stream.start(observation(0))
    assert fields(token, 0)["prev_action"] == -1 and fields(token, 0)["prev_reward"] == 0
    assert not stream.terminal.any() and stream.step == 0


def test_an_episode_begun_by_hand() -> None:
    stream = make_stream()
    stream.start(observation(0))
    stream.push(observation(1), [1, 1], NO, NO, torch.tensor([1, 1]))
    token = stream.begin_episode(observation(2))
    assert fields(token, 1)["episode_start"] and fields(token, 1)["step_in_episode"] == 0
    assert fields(token, 1)["prev_action"] == -1
    assert stream.step == 1


@pytest.mark.parametrize(
    ("reads", "sparse", "expected"),
    [("full", 7.0, 2.0), ("full", None, 2.0), ("sparse", 7.0, 7.0), ("none", None, 0.0)],
)
def test_which_reward_is_read(reads: str, sparse: float | None, expected: float) -> None:
    stream = make_stream(reward_input=reads)
    stream.start(observation(0))
    sparse_reward = None if sparse is None else np.full(ENVS, sparse, np.float32)
    token = stream.push(observation(1), [2.0, 2.0], NO, NO, torch.tensor([0, 0]), sparse_reward)
    assert token.prev_reward[:, 0].tolist() == [expected] * ENVS


def test_a_missing_success_part_is_never_the_reward() -> None:
    """That may be a shaped one: a hot/cold oracle that the policy is not to read."""
    stream, reward, action = make_stream(reward_input="sparse"), [2.0, 2.0], torch.tensor([0, 0])
    stream.start(observation(0))
    nothing = r'environment 0 said nothing of it at step 1: give info\["sparse_reward"\] at every'
    with pytest.raises(ObservationError, match=nothing):
        stream.push(observation(1), reward, NO, NO, action)
    half = np.array([1.0, np.nan], np.float32)
    with pytest.raises(ObservationError, match="environment 1 said nothing of it at step 1"):
        stream.push(observation(1), reward, NO, NO, action, half)
    both, first = np.array([True, True]), np.array([True, False])
    stream.push(observation(1), reward, first, NO, action, np.ones(ENVS, np.float32))
    token = stream.push(observation(2), reward, NO, NO, action, half[::-1])
    assert token.prev_reward[:, 0].tolist() == [0.0, 1.0], "an autoreset earns nothing"
    stream.push(observation(3), reward, both, NO, action, np.ones(ENVS, np.float32))
    token = stream.push(observation(3), reward, NO, NO, action)
    assert token.prev_reward[:, 0].tolist() == [0.0, 0.0]


class Forgetful(Ring):
    """Gives the success part of its reward at successes only."""

    def step(self, action: Any) -> Any:
        *result, info = super().step(action)
        if not info["is_success"]:
            del info["sparse_reward"]
        return *result, info


@pytest.mark.parametrize("successes", [[], [0]], ids=["no key", "key of another"])
def test_an_environment_that_gives_the_success_part_now_and_then_is_refused(
    successes: list[int],
) -> None:
    env = TrialEnv(Forgetful, sample_task, ENVS, max_episode_steps=8)
    policy = make_policy(
        reward_input="sparse",
        observations=env.single_observation_space,
        actions=env.single_action_space,
    )
    stream = TokenStream(policy, ENVS, max_episode_steps=8)
    stream.start(env.reset()[0])
    for row, slot in enumerate(env._slots):
        ring = slot.env.unwrapped
        assert isinstance(ring, Ring)
        ring.cell = ring.target if row in successes else (ring.target + 1) % CELLS
    action = torch.full((ENVS,), 1)
    *result, info = env.step(policy.to_env_action(action))
    row = 1 if successes else 0
    with pytest.raises(ObservationError, match=f"environment {row} said nothing"):
        stream.push(*result, action, info.get("sparse_reward"))


@pytest.mark.parametrize("ended", [False, True], ids=["inside", "at the end"])
def test_what_is_refused_may_be_pushed_again(ended: bool) -> None:
    """Whatever was wrong, the stream stands where it stood, and the token it gave is untouched."""
    stream, other = make_stream(), make_stream()
    ends = np.array([ended, False])
    for each in (stream, other):
        each.start(observation(0))
        each.push(observation(1), [1, 2], NO, NO, torch.tensor([1, 2]))
    before = stream.current.map(torch.clone)
    good = (observation(2), [3, 4], ends, NO, torch.tensor([3, 4]))
    flat = {**observation(2), "speed": np.zeros((ENVS, 2), np.float32)}
    wrong: list[tuple[Any, ...]] = [
        ({**observation(2), "speed": np.full((ENVS, 3), np.nan, np.float32)}, *good[1:]),
        (flat, *good[1:]),
        (good[0], [3, np.nan], *good[2:]),
        (*good[:4], torch.tensor([[3, 4]] * 3)),
    ]
    for arguments in wrong:
        with pytest.raises((ObservationError, RuntimeError)):
            stream.push(*arguments)
    for env in range(ENVS):
        assert fields(stream.current, env) == fields(before, env)
    for each in (stream, other):
        each.push(*good)
        each.push(observation(3), [5, 6], NO, NO, torch.tensor([0, 1]))
    for env in range(ENVS):
        assert fields(stream.current, env) == fields(other.current, env)
    assert stream.step == other.step == 3
    with pytest.raises(ObservationError):
        stream.start(flat)
    assert stream.step == 3 and fields(stream.current, 0) == fields(other.current, 0)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_an_unusable_observation_is_named(bad: float) -> None:
    stream = make_stream()
    stream.start(observation(0))
    stream.push(observation(1), [0, 0], NO, NO, torch.tensor([0, 0]))
    wrong = observation(2)
    wrong["speed"][1, 2] = bad
    with pytest.raises(ObservationError, match=r"'speed' of environment 1 at step 2 is not finite"):
        stream.push(wrong, [0, 0], NO, NO, torch.tensor([0, 0]))


def test_other_unusable_input_is_named() -> None:
    stream = make_stream()
    with pytest.raises(ObservationError, match="'speed' is missing"):
        stream.start({"cell": observation(0)["cell"]})
    outside = observation(0)
    outside["cell"][1, 1] = 4
    with pytest.raises(ObservationError, match="'cell' of environment 1 at step 0 is outside"):
        stream.start(outside)
    flat = observation(0)
    flat["speed"] = flat["speed"][:, :2]
    with pytest.raises(ObservationError, match=r"'speed' has shape \(2, 2\)"):
        stream.start(flat)
    stream.start(observation(0))
    with pytest.raises(ObservationError, match="reward of environment 1 at step 1 is nan"):
        stream.push(observation(1), [0, np.nan], NO, NO, torch.tensor([0, 0]))


def test_a_longer_episode_is_refused() -> None:
    stream = make_stream()
    stream.start(observation(0))
    for step in range(1, 5):
        stream.push(observation(step), [0, 0], NO, NO, torch.tensor([0, 0]))
    with pytest.raises(UserError, match="environment 0 is at step 5 .* max_episode_steps is 4"):
        stream.push(observation(5), [0, 0], NO, NO, torch.tensor([0, 0]))
    with pytest.raises(UserError, match="longer than the policy's max_episode_steps=12"):
        TokenStream(make_policy(), ENVS, max_episode_steps=13)


def test_other_action_spaces() -> None:
    box = TokenStream(make_policy(actions=spaces.Box(-1, 1, (2,))), ENVS)
    token = box.start(observation(0))
    assert token.prev_action.tolist() == [[[0, 0]], [[0, 0]]]
    token = box.push(observation(1), [0, 0], NO, NO, torch.tensor([[0.5, 1], [2, 3]]))
    assert token.prev_action[1, 0].tolist() == [2, 3]
    pair = TokenStream(make_policy(actions=spaces.MultiDiscrete([3, 4])), ENVS)
    assert pair.start(observation(0)).prev_action.tolist() == [[[-1, -1]], [[-1, -1]]]


def test_the_environment_may_reuse_its_buffers() -> None:
    stream = make_stream()
    shared = observation(1)
    token = stream.start(shared)
    shared["cell"][:] = 3
    shared["speed"][:] = 3
    assert token.stored["cell"].max() == 1 and token.stored["speed"].max() == pytest.approx(0.1)


def test_saved_state_continues() -> None:
    stream, other = make_stream(), make_stream()
    stream.start(observation(0))
    stream.push(observation(1), [1, 2], np.array([True, False]), NO, torch.tensor([1, 2]))
    saved = stream.state_dict()
    other.load_state_dict(saved)
    for env in range(ENVS):
        assert fields(other.current, env) == fields(stream.current, env)
    assert torch.equal(other.current.stored["cell"], stream.current.stored["cell"])
    for each in (stream, other):
        each.push(observation(2), [3, 4], NO, NO, torch.tensor([0, 3]))
    for env in range(ENVS):
        assert fields(other.current, env) == fields(stream.current, env)
    assert other.step == stream.step == 2
