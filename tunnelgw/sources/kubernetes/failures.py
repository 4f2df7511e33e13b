"""How a request to the API server can fail, including answers that do not come from the API."""

from collections.abc import Mapping
from typing import TypeVar

import msgspec

from daemonkit.retryafter import retry_after_s

T = TypeVar("T")

UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What decoding raises for bytes that the API would not send."""
_LONGEST_RETRY_AFTER_S = 60.0
LONGEST_MESSAGE = 256


class ApiServerError(Exception):
    """A request has failed; the message is for people."""


class Unreachable(ApiServerError):
    """No answer, or no complete one."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.has_answered = True
        """Whether at least the head of an answer has come."""
        self.returns = 0
        """What `Reach.lost` returned for it."""


class Refused(ApiServerError):
    """An answer that is not a success."""

    def __init__(self, status_code: int, reason: str, message: str, retry_after_s: float = 0.0) -> None:
        super().__init__(f"{status_code} {reason}: {message[:LONGEST_MESSAGE]}")
        self.status_code = status_code
        self.reason = reason
        """In the API's words, for example `Expired` or `AlreadyExists`."""
        self.retry_after_s = retry_after_s
        """How long to wait before the next request; 0: the server did not say."""


class Status(msgspec.Struct, frozen=True):
    """The API's description of a failure, in an answer or in a watch."""

    code: int = 0
    reason: str = ""
    message: str = ""

    def refusal(self) -> Refused:
        return Refused(self.code, self.reason, self.message)


def decoded(body: bytes, into: type[T]) -> T:
    """Raises Unreachable for what the API would not send, which must come from something in front of it."""
    try:
        return msgspec.json.decode(body, type=into)
    except UNREADABLE as error:
        raise Unreachable(f"not a {into.__name__.strip('_')} of the API: {error}") from error


def refusal(status_code: int, headers: Mapping[str, str], body: bytes) -> Refused:
    asked_s = min(retry_after_s(headers) or 0.0, _LONGEST_RETRY_AFTER_S)
    try:
        status = msgspec.json.decode(body, type=Status)
    except UNREADABLE:  # something in front of the API server has answered
        message = body[:LONGEST_MESSAGE].decode("utf-8", "replace")
        return Refused(status_code, "no Status of the API", message, asked_s)
    return Refused(status_code, status.reason, status.message, asked_s)
