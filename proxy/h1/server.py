"""The server role: requests of untrusted clients in, responses out (RFC 9112), without I/O.

One exchange at a time. What a client sends behind a request is held, unread, until the response has been sent
completely, or is a 101; then `receive(b"")` reads on. `wants_data` turns false when enough is held: the caller stops
reading its socket, so the memory of a connection is bounded by `Limits` plus one read.

A client that breaks the protocol gets one answer: after `ConnectionTerminated` the caller may send one response, if
none has begun, and closes. `should_close` says when all is done: the caller sends what is queued and closes, its
sending side first, since a reset would take the answer from a client that is still sending (RFC 9112, 9.6).
Called by one thread. Knows no clock: timeouts (408) are the caller's.
"""

from http import HTTPStatus
from typing import Final

from proxy.h1.bodies import UNLIMITED, BodyReader, EndlessReader, reader_for
from proxy.h1.caches import Caches
from proxy.h1.errors import LocalProtocolError, RemoteProtocolError
from proxy.h1.events import ConnectionTerminated, DataReceived, Event, Http2PrefaceReceived, RequestReceived
from proxy.h1.headbuffer import HeadBuffer
from proxy.h1.limits import DEFAULT_LIMITS, Limits
from proxy.h1.requesthead import Request, RequestHeadDecoder
from proxy.h1.sending import Framing, Sending
from proxy.heads import BODILESS_STATUS_CODES, ResponseHead

_METHOD_START: Final = frozenset(b"!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")
_HTTP2_HEAD: Final = b"PRI * HTTP/2.0\r\n\r\n"
_STATUS_LINES: Final = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus}


class Reading:
    """Where the client's bytes go. No enum: naming a member of one costs a function call in Python 3.11."""

    HEAD: Final = "into a request head"
    BODY: Final = "into a body"
    HELD: Final = "behind a request that is being answered"
    RAW: Final = "to the protocol that was switched to"
    CLOSED: Final = "nowhere"


class Writing:
    """What the client is owed."""

    NOTHING: Final = "no response until the next request"
    HEAD: Final = "a response"
    BODY: Final = "the rest of a response"
    RAW: Final = "bytes of the protocol that was switched to"


