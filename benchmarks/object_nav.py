"""How much of an object navigation step is the simulator's bare `mj_multiRay`?

The environment step (movement, collision, distances, rays, a detector, rewards, new episodes) with
64 rays against the bare calls of `mj_multiRay` for the same rays from the same poses. The share
says how near the step is to that bound.
"""

from __future__ import annotations

import dataclasses
import sys
from typing import Any

import mujoco
import numpy as np
from common import Row, Table, Variant, interleaved, parser, per_item, ratio, run_benchmark, say

from embodied_icrl.envs.object_nav_config import ObjectNavConfig
from embodied_icrl.houses.generate import HouseConfig
from embodied_icrl.houses.mujoco_export import mujoco_spec
from embodied_icrl.simulators.base import DetectorSensor, RaySensor
from embodied_icrl.simulators.poses import fan, views
from embodied_icrl.simulators.rays import SEEN_GROUPS

RAYS = RaySensor()
SENSORS: dict[str, dict[str, Any]] = {
    "64 rays": {"rays": RAYS},
    "64 rays, detector": {"rays": RAYS, "detector": DetectorSensor()},
}


def bare(env: Any) -> Any:
    """Work of one round of bare calls, from where the agents stand."""
    own = fan(RAYS.columns, RAYS.rows, RAYS.fov, RAYS.vertical_fov)
    models = [mujoco_spec(house.spec).compile() for house in env.houses]
    datas = [mujoco.MjData(model) for model in models]
    for model, data in zip(models, datas, strict=True):
        mujoco.mj_forward(model, data)
    geoms, distances = np.zeros(len(own), dtype=np.int32), np.zeros(len(own))
    simulator = env.simulator
    eyes, axes = views(simulator.positions, simulator.yaw, simulator.tilt, simulator.body)
    rays = [np.ascontiguousarray((own @ a).reshape(-1)) for a in axes]

    def work() -> None:
        for model, data, eye, way in zip(models, datas, eyes, rays, strict=True):
            mujoco.mj_multiRay(
                model, data, eye, way, SEEN_GROUPS, True, -1, geoms, distances, None, len(own),
                RAYS.max_distance,
            )  # fmt: skip

    return work, float(np.mean([model.ngeom for model in models]))


def measure(num_envs: int, n_rooms: int, steps: int, rounds: int) -> list[Row]:
    houses = HouseConfig(n_rooms=n_rooms, n_objects=4 * n_rooms)
    rows = []
    for name, sensors in SENSORS.items():
        say(f"object_nav: {name}, {num_envs} agents, {n_rooms} rooms, {rounds} rounds")
        config = dataclasses.replace(
            ObjectNavConfig(sensors=sensors, houses=houses),
            actions=("forward", "turn_left", "turn_right"), stop="automatic",
        )  # fmt: skip
        env = config.build(num_envs)
        env.reset()
        rng = np.random.default_rng(0)
        actions = rng.choice(3, size=(steps, num_envs), p=[0.6, 0.2, 0.2])
        cast, geoms = bare(env)

        def play(env: Any = env, actions: Any = actions) -> None:
            for action in actions:
                env.step(action)

        def cast_all(cast: Any = cast) -> None:
            for _ in range(steps):
                cast()

        samples = interleaved({"step": Variant(play), "bare": Variant(cast_all)}, rounds)
        share = 1.0 / ratio(samples["step"], samples["bare"])
        both = {key: per_item(found, steps * num_envs) for key, found in samples.items()}
        rows.append({"sensors": name, "num_envs": num_envs, "geoms": geoms, "share": share, **both})
        env.close()
    return rows


TABLE = Table(
    "Object navigation: the whole step against the bare mj_multiRay calls for 64 rays",
    {
        "sensors": lambda r: r["sensors"],
        "agents": lambda r: str(r["num_envs"]),
        "geoms per house": lambda r: f"{r['geoms']:.0f}",
        "bare CPU us": lambda r: f"{1e3 * r['bare']['cpu_ms']:.0f}",
        "step CPU us": lambda r: f"{1e3 * r['step']['cpu_ms']:.0f}",
        "share": lambda r: f"{r['share']:.0%}",
    },
)


def main() -> int:
    arguments = parser(__doc__).parse_args()

    def rows() -> list[Row]:
        if arguments.quick:
            return measure(2, 1, steps=5, rounds=2)
        return measure(16, 4, steps=200, rounds=7)

    return run_benchmark(__file__, arguments, rows, TABLE)


if __name__ == "__main__":
    sys.exit(main())
