"""Reads one whole HTTP/1.1 reply from a socket, with llhttp: head, body, and whether the connection can be reused.

The standard library reads a head line by line through the e-mail package, which costs more than everything else in a
call to the controller (measured: 150 of 330 us of CPU; this takes 20). Everything is limited here: head and framing by
constants, the body by the caller's limit, and the time by one deadline for the whole reply, since a socket's own
timeout applies to each read separately.
"""

import io
import socket
import time

import msgspec
import urllib3
from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser
from urllib3.exceptions import ProtocolError

MAX_HEAD_BYTES = 256 * 1024
MAX_FRAMING_BYTES = 4 * 1024 * 1024
"""Everything but the body: head, chunk sizes, trailers. For 64 MiB in chunks of 512 bytes, this is 0.9 MiB."""
_FIRST_READ_BYTES = 16 * 1024
_NEXT_READ_BYTES = 64 * 1024
"""Small enough for the heap: a separate mapping for each piece doubles the cost of a listing (13 instead of 7 ms)."""
_TIMEOUT_SLACK_S = 0.05
"""A socket's timeout may be too long by this much: setting it anew for each read would double the system calls."""


class ReplyTooLong(Exception):
    """The body is longer than the limit."""


class WholeReply(msgspec.Struct, frozen=True):
    """A reply that has been read to its end."""

    status: int
    headers: urllib3.HTTPHeaderDict
    data: bytes


class _Sink:
    """What llhttp reports about one reply; interim replies (1xx) are dropped."""

    def __init__(self) -> None:
        self.parser: HttpResponseParser | None = None
        """Knows status code and persistence. Removed after reading, since parser and sink refer to each other."""
        self.headers = urllib3.HTTPHeaderDict()
        self.has_head = self.is_whole = self.keeps_alive = self.has_excess = False
        self.status = 0
        self.announced_bytes = 0
        self.body = io.BytesIO()
        """A single buffer: a list of two-byte chunks would take 25 times the memory of the body."""

    def on_message_begin(self) -> None:
        self.has_excess = self.is_whole

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.has_head:  # fields after the head are trailers
            self.headers.add(name.decode("latin-1"), value.decode("latin-1"))

    def on_headers_complete(self) -> None:
        if self.parser is not None and not self.is_whole:
            self.status = self.parser.get_status_code()
            self.has_head = True
            announced = self.headers.get("Content-Length", "")
            self.announced_bytes = int(announced) if announced.isdecimal() else 0

    def on_body(self, chunk: bytes) -> None:
        self.body.write(chunk)

    def on_message_complete(self) -> None:
        if self.status < 200:
            self.headers.clear()
            self.has_head = False
            self.announced_bytes = 0
        elif self.parser is not None and not self.is_whole:
            self.is_whole = True
            self.keeps_alive = self.parser.should_keep_alive()

    @property
    def ends_with_connection(self) -> bool:
        """Whether only the end of the connection shows where the body ends."""
        return self.has_head and not ("Content-Length" in self.headers or "Transfer-Encoding" in self.headers)


def read_reply(sock: socket.socket, timeout_s: float, max_body_bytes: int) -> tuple[WholeReply, bool]:
    """The reply, and whether the connection may be reused. Raises OSError, ProtocolError and ReplyTooLong."""
    sink = _Sink()
    parser = sink.parser = HttpResponseParser(sink)
    try:
        _feed(parser, sink, sock, time.monotonic() + timeout_s, max_body_bytes)
    except HttpParserError as error:
        raise ProtocolError(f"the answer is not valid HTTP: {error}") from error
    except HttpParserUpgrade as error:
        raise ProtocolError("the answer switches to another protocol, which was not asked for") from error
    finally:
        sink.parser = None
    body = sink.body.getvalue()
    if "Content-Encoding" in sink.headers:
        body = _unpacked(body, sink.headers, max_body_bytes)
    return WholeReply(sink.status, sink.headers, body), sink.keeps_alive and not sink.has_excess


def _feed(parser: HttpResponseParser, sink: _Sink, sock: socket.socket, at: float, max_body_bytes: int) -> None:
    received_bytes = 0
    while not sink.is_whole:
        octets = _receive(sock, at, _NEXT_READ_BYTES if received_bytes else _FIRST_READ_BYTES)
        if not octets:
            if sink.ends_with_connection:
                return
            raise ProtocolError("the controller closed the connection before its answer was whole")
        received_bytes += len(octets)
        parser.feed_data(octets)
        body_bytes = sink.body.tell()
        if max(body_bytes, sink.announced_bytes) > max_body_bytes:
            raise ReplyTooLong
        if not sink.has_head and received_bytes > MAX_HEAD_BYTES:
            raise ProtocolError(f"the head of the answer is longer than {MAX_HEAD_BYTES} bytes")
        if received_bytes - body_bytes > MAX_FRAMING_BYTES:
            raise ProtocolError(f"the answer has more than {MAX_FRAMING_BYTES} bytes besides its body")


def _receive(sock: socket.socket, at: float, size_bytes: int) -> bytes:
    remaining_s = at - time.monotonic()
    if remaining_s <= 0:
        raise TimeoutError("the answer did not end in time")
    if (sock.gettimeout() or remaining_s) > remaining_s + _TIMEOUT_SLACK_S:
        sock.settimeout(remaining_s)
    return sock.recv(size_bytes)


def _unpacked(packed: bytes, headers: urllib3.HTTPHeaderDict, max_body_bytes: int) -> bytes:
    """Decompress the body: some front ends compress although we ask them not to."""
    with urllib3.HTTPResponse(io.BytesIO(packed), headers, preload_content=False) as response:
        body = response.read(max_body_bytes + 1)
    if len(body) > max_body_bytes:
        raise ReplyTooLong
    return body
