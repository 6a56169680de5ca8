"""Every task: a scripted success has fitness 1, noise 0, and the truth ignores rewards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import pytest

from embodied_icrl.common.errors import ConfigError
from embodied_icrl.manipulation.fetch import FetchPickAndPlace, FetchPush, FetchReach, FetchSlide
from embodied_icrl.manipulation.fields import Field
from embodied_icrl.manipulation.planar_push import PlanarPush
from embodied_icrl.manipulation.planar_reach import PlanarReach
from embodied_icrl.manipulation.task import Budget, Task
from embodied_icrl.manipulation.task_env import RewardError, TaskEnv
from embodied_icrl.manipulation.valve_turn import ValveTurn
from tests.manipulation.episodes import episode, fitness, name_of

SMALL = (PlanarReach(), PlanarPush(), ValveTurn())
FETCH = (FetchReach(), FetchPush(), FetchPickAndPlace())
ALL_FETCH = (*FETCH, FetchSlide())


@pytest.mark.parametrize("task", SMALL, ids=name_of)
def test_fitness_tells_success_from_noise(task):
    assert fitness(task, 20, "scripted") > 0.98
    assert fitness(task, 20, "random") < 0.05


@pytest.mark.parametrize("task", FETCH, ids=name_of)
def test_a_scripted_success_has_fitness_one_on_fetch(task):
    assert fitness(task, 4, "scripted") > 0.98


@pytest.mark.parametrize("task", ALL_FETCH, ids=name_of)
def test_noise_and_idleness_have_no_fitness_on_fetch(task):
    env = TaskEnv(task)
    for policy, episodes, most in (("random", 16, 0.08), ("idle", 4, 0.03)):
        found, begun = [], []
        for seed in range(episodes):
            found.append(episode(env, seed, policy)[-1]["fitness"])
            # Now and then the object lies at its target from the start, and stays there.
            begun.append(env.simulator.left_at_start <= 0.0)
        assert np.mean(found) < np.mean(begun) + most
        assert sum(begun) <= 1
    env.close()


def test_a_puck_that_is_hit_right_stops_at_the_target():
    # The scripted hit is open-loop once the puck slides: about every second one is right.
    env = TaskEnv(FetchSlide())
    found = [episode(env, seed, "scripted")[-1]["fitness"] for seed in range(8)]
    assert max(found) == 1.0 and np.mean(found) > 0.3


@pytest.mark.parametrize("task", [*SMALL, FETCH[1]], ids=name_of)
def test_episodes_depend_on_their_seed_alone(task):
    def observations(env: TaskEnv, reward=None) -> np.ndarray:
        env.reward = reward
        rng = np.random.default_rng(0)
        seen = [env.reset(seed=3)[0]]
        for _ in range(8):
            seen.append(env.step(rng.uniform(-1, 1, env.action_space.shape))[0])
        assert all(env.observation_space.contains(observation) for observation in seen)
        return np.array(seen)

    first, second = TaskEnv(task), TaskEnv(task)
    expected = observations(first)
    np.testing.assert_array_equal(observations(second, lambda state: (-7.0, {})), expected)
    np.testing.assert_array_equal(observations(first), expected)
    assert not np.array_equal(first.reset(seed=4)[0], expected[0])


@pytest.mark.parametrize("task", SMALL, ids=name_of)
def test_fields_say_what_happened(task):
    states = []
    env = TaskEnv(task, reward=lambda state: (states.append(state) or 0.25, {"a": 0.25}))
    env.reset(seed=0)
    action = np.array([0.5, -0.25], np.float32)
    _, reward, _, _, info = env.step(action)
    assert (reward, info["components"]) == (0.25, {"a": 0.25})
    assert states[0]._fields == tuple(field.name for field in task.fields)
    np.testing.assert_allclose(states[0].action, action)
    np.testing.assert_array_equal(env.layout.record(env.state_vector).action, states[0].action)


def test_velocities_are_those_of_the_positions():
    env = TaskEnv(FetchPush())
    env.reset(seed=0)
    previous = None
    for _ in range(12):
        env.step(np.array([0.6, 0.4, -0.2, 0.0], np.float32))
        state = env.layout.record(env.state_vector)
        if previous is not None:
            moved = (state.gripper_position - previous.gripper_position) / 0.04
        previous = state
    np.testing.assert_allclose(state.gripper_velocity, moved, atol=0.1)
    assert np.linalg.norm(state.gripper_velocity) > 0.2
    np.testing.assert_allclose(state.object_velocity, 0.0, atol=0.02)


def test_passing_through_the_goal_is_worth_less_than_staying():
    task = PlanarReach()
    assert task.fitness([0.0] * 40 + [1.0] * 10) == 1.0
    assert task.fitness([1.0] * 40 + [0.0] * 10) == 0.0
    assert task.fitness([1.0, 0.0]) == 0.5


class Walk(gym.Env):
    """A walk along a line, 1 or -1 per step, that may end by itself."""

    observation_space = gym.spaces.Box(-100.0, 100.0, (1,), np.float32)
    action_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def __init__(self, ends: tuple[int, ...]) -> None:
        self.ends = ends  # places where it terminates

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.place += int(np.sign(action[0]))
        return np.full(1, self.place, np.float32), 0.0, self.place in self.ends, False, {}


@dataclass(frozen=True)
class WalkTask(Task):
    """Success: at or beyond place 3. The walk terminates at `ends`, is truncated after `limit`."""

    name: ClassVar[str] = "walk"
    description: ClassVar[str] = "Go three steps to the right."
    fields: ClassVar[tuple[Field, ...]] = (Field("place", (), "-", "where it is"),)
    ends: tuple[int, ...] = ()
    limit: int = 1000

    def make_env(self):
        return gym.wrappers.TimeLimit(Walk(self.ends), self.limit)

    def read_state(self, env, observation, action):
        return {"place": env.unwrapped.place}

    def success(self, env, observation):
        return env.unwrapped.place >= 3


def walk(task: Task, action: float) -> tuple[int, bool, bool, dict[str, Any]]:
    """Steps, how it ended, and the last info, of an episode of one action."""
    env = TaskEnv(task)
    env.reset(seed=0)
    steps, terminated, truncated, info = 0, False, False, {}
    while not (terminated or truncated):
        assert "fitness" not in info
        _, _, terminated, truncated, info = env.step(np.array([action], np.float32))
        steps += 1
    assert type(terminated) is type(truncated) is bool
    return steps, terminated, truncated, info


def test_an_episode_that_the_simulator_ends_with_success_is_worth_as_much_as_staying_there():
    staying, ending = WalkTask(horizon=20), WalkTask(horizon=20, ends=(3, -3))
    steps, terminated, truncated, info = walk(staying, 1.0)
    assert (steps, terminated, truncated) == (20, False, True)
    assert info["fitness"] == 1.0
    steps, terminated, truncated, info = walk(ending, 1.0)
    assert (steps, terminated, truncated) == (3, True, False)
    assert info["fitness"] == 1.0 and info["success"]


def test_an_episode_that_the_simulator_ends_with_a_failure_is_worth_nothing():
    steps, terminated, _, info = walk(WalkTask(horizon=20, ends=(3, -3)), -1.0)
    assert (steps, terminated) == (3, True)
    assert info["fitness"] == 0.0 and not info["success"]


def test_an_end_at_the_horizon_itself_leaves_no_step_out():
    _, terminated, truncated, info = walk(WalkTask(horizon=3, ends=(3,)), 1.0)
    assert (terminated, truncated) == (True, False)
    assert info["fitness"] == pytest.approx(1 / 3)


def test_the_time_limit_of_the_simulator_ends_an_episode_and_adds_nothing():
    steps, terminated, truncated, info = walk(WalkTask(horizon=20, limit=5), 1.0)
    assert (steps, terminated, truncated) == (5, False, True)
    assert info["fitness"] == pytest.approx(3 / 5)


def test_a_reward_that_cannot_be_used_is_named():
    env = TaskEnv(PlanarReach(), reward=lambda state: (float("nan"), {}))
    env.reset(seed=0)
    with pytest.raises(RewardError, match="nan at step 1"):
        env.step(np.zeros(2))


def test_settings():
    env = TaskEnv(PlanarReach(horizon=3))
    assert len(episode(env, 0, "scripted")) == 3
    with pytest.raises(ConfigError, match="horizon=0"):
        PlanarReach(horizon=0)


@pytest.mark.parametrize("numbers", [(0, "ppo"), (100, "ppo", 0)])
def test_a_budget_without_steps_is_refused(numbers):
    with pytest.raises(ConfigError, match="no budget"):
        Budget(*numbers)


def test_budgets_share_no_hyperparameters():
    first, second = Budget(10, "ppo"), Budget(10, "ppo")
    assert first == second and first.hyperparameters is not second.hyperparameters
