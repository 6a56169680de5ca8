"""Two processes with n environments each against one process with 2n."""

from __future__ import annotations

import multiprocessing
import os
import re
import signal
import socket
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing import SignalException

from embodied_icrl.cli.launch import launch_processes
from embodied_icrl.common.errors import ConfigError
from embodied_icrl.training import distributed
from embodied_icrl.training.distributed import Ranks
from embodied_icrl.training.signals import LAUNCHER, StopRequest
from embodied_icrl.training.update import Bootstrap
from tests.training.tiny import tiny_config, tiny_trainer

SETTINGS: dict[str, Any] = {
    "ppo": {"num_steps": 12, "updates_per_rollout": 2, "epochs": 2, "minibatches": 2,
            "grad_accumulation": 2, "learning_rate": 0.01},
}  # fmt: skip


def update(trainer: Any, *, full: bool) -> tuple[dict[str, float], dict[str, torch.Tensor]]:
    bootstrap: Bootstrap = trainer._bootstrap()
    row = trainer.updater.update(trainer.rollout, trainer.cache, bootstrap, full=full, progress=0.0)
    return row, {k: v.clone() for k, v in trainer.policy.state_dict().items()}


def collect_with_fixed_actions(trainer: Any, rows: slice) -> None:
    """Sampling must not depend on how environments are spread: actions come from a table."""
    table = torch.randint(5, (12, 8), generator=torch.Generator().manual_seed(5))
    act = trainer.policy.act

    def act_by_table(batch: Any, cache: Any, *rest: Any, **named: Any) -> Any:
        t = cache.length
        _, _, value = act(batch, cache, *rest, **named)
        action = table[t % 12, rows]
        cache.truncate(t)
        features = trainer.policy.evaluate_actions(batch, action[:, None], cache.past(t))
        act(batch, cache, *rest, **named)
        return action, features[0][:, 0].detach(), value

    trainer.policy.act = act_by_table
    trainer.collector.start_trial(trainer._task_ids())
    trainer.collector.collect(12)
    trainer.policy.act = act


def run_rank(rank: int, port: int, queue: Any) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=2)
    trainer = tiny_trainer(tiny_config(num_envs=4, **SETTINGS), rank=rank, world_size=2)
    trainer.ranks.broadcast(trainer.policy.state_dict().values())
    collect_with_fixed_actions(trainer, slice(4 * rank, 4 * rank + 4))
    row, weights = update(trainer, full=True)
    queue.put((rank, row, {k: v.numpy() for k, v in weights.items()}))
    dist.barrier()
    dist.destroy_process_group()


def test_two_ranks_equal_one() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    processes = [context.Process(target=run_rank, args=(r, port, queue)) for r in range(2)]
    for process in processes:
        process.start()
    results = {
        rank: (row, weights) for rank, row, weights in (queue.get(timeout=60) for _ in processes)
    }
    for process in processes:
        process.join(30)
        assert process.exitcode == 0

    trainer = tiny_trainer(tiny_config(num_envs=8, **SETTINGS))
    start = {k: v.clone() for k, v in trainer.policy.state_dict().items()}
    collect_with_fixed_actions(trainer, slice(0, 8))
    row, weights = update(trainer, full=True)
    moved = 0.0
    for name, tensor in weights.items():
        for rank in (0, 1):
            other = torch.from_numpy(results[rank][1][name])
            torch.testing.assert_close(other, tensor, atol=1e-6, rtol=1e-5)
        moved += float((tensor - start[name]).abs().sum())
    assert moved > 0.1
    for key in (
        "loss/policy",
        "loss/value",
        "entropy",
        "approx_kl",
        "grad_norm",
        "explained_variance",
    ):
        assert results[0][0][key] == pytest.approx(row[key], abs=1e-5), key
        assert results[0][0][key] == results[1][0][key]


def test_one_process_needs_no_group() -> None:
    ranks = Ranks(0, 1, torch.device("cpu"))
    assert ranks.any(5) == 5
    assert ranks.sum(torch.tensor(3.0)) == 3.0
    ranks.barrier()


@pytest.mark.parametrize(
    ("name", "gpus", "processes", "expected"),
    [
        ("auto", 0, 2, "cpu"),
        ("auto", 1, 2, "cpu"),
        ("auto", 2, 2, "cuda:1"),
        ("cuda", 4, 2, "cuda:1"),
        ("cpu", 4, 2, "cpu"),
    ],
)
def test_every_process_of_a_machine_takes_the_same_kind_of_device(
    name: str, gpus: int, processes: int, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend_gpus(gpus, processes, monkeypatch)
    assert str(distributed.local_device(name)) == expected


def test_too_few_gpus_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_gpus(1, 2, monkeypatch)
    with pytest.raises(ConfigError, match="use processes=1 or device=cpu"):
        distributed.local_device("cuda")


@pytest.mark.parametrize(
    ("name", "gpus", "processes", "line", "warned"),
    [
        ("auto", 0, 1, "training on cpu", None),
        ("auto", 1, 4, "training on 4 x cpu", "passes over 1 GPU, .*: processes=1 trains on it"),
        ("auto", 2, 4, "training on 4 x cpu", "passes over 2 GPUs, .*: processes=2 trains on them"),
        ("cpu", 2, 4, "training on 4 x cpu", None),
        ("auto", 2, 2, "training on 2 x cuda (NVIDIA H200)", None),
        ("cuda:0", 2, 1, "training on cuda (NVIDIA H200)", None),
    ],
)
def test_a_job_says_what_it_trains_on(
    name: str, gpus: int, processes: int, line: str, warned: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    pretend_gpus(gpus, processes, monkeypatch)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA H200")
    ranks = Ranks(0, processes, distributed.local_device(name))
    said, warning = distributed.describe_devices(name, ranks)
    assert said == line
    assert warning is None if warned is None else re.search(warned, str(warning))


def pretend_gpus(gpus: int, processes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_RANK", "1")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", str(processes))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpus > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
    monkeypatch.setattr(distributed, "choose_device", torch.device)


def test_an_orphan_goes_on_and_a_rank_without_its_launcher_stops(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(LAUNCHER, raising=False)
    assert StopRequest().pending() == 0
    monkeypatch.setenv(LAUNCHER, str(os.getppid()))
    request = StopRequest()
    assert request.pending() == 0
    monkeypatch.setattr(os, "getppid", lambda: 1)
    assert request.pending() == signal.SIGTERM


@pytest.mark.parametrize("stopped", [False, True])
def test_a_job_without_launcher_follows_one_with(
    monkeypatch: pytest.MonkeyPatch, stopped: bool
) -> None:
    """As in a sweep over `processes`: all its jobs share this process."""
    seen: list[str] = []

    def launcher(*words: str) -> None:
        seen.append(os.environ[LAUNCHER])
        if stopped:
            raise SignalException("stopped", signal.SIGTERM)

    monkeypatch.setattr("torch.distributed.launcher.api.elastic_launch", lambda *_: launcher)
    for name in ("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "OMP_NUM_THREADS"):
        monkeypatch.setenv(name, os.environ.get(name, "1"))
    assert launch_processes({}, 2) == (128 + signal.SIGTERM if stopped else 0)
    assert seen == [str(os.getpid())]
    assert StopRequest().pending() == 0
