from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import torch
from omegaconf import OmegaConf

import embodied_icrl
from embodied_icrl.cli.compose import compose
from embodied_icrl.cli.evaluate import run_evaluate
from embodied_icrl.cli.video import run_video
from embodied_icrl.common.errors import ConfigError, ObservationError, RunError, UserError
from embodied_icrl.envs.vector import make_envs
from embodied_icrl.evaluation.agent import Agent, load_agent
from embodied_icrl.evaluation.in_context import EvaluationConfig, evaluate_in_context
from embodied_icrl.evaluation.loading import choose_device, load_policy, load_trained, merged
from embodied_icrl.policy import Policy, PolicyConfig
from embodied_icrl.policy.frozen import FrozenEncoderConfig
from tests.envs.user_envs import ring_config
from tests.evaluation.tiny import DARKROOM, HOUSE, save_run, tiny_policy
from tests.policy.toy import make_policy


def robot_loop(agent: Agent, env_config, trial: int, episodes: int):
    """One trial of the robot loop; returns of its episodes and tokens read."""
    env = env_config.build(1, split="test", seed=0)
    ids = np.array([trial])
    observation, _ = env.reset(options={"new_trial": True, "task_ids": ids})
    returns, lengths = [], []
    for episode in range(episodes):
        action = agent.act(row(observation), episode_start=True)
        total, steps, ended = 0.0, 0, False
        while not ended:
            observation, reward, terminated, truncated, _ = env.step(np.array([action]))
            ended = bool(terminated[0] or truncated[0])
            total, steps = total + float(reward[0]), steps + 1
            action = agent.act(row(observation), float(reward[0]), terminal=ended)
        returns.append(total)
        lengths.append(steps)
        if episode < episodes - 1:
            observation, *_ = env.step(np.array([0]))
    return returns, lengths


def row(observation):
    return {key: value[0].copy() for key, value in observation.items()}


@pytest.mark.parametrize("deterministic", [True, False])
def test_the_robot_loop_does_what_the_evaluation_does(deterministic):
    policy = tiny_policy(HOUSE).double()
    config = EvaluationConfig(
        n_trials=3, n_episodes=3, deterministic=deterministic, seed=0, references=False
    )
    result = evaluate_in_context(policy, HOUSE, config)
    agent = Agent(policy, deterministic=deterministic, seed=0)
    for trial in range(3):
        if trial:
            agent.reset()
        returns, lengths = robot_loop(agent, HOUSE, trial, 3)
        assert lengths == result.table.metrics["length"][trial].tolist()
        np.testing.assert_allclose(returns, result.table.metrics["return"][trial], atol=1e-5)
        assert agent.tokens == sum(lengths) + 3


def test_loaded_from_a_run_it_is_the_same_agent(tmp_path):
    policy = tiny_policy(HOUSE)
    run = save_run(tmp_path / "run", policy, HOUSE)
    before = sorted((p, p.stat().st_mtime_ns) for p in run.rglob("*"))
    agent = embodied_icrl.load_agent(run, deterministic=True)
    direct = Agent(policy, deterministic=True)
    assert robot_loop(agent, HOUSE, 0, 3) == robot_loop(direct, HOUSE, 0, 3)
    assert sorted((p, p.stat().st_mtime_ns) for p in run.rglob("*")) == before, "only read"


def test_memory_grows_when_no_limit_is_given(monkeypatch):
    policy = tiny_policy(DARKROOM).double()
    roomy = robot_loop(Agent(policy, seed=1), DARKROOM, 0, 6)
    monkeypatch.setattr("embodied_icrl.evaluation.agent._FIRST_CAPACITY", 3)
    growing = Agent(policy, seed=1)
    assert robot_loop(growing, DARKROOM, 0, 6) == roomy
    assert growing.tokens == 6 * (DARKROOM.horizon + 1)


def test_a_full_memory_says_what_to_do():
    agent = Agent(tiny_policy(DARKROOM), context_length=4)
    position = {"position": np.array([0, 0])}
    for _ in range(4):
        agent.act(position)
    with pytest.raises(UserError, match=r"full \(4 observations\): call reset"):
        agent.act(position)
    agent.reset()
    assert agent.tokens == 0
    agent.act(position)


def test_a_window_is_never_full():
    policy = tiny_policy(DARKROOM, window=3)
    agent = Agent(policy, context_length=5, seed=2)
    assert robot_loop(agent, DARKROOM, 0, 4)[1] == [DARKROOM.horizon] * 4


