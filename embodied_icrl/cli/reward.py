"""`embodied-icrl reward search|evaluate|video|report|check|tasks|new`."""

from __future__ import annotations

import dataclasses
import importlib.util
import keyword
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from embodied_icrl.cli.errors import CommandStopped
from embodied_icrl.common.config import build, option
from embodied_icrl.common.errors import ConfigError, UserError
from embodied_icrl.common.files import atomic_write_text
from embodied_icrl.common.paths import config_dir
from embodied_icrl.manipulation.task import Task


@dataclass(frozen=True)
class EvaluateConfig:
    """What `reward evaluate` measures."""

    seeds: int = option(5, "trainings")
    episodes: int = option(100, "per trained policy, none that the search chose by")

    def __post_init__(self) -> None:
        if self.seeds < 1 or self.episodes < 1:
            raise ConfigError("evaluate.seeds and evaluate.episodes must be at least 1")


@dataclass(frozen=True)
class RewardConfig:
    """What the actions that don't train read."""

    action: Literal["search", "evaluate", "video", "report", "check", "tasks", "new"] | None = (
        option(
            None,
            "search, evaluate, video, report, check, tasks or new: the command's first word",
        )
    )
    argument: str | None = option(
        None,
        "check, evaluate: file with reward code (.py, or an answer with code blocks); "
        "new: name of the task; the command's second word",
    )
    task: Any = option(None, "the task")
    components: Literal["sum", "free"] = option("free", "how components relate to the total")
    run: str | None = option(None, "the run directory")
    output: str | None = option(
        None, "new: the directory; evaluate: the JSON file; video: the MP4 file"
    )
    evaluate: EvaluateConfig = option(EvaluateConfig, "what `reward evaluate` measures")
    debug: bool = option(False, "full tracebacks for usage errors")


def run_reward(node: Any) -> None:
    """Do what `action` says.

    Raises:
        ConfigError: a word or key is missing or doesn't fit.
        CommandStopped: a checked file is refused (exit status 1), or a search is stopped.
    """
    actions: Mapping[str, Callable[[RewardConfig], None]] = {
        "check": check_file,
        "tasks": show_tasks,
        "new": write_new_task,
    }
    names = {field.name for field in dataclasses.fields(RewardConfig)}
    plain = to_plain(node)
    config = build({key: plain[key] for key in plain if key in names}, RewardConfig)
    if config.action is None:
        raise ConfigError(
            "say what to do: embodied-icrl reward search task=NAME, evaluate, video, report, "
            "check FILE task=NAME, tasks, or new NAME output=DIR"
        )
    if config.action in actions:
        actions[config.action](config)
        return
    from embodied_icrl.cli import reward_search  # not before: it takes a second to import

    action: Callable[[RewardConfig, Mapping[str, Any]], None] = {
        "search": reward_search.search,
        "evaluate": reward_search.evaluate,
        "video": reward_search.make_video,
        "report": reward_search.make_report,
    }[config.action]
    own = {"action", "argument", "output", "evaluate", "debug"}
    action(config, {key: value for key, value in plain.items() if key not in own})


def to_plain(node: Any) -> dict[str, Any]:
    """What Hydra composed, as plain data."""
    from omegaconf import OmegaConf

    plain = OmegaConf.to_container(node, resolve=True) if OmegaConf.is_config(node) else node
    assert isinstance(plain, dict)
    return {str(key): value for key, value in plain.items()}


def check_file(config: RewardConfig) -> None:
    """Print what the checks find in a file, one line each; nothing of it runs outside a sandbox."""
    from embodied_icrl.reward_search.checks import check_reward
    from embodied_icrl.reward_search.sandbox import available_layers

    source = read_source(config.argument)
    task = _task(config.task)
    print(f"sandbox: {available_layers().name}", file=sys.stderr)
    report = check_reward(source, task, components=config.components)
    for finding in report.findings:
        print(finding.text)
    if not report.accepted:
        raise CommandStopped(1)
    print("accepted")


