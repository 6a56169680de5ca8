"""The wrapper that turns plain Gymnasium environments into trial environments."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from embodied_icrl.common.config import build
from embodied_icrl.common.errors import ConfigError, ObservationError
from embodied_icrl.common.seeds import task_rng
from embodied_icrl.envs.trial_env import TrialEnv, TrialEnvConfig
from tests.envs.protocol import CHECKS, assert_obs_equal, play, random_actions
from tests.envs.user_envs import (
    ACTIONS,
    CELLS,
    OBSERVATIONS,
    Ring,
    Stateless,
    ring_config,
    sample_drift,
    sample_task,
    stateless_config,
)

BODY = {"cell": 3, "noise": np.zeros(2)}
KINDS = [("dict", "discrete"), ("box", "multi_discrete"), ("image", "box")]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))
@pytest.mark.parametrize("kind", KINDS, ids="-".join)
def test_protocol(kind, check):
    observations, actions = kind
    check(ring_config(observations=observations, actions=actions).build)


def ring_env(num_envs=2, make_env=Ring, **kwargs):
    kwargs.setdefault("max_episode_steps", 8)
    return TrialEnv(make_env, sample_task, num_envs, **kwargs)


class TestSpaces:
    def test_nested_observations_are_flattened_with_dotted_keys(self):
        env = ring_config(observations="dict").build(3)
        assert set(env.single_observation_space) == {"camera", "body.cell", "body.noise"}
        assert env.single_observation_space["body.cell"] == spaces.Discrete(CELLS)
        obs, _ = env.reset()
        assert obs["camera"].shape == (3, 16, 12, 3) and obs["camera"].dtype == np.uint8
        assert obs["body.cell"].shape == (3,) and obs["body.cell"].dtype == np.int64
        assert obs["body.noise"].shape == (3, 2) and obs["body.noise"].dtype == np.float32

    @pytest.mark.parametrize("observations", [o for o in OBSERVATIONS if o != "dict"])
    def test_other_observations_get_one_key(self, observations):
        env = ring_config(observations=observations).build(2)
        assert list(env.single_observation_space) == ["observation"]
        obs, _ = env.reset()
        assert env.observation_space.contains(obs)

    def test_values_reach_the_right_row_and_lose_their_start_offset(self):
        env = ring_config(observations="dict").build(4)
        obs, _ = env.reset()
        for row, slot in enumerate(env._slots):
            assert obs["body.cell"][row] == slot.env.cell
            assert obs["camera"][row, 1, 0, 0] == 20 * slot.env.cell

    @pytest.mark.parametrize("actions", ACTIONS)
    def test_actions_arrive_row_by_row(self, actions):
        env = ring_config(actions=actions).build(3)
        env.reset()
        sent = random_actions(env, 8)
        for batch in sent:
            env.step(batch)
            batch[...] = 0  # the caller may reuse its array
        again = random_actions(env, 8)
        for row, slot in enumerate(env._slots):
            # An episode may end before: then one action in between has no effect.
            first = [np.asarray(a) for a in slot.env.seen[:1]]
            np.testing.assert_array_equal(first[0], again[0][row])
            assert all(env.single_action_space.contains(np.asarray(a)) for a in slot.env.seen)

    @pytest.mark.parametrize(
        ("space", "advice"),
        [
            (spaces.Box(-np.inf, np.inf, (2,)), "low and high"),
            (spaces.Box(-1, 1, (2, 2)), "one-dimensional"),
            (spaces.Box(0, 5, (2,), np.int32), "float"),
            (spaces.MultiDiscrete([[2, 2], [3, 3]]), "one dimension"),
            (spaces.MultiBinary(3), "Discrete, MultiDiscrete or Box"),
            (spaces.Tuple([spaces.Discrete(2)]), "Discrete, MultiDiscrete or Box"),
        ],
    )
    def test_unusable_action_spaces(self, space, advice):
        def make_env():
            env = Ring()
            env.action_space = space
            return env

        with pytest.raises(ConfigError, match=advice):
            ring_env(make_env=make_env)

    @pytest.mark.parametrize(
        ("space", "advice"),
        [
            (spaces.Text(5), "'observation' is a Text"),
            (spaces.Dict({"a": spaces.Dict({"b": spaces.MultiBinary(2)})}), "'a.b'"),
            (spaces.Box(0, 1, (2,), np.bool_), "bool"),
            (
                spaces.Dict({"a.b": spaces.Discrete(2), "a": spaces.Dict(b=spaces.Discrete(3))}),
                "rename",
            ),
            (spaces.Dict({}), "empty"),
        ],
    )
    def test_unusable_observation_spaces(self, space, advice):
        def make_env():
            env = Ring()
            env.observation_space = space
            return env

        with pytest.raises(ConfigError, match=advice):
            ring_env(make_env=make_env)

    @pytest.mark.parametrize(
        ("observation", "advice"),
        [
            ({"camera": np.zeros((16, 12, 3), np.uint8)}, "no key 'body.cell'"),
            (np.zeros(3), "no key"),
            (
                {"camera": np.zeros(3, np.uint8), "body": BODY},
                r"'camera'.*shape \(3,\).*\(16, 12, 3\)",
            ),
            ({"camera": np.zeros((16, 12, 3)), "body": BODY}, "'camera'.*float64.*uint8"),
            ({"camera": np.uint8(0), "body": BODY}, r"'camera'.*shape \(\)"),
            ({"body": {"cell": 3.5, "noise": np.zeros(2)}}, "'body.cell'.*float64.*int64"),
        ],
    )
    def test_observations_that_break_their_promise(self, observation, advice):
        class Liar(Ring):
            def step(self, action):
                return observation, 0.0, False, False, {}

        env = ring_env(make_env=Liar)
        env.reset()
        with pytest.raises(ObservationError, match=advice) as caught:
            env.step(np.zeros(2, dtype=int))
        assert "environment 0 (task 0, episode 0, step 1)" in str(caught.value)

    @pytest.mark.parametrize(
        "actions",
        [
            np.zeros(3, dtype=int),
            np.zeros(2),
            np.array([0, 2]),
            np.array([-2, 0]),
            np.zeros((2, 1)),
        ],
    )
    def test_wrong_actions_reach_no_environment(self, actions):
        env = ring_env()
        env.reset()
        with pytest.raises(ValueError, match="action"):
            env.step(actions)
        assert all(slot.steps == 0 for slot in env._slots)


class TestEpisodes:
    def test_success_anywhere_or_at_the_end_or_not_at_all(self):
        class Flicker(Stateless):
            """Succeeds at its second step of four."""

            def reset(self, **kwargs):
                self.t = 0
                return super().reset(**kwargs)

            def step(self, action):
                self.t += 1
                *result, _ = super().step(action)
                return *result, ({"success": np.bool_(True)} if self.t == 2 else {})

        outcome = {}
        for rule in ("any", "end", "none"):
            env = TrialEnv(Flicker, sample_drift, 1, max_episode_steps=4, success=rule)
            env.reset()
            outcome[rule] = play(env, [np.zeros(1, dtype=int)] * 4)[-1][-1]["episode"]
        assert outcome["any"]["success"].tolist() == [True]
        assert outcome["end"]["success"].tolist() == [False]
        assert "success" not in outcome["none"]

    def test_success_does_not_leak_into_the_next_episode(self):
        env = ring_env(1)
        env.reset()
        successes = []
        while len(successes) < 4:
            # Alternately the oracle's episodes and idle ones away from the target.
            oracle = len(successes) % 2 == 0
            if not oracle:
                env._slots[0].env.cell = (env._slots[0].env.target + 1) % CELLS
            *_, info = env.step(env.oracle_action() if oracle else np.zeros(1, dtype=int))
            if "episode" in info:
                successes.append(bool(info["episode"]["success"][0]))
        assert successes == [True, False, True, False]

    def test_infos_of_the_environment(self):
        env = ring_env(2)
        env.reset()
        env._slots[0].env.cell = env._slots[0].env.target
        env._slots[1].env.cell = (env._slots[1].env.target + 1) % CELLS
        *_, info = env.step(np.zeros(2, dtype=int))
        assert info["sparse_reward"].dtype == np.float32
        assert info["sparse_reward"].tolist() == [1.0, 0.0]
        assert info["_episode"].tolist() == [True, False]
        assert info["episode"]["spl"].tolist() == [0.5, 0.0]
        *_, info = env.step(np.zeros(2, dtype=int))
        assert info["sparse_reward"].tolist() == [0.0, 0.0]

    def test_horizon_from_the_spec_or_given(self):
        def make_env():
            return gym.make("CartPole-v1", max_episode_steps=7)

        def steady(env, task):
            env.unwrapped.force_mag = 0.0

        env = TrialEnv(make_env, sample_task, 1, apply_task=steady)
        assert env.max_episode_steps == 7
        env.reset()
        truncated = [step[3][0] for step in play(env, [np.zeros(1, dtype=int)] * 8)]
        assert truncated == [False] * 6 + [True, False]
        assert TrialEnv(make_env, sample_task, 1, max_episode_steps=3).max_episode_steps == 3
        with pytest.raises(ConfigError, match="max_episode_steps"):
            TrialEnv(Ring, sample_task, 1)
        with pytest.raises(ConfigError, match="at least 1"):
            TrialEnv(Ring, sample_task, 1, max_episode_steps=0)

    def test_termination_wins_over_truncation(self):
        class Both(Stateless):
            def step(self, action):
                *result, _, _, info = super().step(action)
                return *result, True, True, info

        env = TrialEnv(Both, sample_drift, 1, max_episode_steps=4)
        env.reset()
        _, _, terminated, truncated, _ = env.step(np.zeros(1, dtype=int))
        assert terminated.tolist() == [True] and truncated.tolist() == [False]

    @pytest.mark.parametrize("reward", [np.nan, np.inf])
    def test_reward_must_be_finite(self, reward):
        class Bad(Stateless):
            def step(self, action):
                return super().step(action)[0], reward, False, False, {}

        env = TrialEnv(Bad, sample_drift, 2, max_episode_steps=4)
        env.reset()
        with pytest.raises(ObservationError, match="environment 0 .*step 0"):
            env.step(np.zeros(2, dtype=int))


class TestTasks:
    def test_tasks_depend_on_split_seed_and_index(self):
        seen = []

        def sampler(rng, split, index):
            seen.append((split, index, rng.integers(2**40)))
            return {"target": 0}

        env = TrialEnv(Ring, sampler, 2, split="test", seed=4, max_episode_steps=8)
        env.reset()
        env.reset(options={"new_trial": True})
        assert seen == [("test", i, task_rng("test", 4, i).integers(2**40)) for i in (0, 1, 2, 3)]

    def test_the_task_stays_for_the_trial_and_goes_with_it(self):
        env = TrialEnv(Ring, sample_task, 6, max_episode_steps=8)
        env.reset()
        targets = [slot.env.target for slot in env._slots]
        play(env, random_actions(env, 30))
        env.reset()
        assert [slot.env.target for slot in env._slots] == targets
        env.reset(options={"new_trial": True})
        assert [slot.env.target for slot in env._slots] != targets

    def test_apply_task_is_called_once_per_trial(self):
        calls = []

        def apply_task(env, task):
            calls.append((env, task["id"]))
            env.unwrapped.length = 0.5

        env = TrialEnv(
            lambda: gym.make("CartPole-v1", max_episode_steps=4),
            sample_task,
            2,
            apply_task=apply_task,
        )
        env.reset()
        play(env, random_actions(env, 12))
        env.reset(options={"new_trial": True})
        assert [task for _, task in calls] == [0, 1, 2, 3]
        assert calls[0][0] is calls[2][0] is env._slots[0].env

    def test_an_environment_that_ignores_its_task_is_an_error(self):
        env = TrialEnv(lambda: gym.make("CartPole-v1"), sample_task, 1)
        with pytest.raises(ConfigError, match="CartPole.*options.*apply_task"):
            env.reset()

    @pytest.mark.parametrize(
        "read",
        [
            lambda options: options["task"],
            lambda options: options.get("task"),
            lambda options: options.pop("task"),
            lambda options: dict(options)["task"],
            lambda options: {**options}["task"],
            lambda options: options.copy()["task"],
            lambda options: (options | {})["task"],
            lambda options: ({} | options)["task"],
            lambda options: list(options.items())[0][1],
            lambda options: list(options.values())[0],
        ],
    )
    def test_every_way_to_read_the_task_counts(self, read):
        tasks = []

        class Reader(Stateless):
            def reset(self, *, seed=None, options=None):
                tasks.append(read(options))
                return np.zeros(1), {}

        env = TrialEnv(Reader, sample_drift, 1, max_episode_steps=4)
        env.reset()
        assert tasks == [sample_drift(task_rng("train", 0, 0), "train", 0)]

    def test_an_environment_may_remember_its_task(self):
        """Reading it once is enough: an environment may skip it where no task is new to it."""

        class Lazy(Stateless):
            drift = None

            def reset(self, *, seed=None, options=None):
                if self.drift is None:
                    self.drift = options["task"]
                return np.zeros(1), {}

        env = TrialEnv(Lazy, sample_drift, 1, max_episode_steps=4)
        env.reset()
        env.reset()


class TestFaults:
    def test_an_exception_says_where_it_came_from(self):
        class Breaks(Ring):
            def step(self, action):
                if self.target == 3:
                    raise ZeroDivisionError("a user's bug")
                return super().step(action)

        env = TrialEnv(
            Breaks,
            lambda rng, split, index: {"target": 3 if index == 6 else 0},
            3,
            first_index=5,
            total_envs=9,
            max_episode_steps=8,
        )
        env.reset()
        with pytest.raises(ZeroDivisionError) as caught:
            env.step(np.zeros(3, dtype=int))
        assert caught.value.env_index == 6
        assert "environment 6 (task 6, episode 0, step 0)" in caught.value.__notes__[0]
        assert "seed 0" in caught.value.__notes__[0]

    def test_an_exception_while_building(self):
        built = []

        def make_env():
            if len(built) == 1:
                raise RuntimeError("no display")
            built.append(1)
            return Ring()

        with pytest.raises(RuntimeError, match="no display") as caught:
            ring_env(make_env=make_env)
        assert caught.value.__notes__ == ["while building environment 1"]

    def test_make_env_must_build_new_equal_environments(self):
        ring = Ring()
        with pytest.raises(ConfigError, match="same environment twice"):
            ring_env(make_env=lambda: ring)
        kinds = iter(("box", "image"))
        with pytest.raises(ConfigError, match="observation_space of environment 1"):
            ring_env(make_env=lambda: Ring(next(kinds)))
        with pytest.raises(ConfigError, match="must return a new gymnasium.Env"):
            ring_env(make_env=lambda: object())

    @pytest.mark.parametrize("num_envs", [0, -1])
    def test_at_least_one_environment(self, num_envs):
        with pytest.raises(ConfigError):
            ring_env(num_envs)

    def test_close_reaches_every_environment(self):
        closed = []

        class Closing(Ring):
            def close(self):
                closed.append(self)

        env = ring_env(3, make_env=Closing)
        env.close()
        env.close()
        assert len(closed) == 3


class TestWithoutExtras:
    def test_no_oracle_no_pictures(self):
        env = stateless_config().build(2)
        env.reset()
        assert not env.has_oracle
        for call in (env.oracle_action, env.optimal_return, lambda: env.render_state(0)):
            with pytest.raises(NotImplementedError):
                call()

    def test_state_at_the_end_of_a_trial(self):
        """Without the environments' help, a state can be taken up at the next trial."""
        env, other = stateless_config().build(2), stateless_config().build(2)
        assert not env.can_save_state
        env.reset()
        env.reset(options={"new_trial": True})
        play(env, random_actions(env, 9))
        other.set_state(env.get_state())
        with pytest.raises(gym.error.ResetNeeded):
            other.step(np.zeros(2, dtype=int))
        with pytest.raises(ConfigError, match="reset_mask"):
            other.reset(options={"reset_mask": np.array([True, False])})
        actions = random_actions(env, 12)
        expected = env.reset(options={"new_trial": True})
        got = other.reset()
        assert_obs_equal(expected[0], got[0])
        np.testing.assert_array_equal(expected[1]["task_id"], got[1]["task_id"])
        for ours, theirs in zip(play(env, actions), play(other, actions), strict=True):
            assert_obs_equal(ours[0], theirs[0])

    def test_a_state_from_inside_a_trial_is_refused(self):
        env = ring_env(2)
        env.reset()
        state = env.get_state()
        with pytest.raises(ConfigError, match="get_state"):
            stateless_config().build(2).set_state(state)
        with pytest.raises(ConfigError, match="2 environments, not 3"):
            ring_env(3).set_state(state)
        with pytest.raises(ConfigError, match="split"):
            ring_env(2, split="test").set_state(state)


