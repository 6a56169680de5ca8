"""A simulator in another process, and in another Python where one is found."""

import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from embodied_icrl.common.errors import AssetError, ConfigError, WorkerError
from embodied_icrl.houses.generate import HouseConfig, generate_house
from embodied_icrl.simulators.base import AgentBody, RaySensor, ReferenceCamera
from embodied_icrl.simulators.messages import Closed, receive, send
from embodied_icrl.simulators.remote import RemoteSimulator

sys.path.insert(0, str(Path(__file__).parent))
from fake_simulator import FakeConfig, FakeSimulator, poses

ENVS = 3
SENSORS = {"rays": RaySensor(columns=8)}


def old_pythons() -> list[str]:
    """Interpreters of Python 3.9 that have NumPy."""
    names = ["python3.9", os.environ.get("EMBODIED_ICRL_PYTHON39", "")]
    found = [path for name in names if name and (path := shutil.which(name))]
    question = "import sys, numpy; sys.exit(sys.version_info[:2] != (3, 9))"
    return [
        p for p in found if subprocess.run([p, "-c", question], capture_output=True).returncode == 0
    ]


def remote(python: str = sys.executable) -> RemoteSimulator:
    return RemoteSimulator(
        FakeConfig(half=2.0),
        ENVS,
        SENSORS,
        ("mug",),
        AgentBody(),
        python=python,
        timeout_s=60.0,
    )


def local() -> FakeSimulator:
    return FakeConfig(half=2.0).build(ENVS, SENSORS, ("mug",), AgentBody())


@pytest.fixture(params=["this Python", "Python 3.9"])
def far(request):
    python = sys.executable
    if request.param == "Python 3.9":
        found = old_pythons()
        if not found:
            pytest.skip("no Python 3.9 with NumPy: name one in EMBODIED_ICRL_PYTHON39")
        python = found[0]
    simulator = remote(python)
    yield simulator
    simulator.close()


def walk(simulator, rng):
    """What a simulator answers to the same calls."""
    specs = simulator.observation_specs()
    out = {k: np.zeros((ENVS, *s.shape), s.dtype) for k, s in specs.items()}
    seen = [specs]
    for row in range(ENVS):
        simulator.load(row, "room")
        simulator.set_goals(row, [np.array([[1.0, 0.0, 0.0]]), np.array([[0.0, 0.0, 1.0]])])
    points = simulator.random_points(0, rng, ENVS)
    simulator.place(np.arange(ENVS), points, rng.uniform(0, 6, ENVS), np.zeros(ENVS))
    for _ in range(20):
        simulator.turn(rng.uniform(-1, 1, ENVS), rng.uniform(-0.1, 0.1, ENVS))
        seen.append(simulator.forward(rng.uniform(0, 0.5, ENVS)))
        simulator.observe(out)
        seen += [out[key].copy() for key in sorted(out)]
        seen.append(simulator.distance(np.array([0, 1, 0])))
        seen += poses(simulator)
    seen.append(simulator.distances_from(1, 1, points))
    seen.append(simulator.points_around(0, np.array([0.5, 1.0, 0.5]), 1.0, 0.3))
    seen.append(simulator.in_sight(0, 0, points))
    seen.append(simulator.visible_pixels(0, ReferenceCamera(width=64)))
    seen.append(simulator.picture(2, 5, 4))
    seen.append(rng.random())  # the generator stands where it would have stood
    return seen


def test_the_same_answers_as_in_this_process(far):
    for there, here in zip(
        walk(far, np.random.default_rng(5)), walk(local(), np.random.default_rng(5)), strict=True
    ):
        np.testing.assert_equal(there, here)


def test_records_arrive_as_what_they_are(far):
    there, here = far.instances(0), local().instances(0)
    assert there.names == here.names and type(there) is type(here)
    np.testing.assert_array_equal(there.centres, here.centres)
    assert far.top_down(0).scale == here.centres[0, 0]
    far.load(0, generate_house(3, HouseConfig()))


def test_an_error_of_the_simulator_is_the_same_error(far):
    with pytest.raises(AssetError, match="scene missing: no such file"):
        far.load(0, "missing")
    with pytest.raises(WorkerError, match="a fault of the simulator"):
        far.load(0, "raise")
    far.load(0, "room")  # it lives on


def test_a_dead_worker_is_named_with_its_last_words(far):
    with pytest.raises(WorkerError, match="killed by SIGKILL at load.*\n.*last words"):
        far.load(0, "die")
    far.close()


def test_a_worker_that_hangs_is_stopped():
    simulator = remote()
    simulator._child.timeout_s = 1.0  # the start of a Python may take longer on a busy machine
    simulator._child.connection.settimeout(1.0)
    start = time.monotonic()
    with pytest.raises(WorkerError, match="did not answer load within 1 s"):
        simulator.load(0, "hang")
    simulator.close()
    assert time.monotonic() - start < 50, "it hangs for a minute"
    assert simulator._child.process.returncode is not None


@pytest.mark.parametrize("end", ["close", "forget"])
def test_nothing_is_left_behind(end):
    simulator = remote()
    process, folder = simulator._child.process, simulator._child.folder
    if end == "close":
        simulator.close()
        simulator.close()
    else:
        del simulator
    assert process.wait(60) is not None
    assert not Path(folder).exists()


def test_an_interpreter_that_is_none(tmp_path):
    with pytest.raises(ConfigError, match=r"simulator\.python: .*no/python is not a program"):
        remote(str(tmp_path / "no/python"))
    silent = tmp_path / "silent"
    silent.write_text("#!/bin/sh\necho this is no Python\nexit 3\n")
    silent.chmod(0o755)
    with pytest.raises(WorkerError, match="ended with status 3 at its start.*\n.*no Python"):
        remote(str(silent))


def test_a_python_without_numpy_says_so(tmp_path):
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "bare"], check=True)
    with pytest.raises(WorkerError, match="No module named 'numpy'"):
        remote(str(tmp_path / "bare/bin/python"))


numbers = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**130), 2**130), st.floats(allow_nan=False), st.text()
)
arrays = hnp.arrays(
    st.sampled_from(["f4", "f8", "i1", "u1", "i8", "?"]),
    hnp.array_shapes(min_dims=0, min_side=0, max_side=4),
    elements={"allow_nan": False},
)
values = st.recursive(
    numbers | arrays,
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text(), inner),
    max_leaves=12,
)


@given(values)
def test_messages_arrive_unchanged(value):
    ours, theirs = socket.socketpair()
    with ours, theirs:
        thread = threading.Thread(target=send, args=(ours, value))
        thread.start()
        arrived = receive(theirs)
        thread.join()
    assert type(arrived) is type(value) or isinstance(value, np.ndarray)
    np.testing.assert_equal(arrived, value)


def test_what_cannot_be_sent_is_refused():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        with pytest.raises(TypeError, match="a function can't be sent"):
            send(ours, lambda: None)
        ours.close()
        with pytest.raises(Closed):
            receive(theirs)
