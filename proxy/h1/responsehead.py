"""Read the head of a backend's response with cached lines; twice as fast as a parser that is fed byte ranges.

As strict as for requests about everything that frames (RFC 9112, 6.3): a response whose end two readers could see at
different places would poison the connection for the next client. All flaws are 502, since a backend made them.
"""

import re
from typing import Final

from proxy.h1.caches import CREDENTIALS, MAX_LINE_BYTES, ORDINARY, Caches, ReceivedLine
from proxy.h1.errors import RemoteProtocolError
from proxy.h1.grammar import LENGTH, decode_field_line, options_of
from proxy.h1.limits import Limits
from proxy.h2.heads import Fields, ResponseHead

BAD_GATEWAY: Final = 502
CHUNKED: Final = -1
UNTIL_CLOSE: Final = -2

_STATUS_LINE = re.compile(rb"HTTP/1\.([01]) ([1-9][0-9][0-9])(?: [^\x00-\x08\x0a-\x1f\x7f]*)?")
_SPECIAL: Final = {b"content-length": 1, b"transfer-encoding": 2, b"connection": 3, b"upgrade": 4}
_BODILESS: Final = frozenset((204, 304))


class Response:
    """A head with where its body ends: `length_bytes`, 0 for none, CHUNKED, or UNTIL_CLOSE."""

    __slots__ = ("head", "keeps_alive", "length_bytes")

    def __init__(self, head: ResponseHead, length_bytes: int, keeps_alive: bool) -> None:
        self.head = head
        self.length_bytes = length_bytes
        self.keeps_alive = keeps_alive


class ResponseHeadDecoder:
    """One for each connection; the cache is shared."""

    __slots__ = ("_cache", "_find", "_limits")

    def __init__(self, caches: Caches, limits: Limits) -> None:
        self._cache = caches.received
        self._find = caches.received.young.get
        self._limits = limits

    def decode(self, head: bytes, *, answers_head: bool) -> Response:
        """`head` ends with its empty line; `answers_head`: the request's method was HEAD."""
        lines = iter(head[:-4].split(b"\r\n"))
        status = _STATUS_LINE.fullmatch(next(lines))
        if status is None:
            raise RemoteProtocolError(BAD_GATEWAY, "malformed status line")
        is_http_10, status_code = status[1] == b"0", int(status[2])
        fields: Fields = []
        special: list[ReceivedLine] = []
        find = self._find
        for line in lines:
            entry = find(line) or self._decode_unseen(line)
            fields.append(entry[1])
            if entry[0]:
                special.append(entry)
        if len(fields) > self._limits.max_fields:
            raise RemoteProtocolError(BAD_GATEWAY, f"{len(fields)} fields, want at most {self._limits.max_fields}")
        response = ResponseHead(status_code, fields)
        if status_code < 200:
            return self._informational(response, special)
        return self._final(response, special, is_http_10, answers_head or status_code in _BODILESS)

    def _decode_unseen(self, line: bytes) -> ReceivedLine:
        size_bytes = 2 * len(line)
        entry = self._cache.revive(line, size_bytes)
        if entry is None:
            field = decode_field_line(line, BAD_GATEWAY)
            entry = (_SPECIAL.get(field[0], ORDINARY), field)
            if len(line) <= MAX_LINE_BYTES and field[0] not in CREDENTIALS:
                self._cache.add(line, entry, size_bytes)
        return entry

    def _informational(self, head: ResponseHead, special: list[ReceivedLine]) -> Response:
        """RFC 9110, 8.6 and RFC 9112, 6.1: no framing fields."""
        if any(field[0] in (b"content-length", b"transfer-encoding") for _, field in special):
            raise RemoteProtocolError(BAD_GATEWAY, f"status {head.status_code} with a body")
        if head.status_code == 101:
            upgrades = [field[1] for _, field in special if field[0] == b"upgrade"]
            if [value.lower() for value in upgrades] != [b"websocket"]:
                raise RemoteProtocolError(BAD_GATEWAY, "status 101 that does not switch to websocket alone")
        return Response(head, 0, True)

    def _final(self, head: ResponseHead, special: list[ReceivedLine], is_http_10: bool, is_bodiless: bool) -> Response:
        values: dict[bytes, list[bytes]] = {}
        for _, (name, value) in special:
            values.setdefault(name, []).append(value)
        length_bytes = _length(values, is_http_10)
        keeps_alive = not is_http_10
        if b"connection" in values:
            options = options_of(values[b"connection"])
            keeps_alive = b"close" not in options and (not is_http_10 or b"keep-alive" in options)
        if is_bodiless:
            if head.status_code == 204 and length_bytes not in (0, UNTIL_CLOSE):
                # A body is announced that must not come (RFC 9110, 15.3.5); if it comes, it ends with the connection.
                keeps_alive = False
            length_bytes = 0
        return Response(head, length_bytes, keeps_alive and length_bytes != UNTIL_CLOSE)


def _length(values: dict[bytes, list[bytes]], is_http_10: bool) -> int:
    lengths = values.get(b"content-length")
    codings = values.get(b"transfer-encoding")
    if codings:
        if lengths:
            raise RemoteProtocolError(BAD_GATEWAY, "both Transfer-Encoding and Content-Length")
        if is_http_10:
            raise RemoteProtocolError(BAD_GATEWAY, "Transfer-Encoding in an HTTP/1.0 response")
        if len(codings) > 1 or codings[0].lower() != b"chunked":
            raise RemoteProtocolError(BAD_GATEWAY, "Transfer-Encoding is not exactly chunked")
        return CHUNKED
    if not lengths:
        return UNTIL_CLOSE
    if len(lengths) > 1 or not LENGTH.fullmatch(lengths[0]):
        raise RemoteProtocolError(BAD_GATEWAY, "Content-Length is not one number of at most 18 digits")
    return int(lengths[0])
