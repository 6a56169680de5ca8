"""Environments in worker processes: equal to those in this process, never a hang or a riddle."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from gymnasium.error import ClosedEnvironmentError, ResetNeeded
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from embodied_icrl.common.errors import ConfigError, WorkerError
from embodied_icrl.envs.darkroom import DarkroomConfig
from embodied_icrl.envs.joining import join_infos, join_states, split_state
from embodied_icrl.envs.vector import make_envs
from tests.envs import protocol
from tests.envs.protocol import (
    assert_obs_equal,
    assert_same_play,
    copy_obs,
    play,
    random_actions,
)
from tests.envs.user_envs import faulty_config, ring_config, stateless_config

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def processes():
    """Builds environments in workers and ends them with the test."""
    made = []

    def make(config, num_envs, workers, **kwargs):
        env = make_envs(config, num_envs, workers=workers, **kwargs)
        made.append(env)
        return env

    yield make
    for env in made:
        env.close()


def children():
    """Process ids of this process's children, zombies included."""
    path = Path(f"/proc/self/task/{os.getpid()}/children")
    return set(path.read_text().split())


def wait_until(condition, seconds=5.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture
def ctrl_c_interrupts():
    """A shell starts background jobs with SIGINT ignored, and children inherit that."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


class TestParity:
    @pytest.mark.parametrize(
        "check",
        [
            protocol.check_bad_input,
            protocol.check_empty_mask_shows_current,
            protocol.check_next_step_autoreset,
            protocol.check_reset_mask,
            protocol.check_state_is_exact,
        ],
        ids=lambda check: check.__name__.removeprefix("check_"),
    )
    def test_protocol(self, processes, check):
        def make(num_envs, **kwargs):
            return processes(DarkroomConfig(horizon=12), num_envs, min(2, num_envs), **kwargs)

        check(make)

    @pytest.mark.parametrize("workers", [1, 2, 3])
    @pytest.mark.parametrize(
        ("observations", "actions"),
        [("dict", "discrete"), ("image", "multi_discrete"), ("box", "box")],
    )
    def test_equals_in_process(self, processes, workers, observations, actions):
        """Four environments of nine, 2 + 1 + 1 in three workers, over two trials."""
        config = ring_config(observations=observations, actions=actions)
        job = {"seed": 5, "split": "test", "first_index": 3, "total_envs": 9}
        here, there = make_envs(config, 4, **job), processes(config, 4, workers, **job)
        assert there.single_observation_space == here.single_observation_space
        assert there.single_action_space == here.single_action_space
        assert there.max_episode_steps == here.max_episode_steps == 8
        assert there.has_oracle and there.can_save_state
        endings = 0
        for options in ({}, {"new_trial": True}):
            a, b = here.reset(options=options), there.reset(options=options)
            assert_obs_equal(a[0], b[0])
            np.testing.assert_array_equal(a[1]["task_id"], b[1]["task_id"])
            for action in random_actions(here, 20):
                best = here.oracle_action()
                np.testing.assert_array_equal(there.oracle_action(), best)
                np.testing.assert_array_equal(there.optimal_return(), here.optimal_return())
                action[1:] = best[1:]
                ours, theirs = play(here, [action]), play(there, [action])
                assert_same_play(ours, theirs)
                assert_same_infos(ours[0][-1], theirs[0][-1])
                endings += int((ours[0][2] | ours[0][3]).sum())
        assert endings > 10
        for row in range(4):
            ours, theirs = here.render_state(row), there.render_state(row)
            np.testing.assert_array_equal(ours.map, theirs.map)
            assert ours.pose == theirs.pose and ours.targets == theirs.targets

    def test_batched_environments_too(self, processes):
        here = make_envs(DarkroomConfig(horizon=9), 5, seed=2)
        there = processes(DarkroomConfig(horizon=9), 5, 3, seed=2)
        assert_obs_equal(here.reset()[0], there.reset()[0])
        actions = random_actions(here, 25)
        assert_same_play(play(here, actions), play(there, actions))

    def test_oracle_only_where_asked(self, processes):
        config = ring_config()
        here, there = make_envs(config, 3), processes(config, 3, 2)
        here.reset(), there.reset()
        mask = np.array([True, False, True])
        np.testing.assert_array_equal(here.oracle_action(mask), there.oracle_action(mask))

    @pytest.mark.parametrize(("before", "after"), [(0, 2), (3, 0), (2, 3)])
    def test_state_moves_between_numbers_of_workers(self, processes, before, after):
        config = ring_config()
        env = processes(config, 4, before, seed=1)
        env.reset(seed=8)
        env.reset(options={"new_trial": True, "reset_mask": np.array([True, False, False, True])})
        actions = random_actions(env, 30)
        play(env, actions[:13])
        state = env.get_state()
        rest = play(env, actions[13:])
        next_tasks = env.reset(options={"new_trial": True})[1]["task_id"]
        other = processes(config, 4, after, seed=1)
        other.set_state(state)
        current = copy_obs(other.reset(options={"reset_mask": np.zeros(4, dtype=bool)})[0])
        assert_obs_equal(current, state["observation"])
        assert_same_play(rest, play(other, actions[13:]))
        theirs = other.reset(options={"new_trial": True})[1]["task_id"]
        np.testing.assert_array_equal(next_tasks, theirs)

    def test_state_at_the_end_of_a_trial(self, processes):
        env, other = (processes(stateless_config(), 3, n) for n in (2, 3))
        assert not env.can_save_state and not env.has_oracle
        env.reset()
        other.set_state(env.get_state())
        with pytest.raises(ResetNeeded):
            other.step(np.zeros(3, dtype=int))
        expected, got = env.reset(options={"new_trial": True}), other.reset()
        assert_obs_equal(expected[0], got[0])
        assert got[1]["task_id"].tolist() == [3, 4, 5]

    def test_what_the_environments_cannot_do_ends_nobody(self, processes):
        env = processes(stateless_config(), 2, 2)
        env.reset()
        for call in (env.oracle_action, env.optimal_return, lambda: env.render_state(1)):
            with pytest.raises(NotImplementedError):
                call()
        env.step(np.zeros(2, dtype=int))


RESETS = st.lists(
    st.fixed_dictionaries(
        {
            "mask": st.lists(st.booleans(), min_size=4, max_size=4),
            "new_trial": st.booleans(),
            "task_ids": st.none() | st.lists(st.integers(0, 50), min_size=4, max_size=4),
            "steps": st.integers(0, 11),
            "seed": st.none() | st.integers(0, 3),
        }
    ),
    min_size=1,
    max_size=4,
)


@pytest.fixture(scope="module")
def pair():
    """Four environments in this process, and the same in three workers."""
    config = ring_config(observations="box")
    with make_envs(config, 4, workers=3) as env:
        yield make_envs(config, 4), env


class TestResets:
    @settings(
        max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None
    )
    @given(resets=RESETS)
    def test_any_run_of_masked_resets_equals_in_process(self, pair, resets):
        here, there = pair
        assert_obs_equal(here.reset(seed=0)[0], there.reset(seed=0)[0])
        for reset in resets:
            options = {"new_trial": reset["new_trial"]}
            if reset["seed"] is None:
                options["reset_mask"] = np.array(reset["mask"])
            if reset["new_trial"] and reset["task_ids"] is not None:
                options["task_ids"] = np.array(reset["task_ids"])
            a = here.reset(seed=reset["seed"], options=options)
            b = there.reset(seed=reset["seed"], options=options)
            assert_obs_equal(a[0], b[0])
            np.testing.assert_array_equal(a[1]["task_id"], b[1]["task_id"])
            actions = random_actions(here, reset["steps"])
            assert_same_play(play(here, actions), play(there, actions))

    def test_bad_options_end_nobody(self, pair):
        _, env = pair
        env.reset()
        with pytest.raises(ConfigError, match="reset_mask"):
            env.reset(options={"reset_mask": np.ones(3, dtype=bool)})
        with pytest.raises(ValueError, match="shape"):
            env.step(np.zeros(3, dtype=int))
        with pytest.raises(IndexError):
            env.render_state(4)
        env.step(np.zeros(4, dtype=int))


def until_it_fails(env, reset=True):
    if reset:
        env.reset()
    for _ in range(3):
        env.step(np.zeros(env.num_envs, dtype=int))


class TestFaults:
    """Task 3 belongs to environment 3: the second worker's second one, of 2 + 2."""

    def test_raise_in_step(self, processes):
        env = processes(faulty_config("raise"), 4, 2, seed=7)
        with pytest.raises(WorkerError) as caught:
            until_it_fails(env)
        text = str(caught.value)
        assert "worker 1 (environments 2 to 3, split 'train', seed 7)" in text
        assert "in environment 3 during 'step'" in text
        assert "RuntimeError: the simulator lost its GPU" in text
        assert "in environment 3 (task 3, episode 0, step 1)" in text
        assert "user_envs.py" in text and "in fail" in text
        assert (caught.value.worker, caught.value.env_index, caught.value.seed) == (1, 3, 7)
        with pytest.raises(WorkerError, match=r"worker 1 .* has ended; call restart_worker\(1\)"):
            env.step(np.zeros(4, dtype=int))

    def test_raise_in_reset(self, processes):
        env = processes(faulty_config("raise", "reset"), 4, 2)
        with pytest.raises(WorkerError, match="in environment 3 during 'reset'"):
            env.reset()

    def test_raise_in_constructor(self):
        before = children()
        with pytest.raises(WorkerError) as caught:
            make_envs(faulty_config("raise", "init"), 4, workers=2, first_index=4, total_envs=8)
        text = str(caught.value)
        assert "worker 0 (environments 4 to 5" in text and "lost its GPU" in text
        assert "while building environment 4" in text
        assert children() == before

    def test_what_the_user_can_put_right_stays_so(self):
        """One line for the terminal; the worker's traceback behind it."""
        config = ring_config(observations="text")
        with pytest.raises(WorkerError, match="KeyError: 'text'"):
            make_envs(config, 2, workers=2)
        with pytest.raises(ConfigError, match="^unknown split 'holdout'.*") as caught:
            make_envs(ring_config(), 2, workers=2, split="holdout")
        assert "Traceback" in str(caught.value.__cause__)
        assert isinstance(caught.value.__cause__, WorkerError)

    @pytest.mark.parametrize(
        ("fault", "how"),
        [
            ("exit", "exited with code 3"),
            ("kill", "was killed by SIGKILL"),
            ("abort", "was killed by SIGABRT"),
            ("sys_exit", "SystemExit: 5"),
            ("leave_a_child", "exited with code 4"),
        ],
    )
    def test_death_in_step(self, processes, fault, how):
        env = processes(faulty_config(fault), 4, 2, seed=7)
        began = time.monotonic()
        with pytest.raises(WorkerError, match=how) as caught:
            until_it_fails(env)
        assert time.monotonic() - began < 4
        assert "worker 1 (environments 2 to 3, split 'train', seed 7)" in str(caught.value)
        assert "'step'" in str(caught.value)
        if fault == "abort":
            assert "in fail" in str(caught.value)

    @pytest.mark.parametrize("when", ["reset", "init"])
    def test_death_elsewhere(self, when):
        before = children()
        command = "build" if when == "init" else "reset"
        with (
            pytest.raises(WorkerError, match=f"exited with code 3 during '{command}'"),
            make_envs(faulty_config("exit", when), 4, workers=2) as env,
        ):
            env.reset()
        assert children() == before

    def test_killed_while_idle(self, processes):
        env = processes(ring_config(), 4, 2)
        env.reset()
        os.kill(env._workers[0].pid, signal.SIGKILL)
        with pytest.raises(WorkerError, match=r"worker 0 .*was killed by SIGKILL"):
            env.step(np.zeros(4, dtype=int))

    @pytest.mark.parametrize("when", ["step", "reset", "init"])
    def test_hang(self, when):
        before = children()
        command = "build" if when == "init" else when
        # Enough for a busy machine to start a worker.
        timeout_s = 4.0 if when == "init" else 30.0
        config = faulty_config("hang", when)

        def build_and_step():
            with make_envs(config, 4, workers=2, timeout_s=timeout_s) as env:
                env._timeout_s = 0.7
                until_it_fails(env)

        with pytest.raises(WorkerError, match=f"did not answer '{command}' within") as caught:
            build_and_step()
        assert "in stuck_in_the_simulator" in str(caught.value)
        assert children() == before

    def test_stopped_process(self, processes):
        """A process that can't even run a signal handler is bounded by the time-out too."""
        env = processes(ring_config(), 2, 2)
        env.reset()
        env._timeout_s = 0.5
        os.kill(env._workers[1].pid, signal.SIGSTOP)
        with pytest.raises(WorkerError, match=r"worker 1 .*did not answer 'step'"):
            env.step(np.zeros(2, dtype=int))

    def test_killed_in_the_middle_of_a_step(self, processes):
        env = processes(faulty_config("hang"), 4, 2)
        env.reset()
        pid = env._workers[1].pid
        threading.Timer(0.3, os.kill, (pid, signal.SIGKILL)).start()
        with pytest.raises(WorkerError, match=r"worker 1 .*was killed by SIGKILL.* 'step'"):
            until_it_fails(env, reset=False)

    def test_two_workers_fail_at_once(self, processes):
        env = processes(ring_config(), 4, 2)
        env.reset()
        for worker in env._workers:
            os.kill(worker.pid, signal.SIGKILL)
        with pytest.raises(WorkerError, match="worker 0"):
            env.step(np.zeros(4, dtype=int))
        env.restart_worker(0)
        with pytest.raises(WorkerError, match=r"restart_worker\(1\)"):
            env.step(np.zeros(4, dtype=int))

    @pytest.mark.parametrize("workers", [-1, 3])
    def test_number_of_workers(self, workers):
        with pytest.raises(ConfigError, match="workers"):
            make_envs(ring_config(), 2, workers=workers)

    def test_timeout_must_be_positive(self):
        with pytest.raises(ConfigError, match="timeout_s"):
            make_envs(ring_config(), 2, workers=1, timeout_s=0)

    def test_config_that_no_worker_could_import(self):
        class Local:
            pass

        with pytest.raises(ConfigError, match=r"Local can't be sent"):
            make_envs(Local(), 2, workers=1)
        Main = type("Main", (), {"__module__": "__main__"})
        with pytest.raises(ConfigError, match="main script"):
            make_envs(Main(), 2, workers=1)


class TestRestart:
    def test_a_fresh_worker_takes_over(self, processes):
        config = faulty_config("exit")
        env, calm = processes(config, 4, 2, seed=7), make_envs(ring_config(observations="box"), 4)
        env.reset()
        zeros = np.zeros(4, dtype=int)
        env.step(zeros)
        with pytest.raises(WorkerError) as caught:
            env.step(zeros)
        before = copy_obs(env._observation)
        obs = env.restart_worker(caught.value.worker)
        assert_obs_equal(obs, before, slice(0, 2))
        # Its environments are at the first observation of their next tasks, 4 + 2 and 4 + 3.
        calm.reset(seed=7)
        expected, info = calm.reset(options={"new_trial": True})
        assert_obs_equal(obs, expected, slice(2, 4))
        for _ in range(12):
            env.step(zeros)
        mask = np.array([True, True, False, False])
        _, info = env.reset(options={"new_trial": True, "reset_mask": mask})
        assert info["task_id"].tolist() == [4, 5, 6, 7]
        _, info = env.reset(options={"new_trial": True})
        assert info["task_id"].tolist() == [8, 9, 10, 11]
        assert env.get_state()["trial"].tolist() == [3, 3, 3, 3]

    def test_before_the_first_reset(self, processes):
        env = processes(ring_config(), 3, 3)
        env.restart_worker(2)
        here = make_envs(ring_config(), 3)
        assert_obs_equal(env.reset()[0], here.reset()[0])


class TestLife:
    def test_close_ends_everything_and_may_be_repeated(self):
        before = children()
        descriptors = len(os.listdir("/proc/self/fd"))
        env = make_envs(ring_config(), 3, workers=3)
        assert len(children() - before) == 3
        env.reset()
        env.close()
        assert children() == before
        env.close()
        assert len(os.listdir("/proc/self/fd")) == descriptors
        with pytest.raises(ClosedEnvironmentError):
            env.step(np.zeros(3, dtype=int))

    def test_context_manager_and_last_reference(self):
        before = children()
        with make_envs(ring_config(), 2, workers=2) as env:
            env.reset()
        assert children() == before
        env = make_envs(ring_config(), 2, workers=2)
        assert children() != before
        del env
        gc.collect()
        assert children() == before

    def test_close_does_not_wait_for_a_busy_worker(self):
        before = children()
        env = make_envs(faulty_config("hang"), 4, workers=2)
        env.reset()
        env.step(np.zeros(4, dtype=int))
        env._workers[1].ask("step", np.zeros(2, dtype=int))
        began = time.monotonic()
        env.close()
        assert time.monotonic() - began < 4
        assert children() == before

    def test_keyboard_interrupt(self, processes, ctrl_c_interrupts):
        """Ctrl-C in a wait reaches the caller; what can't be trusted after it is ended."""
        env = processes(faulty_config("hang"), 4, 2)
        env.reset()
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            until_it_fails(env, reset=False)
        assert not env._workers[1].is_running
        with pytest.raises(WorkerError, match="has ended"):
            env.step(np.zeros(4, dtype=int))

    @pytest.mark.parametrize("number", ["SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1"])
    def test_signals_of_the_job_do_not_reach_the_environments(self, processes, number):
        env = processes(ring_config(), 2, 1)
        env.reset()
        os.kill(env._workers[0].pid, getattr(signal, number))
        time.sleep(0.1)
        env.step(np.zeros(2, dtype=int))

    def test_workers_import_no_torch_and_use_one_thread(self, processes, monkeypatch):
        monkeypatch.setenv("OMP_NUM_THREADS", "7")
        env = processes(DarkroomConfig(), 1, 1)
        pid = env._workers[0].pid
        assert "torch" not in Path(f"/proc/{pid}/maps").read_text()
        assert b"OMP_NUM_THREADS=1\0" in Path(f"/proc/{pid}/environ").read_bytes()
        assert len(os.listdir(f"/proc/{pid}/task")) == 2  # it and its watch over the parent

    def test_user_file_from_a_config_directory(self, processes, tmp_path, monkeypatch):
        (tmp_path / "my_rings.py").write_text(
            "from dataclasses import dataclass\n"
            "from tests.envs.user_envs import ring_config\n"
            "@dataclass(frozen=True)\n"
            "class MyConfig:\n"
            "    def build(self, num_envs, **kwargs):\n"
            "        return ring_config().build(num_envs, **kwargs)\n"
        )
        monkeypatch.syspath_prepend(str(tmp_path))
        from my_rings import MyConfig

        env = processes(MyConfig(), 2, 2)
        assert env.reset()[0]["camera"].shape == (2, 16, 12, 3)


PARENT = """
import sys, time
from embodied_icrl.envs.vector import make_envs
from tests.envs.user_envs import faulty_config
import numpy as np

env = make_envs(faulty_config("hang"), 4, workers=2)
env.reset()
env.step(np.zeros(4, dtype=int))
print(*(worker.pid for worker in env._workers), flush=True)
mode = sys.argv[1]
if mode == "step":
    env.step(np.zeros(4, dtype=int))
elif mode == "idle":
    time.sleep(60)
"""


class TestParentsEnd:
    """Workers, idle or busy, outlive no parent, however it goes, and print no traceback."""

    @staticmethod
    def start(mode):
        parent = subprocess.Popen(
            [sys.executable, "-c", PARENT, mode],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            process_group=0,
        )
        return parent, [int(pid) for pid in parent.stdout.readline().split()]

    @staticmethod
    def is_gone(pid):
        try:
            state = Path(f"/proc/{pid}/stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            return True
        return state.rsplit(")", 1)[1].split()[0] == "Z"  # orphans wait for init here

    @pytest.mark.parametrize("mode", ["idle", "step"])
    def test_crash(self, mode):
        parent, workers = self.start(mode)
        time.sleep(0.2)
        parent.kill()
        parent.communicate()
        assert len(workers) == 2
        wait_until(lambda: all(self.is_gone(pid) for pid in workers))

    def test_exit_without_close(self):
        parent, workers = self.start("exit")
        _, stderr = parent.communicate(timeout=10)
        assert parent.returncode == 0 and stderr == ""
        assert len(workers) == 2 and all(self.is_gone(pid) for pid in workers)

    def test_ctrl_c_at_the_terminal(self, ctrl_c_interrupts):
        """SIGINT goes to the whole group: one traceback, the parent's."""
        parent, workers = self.start("step")
        time.sleep(0.2)
        os.killpg(parent.pid, signal.SIGINT)
        _, stderr = parent.communicate(timeout=10)
        assert stderr.count("Traceback") == 1
        assert stderr.rstrip().endswith("KeyboardInterrupt")
        assert len(workers) == 2 and all(self.is_gone(pid) for pid in workers)


class TestJoining:
    def test_infos_with_absent_parts(self):
        first = {"_episode": np.array([True]), "episode": {"r": np.array([2.0], np.float32)}}
        joined = join_infos([{}, first, {"note": ["x", "y"]}], [2, 1, 2])
        assert joined["_episode"].tolist() == [False, False, True, False, False]
        assert joined["episode"]["r"].tolist() == [0, 0, 2, 0, 0]
        assert joined["episode"]["r"].dtype == np.float32
        assert joined["note"].tolist() == ["", "", "", "x", "y"]

    def test_infos_without_a_row_per_environment_are_refused(self):
        with pytest.raises(ValueError, match="'version' must have one row"):
            join_infos([{"version": np.array(3)}], [2])

    @given(
        counts=st.lists(st.integers(1, 4), min_size=1, max_size=4),
        data=st.data(),
    )
    def test_states_survive_any_regrouping(self, counts, data):
        total = sum(counts)
        state = {
            "format": 1,
            "task_id": np.arange(total),
            "envs": [{"cell": i, "list": [1, 2]} for i in range(total)],
            "observation": {"camera": np.arange(total * 6).reshape(total, 2, 3)},
        }
        parts = split_state(state, counts)
        assert [len(part["envs"]) for part in parts] == counts
        order = data.draw(st.permutations(counts))
        regrouped = join_states(split_state(join_states(parts, counts), order), order)
        assert regrouped["format"] == 1 and regrouped["envs"] == state["envs"]
        np.testing.assert_array_equal(regrouped["task_id"], state["task_id"])
        camera = regrouped["observation"]["camera"]
        np.testing.assert_array_equal(camera, state["observation"]["camera"])

    def test_states_that_disagree(self):
        with pytest.raises(ValueError, match="disagree on 'seed'"):
            join_states([{"seed": 1}, {"seed": 2}], [1, 1])


def assert_same_infos(ours, theirs):
    """The same keys, types and values, but for the time that episodes took."""
    assert ours.keys() == theirs.keys()
    for key, value in ours.items():
        if isinstance(value, dict):
            assert_same_infos(value, theirs[key])
        else:
            assert value.dtype == theirs[key].dtype and value.shape == theirs[key].shape
            if key != "t":
                np.testing.assert_array_equal(value, theirs[key])
