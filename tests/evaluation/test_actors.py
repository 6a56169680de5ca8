from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from embodied_icrl.common.errors import ConfigError
from embodied_icrl.envs.darkroom import DarkroomConfig
from embodied_icrl.evaluation.actors import (
    PolicyActor,
    check_fit,
    shuffled_order,
    uniform_actions,
)
from embodied_icrl.evaluation.noise import TrialNoise
from embodied_icrl.evaluation.trials import TrialLength, run_trials
from embodied_icrl.policy import Policy, PolicyConfig
from tests.evaluation.tiny import DARKROOM, HOUSE, ScriptedConfig, tiny_policy


class Watched(PolicyActor):
    """Keeps every token and every action."""

    def __init__(self, *args, **settings):
        super().__init__(*args, **settings)
        self.tokens, self.actions, self.episodes = [], [], []

    def act(self, episode):
        actions = super().act(episode)
        self.tokens.append(self.token.map(lambda tensor: tensor.clone()))
        self.actions.append(actions.copy())
        self.episodes.append(episode.copy())
        return actions


def watch(policy, env_config, trials, episodes, **settings):
    env = env_config.build(len(trials), split="test", seed=0)
    length = TrialLength(episodes)
    capacity = length.capacity(env.max_episode_steps)
    with Watched(policy, env, capacity, **settings) as actor:
        table = run_trials(env, actor, np.asarray(trials), length)
    return actor, table


@pytest.mark.parametrize("settings", [{}, {"rope": "trial"}, {"rope": "episode", "sink": "token"}])
@pytest.mark.parametrize("env_config", [DARKROOM, HOUSE], ids=["darkroom", "house"])
def test_cleared_memory_is_attention_to_the_running_episode_only(env_config, settings):
    across = tiny_policy(env_config, **settings).double()
    within = tiny_policy(env_config, **settings, inter_episode=False).double()
    within.load_state_dict(across.state_dict())
    a, _ = watch(across, env_config, [0, 1, 2], 4, context="cleared")
    b, _ = watch(within, env_config, [0, 1, 2], 4)
    c, _ = watch(across, env_config, [0, 1, 2], 4)
    np.testing.assert_array_equal(np.array(a.actions), np.array(b.actions))
    assert any((x != y).any() for x, y in zip(a.actions, c.actions)), "or this tests nothing"


def test_the_memory_of_an_earlier_trial_is_gone():
    policy = tiny_policy(DARKROOM)
    env = DARKROOM.build(1, split="test")
    with Watched(policy, env, 100) as actor:
        run_trials(env, actor, np.array([0, 1]), TrialLength(3))
        both = [tuple(x) for x in actor.actions]
    alone, _ = watch(policy, DARKROOM, [1], 3)
    assert both[len(both) - len(alone.actions) :] == [tuple(x) for x in alone.actions]


def test_shuffled_with_one_earlier_episode_changes_nothing():
    policy = tiny_policy(HOUSE, rope="episode").double()
    full, _ = watch(policy, HOUSE, [0, 1, 2], 2)
    shuffled, _ = watch(policy, HOUSE, [0, 1, 2], 2, context="shuffled")
    np.testing.assert_array_equal(np.array(full.actions), np.array(shuffled.actions))


def test_the_shuffled_memory_is_that_of_the_shuffled_tokens():
    policy = tiny_policy(HOUSE, rope="episode").double()
    actor, table = watch(policy, HOUSE, [0, 1, 2], 5, context="shuffled")
    original = torch.cat([t.stored[next(iter(t.stored))] for t in actor.tokens], dim=1)
    history = actor._history.batch.steps(0, actor._history.length)
    length = actor.cache.length
    assert history.shape == (3, length)
    changed = 0
    for row in range(3):
        moved = history.stored[next(iter(history.stored))][row]
        changed += bool((moved != original[row]).any())
        # Whole episodes moved, and each of them is still there once.
        starts = history.episode_start[row].nonzero().flatten().tolist()
        assert starts[0] == 0
        ends = history.terminal[row].nonzero().flatten().tolist()
        assert [end + 1 for end in ends][: len(starts) - 1] == starts[1:]
        sizes = sorted(np.diff([*starts[:5], length if len(starts) < 6 else starts[5]])[:4])
        wanted = sorted(table.metrics["length"][row, :4] + 1)
        assert sizes == wanted
    assert changed, "three trials of four finished episodes, and none was shuffled"
    fresh = policy.new_cache(3, length)
    policy.prefill(history, fresh)
    torch.testing.assert_close(actor.cache.data[..., :length, :], fresh.data[..., :length, :])
    assert torch.equal(actor.cache.episode_ids[:, :length], fresh.episode_ids[:, :length])


