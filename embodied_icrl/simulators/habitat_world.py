"""One scene in one `habitat_sim.Simulator`: loading it, naming what is in it, drawing it.

Only pictures come from the simulator's own agents: agent `i` is a rig of cameras that is put where
the picture is to be taken. Nothing moves by itself, so that physics never steps.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Iterator, List, Mapping, Optional, Tuple

import numpy as np

from embodied_icrl.common.config import suggest
from embodied_icrl.common.errors import AssetError, ConfigError, MissingDependencyError
from embodied_icrl.common.files import atomic_write_json
from embodied_icrl.houses.catalogue import FLOOR_ID, WALL_ID
from embodied_icrl.houses.spec import HouseSpec
from embodied_icrl.simulators.base import FIRST_CATEGORY, FURNITURE, STRUCTURE, Instances
from embodied_icrl.simulators.habitat_files import SceneFiles
from embodied_icrl.simulators.scene import house_instances
from embodied_icrl.simulators.scenes import object_name, plain_category

ADVICE = (
    "habitat-sim has no working wheel on PyPI: build it or take its conda package, as "
    "docs/habitat.md says, and name its Python with env.simulator.python=PATH"
)
# Semantic ids that we give; below them are those of scenes.
_OTHERS, _FIRST = 20_000, 20_001
_BUILDING = ("wall", "floor", "ceiling", "door frame", "doorframe", "window frame", "stairs")
# The file that habitat-sim looks for below the working folder, and what keeps it from computing
# light maps for many seconds: an environment picture that is not there. It prints that at each
# load, and the name explains it.
_LIGHT_FILE = Path("data") / "default.pbr_config.json"
_NO_LIGHT_MAPS = {"enable_ibl": False, "ibl_envmap_filename": "light_maps_are_off.hdr"}
_FOLDER_LOCK = threading.Lock()
# All simulators of this process, the oldest first. It made the graphics context in which the others
# draw too, and takes it along when it is closed: so it is closed last, whoever it belongs to.
_OPEN: List[Any] = []
_WAITING: List[Any] = []


@dataclass(frozen=True)
class Shot:
    """A camera of a rig: kind rgb, depth or semantic; field of view in degrees, horizontal.

    `turn` is its yaw relative to the rig, radians, to the right positive.
    """

    kind: str
    width: int
    height: int
    fov: float
    turn: float = 0.0


Rig = Tuple[Shot, ...]


@dataclass(frozen=True)
class Contents:
    """What is in a scene, by semantic id.

    Attributes:
        instances: the target objects.
        ids: int64 `[instance]`, their semantic ids.
        classes: int8 `[id]`, the class that each semantic id stands for.
    """

    instances: Instances
    ids: np.ndarray
    classes: np.ndarray

    @property
    def kinds(self) -> np.ndarray:
        """Categories of the instances."""
        return self.instances.categories

    @property
    def centres(self) -> np.ndarray:
        """Middles of the instances."""
        return self.instances.centres


def habitat() -> Tuple[Any, Any]:
    """The modules habitat_sim and magnum, quiet.

    Raises:
        MissingDependencyError: this Python has none; the message says how to get one.
    """
    for name, level in (("MAGNUM_LOG", "quiet"), ("HABITAT_SIM_LOG", "quiet")):
        os.environ.setdefault(name, level)
    # A software renderer starts a thread per core, which gains nothing at these sizes.
    os.environ.setdefault("LP_NUM_THREADS", "1")
    try:
        return importlib.import_module("habitat_sim"), importlib.import_module("magnum")
    except ImportError as error:
        raise MissingDependencyError(f"no habitat_sim in this Python ({error}): {ADVICE}") from None


class World:
    """A simulator that is lent to one scene after the other.

    Args:
        device: number of the CUDA device that draws; -1: the processor, or whatever EGL takes.
        seed: of the simulator itself; nothing of ours draws from it.
        light_maps: let habitat-sim compute its image-based lighting.
        cache: where the file is put that turns light maps off.

    Attributes:
        contents: what is in the scene.
    """

    def __init__(self, device: int, seed: int, light_maps: bool, cache: Path) -> None:
        self._habitat, self._magnum = habitat()
        self._device, self._seed, self._light_maps = device, seed, light_maps
        self._cache = cache
        self._sim: Any = None
        self._rigs: Tuple[Rig, ...] = ()
        self.contents: Any = None

    def enter(
        self, scene: Any, files: SceneFiles, rigs: Tuple[Rig, ...],
        categories: Tuple[str, ...], names: Optional[Mapping[str, str]], lights: str,
    ) -> None:  # fmt: skip
        """Load a scene with cameras.

        Args:
            scene: what was asked for, a `HouseSpec` or `HabitatScene`.
            files: where it is.
            rigs: cameras that are drawn together.
            categories: of the task.
            names: category by object name; without it the name decides.
            lights: "none", or "scene" for those of the scene.

        Raises:
            AssetError: the dataset has no such scene or object.
        """
        colour = any(shot.kind == "rgb" for rig in rigs for shot in rig)
        if colour and self._sim is not None and not self._has_colour():
            self.close()  # textures can't be added to a simulator that began without
        configuration = self._configuration(files, rigs, lights)
        if self._sim is None:
            with self._light_settings():
                mediator = self._habitat.metadata.MetadataMediator(configuration.sim_cfg)
            self._check_scene(mediator, files)
            configuration.metadata_mediator = mediator
            self._sim = self._habitat.Simulator(configuration)
            _OPEN.append(self._sim)
        else:
            mediator = self._sim.metadata_mediator
            mediator.active_dataset = files.dataset
            self._check_scene(mediator, files)
            configuration.metadata_mediator = mediator
            self._sim.reconfigure(configuration)
        self._rigs = rigs
        own = self._sorted_objects()
        if isinstance(scene, HouseSpec):
            self.contents = self._house(scene, own, categories)
        else:
            placed = self._add_objects(files)
            self.contents = self._things(scene, own, placed, categories, names)

    @property
    def rigs(self) -> Tuple[Rig, ...]:
        """The cameras that the scene was loaded with."""
        return self._rigs

    def draw(self, rig: int, eye: np.ndarray, yaw: float, tilt: float) -> List[np.ndarray]:
        """The pictures of a rig's cameras, in buffers that the next call uses again.

        Args:
            rig: which.
            eye: the cameras' place, `[3]`.
            yaw, tilt: radians.

        Returns:
            per camera: uint8 `[height, width, 4]` (rgb), float32 `[height, width]` (depth: metres,
            0 where there is nothing) or unsigned `[height, width]` (semantic ids).
        """
        vector, quaternion = self._magnum.Vector3, self._magnum.Quaternion
        cy, sy = np.cos(yaw / 2), np.sin(yaw / 2)
        ct, st = np.cos(tilt / 2), np.sin(tilt / 2)
        node = self._sim.agents[rig].scene_node
        node.translation = vector(float(eye[0]), float(eye[1]), float(eye[2]))
        # First the tilt about x, then the yaw about y.
        turn = vector(float(cy * st), float(sy * ct), float(-sy * st))
        node.rotation = quaternion(turn, float(cy * ct))
        seen = self._sim.get_sensor_observations(agent_ids=[rig])[rig]
        return [seen[f"{rig}/{i}"] for i in range(len(self._rigs[rig]))]

    @property
    def pathfinder(self) -> Any:
        """The simulator's own."""
        return self._sim.pathfinder

    def build_navmesh(self, settings: Any) -> bool:
        """Compute the navigation mesh of the scene with all that stands in it."""
        return bool(self._sim.recompute_navmesh(self._sim.pathfinder, settings))

    def close(self) -> None:
        """Free the simulator, graphics memory included."""
        if self._sim is not None:
            _close(self._sim)
            self._sim = None
        self._rigs = ()

    def _has_colour(self) -> bool:
        return any(shot.kind == "rgb" for rig in self._rigs for shot in rig)

    @contextlib.contextmanager
    def _light_settings(self) -> Iterator[None]:
        """habitat-sim reads its defaults for lighting below the working folder, when its metadata
        are made and at no other time."""
        if self._light_maps:
            yield
            return
        folder = self._cache / "settings"
        (folder / _LIGHT_FILE).parent.mkdir(parents=True, exist_ok=True)
        atomic_write_json(folder / _LIGHT_FILE, _NO_LIGHT_MAPS)
        with _FOLDER_LOCK:
            before = os.open(".", os.O_RDONLY)
            try:
                os.chdir(folder)
                yield
            finally:
                os.fchdir(before)
                os.close(before)

    def _configuration(self, files: SceneFiles, rigs: Tuple[Rig, ...], lights: str) -> Any:
        sim = self._habitat.SimulatorConfiguration()
        sim.scene_dataset_config_file = files.dataset
        sim.scene_id = files.handle
        sim.gpu_device_id = self._device
        sim.random_seed = self._seed
        sim.enable_physics = bool(self._habitat.built_with_bullet)
        sim.frustum_culling = True
        sim.load_semantic_mesh = True
        if lights == "none":
            sim.override_scene_light_defaults = True
            sim.scene_light_setup = self._habitat.gfx.NO_LIGHT_KEY
        agents = []
        for number, rig in enumerate(rigs):
            agent = self._habitat.agent.AgentConfiguration()
            agent.sensor_specifications = [
                self._sensor(f"{number}/{i}", shot) for i, shot in enumerate(rig)
            ]
            agents.append(agent)
        return self._habitat.Configuration(sim, agents)

    def _sensor(self, name: str, shot: Shot) -> Any:
        types = self._habitat.SensorType
        kinds = {"rgb": types.COLOR, "depth": types.DEPTH, "semantic": types.SEMANTIC}
        spec = self._habitat.CameraSensorSpec()
        spec.uuid, spec.sensor_type = name, kinds[shot.kind]
        spec.resolution = [shot.height, shot.width]
        spec.hfov = self._magnum.Deg(shot.fov)
        spec.position = [0.0, 0.0, 0.0]
        spec.orientation = [0.0, -float(shot.turn), 0.0]
        return spec

    def _check_scene(self, mediator: Any, files: SceneFiles) -> None:
        """habitat-sim ends the process where a scene is missing."""
        if files.dataset == "default":
            return
        known = [Path(name).name.split(".")[0] for name in mediator.get_scene_handles()]
        wanted = Path(files.handle).name.split(".")[0]
        stages = mediator.stage_template_manager.get_template_handles(wanted)
        if wanted not in known and not stages:
            raise AssetError(
                f"{files.dataset}: no scene {files.handle!r}; {suggest(wanted, known)}"
            )

    def _sorted_objects(self) -> List[Any]:
        """The rigid objects of the scene, in the order of their creation."""
        found = self._sim.get_rigid_object_manager().get_objects_by_handle_substring()
        return sorted(found.values(), key=lambda item: item.object_id)

    def _add_objects(self, files: SceneFiles) -> List[Any]:
        templates = self._sim.get_object_template_manager()
        for folder in files.object_paths:
            templates.load_configs(folder)
        manager = self._sim.get_rigid_object_manager()
        added = []
        for item in files.objects:
            handles = templates.get_template_handles(item.name)
            exact = [handle for handle in handles if object_name(handle) == item.name]
            if not exact:
                raise AssetError(
                    f"scene {files.name}: no configuration of the object {item.name!r} in "
                    f"{', '.join(files.object_paths) or 'its dataset'}"
                )
            thing = manager.add_object_by_template_handle(exact[0])
            if thing is None or not thing.is_alive:
                raise AssetError(f"scene {files.name}: the object {item.name!r} can't be loaded")
            rows = np.array(item.pose, dtype=np.float32).reshape(4, 4)
            # The pose first: what is STATIC can't be moved any more.
            thing.transformation = self._magnum.Matrix4(rows.T.tolist())
            thing.motion_type = self._habitat.physics.MotionType.STATIC
            added.append(thing)
        return added

    def _house(self, spec: HouseSpec, own: List[Any], categories: Tuple[str, ...]) -> Contents:
        if len(own) != len(spec.items):
            raise AssetError(
                f"house {spec.name}: habitat-sim made {len(own)} of its {len(spec.items)} objects; "
                "delete the cache folder if its files are damaged"
            )
        instances, _ = house_instances(spec, categories)
        ids = _FIRST + np.arange(len(spec.objects))
        first = len(spec.furniture)
        for number, thing in enumerate(own):
            thing.semantic_id = _OTHERS if number < first else int(ids[number - first])
        return Contents(instances, ids, _classes(instances, ids, (FLOOR_ID, WALL_ID)))

    def _things(
        self, scene: Any, own: List[Any], placed: List[Any], categories: Tuple[str, ...],
        names: Optional[Mapping[str, str]],
    ) -> Contents:  # fmt: skip
        """The instances of a dataset's scene: what was placed, what the scene brings, and what its
        semantic mesh names; each if it is of a category of the task."""
        numbers = {name: i for i, name in enumerate(categories)}
        found: List[Tuple[int, str, np.ndarray, int]] = []
        for thing, item in zip(placed, scene.objects):
            self._name(thing, item.name, item.category, numbers, found)
        for thing in own:
            name = object_name(thing.handle.split(":")[0].rstrip("_"))
            category = plain_category(name) if names is None else names.get(name, "")
            self._name(thing, name, category, numbers, found)
        self._name_articulated()
        building = []
        for thing in self._sim.semantic_scene.objects:
            if thing is None or thing.category is None:
                continue
            category = thing.category.name()
            number = int(thing.semantic_id)
            if category.replace(" ", "_") in numbers:
                kind = numbers[category.replace(" ", "_")]
                found.append((kind, thing.id, np.array(thing.aabb.center()), number))
            elif category.lower() in _BUILDING:
                building.append(number)
        instances = Instances(
            np.array([kind for kind, _, _, _ in found], dtype=np.int64),
            np.array([centre for _, _, centre, _ in found], dtype=np.float64).reshape(-1, 3),
            tuple(name for _, name, _, _ in found),
        )
        ids = np.array([number for _, _, _, number in found], dtype=np.int64)
        return Contents(instances, ids, _classes(instances, ids, tuple(building)))

    def _name(
        self, thing: Any, name: str, category: str, numbers: Mapping[str, int],
        found: List[Tuple[int, str, np.ndarray, int]],
    ) -> None:  # fmt: skip
        if category not in numbers:
            thing.semantic_id = _OTHERS
            return
        thing.semantic_id = _FIRST + len(found)
        box = thing.root_scene_node.cumulative_bb
        middle = thing.transformation.transform_point(box.center())
        found.append((numbers[category], name, np.array(middle), _FIRST + len(found)))

    def _name_articulated(self) -> None:
        manager = self._sim.get_articulated_object_manager()
        for thing in manager.get_objects_by_handle_substring().values():
            for link in (-1, *thing.get_link_ids()):
                for node in thing.get_link_visual_nodes(link):
                    node.semantic_id = _OTHERS


