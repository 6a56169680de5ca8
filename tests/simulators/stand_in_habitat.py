"""A stand-in for habitat_sim and magnum: loads our exported houses, draws them with MuJoCo's rays.

It has what the backend uses of habitat_sim 0.3, in its frames and units, and refuses what the real
one crashes on. Its navigation mesh is the exact free space of the MuJoCo backend.
"""

from __future__ import annotations

import json
import os
import types
from pathlib import Path
from typing import Any

import numpy as np

from embodied_icrl.houses.frames import to_mujoco
from embodied_icrl.houses.json_io import house_from_dict
from embodied_icrl.simulators.base import FURNITURE, STRUCTURE, AgentBody
from embodied_icrl.simulators.geodesic import look_up, place_of
from embodied_icrl.simulators.motion import SLACK, Movers
from embodied_icrl.simulators.poses import pixel_directions
from embodied_icrl.simulators.scene import build_scene
from embodied_icrl.simulators.sight import cast


class Vector3(tuple):
    def __new__(cls, x: float, y: float, z: float) -> Vector3:
        assert all(type(v) is float for v in (x, y, z)), "magnum takes floats only"
        return super().__new__(cls, (x, y, z))


class Quaternion:
    def __init__(self, vector: Vector3, scalar: float) -> None:
        self.vector, self.scalar = np.array(vector), scalar

    def matrix(self) -> np.ndarray:
        (x, y, z), w = self.vector, self.scalar
        return np.array(
            [
                [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
                [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
                [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
            ]
        )


class Thing:
    """A rigid object."""

    def __init__(self, number: int) -> None:
        self.object_id, self.handle, self.semantic_id = number, f"thing_:{number:04d}", 0
        self.is_alive = True


class PathFinder:
    def __init__(self, scene: Any) -> None:
        self.scene, self.is_loaded, self.num_islands = scene, False, 1
        self.movers = Movers(1, scene.ground.radius - SLACK)
        self.movers.load(0, scene.ground)

    def load_nav_mesh(self, path: str) -> bool:
        self.is_loaded = Path(path).read_text() == "mesh"
        return self.is_loaded

    def save_nav_mesh(self, path: str) -> bool:
        Path(path).write_text("mesh")
        return True

    def island_area(self, island: int) -> float:
        return float(self.scene.ground.region.sum())

    def get_island(self, point: Any) -> int:
        return 0

    def _cells(self) -> np.ndarray:
        ground = self.scene.ground
        return ground.space.points(ground.region)

    def build_navmesh_vertices(self, island: int) -> list[Vector3]:
        half = self.scene.ground.space.cell / 2
        corners = ((-half, -half), (half, -half), (half, half), (-half, half))
        cells = self._cells()
        inside = self.scene.ground.clearance(cells) > self.scene.ground.radius + 1.5 * half
        return [Vector3(x + a, 0.1, z + b) for x, z in cells[inside].tolist() for a, b in corners]

    def build_navmesh_vertex_indices(self, island: int) -> list[int]:
        count = len(self.build_navmesh_vertices(island)) // 4
        return [4 * i + k for i in range(count) for k in (0, 1, 2, 0, 2, 3)]

    def snap_point(self, point: Vector3) -> Any:
        ground = self.scene.ground
        flat = np.array([[point[0], point[2]]])
        cell = np.floor((flat - (ground.space.x0, ground.space.z0)) / ground.space.cell).astype(int)
        inside = (cell >= 0).all() and (cell < ground.region.shape[::-1]).all()
        free = inside and ground.region[cell[0, 1], cell[0, 0]]
        if not free or ground.clearance(flat)[0] < ground.radius:
            return (np.nan, np.nan, np.nan)
        return Vector3(point[0], 0.1, point[2])

    def try_step(self, start: Vector3, end: Vector3) -> Vector3:
        begin, way = np.array([start])[:, ::2], np.array([end])[:, ::2] - np.array([start])[:, ::2]
        length = np.hypot(*way.T)
        x, z = self.movers.move(begin, way / length[:, None], length)[0].tolist()
        return Vector3(x, 0.1, z)

    def find_path(self, path: Any) -> bool:
        goal = np.array(path.requested_ends) * (1, 0, 1)
        field = self.scene.fields([goal])
        space = self.scene.ground.fine
        origin, shape = np.array([space.x0, space.z0]), np.array([space.free.shape])

        def far(points: np.ndarray) -> np.ndarray:
            place = place_of(points, origin, space.cell)
            shapes = np.repeat(shape, len(points), axis=0)
            return look_up(field, np.zeros(len(points), int), place, shapes)

        start = np.array([path.requested_start])[:, ::2]
        path.geodesic_distance = float(far(start)[0])
        return bool(np.isfinite(path.geodesic_distance))

    def get_bounds(self) -> Any:
        space = self.scene.ground.space
        return Vector3(float(space.x0), 0.1, float(space.z0)), None

    def get_topdown_island_view(self, metres: float, height: float, eps: float) -> np.ndarray:
        assert abs(metres - 0.05) < 1e-9
        return np.where(self.scene.ground.region, 0, -1)


class Simulator:
    """Counts its instances, so that tests see what is left open."""

    alive: list[Simulator] = []
    loads: list[str] = []

    def __init__(self, configuration: Any) -> None:
        self.metadata_mediator = configuration.metadata_mediator
        assert self.metadata_mediator.light_maps is False, "18 s for light maps"
        Simulator.alive.append(self)
        self.reconfigure(configuration)

    def reconfigure(self, configuration: Any) -> None:
        sim = configuration.sim_cfg
        assert self in Simulator.alive and sim.gpu_device_id == -1, "aborts without CUDA"
        assert sim.override_scene_light_defaults and sim.scene_light_setup == "no_lights"
        Simulator.loads.append(sim.scene_id)
        node = json.loads((Path(sim.scene_dataset_config_file).parent / "house.json").read_text())
        self.spec = house_from_dict(node)
        self.scene = build_scene(self.spec, (), AgentBody(), 2, check=False)
        self.seen: Any = (None, None)
        self.pathfinder = PathFinder(self.scene)
        self.things = [Thing(i) for i in range(len(self.spec.items))]
        self.agents = [
            types.SimpleNamespace(
                scene_node=types.SimpleNamespace(translation=None, rotation=None),
                specs=agent.sensor_specifications,
            )
            for agent in configuration.agents
        ]

    def get_rigid_object_manager(self) -> Any:
        found = {thing.handle: thing for thing in reversed(self.things)}
        return types.SimpleNamespace(get_objects_by_handle_substring=lambda: found)

    def recompute_navmesh(self, pathfinder: PathFinder, settings: Any) -> bool:
        assert settings.include_static_objects
        pathfinder.is_loaded = True
        return True

    def get_sensor_observations(self, agent_ids: list[int]) -> dict[int, dict[str, np.ndarray]]:
        rigs = {i: self.agents[i] for i in agent_ids}
        return {i: {s.uuid: self._draw(rig, s) for s in rig.specs} for i, rig in rigs.items()}

    def _draw(self, agent: Any, spec: Any) -> np.ndarray:
        height, width = spec.resolution
        rows, columns = (index.ravel() for index in np.indices((height, width)))
        local = pixel_directions(columns, rows, width, height, spec.hfov)
        yaw = spec.orientation[1]
        c, s = np.cos(yaw), np.sin(yaw)
        x, y, z = local[:, 0], local[:, 1], -local[:, 2]
        turned = np.stack([c * x + s * z, y, c * z - s * x], axis=1)
        world = turned @ agent.scene_node.rotation.matrix().T
        eye = to_mujoco(np.array(agent.scene_node.translation))
        key = (eye.tobytes(), world.tobytes())
        if self.seen[0] != key:  # depth and ids of one view are drawn one after the other
            self.seen = (key, cast(self.scene, eye, to_mujoco(world)))
        geoms, far = self.seen[1]
        hit = geoms >= 0
        if spec.sensor_type == "depth":
            depth = np.where(hit, far * local[:, 2], 0.0)
            return depth.reshape(height, width).astype(np.float32)
        number = self._ids()[geoms]
        if spec.sensor_type == "semantic":
            return number.reshape(height, width).astype(np.uint32)
        grey = np.where(hit, 255 / (1 + np.maximum(far, 0)) + number % 32, 0)
        picture = np.repeat(grey.astype(np.uint8)[:, None], 4, axis=1)
        return picture.reshape(height, width, 4)

    def _ids(self) -> np.ndarray:
        scene, first = self.scene, len(self.spec.furniture)
        objects = np.array([0, *(thing.semantic_id for thing in self.things[first:])])
        ids = objects[scene.owners + 1]
        ids[(scene.classes == FURNITURE) & (scene.owners < 0)] = self.things[0].semantic_id
        ids[scene.classes == STRUCTURE] = 1
        ids[-1] = 0
        return ids

    def close(self, destroy: bool) -> None:
        first = Simulator.alive[0] is self
        assert destroy and not (first and len(Simulator.alive) > 1), "takes the context along"
        Simulator.alive.remove(self)


class MetadataMediator:
    def __init__(self, sim: Any) -> None:
        file = Path("data/default.pbr_config.json")
        self.light_maps = json.loads(file.read_text())["enable_ibl"] if file.exists() else True
        assert os.path.isabs(sim.scene_dataset_config_file)
        self.active_dataset = sim.scene_dataset_config_file
        self.stage_template_manager = types.SimpleNamespace(get_template_handles=lambda name: [])

    def get_scene_handles(self) -> list[str]:
        folder = Path(self.active_dataset).parent / "scenes"
        return [str(path) for path in folder.glob("*.scene_instance.json")]


class Plain:
    """Something with attributes."""

    def __init__(self, *given: Any) -> None:
        names = ("sim_cfg", "agents")
        self.__dict__.update(zip(names, given))

    def set_defaults(self) -> None:
        self.include_static_objects = False


def modules() -> dict[str, types.ModuleType]:
    """The two modules, by name."""
    habitat, magnum = types.ModuleType("habitat_sim"), types.ModuleType("magnum")
    vars(magnum).update(Vector3=Vector3, Quaternion=Quaternion, Deg=float)
    vars(habitat).update(
        Simulator=Simulator,
        SimulatorConfiguration=Plain,
        Configuration=Plain,
        CameraSensorSpec=Plain,
        NavMeshSettings=Plain,
        MultiGoalShortestPath=Plain,
        SensorType=types.SimpleNamespace(COLOR="rgb", DEPTH="depth", SEMANTIC="semantic"),
        agent=types.SimpleNamespace(AgentConfiguration=Plain),
        metadata=types.SimpleNamespace(MetadataMediator=MetadataMediator),
        gfx=types.SimpleNamespace(NO_LIGHT_KEY="no_lights"),
        built_with_bullet=True,
    )
    return {"habitat_sim": habitat, "magnum": magnum}
