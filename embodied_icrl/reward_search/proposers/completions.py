"""What a chat-completions server sent back, read without trusting its form."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from embodied_icrl.reward_search.findings import printable
from embodied_icrl.reward_search.records import Usage

MAX_ANSWER = 200_000  # characters; a reward has at most 20,000


class MalformedReply(ValueError):
    """Not the JSON of a chat completion; the message says what is wrong."""


@dataclass(frozen=True)
class Choice:
    """One answer of a reply: a text, or why there is none that can be used."""

    text: str | None
    error: str | None = None


@dataclass(frozen=True)
class Reply:
    """All answers of one call; `usage` is None where the server gives none."""

    choices: tuple[Choice, ...]
    usage: Usage | None
    characters: int


def parse_reply(body: bytes) -> Reply:
    """The answers in the body of a chat completion.

    Raises:
        MalformedReply: it isn't JSON, or has no choices.
    """
    try:
        data = json.loads(body)
    except (ValueError, RecursionError):
        raise MalformedReply(f"not JSON: {printable(body[:200].decode('latin-1'), 60)!r}") from None
    choices = data.get("choices") if isinstance(data, Mapping) else None
    if not isinstance(choices, Sequence) or isinstance(choices, str) or not choices:
        raise MalformedReply("no choices in the reply")
    texts = [_content(choice) for choice in choices]
    return Reply(
        tuple(_choice(choice, text) for choice, text in zip(choices, texts, strict=True)),
        _usage(data.get("usage")),
        sum(len(text) for text in texts),
    )


def _content(choice: Any) -> str:
    """The text of a choice; some servers send it in parts."""
    content = _message(choice).get("content")
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, Mapping)]
        return "".join(part for part in parts if isinstance(part, str))
    return content if isinstance(content, str) else ""


def _message(choice: Any) -> Mapping[str, Any]:
    message = choice.get("message") if isinstance(choice, Mapping) else None
    return message if isinstance(message, Mapping) else {}


def _choice(choice: Any, text: str) -> Choice:
    refusal = _message(choice).get("refusal")
    reason = choice.get("finish_reason") if isinstance(choice, Mapping) else None
    if isinstance(refusal, str) and refusal:
        return Choice(None, f"the model refused: {printable(refusal, 200)}")
    if reason == "content_filter":
        return Choice(None, "the server's content filter held the answer back")
    if reason == "length":
        return Choice(None, "the answer was cut off at its limit of tokens (answer_tokens)")
    if not text.strip():
        return Choice(None, "an empty answer")
    if len(text) > MAX_ANSWER:
        return Choice(None, f"an answer of {len(text)} characters; at most {MAX_ANSWER}")
    return Choice(text)


def _usage(data: Any) -> Usage | None:
    if not isinstance(data, Mapping):
        return None
    counts = [data.get("prompt_tokens"), data.get("completion_tokens", 0)]
    if any(type(count) is not int or not 0 <= count <= 10**9 for count in counts):
        return None
    return Usage(*counts)