def test_seeds_and_trials_draw_different_actions():
    def actions(seed, trials=1):
        agent = Agent(make_policy(), seed=seed)
        observation = {"cell": np.array([1, 2]), "speed": np.zeros(3, np.float32)}
        drawn = []
        for _ in range(trials):
            drawn.append([agent.act(observation) for _ in range(12)])
            agent.reset()
        return drawn

    assert actions(3) == actions(3)
    assert actions(3) != actions(4)
    first, second = actions(3, trials=2)
    assert first != second
    unseeded = Agent(make_policy())._noise.draw(), Agent(make_policy())._noise.draw()
    assert unseeded[0] != unseeded[1]


def test_an_episode_may_begin_without_a_terminal_observation():
    agent = Agent(tiny_policy(DARKROOM), seed=0)
    seen = []
    original = agent.policy.act
    agent.policy.act = lambda token, *args, **kwargs: (
        seen.append(token.map(lambda t: t.clone())) or original(token, *args, **kwargs)
    )
    position = {"position": np.array([1, 2])}
    agent.act(position, reward=9.0)
    agent.act(position, reward=0.5)
    agent.act(position, reward=0.5, episode_start=True)
    agent.act(position, reward=0.25, terminal=True)
    agent.act(position, reward=0.25)
    flags = [(bool(t.episode_start), bool(t.terminal), int(t.step_in_episode)) for t in seen]
    assert flags == [
        (True, False, 0), (False, False, 1), (True, False, 0), (False, True, 1), (True, False, 0)
    ]  # fmt: skip
    assert [float(t.prev_reward) for t in seen] == [0.0, 0.5, 0.0, 0.25, 0.0]
    assert [int(t.prev_action) == -1 for t in seen] == [True, False, True, False, True]
    for wrong in ({"episode_start": True}, {}):
        agent.act(position, terminal=not wrong)
        with pytest.raises(UserError, match="can't begin with a terminal observation"):
            agent.act(position, terminal=True, **wrong)


def test_what_was_done_instead_is_what_it_reads():
    agent = Agent(tiny_policy(DARKROOM), seed=0)
    position = {"position": np.array([1, 2])}
    action = agent.act(position)
    assert isinstance(action, int)
    other = (action + 1) % 5
    agent.act(position, previous_action=other)
    assert int(agent._stream.current.prev_action) == other


def test_bare_observations_and_continuous_actions():
    observations = gym.spaces.Dict({"observation": gym.spaces.Box(-1, 1, (3,), np.float32)})
    box = gym.spaces.Box(-0.1, 0.1, (2,), np.float32)
    torch.manual_seed(0)
    agent = Agent(Policy(PolicyConfig(), observations, box, 5), seed=0)
    action = agent.act(np.zeros(3, np.float32))
    assert action.shape == (2,)
    assert box.contains(action)
    agent.act(np.zeros(3, np.float32), previous_action=[0.05, -0.05])
    assert agent._stream.current.prev_action.flatten().tolist() == pytest.approx([0.05, -0.05])


def test_bad_observations_are_named():
    observations = gym.spaces.Dict({"observation": gym.spaces.Box(-1, 1, (3,), np.float32)})
    agent = Agent(Policy(PolicyConfig(), observations, gym.spaces.Discrete(2), 5))
    with pytest.raises(ObservationError, match="observation"):
        agent.act(np.array([0.0, np.nan, 0.0], np.float32))
    with pytest.raises(ObservationError, match="missing"):
        agent.act({"image": np.zeros(3)})
    with pytest.raises(ConfigError, match="context_length=0"):
        Agent(agent.policy, context_length=0)


@pytest.mark.parametrize("terminal", [False, True], ids=["inside", "at the end"])
def test_a_bad_observation_can_be_replaced_by_a_good_one(terminal):
    """The camera drops a frame: the agent goes on as if it had never been given the bad one."""
    nothing = {"cell": np.array([1, 2]), "speed": np.full(3, np.nan, np.float32)}
    good = {"cell": np.array([1, 3]), "speed": np.ones(3, np.float32)}
    outcomes = []
    for wrong in ([], [nothing, {"cell": good["cell"]}]):
        agent = Agent(make_policy(), seed=0)
        actions = []
        for end in (False, False, terminal, False, False):
            arguments = {"reward": 0.5, "terminal": end, "previous_action": 2}
            if actions:
                for bad in wrong:
                    with pytest.raises(ObservationError):
                        agent.act(bad, **{**arguments, "previous_action": 4})
            actions.append(agent.act(good, **arguments))
            token = agent._stream.current
        outcomes.append((actions, agent.tokens, int(token.step_in_episode), agent._stream.step))
    assert outcomes[0] == outcomes[1]


