"""Compose a command's configuration without running it (help, launchers, tests)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from embodied_icrl.common.errors import ConfigError
from embodied_icrl.common.paths import config_dir


def compose(
    config_name: str, overrides: Sequence[str] = (), folders: Sequence[Path] = ()
) -> dict[str, Any]:
    """The configuration `config_name` with overrides, as plain dictionaries.

    Args:
        config_name: a command's file in the configuration tree, without `.yaml`.
        overrides: as on the command line, like `env=darkroom` or `ppo.gamma=0.9`.
        folders: further configuration trees, those of `--config-dir`.

    Raises:
        hydra.errors.HydraException: an override that doesn't fit.
    """
    import hydra
    from hydra.core.global_hydra import GlobalHydra
    from omegaconf import OmegaConf

    words = list(overrides)
    if folders:
        paths = [f"file://{folder}" for folder in folders]
        words.append(f"hydra.searchpath={json.dumps(paths, ensure_ascii=False)}")
    previous = GlobalHydra.instance().hydra
    GlobalHydra.instance().clear()
    try:
        with hydra.initialize_config_dir(str(config_dir()), version_base="1.3"):
            node = hydra.compose(config_name, overrides=words)
        plain = OmegaConf.to_container(node, resolve=False)
        assert isinstance(plain, dict)
        return {str(key): value for key, value in plain.items()}
    finally:
        GlobalHydra.instance().hydra = previous


def config_folders(words: Sequence[str]) -> list[Path]:
    """The folders that `--config-dir` names on a command line, absolute.

    Raises:
        ConfigError: one of them isn't there.
    """
    found = []
    for i, word in enumerate(words):
        flag, equals, value = word.partition("=")
        if flag in ("--config-dir", "-cd"):
            folder = value if equals else words[i + 1] if i + 1 < len(words) else ""
            if not Path(folder).is_dir():
                raise ConfigError(f"--config-dir {folder}: no such directory")
            found.append(Path(folder).resolve())
    return found


def chosen_groups(words: Sequence[str], folders: Sequence[Path] = ()) -> list[str]:
    """The words of a command line that choose from a group: `env=NAME`, not `env.dim=3`."""
    trees = [config_dir(), *folders]

    def is_choice(word: str) -> bool:
        group = re.match(r"\+?([\w/]+)(@[\w.]+)?=", word)
        return group is not None and any((tree / group[1]).is_dir() for tree in trees)

    return [word for word in words if is_choice(word)]


def dotted_keys(node: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Every key of a nested mapping by its dotted name, groups included."""
    for key, value in node.items():
        yield f"{prefix}{key}"
        if isinstance(value, Mapping):
            yield from dotted_keys(value, f"{prefix}{key}.")
