"""A small local server that speaks chat completions, and misbehaves on demand."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

CODE = 'def compute_reward(state):\n    return 1.0, {"one": 1.0}\n'
ANSWER = f"Here it is.\n\n```python\n{CODE}```\n"
USAGE = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}

Behaviour = Callable[[BaseHTTPRequestHandler, Mapping[str, Any]], None]


def completion(
    texts: Sequence[Any], *, reason: str = "stop", usage: Any = USAGE, **message: Any
) -> dict[str, Any]:
    """The body of a reply."""
    choices = [
        {
            "index": index,
            "finish_reason": reason,
            "message": {"role": "assistant", "content": text, **message},
        }
        for index, text in enumerate(texts)
    ]
    reply = {"id": "x", "object": "chat.completion", "created": 0, "model": "m", "choices": choices}
    return reply if usage is None else {**reply, "usage": usage}


def send(
    handler: BaseHTTPRequestHandler, status: int, body: bytes, headers: Mapping[str, str] = {}
) -> None:
    handler.send_response(status)
    handler.send_header("Content-Type", "application/json")
    handler.send_header("Content-Length", str(len(body)))
    for name, value in headers.items():
        handler.send_header(name, value)
    handler.end_headers()
    handler.wfile.write(body)


def says(*texts: Any, **options: Any) -> Behaviour:
    """The same texts, however many are asked for."""
    return lambda handler, _: send(handler, 200, json.dumps(completion(texts, **options)).encode())


def honours_n(handler: BaseHTTPRequestHandler, body: Mapping[str, Any]) -> None:
    texts = [f"{ANSWER}<!-- {index} -->" for index in range(body.get("n", 1))]
    send(handler, 200, json.dumps(completion(texts)).encode())


def status(
    code: int, message: str = "no", headers: Mapping[str, str] = {}, **error: Any
) -> Behaviour:
    body = json.dumps({"error": {"message": message, **error}}).encode()
    return lambda handler, _: send(handler, code, body, headers)


def raw(body: bytes) -> Behaviour:
    return lambda handler, _: send(handler, 200, body)


def silent(seconds: float) -> Behaviour:
    """Takes its time, then answers."""

    def behave(handler: BaseHTTPRequestHandler, body: Mapping[str, Any]) -> None:
        time.sleep(seconds)
        honours_n(handler, body)

    return behave


def drips(handler: BaseHTTPRequestHandler, body: Mapping[str, Any]) -> None:
    """A byte now and then, for ever."""
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    for _ in range(40):
        handler.wfile.write(b" ")
        handler.wfile.flush()
        time.sleep(0.05)


def breaks_off(handler: BaseHTTPRequestHandler, body: Mapping[str, Any]) -> None:
    """Promises more bytes than it sends."""
    handler.send_response(200)
    handler.send_header("Content-Type", "application/json")
    handler.send_header("Content-Length", "5000")
    handler.end_headers()
    handler.wfile.write(b'{"choices": [{"message": {"content": "def')
    handler.close_connection = True


def hangs_up(handler: BaseHTTPRequestHandler, body: Mapping[str, Any]) -> None:
    handler.close_connection = True


@dataclass
class ChatServer:
    """Behaves as `script` says, call by call; the last entry goes on for ever."""

    script: list[Behaviour]
    url: str = ""
    bodies: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    times: list[float] = field(default_factory=list)


@contextlib.contextmanager
def chat_server(*script: Behaviour) -> Iterator[ChatServer]:
    server = ChatServer(list(script))

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            length = int(self.headers["Content-Length"])
            body = json.loads(self.rfile.read(length))
            behaviour = server.script[min(len(server.bodies), len(server.script) - 1)]
            server.bodies.append(body)
            server.headers.append({k.lower(): v for k, v in self.headers.items()})
            server.times.append(time.monotonic())
            if self.path != "/v1/chat/completions":
                behaviour = status(404, f"no {self.path}")
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                behaviour(self, body)

        def log_message(self, *_: Any) -> None:
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    http.daemon_threads = True
    thread = threading.Thread(target=http.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    server.url = f"http://127.0.0.1:{http.server_address[1]}/v1"
    try:
        yield server
    finally:
        http.shutdown()
        http.server_close()
        thread.join()
