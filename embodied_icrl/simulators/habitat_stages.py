"""The scenes that are loaded in habitat-sim, each once, however many agents are in it."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Mapping, Optional, Set, Tuple

from embodied_icrl.common.errors import AssetError
from embodied_icrl.houses.spec import HouseSpec
from embodied_icrl.simulators.base import AgentBody
from embodied_icrl.simulators.habitat_files import (
    SceneFiles,
    cache_folder,
    navmesh_path,
    save_in_place,
    scene_files,
)
from embodied_icrl.simulators.habitat_ground import NavGround
from embodied_icrl.simulators.habitat_world import Rig, World, device_number, habitat

# The climb that makes up for a rug, in cells.
_RUG = 1.5
# Metres.
_HOUSE_CELL, _SCENE_CELL = 0.02, 0.05


class Stage:
    """A loaded scene.

    Attributes:
        world: the simulator that holds it.
        ground: where agents can go in it.
        contents: what is in it, by semantic id.
    """

    def __init__(self, world: World, ground: NavGround) -> None:
        self.world, self.ground, self.contents = world, ground, world.contents


class Stages:
    """Lends stages to agents; those that ask for the same scene get the same stage.

    Args:
        config: the `HabitatConfig`.
        body: of the agents.
        categories: of the task.
        names: category by object name; None: the name decides.
        rigs: the cameras that every scene is loaded with.
    """

    def __init__(
        self, config: Any, body: AgentBody, categories: Tuple[str, ...],
        names: Optional[Mapping[str, str]], rigs: Tuple[Rig, ...],
    ) -> None:  # fmt: skip
        self._config, self._body = config, body
        self._categories, self._names = categories, names
        self.rigs = rigs
        self._cache = cache_folder(config.cache)
        self._stages: Dict[str, Stage] = {}
        self._spare: List[World] = []
        self._loads = 0

    def files(self, scene: Any) -> SceneFiles:
        """Where the files of a scene are; see `scene_files`."""
        return scene_files(scene, self._cache)

    def get(self, scene: Any, files: SceneFiles, in_use: Callable[[], Set[str]]) -> Stage:
        """The stage with that scene, and with all cameras that there are by now.

        Stages that were lent before may be gone after this, so that it is asked each time.

        Args:
            scene, files: the scene.
            in_use: gives the keys of all scenes that agents are in; the simulators of the others
                may be taken.
        """
        stage = self._stages.get(files.key)
        if stage is not None and stage.world.rigs is self.rigs:
            return stage
        if self._loads >= self._config.scenes_per_start * max(1, len(self._stages)):
            self.close()
        for key in list(self._stages.keys() - in_use() | {files.key}):
            if key in self._stages:
                self._spare.append(self._stages.pop(key).world)
        world = self._spare.pop() if self._spare else self._new_world()
        self._loads += 1
        try:
            lights = self._lights(scene)
            world.enter(scene, files, self.rigs, self._categories, self._names, lights)
            level = isinstance(scene, HouseSpec)
            self._find_ways(world, files, level)
            ground = NavGround(world.pathfinder, level, files.name)
        except BaseException:
            self._spare.append(world)
            raise
        self._stages[files.key] = Stage(world, ground)
        return self._stages[files.key]

    def close(self) -> None:
        """Close every simulator."""
        for world in (*(stage.world for stage in self._stages.values()), *self._spare):
            world.close()
        self._stages, self._spare, self._loads = {}, [], 0

    def _new_world(self) -> World:
        device = device_number(self._config.gpu)
        maps = self._config.light_maps
        maps = device >= 0 if maps is None else maps
        return World(device, self._config.seed, maps, self._cache)

    def _lights(self, scene: Any) -> str:
        if self._config.lights == "auto":
            return "none" if isinstance(scene, HouseSpec) else "scene"
        return str(self._config.lights)

    def _find_ways(self, world: World, files: SceneFiles, level: bool) -> None:
        """Give the scene its navigation mesh, from the cache if it is there.

        On a level floor the agent climbs rugs only: what else it could drive over is an obstacle in
        houses, such as a pair of shoes. A mesh of cells keeps up to a cell more distance from
        obstacles than it is asked for; in houses, whose other backend is exact, it is asked for a
        cell less.
        """
        config, body = self._config, self._body
        size = config.cell_size or (_HOUSE_CELL if level else _SCENE_CELL)
        climb = min(body.max_climb, _RUG * config.cell_height) if level else body.max_climb
        radius = max(body.radius - size, size) if level else body.radius
        shape = (radius, body.height, climb)
        cells = (size, config.cell_height, config.max_slope)
        path = navmesh_path(self._cache, files.key, shape, cells)
        if path.exists() and world.pathfinder.load_nav_mesh(str(path)):
            return
        settings = habitat()[0].NavMeshSettings()
        settings.set_defaults()
        settings.agent_radius, settings.agent_height, settings.agent_max_climb = shape
        settings.cell_size, settings.cell_height, settings.agent_max_slope = cells
        settings.include_static_objects = True
        if not world.build_navmesh(settings):
            raise AssetError(f"scene {files.name}: there is no floor for an agent of this size")
        save_in_place(path, world.pathfinder.save_nav_mesh)