class TestTimeLimit:
    def test_a_state_goes_through_wrappers(self):
        """TimeLimit counts from a restored state anew; the episode still ends in time."""

        def make_env():
            return gym.wrappers.TimeLimit(Ring("box"), 8)

        env, other = ring_env(2, make_env=make_env), ring_env(2, make_env=make_env)
        env.reset()
        actions = random_actions(env, 25)
        play(env, actions[:5])
        other.reset()
        play(other, actions[:7])
        other.set_state(env.get_state())
        for ours, theirs in zip(play(env, actions[5:]), play(other, actions[5:]), strict=True):
            assert_obs_equal(ours[0], theirs[0])
            np.testing.assert_array_equal(ours[3], theirs[3])


class TestConfig:
    NODE = {
        "_target_": "embodied_icrl.envs.trial_env.TrialEnvConfig",
        "make_env": "bandit.make_env",
        "make_env_kwargs": {"arms": 3},
        "task_sampler": "bandit.sample_task",
        "task_sampler_kwargs": {"arms": 3},
        "max_episode_steps": 5,
    }
    FILE = """
import gymnasium, numpy as np

class Bandit(gymnasium.Env):
    def __init__(self, arms):
        self.observation_space = gymnasium.spaces.Discrete(1)
        self.action_space = gymnasium.spaces.Discrete(arms)
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.best_arm = options["task"]
        return 0, {}
    def step(self, action):
        return 0, float(action == self.best_arm), False, False, {}

def make_env(arms):
    return Bandit(arms)

def sample_task(rng, split, index, arms):
    return int(rng.integers(arms))

constant = 3
"""

    @pytest.fixture
    def bandit(self, tmp_path, monkeypatch):
        (tmp_path / "bandit.py").write_text(self.FILE)
        (tmp_path / "broken.py").write_text("import a_package_that_is_not_there\n")
        monkeypatch.syspath_prepend(str(tmp_path))

    @pytest.mark.usefixtures("bandit")
    def test_a_file_beside_the_configuration_is_enough(self):
        config = build(self.NODE)
        assert isinstance(config, TrialEnvConfig)
        env = config.build(4, seed=1)
        env.reset()
        best = np.array([slot.env.best_arm for slot in env._slots])
        _, reward, *_ = env.step(best)
        assert reward.tolist() == [1.0] * 4

    @pytest.mark.usefixtures("bandit")
    @pytest.mark.parametrize(
        ("key", "value", "advice"),
        [
            ("make_env", "make_env", "make_env: 'make_env' names no module"),
            ("make_env", "bandits.make_env", "no module 'bandits'.*--config-dir"),
            ("make_env", "bandit.inner.make_env", "no module 'bandit.inner'"),
            ("task_sampler", "bandit.sample_tasks", "did you mean 'sample_task'"),
            ("apply_task", "bandit.constant", "apply_task: .*is a int, not a function"),
        ],
    )
    def test_names_that_lead_nowhere(self, key, value, advice):
        with pytest.raises(ConfigError, match=advice):
            build({**self.NODE, key: value}).build(1)

    @pytest.mark.usefixtures("bandit")
    def test_an_error_inside_the_users_file_passes_through(self):
        with pytest.raises(ModuleNotFoundError, match="a_package_that_is_not_there"):
            build({**self.NODE, "make_env": "broken.make_env"}).build(1)

    def test_splits_are_those_of_the_config(self):
        config = TrialEnvConfig(
            make_env="tests.envs.user_envs.Ring",
            task_sampler="tests.envs.user_envs.sample_task",
            max_episode_steps=8,
            splits=("easy", "hard"),
        )
        assert config.build(1, split="hard").num_envs == 1
        with pytest.raises(ConfigError, match="'train'.*easy, hard"):
            config.build(1)
