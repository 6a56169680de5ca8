"""Compose a command's configuration without running it (help, launchers, tests)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from embodied_icrl.common.paths import config_dir


def compose(config_name: str, overrides: Sequence[str] = ()) -> dict[str, Any]:
    """The configuration `config_name` with overrides, as plain dictionaries.

    Raises:
        hydra.errors.HydraException: an override that doesn't fit.
    """
    import hydra
    from hydra.core.global_hydra import GlobalHydra
    from omegaconf import OmegaConf

    previous = GlobalHydra.instance().hydra
    GlobalHydra.instance().clear()
    try:
        with hydra.initialize_config_dir(str(config_dir()), version_base="1.3"):
            node = hydra.compose(config_name, overrides=list(overrides))
        plain = OmegaConf.to_container(node, resolve=False)
        assert isinstance(plain, dict)
        return {str(key): value for key, value in plain.items()}
    finally:
        GlobalHydra.instance().hydra = previous


def dotted_keys(node: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Every key of a nested mapping by its dotted name, groups included."""
    for key, value in node.items():
        yield f"{prefix}{key}"
        if isinstance(value, Mapping):
            yield from dotted_keys(value, f"{prefix}{key}.")
