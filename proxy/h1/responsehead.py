"""Decode a backend's response head with cached lines; twice as fast as a parser that is fed byte ranges.

Strict about framing (RFC 9112, 6.3): a response whose end two readers could see at different places would poison the
connection for the next client. The same length twice counts as one; one beside chunks is ignored, and the connection is
not used again. All flaws are answered 502, since a backend made them. Too many fields have a code of their own inside
the codec (`FIELDS_TOO_LARGE`), since such a head may still be valid HTTP.
"""

import re
from typing import Final

from proxy.h1.bodies import CHUNKED, UNTIL_CLOSE
from proxy.h1.caches import MAX_HEAD_BYTES, MAX_HEADS, MAX_LINE_BYTES, ORDINARY, UNCACHED_NAMES, Caches, ReceivedLine
from proxy.h1.errors import FIELDS_TOO_LARGE, RemoteProtocolError
from proxy.h1.grammar import decode_field_line, options_of
from proxy.h1.limits import Limits
from proxy.h1.response import Response
from proxy.heads import BODILESS_STATUS_CODES, LENGTH, Field, Fields, ResponseHead

BAD_GATEWAY: Final = 502

_STATUS_LINE = re.compile(rb"HTTP/1\.([01]) ([1-9][0-9][0-9])(?: [^\x00-\x08\x0a-\x1f\x7f]*)?")
# Among the parameters of Keep-Alive (RFC 2068, 19.7.1.1). A value of more than nine digits is ignored.
_TIMEOUT_PARAMETER = re.compile(rb"(?:^|,)[ \t]*timeout=([0-9]{1,9})[ \t]*(?:,|$)", re.IGNORECASE)

# Kinds of lines, determined once per line and not once per response.
_LENGTH: Final = 1
_CHUNKED: Final = 2
_KEEP_ALIVE: Final = 3
_CLOSE: Final = 4
_OPTIONS: Final = 5
_FLAWED: Final = 6
_TERMS: Final = 7


class ResponseHeadDecoder:
    """One for each connection; the caches are shared.

    A head enters the cache of whole heads once all of its lines are cached. So one with a line that is new in each
    response, or that holds a credential, never does.
    """

    __slots__ = ("_cache", "_find", "_find_head", "_heads", "_limits")

    def __init__(self, caches: Caches, limits: Limits) -> None:
        self._cache = caches.received
        self._find = caches.received.young.get
        self._heads = caches.heads
        self._find_head = caches.heads.get
        self._limits = limits

    def decode(self, head: bytes, *, answers_head: bool) -> Response:
        """`head` ends with its empty line; `answers_head`: the request's method was HEAD."""
        known = self._find_head(head)
        if known is not None and not answers_head:
            return known
        lines = iter(head[:-4].split(b"\r\n"))
        status = _STATUS_LINE.fullmatch(next(lines))
        if status is None:
            raise RemoteProtocolError(BAD_GATEWAY, "malformed status line")
        status_code = int(status[2])
        fields: Fields = []
        special: list[ReceivedLine] = []
        is_repeated = not answers_head
        find = self._find
        for line in lines:
            entry = find(line)
            if entry is None:
                is_repeated = False
                entry = self._decode_unseen(line)
            fields.append(entry[1])
            if entry[0]:
                special.append(entry)
        if len(fields) > self._limits.max_fields:
            reason = f"{len(fields)} fields, want at most {self._limits.max_fields}"
            raise RemoteProtocolError(FIELDS_TOO_LARGE, reason)
        if status_code < 200:
            return _informational(ResponseHead(status_code, fields), special)
        is_bodiless = answers_head or status_code in BODILESS_STATUS_CODES
        response = _final(ResponseHead(status_code, fields), special, status[1] == b"0", is_bodiless)
        if is_repeated:
            self._keep(head, response)
        return response

    def _keep(self, head: bytes, response: Response) -> None:
        if len(head) <= MAX_HEAD_BYTES:
            if len(self._heads) >= MAX_HEADS:
                self._heads.clear()
            self._heads[head] = response

    def _decode_unseen(self, line: bytes) -> ReceivedLine:
        size_bytes = 2 * len(line)
        entry = self._cache.revive(line, size_bytes)
        if entry is None:
            name, value = field = decode_field_line(line, BAD_GATEWAY)
            entry = (_kind_of(name, value), field)
            if len(line) <= MAX_LINE_BYTES and name not in UNCACHED_NAMES:
                self._cache.add(line, entry, size_bytes)
        return entry


