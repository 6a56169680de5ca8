"""One call of a chat-completions server: time limits, retries, and errors that say what to do."""

from __future__ import annotations

import email.utils
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from embodied_icrl.common.config import option
from embodied_icrl.common.errors import ConfigError, UserError, require
from embodied_icrl.reward_search.findings import printable

MAX_BODY = 32 * 2**20  # bytes of a reply
HTTP_PACKAGES = ("httpx", "httpx2", "httpcore", "httpcore2")  # what openai's releases stand on
SHORTEST_SECRET = 8  # characters; "EMPTY" for a local server is none, and may be a word of code
NO_QUOTA = "insufficient_quota"  # a 429 that waiting doesn't mend


class ProposerError(UserError):
    """The server can't or won't answer; the message says what to change."""


class CallFailed(Exception):
    """No reply to one call. Nothing or little was paid, and another call may work.

    Attributes:
        may_be_paid: whether the server may have counted tokens for it.
        is_refusal: whether the server refused this request for what it says (400, 422).
        is_timeout: whether it took longer than someone waited, so that less may be asked for.
            The server may have gone on writing: such a call may be paid.
    """

    def __init__(
        self,
        message: str,
        *,
        may_be_paid: bool = False,
        is_refusal: bool = False,
        is_timeout: bool = False,
    ):
        super().__init__(message)
        self.may_be_paid = may_be_paid or is_timeout
        self.is_refusal = is_refusal
        self.is_timeout = is_timeout
        self.retry_after_s: float | None = None


@dataclass(frozen=True)
class Patience:
    """How long to wait for a server, and how often to ask again."""

    timeout_s: float = option(300.0, "seconds for one reply, from the call to its last byte")
    retries: int = option(6, "calls after the first that may follow a failed one")
    first_wait_s: float = option(1.0, "seconds before the first of them; doubled each time")
    longest_wait_s: float = option(60.0, "seconds that are waited at most, whatever a server asks")

    def __post_init__(self) -> None:
        if self.timeout_s <= 0 or self.retries < 0:
            raise ConfigError("timeout_s must be positive and retries not negative")
        if not 0 <= self.first_wait_s <= self.longest_wait_s:
            raise ConfigError("0 <= first_wait_s <= longest_wait_s must hold")

    def wait_s(self, failure: CallFailed, failures: int) -> float:
        """Seconds to wait after the failure number `failures`, counted from 1."""
        backoff = self.first_wait_s * 2.0 ** min(failures - 1, 30)
        return min(max(backoff, failure.retry_after_s or 0.0), self.longest_wait_s)


class Server:
    """A chat-completions server.

    Args:
        base_url: up to and including `/v1`.
        key: sent as bearer token and shown nowhere; None for a server that needs none.
        key_variable: where the key comes from, for messages.

    Raises:
        MissingDependencyError: the `openai` package isn't installed.
    """

    def __init__(self, base_url: str, key: str | None, key_variable: str, timeout_s: float) -> None:
        self._openai = require("openai", "pip install 'openai>=1.50'")
        self._url = base_url
        self._key = key
        self._key_variable = key_variable
        self._timeout_s = timeout_s
        self._client = self._openai.OpenAI(
            api_key=key or "none", base_url=base_url, timeout=timeout_s, max_retries=0
        )

    def post(self, arguments: Mapping[str, Any]) -> bytes:
        """The body of the reply to one call, made once.

        Raises:
            CallFailed: another call may work.
            ProposerError: none will: wrong key, model or address, or no credit left.
        """
        deadline = time.monotonic() + self._timeout_s
        create = self._client.chat.completions.with_streaming_response.create
        try:
            with create(**arguments) as response:
                body = bytearray()
                for chunk in response.iter_bytes():
                    body += chunk
                    if len(body) > MAX_BODY:
                        raise CallFailed("the reply is too long", may_be_paid=True)
                    if time.monotonic() > deadline:
                        raise self._too_late()
                return bytes(body)
        except self._openai.APIStatusError as error:
            raise self._judged(error) from None
        except self._openai.APITimeoutError:
            raise self._too_late() from None
        except self._openai.APIConnectionError as error:
            cause = error.__cause__ or error
            raise CallFailed(f"no connection to {self._url}: {self.hidden(str(cause))}") from None
        except Exception as error:
            if type(error).__module__.split(".")[0] not in HTTP_PACKAGES:
                raise
            if type(error).__name__.endswith("Timeout"):  # between two parts of the reply
                raise self._too_late() from None
            message = f"the reply broke off: {self.hidden(str(error))}"
            raise CallFailed(message, may_be_paid=True) from None

    def hidden(self, text: str, limit: int = 300) -> str:
        """A server's text on one line, without the key."""
        return printable(self.without_key(text), limit)

    def without_key(self, text: str) -> str:
        """A text in which the key, should it occur, is hidden."""
        if self._key is None or len(self._key) < SHORTEST_SECRET:
            return text
        return text.replace(self._key, "[key]")

    def _too_late(self) -> CallFailed:
        message = f"the server did not answer within {self._timeout_s:g} s"
        return CallFailed(message, is_timeout=True)

    def _judged(self, error: Any) -> Exception:
        """What an error status means: ask again, or stop."""
        status, said = int(error.status_code), self.hidden(str(error.message))
        if status in (401, 403):
            return ProposerError(
                f"{self._url} refused the key ({status}): set the variable {self._key_variable}, "
                f"or name another with proposer.key_variable. The server says: {said}"
            )
        if status == 404:
            return ProposerError(
                f"{self._url} has no such model or address (404): check proposer.model and "
                f"proposer.base_url. The server says: {said}"
            )
        if status == 402 or (status == 429 and NO_QUOTA in (error.code, error.type)):
            return ProposerError(
                f"{self._url}: no credit left; all work so far is kept: run the same command again "
                f"to go on once there is. The server says: {said}"
            )
        failure = CallFailed(
            f"status {status}: {said}",
            is_refusal=400 <= status < 500 and status not in (408, 409, 425, 429),
            is_timeout=status == 504,  # of a gateway before the server
        )
        failure.retry_after_s = retry_after_s(error.response.headers, time.time())
        return failure


def retry_after_s(headers: Mapping[str, str], now: float) -> float | None:
    """Seconds that a server asks to wait, from `retry-after-ms` or `Retry-After` (seconds or a
    date); None where it doesn't say, or says nothing that can be read."""
    for name, unit in (("retry-after-ms", 1e-3), ("retry-after", 1.0)):
        text = headers.get(name, "")
        try:
            seconds = float(text) * unit
        except ValueError:
            continue
        if 0.0 <= seconds < 1e9:
            return seconds
    try:
        date = email.utils.parsedate_to_datetime(headers.get("retry-after", ""))
    except (ValueError, TypeError):
        return None
    return max(0.0, date.timestamp() - now)
