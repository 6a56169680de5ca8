"""The inside of a session: a confined process that holds one reward and answers call after call.

Frames in both directions are short: a call is the flat state; an answer is a kind, a length and
as many bytes. `READY` and `NAMES` hold JSON, `VALUES` float64 numbers, `ERROR` a text.
"""

from __future__ import annotations

import json
import struct
from typing import BinaryIO

import numpy as np

# NumPy loads these late, when the confined process may no longer read files.
import numpy.linalg
import numpy.ma
import numpy.random

from embodied_icrl.manipulation.fields import Field, StateLayout
from embodied_icrl.reward_search.findings import printable
from embodied_icrl.reward_search.loading import load_reward

READY, NAMES, VALUES, ERROR = b"R", b"N", b"V", b"E"
HEADER = struct.Struct("<cI")
MAX_FRAME = 2**16  # bytes, of an answer


def serve(calls: BinaryIO, answers: BinaryIO) -> None:
    """Load the reward that the first line asks for, then answer until the calls end.

    The first line is JSON: `source`, and `fields`, a list of [name, shape].
    """
    request = json.loads(calls.readline())
    layout = StateLayout([Field(name, tuple(shape), "", "") for name, shape in request["fields"]])
    try:
        function = load_reward(request["source"])
    except Exception as error:
        _send(answers, ERROR, _text(error))
        return
    _send(answers, READY, b"")
    size = 8 * layout.size
    names: tuple[str, ...] | None = None
    while True:
        call = calls.read(size)
        if len(call) < size:
            return
        try:
            total, components = function(layout.record(np.frombuffer(call)))
            if tuple(components) != names:
                names = tuple(components)
                _send(answers, NAMES, json.dumps(names).encode(), flush=False)
            values = np.array([total, *components.values()], np.float64)
            if values.shape != (1 + len(names),):
                raise TypeError("the total and every component are single numbers")
            answer = values.tobytes()
        except Exception as error:
            _send(answers, ERROR, _text(error))
            continue
        _send(answers, VALUES, answer)


def _text(error: Exception) -> bytes:
    return f"{type(error).__name__}: {printable(str(error))}".encode()


def _send(answers: BinaryIO, kind: bytes, data: bytes, flush: bool = True) -> None:
    answers.write(HEADER.pack(kind, len(data)) + data)
    if flush:
        answers.flush()