def read_source(name: str | None) -> str:
    """The reward code in a file.

    Raises:
        ConfigError: no file, or one that can't be read.
        CommandStopped: it is an answer without code; the reason is printed.
    """
    from embodied_icrl.reward_search.extract import NoCode, read_reward

    if name is None:
        raise ConfigError("name a file: embodied-icrl reward check FILE task=NAME")
    try:
        return read_reward(name)
    except NoCode as error:
        print(f"signature, whole file: {error}")
        raise CommandStopped(1) from None


def _task(node: Any) -> Task:
    if not node:
        raise ConfigError(f"name a task: task=NAME, one of {', '.join(sorted(task_files()))}")
    return build_task(node)


def build_task(node: Any) -> Task:
    """The task that a configuration node describes by its `_target_`."""
    base: Any = Task
    task: Task = build(node, base, "task")
    return task


def task_files() -> dict[str, Path]:
    """The task configurations by name: ours, and those of --config-dir."""
    from hydra.core.hydra_config import HydraConfig

    folders = [config_dir()]
    if HydraConfig.initialized():
        sources = HydraConfig.get().runtime.config_sources
        folders += [Path(source.path) for source in sources if source.schema == "file"]
    files = [path for folder in folders for path in sorted(folder.glob("task/*.yaml"))]
    return {path.stem: path for path in files}


def show_tasks(config: RewardConfig) -> None:
    """Print what tasks declare: all of them, or the one that `task` names."""
    import yaml

    if config.task:
        task = _task(config.task)
        print(_description(task.name, task))
        print(f"\nhuman-written reward:\n\n{_indented(task.human_reward)}")
        return
    for name, path in task_files().items():
        try:
            print(_description(name, build_task(yaml.safe_load(path.read_text()))))
        except (UserError, yaml.YAMLError) as error:
            print(f"{name}: can't be used: {' '.join(str(error).split())}")
        print()


def _description(name: str, task: Task) -> str:
    lines = [f"{name}: {task.description}", f"  {task.horizon} steps per episode; fields:"]
    widths = [max(len(text(field)) for field in task.fields) for text in _COLUMNS]
    for field in task.fields:
        cells = [text(field).ljust(width) for text, width in zip(_COLUMNS, widths)]
        lines.append("    " + "  ".join([*cells, field.meaning]))
    return "\n".join(lines)


_COLUMNS: tuple[Callable[[Any], str], ...] = (
    lambda field: field.name,
    lambda field: "x".join(map(str, field.shape)) or "number",
    lambda field: field.unit,
)


def _indented(text: str) -> str:
    return "".join(f"    {line}\n" for line in text.splitlines())


def write_new_task(config: RewardConfig) -> None:
    """Write a small working task and its configuration, to be changed into one's own.

    Raises:
        ConfigError: the name can't be that of a module, or a file is there already.
    """
    from embodied_icrl.reward_search import task_template

    name = config.argument
    if name is None or config.output is None:
        raise ConfigError("give a name and a directory: embodied-icrl reward new NAME output=DIR")
    if not re.fullmatch("[a-z][a-z0-9_]*", name) or keyword.iskeyword(name):
        raise ConfigError(
            f"{name!r}: a name has lower-case letters, digits and _ only, and is no word of Python"
        )
    folder = Path(config.output)
    code, yaml_file = folder / f"{name}.py", folder / "task" / f"{name}.yaml"
    for path in (code, yaml_file):
        if path.exists():
            raise ConfigError(f"{path} is there already")
    hidden = importlib.util.find_spec(name)
    if hidden is not None and hidden.origin is not None:
        raise ConfigError(f"{name!r}: it would hide a module of that name, {hidden.origin}")
    class_name = "".join(part.capitalize() for part in name.split("_"))
    source = Path(task_template.__file__).read_text()
    yaml_file.parent.mkdir(parents=True, exist_ok=True)
    atomic_write_text(code, source.replace("NewTask", class_name).replace("new_task", name))
    settings = f"_target_: {name}.{class_name}\nhorizon: 50  # steps per episode\n"
    atomic_write_text(yaml_file, settings)
    print(f"{code}\n{yaml_file}")
    print(f"try it: embodied-icrl reward tasks --config-dir {folder} task={name}")
