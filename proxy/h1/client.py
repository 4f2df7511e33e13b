"""The client role: requests to backends out, their responses in (RFC 9112), without I/O.

One exchange at a time, never pipelined. A connection may be used again when `is_reusable`; anything that a backend
sends outside a response ends it with `ConnectionTerminated`, since those bytes would become the next client's response.
`is_authenticated` is true once a request may have authenticated the connection itself, so that the backend attributes
all requests on it to one client. `is_response_begun` says whether any byte of a response has arrived: before that, a
lost connection may have been closed while idle. Called by one thread; knows no clock.
"""

import re
from typing import Final

from proxy.h1 import laxheads
from proxy.h1.bodies import COPIED_BYTES, UNLIMITED, BodyReader, EndlessReader, reader_for
from proxy.h1.caches import Caches
from proxy.h1.errors import FIELDS_TOO_LARGE, LocalProtocolError, RemoteProtocolError
from proxy.h1.events import ConnectionTerminated, DataReceived, Event, InformationalReceived, ResponseReceived
from proxy.h1.grammar import is_authority, switchable
from proxy.h1.headbuffer import HeadBuffer
from proxy.h1.limits import DEFAULT_LIMITS, Limits
from proxy.h1.response import Response
from proxy.h1.responsehead import BAD_GATEWAY, ResponseHeadDecoder
from proxy.h1.sending import Framing, Sending
from proxy.heads import TOKEN, RequestHead, authenticates_connection

_RESPONSE_START: Final = frozenset(b"HI")  # I: `laxheads`
# Requests with these methods say so when they have no body, lest a server wait for one (RFC 9110, 8.6).
_WITH_LENGTH: Final = frozenset((b"POST", b"PUT", b"PATCH"))
_USUAL_METHODS: Final = frozenset((b"GET", b"HEAD", b"POST", b"PUT", b"DELETE", b"PATCH", b"OPTIONS"))
_AUTHORIZATION: Final = b"\r\nAuthorization:"
_PATH: Final = re.compile(rb"/[^\x00-\x20\x7f]*|\*")


class Reading:
    """Where the backend's bytes go. No enum: naming a member of one costs a function call in Python 3.11."""

    IDLE: Final = "nowhere: no request is open"
    HEAD: Final = "into a response head"
    BODY: Final = "into a body"
    RAW: Final = "to the protocol that was switched to"
    CLOSED: Final = "nowhere, for good"


