"""Where the configuration tree and the assets lie.

In a checkout (editable installs included) they are folders beside the package; in an installed
wheel they are inside it, under `_data`.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Union

from embodied_icrl.common.errors import AssetError

_PACKAGE = Path(__file__).resolve().parent.parent


def config_dir() -> Path:
    """The Hydra configuration tree `sim_configs`.

    Raises:
        AssetError: it is neither in the installed package nor in the checkout.
    """
    return _find("sim_configs")


def assets_dir() -> Path:
    """The folder `assets`: meshes, textures, trained checkpoints.

    Raises:
        AssetError: it is neither in the installed package nor in the checkout.
    """
    return _find("assets")


def with_assets(path: Union[str, os.PathLike[str]]) -> Path:
    """`path`; if there is nothing and it begins with `assets/`, the same place in `assets_dir()`.

    So that `assets/checkpoints/demo` means the same in any folder, and with an installed wheel.
    """
    plain = Path(path)
    if plain.exists() or plain.parts[:1] != ("assets",):
        return plain
    return assets_dir().joinpath(*plain.parts[1:])


def checkout_dir() -> Path | None:
    """The root of the checkout, or None where the package was installed from a wheel."""
    root = _PACKAGE.parent
    return root if (root / "pyproject.toml").is_file() else None


def _find(name: str) -> Path:
    installed = _PACKAGE / "_data" / name
    if installed.is_dir():
        return installed
    root = checkout_dir()
    if root is not None and (root / name).is_dir():
        return root / name
    raise AssetError(
        f"the folder {name!r} is missing beside {_PACKAGE}: reinstall embodied-icrl or restore it"
    )
