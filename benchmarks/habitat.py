"""The Habitat backend: does it play by the same rules as MuJoCo's, how fast is it, does it leak?

Four parts, each on generated houses:

- parity: both backends get the same pose before every random action; compared are where they end,
  walking distances, what rays meet, and whether a stop would be a success.
- open_loop: both backends get the same start and then the same random actions; how far apart they
  are after some of them. Nothing brings them together again after one slid and the other didn't.
- speed: steps with an RGB picture of 128 x 128, through our protocol and by habitat_sim's own
  `step`, in the same process.
- memory: resident memory over scene changes in one process.

habitat_sim runs in this Python, or in the one that EMBODIED_ICRL_HABITAT_PYTHON names.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from common import ROOT, ROW_MARK, Row, Table, Variant, interleaved, parser, run_benchmark, say

from embodied_icrl.common.errors import UserError
from embodied_icrl.houses.generate import HouseConfig, generate_house
from embodied_icrl.simulators.base import (
    AgentBody,
    CameraSensor,
    RaySensor,
    ReferenceCamera,
    goal_points,
)
from embodied_icrl.simulators.habitat import HabitatConfig

PYTHON = os.environ.get("EMBODIED_ICRL_HABITAT_PYTHON")
CATEGORIES = ("plant", "ball", "guitar", "suitcase", "backpack", "basket")
HOUSES = HouseConfig(min_rooms=2, max_rooms=4, n_objects=8, categories=CATEGORIES)
REACH, PIXELS, STEP, TURN = 2.0, 10, 0.25, np.radians(30.0)


def parity(houses: int, actions: int, cache: str) -> tuple[Row, list[Row]]:
    """One row with the differences, and one for each stop that the backends decide differently."""
    from embodied_icrl.simulators.mujoco import MujocoConfig

    body, sensors = AgentBody(), {"rays": RaySensor()}
    habitat = HabitatConfig(python=PYTHON, cache=cache).build(1, sensors, CATEGORIES, body)
    mujoco = MujocoConfig().build(1, sensors, CATEGORIES, body)
    seen: dict[str, list[float]] = {"moved": [], "far": [], "ray": [], "class": [], "stop": []}
    differing: list[Row] = []
    for seed in range(houses):
        say(f"parity: house {seed + 1} of {houses}")
        spec = generate_house(10_000 + seed, HOUSES)
        for simulator in (mujoco, habitat):
            simulator.load(0, spec)
        centres = mujoco.instances(0).centres
        goals = [goal_points(mujoco, 0, [i], REACH) for i in range(len(centres))]
        for simulator in (mujoco, habitat):
            simulator.set_goals(0, goals)
        rng = np.random.default_rng(seed)
        _compare(seed, rng, actions, mujoco, habitat, goals, seen, differing)
    habitat.close()
    mujoco.close()
    moved, far = np.array(seen["moved"]), np.array(seen["far"])
    row = {
        "part": "parity",
        "houses": houses,
        "actions": houses * actions,
        "position_median_cm": 100 * float(np.median(moved)),
        "position_95_cm": 100 * float(np.quantile(moved, 0.95)),
        "position_most_cm": 100 * float(moved.max()),
        "distance_median": float(np.median(far)),
        "distance_95": float(np.quantile(far, 0.95)),
        "distance_within_5_percent": float((far <= 0.05).mean()),
        "ray_median_cm": 100 * float(np.median(seen["ray"])),
        "ray_classes_alike": float(np.mean(seen["class"])),
        "stops": len(seen["stop"]),
        "stops_alike": float(np.mean(seen["stop"])),
    }
    return row, differing


def _compare(
    seed: int, rng: np.random.Generator, actions: int, mujoco: Any, habitat: Any,
    goals: list[np.ndarray], seen: dict[str, list[float]], differing: list[Row],
) -> None:  # fmt: skip
    """Random actions in one house; every 25 actions the agent goes somewhere else."""
    camera, body = ReferenceCamera(), mujoco.body
    centres = mujoco.instances(0).centres
    out = [{k: np.zeros((1, *s.shape), s.dtype) for k, s in mujoco.observation_specs().items()}
           for _ in range(2)]  # fmt: skip
    reachable = [i for i, points in enumerate(goals) if len(points)]
    for number in range(actions):
        if number % 25 == 0:
            pose = _start(rng, mujoco, centres, goals, reachable, near=number % 50 == 0)
        for simulator in (mujoco, habitat):
            simulator.place(np.zeros(1, int), pose[:, :3], pose[:, 3], pose[:, 4])
        action = rng.choice(("forward", "left", "right"), p=(0.6, 0.2, 0.2))
        if action == "forward":
            for simulator in (mujoco, habitat):
                simulator.forward(np.full(1, STEP))
            apart = mujoco.positions - habitat.positions
            seen["moved"].append(float(np.hypot(apart[0, 0], apart[0, 2])))
        # From here on both are where the first one got, and the first one's way goes on.
        turn = {"forward": 0.0, "left": TURN, "right": -TURN}[str(action)]
        pose = np.array([[*mujoco.positions[0], mujoco.yaw[0] + turn, pose[0, 4]]])
        for simulator in (mujoco, habitat):
            simulator.place(np.zeros(1, int), pose[:, :3], pose[:, 3], pose[:, 4])
        goal = np.array([reachable[number % len(reachable)]])
        one, other = mujoco.distance(goal)[0], habitat.distance(goal)[0]
        if one > 0.5 and np.isfinite(one):
            seen["far"].append(abs(one - other) / one)
        for simulator, found in zip((mujoco, habitat), out):
            simulator.observe(found)
        seen["ray"] += list(5.0 * np.abs(out[0]["rays.distance"] - out[1]["rays.distance"])[0])
        seen["class"] += list((out[0]["rays.class"] == out[1]["rays.class"])[0])
        if number % 3 == 0:
            _stop(seed, pose, camera, body, centres, mujoco, habitat, seen, differing)


def _start(
    rng: np.random.Generator, mujoco: Any, centres: np.ndarray, goals: list[np.ndarray],
    reachable: list[int], near: bool,
) -> np.ndarray:  # fmt: skip
    """A pose `[1, 5]`: anywhere, or near a target that it about faces."""
    tilt = np.radians(rng.choice((-52.0, -22.0, 8.0)))
    if not near:
        point = mujoco.random_points(0, rng, 1)[0]
        return np.array([[*point, rng.uniform(0, 2 * np.pi), tilt]])
    instance = int(rng.choice(reachable))
    point = goals[instance][rng.integers(len(goals[instance]))]
    x, _, z = centres[instance] - point
    return np.array([[*point, np.arctan2(-x, -z) + rng.uniform(-0.8, 0.8), tilt]])


def _stop(
    seed: int, pose: np.ndarray, camera: ReferenceCamera, body: AgentBody, centres: np.ndarray,
    mujoco: Any, habitat: Any, seen: dict[str, list[float]], differing: list[Row],
) -> None:  # fmt: skip
    """Would a stop here have found an instance? Asked for those that are near enough."""
    x, _, z, yaw, _ = pose[0]
    eye = np.array([x, z]) - body.camera_ahead * np.array([np.sin(yaw), np.cos(yaw)])
    near = np.hypot(*(centres[:, ::2] - eye).T) <= REACH
    if not near.any():
        return
    pixels = [simulator.visible_pixels(0, camera) for simulator in (mujoco, habitat)]
    for instance in np.flatnonzero(near):
        alike = (pixels[0][instance] >= PIXELS) == (pixels[1][instance] >= PIXELS)
        seen["stop"].append(float(alike))
        if not alike:
            differing.append(
                {
                    "part": "a stop decided differently",
                    "house": 10_000 + seed,
                    "instance": mujoco.instances(0).names[instance],
                    "pose": [round(float(value), 3) for value in pose[0]],
                    "pixels_mujoco": int(pixels[0][instance]),
                    "pixels_habitat": int(pixels[1][instance]),
                }
            )


def open_loop(houses: int, actions: int, cache: str) -> Row:
    """How far the backends are apart (metres) after a quarter, half and all of the actions."""
    from embodied_icrl.simulators.mujoco import MujocoConfig

    habitat = HabitatConfig(python=PYTHON, cache=cache).build(1, {}, CATEGORIES, AgentBody())
    mujoco = MujocoConfig().build(1, {}, CATEGORIES, AgentBody())
    marks = (actions // 4, actions // 2, actions)
    apart = np.zeros((houses, len(marks)))
    for seed in range(houses):
        say(f"open loop: house {seed + 1} of {houses}")
        rng = np.random.default_rng(seed)
        for simulator in (mujoco, habitat):
            simulator.load(0, generate_house(10_000 + seed, HOUSES))
        start, yaw = mujoco.random_points(0, rng, 1), rng.uniform(0, 2 * np.pi, 1)
        for simulator in (mujoco, habitat):
            simulator.place(np.zeros(1, int), start, yaw, np.zeros(1))
        for number in range(1, actions + 1):
            action = rng.choice(3, p=(0.6, 0.2, 0.2))
            for simulator in (mujoco, habitat):
                if action == 0:
                    simulator.forward(np.full(1, STEP))
                else:
                    simulator.turn(np.full(1, TURN if action == 1 else -TURN), np.zeros(1))
            if number in marks:
                offset = (mujoco.positions - habitat.positions)[0, ::2]
                apart[seed, marks.index(number)] = np.hypot(*offset)
    habitat.close()
    mujoco.close()
    row: Row = {"part": "open_loop", "houses": houses}
    for mark, metres in zip(marks, apart.T):
        row[f"median_m_after_{mark}"] = float(np.median(metres))
        row[f"most_m_after_{mark}"] = float(metres.max())
    return row


def speed(steps: int, rounds: int, cache: str) -> Row:
    """Steps with a picture per second, ours and habitat_sim's own."""
    spec = generate_house(10_000, HouseConfig(n_rooms=6))
    sensors = {"head": CameraSensor(width=128, height=128)}
    ours = HabitatConfig(cache=cache).build(1, sensors, CATEGORIES, AgentBody())
    ours.load(0, spec)
    rng = np.random.default_rng(0)
    start = ours.random_points(0, rng, 1)
    ours.place(np.zeros(1, int), start, np.zeros(1), np.zeros(1))
    out = {k: np.zeros((1, *s.shape), s.dtype) for k, s in ours.observation_specs().items()}
    actions = rng.choice(3, size=steps, p=(0.6, 0.2, 0.2))

    def our_steps() -> None:
        for action in actions:
            ours.forward(np.full(1, STEP if action == 0 else 0.0))
            ours.turn(np.full(1, (0.0, TURN, -TURN)[action]), np.zeros(1))
            ours.observe(out)

    bare = _bare_simulator(ours, start[0])
    names = ("move_forward", "turn_left", "turn_right")

    def bare_steps() -> None:
        for action in actions:
            bare.step(names[action])

    samples = interleaved({"ours": Variant(our_steps), "bare": Variant(bare_steps)}, rounds)
    rates = {k: [steps / sample.cpu_s for sample in found] for k, found in samples.items()}
    row = {
        "part": "speed",
        "steps_per_cpu_s": float(np.median(rates["ours"])),
        "bare_steps_per_cpu_s": float(np.median(rates["bare"])),
        "part_of_bare": float(np.median(np.array(rates["ours"]) / np.array(rates["bare"]))),
    }
    bare.close()
    ours.close()
    return row


