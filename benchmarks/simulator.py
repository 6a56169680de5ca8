"""The house simulator against the raw calls it makes: rays, pictures, and new houses.

Houses with at least 150 geoms, agents at random places. "rays" is the 64-ray sensor, its bound the
bare `mj_multiRay` calls on the same models with the same rays; "rgb" is a picture of 128 x 128, its
bound MuJoCo's own `Renderer` with the same lean settings; "new house" is generated, compiled, and
measured for every category that is in it, with 4 and with 6 rooms.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from common import (
    Row,
    Sample,
    Table,
    Variant,
    interleaved,
    measure,
    parser,
    per_item,
    ratio,
    run_benchmark,
    say,
)

from embodied_icrl.common.errors import MissingDependencyError
from embodied_icrl.houses.catalogue import CATEGORIES
from embodied_icrl.houses.generate import HouseConfig, generate_house
from embodied_icrl.simulators.base import CameraSensor, RaySensor, goal_points
from embodied_icrl.simulators.mujoco import MujocoConfig, MujocoSimulator
from embodied_icrl.simulators.poses import fan
from embodied_icrl.simulators.rays import SEEN_GROUPS

LEAST_GEOMS = 150
NUM_ENVS, N_HOUSES, N_ROOMS = 32, 8, 4
NEW_HOUSE_ROOMS = (4, 6)
SIDE = 128


def simulator(num_envs: int, sensors: dict[str, Any]) -> MujocoSimulator:
    """Agents at random places in houses that are large enough."""
    made = MujocoConfig().build(num_envs, sensors, CATEGORIES)
    houses, seed = [], 0
    while len(houses) < min(N_HOUSES, num_envs):
        spec = generate_house(seed, HouseConfig(n_rooms=N_ROOMS))
        made.load(0, spec)
        if made._scene(0).model.ngeom >= LEAST_GEOMS:
            houses.append(spec)
        seed += 1
    rng = np.random.default_rng(0)
    for row in range(num_envs):
        made.load(row, houses[row % len(houses)])
        place = made.random_points(row, rng, 1)
        angle = rng.uniform(0, 2 * np.pi, 1)
        made.place(np.array([row]), place, angle, np.radians([-22.0]))
    return made


def outputs(made: MujocoSimulator) -> dict[str, np.ndarray]:
    specs = made.observation_specs()
    return {k: np.zeros((made.num_envs, *spec.shape), spec.dtype) for k, spec in specs.items()}


def rays(num_envs: int, repeats: int, rounds: int) -> list[Row]:
    """The ray sensor, the same with moves and distances, and the bare calls."""
    import mujoco

    sensor = RaySensor()
    made = simulator(num_envs, {"rays": sensor})
    for row in range(num_envs):
        made.set_goals(row, [made.random_points(row, np.random.default_rng(row), 3)])
    out, count = outputs(made), sensor.columns * sensor.rows
    goal, turns = np.zeros(num_envs, int), np.random.default_rng(1)
    made.distance(goal)
    local = fan(sensor.columns, sensor.rows, sensor.fov, sensor.vertical_fov)
    calls = []
    for row in range(num_envs):
        eye, axes = made._view(row)
        scene = made._scene(row)
        calls.append((scene.model, scene.data, eye, (local @ axes).reshape(-1).copy()))
    geoms, distances = np.zeros(count, np.int32), np.zeros(count)

    def bare() -> None:
        for _ in range(repeats):
            for model, data, eye, directions in calls:
                mujoco.mj_multiRay(
                    model, data, eye, directions, SEEN_GROUPS, True, -1,
                    geoms, distances, None, count, sensor.max_distance,
                )  # fmt: skip

    def observe() -> None:
        for _ in range(repeats):
            made.observe(out)

    positions, yaw, tilt = made.positions.copy(), made.yaw.copy(), made.tilt.copy()

    def step() -> None:
        made.place(np.arange(num_envs), positions, yaw, tilt)
        for _ in range(repeats):
            made.forward(np.where(turns.random(num_envs) < 0.6, 0.25, 0.0))
            made.turn(np.radians(turns.choice([-30.0, 0.0, 30.0], num_envs)), np.zeros(num_envs))
            made.distance(goal)
            made.observe(out)

    work: dict[str, Callable[[], None]] = {"bare mj_multiRay": bare}
    work.update({"64-ray sensor": observe, "move, distance, 64-ray sensor": step})
    return compared("rays", work, num_envs, repeats, rounds)


def pictures(num_envs: int, repeats: int, rounds: int) -> list[Row]:
    """The RGB camera, and MuJoCo's renderer in a loop."""
    import mujoco

    made = simulator(num_envs, {"rgb": CameraSensor(width=SIDE, height=SIDE)})
    out = outputs(made)
    made.observe(out)
    scene = made._scene(0)
    renderer = mujoco.Renderer(scene.model, SIDE, SIDE)
    renderer.scene.flags[int(mujoco.mjtRndFlag.mjRND_SHADOW)] = 0
    renderer.scene.flags[int(mujoco.mjtRndFlag.mjRND_REFLECTION)] = 0
    shown = mujoco.MjvOption()
    shown.geomgroup[:] = SEEN_GROUPS  # target objects too
    alike = [row for row in range(num_envs) if made._scene(row) is scene]
    views = []
    for row in alike:
        view, (eye, axes) = mujoco.MjvCamera(), made._view(row)
        view.lookat[:], view.distance = eye + axes[2], 1.0
        view.azimuth = np.degrees(np.arctan2(axes[0, 0], -axes[0, 1]))
        view.elevation = np.degrees(np.arcsin(axes[2, 2]))
        views.append(view)
    picture = np.empty((SIDE, SIDE, 3), np.uint8)

    def bare() -> None:
        for k in range(repeats * num_envs):
            renderer.update_scene(scene.data, views[k % len(views)], shown)
            renderer.render(out=picture)

    one = simulator(1, {"rgb": CameraSensor(width=SIDE, height=SIDE)})
    one.load(0, scene.spec)
    single = outputs(one)
    poses = [(made.positions[row], made.yaw[row], made.tilt[row]) for row in alike]

    def observe_one() -> None:
        for k in range(repeats * num_envs):
            place, yaw, tilt = poses[k % len(poses)]
            one.place(np.array([0]), place[None], yaw[None], tilt[None])
            one.observe(single)

    def observe() -> None:
        for _ in range(repeats):
            made.observe(out)

    work = {"bare Renderer, one house": bare, "RGB sensor, the same pictures": observe_one}
    work[f"RGB sensor, {min(N_HOUSES, num_envs)} houses"] = observe
    rows = compared(f"rgb {SIDE}", work, num_envs, repeats, rounds)
    renderer.close()
    return rows