def _close(simulator: Any) -> None:
    """Close a simulator now, or, if others draw in its context, after them."""
    if simulator is _OPEN[0] and len(_OPEN) > 1:
        _WAITING.append(simulator)
        return
    _OPEN.remove(simulator)
    simulator.close(destroy=True)
    if _WAITING and len(_OPEN) == 1:
        _OPEN.clear()
        _WAITING.pop().close(destroy=True)


def _classes(instances: Instances, ids: np.ndarray, building: Tuple[int, ...]) -> np.ndarray:
    """The class by semantic id: int8 `[65536]`, as many as habitat-sim can tell apart."""
    classes = np.full(2**16, FURNITURE, dtype=np.int8)
    # What has no label is the building.
    classes[0] = STRUCTURE
    classes[list(building)] = STRUCTURE
    known = instances.categories >= 0
    classes[ids[known]] = FIRST_CATEGORY + instances.categories[known]
    return classes


def device_number(gpu: Any) -> int:
    """The CUDA device of `HabitatConfig.gpu`; -1 without one.

    Raises:
        ConfigError: it is neither a number nor per_rank.
    """
    if gpu is None:
        return -1
    if gpu == "per_rank":
        return int(os.environ.get("LOCAL_RANK", "0"))
    if isinstance(gpu, bool) or not isinstance(gpu, int) or gpu < 0:
        raise ConfigError(f"gpu: use null, the number of a GPU, or per_rank, not {gpu!r}")
    return gpu