def _bare_simulator(ours: Any, start: np.ndarray) -> Any:
    """habitat_sim with the same scene, mesh, lights and camera, driven by its own actions."""
    import habitat_sim

    files, world = ours._rows[0].files, ours._rows[0].world
    configuration = world._configuration(files, (), "none")
    spec = habitat_sim.CameraSensorSpec()
    spec.uuid, spec.sensor_type = "rgb", habitat_sim.SensorType.COLOR
    spec.resolution, spec.position = [128, 128], [0.0, 1.2, -0.25]
    agent = habitat_sim.agent.AgentConfiguration()
    agent.sensor_specifications = [spec]
    agent.action_space["turn_left"].actuation.amount = 30.0
    agent.action_space["turn_right"].actuation.amount = 30.0
    configuration.agents = [agent]
    with world._light_settings():
        configuration.metadata_mediator = habitat_sim.metadata.MetadataMediator(
            configuration.sim_cfg
        )
    simulator = habitat_sim.Simulator(configuration)
    settings = ours._entered(0).world.pathfinder.nav_mesh_settings
    simulator.recompute_navmesh(simulator.pathfinder, settings)
    state = simulator.get_agent(0).get_state()
    state.position = simulator.pathfinder.snap_point(start.astype(np.float32))
    simulator.get_agent(0).set_state(state)
    return simulator


