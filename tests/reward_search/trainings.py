"""Small trainings, and reward code that got past the checks, for the tests of this folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from embodied_icrl.reward_search.records import Job
from tests.reward_search.tasks import TASK

NODE = {"_target_": "embodied_icrl.manipulation.planar_reach.PlanarReach", "horizon": 20}
HONEST = TASK.human_reward

# The static check refuses all of these; here they run, to see what the sandbox makes of them.
# `hidden` gives them the modules of the interpreter.
HIDDEN = """
def hidden():
    for kind in ().__class__.__base__.__subclasses__():
        if kind.__name__ == "_wrap_close":
            return kind.__init__.__globals__["sys"].modules

def work():
    # The folder that the training may write to, out of its payload.
    for thing in hidden()["gc"].get_objects():
        if thing.__class__.__name__ == "dict" and "before" in thing and "work" in thing:
            return thing["work"]

def compute_reward(state):
    attack()
    return -1.0, {"one": -1.0}

"""


def attack(code: str) -> str:
    """A reward that first runs the function `attack` of `code`."""
    return HIDDEN + code


def small_job(folder: Path | str, source: str = HONEST, **changes: Any) -> Job:
    """A training of 256 steps with two checkpoints."""
    values: dict[str, Any] = {
        "candidate": "c",
        "source": source,
        "task": NODE,
        "algorithm": "ppo",
        "n_envs": 4,
        "seed": 3,
        "first_step": 0,
        "last_step": 256,
        "checkpoints": (128, 256),
        "folder": str(folder),
        "episodes": 3,  # at each checkpoint
        "hyperparameters": {"n_steps": 32, "batch_size": 64, "n_epochs": 2},
    }
    if changes.get("algorithm", "ppo") != "ppo":
        # Small enough that the buffer is full, and wraps around, before the end.
        values["hyperparameters"] = {
            "learning_starts": 16, "buffer_size": 160, "batch_size": 16,
            "policy_kwargs": {"net_arch": [16, 16]},
        }  # fmt: skip
    values |= changes
    values["episodes"] = (values["episodes"],) * len(values["checkpoints"])
    return Job(**values)


# What hostile code does, by name: the code, and what its job's reason must hold (None: the job
# may end as it likes, as long as nothing came of the attack).
ATTACKS: dict[str, tuple[str, str | None]] = {
    # Zeros, which no processor time is spent on: a call's is limited.
    "memory": ("def attack():\n    held = [np.zeros(10**7) for _ in range(999)]\n", "emory"),
    "dead": ("def attack():\n    hidden()['os']._exit(3)\n", "exit status 3"),
    "forged": (
        """
def attack():
    os = hidden()["os"]
    with os.fdopen(os.open(work() + "/report.jsonl", 1025), "w") as report:
        report.write('{"checkpoint": 256, "steps": 256, "total": 1.0,'
                     ' "components": {"<script>alert(1)</script>": 1e9}}\\n')
    os.write(1, b'{"reason": null}')
    os._exit(0)
""",
        "reported something else",
    ),
    "silent": (
        """
def attack():
    hidden()["os"].write(1, b'{"reason": null}')
    hidden()["os"]._exit(0)
""",
        "weights",
    ),
    "nan_weights": (
        """
def attack():
    child = hidden()["embodied_icrl.reward_search.training_child"]
    if not child.__dict__.get("was"):
        child.was = child.save
        child.save = lambda tensors: child.was({k: v * float("nan") for k, v in tensors.items()})
""",
        "weights 'mlp_extractor.policy_net.0.weight' are not all finite",
    ),
    "files": (
        """
def attack():
    modules, folder = hidden(), work()  # once: a call's processor time is limited
    for i in range(30):  # sparse, since writing takes processor time too
        with modules["io"].open(folder + "/" + str(i), "w") as file:
            file.truncate(4_000_000)
    modules["time"].sleep(60)
""",
        "MiB of files",
    ),
    "slow": ("def attack():\n    while True:\n        pass\n", "a call took more than"),
    "stubborn": (
        """
def attack():
    while True:
        try:
            while True:
                pass
        except:
            pass
""",
        "no step within",
    ),
    "forks": (
        """
def attack():
    os = hidden()["os"]
    while True:
        if os.fork() == 0:
            hidden()["time"].sleep(600)
""",
        None,
    ),
    "patched_success": (
        """
def attack():
    tasks = hidden()["embodied_icrl.manipulation.planar_reach"].PlanarReach
    tasks.success = tasks.measure = lambda *_: 1.0
    tasks.fitness = lambda *_: 1e6
    child = hidden()["embodied_icrl.reward_search.evaluation_child"]
    child.measure = child.evaluate = lambda *_: {"points": [[1e6, 1.0]] * 2, "reason": None}
""",
        None,
    ),
    "corrupted_observations": (
        """
def attack():
    shelf = hidden()["json"]
    if "envs" not in shelf.__dict__:
        shelf.envs = [
            thing for thing in hidden()["gc"].get_objects()
            if thing.__class__.__name__ == "RewardVecEnv"
        ]
    for env in shelf.envs:
        env._observations[:] = 1.0
        env.envs[0].simulator.data.qpos[:] = 0.0
""",
        None,
    ),
}
