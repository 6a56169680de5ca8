"""Errors meant for the person at the terminal, and the import of optional packages.

The message of a `UserError` is one line that says what to change; the command line prints it
without a traceback and exits with status 2 (1 where nothing is wrong with the command).
"""

from __future__ import annotations

import importlib
from types import ModuleType


class UserError(Exception):
    """Something that the user can put right; the message is one line that says how."""


class ConfigError(UserError):
    """A configuration has a wrong key, type or value."""


class RunError(UserError):
    """A run directory can't be opened, written, resumed or read."""


class TrainingError(UserError):
    """Training can't go on: the numbers went wrong, not the command (exit status 1)."""


class AssetError(UserError):
    """A mesh, texture, configuration tree or trained checkpoint is missing or damaged."""


class MissingDependencyError(UserError):
    """An optional package or system library isn't installed."""


class ObservationError(UserError):
    """An environment returned an observation that can't be used (NaN, wrong shape or type)."""


class WorkerError(RuntimeError):
    """A worker process died or raised; the message holds the worker's own traceback."""


def require(module: str, install: str) -> ModuleType:
    """Import an optional package.

    Args:
        module: name to import, dotted names included.
        install: what to run to get it, e.g. ``"pip install 'wandb>=0.18'"``.

    Raises:
        MissingDependencyError: the package isn't installed. A package that is installed but
            fails on one of its own imports raises that error unchanged.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        parents = {module.rsplit(".", n)[0] for n in range(module.count(".") + 1)}
        if error.name not in parents:
            raise
        raise MissingDependencyError(
            f"{module.split('.')[0]} is not installed; install it with: {install}"
        ) from error
