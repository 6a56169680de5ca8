"""Every answer that a search was given, one JSON line each, on disk before it is used.

A search that is run again takes from here what it was answered before, and pays for nothing twice;
the `replay` proposer reads the file of another search.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from embodied_icrl.common.errors import UserError
from embodied_icrl.common.files import fsync_directory
from embodied_icrl.reward_search.records import Answer, Request, Usage

Key = tuple[int, int, int]  # iteration, sample, attempt


@dataclass(frozen=True)
class Entry:
    """One answer with what it answers.

    Attributes:
        request: hash of the conversation, see `request_hash`.
        proposer, model, is_language_model: who answered.
    """

    iteration: int
    sample: int
    attempt: int
    request: str
    proposer: str
    model: str | None
    is_language_model: bool
    text: str | None
    error: str | None
    usage: Usage | None

    @property
    def key(self) -> Key:
        """Iteration, sample and attempt."""
        return self.iteration, self.sample, self.attempt

    @property
    def answer(self) -> Answer:
        """The answer without what is around it."""
        return Answer(self.sample, self.text, self.error, self.usage)


@dataclass(frozen=True)
class Stop:
    """The budget ended the search before this answer was asked for."""

    iteration: int
    sample: int
    attempt: int
    stopped: str

    @property
    def key(self) -> Key:
        """Iteration, sample and attempt."""
        return self.iteration, self.sample, self.attempt


class Transcript:
    """The entries of one file; new ones are forced to disk, those of a call together.

    Args:
        path: the file; one that isn't there is made with the first entry.

    Raises:
        UserError: a line is damaged. A last line without its end is what a kill leaves: it is
            not an entry, and is cut off before the next one is written. The whole lines before it
            count, also those of the same call: only the rest of a torn call is asked for again.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._entries: dict[Key, Entry] = {}
        self._stops: dict[Key, Stop] = {}
        for line in read_lines(path):
            if isinstance(line, Stop):
                self._stops[line.key] = line
            else:
                self._entries.setdefault(line.key, line)

    def get(self, key: Key) -> Entry | None:
        """The entry, or None."""
        return self._entries.get(key)

    def entries(self) -> tuple[Entry, ...]:
        """All entries in the order of the file."""
        return tuple(self._entries.values())

    def stop_at(self, key: Key) -> Stop | None:
        """Where the budget ended the search, or None."""
        return self._stops.get(key)

    def append_all(self, entries: Sequence[Entry]) -> None:
        """Write the entries of one call at once; when this returns, they are on disk.

        Raises:
            ValueError: there is one with the key of one of them; none is written.
        """
        new: dict[Key, Entry] = {}
        for entry in entries:
            if entry.key in self._entries or entry.key in new:
                raise ValueError(f"there is an answer for {key_text(entry.key)} already")
            new[entry.key] = entry
        self._write(entries)
        self._entries.update(new)

    def append_stop(self, stop: Stop) -> None:
        """Write down that the budget ended the search here; once for each place."""
        if stop.key not in self._stops:
            self._write([stop])
            self._stops[stop.key] = stop

    def _write(self, lines: Sequence[Entry | Stop]) -> None:
        is_new = not self.path.exists()
        # ASCII only: an answer may hold lone surrogates, which UTF-8 has no bytes for.
        data = b"".join(json.dumps(asdict(line)).encode("ascii") + b"\n" for line in lines)
        with self.path.open("ab") as file:
            _cut_torn_line(self.path, file.fileno())
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if is_new:
            fsync_directory(self.path.parent)


def read_lines(path: Path) -> Iterator[Entry | Stop]:
    """The lines of a file in order; none if there is no file.

    Raises:
        UserError: a line that was written to its end is damaged.
    """
    if not path.exists():
        return
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.endswith(b"\n"):
                return
            try:
                yield _parsed(json.loads(line))
            except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
                raise UserError(f"{path}, line {number}: not an answer of a transcript") from error


def request_hash(request: Request) -> str:
    """The conversation and its place in the search, as a short hash.

    The samples are left out: after a kill the same conversation is asked for fewer of them.
    """
    messages = [[message["role"], message["content"]] for message in request.messages]
    text = json.dumps([request.iteration, request.attempt, messages])
    return hashlib.sha256(text.encode("ascii")).hexdigest()[:16]


def key_text(key: Key) -> str:
    """A key for people."""
    return f"iteration {key[0]}, sample {key[1]}, attempt {key[2]}"


def _cut_torn_line(path: Path, descriptor: int) -> None:
    size = os.fstat(descriptor).st_size
    with path.open("rb") as file:
        position = size
        while position > 0:
            start = max(0, position - 65_536)
            file.seek(start)
            end = file.read(position - start).rfind(b"\n")
            if end >= 0:
                position = start + end + 1
                break
            position = start
    if position < size:
        os.ftruncate(descriptor, position)


def _parsed(data: Any) -> Entry | Stop:
    if "stopped" in data:
        return Stop(**data)
    values = {**data, "usage": None if data["usage"] is None else Usage(**data["usage"])}
    entry = Entry(**values)
    numbers = (entry.iteration, entry.sample, entry.attempt)
    texts = (entry.text, entry.error, entry.model)
    if any(type(number) is not int for number in numbers) or not isinstance(entry.request, str):
        raise ValueError("not an entry")
    if any(text is not None and not isinstance(text, str) for text in texts):
        raise ValueError("not an entry")
    return entry