def memory(changes: int, houses: int, cache: str) -> Row:
    """Resident memory (MiB) after scene changes, with pictures taken in every scene."""
    sensors = {"head": CameraSensor(width=64, height=64), "rays": RaySensor()}
    simulator = HabitatConfig(cache=cache).build(1, sensors, CATEGORIES, AgentBody())
    out = {k: np.zeros((1, *s.shape), s.dtype) for k, s in simulator.observation_specs().items()}
    specs = [generate_house(20_000 + i, HouseConfig(n_rooms=2)) for i in range(houses)]
    resident = []
    for change in range(changes):
        simulator.load(0, specs[change % houses])
        points = simulator.random_points(0, np.random.default_rng(change), 3)
        simulator.place(np.zeros(1, int), points[:1], np.zeros(1), np.full(1, -0.4))
        simulator.set_goals(0, [points])
        simulator.observe(out)
        simulator.visible_pixels(0, ReferenceCamera())
        resident.append(_resident_mib())
    simulator.close()
    after = np.array(resident[20:])
    return {
        "part": "memory",
        "scene_changes": changes,
        "houses": houses,
        "mib_after_20": resident[min(20, changes) - 1],
        "mib_at_end": resident[-1],
        "mib_most": float(after.max()) if after.size else resident[-1],
        "mib": [round(value) for value in resident[:: max(1, changes // 30)]],
    }


def _resident_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


PARTS: dict[str, Any] = {"speed": speed, "memory": memory}


def elsewhere(part: str, **arguments: Any) -> Row:
    """A part in a process of its own, of the Python that has habitat_sim."""
    command = [PYTHON or sys.executable, __file__, "--row", json.dumps({"part": part, **arguments})]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=environment, check=False)
    rows = [line for line in done.stdout.splitlines() if line.startswith(ROW_MARK)]
    if done.returncode or not rows:
        raise UserError(f"the part {part} failed with status {done.returncode}")
    row: Row = json.loads(rows[-1][len(ROW_MARK) :])
    return row


TABLE = Table(
    "The Habitat backend",
    {
        "part": lambda r: r["part"],
        "result": lambda r: ", ".join(
            f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}"
            for key, value in r.items()
            if key not in ("part", "mib")
        ),
    },
)


def main() -> int:
    made = parser(__doc__)
    made.add_argument("--parts", nargs="*", default=["parity", "open_loop", "speed", "memory"])
    arguments = made.parse_args()
    if arguments.row is not None:
        given = dict(arguments.row)
        print(ROW_MARK + json.dumps(PARTS[given.pop("part")](**given)), flush=True)
        return 0

    def rows() -> list[Row]:
        quick, found = arguments.quick, []
        with tempfile.TemporaryDirectory(prefix="habitat-bench-") as cache:
            if "parity" in arguments.parts:
                row, differing = parity(2 if quick else 20, 50 if quick else 500, cache)
                found += [row, *differing]
            if "open_loop" in arguments.parts:
                found.append(open_loop(2 if quick else 20, 20 if quick else 100, cache))
            if "speed" in arguments.parts:
                sizes = {"steps": 30, "rounds": 2} if quick else {"steps": 500, "rounds": 9}
                found.append(elsewhere("speed", cache=cache, **sizes))
            if "memory" in arguments.parts:
                sizes = {"changes": 6, "houses": 3} if quick else {"changes": 300, "houses": 60}
                found.append(elsewhere("memory", cache=cache, **sizes))
        return found

    return run_benchmark(__file__, arguments, rows, TABLE)


if __name__ == "__main__":
    sys.exit(main())