@given(st.lists(st.integers(1, 5), min_size=1, max_size=6), st.integers(0, 100))
def test_shuffled_order_keeps_episodes_whole(sizes, seed):
    start = np.zeros(sum(sizes), bool)
    start[np.cumsum([0, *sizes[:-1]])] = True
    order = shuffled_order(start, np.random.default_rng(seed))
    assert sorted(order) == list(range(sum(sizes)))
    for begin, size in zip(np.flatnonzero(start), sizes):
        place = int(np.flatnonzero(order == begin)[0])
        assert order[place : place + size].tolist() == list(range(begin, begin + size))


def test_demonstrations_come_from_the_oracle_and_are_what_the_agent_reads():
    config = ScriptedConfig(longest=3, oracle=True)
    policy = tiny_policy(config)
    actor, _ = watch(policy, config, [0, 1, 2, 3], 3, n_demos=2)
    own = set()
    previous = np.full(4, -1)
    for token, actions, episode in zip(actor.tokens, actor.actions, actor.episodes):
        read = token.prev_action[:, 0].numpy()
        start = token.episode_start[:, 0].numpy()
        np.testing.assert_array_equal(read, np.where(start, -1, previous))
        demo = (episode < 2) & ~token.terminal[:, 0].numpy()
        assert (actions[demo] == 7).all(), "the scripted oracle's action"
        own |= set(actions[~demo & (episode >= 2)].tolist())
        previous = actions - 5
    assert len(own) > 1, "the agent acts for itself afterwards"
    asked = [mask for kind, mask in config.log if kind == "oracle"]
    for mask, token, episode in zip(asked, actor.tokens, actor.episodes):
        np.testing.assert_array_equal(mask, (episode < 2) & ~token.terminal[:, 0].numpy())


def test_demonstrations_of_continuous_actions_are_read_unclipped():
    space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)

    class Env(type(ScriptedConfig().build(1))):
        def __init__(self):
            super().__init__(ScriptedConfig(longest=3, oracle=True), 2)
            self.single_action_space = space

        def oracle_action(self, mask=None):
            return np.array([[0.25, -1.0], [0.5, 1.0]], np.float32)

    env = Env()
    policy = Policy(PolicyConfig(width=16, heads=2), env.single_observation_space, space, 3)
    with Watched(policy, env, 50, n_demos=1) as actor:
        run_trials(env, actor, np.array([2, 2]), TrialLength(2))
    np.testing.assert_array_equal(
        actor.tokens[1].prev_action[:, 0].numpy(), [[0.25, -1.0], [0.5, 1.0]]
    )
    assert np.abs(actor.actions[-1]).max() <= 1.0


@pytest.mark.parametrize("training", [True, False])
def test_the_policy_keeps_its_mode(training):
    policy = tiny_policy(DARKROOM).train(training)
    env = DARKROOM.build(1)
    with PolicyActor(policy, env, 10):
        assert not policy.training
    assert policy.training is training


def test_misfits_are_named():
    policy = tiny_policy(DARKROOM)
    check_fit(policy, DARKROOM.build(2))
    with pytest.raises(ConfigError, match="observation 'position'"):
        check_fit(policy, DarkroomConfig(dim=5, horizon=6).build(1))
    with pytest.raises(ConfigError, match="max_episode_steps=6"):
        check_fit(policy, DarkroomConfig(dim=4, horizon=7).build(1))
    check_fit(policy, DarkroomConfig(dim=4, horizon=5).build(1))
    env = DARKROOM.build(1)
    env.single_action_space = gym.spaces.Discrete(3)
    with pytest.raises(ConfigError, match="its actions are"):
        check_fit(policy, env)


def test_what_a_policy_ignores_may_differ():
    env = DARKROOM.build(2)
    more = {"extra": gym.spaces.Discrete(7), **env.single_observation_space.spaces}
    config = PolicyConfig(width=8, heads=2, mlp_width=8, ignore=("extra",))
    policy = Policy(config, gym.spaces.Dict(more), env.single_action_space, env.max_episode_steps)
    check_fit(policy, env)
    with pytest.raises(ConfigError, match="observation 'extra'"):
        check_fit(
            Policy(
                PolicyConfig(width=8, heads=2, mlp_width=8),
                gym.spaces.Dict(more),
                env.single_action_space,
                env.max_episode_steps,
            ),
            env,
        )


