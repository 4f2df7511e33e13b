"""A connection to an HTTP/1.1 backend: one request at a time, then kept for the next.

A backend may close an idle connection at any time, even while the next request is on its way: such a failure is marked
`was_reused`. Bytes that arrive while no request is running belong to no response, so the connection is closed at once,
even if they are read only when the next request is waiting to be sent.
Once a connection has carried a request with connection-based authentication (NTLM, Negotiate), it belongs to that
client, because the backend attributes everything on it to that client.
A client's end of a WebSocket is passed on a moment later, since it may have come with a Close frame.
Reading pauses while the exchange holds more than MAX_HELD_BYTES of the response; while the loop `reads_little`, more
than LITTLE_BYTES.
"""

import socket
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

from proxy.backend.keeping import MAX_AGE_S, usable_s
from proxy.backend.request import Request
from proxy.backend.shared import Shared
from proxy.backend.stream import Failure, Reason, Receiver
from proxy.h1 import (
    ClientConnection,
    ConnectionTerminated,
    DataReceived,
    Event,
    InformationalReceived,
    LocalProtocolError,
    ResponseReceived,
    TrailersReceived,
)
from proxy.heads import WEBSOCKET, Fields
from proxy.loop import LITTLE_BYTES, Buffer, Creditor, Transport

MAX_HELD_BYTES: Final = 256 * 1024
_MAX_CHUNKS: Final = 1_000
"""Chunks of a body decoded per turn of the loop: a few milliseconds before other connections get their turn."""
_CLOSE_FRAME_S: Final = 1.0
"""How long a WebSocket's backend has to answer the client's Close frame before it sees the end of the client's side.
The edge's streams, which end in both directions, last twice as long."""


class Home(Protocol):
    """The pool that owns a link."""

    def on_free(self, link: "H1Link") -> None:
        """The link is free for the next request."""

    def on_gone(self, link: "H1Link") -> None:
        """The link carries no more requests. Called once, before the failures that follow from it."""


