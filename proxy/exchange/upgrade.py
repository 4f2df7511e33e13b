"""Switches of protocols: WebSocket between two sides that may speak different versions of HTTP (RFC 6455, 4; RFC 8441),
others between two that speak HTTP/1.1 (RFC 9110, 7.8).

For WebSocket, HTTP/1.1 uses GET, a key and 101; HTTP/2 uses extended CONNECT, no key and 200. A `Switch` translates
between them: it generates, checks or answers a key that only one side has. Routes see GET in both cases. Pure;
randomness comes in as `nonce`.
"""

import base64
import hashlib
from typing import Final

from proxy.heads import WEBSOCKET, Fields, RequestHead, ResponseHead

NONCE_BYTES: Final = 16

_KEY: Final = b"sec-websocket-key"
_ACCEPT: Final = b"sec-websocket-accept"
_VERSION: Final = b"sec-websocket-version"
_GUID: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


class UnusableSwitch(ValueError):
    """The backend's answer to an upgrade request cannot be used."""


def is_unknown(head: RequestHead) -> bool:
    """A CONNECT that we do not offer: to an address, or for another protocol (RFC 8441, 4; RFC 9220, 3: 501)."""
    return head.method == b"CONNECT" and head.protocol != WEBSOCKET


def is_ignored(asked: RequestHead, *, is_backend_http2: bool) -> bool:
    """Whether the backend gets an ordinary request, because its version of HTTP cannot express the client's offer."""
    return is_backend_http2 and asked.protocol != WEBSOCKET


def as_get(head: RequestHead) -> RequestHead:
    """The request as routes see it."""
    if head.method != b"CONNECT":
        return head
    return RequestHead(b"GET", head.scheme, head.authority, head.path, head.fields, head.protocol, head.never_indexed)


class Switch:
    """One switch. `asked` is the client's own head; with `end_stream` no more of the request follows it."""

    __slots__ = ("_asked", "_client_key", "_is_backend_http2", "_is_client_http2", "_key", "has_body")

    def __init__(self, asked: RequestHead, end_stream: bool, *, is_backend_http2: bool, nonce: bytes) -> None:
        self._asked = asked
        self._is_client_http2 = asked.method == b"CONNECT"
        self.has_body = not end_stream and asked.protocol != WEBSOCKET
        """The backend gets a body before it switches. After a WebSocket request the protocol's own data follows."""
        self._is_backend_http2 = is_backend_http2
        keys = [value for name, value in asked.fields if name == _KEY]
        self._client_key = keys[0] if len(keys) == 1 else b""
        self._key = base64.b64encode(nonce)

    @property
    def is_possible(self) -> bool:
        """False if an HTTP/1.1 client sent no key for WebSocket, or more than one."""
        return self._is_client_http2 or self._asked.protocol != WEBSOCKET or bool(self._client_key)

    @property
    def method(self) -> bytes:
        """The method of the request to the backend."""
        return b"CONNECT" if self._is_backend_http2 else as_get(self._asked).method

    @property
    def ends_request(self) -> bool:
        """The request to the backend has no body. One of HTTP/2 always has: the protocol's own data."""
        return not self._is_backend_http2 and not self.has_body

    def request_fields(self, fields: Fields) -> Fields:
        # An upgrade request may say that it has no body; an HTTP/2 CONNECT that says so could send nothing.
        if not self.has_body:
            fields = [field for field in fields if field[0] != b"content-length"]
        if self._is_client_http2 == self._is_backend_http2:
            return fields
        if self._is_backend_http2:
            return [field for field in fields if field[0] != _KEY]
        fields = [*(field for field in fields if field[0] != _KEY), (_KEY, self._key)]
        # Firefox leaves it out over HTTP/2 when it uses a proxy of its own; servers refuse handshakes without it.
        return fields if any(name == _VERSION for name, _ in fields) else [*fields, (_VERSION, b"13")]

    def is_done_by(self, head: ResponseHead) -> bool:
        """Whether the backend has switched. Raises UnusableSwitch if that is unclear, or cannot be passed on."""
        if self._is_backend_http2:
            return 200 <= head.status_code <= 299
        if head.status_code == 101:
            expected = None if not self._is_client_http2 else accept_of(self._key)
            if expected is not None and (_ACCEPT, expected) not in head.fields:
                raise UnusableSwitch("status 101 without the sec-websocket-accept that matches our key")
            return True
        if self._is_client_http2 and 200 <= head.status_code <= 299:
            raise UnusableSwitch(f"status {head.status_code} instead of 101, which HTTP/2 would take for a switch")
        return False

    def response_head(self, fields: Fields) -> ResponseHead:
        """The head that tells the client of the switch."""
        if not self._is_client_http2 and not self._is_backend_http2:
            return ResponseHead(101, fields)
        kept = [field for field in fields if field[0] not in (_ACCEPT, b"content-length")]
        if self._is_client_http2:
            return ResponseHead(200, kept)
        return ResponseHead(101, [*kept, (_ACCEPT, accept_of(self._client_key))])


def accept_of(key: bytes) -> bytes:
    """The answer to a key (RFC 6455, 4.2.2)."""
    return base64.b64encode(hashlib.sha1(key + _GUID).digest())  # what the protocol says; proves nothing