def _kind_of(name: bytes, value: bytes) -> int:
    if name == b"content-length":
        return _LENGTH if LENGTH.fullmatch(value) else _FLAWED
    if name == b"transfer-encoding":
        return _CHUNKED if value.lower() == b"chunked" else _FLAWED
    if name == b"connection":
        return {b"keep-alive": _KEEP_ALIVE, b"close": _CLOSE}.get(value.lower(), _OPTIONS)
    if name == b"keep-alive":
        return _TERMS
    return ORDINARY


def _informational(head: ResponseHead, special: list[ReceivedLine]) -> Response:
    """Framing fields are refused (RFC 9110, 8.6; RFC 9112, 6.1), but for two that some WebSocket servers send: a length
    of 0, and on a 101, which ends with its head anyway, the coding that their library adds where there is no length.
    """
    flaws = (_FLAWED,) if head.status_code == 101 else (_FLAWED, _CHUNKED)
    if any(kind in flaws or (kind == _LENGTH and int(value)) for kind, (_, value) in special):
        raise RemoteProtocolError(BAD_GATEWAY, f"status {head.status_code} with a body")
    return Response(head, 0, True)


def _final(head: ResponseHead, special: list[ReceivedLine], is_http_10: bool, is_bodiless: bool) -> Response:
    says_keep_alive = says_close = is_chunked = False
    timeout_s: int | None = None
    length: Field | None = None
    for kind, field in special:
        if kind == _LENGTH:
            if length is None:
                length = field
            elif field == length:
                # Some servers repeat the length that their application has set (RFC 9110, 8.6).
                head.fields.remove(field)
            else:
                raise RemoteProtocolError(BAD_GATEWAY, "Content-Length twice, with different values")
        elif kind == _CHUNKED:
            if is_chunked:
                raise RemoteProtocolError(BAD_GATEWAY, "Transfer-Encoding twice")
            is_chunked = True
        elif kind == _KEEP_ALIVE:
            says_keep_alive = True
        elif kind == _CLOSE:
            says_close = True
        elif kind == _OPTIONS:
            options = options_of([field[1]])
            says_close = says_close or b"close" in options
            says_keep_alive = says_keep_alive or b"keep-alive" in options
        elif kind == _TERMS and (timeout := _TIMEOUT_PARAMETER.search(field[1])):
            timeout_s = int(timeout[1])
        elif kind == _FLAWED:
            raise RemoteProtocolError(BAD_GATEWAY, f"field {field[0].decode()}, want chunked or one number")
    if is_http_10 and is_chunked:
        raise RemoteProtocolError(BAD_GATEWAY, "Transfer-Encoding in an HTTP/1.0 response")
    if is_chunked and length is not None:
        # The chunks count, and the length is not passed on (RFC 9112, 6.3): OpenWrt's server adds one where the
        # application has set the other. Another reader may have seen another end, so no further request is sent here.
        head.fields.remove(length)
        says_close = True
    length_bytes = CHUNKED if is_chunked else UNTIL_CLOSE if length is None else int(length[1])
    keeps_alive = not says_close and (not is_http_10 or says_keep_alive)
    if is_bodiless:
        # A 204 must not have a body (RFC 9110, 15.3.5). If it announces one, that may come, so the connection ends.
        is_doubtful = head.status_code == 204 and length_bytes not in (0, UNTIL_CLOSE)
        return Response(head, 0, keeps_alive and not is_doubtful, timeout_s)
    return Response(head, length_bytes, keeps_alive, timeout_s)
