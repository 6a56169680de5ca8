"""The evaluator: policies in NumPy, weights from untrusted hands, fitness from the simulator."""

from __future__ import annotations

import dataclasses
from typing import get_args

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save
from stable_baselines3 import PPO, SAC, TD3

from embodied_icrl.common.config import build
from embodied_icrl.common.seeds import derived_seed
from embodied_icrl.manipulation.task import Task
from embodied_icrl.manipulation.task_env import TaskEnv
from embodied_icrl.reward_search.actor import Actor, WeightsError, load_actor
from embodied_icrl.reward_search.algorithms import actor_shape
from embodied_icrl.reward_search.evaluation_child import (
    evaluate_weights,
    evaluation_seed,
    measure,
)
from embodied_icrl.reward_search.records import Phase
from embodied_icrl.reward_search.sandbox import Limits
from tests.reward_search.tasks import TASK
from tests.reward_search.trainings import NODE

BOX = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
OBSERVATIONS = gym.spaces.Box(-np.inf, np.inf, (10,), np.float32)
SMALL = {"policy_kwargs": {"net_arch": [5]}}


class Model(gym.Env):
    """Spaces for a policy of stable-baselines3, and nothing else."""

    observation_space = OBSERVATIONS

    def __init__(self, action_space: gym.Space) -> None:
        self.action_space = action_space


def tensors_of(policy, shape) -> dict[str, np.ndarray]:
    state = policy.state_dict()
    names = [f"{layer}.{part}" for layer in shape.layer_names() for part in ("weight", "bias")]
    return {name: state[name].numpy().copy() for name in names}


def tqc():
    from sb3_contrib import TQC

    return TQC


@pytest.mark.parametrize(
    ("name", "algorithm", "action_space", "policy"),
    [
        ("ppo", lambda: PPO, BOX, {}),
        ("ppo", lambda: PPO, BOX, {"net_arch": {"pi": [7, 5], "vf": [3]}}),
        ("ppo", lambda: PPO, gym.spaces.Discrete(3), {}),
        ("sac", lambda: SAC, BOX, {}),
        ("sac", lambda: SAC, gym.spaces.Box(-3.0, 1.0, (2,), np.float32), {"net_arch": []}),
        ("td3", lambda: TD3, BOX, {}),
        ("tqc", tqc, BOX, {"net_arch": [8]}),
    ],
)
def test_it_acts_as_stable_baselines3_does(tmp_path, name, algorithm, action_space, policy):
    extra = {} if name == "ppo" else {"buffer_size": 10}
    model = algorithm()(
        "MlpPolicy", Model(action_space), policy_kwargs=dict(policy), seed=1, **extra
    )
    hyperparameters = {"policy_kwargs": policy}
    path = tmp_path / "weights"
    path.write_bytes(save(tensors_of(model.policy, actor_shape(name, hyperparameters))))
    actor = load_actor(path, name, hyperparameters, OBSERVATIONS, action_space)
    observations = np.random.default_rng(0).normal(size=(50, 10)).astype(np.float32) * 3
    expected, _ = model.predict(observations, deterministic=True)
    np.testing.assert_allclose(actor.act(observations), expected, atol=2e-6)
    np.testing.assert_allclose(actor.act(observations[0]), expected[0], atol=2e-6)
    assert action_space.contains(actor.act(observations[0]))


def test_activations_by_name(tmp_path):
    import torch

    names = {"tanh": torch.nn.Tanh, "relu": torch.nn.ReLU, "elu": torch.nn.ELU}
    observations = np.random.default_rng(0).normal(size=(20, 10)).astype(np.float32)
    for name, kind in names.items():
        model = PPO("MlpPolicy", Model(BOX), policy_kwargs={"activation_fn": kind}, seed=1)
        hyperparameters = {"policy_kwargs": {"activation_fn": name}}
        path = tmp_path / name
        path.write_bytes(save(tensors_of(model.policy, actor_shape("ppo", hyperparameters))))
        actor = load_actor(path, "ppo", hyperparameters, OBSERVATIONS, BOX)
        expected, _ = model.predict(observations, deterministic=True)
        np.testing.assert_allclose(actor.act(observations), expected, atol=2e-6)


def good() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    shapes = {
        "mlp_extractor.policy_net.0.weight": (5, 10),
        "mlp_extractor.policy_net.0.bias": (5,),
        "action_net.weight": (2, 5),
        "action_net.bias": (2,),
    }
    return {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


def without(name):
    def change(tensors):
        del tensors[name]

    return change


def put(name, value):
    def change(tensors):
        tensors[name] = value

    return change


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (without("action_net.bias"), "no tensor 'action_net.bias'"),
        (put("more", np.zeros(1, np.float32)), "'more'"),
        (
            put("action_net.bias", np.zeros(3, np.float32)),
            r"float32 \[3\] instead of float32 \[2\]",
        ),
        (put("action_net.bias", np.zeros(2)), "float64"),
        (put("action_net.bias", np.zeros(2, np.float16)), "float16"),
        (put("action_net.bias", np.array([0, np.nan], np.float32)), "finite"),
        (put("action_net.weight", np.full((2, 5), np.inf, np.float32)), "finite"),
        (put("action_net.weight", np.zeros((5, 2), np.float32)), "instead of"),
    ],
)
def test_weights_that_do_not_fit_are_refused(tmp_path, change, reason):
    tensors = good()
    change(tensors)
    path = tmp_path / "weights"
    path.write_bytes(save(tensors))
    with pytest.raises(WeightsError, match=reason):
        load_actor(path, "ppo", SMALL, OBSERVATIONS, BOX)


