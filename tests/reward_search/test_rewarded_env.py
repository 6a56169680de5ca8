"""A found reward in use: in the sandbox and out of it, and what goes wrong with each."""

from __future__ import annotations

import copy
import gc
import os
import pickle
import re
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

from embodied_icrl.common.errors import ConfigError
from embodied_icrl.manipulation.fields import Field, StateLayout
from embodied_icrl.manipulation.planar_reach import PlanarReach
from embodied_icrl.manipulation.task_env import RewardError, TaskEnv
from embodied_icrl.reward_search.loading import load_reward
from embodied_icrl.reward_search.rewarded_env import LocalReward, RewardedEnv
from embodied_icrl.reward_search.sandbox import Limits, available_layers
from embodied_icrl.reward_search.sandbox_session import RewardSession
from embodied_icrl.reward_search.sandbox_session_child import HEADER, MAX_FRAME

TASK = PlanarReach(horizon=20)
FLAT = np.linspace(0.1, 0.4, StateLayout(TASK.fields).size)


def reward(body: str) -> str:
    return "def compute_reward(state):\n" + "".join(f"    {line}\n" for line in body.split("\n"))


@pytest.fixture
def human(tmp_path) -> Path:
    path = tmp_path / "reward.py"
    path.write_text(TASK.human_reward)
    return path


@pytest.fixture
def session():
    """Makes sessions and ends them."""
    made: list[RewardSession] = []

    def make(source: str = TASK.human_reward, **options) -> RewardSession:
        made.append(RewardSession(source, TASK.fields, **options))
        return made[-1]

    yield make
    for one in made:
        one.close()


def alive(pid: int) -> bool:
    status = Path(f"/proc/{pid}/stat")
    return status.exists() and status.read_text().split()[2] != "Z"


def wait_for(condition, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


# --- the wrapper


@pytest.mark.parametrize("sandbox", [True, False])
def test_a_tasks_reward_is_what_training_saw(sandbox, human):
    wrapped = RewardedEnv(TASK, human, sandbox=sandbox)
    direct = TaskEnv(TASK, load_reward(TASK.human_reward))
    rng = np.random.default_rng(0)
    assert np.array_equal(wrapped.reset(seed=3)[0], direct.reset(seed=3)[0])
    for _ in range(TASK.horizon):
        action = rng.uniform(-1, 1, 2).astype(np.float32)
        observation, total, _, truncated, info = wrapped.step(action)
        expected = direct.step(action)
        assert np.array_equal(observation, expected[0])
        assert total == expected[1] and info["components"] == dict(expected[4]["components"])
        assert type(total) is float and info["original_reward"] == 0.0
    assert truncated and "fitness" in info
    wrapped.close()
    direct.close()


class Point(gym.Env):
    """A user's own environment, which knows nothing of tasks."""

    observation_space = gym.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gym.spaces.Box(-1, 1, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = self.np_random.uniform(-1, 1)
        return np.array([self.place], np.float32), {}

    def step(self, action):
        self.place = float(np.clip(self.place + 0.1 * action[0], -1, 1))
        return np.array([self.place], np.float32), 7.0, False, False, {"kept": 1}


FIELDS = [Field("place", (), "m", "where it is"), Field("action", (1,), "-", "the action")]


def read_point(env, observation, action):
    return {"place": env.unwrapped.place, "action": action}


def own(path: Path, **options) -> RewardedEnv:
    path.write_text(reward('return -abs(state.place), {"place": state.place}'))
    return RewardedEnv(Point(), path, **{"fields": FIELDS, "read_state": read_point, **options})


def test_any_environment_with_a_function_that_reads_the_fields(tmp_path):
    env = own(tmp_path / "r.py")
    env.reset(seed=0)
    observation, total, _, _, info = env.step(np.array([1.0], np.float32))
    assert total == pytest.approx(-abs(observation[0]))
    assert info == {
        "kept": 1,
        "components": {"place": pytest.approx(observation[0])},
        "original_reward": 7.0,
    }
    env.close()


def test_wrong_fields_are_said_to_be_wrong(tmp_path):
    path = tmp_path / "r.py"
    env = own(path, sandbox=False, read_state=lambda env, observation, action: {"place": 1.0})
    env.reset(seed=0)
    with pytest.raises(ConfigError, match="'action' was not read"):
        env.step(np.zeros(1, np.float32))
    with pytest.raises(ConfigError, match="give fields and read_state"):
        RewardedEnv(Point(), path)
    with pytest.raises(ConfigError, match="both fields and read_state"):
        RewardedEnv(Point(), path, fields=FIELDS)
    with pytest.raises(ConfigError, match="nowhere.py: No such file"):
        RewardedEnv(TASK, tmp_path / "nowhere.py")
    path.write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="not UTF-8"):
        RewardedEnv(TASK, path)


def test_training_with_stable_baselines(human):
    from stable_baselines3 import PPO
    from stable_baselines3.common.vec_env import DummyVecEnv

    venv = DummyVecEnv([lambda: RewardedEnv(TASK, human) for _ in range(2)])
    model = PPO("MlpPolicy", venv, n_steps=20, batch_size=20, n_epochs=1, device="cpu", seed=0)
    model.learn(40)
    assert model.num_timesteps == 40
    children = [env.unwrapped and env.reward_function.pid for env in venv.envs]
    assert len(set(children)) == 2 and all(map(alive, children))
    venv.close()
    wait_for(lambda: not any(map(alive, children)))


# --- the session


@pytest.mark.parametrize("sandbox", [True, False])
@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("return 1.0 / 0.0, {}", "ZeroDivisionError"),
        ("return np.log(-1.0), {}", "the reward is nan"),
        ("return np.ones(3), {}", "the reward raised"),
        ("return 1.0", "the reward raised"),
        ("return 1.0, {'a': 'b'}", "the reward raised"),
        ("return state.tip_position[5], {}", "IndexError"),
    ],
)
def test_errors_of_a_reward_are_said_and_the_next_call_works(sandbox, body, message):
    source = reward(f"if state.action[0] > 0.0:\n    {body}\nreturn 1.0, {{}}")
    function = (RewardSession if sandbox else LocalReward)(source, TASK.fields)
    with pytest.raises(RewardError, match=message):
        function.ask(FLAT)
    assert function.ask(-FLAT) == (1.0, {})
    function.close()


