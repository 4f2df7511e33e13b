"""The shape of the provider's answers, and the error for each answer that is not a success.

Every answer is `{"success", "errors", "messages", "result"}` and more; but a gateway in front of the API may answer
with HTML or nothing at all, and then 401, 403 or 404 tells nothing about token or tunnel. Error code 10000 stands for a
wrong token as well as for a missing permission, so the message names both. `messages` has code 10000 even if all is
well, so only `errors` is looked at.
"""

import re
from collections.abc import Mapping

import msgspec

from daemonkit.retryafter import retry_after_s
from daemonkit.secret import Secret, without
from tunnelgw.provider.errors import (
    AuthenticationFailed,
    NotThere,
    ProviderError,
    ProviderUnreachable,
    RateLimited,
    Refused,
)

MAX_PAUSE_S = 900.0
"""We wait no longer, even if the provider asks for more; its own block lasts 300 s."""
DEFAULT_PAUSE_S = 60.0
UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What msgspec raises for an answer that it cannot decode; RecursionError if it is nested too deeply."""
NO_TOKEN = Secret("")
_MAX_TEXT = 256
_MAX_RAY = 64
_TITLE = re.compile(rb"<title>(.*?)</title>", re.IGNORECASE | re.DOTALL)
_SCOPE = "the token needs the account permission Cloudflare Tunnel: Edit for this tunnel's account"


class ApiError(msgspec.Struct, frozen=True):
    code: int | float | str = 0
    message: str = ""
    error_chain: tuple["ApiError", ...] = ()

    def __str__(self) -> str:
        """Includes the chain of causes as far as there is room, since the provider does not limit its length."""
        told: list[str] = []
        links = [self]
        while links and sum(map(len, told)) < _MAX_TEXT:
            link, *rest = links
            told.append(f"{link.code} {link.message}")
            links = [*link.error_chain, *rest]
        return "; ".join(told)[:_MAX_TEXT]


class Envelope(msgspec.Struct, frozen=True):
    success: bool = False
    errors: tuple[ApiError, ...] | None = None
    result: msgspec.Raw = msgspec.Raw(b"null")

    @property
    def error_text(self) -> str:
        return "; ".join(str(error) for error in self.errors or ())


_decoder = msgspec.json.Decoder(Envelope)


class Answer(msgspec.Struct, frozen=True):
    """The answer to `call` (its name, method and path, for messages)."""

    call: str
    status_code: int
    body: bytes
    headers: Mapping[str, str]
    """With look-ups that ignore case."""
    token: Secret = NO_TOKEN
    """What the call was authorised with, which no error may show."""


def opened(answer: Answer) -> Envelope:
    """The envelope of a successful answer; raises ProviderError for all others."""
    envelope = _decoded(answer.body)
    if envelope is not None and envelope.success and 200 <= answer.status_code < 300:
        return envelope
    quotable = without(answer.body, (answer.token.reveal(),))
    failure = _failure(msgspec.structs.replace(answer, body=quotable), _decoded(quotable))
    failure.ray = answer.headers.get("cf-ray", "")[:_MAX_RAY]
    if isinstance(failure, ProviderUnreachable):
        failure.retry_after_s = _pause_s(answer.headers, 0.0)
    raise failure


def _decoded(body: bytes) -> Envelope | None:
    try:
        return _decoder.decode(body)
    except UNREADABLE:
        return None


def _failure(answer: Answer, envelope: Envelope | None) -> ProviderError:
    said = envelope.error_text if envelope else _text(answer.body)
    seen = f"{answer.call}: the provider answered {answer.status_code}" + (f" ({said})" if said else "")
    match answer.status_code:
        case 401 | 403 | 404 if envelope is None:
            return ProviderUnreachable(
                f"{seen}: that is not an answer of the API, but of a proxy or firewall in front of it: check the "
                "network on the way, and the provider's API URL"
            )
        case 401 | 403:
            return AuthenticationFailed(f"authentication failed: {seen}: the token is wrong or expired, or {_SCOPE}")
        case 404:
            return NotThere(f"{seen}: check tunnelID and accountID")
        case 429:
            return RateLimited(
                f"{seen}: too many requests, so nothing is asked for a while", _pause_s(answer.headers, DEFAULT_PAUSE_S)
            )
        case 400 if envelope and _has_code(envelope, 6003):
            return AuthenticationFailed(f"authentication failed: {seen}: the token is malformed, or {_SCOPE}")
        case 400 if envelope and _has_code(envelope, 7003):
            return NotThere(f"{seen}: check tunnelID and accountID")
        case status_code if 400 <= status_code < 500 and status_code not in (408, 409):
            return Refused(seen)
    if envelope is None and 200 <= answer.status_code < 300:
        return ProviderUnreachable(f"{answer.call}: want a JSON envelope, the provider sent {said or 'nothing'}")
    unreachable = ProviderUnreachable(seen)
    unreachable.has_answered = answer.status_code >= 500
    return unreachable


def _has_code(envelope: Envelope, code: int) -> bool:
    return any(error.code == code for error in envelope.errors or ())


def _text(body: bytes) -> str:
    """The beginning of a text; of an HTML page the title, since what comes before it is meaningless."""
    head = body[: 4 * _MAX_TEXT]
    title = _TITLE.search(head)
    return " ".join((title[1] if title else head).decode("utf-8", "replace").split())[:_MAX_TEXT]


def _pause_s(headers: Mapping[str, str], default_s: float) -> float:
    asked_s = retry_after_s(headers)
    return default_s if asked_s is None else min(asked_s, MAX_PAUSE_S)
