"""What a TLS ClientHello says, read before TLS begins (RFC 8446, 4.1.2 and 5.1; RFC 6066, 3; RFC 5077, 3.2).

The server name decides which listener a connection belongs to, and so whether client certificates are wanted, which
OpenSSL has to know when the connection object is created. So the first bytes are examined while they stay in the
socket. Only what is needed is parsed; OpenSSL judges the rest. Pure.
"""

from typing import Final

import msgspec

MAX_BYTES: Final = 32 * 1024
"""More than any client sends, post-quantum key shares and tickets included."""
_HANDSHAKE: Final = 22
_CLIENT_HELLO: Final = 1
_SERVER_NAME: Final = 0
_HOST_NAME: Final = 0
_SESSION_TICKET: Final = 35
_RECORD_HEAD_BYTES: Final = 5
_MESSAGE_HEAD_BYTES: Final = 4


class NotTls(Exception):
    """The bytes received are no ClientHello."""


class ClientHello(msgspec.Struct, frozen=True):
    server_name: bytes | None
    """Lower case, without a final dot."""
    takes_tickets: bool
    """The client can keep its TLS 1.2 session itself."""


def parse_client_hello(received: bytes) -> ClientHello | int:
    """The ClientHello, or how many bytes have to be there before another look.

    Raises NotTls. If its content makes no sense, it has no extensions.
    """
    message = bytearray()
    start = missing_bytes = 0
    while True:
        # At best the rest is in one record. Otherwise a message in tiny ones would be read anew for each of them.
        fewest_bytes = start + _RECORD_HEAD_BYTES + missing_bytes
        if fewest_bytes > MAX_BYTES:
            raise NotTls
        if len(received) < start + _RECORD_HEAD_BYTES:
            if received and received[0] != _HANDSHAKE:
                raise NotTls
            return fewest_bytes
        length_bytes = int.from_bytes(received[start + 3 : start + 5], "big")
        if received[start] != _HANDSHAKE or received[start + 1] != 3 or not length_bytes:
            raise NotTls
        stop = start + _RECORD_HEAD_BYTES + length_bytes
        if stop > MAX_BYTES:
            raise NotTls
        if len(received) < stop:
            return max(stop, fewest_bytes)
        message += received[start + _RECORD_HEAD_BYTES : stop]
        if len(message) >= _MESSAGE_HEAD_BYTES:
            if message[0] != _CLIENT_HELLO:
                raise NotTls
            missing_bytes = _MESSAGE_HEAD_BYTES + int.from_bytes(message[1:4], "big") - len(message)
            if missing_bytes <= 0:
                return _client_hello(bytes(message[_MESSAGE_HEAD_BYTES : len(message) + missing_bytes]))
        start = stop


def _client_hello(body: bytes) -> ClientHello:
    server_name, takes_tickets = None, False
    reader = _Reader(body)
    reader.take(2 + 32)  # version, random
    reader.vector(1)  # session id
    reader.vector(2)  # cipher suites
    reader.vector(1)  # compression methods
    extensions = _Reader(reader.vector(2))
    while extensions.is_more:
        kind, content = extensions.number(2), extensions.vector(2)
        if kind == _SERVER_NAME and server_name is None:
            server_name = _server_name(content)
        elif kind == _SESSION_TICKET:
            takes_tickets = True
    return ClientHello(server_name, takes_tickets)


def _server_name(content: bytes) -> bytes | None:
    names = _Reader(_Reader(content).vector(2))
    while names.is_more:
        name_type, name = names.number(1), names.vector(2)
        if name_type == _HOST_NAME and name:
            return name.lower().removesuffix(b".")
    return None


class _Reader:
    """Takes bytes from the front; beyond the end there are none."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def is_more(self) -> bool:
        return self._at < len(self._data)

    def take(self, size_bytes: int) -> bytes:
        self._at += size_bytes
        return self._data[self._at - size_bytes : self._at]

    def number(self, size_bytes: int) -> int:
        return int.from_bytes(self.take(size_bytes), "big")

    def vector(self, head_bytes: int) -> bytes:
        return self.take(self.number(head_bytes))
