"""`--help`: groups with their options, and every key with its default and its documentation."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from embodied_icrl.cli.compose import chosen_groups, compose, config_folders
from embodied_icrl.common.config import describe
from embodied_icrl.common.config_types import TARGET, resolve_target
from embodied_icrl.common.paths import config_dir

USAGE = """\
Usage: embodied-icrl COMMAND key=value ...

Commands:
{commands}

`embodied-icrl COMMAND --help` lists the groups and keys of a command; with a group chosen, like
`embodied-icrl train --help env=grid_house`, the keys of that choice. `embodied-icrl --version`
prints the version. All commands go through Hydra, so `--multirun` (-m), `--config-dir DIR`,
`--cfg job` and launcher plugins work as everywhere.
Values with commas, equals signs or spaces need quotes inside quotes: 'key="a, b"'."""


def general_help(commands: Mapping[str, str]) -> str:
    """What `embodied-icrl --help` prints; `commands` maps names to a line each."""
    width = max(map(len, commands))
    lines = [f"  {name:<{width}}  {doc}" for name, doc in commands.items()]
    return USAGE.format(commands="\n".join(lines))


def command_help(name: str, doc: str, config_name: str, words: Sequence[str] = ()) -> str:
    """Everything a person can set for one command.

    Args:
        name, doc: of the command.
        config_name: its configuration.
        words: the rest of the command line; the groups chosen there, also from the trees of
            `--config-dir`, are those whose keys are shown.

    Raises:
        ConfigError, hydra.errors.HydraException: a choice that isn't there or can't be used.
    """
    folders = config_folders(words)
    composed = compose(config_name, chosen_groups(words, folders), folders)
    lines = [f"embodied-icrl {name} key=value ...", "", f"  {doc}", ""]
    groups = dict(_groups(config_name, folders))
    if groups:
        lines.append("Groups (group=option):")
        lines += [f"  {group}: {', '.join(options)}" for group, options in groups.items()]
        lines.append("")
    lines.append("Keys (key=value), with the defaults:")
    docs = _yaml_comments(config_name) | _command_docs(config_name) | dict(_target_docs(composed))
    for key, value in _leaves(composed):
        lines.append(f"  {key}={_show(value)}")
        if docs.get(key):
            lines.append(f"      {docs[key]}")
    return "\n".join(lines)


def _groups(config_name: str, folders: Sequence[Path]) -> Iterator[tuple[str, list[str]]]:
    """The groups that the configuration's defaults list names, with the files in them."""
    text = (config_dir() / f"{config_name}.yaml").read_text()
    names = re.findall(r"^\s*- (?:optional |override )?/?(\w+)(?:@\w+)?:", text, flags=re.MULTILINE)
    for group in names:
        options = {
            path.stem
            for folder in (config_dir(), *folders)
            for path in (folder / group).glob("*.yaml")
        }
        if options:
            yield group, sorted(options)


def _command_docs(config_name: str) -> dict[str, str]:
    """Documentation of the keys that a command's own config dataclasses describe."""
    described: list[type] = []
    if config_name == "reward":
        from embodied_icrl.cli.reward import RewardConfig
        from embodied_icrl.reward_search.search_config import SearchConfig

        described = [SearchConfig, RewardConfig]
    elif config_name == "train":
        from embodied_icrl.training.config import TrainConfig

        described = [TrainConfig]
    return {item.key: item.doc for cls in described for item in describe(cls)}


def _target_docs(node: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Documentation of the keys of every config dataclass that a `_target_` in `node` names."""
    for key, value in node.items():
        if isinstance(value, Mapping):
            yield from _target_docs(value, f"{prefix}{key}.")
    if TARGET in node:
        found = resolve_target(node[TARGET], f"{prefix}{TARGET}")
        yield from ((f"{prefix}{item.key}", item.doc) for item in describe(found))


def _yaml_comments(config_name: str) -> dict[str, str]:
    """Comments at the end of top-level keys' lines in the configuration file itself."""
    text = (config_dir() / f"{config_name}.yaml").read_text()
    found = re.findall(r"^(\w+):[^#\n]*#\s*(.*)$", text, flags=re.MULTILINE)
    return dict(found)


def _leaves(node: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in node.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _show(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)