@pytest.mark.parametrize("kind", [RewardSession, LocalReward])
def test_code_that_the_static_check_refuses_starts_nothing(kind):
    with pytest.raises(RewardError, match="refused: import"):
        kind("import os\n" + reward("return 1.0, {}"), TASK.fields)


def test_code_that_fails_where_it_is_loaded(session):
    with pytest.raises(RewardError, match="ZeroDivisionError"):
        session("X = 1 / 0\n" + reward("return 1.0, {}")).ask(FLAT)


def test_components_may_change_from_call_to_call(session):
    one = session(reward("if state.action[0] > 0.0:\n    return 1.0, {'a': 2.0}\nreturn 1.0, {}"))
    assert [one.ask(x)[1] for x in (FLAT, -FLAT, FLAT)] == [{"a": 2.0}, {}, {"a": 2.0}]


def test_too_many_components_are_refused(session):
    one = session(reward("return 1.0, {str(i): 1.0 for i in range(99)}"))
    with pytest.raises(RewardError, match="at most 32 components"):
        one.ask(FLAT)


def test_an_endless_call_is_ended_and_the_next_has_a_process_of_its_own(session):
    loop = "".join(f"{'    ' * i}for i{i} in range(9999):\n" for i in range(3))
    source = reward(f"x = 0.0\nif state.action[0] < 0.0:\n    return 1.0, {{}}\n{loop}"
                    f"{'    ' * 3}x += 1.0\nreturn x, {{}}")  # fmt: skip
    one = session(source, call_s=3.0)
    assert one.ask(-FLAT)[0] == 1.0
    first = one.pid
    with pytest.raises(RewardError, match="no answer within 3 s"):
        one.ask(FLAT)
    assert first is not None and not alive(first)
    assert one.ask(-FLAT)[0] == 1.0 and one.pid != first


def test_the_death_of_the_child_is_said(session):
    one = session()
    expected = one.ask(FLAT)
    assert one.pid is not None
    os.kill(one.pid, 9)
    wait_for(lambda: not alive(one.pid))

    def ask_until_it_fails() -> bool:
        # What bubblewrap started may outlive it by a moment.
        try:
            one.ask(FLAT)
        except RewardError as error:
            return "process ended: killed by signal 9" in str(error)
        return False

    wait_for(ask_until_it_fails)
    assert one.ask(FLAT) == expected


def test_memory_is_limited(session):
    body = "x = np.ones((3000, 3000))\nreturn float(np.sum(x)), {}"
    one = session(reward(body), limits=Limits(memory_mib=60, cpu_s=60))
    with pytest.raises(RewardError):
        one.ask(FLAT)


def test_the_child_is_confined(session):
    if not available_layers().seccomp:
        pytest.skip("this machine has no seccomp")
    one = session()
    one.ask(FLAT)
    children = Path(f"/proc/{one.pid}/task/{one.pid}/children").read_text().split()
    innermost = one.pid
    while children:
        innermost = int(children[-1])
        children = Path(f"/proc/{innermost}/task/{innermost}/children").read_text().split()
    status = dict(
        line.split(":\t", 1) for line in Path(f"/proc/{innermost}/status").read_text().splitlines()
        if ":\t" in line
    )  # fmt: skip
    assert status["Seccomp"] == "2" and status["NoNewPrivs"] == "1"
    if available_layers().user:
        assert "0" not in status["Uid"].split()


