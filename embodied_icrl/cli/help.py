"""`--help`: groups with their options, and every key with its default and its documentation."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from embodied_icrl.cli.compose import compose
from embodied_icrl.common.config import describe
from embodied_icrl.common.paths import config_dir

USAGE = """\
Usage: embodied-icrl COMMAND key=value ...

Commands:
{commands}

`embodied-icrl COMMAND --help` lists the groups and keys of a command. All commands go through
Hydra, so `--multirun` (-m), `--config-dir DIR`, `--cfg job` and launcher plugins work as
everywhere.
Values with commas, equals signs or spaces need quotes inside quotes: 'key="a, b"'."""


def general_help(commands: Mapping[str, str]) -> str:
    """What `embodied-icrl --help` prints; `commands` maps names to a line each."""
    width = max(map(len, commands))
    lines = [f"  {name:<{width}}  {doc}" for name, doc in commands.items()]
    return USAGE.format(commands="\n".join(lines))


def command_help(name: str, doc: str, config_name: str) -> str:
    """Everything a person can set for one command."""
    lines = [f"embodied-icrl {name} key=value ...", "", f"  {doc}", ""]
    groups = dict(_groups(config_name))
    if groups:
        lines.append("Groups (group=option):")
        lines += [f"  {group}: {', '.join(options)}" for group, options in groups.items()]
        lines.append("")
    lines.append("Keys (key=value), with the defaults:")
    docs = _yaml_comments(config_name) | _dataclass_docs(config_name)
    for key, value in _leaves(compose(config_name)):
        lines.append(f"  {key}={_show(value)}")
        if docs.get(key):
            lines.append(f"      {docs[key]}")
    return "\n".join(lines)


def _groups(config_name: str) -> Iterator[tuple[str, list[str]]]:
    """The groups that the configuration's defaults list names, with the files in them."""
    text = (config_dir() / f"{config_name}.yaml").read_text()
    names = re.findall(r"^\s*- (?:optional |override )?/?(\w+)(?:@\w+)?:", text, flags=re.MULTILINE)
    for group in names:
        directory = config_dir() / group
        if directory.is_dir():
            yield group, sorted(path.stem for path in directory.glob("*.yaml"))


def _dataclass_docs(config_name: str) -> dict[str, str]:
    """Documentation of the keys, where a config dataclass describes them."""
    if config_name == "reward":
        from embodied_icrl.cli.reward import RewardConfig
        from embodied_icrl.reward_search.search_config import SearchConfig

        described: list[Any] = [SearchConfig, RewardConfig]
        group = "proposer"
    elif config_name == "train":
        from embodied_icrl.training.config import TrainConfig

        described, group = [TrainConfig], "env"
    else:
        return {}
    docs = {item.key: item.doc for cls in described for item in describe(cls)}
    target = compose(config_name)[group].get("_target_")
    if target:
        from embodied_icrl.common.config_types import resolve_target

        found = resolve_target(target, f"{group}._target_")
        docs |= {f"{group}.{item.key}": item.doc for item in describe(found)}
    return docs


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
