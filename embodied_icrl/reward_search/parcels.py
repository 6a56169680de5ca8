"""The files of a stretch of training, packed to travel to a machine with another disk."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from embodied_icrl.common.files import atomic_write_bytes
from embodied_icrl.reward_search.training_report import STATE_FILE
from embodied_icrl.reward_search.untrusted_files import UntrustedFileError, read_untrusted

Parcel = dict[str, bytes]  # path below the job's folder -> content

MAX_FILE = 2**30  # bytes


def pack(stretch: Path, folder: str) -> Parcel:
    """The result, the weights, and the state for the next stretch, as far as there are any.

    Args:
        stretch: the folder of one stretch.
        folder: that of its job, which it lies in.
    """
    paths = [*sorted((stretch / "weights").glob("*")), stretch / "work" / STATE_FILE]
    parcel = {}
    for path in [*paths, stretch / "result.json"]:
        try:
            parcel[str(path.relative_to(folder))] = read_untrusted(path, MAX_FILE)
        except UntrustedFileError:
            continue  # a training that failed, or that hostile code has spoilt, leaves less
    return parcel


def pack_earlier(stretches: Sequence[Path], folder: str) -> Parcel:
    """What a stretch needs of those before it: the whole of the last, and of the others what they
    would be trained once more by.

    Args:
        stretches: their folders, the last of them first.
        folder: of the job, which they lie in.
    """
    parcel: Parcel = {}
    for path in stretches[1:]:
        result = path / "result.json"
        parcel[str(result.relative_to(folder))] = result.read_bytes()
    return parcel | (pack(stretches[0], folder) if stretches else {})


def unpack(parcel: Parcel, folder: str) -> None:
    """Write the files below a job's folder; the result, which says that all is there, comes last.

    Raises:
        ValueError: a file would lie elsewhere.
    """
    for name, content in parcel.items():
        if Path(name).is_absolute() or ".." in Path(name).parts:
            raise ValueError(f"{name}: outside the job's folder")
        path = Path(folder) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic_write_bytes(path, content)