# What a child that broke out of its rules could write, in place of an answer.
FORGERIES = {
    "too long": HEADER.pack(b"V", MAX_FRAME + 1),
    "another kind": HEADER.pack(b"?", 0),
    "values without names": HEADER.pack(b"V", 8) + bytes(8),
    "names without end": (HEADER.pack(b"N", 2) + b"[]") * 3,
    "names that are none": HEADER.pack(b"N", 3) + b"[1]" + HEADER.pack(b"V", 16) + bytes(16),
    "no JSON": HEADER.pack(b"N", 2) + b"[[",
    "more than one": HEADER.pack(b"N", 2) + b"[]" + (HEADER.pack(b"V", 8) + bytes(8)) * 2,
    "wrong number": HEADER.pack(b"N", 5) + b'["a"]' + HEADER.pack(b"V", 8) + bytes(8),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_forged_answers_are_refused(name, session):
    one = session()
    one.ask(FLAT)
    child = one._child
    assert child is not None
    child._names = None
    reading, writing = os.pipe()
    child._poll.register(reading, 1)
    child._poll.unregister(child._from)
    child._from = reading
    os.write(writing, FORGERIES[name])
    try:
        with pytest.raises(RewardError):
            one.ask(FLAT)
        assert one.pid is None  # never to be listened to again
    finally:
        os.close(reading)
        os.close(writing)


def test_copies_and_pickles_have_processes_of_their_own(session, tmp_path):
    one = session()
    expected = one.ask(FLAT)
    others = [copy.copy(one), copy.deepcopy(one), pickle.loads(pickle.dumps(one))]
    assert [other.pid for other in others] == [None] * 3
    assert all(other.ask(FLAT) == expected for other in others)
    pids = [other.pid for other in (one, *others)]
    assert len(set(pids)) == 4
    others.clear()
    gc.collect()
    wait_for(lambda: not any(map(alive, pids[1:])))
    assert one.ask(FLAT) == expected
    local = pickle.loads(pickle.dumps(LocalReward(TASK.human_reward, TASK.fields)))
    assert local.ask(FLAT) == expected
    env = own(tmp_path / "r.py")
    twin = pickle.loads(pickle.dumps(env))
    twin.reset(seed=0)
    twin.step(np.zeros(1, np.float32))
    twin.close()


FORK = """
import os
import numpy as np
from embodied_icrl.manipulation.planar_reach import PlanarReach
from embodied_icrl.reward_search.sandbox_session import RewardSession

one = RewardSession(PlanarReach.human_reward, PlanarReach.fields)
flat = np.linspace(0.1, 0.4, one.layout.size)
expected, pid = one.ask(flat), one.pid
forked = os.fork()
if forked == 0:
    same = one.ask(flat) == expected and one.ask(flat) == expected and one.pid != pid
    one.close()
    os._exit(0 if same else 1)
assert os.waitpid(forked, 0)[1] == 0
assert one.ask(flat) == expected and one.pid == pid
"""


def test_a_forked_process_has_a_child_of_its_own():
    # In a process without the threads of this one, which a fork would stop anywhere.
    subprocess.run([sys.executable, "-c", FORK], check=True, timeout=120)


def examples() -> list[str]:
    """The blocks of code in the wrapper's docstring."""
    text = textwrap.dedent(f"    {RewardedEnv.__doc__}")
    blocks = re.findall(r"::\n\n((?:    .*\n|\n)+)", text)
    return [textwrap.dedent(block) for block in blocks]


def test_the_documented_example_of_a_task_works(tmp_path, monkeypatch):
    import stable_baselines3

    monkeypatch.chdir(tmp_path)
    path = tmp_path / "runs" / "reward_planar_reach_0" / "best" / "reward.py"
    path.parent.mkdir(parents=True)
    path.write_text(TASK.human_reward)
    names = {**globals(), "stable_baselines3": stable_baselines3}
    exec(examples()[0].replace("20_000", "1"), names)
    assert names["model"].num_timesteps == 2048
    names["env"].close()


def test_the_documented_example_of_another_environment_works(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    body = "return -np.linalg.norm(state.tip_position - state.target_position), {}"
    Path("reward.py").write_text(reward(body))
    names = dict(globals())
    exec(examples()[1], names)
    env = names["env"]
    env.reset(seed=0)
    _, total, _, _, info = env.step(np.zeros(2, np.float32))
    assert -0.5 < total < 0.0
    assert info["original_reward"] == pytest.approx(total, abs=0.01)  # of Reacher: the same
    env.close()


def test_a_record_can_be_asked_for_too(session):
    one = session()
    assert one(one.layout.record(FLAT)) == one.ask(FLAT)
    assert TaskEnv(TASK, one).reward is one
