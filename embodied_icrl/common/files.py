"""Files that are either the old one or the new one, never half of it.

A write goes to a temporary file in the same directory, is forced to disk, and takes the place of
the old file in one rename. `OSError`s (no space, no permission) pass through unchanged; the
temporary file is removed.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from pathlib import Path
from typing import Any, Union

PathLike = Union[str, "os.PathLike[str]"]


def fsync_directory(path: PathLike) -> None:
    """Force a directory's entries (new names, renames) to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_synced(path: PathLike, data: bytes) -> None:
    """Write a file in place and force it to disk; for files in a directory not yet published."""
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def atomic_write_bytes(path: PathLike, data: bytes) -> None:
    """Replace `path` by `data` in one step."""
    target = Path(path)
    temporary = target.with_name(f".{target.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
    try:
        write_synced(temporary, data)
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    fsync_directory(target.parent)


def atomic_write_text(path: PathLike, text: str) -> None:
    """Replace `path` by `text` (UTF-8) in one step."""
    atomic_write_bytes(path, text.encode("utf-8"))


def json_bytes(data: Any, *, indent: int | None = 2) -> bytes:
    """`data` as UTF-8 JSON with a final newline.

    Raises:
        ValueError: a float is NaN or infinite, which JSON can't hold.
        TypeError: a value is not JSON-able.
    """
    text = json.dumps(data, indent=indent, ensure_ascii=False, allow_nan=False)
    return (text + "\n").encode("utf-8")


def atomic_write_json(path: PathLike, data: Any, *, indent: int | None = 2) -> None:
    """Replace `path` by `data` as JSON in one step; raises as `json_bytes` does."""
    atomic_write_bytes(path, json_bytes(data, indent=indent))
