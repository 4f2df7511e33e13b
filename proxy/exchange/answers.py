"""The proxy's own responses: errors, redirects, and fixed answers of the document.

An error is one line of plain text and the request id, which ties it to the access log; it reveals no addresses. A gRPC
call gets its error as gRPC wants it: HTTP 200 without a body, the status in the head, which then counts as trailers.
Fields that a rule sets on responses are set on these too, so that a browser may read the error of a cross-origin
request. Pure: the time is an argument.
"""

from collections.abc import Iterable
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus
from typing import Final

import msgspec

from proxy.backend.stream import Reason
from proxy.heads import BODILESS_STATUS_CODES, Field, Fields, RequestHead, ResponseHead
from proxy.routing import Answer, HeaderEdits, Redirect, grpc_status_of
from proxy.routing.hosts import is_grpc

_TEXT: Final[Field] = (b"content-type", b"text/plain; charset=utf-8")
_NO_BODY: Final[Field] = (b"content-length", b"0")
_VERBATIM: Final = frozenset(("fixed", "preflight"))
"""Reasons of answers that are not our errors, whatever their status code: they are sent as they are."""
_OF_CALLS: Final = frozenset((b"content-type", b"grpc-status", b"grpc-message"))
"""Fields that only we set in the answer to a gRPC call."""
_PHRASES: Final = {status.value: status.phrase.lower().encode() for status in HTTPStatus}
_PRINTABLE: Final = frozenset(range(0x20, 0x7F)) - {ord("%")}


class Reply(msgspec.Struct, frozen=True, gc=False):
    """A complete response."""

    head: ResponseHead
    body: bytes


class _Wording(msgspec.Struct, frozen=True, gc=False):
    status_code: int
    text: str
    retry_after_s: int = 0


_FAILURES: Final = {
    Reason.RESOLVE: _Wording(502, "the backend's name has no address"),
    Reason.REFUSED: _Wording(502, "the backend refused the connection"),
    Reason.UNREACHABLE: _Wording(502, "the backend cannot be reached"),
    Reason.CONNECT_TIMEOUT: _Wording(504, "the backend did not accept the connection in time"),
    Reason.TLS: _Wording(502, "no secure connection to the backend"),
    Reason.RESET: _Wording(502, "the backend broke the connection before it answered"),
    Reason.PROTOCOL: _Wording(502, "the backend answered something that is not HTTP"),
    Reason.FIELDS_TOO_LARGE: _Wording(502, "the header fields of the backend's answer are too many or too large"),
    Reason.UNSENDABLE: _Wording(502, "the backend's protocol cannot express the request"),
    Reason.OVERLOAD: _Wording(503, "the backend has reached its limit of requests", 1),
    Reason.UNHEALTHY: _Wording(503, "no healthy address of the backend is left", 5),
    Reason.STOPPING: _Wording(503, "this proxy is stopping", 1),
}


def failure_answer(reason: Reason, edits: HeaderEdits | None, grpc_status: int | None = None) -> Answer:
    """The answer to a request whose last attempt failed. `grpc_status` is set if the backend's reset determines it."""
    wording = _FAILURES[reason]
    headers: tuple[Field, ...] = (_TEXT,)
    if wording.retry_after_s:
        headers = (_TEXT, (b"retry-after", b"%d" % wording.retry_after_s))
    return _error(wording.status_code, reason.value, wording.text, edits, headers, grpc_status)


def error_answer(status_code: int, reason: str, text: str, edits: HeaderEdits | None = None) -> Answer:
    """An error that is not a backend's failure."""
    return _error(status_code, reason, text, edits, (_TEXT,))


def _error(
    status_code: int,
    reason: str,
    text: str,
    edits: HeaderEdits | None,
    headers: tuple[Field, ...],
    grpc_status: int | None = None,
) -> Answer:
    return Answer(
        status_code,
        reason,
        text.encode() + b"\n",
        headers,
        grpc_status_of(status_code) if grpc_status is None else grpc_status,
        response_edits=edits,
    )


def reply_to(answer: Answer, request: RequestHead, request_id: Field, now_s: float) -> Reply:
    """The response to `request`; `now_s` in seconds since 1970."""
    is_verbatim = answer.reason in _VERBATIM
    own: list[Field] = [(b"date", http_date(int(now_s)))]
    if not is_verbatim:
        own.append(request_id)
    if is_grpc(request) and answer.reason != "preflight" and request.method != b"CONNECT":
        message = answer.body.strip()
        return _grpc_reply(answer, message if is_verbatim else b"%b, request id %b" % (message, request_id[1]), own)
    body = answer.body if is_verbatim else _error_body(answer, request_id[1])
    fields = _with_own(_edited(answer.headers, answer.response_edits), own)
    if answer.status_code in BODILESS_STATUS_CODES:
        return Reply(ResponseHead(answer.status_code, fields), b"")
    fields.append((b"content-length", b"%d" % len(body)))
    return Reply(ResponseHead(answer.status_code, fields), b"" if request.method == b"HEAD" else body)


def for_edge(reply: Reply, answer: Answer) -> Reply:
    """`reply` for the tunnel's edge, which tells its clients in its own words that a backend has not answered."""
    if reply.head.status_code != HTTPStatus.BAD_GATEWAY or answer.reason in _VERBATIM:
        return reply
    return Reply(ResponseHead(reply.head.status_code, [_NO_BODY], is_failure=True), b"")


def redirect_reply(redirect: Redirect, request_id: Field, now_s: float) -> Reply:
    fields = _edited(((b"location", redirect.location),), redirect.response_edits)
    own = ((b"date", http_date(int(now_s))), request_id, _NO_BODY)
    return Reply(ResponseHead(redirect.status_code, _with_own(fields, own)), b"")


def _error_body(answer: Answer, request_id: bytes) -> bytes:
    phrase = _PHRASES.get(answer.status_code, b"error")
    return b"%d %b: %brequest id: %b\n" % (answer.status_code, phrase, answer.body, request_id)


def _grpc_reply(answer: Answer, message: bytes, own: list[Field]) -> Reply:
    edited = _edited(answer.headers, answer.response_edits)
    fields = [field for field in edited if field[0] not in _OF_CALLS]
    fields += (
        (b"content-type", b"application/grpc"),
        (b"grpc-status", b"%d" % answer.grpc_status),
        (b"grpc-message", percent_encoded(message)),
    )
    return Reply(ResponseHead(200, _with_own(fields, own)), b"")


def _with_own(fields: Fields, own: Iterable[Field]) -> Fields:
    """Add our own fields, except those that a rule has set: each field comes once (RFC 9110, 5.3)."""
    names = {name for name, _ in fields}
    return fields + [field for field in own if field[0] not in names]


def _edited(fields: Iterable[Field], edits: HeaderEdits | None) -> Fields:
    return list(fields) if edits is None else edits.apply(fields)


def percent_encoded(message: bytes) -> bytes:
    """Encode grpc-message as gRPC does: printable ASCII other than the percent sign stands for itself."""
    return b"".join(b"%c" % byte if byte in _PRINTABLE else b"%%%02X" % byte for byte in message)


@lru_cache(maxsize=4)
def http_date(now_s: int) -> bytes:
    """IMF-fixdate (RFC 9110, 5.6.7)."""
    return formatdate(now_s, usegmt=True).encode()