class ClientConnection(Sending):
    def __init__(self, caches: Caches, limits: Limits = DEFAULT_LIMITS) -> None:
        super().__init__(caches)
        self._limits = limits
        self._heads = HeadBuffer(limits, limits.max_head_bytes, _RESPONSE_START, is_lax=True)
        self._decoder = ResponseHeadDecoder(caches, limits)
        self._reading: str = Reading.IDLE
        self._body: BodyReader = EndlessReader()
        self._method = b""
        # The last one sent: it seldom changes on a connection.
        self._known_authority = b""
        self._protocol: bytes | None = None
        self._keeps_alive = True
        self.timeout_s: int | None = None
        """How long the backend keeps the connection open while unused, by its last Keep-Alive field that says so."""
        self._informational = self._informational_bytes = 0
        self.is_response_begun = False
        self.is_authenticated = False
        # Received bytes that wait for the next `receive`, and the offset at which they start.
        self._unread = b""
        self._unread_start = 0

    def __repr__(self) -> str:
        return f"<ClientConnection reading={self._reading!r} held={self.held_bytes}>"

    @property
    def held_bytes(self) -> int:
        """Received and not reported yet."""
        return len(self._heads) + len(self._unread) - self._unread_start

    @property
    def has_unread(self) -> bool:
        """Chunks from earlier calls are left for the next `receive`, which may be called without new data."""
        return bool(self._unread)

    @property
    def is_reusable(self) -> bool:
        """The next request may be sent."""
        return self._reading == Reading.IDLE and not self._is_sending_body and self._keeps_alive

    @property
    def is_switched(self) -> bool:
        """All bytes, both ways, belong to the protocol that was switched to."""
        return self._reading == Reading.RAW

    # -- receiving ---------------------------------------------------------------------------------------------------

    def receive(self, data: bytes, max_chunks: int = UNLIMITED) -> list[Event]:
        """`max_chunks` is for callers with other connections to serve: after that many chunks the rest of a body waits
        for the next call, and until then `has_unread` is true.
        """
        events: list[Event] = []
        start = 0
        if self._unread:
            unread, start = self._unread, self._unread_start
            data, start = (unread[start:] + data, 0) if data else (unread, start)
            self._unread, self._unread_start = b"", 0
        try:
            self._advance(data, start, events, max_chunks)
        except RemoteProtocolError as error:
            self._terminate(error.reason, events, are_fields_too_large=error.status_code == FIELDS_TOO_LARGE)
        return events

    def receive_eof(self, *, is_cut_off: bool = False) -> list[Event]:
        """The backend has closed its side: the end of some bodies, a fault in the middle of anything else.

        `is_cut_off`: without a TLS close_notify. That does not end a body, since anybody may have cut it short
        (RFC 9112, 9.8). Protocols that were switched to mark their own end.
        """
        events = self.receive(b"") if self._unread else []
        reading, self._reading = self._reading, Reading.CLOSED
        is_until_close = reading == Reading.BODY and isinstance(self._body, EndlessReader)
        if reading == Reading.RAW or (is_until_close and not is_cut_off):
            events.append(DataReceived(b"", True))
        elif is_until_close:
            self._terminate("connection closed without close_notify, which should end the body", events)
        elif reading in (Reading.HEAD, Reading.BODY):
            where = "in the middle of a body" if reading == Reading.BODY else "before the end of a response head"
            self._terminate(f"connection closed {where}", events)
        return events

    def _advance(self, data: bytes, start: int, events: list[Event], max_chunks: int) -> None:
        size = len(data)
        while start < size:
            reading = self._reading
            if reading == Reading.HEAD:
                self.is_response_begun = True
                head, start = self._heads.take(data, start)
                if head is None:
                    return
                try:
                    response = self._decoder.decode(head, answers_head=self._method == b"HEAD")
                except RemoteProtocolError:
                    mended = laxheads.mended(head, data[start:])
                    if mended is None:
                        raise
                    (head, data), start = mended, 0
                    size = len(data)
                    response = self._decoder.decode(head, answers_head=self._method == b"HEAD")
                length_bytes = self._begin_response(response, head, events)
                if 0 < length_bytes == size - start < COPIED_BYTES:
                    # The usual response: small, and all of it in one piece.
                    events.append(DataReceived(data[start:], True))
                    self._received_all()
                    return
                if length_bytes:
                    self._reading = Reading.BODY
                    self._body = reader_for(length_bytes, self._limits, BAD_GATEWAY)
            elif reading in (Reading.BODY, Reading.RAW):
                start = self._body.read(data, start, events, max_chunks)
                if self._body.is_done:
                    self._received_all()
                elif start < size:
                    self._unread, self._unread_start = data, start
                    return
            elif reading == Reading.IDLE:
                raise RemoteProtocolError(BAD_GATEWAY, "bytes that belong to no response")
            else:
                return

    def _begin_response(self, response: Response, raw: bytes, events: list[Event]) -> int:
        """`raw` is the head as received. Returns the length of the body that follows."""
        if response.head.status_code < 200:
            self._informational_or_switch(response, raw, events)
            return 0
        self._keeps_alive = self._keeps_alive and response.keeps_alive
        if response.timeout_s is not None:
            self.timeout_s = response.timeout_s
        length_bytes = response.length_bytes
        events.append(ResponseReceived(response.head, length_bytes == 0))
        if length_bytes == 0:
            self._received_all()
        return length_bytes

    def _informational_or_switch(self, response: Response, raw: bytes, events: list[Event]) -> None:
        if response.head.status_code == 101:
            if self._protocol is None:
                raise RemoteProtocolError(BAD_GATEWAY, "status 101 that was not requested")
            if self._is_sending_body:
                raise RemoteProtocolError(BAD_GATEWAY, "status 101 before the end of the request")
            chosen = [value.lower() for name, value in response.head.fields if name == b"upgrade"]
            if chosen != [self._protocol.lower()]:
                raise RemoteProtocolError(
                    BAD_GATEWAY, "status 101 that does not switch to exactly the requested protocol"
                )
            self._reading = Reading.RAW
            self._body = EndlessReader()
            self._framing = Framing.CLOSE
            self._is_sending_body = True
            events.append(ResponseReceived(response.head, False))
            return
        self._informational += 1
        if self._informational > self._limits.max_informational:
            raise RemoteProtocolError(
                BAD_GATEWAY, f"more than {self._limits.max_informational} informational responses"
            )
        # They wait for a client that does not read them, since no credit stops a backend that sends heads.
        self._informational_bytes += len(raw)
        if self._informational_bytes > self._limits.max_head_bytes:
            raise RemoteProtocolError(
                BAD_GATEWAY, f"informational responses of more than {self._limits.max_head_bytes} bytes together"
            )
        events.append(InformationalReceived(response.head))

    def _received_all(self) -> None:
        self._reading = Reading.IDLE
        if self._is_sending_body:
            # Answered before the request was complete: the rest of it must not be taken for the next request.
            self._keeps_alive = False

    def _terminate(self, reason: str, events: list[Event], *, are_fields_too_large: bool = False) -> None:
        self._reading = Reading.CLOSED
        self._heads.clear()
        events.append(ConnectionTerminated(BAD_GATEWAY, reason, are_fields_too_large))

    # -- sending -----------------------------------------------------------------------------------------------------

    def send_request(self, head: RequestHead, end_stream: bool = False) -> None:
        """Begin an exchange. Without a content-length field the body is sent in chunks.

        `head.authority` becomes Host. With `head.protocol` the backend is asked to switch to it, after the body if
        there is one.
        """
        if self._reading != Reading.IDLE or self._is_sending_body or not self._keeps_alive:
            raise LocalProtocolError("request on a connection that is busy or cannot be reused")
        method, authority = head.method, head.authority
        if method not in _USUAL_METHODS or authority != self._known_authority or head.protocol is not None:
            self._check_unusual(head, end_stream)
        if not _PATH.fullmatch(head.path):
            raise LocalProtocolError("path is not in origin-form, or contains spaces or control characters")
        lines = [b"%b %b HTTP/1.1\r\nHost: %b\r\n" % (method, head.path, authority)]
        fields = head.fields
        if head.protocol is not None:
            # Without TE, `upgrade` is the only connection option: some backends do not read Connection as a list.
            fields = [field for field in fields if field[0] != b"te"]
        length_bytes = self._lines(lines, fields)
        if end_stream:
            if length_bytes:
                raise LocalProtocolError(f"request without a body, but content-length {length_bytes}")
            if length_bytes is None and method in _WITH_LENGTH:
                lines.append(b"Content-Length: 0\r\n")
        elif length_bytes is None:
            lines.append(b"Transfer-Encoding: chunked\r\n")
        if head.protocol is not None:
            lines.append(b"Connection: Upgrade\r\nUpgrade: %b\r\n" % head.protocol)
        lines.append(b"\r\n")
        data = b"".join(lines)
        self._output.append(data)
        if _AUTHORIZATION in data and authenticates_connection(fields):
            self.is_authenticated = True
        self._known_authority = authority
        self._reading = Reading.HEAD
        self._method = method
        self._protocol = head.protocol
        self._informational = self._informational_bytes = 0
        self.is_response_begun = False
        self._framing = Framing.CHUNKED if length_bytes is None else Framing.LENGTH
        self._left_bytes = length_bytes or 0
        self._is_sending_body = not end_stream

    def _check_unusual(self, head: RequestHead, end_stream: bool) -> None:
        """Nothing that leaves here may be read as two requests, whoever made the head."""
        if head.method not in _USUAL_METHODS and (not TOKEN.fullmatch(head.method) or head.method == b"CONNECT"):
            raise LocalProtocolError(f"method {head.method[:32]!r} cannot be sent")
        if head.authority and head.authority != self._known_authority and not is_authority(head.authority):
            raise LocalProtocolError("authority is not a host with an optional port")
        protocol = head.protocol
        if protocol is not None and switchable(head.method, protocol, has_body=not end_stream) != protocol:
            raise LocalProtocolError("upgrade that cannot be requested, or not with a body")

    def _sent_all(self) -> None:
        """Nothing to do: the response decides what becomes of the connection."""