def compared(
    group: str, work: dict[str, Callable[[], None]], num_envs: int, repeats: int, rounds: int
) -> list[Row]:
    """One row per piece of work, with its speed as a part of the first one's."""
    samples = interleaved({name: Variant(run) for name, run in work.items()}, rounds)
    bound = samples[next(iter(work))]
    rows = []
    for name in work:
        timing = per_item(samples[name], num_envs * repeats)
        speed = ratio(bound, samples[name])
        rows.append({"group": group, "what": name, "envs": num_envs, **timing, "of_bound": speed})
    return rows


def new_houses(n_rooms: int, rounds: int) -> list[Row]:
    """What a house costs that has not been seen before, stage by stage."""
    made = MujocoConfig(kept_houses=1).build(1, {}, CATEGORIES)
    seeds, state = iter(range(100, 10_000)), {"spec": generate_house(0)}

    def generate() -> None:
        state["spec"] = generate_house(next(seeds), HouseConfig(n_rooms=n_rooms))

    def load() -> None:
        made.load(0, state["spec"])

    def distances() -> None:
        kinds = made.instances(0).categories
        goals = [
            goal_points(made, 0, np.flatnonzero(kinds == kind), 2.0)
            for kind in range(len(CATEGORIES))
        ]
        made.set_goals(0, goals)
        made.distances_from(0, 0, made.random_points(0, np.random.default_rng(0), 1))

    rows: list[Row] = []
    stages = {"generate": generate, "compile and map": load, "goals and distances": distances}
    samples: dict[str, list[Sample]] = {name: [] for name in stages}
    for _ in range(rounds):
        for name, run in stages.items():
            samples[name].append(measure(run))
    group = f"new house, {n_rooms} rooms"
    for name in stages:
        rows.append({"group": group, "what": name, "envs": 1, **per_item(samples[name], 1)})
    return rows


TABLE = Table(
    f"Simulator, houses of {N_ROOMS} rooms with at least {LEAST_GEOMS} geoms, one process",
    {
        "group": lambda r: r["group"],
        "what": lambda r: r["what"],
        "agents": lambda r: str(r["envs"]),
        "CPU ms each": lambda r: f"{r['cpu_ms']:.3f}",
        "speed, of the bound": lambda r: f"{r['of_bound']:.0%}" if "of_bound" in r else "",
    },
)


def main() -> int:
    os.environ.setdefault("LP_NUM_THREADS", "1")
    os.environ.setdefault("MUJOCO_GL", "egl")  # MuJoCo's own renderer doesn't look for one
    arguments = parser(__doc__).parse_args()

    def rows() -> list[Row]:
        quick = arguments.quick
        say("simulator: rays")
        found = rays(4 if quick else NUM_ENVS, 2 if quick else 20, 2 if quick else 9)
        say("simulator: new houses")
        for n_rooms in NEW_HOUSE_ROOMS:
            found += new_houses(n_rooms, 1 if quick else 8)
        say("simulator: pictures")
        try:
            found += pictures(2 if quick else 16, 1 if quick else 4, 2 if quick else 9)
        except MissingDependencyError as error:
            say(f"no pictures: {error}")
        return found

    return run_benchmark(__file__, arguments, rows, TABLE)


if __name__ == "__main__":
    sys.exit(main())
