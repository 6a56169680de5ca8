"""What a search asked: one readable file per conversation, in `prompts` beside the transcript.

The name ends in the hash that the transcript has beside an answer, so that each answer leads to its
prompt. A conversation that comes out otherwise when a search goes on is another file.
"""

from __future__ import annotations

import os
from pathlib import Path

from embodied_icrl.common.files import atomic_write_text, fsync_directory
from embodied_icrl.reward_search.records import Request
from embodied_icrl.reward_search.transcript import Entry, request_hash

FOLDER = "prompts"
UNREAD = "No language model was asked: composed rewards do not read this."


def save_prompt(folder: Path, request: Request, *, is_read: bool) -> None:
    """Write the conversation down; when this returns, it is on disk. One that is there stays.

    Args:
        folder: of the search.
        is_read: whether a language model reads it.
    """
    path = prompt_file(folder, request)
    if path.exists():
        return
    if not path.parent.exists():
        path.parent.mkdir()
        fsync_directory(folder)
    place = f"iteration {request.iteration}, attempt {request.attempt}"
    parts = [f"# Prompt of {place}; hash {request_hash(request)}"]
    parts += [] if is_read else [UNREAD]
    parts += [f"## {message['role']}\n\n{message['content']}" for message in request.messages]
    # Where text comes from outside it may hold halves of characters, which no file can.
    text = ("\n\n".join(parts) + "\n").encode("utf-8", "replace").decode()
    atomic_write_text(path, text)


def prompt_file(folder: Path, request: Request) -> Path:
    """Where a conversation lies in the directory of a search, whether or not it is there."""
    return _file(folder, request.iteration, request.attempt, request_hash(request))


def compare(entry: Entry, folder: Path, now: Path) -> str:
    """Where a person sees how the prompt that an answer belongs to differs from the present one.

    Args:
        folder: of the search that was given the answer.
        now: the present prompt.
    """
    then = _file(folder, entry.iteration, entry.attempt, entry.request)
    if not os.path.exists(then):  # unlike Path.exists, it takes whatever a foreign file says
        return f"that prompt was not kept, this search's is {now}"
    return f"compare {then} with this search's {now}"


def _file(folder: Path, iteration: int, attempt: int, digest: str) -> Path:
    return folder / FOLDER / f"i{iteration}_a{attempt}_{digest}.md"