class ServerConnection(Sending):
    """`scheme` is `b"http"` or `b"https"`, depending on the connection's transport."""

    def __init__(self, caches: Caches, scheme: bytes = b"http", limits: Limits = DEFAULT_LIMITS) -> None:
        super().__init__(caches)
        self._limits = limits
        self._heads = HeadBuffer(limits, limits.max_request_line_bytes, _METHOD_START, is_blank_line_allowed=True)
        self._decoder = RequestHeadDecoder(limits, scheme)
        self._reading: str = Reading.HEAD
        self._writing: str = Writing.NOTHING
        self._body: BodyReader = EndlessReader()
        self._request: Request | None = None
        self._is_first = True
        self._keeps_alive = True
        self._is_client_done = False
        # Held bytes of later requests, or of many chunks, start at an offset into what was received with them: many
        # small requests in one piece must not each cost a copy of the rest.
        self._pipelined = b""
        self._pipelined_start = 0

    def __repr__(self) -> str:
        return f"<ServerConnection reading={self._reading!r} writing={self._writing!r} held={self.held_bytes}>"

    @property
    def held_bytes(self) -> int:
        """Received and not reported yet."""
        return len(self._heads) + self._pipelined_bytes

    @property
    def has_pipelined(self) -> bool:
        """Bytes of the next request are held; once `is_idle`, `receive(b"")` reads them."""
        return bool(self._pipelined)

    @property
    def has_unread(self) -> bool:
        """Chunks from earlier calls are left for the next `receive`, which may be called without new data."""
        return self._reading == Reading.BODY and bool(self._pipelined)

    @property
    def _pipelined_bytes(self) -> int:
        return len(self._pipelined) - self._pipelined_start

    @property
    def is_idle(self) -> bool:
        """Between two exchanges: no response is owed, and no part of the next request has been read."""
        return self._reading == Reading.HEAD and not len(self._heads)

    @property
    def wants_data(self) -> bool:
        if self._reading == Reading.HELD:
            return not self._is_client_done and self._pipelined_bytes < self._limits.max_pipelined_bytes
        return self._reading != Reading.CLOSED and not self.has_unread

    @property
    def should_close(self) -> bool:
        """Nothing more will be read or sent: send what is queued, then close the connection."""
        return self._reading == Reading.CLOSED and self._writing == Writing.NOTHING

    # -- receiving ---------------------------------------------------------------------------------------------------

    def limit_heads(self, limits: Limits) -> None:
        """Apply the limits of a request's line and head to what is received from now on."""
        self._heads.limit(limits, limits.max_request_line_bytes)

    def receive(self, data: bytes, max_chunks: int = UNLIMITED) -> list[Event]:
        """Read on. After the end of a response, or a 101, call it once with `b""`: more may have come already.

        `max_chunks` is for callers with other connections to serve: after that many chunks the rest of a body waits for
        the next call, and until then `has_unread` is true.
        """
        events: list[Event] = []
        if self._reading == Reading.HELD and not self.wants_data and data:
            raise LocalProtocolError(f"data while {self._pipelined_bytes} bytes of later requests are held")
        start = 0
        if self._pipelined and (data or self._reading != Reading.HELD):
            data, start = self._take_pipelined(data)
        try:
            self._advance(data, start, events, max_chunks)
            if self._is_client_done:
                self._end_of_input(events)
        except RemoteProtocolError as error:
            self._terminate(error, events)
        return events

    def receive_eof(self) -> list[Event]:
        """The client has closed its side. A complete request is still answered: half-closing is allowed."""
        self._is_client_done = True
        return self.receive(b"")

    def _take_pipelined(self, data: bytes) -> tuple[bytes, int]:
        """The held bytes followed by `data`, and the offset at which they start."""
        held, start = self._pipelined, self._pipelined_start
        self._pipelined, self._pipelined_start = b"", 0
        return (held[start:] + data, 0) if data else (held, start)

    def _hold(self, data: bytes, start: int) -> None:
        """Copy only if less than half is left, so that the copies made of one piece add up to its size at most."""
        if start > len(data) // 2:
            data, start = data[start:], 0
        self._pipelined, self._pipelined_start = data, start

    def _advance(self, data: bytes, start: int, events: list[Event], max_chunks: int) -> None:
        size = len(data)
        while start < size:
            reading = self._reading
            if reading == Reading.HEAD:
                head, start = self._heads.take(data, start)
                if head is None:
                    return
                if head == _HTTP2_HEAD and self._is_first:
                    self._reading = Reading.CLOSED
                    events.append(Http2PrefaceReceived(head + data[start:]))
                    return
                self._begin_request(head, events)
            elif reading == Reading.BODY:
                start = self._body.read(data, start, events, max_chunks)
                if self._body.is_done:
                    self._reading = Reading.HELD
                elif start < size:
                    self._hold(data, start)
                    return
            elif reading == Reading.HELD:
                self._hold(data, start)
                return
            elif reading == Reading.RAW:
                start = self._body.read(data, start, events, max_chunks)
            else:
                return

    def _begin_request(self, head: bytes, events: list[Event]) -> None:
        self._is_first = False
        self._request = request = self._decoder.decode(head)
        length_bytes = request.length_bytes
        self._keeps_alive = self._keeps_alive and request.keeps_alive
        self._writing = Writing.HEAD
        if length_bytes == 0:
            self._reading = Reading.HELD
        else:
            self._reading = Reading.BODY
            self._body = reader_for(length_bytes, self._limits, 400)
        events.append(RequestReceived(request.head, length_bytes == 0, request.is_http_10))

    def _end_of_input(self, events: list[Event]) -> None:
        if self._reading == Reading.BODY:
            raise RemoteProtocolError(400, "connection closed in the middle of a body")
        if self._reading == Reading.RAW:
            self._reading = Reading.CLOSED
            events.append(DataReceived(b"", True))
        elif self._reading == Reading.HEAD:
            if len(self._heads):
                raise RemoteProtocolError(400, "connection closed in the middle of a request head")
            self._reading = Reading.CLOSED

    def _terminate(self, error: RemoteProtocolError, events: list[Event]) -> None:
        """Read no more: nobody can tell where the next request would start (RFC 9112, 11.2)."""
        self._reading = Reading.CLOSED
        self._keeps_alive = False
        self._heads.clear()
        self._pipelined, self._pipelined_start = b"", 0
        if self._writing == Writing.NOTHING:
            self._writing = Writing.HEAD
        events.append(ConnectionTerminated(error.status_code, error.reason))

    # -- sending -----------------------------------------------------------------------------------------------------

    def drain(self) -> None:
        """Make the current response, or else the next, the last one; an idle connection should close now."""
        self._keeps_alive = False
        if self.is_idle and not self._pipelined:
            self._reading = Reading.CLOSED

    def send_headers(self, head: ResponseHead, end_stream: bool = False) -> None:
        """Send a head. Below 200, status codes other than 101 are informational: the response is still owed.

        Without a content-length field the body is sent in chunks, or, to HTTP/1.0, until the connection closes. A 101
        may answer a request with `head.protocol`; both sides then exchange raw bytes.
        """
        if self._writing != Writing.HEAD:
            raise LocalProtocolError(f"response head while {self._writing} is owed")
        if head.status_code < 200:
            self._send_informational(head, end_stream)
            return
        lines = [self._status_line(head.status_code)]
        framing, left_bytes = self._frame(head, end_stream, lines)
        keeps_alive = self._keeps_alive and framing != Framing.CLOSE
        if self._reading == Reading.BODY:
            # The client may never send the body it announced (RFC 9110, 10.1.1), and nobody waits for it once the
            # response is complete. The connection is closed then, which has to be said now (RFC 9112, 9.6).
            keeps_alive = False
        if self._is_client_done and not self._pipelined:
            keeps_alive = False
        if not keeps_alive:
            lines.append(b"Connection: close\r\n")
        elif self._request is not None and self._request.is_http_10:
            lines.append(b"Connection: keep-alive\r\n")
        lines.append(b"\r\n")
        self._output.append(b"".join(lines))
        self._keeps_alive = keeps_alive
        self._framing, self._left_bytes = framing, left_bytes
        if end_stream:
            self._sent_all()
        else:
            self._writing = Writing.BODY
            self._is_sending_body = True

    def _frame(self, head: ResponseHead, end_stream: bool, lines: list[bytes]) -> tuple[str, int]:
        """Append the field lines. Returns the body's framing and its length (RFC 9110, 6.4.1; RFC 9112, 6)."""
        request = self._request
        is_http_10 = request is not None and request.is_http_10
        line, length_bytes = head.lines or self._encode(head)
        lines.append(line)
        if head.status_code in BODILESS_STATUS_CODES or (request is not None and request.head.method == b"HEAD"):
            return Framing.NOTHING, 0
        if length_bytes is not None:
            if end_stream and length_bytes:
                raise LocalProtocolError(f"response without a body, but content-length {length_bytes}")
            return Framing.LENGTH, length_bytes
        if end_stream:
            lines.append(b"Content-Length: 0\r\n")
            return Framing.LENGTH, 0
        if is_http_10:
            return Framing.CLOSE, 0
        lines.append(b"Transfer-Encoding: chunked\r\n")
        return Framing.CHUNKED, 0

    def _encode(self, head: ResponseHead) -> tuple[bytes, int | None]:
        """The field lines in one piece, and the content-length that they announce."""
        fields = head.fields
        if head.status_code == 204:
            # A 204 never has a length (RFC 9110, 8.6); some backends send a 0.
            fields = [field for field in fields if field[0] != b"content-length"]
        lines: list[bytes] = []
        length_bytes = self._lines(lines, fields)
        head.lines = b"".join(lines), length_bytes
        return head.lines

    def _send_informational(self, head: ResponseHead, end_stream: bool) -> None:
        request = self._request
        if end_stream or request is None:
            raise LocalProtocolError(f"status {head.status_code} cannot end an exchange, or answers no request")
        lines = [self._status_line(head.status_code)]
        if self._lines(lines, head.fields) is not None:
            raise LocalProtocolError(f"status {head.status_code} with content-length")
        if head.status_code == 101:
            if request.head.protocol is None:
                raise LocalProtocolError("status 101, but the request asked for no protocol that we switch to")
            lines.append(b"Connection: upgrade\r\nUpgrade: %b\r\n" % request.head.protocol)
            self._switch()
        elif request.is_http_10:
            # HTTP/1.0 has no 1xx (RFC 9110, 15.2).
            return
        self._output.append(b"".join((*lines, b"\r\n")))

    def _switch(self) -> None:
        if self._reading == Reading.HELD:
            self._reading = Reading.RAW
        self._body = EndlessReader()
        self._writing = Writing.RAW
        self._framing = Framing.CLOSE
        self._is_sending_body = True
        self._keeps_alive = False

    def _status_line(self, status_code: int) -> bytes:
        line = _STATUS_LINES.get(status_code)
        if line is None:
            if not 100 <= status_code <= 999:
                raise LocalProtocolError(f"status code {status_code}, want 100 to 999")
            line = b"HTTP/1.1 %d \r\n" % status_code
        return line

    def _sent_all(self) -> None:
        self._writing = Writing.NOTHING
        # The next answer, even if only to a malformed head, does not belong to this request.
        self._request = None
        if self._keeps_alive and self._reading == Reading.HELD:
            self._reading = Reading.HEAD
        elif self._reading != Reading.RAW:
            # Also while a body is still arriving: nobody waits for it.
            self._reading = Reading.CLOSED
            self._pipelined, self._pipelined_start = b"", 0