def test_noise_belongs_to_the_trial():
    many = TrialNoise(3, "actions", np.array([4, 9, 2]), 2)
    one = TrialNoise(3, "actions", np.array([9]), 2)
    drawn = [many.draw()[1] for _ in range(150)]
    np.testing.assert_array_equal(drawn, [one.draw()[0] for _ in range(150)])
    numbers = np.array(drawn)
    assert len(np.unique(numbers)) == 300
    assert ((numbers > 0) & (numbers < 1)).all()
    other = TrialNoise(4, "actions", np.array([9]), 2).draw()[0]
    assert (other != drawn[0]).all()


def noise(count: int, width: int) -> np.ndarray:
    return np.random.default_rng(0).random((count, width)).clip(1e-12, 1 - 1e-12)


def test_sampling_from_noise_follows_the_distribution():
    policy = tiny_policy(DARKROOM)
    logits = torch.tensor([1.0, 0.0, -1.0, 2.0, -3.0])
    rows = logits.expand(20000, 5)
    drawn, log_prob = policy.actor.sample(rows, None, False, torch.tensor(noise(20000, 1)))
    frequencies = torch.bincount(drawn, minlength=5) / 20000
    torch.testing.assert_close(frequencies, logits.softmax(-1), atol=0.012, rtol=0)
    torch.testing.assert_close(log_prob, logits.log_softmax(-1)[drawn])
    # The ends of the open interval give the first and the last action, never one out of range.
    ends = torch.tensor([[2.0**-54], [1 - 2.0**-53]], dtype=torch.float64)
    assert policy.actor.sample(rows[:2], None, False, ends)[0].tolist() == [0, 4]


def test_sampling_of_several_and_of_continuous_actions_from_noise():
    observations = DARKROOM.build(1).single_observation_space
    several = Policy(PolicyConfig(), observations, gym.spaces.MultiDiscrete([2, 3]), 6)
    assert several.actor.noise_size == 2
    given_noise = torch.tensor([[0.4, 0.99], [0.6, 0.01]])
    drawn, _ = several.actor.sample(torch.zeros(2, 5), None, False, given_noise)
    assert drawn.tolist() == [[0, 2], [1, 0]]
    box = gym.spaces.Box(-2.0, 2.0, (3,), np.float32)
    continuous = Policy(PolicyConfig(), observations, box, 6)
    assert continuous.actor.noise_size == 3
    means = torch.tensor([0.5, -0.5, 0.0]).expand(20000, 3)
    drawn, _ = continuous.actor.sample(means, None, False, torch.tensor(noise(20000, 3)))
    torch.testing.assert_close(drawn.mean(dim=0), means[0], atol=0.03, rtol=0)
    torch.testing.assert_close(drawn.std(dim=0), continuous.actor.std(), atol=0.03, rtol=0)


@pytest.mark.parametrize(
    "space",
    [
        gym.spaces.Discrete(4, start=-1),
        gym.spaces.MultiDiscrete([3, 5], start=[2, -2]),
        gym.spaces.Box(np.float32([-1, 0]), np.float32([1, 0.5])),
        gym.spaces.Box(-np.inf, np.inf, (2, 2), np.float32),
    ],
    ids=str,
)
def test_random_actions_are_legal_and_cover_the_space(space):
    width = max(1, int(np.prod(space.shape)))
    actions = uniform_actions(space, noise(2000, width))
    assert actions.shape == (2000, *space.shape)
    assert all(space.contains(action) for action in actions)
    low, high = actions.min(axis=0), actions.max(axis=0)
    if isinstance(space, gym.spaces.Discrete):
        assert (low, high) == (-1, 2)
    elif isinstance(space, gym.spaces.MultiDiscrete):
        assert (low.tolist(), high.tolist()) == ([2, -2], [4, 2])
    elif np.isfinite(space.low).all():
        np.testing.assert_allclose(low, space.low, atol=0.02)
        np.testing.assert_allclose(high, space.high, atol=0.02)
    else:
        assert abs(actions.std() - 1) < 0.05
