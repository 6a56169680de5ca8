"""Which exceptions are the user's to mend, and the one line that says how."""

from __future__ import annotations

import difflib
import os
import re
import select
import sys
import traceback
from collections.abc import Callable, Iterable
from typing import NoReturn

from embodied_icrl.common.errors import ObservationError, TrainingError, UserError

# One line is enough for these, but the command was right.
FAULTS = (TrainingError, ObservationError)


class CommandStopped(Exception):
    """A command ended early on request; `code` is the exit status (128 + signal)."""

    def __init__(self, code: int) -> None:
        super().__init__(f"stopped (exit status {code})")
        self.code = code


def exit_status(work: Callable[[], None], *, debug: bool) -> int:
    """Do the work; print what went wrong, if anything did.

    Returns:
        0 done; 2 after a usage or configuration error (one line; a traceback with `debug`); 1 after
        any other exception (its traceback); 128 + n after signal n; 124 after `max_seconds`.
    """
    try:
        work()
        sys.stdout.flush()
    except CommandStopped as stop:
        return stop.code
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except Exception as error:
        if isinstance(error, BrokenPipeError) and _reader_is_gone():
            return 141
        if debug or not is_usage_error(error):
            traceback.print_exc()
        else:
            print(f"error: {explain(error)}", file=sys.stderr)
        return 2 if is_usage_error(error) and not isinstance(error, FAULTS) else 1
    return 0


def _reader_is_gone() -> bool:
    """Whether what reads the output (`| head`) has had enough; then nothing more is written."""
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    if not any(events & select.POLLERR for _, events in poll.poll(0)):
        return False
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return True


def leave_rank(status: int) -> NoReturn:
    """Exit; after a failure as one of several processes, without tearing down torch.

    The teardown of a process group may wait for ranks that sit in a collective operation.
    """
    if status and int(os.environ.get("WORLD_SIZE", "1")) > 1:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    sys.exit(status)


def is_usage_error(error: BaseException) -> bool:
    """Whether the user can mend it by changing the command, the configuration or the machine."""
    return isinstance(error, UserError) or type(error).__module__.startswith(
        ("hydra.", "omegaconf.")
    )


def explain(error: BaseException) -> str:
    """One line that says what to change."""
    if isinstance(error, UserError):
        return " ".join(str(error).split())
    text = " ".join(str(error).split())
    missing = re.search(r"Could not override '([^']+)'", text)
    if missing:
        key = missing.group(1)
        return f"unknown key {key!r}{_nearest(key)}; --help lists all keys"
    override = re.search(r"Error parsing override '(.+?)' (.*)", text)
    if override:
        return (
            f"can't read {override.group(1)!r}: values with commas, equals signs or spaces need "
            f"quotes inside quotes, like 'key=\"a, b = c\"' ({override.group(2)[:80]})"
        )
    group = re.search(r"(In '[^']+': )?Could not find '([^']+)'(.*)", text)
    if group:
        options = re.search(r"Available options in '[^']+':(.*?)(Config search path|$)", text)
        name = group.group(2)
        known = options.group(1).split() if options else []
        if known:
            return f"no configuration {name!r}; available: {', '.join(known)}"
    return text


def _nearest(key: str) -> str:
    near = difflib.get_close_matches(key, list(_known_keys()), n=1, cutoff=0.5)
    return f"; did you mean {near[0]!r}?" if near else ""


def _known_keys() -> Iterable[str]:
    """Dotted names of all keys of the command's configuration, with the groups as chosen."""
    from embodied_icrl.cli.compose import chosen_groups, compose, config_folders, dotted_keys

    command, words = sys.argv[0].split()[-1], sys.argv[1:]
    try:
        folders = config_folders(words)
        return dotted_keys(compose(command, chosen_groups(words, folders), folders))
    except Exception:
        return []