class H1Link:
    __slots__ = (
        "_codec",
        "_home",
        "_idle",
        "_is_gone",
        "_is_head_sent",
        "_is_paused",
        "_is_sending",
        "_loop",
        "_name",
        "_on_first_answer",
        "_request",
        "_retire_at_s",
        "_shared",
        "_transport",
        "_until_s",
        "client",
        "is_authenticated",
        "is_kept",
    )

    def __init__(
        self, shared: Shared, sock: socket.socket, home: Home, name: str, on_first_answer: Callable[[], None] | None
    ) -> None:
        """`name` is for messages: the address in the document and the one that was dialled."""
        loop = shared.loop
        self._loop = loop
        self._shared = shared
        self._home = home
        self._name = name
        self._on_first_answer = on_first_answer
        self._codec = ClientConnection(shared.h1_caches)
        self._request: Request | None = None
        self._idle = loop.deadline(self._expire)
        self._retire_at_s = self._until_s = loop.now_s + MAX_AGE_S
        """Until when the link may get requests: by its age alone, and by its backend's Keep-Alive timeout as well."""
        self._is_paused = False
        self._is_gone = False
        self._is_head_sent = False
        self._is_sending = False
        """The body of the running request has not ended."""
        self.is_kept = False
        """The link was idle before the current request, whose failure therefore says little about the backend."""
        self.is_authenticated = False
        """A client has authenticated the connection itself, so the link belongs to that client."""
        self.client: object | None = None
        """The client's connection, if that is known to carry requests of one client only."""
        self._transport = Transport(loop, sock, self)
        self._transport.reads_rest_before_loss = True
        self._transport.start()

    def __repr__(self) -> str:
        return f"<H1Link {self._name}, {'gone' if self._is_gone else 'busy' if self._request else 'idle'}>"

    # -- called by the pool ------------------------------------------------------------------------------------------

    def begin(self, request: Request) -> bool:
        """Send a request over this free link. False: it cannot be sent at all, and the link is still free."""
        try:
            self._codec.send_request(request.head, request.end_stream)
        except LocalProtocolError as error:
            failure = Failure(
                Reason.UNSENDABLE, f"{self._name}: request that cannot be sent: {error}", is_unprocessed=True
            )
            self._loop.call_soon(partial(request.fail, failure))
            return False
        if self._codec.is_authenticated:
            self.is_authenticated = True
            self.client = request.receiver.client_connection
        if self._loop.reads_little:
            self._transport.read_little()
        self._request = request
        self._is_head_sent = False
        self._is_sending = not request.end_stream
        request.link = self
        request.is_open = True
        self._transport.flush_later()
        return True

    def rest(self) -> None:
        """Keep the idle link for the idle timeout, but not beyond its maximum age or its backend's timeout."""
        self.is_kept = True
        idle_timeout_s, last_s = self._shared.idle_timeout_s, self._until_s
        until_s = self._loop.now_s + idle_timeout_s if idle_timeout_s else last_s
        self._idle.set(until_s if until_s < last_s else last_s)

    def close(self) -> None:
        """Close the free link, which is no longer wanted."""
        self._leave()
        self._transport.close()

    def drain(self) -> None:
        """Finish the running request, or what is being delivered of a cancelled one, then close."""
        if self._request is not None:
            self._retire_at_s = self._until_s = self._loop.now_s
        elif not self._transport.is_finishing:
            self.close()

    def abort(self) -> None:
        """Close immediately, without calling the receiver of a running request."""
        request, self._request = self._request, None
        if request is not None:
            request.link = None
            if not request.has_ended:
                request.end()
        self._leave()
        self._transport.abort()

    # -- called by the request ---------------------------------------------------------------------------------------

    def send_data(self, request: Request, data: bytes | memoryview, end_stream: bool, creditor: Creditor) -> int:
        try:
            self._codec.send_data(data, end_stream)
        except LocalProtocolError as error:
            creditor.release(len(data))
            self._break(Reason.UNSENDABLE, f"request body that cannot be sent: {error}")
            return len(data)
        if end_stream:
            self._is_sending = False
            if self._codec.is_switched:
                self._end_output(request)
        if len(data):
            self._transport.owe(creditor, len(data))
        else:
            self._transport.flush_later()
        return len(data)

    def _end_output(self, request: Request) -> None:
        """The client has ended its side of an upgraded connection."""
        if request.head.protocol == WEBSOCKET:
            # Chromium ends its HTTP/2 stream with its Close frame. The backend answers that and ends the connection;
            # if it saw the end, TLS could not bring the answer, and nginx would not forward it.
            later = self._loop.deadline(partial(self._pass_on_end, request))
            later.set(self._loop.now_s + _CLOSE_FRAME_S)
        elif self._transport.can_half_close:
            self._transport.half_close()
        else:
            # Later: the caller is still handing over the last bytes.
            self._loop.call_soon(partial(self._hang_up, request))

    def _pass_on_end(self, request: Request) -> None:
        if not self._transport.can_half_close:
            self._hang_up(request)
        elif self._request is request:
            self._transport.half_close()

    def _hang_up(self, request: Request) -> None:
        """End both directions, as nginx and Envoy do: TLS cannot end one alone."""
        if self._request is request:
            self._request = None
            receiver = request.receiver
            request.end()
            request.link = None
            self._transport.finish()
            try:
                receiver.on_response_data(b"", True)
            except Exception:
                request.on_bug(receiver)

    def send_trailers(self, request: Request, fields: Fields) -> None:
        try:
            self._codec.send_trailers(fields)
        except LocalProtocolError as error:
            self._break(Reason.UNSENDABLE, f"request trailers that cannot be sent: {error}")
            return
        self._is_sending = False
        if self._codec.is_switched:
            self._end_output(request)
        self._transport.flush_later()

    def progress_of(self, request: Request, creditor: Creditor) -> int | None:  # noqa: ARG002
        return self._transport.progress_of(creditor)

    def release(self, request: Request, size_bytes: int) -> None:
        request.held_bytes -= size_bytes
        if self._is_paused and request.held_bytes <= self._most_held_bytes // 2 and not self._codec.has_unread:
            self._is_paused = False
            self._transport.resume_reading()

    def cancel(self, request: Request) -> None:
        """Close the connection: HTTP/1.1 has no other way to cancel a request.

        Every backend notices a reset, even one that only writes, but a reset discards data that is still in flight.
        Some clients send a whole request and leave, as ffmpeg does with each segment: such a request is delivered
        before the connection is closed.
        """
        if self._request is not request:
            return
        self._request = None
        is_whole = self._is_head_sent and not self._is_sending and not self._codec.is_switched
        if not is_whole or request.is_answered or not self._transport.is_delivering:
            self._leave()
            self._transport.abort()
            return
        self._transport.set_user_timeout()
        if request.end_stream or self._transport.queued_bytes > MAX_HELD_BYTES:
            self.close()
            return
        # If the socket were closed now, anything that the backend sends, even TLS session tickets, would cause a reset.
        # The link counts as a connection until everything has been delivered.
        self._idle.cancel()
        self._transport.finish()

    # -- called by the transport -------------------------------------------------------------------------------------

    def on_data(self, data: bytes) -> None:
        request = self._request
        if request is None:
            self.abort()
            return
        if not self._is_head_sent:
            # The request was queued in this turn, so these bytes cannot be its response.
            self._break(Reason.RESET, "bytes that belong to no response")
            return
        self._pass_on(request, self._codec.receive(data, _MAX_CHUNKS))
        if self._codec.has_unread and self._request is request:
            if not self._is_paused:
                self._is_paused = True
                self._transport.pause_reading()
            self._loop.call_soon(partial(self._read_on, request))

    def _read_on(self, request: Request) -> None:
        """Decode the next turn's share of the bytes already received."""
        if self._request is request:
            self.on_data(b"")
            self.release(request, 0)

    def on_eof(self) -> None:
        request = self._request
        if request is None:
            self.close()
            return
        events = self._codec.receive_eof(is_cut_off=self._transport.is_cut_off)
        if events and isinstance(events[-1], ConnectionTerminated):
            self._break(Reason.RESET, events[-1].reason)
        else:
            self._pass_on(request, events)

    def on_lost(self, error: OSError) -> None:
        self._break(Reason.RESET, f"connection lost: {error}")

    def buffers_to_send(self) -> list[Buffer]:
        self._is_head_sent = True
        return self._codec.buffers_to_send()

    def on_drained(self) -> None:
        """Nothing to do: credit limits senders."""

    def on_closed(self) -> None:
        self._leave()

    # -- responses ---------------------------------------------------------------------------------------------------

    def _pass_on(self, request: Request, events: list[Event]) -> None:
        receiver = request.receiver
        try:
            if len(events) != 2 or not self._pass_on_whole(request, receiver, events[0], events[1]):
                self._pass_on_events(request, receiver, events)
        except Exception:
            request.on_bug(receiver)

    def _pass_on_events(self, request: Request, receiver: Receiver, events: list[Event]) -> None:
        for event in events:
            if isinstance(event, DataReceived):
                data = event.data
                request.held_bytes += len(data)
                if event.end_stream:
                    self._complete(request)
                    receiver.on_response_data(data, True)
                    return
                receiver.on_response_data(data, False)
            elif isinstance(event, ResponseReceived):
                request.is_answered = True
                request.ledger.answered(event.head.status_code)
                if self._codec.timeout_s is not None:
                    self._heed(self._codec.timeout_s)
                if event.end_stream:
                    self._complete(request)
                    receiver.on_response_head(event.head, True)
                    return
                receiver.on_response_head(event.head, False)
            elif isinstance(event, TrailersReceived):
                self._complete(request)
                receiver.on_response_trailers(event.fields)
                return
            elif isinstance(event, InformationalReceived):
                receiver.on_response_interim(event.head)
            elif isinstance(event, ConnectionTerminated):
                self._break(Reason.FIELDS_TOO_LARGE if event.are_fields_too_large else Reason.PROTOCOL, event.reason)
                return
            if self._request is not request:
                # Cancelled by its receiver.
                return
        if request.held_bytes > self._most_held_bytes and not self._is_paused:
            self._is_paused = True
            self._transport.pause_reading()

    @property
    def _most_held_bytes(self) -> int:
        return LITTLE_BYTES if self._loop.reads_little else MAX_HELD_BYTES

    def _pass_on_whole(self, request: Request, receiver: Receiver, first: Event, last: Event) -> bool:
        """Pass on the common response, whose head and entire body came at once. Returns False if this is not one."""
        if not (
            isinstance(first, ResponseReceived) and isinstance(last, DataReceived) and last.end_stream and last.data
        ):
            return False
        request.is_answered = True
        request.ledger.answered(first.head.status_code)
        if self._codec.timeout_s is not None:
            self._heed(self._codec.timeout_s)
        self._complete(request)
        receiver.on_response(first.head, last.data)
        return True

    def _heed(self, timeout_s: int) -> None:
        """The timeout starts at the head: if the body is read slowly, the backend may have sent its end long ago."""
        until_s = self._loop.now_s + usable_s(timeout_s)
        self._until_s = until_s if until_s < self._retire_at_s else self._retire_at_s

    def _complete(self, request: Request) -> None:
        """The response has ended. If more bytes came after it, which belong to no response, the codec has ended too."""
        self._request = None
        request.end()
        request.link = None
        self.is_kept = True
        if self._on_first_answer is not None:
            self._on_first_answer()
            self._on_first_answer = None
        if self._is_paused:
            self._is_paused = False
            self._transport.resume_reading()
            if self._transport.is_output_ended:
                self._until_s = self._loop.now_s
        if self._codec.is_reusable and self._loop.now_s < self._until_s:
            self._home.on_free(self)
        elif self._is_sending:
            # The backend does not want the rest; sending it would only provoke a reset.
            self._leave()
            self._transport.abort()
        else:
            self.close()

    def _break(self, reason: Reason, what: str) -> None:
        if self._is_gone:
            return
        request, self._request = self._request, None
        self._leave()
        self._transport.abort()
        if request is not None:
            is_unanswered = not self._codec.is_response_begun
            request.fail(
                Failure(
                    reason,
                    f"{self._name}: {what}",
                    is_unprocessed=not self._is_head_sent,
                    was_reused=reason is Reason.RESET and is_unanswered and self.is_kept,
                )
            )

    def _expire(self) -> None:
        if self._request is None:
            self.close()

    def _leave(self) -> None:
        if not self._is_gone:
            self._is_gone = True
            self._idle.cancel()
            self._home.on_gone(self)