def test_an_agent_that_reads_the_success_part_asks_for_it():
    agent = Agent(make_policy(reward_input="sparse"), seed=0)
    observation = {"cell": np.array([1, 2]), "speed": np.zeros(3, np.float32)}
    agent.act(observation)
    with pytest.raises(ObservationError, match="sparse_reward"):
        agent.act(observation, 0.7)
    agent.act(observation, 0.7, sparse_reward=0.0)
    assert float(agent._stream.current.prev_reward) == 0.0


def test_loading_a_policy_draws_no_global_numbers(tmp_path):
    policy = tiny_policy(DARKROOM)
    run = save_run(tmp_path / "run", policy, DARKROOM)
    torch.manual_seed(3)
    state = torch.get_rng_state()
    loaded = load_policy(run / "checkpoints" / "step_7")
    assert torch.equal(state, torch.get_rng_state())
    assert not loaded.training
    for name, value in policy.state_dict().items():
        assert torch.equal(value, loaded.state_dict()[name])


@pytest.fixture
def frozen_run(tmp_path):
    """A run whose policy sees through a frozen encoder, and the file of its weights."""
    env_config = ring_config(observations="image")
    file = tmp_path / "eye.pt"
    torch.save(Eye().state_dict(), file)
    encoder = FrozenEncoderConfig(module=f"{__name__}.Eye", weights=str(file))
    policy = tiny_policy(env_config, encoders={"observation": encoder})
    return save_run(tmp_path / "run", policy, env_config), file


class Eye(torch.nn.Linear):
    def __init__(self):
        super().__init__(16 * 12 * 3, 4)

    def forward(self, images):
        return super().forward(images.flatten(1) / 255)


def test_the_weights_of_a_frozen_encoder_may_have_moved(frozen_run, tmp_path):
    run, file = frozen_run
    picture = np.zeros((16, 12, 3), np.uint8)
    expected = load_agent(run, seed=0).policy.prepare({"observation": picture[None]})
    moved = file.rename(tmp_path / "moved.pt")
    with pytest.raises(
        ConfigError, match=r"no file .*eye\.pt.*encoder_weights=\{observation: FILE"
    ):
        load_agent(run)
    agent = load_agent(run, seed=0, encoder_weights={"observation": moved})
    agent.act(picture)
    assert agent.policy.prepare({"observation": picture[None]}).keys() == expected.keys()
    evaluate = {"n_trials": 1, "n_episodes": 1, "references": False, "progress": False}
    words = [f"{key}={value}" for key, value in evaluate.items()]
    where = f"encoder_weights={{observation: {moved}}}"
    run_evaluate(OmegaConf.create(compose("evaluate", [f"run={run}", *words, where])))
    run_video(OmegaConf.create(compose("video", [f"run={run}", "n_episodes=1", "pause=0", where])))
    with pytest.raises(ConfigError, match="'camera' has no frozen encoder; .*: observation"):
        load_agent(run, encoder_weights={"camera": str(moved)})
    torch.save(Eye().state_dict(), moved)
    with pytest.raises(ConfigError, match="another file"):
        load_agent(run, encoder_weights={"observation": str(moved)})


def test_a_trained_policy_knows_where_it_comes_from(tmp_path):
    run = save_run(tmp_path / "run", tiny_policy(HOUSE), HOUSE)
    trained = load_trained(run, "latest", env_overrides={"horizon": 5, "n_types": 1})
    assert (trained.experiment, trained.checkpoint) == ("tiny", "step_7")
    assert (trained.trained_steps, trained.n_episodes) == (30, 3)
    assert trained.env_config.horizon == 5
    assert trained.env_config.size == HOUSE.size
    assert load_trained(run, 7).checkpoint == load_trained(run, "step_7").checkpoint == "step_7"
    env = make_envs(trained.env_config, 1)
    assert env.max_episode_steps == 5
    with pytest.raises(ConfigError, match=r"env\.horizn"):
        load_trained(run, env_overrides={"horizn": 5})
    with pytest.raises(RunError, match="no checkpoint '8'"):
        load_trained(run, 8)
    with pytest.raises(RunError, match="not a run directory"):
        load_agent(tmp_path / "nothing")


def test_overrides_are_merged_at_depth():
    node = {"_target_": "a.B", "x": {"y": 1, "z": 2}, "w": 3}
    assert merged(node, {"x": {"y": 5}}) == {"_target_": "a.B", "x": {"y": 5, "z": 2}, "w": 3}
    assert merged(node, {"_target_": "a.C", "v": 1}) == {"_target_": "a.C", "v": 1}
    assert node["x"]["y"] == 1


def test_devices():
    assert choose_device("cpu") == torch.device("cpu")
    assert choose_device("auto").type in ("cpu", "cuda")
    with pytest.raises(ConfigError, match="device=tpu"):
        choose_device("tpu")
