"""`embodied-icrl COMMAND key=value ...`: every command goes through Hydra's own entry point."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from embodied_icrl import __version__
from embodied_icrl.cli.compose import config_folders
from embodied_icrl.cli.errors import exit_status, leave_rank
from embodied_icrl.cli.help import command_help, general_help
from embodied_icrl.common.errors import ConfigError
from embodied_icrl.common.paths import config_dir


@dataclass(frozen=True)
class Command:
    """A command: the function that does it, its configuration file, and one line of help."""

    function: str
    config_name: str
    doc: str
    open_keys: tuple[str, ...] = ()  # groups whose keys come from a run, not from the YAML
    words: tuple[str, ...] = ()  # keys that plain words after the command stand for, in order


COMMANDS = {
    "train": Command(
        "embodied_icrl.cli.train:run_train",
        "train",
        "train a policy that learns in context; leaves a run directory",
    ),
    "evaluate": Command(
        "embodied_icrl.cli.evaluate:run_evaluate",
        "evaluate",
        "the in-context learning curve of a run, on held-out tasks",
        open_keys=("env",),
    ),
    "video": Command(
        "embodied_icrl.cli.video:run_video", "video", "film trials of a run", open_keys=("env",)
    ),
    "house": Command(
        "embodied_icrl.cli.house:run_house",
        "house",
        "show: generate a house and draw it; export: as a MuJoCo model or a Habitat scene dataset",
        words=("action",),
    ),
    "bench": Command(
        "embodied_icrl.cli.bench:run_bench",
        "bench",
        "measure speed and memory (in a checkout)",
        words=("name",),
    ),
    "reward": Command(
        "embodied_icrl.cli.reward:run_reward",
        "reward",
        "search: write reward code for a task; evaluate, video, report: of what was found; "
        "check FILE, tasks, new NAME",
        open_keys=("task", "quick.hyperparameters", "full.hyperparameters"),
        words=("action", "argument"),
    ),
    "doctor": Command(
        "embodied_icrl.cli.doctor:run_doctor",
        "doctor",
        "look at this machine (GPU, rendering, habitat-sim, data) and say what to do",
    ),
}


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Run a command and exit with its status (`cli.errors.exit_status`)."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    debug = "debug=true" in [argument.lower() for argument in arguments]
    leave_rank(exit_status(lambda: dispatch(arguments), debug=debug))


def dispatch(arguments: list[str]) -> None:
    """Run the command that `arguments` name."""
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(general_help({name: command.doc for name, command in COMMANDS.items()}))
        return
    if arguments[0] == "--version":
        print(f"embodied-icrl {__version__}")
        return
    name, rest = arguments[0], arguments[1:]
    if name not in COMMANDS:
        from embodied_icrl.common.config import suggest

        raise ConfigError(f"unknown command {name!r}; {suggest(name, list(COMMANDS))}")
    command = COMMANDS[name]
    if any(argument in ("-h", "--help") for argument in rest):
        _add_config_dirs_to_path(rest)  # the help may show a class of theirs
        print(command_help(name, command.doc, command.config_name, rest))
        return
    rest = _keyed(rest, command.words)
    run_through_hydra(name, command, rest)


def run_through_hydra(name: str, command: Command, rest: list[str]) -> None:
    """Compose the configuration and call the command's function with it."""
    import hydra

    # Exceptions reach `main` instead of being printed by Hydra, which would exit with 1.
    os.environ["HYDRA_FULL_ERROR"] = "1"
    _add_config_dirs_to_path(rest)
    rest = [_opened(argument, command.open_keys) for argument in rest]
    task = _Task(command.function)
    sys.argv = [f"embodied-icrl {name}", *rest]
    entry = hydra.main(
        version_base="1.3", config_path=str(config_dir()), config_name=command.config_name
    )(task)
    entry()
    if task.error is not None:
        raise task.error


class _Task:
    """The function Hydra calls; picklable, so that launcher plugins can send it away."""

    __name__ = __qualname__ = "task"

    def __init__(self, function: str) -> None:
        self.function = function
        self.error: Exception | None = None

    def __call__(self, node: Any) -> None:
        from hydra.core.hydra_config import HydraConfig
        from hydra.types import RunMode

        try:
            load_function(self.function)(node)
        except Exception as error:
            if HydraConfig.get().mode == RunMode.MULTIRUN:
                raise
            # Past Hydra, which would print a line of its own before ours.
            self.error = error


def load_function(name: str) -> Callable[[Any], None]:
    """`package.module:function` as the function."""
    module, _, attribute = name.partition(":")
    function: Callable[[Any], None] = getattr(importlib.import_module(module), attribute)
    return function


def _keyed(arguments: list[str], keys: Sequence[str]) -> list[str]:
    """The first plain words as keys: `check my.py` as `action="check" argument="my.py"`."""
    count = 0
    for argument in arguments[: len(keys)]:
        if "=" in argument or argument.startswith("-"):
            break
        count += 1
    quoted = [word.replace("\\", "\\\\").replace('"', '\\"') for word in arguments[:count]]
    keyed = [f'{key}="{word}"' for key, word in zip(keys, quoted)]
    rest = arguments[count:]
    # Beside the other overrides: Hydra's own parser wants them in one row, flags before or after.
    first = (i for i, word in enumerate(rest) if "=" in word and not word.startswith("-"))
    at = next(first, len(rest))
    return rest[:at] + keyed + rest[at:]


def _opened(argument: str, open_keys: Sequence[str]) -> str:
    """`env.n_rooms=4` as `++env.n_rooms=4`: Hydra refuses keys that the YAML doesn't list."""
    is_open = argument.startswith(tuple(f"{key}." for key in open_keys))
    return f"++{argument}" if is_open else argument


def _add_config_dirs_to_path(arguments: list[str]) -> None:
    """`--config-dir DIR` also makes DIR's Python files importable, here and in worker processes."""
    for path in map(str, config_folders(arguments)):
        if path not in sys.path:
            sys.path.insert(0, path)
        known = os.environ.get("PYTHONPATH", "")
        if path not in known.split(os.pathsep):
            os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [path, known]))