@given(st.binary(max_size=200), st.integers(0, 400))
def test_bytes_that_are_no_weights_are_refused_or_read_as_what_they_say(junk, cut):
    import tempfile
    from pathlib import Path

    whole = save(good())
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "weights")
        for content in (junk, whole[: min(cut, len(whole) - 1)], whole + junk + b"x"):
            path.write_bytes(content)
            with pytest.raises(WeightsError):
                load_actor(path, "ppo", SMALL, OBSERVATIONS, BOX)
        path.write_bytes(whole)
        load_actor(path, "ppo", SMALL, OBSERVATIONS, BOX)


def test_a_scripted_success_scores_one_and_an_idle_policy_none():
    env = TaskEnv(TASK)
    try:

        class Expert:
            def act(self, observation):
                return env.expert_action()

        expert = measure(Expert(), env, 5, "search")
        zero = {name: 0 * tensor for name, tensor in good().items()}
        idle = measure(actor_of(zero), env, 5, "search")
    finally:
        env.close()
    assert expert == (1.0, 1.0)
    assert idle[0] < 0.3


def actor_of(tensors) -> Actor:
    shape = actor_shape("ppo", SMALL)
    layers = [(tensors[f"{name}.weight"], tensors[f"{name}.bias"]) for name in shape.layer_names()]
    return Actor(shape, layers, BOX)


def seeds_of(phase: Phase, count: int, task: Task = TASK) -> list[int]:
    return [evaluation_seed(task, episode, phase) for episode in range(count)]


def test_episodes_depend_on_the_task_and_the_phase_alone():
    for phase in get_args(Phase):
        seeds = seeds_of(phase, 100)
        assert len(set(seeds)) == 100 and all(0 <= seed < 2**31 for seed in seeds)
        assert seeds == seeds_of(phase, 100, dataclasses.replace(TASK, horizon=7))
        training = {derived_seed(s, "training", "from", 0) % 2**31 for s in range(1000)}
        assert training.isdisjoint(seeds)
    env, other = TaskEnv(TASK), TaskEnv(TASK)
    try:
        first = measure(actor_of(good()), env, 3, "search")
        backwards = {name: -tensor for name, tensor in good().items()}
        measure(actor_of(backwards), other, 2, "final")
        assert measure(actor_of(good()), other, 3, "search") == first
    finally:
        env.close()
        other.close()


def test_what_chooses_the_best_and_what_it_is_worth_share_no_episode():
    search, final = set(seeds_of("search", 10_000)), set(seeds_of("final", 10_000))
    assert len(search) > 9_990 and len(final) > 9_990
    assert search.isdisjoint(final)


@pytest.mark.parametrize("phase", ["search", "final"])
@pytest.mark.parametrize("episodes", [1, 7])
def test_it_measures_the_episodes_of_its_phase_as_many_as_told(phase, episodes):
    begun = []

    class Counting:
        task = TASK

        def reset(self, seed):
            begun.append(seed)
            return np.zeros(10, np.float32), {}

        def step(self, action):
            info = {"fitness": len(begun), "success": len(begun) == 1}
            return np.zeros(10, np.float32), 0.0, True, False, info

    found = measure(actor_of(good()), Counting(), episodes, phase)
    assert begun == seeds_of(phase, episodes)
    assert found == ((episodes + 1) / 2, 1 / episodes)


def test_a_fitness_that_is_no_number_is_the_fault_of_the_weights():
    class Broken:
        task = TASK

        def reset(self, seed):
            return np.zeros(10, np.float32), {}

        def step(self, action):
            return np.zeros(10), 0.0, True, False, {"fitness": float("nan"), "success": False}

    with pytest.raises(WeightsError, match="nan"):
        measure(actor_of(good()), Broken(), 2, "search")


def test_the_child_stops_at_the_first_weights_that_can_not_be_used(tmp_path):
    files = {}
    for step, tensors in ((10, good()), (20, good()), (30, {}), (40, good())):
        path = tmp_path / f"weights_{step}"
        path.write_bytes(save(tensors))
        path.chmod(0o644)
        files[step] = str(path)
    points, reason, deterministic, limit = evaluate_weights(
        files,
        task=NODE,
        algorithm="ppo",
        hyperparameters=SMALL,
        episodes={10: 4, 20: 6, 30: 4, 40: 4},
        phase="final",
        limits=Limits(wall_s=150, cpu_s=60),
    )
    assert [(point.step, point.episodes) for point in points] == [(10, 4), (20, 6)]
    assert "no tensor" in reason
    assert deterministic and limit is None
    base: type = Task
    env = TaskEnv(build(NODE, base))
    try:
        for point, episodes in zip(points, (4, 6), strict=True):
            expected = measure(actor_of(good()), env, episodes, "final")
            assert (point.mean, point.success) == expected
    finally:
        env.close()
