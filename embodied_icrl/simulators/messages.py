"""Messages between two interpreters: JSON with arrays beside it.

No pickle: an array pickled by NumPy 2 can't be read by the NumPy 1 that an older simulator has.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import socket
import struct
from typing import Any, Dict, List

import numpy as np

_HEAD = struct.Struct("<QQ")


class Closed(ConnectionError):
    """The other side is gone."""


def send(connection: socket.socket, value: Any) -> None:
    """Send JSON values, tuples, arrays, dataclass instances, and containers of them.

    Raises:
        TypeError: a value of another kind.
        Closed: nobody listens any more.
    """
    arrays: List[np.ndarray] = []
    text = json.dumps(_plain(value, arrays)).encode()
    size = sum(array.nbytes for array in arrays)
    parts = [_HEAD.pack(len(text), size), text, *(array.tobytes() for array in arrays)]
    try:
        connection.sendall(b"".join(parts))
    except (BrokenPipeError, ConnectionResetError) as error:
        raise Closed(str(error)) from error


def receive(connection: socket.socket) -> Any:
    """The next message.

    Raises:
        Closed: the other side is gone.
        TimeoutError: the connection's timeout ran out.
    """
    length, size = _HEAD.unpack(_read(connection, _HEAD.size))
    data = memoryview(_read(connection, length + size))
    return _restored(json.loads(bytes(data[:length])), data[length:])


def _read(connection: socket.socket, size: int) -> bytearray:
    data = bytearray(size)
    view, done = memoryview(data), 0
    while done < size:
        try:
            count = connection.recv_into(view[done:])
        except socket.timeout as error:  # noqa: UP041 - another class before Python 3.10
            raise TimeoutError(str(error)) from error
        except ConnectionResetError as error:
            raise Closed(str(error)) from error
        if count == 0:
            raise Closed("the connection ended")
        done += count
    return data


def _plain(value: Any, arrays: List[np.ndarray]) -> Any:
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        start = sum(array.nbytes for array in arrays)
        arrays.append(np.ascontiguousarray(value))
        return {"$array": [value.dtype.str, list(value.shape), start]}
    if isinstance(value, list):
        return [_plain(item, arrays) for item in value]
    if isinstance(value, tuple):
        return {"$tuple": [_plain(item, arrays) for item in value]}
    if isinstance(value, dict):
        return {"$dict": [[_plain(k, arrays), _plain(v, arrays)] for k, v in value.items()]}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        cls = type(value)
        fields = {
            field.name: _plain(getattr(value, field.name), arrays)
            for field in dataclasses.fields(value)
        }
        return {"$data": [cls.__module__, cls.__qualname__, fields]}
    raise TypeError(f"a {type(value).__name__} can't be sent to another interpreter")


def _restored(value: Any, data: memoryview) -> Any:
    if isinstance(value, list):
        return [_restored(item, data) for item in value]
    if not isinstance(value, dict):
        return value
    (kind, content), *_ = value.items()
    if kind == "$array":
        dtype, shape, start = content
        count = int(np.prod(shape))
        array = np.frombuffer(data, dtype=np.dtype(dtype), count=count, offset=start)
        return array.reshape(shape).copy()
    if kind == "$tuple":
        return tuple(_restored(item, data) for item in content)
    if kind == "$dict":
        return {_restored(k, data): _restored(v, data) for k, v in content}
    module, name, fields = content
    values: Dict[str, Any] = {key: _restored(item, data) for key, item in fields.items()}
    return getattr(importlib.import_module(module), name)(**values)
