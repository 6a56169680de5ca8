"""Files that an untrusted process may have written, read without being led elsewhere."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path


class UntrustedFileError(Exception):
    """A file isn't a plain one, is too large, or isn't there; the message says which."""


def read_untrusted(path: Path, limit: int, offset: int = 0) -> bytes:
    """The bytes of a plain file from `offset` on.

    Links, pipes and devices are refused: they would hand over another file, or never end.

    Raises:
        UntrustedFileError: it isn't a plain file of at most `limit` bytes.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags)
    except OSError as error:
        raise UntrustedFileError(f"{path.name}: {error.strerror}") from None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise UntrustedFileError(f"{path.name} is not a plain file")
        if status.st_size > limit:
            raise UntrustedFileError(f"{path.name} has more than {limit} bytes")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            file.seek(offset)
            return file.read(max(0, limit - offset))
    finally:
        os.close(descriptor)


def remove_untrusted(path: Path) -> None:
    """Delete a file. What isn't one, or can't be deleted, is left where it is."""
    with contextlib.suppress(OSError):
        path.unlink()


def folder_size(folder: Path, most_entries: int = 1000) -> int:
    """Bytes of the files below a folder; endless where there are more than `most_entries`, or
    where a folder is closed to us."""
    total, entries, waiting = 0, 0, [folder]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as found:
                for entry in found:
                    entries += 1
                    if entries > most_entries:
                        return 2**63
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(Path(entry.path))
                    else:
                        total += entry.stat(follow_symlinks=False).st_size
        except PermissionError:
            return 2**63
        except OSError:
            continue  # it has gone
    return total
