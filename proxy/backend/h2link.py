"""A connection to an HTTP/2 backend: many concurrent requests.

It is ready once the backend's SETTINGS have arrived: before that, it is unknown how many requests the backend accepts,
or whether it speaks HTTP/2 at all. After a GOAWAY, or at its maximum age, it finishes running requests and closes. If
it is silent while requests run, a PING is sent; if nothing comes after that, the connection and its requests fail.

A response to HEAD, or with status 204 or 304, is complete with its head once the request is sent, as over HTTP/1.1: a
server that works on before it ends the stream keeps no client waiting. Until the stream has ended, it counts against
the backend's limit of streams.
"""

import socket
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

from proxy.backend.keeping import SILENCE_S, Keeping, Sign
from proxy.backend.request import Request
from proxy.backend.resets import failure_of
from proxy.backend.shared import Shared
from proxy.backend.stream import Failure, Reason
from proxy.backend.uploads import ENOUGH_BYTES, Uploads
from proxy.h2 import (
    Connection,
    ConnectionTerminated,
    DataReceived,
    ErrorCode,
    Event,
    GoawayReceived,
    InformationalReceived,
    LocalProtocolError,
    ResponseReceived,
    Settings,
    SettingsChanged,
    StreamReset,
    TrailersReceived,
    WindowUpdated,
)
from proxy.heads import Fields
from proxy.loop import Buffer, Creditor, Transport

_RESPONSE_PARTS: Final = (DataReceived, ResponseReceived, TrailersReceived, InformationalReceived)
_PING: Final = b"alive?\0\0"
_MAX_WORK: Final = 1_000
"""How much work one connection may cause per turn, in the codec's units: a few milliseconds."""
# Each slow reader holds up to one stream window; the connection's is large, so that a few cannot stall the others.
_SETTINGS: Final = Settings(
    stream_window_bytes=256 * 1024, window_pool_bytes=0, connection_window_bytes=16 * 1024 * 1024
)
MAX_UNREAD_BYTES: Final = 16 * 1024 * 1024
"""Limit of queued heads, PING acknowledgements and credit, which no window bounds: as large as the window for
responses."""

_END_TIMEOUT_S: Final = 300.0
"""How long a stream may take to end after its response is complete: the default of `streamIdleTimeout`, so that a
handler that works on for minutes is not cancelled."""
_MAX_ENDING: Final = 1_000
"""How many streams of one connection may wait to end. No client waits for them, so nothing else limits them if the
backend sets no limit of streams."""


class Home(Protocol):
    """The pool that owns a link."""

    def on_ready(self, link: "H2Link") -> None:
        """The link may carry requests."""

    def on_streams_left(self, link: "H2Link") -> None:
        """The link may carry more requests than before."""

    def on_limit(self, link: "H2Link") -> None:
        """The backend has sent new SETTINGS, which may change how many requests the link may carry."""

    def on_gone(self, link: "H2Link", failure: Failure | None) -> None:
        """The link is closed. Called once, before the failures that follow from it.

        `failure` is set if the link has carried no request, ready or not; waiting requests fail with it.
        """


class H2Link:
    __slots__ = (
        "_codec",
        "_ending",
        "_home",
        "_is_gone",
        "_is_kept",
        "_is_ready",
        "_is_used",
        "_keeping",
        "_last_id",
        "_loop",
        "_name",
        "_on_first_answer",
        "_requests",
        "_sent_id",
        "_shared",
        "_tick",
        "_transport",
        "_uploads",
    )

    def __init__(
        self, shared: Shared, sock: socket.socket, home: Home, name: str, on_first_answer: Callable[[], None] | None
    ) -> None:
        """`name` is for messages: the address in the document and the one that was dialled."""
        loop = self._loop = shared.loop
        self._shared = shared
        self._home = home
        self._name = name
        self._on_first_answer = on_first_answer
        self._codec = Connection.client(shared.h2_caches, _SETTINGS)
        self._requests: dict[int, Request] = {}
        """Running requests, by stream id."""
        self._ending: dict[Request, float] = {}
        """Requests that are complete except for the end of their stream, and since when."""
        self._is_ready = False
        self._is_used = False
        """The link has carried a request."""
        self._is_kept = False
        """The link is not fresh: a request has ended on it, or none was waiting when it became ready."""
        self._is_gone = False
        self._last_id = self._sent_id = 0
        """The last stream that was opened, and the last one whose head was sent."""
        self._keeping = Keeping(loop.now_s)
        self._tick = loop.deadline(self._on_tick)
        self._tick.set(loop.now_s + (shared.connect_timeout_s or SILENCE_S))
        self._transport = Transport(loop, sock, self)
        self._uploads = Uploads(self._codec, self._transport)
        self._transport.reads_rest_before_loss = True
        self._transport.start()
        self._transport.flush_later()

    def __repr__(self) -> str:
        return f"<H2Link {self._name}, {'gone' if self._is_gone else f'{len(self._requests)} requests'}>"

    # -- called by the pool ------------------------------------------------------------------------------------------

    @property
    def has_room(self) -> bool:
        is_young = self._loop.now_s < self._keeping.retire_at_s
        is_clogged = self._transport.is_writing and self._is_clogged
        return self._is_ready and self._codec.openable > 0 and is_young and not self._is_used_up and not is_clogged

    @property
    def _is_used_up(self) -> bool:
        """The send window is used up for good: no running request could still free any of it. Undertow, for one, never
        sends WINDOW_UPDATE for uploads that it has cut off."""
        return not self._requests and self._uploads.are_stopped

    @property
    def _is_clogged(self) -> bool:
        """The backend does not read the heads of earlier requests. No limit of requests would do, since the head of one
        that is cancelled still waits. (All requests of a turn may be begun.)"""
        return self._transport.unowed_bytes > ENOUGH_BYTES

    @property
    def is_crowded(self) -> bool:
        """Slow readers hold so much response data that the receive window may soon be used up."""
        return self._codec.is_crowded

    @property
    def is_stopped(self) -> bool:
        """See `Uploads.are_stopped`."""
        return self._uploads.are_stopped

    @property
    def takes_none(self) -> bool:
        """The backend allows no streams at all: none can be opened although none is open."""
        return self._is_ready and not self._requests and self._codec.openable <= 0

    @property
    def is_idle(self) -> bool:
        return self._is_ready and not self._requests

    def begin(self, request: Request) -> bool:
        """Send a request; check `has_room` first. Returns False if it cannot be sent at all."""
        try:
            stream_id = self._codec.open_stream(request.head, request.end_stream)
        except LocalProtocolError as error:
            what = f"{self._name}: request that cannot be sent: {error}"
            failure = Failure(Reason.UNSENDABLE, what, is_unprocessed=True)
            self._loop.call_soon(partial(request.fail, failure))
            return False
        self._is_used = self._keeping.has_asked = True
        request.stream_id = self._last_id = stream_id
        self._requests[stream_id] = request
        request.link = self
        request.is_open = True
        self._transport.flush_later()
        return True

    def drain(self) -> None:
        """Finish running requests, then close."""
        if self._is_gone:
            return
        self._codec.drain()
        self._close_when_drained()

    def abort(self) -> None:
        """Close immediately, without calling the receivers of running requests."""
        requests = self._take_all()
        self._leave()
        self._transport.abort()
        for request in requests:
            request.link = None
            if not request.has_ended:
                request.end()

    # -- called by requests ------------------------------------------------------------------------------------------

    def send_data(self, request: Request, data: bytes | memoryview, end_stream: bool, creditor: Creditor) -> int:
        try:
            taken_bytes = self._uploads.send(request, data, end_stream, creditor)
        except LocalProtocolError as error:
            creditor.release(len(data))
            self._give_up(request, f"request body that cannot be sent: {error}")
            return len(data)
        if taken_bytes or not data:
            self._keeping.has_asked = True
        if end_stream and taken_bytes == len(data):
            self._on_sent(request)
        return taken_bytes

    def send_trailers(self, request: Request, fields: Fields) -> None:
        try:
            self._codec.send_trailers(request.stream_id, fields)
        except LocalProtocolError as error:
            self._give_up(request, f"request trailers that cannot be sent: {error}")
            return
        self._transport.flush_later()
        self._on_sent(request)

    def _on_sent(self, request: Request) -> None:
        """The request is sent completely. If only that was missing, its receiver, our caller, is called later."""
        if self._codec.is_whole(request.stream_id):
            self._loop.call_soon(partial(self._end_early, request))

    def progress_of(self, request: Request, creditor: Creditor) -> int | None:
        return self._uploads.progress_of(request, creditor)

    def release(self, request: Request, size_bytes: int) -> None:
        if not self._is_gone:
            self._codec.release(request.stream_id, size_bytes)
            if self._codec.has_output:
                self._transport.flush_later()

    def cancel(self, request: Request) -> None:
        if self._requests.pop(request.stream_id, None) is not None:
            self._forget(request)
            self._codec.reset_stream(request.stream_id, ErrorCode.CANCEL)
            self._transport.flush_later()
            self._on_stream_over()

    # -- called by the transport -------------------------------------------------------------------------------------

    def on_data(self, data: bytes) -> None:
        self._keeping.is_heard = True
        codec = self._codec
        for event in codec.receive(data, self._loop.now_s, _MAX_WORK):
            if isinstance(event, _RESPONSE_PARTS):
                self._on_response_part(event)
            else:
                self._on_other(event)
            if self._is_gone:
                return
        transport = self._transport
        if codec.has_output:
            transport.flush_later()
        if transport.queued_bytes > MAX_UNREAD_BYTES and transport.unowed_bytes > MAX_UNREAD_BYTES:
            # `Keeping` detects a backend that does not send either.
            what = f"it keeps sending, but has not read {transport.unowed_bytes} bytes of requests and answers"
            self._break(Reason.PROTOCOL, what)
        elif codec.has_unread:
            transport.pause_reading()
            self._loop.call_soon(self._read_on)
        else:
            transport.resume_reading()

    def _read_on(self) -> None:
        """Decode the next turn's share of the bytes already received."""
        if self._is_gone:
            return
        if self._transport.is_output_ended:
            # The connection has broken, but responses that had arrived are still passed on. Streams opened since the
            # last output was fetched count as unsent, and no others are opened.
            self._last_id = self._sent_id
            self._codec.drain()
        self.on_data(b"")

    def on_eof(self) -> None:
        self._break(Reason.RESET, "connection closed by the backend")

    def on_lost(self, error: OSError) -> None:
        self._break(Reason.RESET, f"connection lost: {error}")

    def buffers_to_send(self) -> list[Buffer]:
        self._sent_id = self._last_id
        return self._codec.buffers_to_send()

    def on_drained(self) -> None:
        """Bodies may be waiting for the socket, and requests because the heads of others did."""
        self._uploads.wake_all()
        if self._is_ready and not self._is_gone:
            self._home.on_streams_left(self)

    def on_closed(self) -> None:
        self._leave()

    # -- events ------------------------------------------------------------------------------------------------------

    def _on_response_part(
        self, event: DataReceived | ResponseReceived | TrailersReceived | InformationalReceived
    ) -> None:
        self._keeping.has_answered = True
        request = self._requests.get(event.stream_id)
        if request is None:
            if isinstance(event, DataReceived):
                self._codec.release(event.stream_id, len(event.data))
            return
        receiver = request.receiver
        try:
            if isinstance(event, DataReceived):
                if event.end_stream:
                    self._complete(request)
                receiver.on_response_data(event.data, event.end_stream)
            elif isinstance(event, ResponseReceived):
                request.is_answered = True
                request.ledger.answered(event.head.status_code)
                if event.end_stream:
                    self._complete(request)
                elif event.is_whole:
                    self._end_before_stream(request)
                receiver.on_response_head(event.head, request.has_ended)
            elif isinstance(event, TrailersReceived):
                self._complete(request)
                receiver.on_response_trailers(event.fields)
            else:
                receiver.on_response_interim(event.head)
        except Exception:
            request.on_bug(receiver)

    def _on_other(self, event: Event) -> None:
        if isinstance(event, StreamReset):
            self._on_reset(event)
        elif isinstance(event, WindowUpdated):
            self._on_window(event.stream_id)
        elif isinstance(event, SettingsChanged):
            self._on_settings()
        elif isinstance(event, GoawayReceived):
            self._on_goaway(event)
        elif isinstance(event, ConnectionTerminated):
            reason = Reason.FIELDS_TOO_LARGE if event.are_fields_too_large else Reason.PROTOCOL
            self._break(reason, event.reason, is_polite=True)

    def _complete(self, request: Request) -> None:
        """The response has ended. `request.link` stays, for credit for the bytes that its receiver still holds."""
        stream_id = request.stream_id
        del self._requests[stream_id]
        self._forget(request)
        if self._codec.is_live(stream_id):
            # Answered before the request was complete (RFC 9113, 8.1).
            self._codec.reset_stream(stream_id, ErrorCode.NO_ERROR)
        self._end(request)
        self._on_stream_over()

    def _end(self, request: Request) -> None:
        if request.has_ended:
            return
        request.end()
        self._is_kept = True
        if self._on_first_answer is not None:
            self._on_first_answer()
            self._on_first_answer = None

    def _end_before_stream(self, request: Request) -> None:
        """Request and response are complete, but the stream has not ended."""
        self._end(request)
        self._ending[request] = self._loop.now_s
        if len(self._ending) > _MAX_ENDING:
            self.cancel(next(iter(self._ending)))

    def _end_early(self, request: Request) -> None:
        """The request was completed after the head of a response that can have no body."""
        if request.has_ended or request.stream_id not in self._requests:
            return
        receiver = request.receiver
        self._end_before_stream(request)
        try:
            receiver.on_response_data(b"", True)
        except Exception:
            request.on_bug(receiver)

    def _on_reset(self, event: StreamReset) -> None:
        request = self._requests.pop(event.stream_id, None)
        if request is None:
            return
        self._forget(request)
        failure = failure_of(
            event,
            request.head,
            self._name,
            is_answered=request.is_answered,
            is_draining=self._codec.is_draining,
        )
        self._on_stream_over()
        request.fail(failure)

    def _on_window(self, stream_id: int) -> None:
        if stream_id:
            request = self._requests.get(stream_id)
            if request is not None:
                self._uploads.wake(request)
        else:
            self._uploads.wake_all()

    def _on_settings(self) -> None:
        if self._is_ready:
            self._home.on_limit(self)
            return
        self._is_ready = True
        self._tick.set(self._loop.now_s + SILENCE_S)
        self._home.on_ready(self)
        self._is_kept = not self._requests

    def _on_goaway(self, event: GoawayReceived) -> None:
        if self._is_used:
            self._close_when_drained()
            return
        # Waiting requests fail; otherwise we would open connections for them as fast as the backend closes them.
        self._transport.close()
        self._leave(Failure(Reason.RESET, f"{self._name}: {event.words}, before any request", is_unprocessed=True))

    # -- the end -----------------------------------------------------------------------------------------------------

    def _on_stream_over(self) -> None:
        """A request has ended, in any way."""
        if not self._requests:
            self._keeping.unused_since_s = self._loop.now_s
        if self._codec.is_draining:
            self._close_when_drained()
        elif not self._is_gone:
            self._home.on_streams_left(self)

    def _close_when_drained(self) -> None:
        if self._codec.is_draining and not self._requests and not self._is_gone:
            self._leave()
            self._codec.terminate()
            self._transport.close()

    def _give_up(self, request: Request, what: str) -> None:
        """Give up a request that we cannot send."""
        self.cancel(request)
        request.fail(Failure(Reason.UNSENDABLE, f"{self._name}: {what}", is_unprocessed=False))

    def _break(self, reason: Reason, what: str, *, is_polite: bool = False) -> None:
        """The connection has failed, and all requests with it. `is_polite`: pending output is sent before the close."""
        if self._is_gone:
            return
        requests = self._take_all()
        if is_polite:
            self._transport.close()
        else:
            self._transport.abort()
        unused = None
        if not self._is_used:
            unused = Failure(reason, f"{self._name}: {what}", is_unprocessed=True, was_connecting=True)
        self._leave(unused)
        for request in requests:
            was_reused = reason is Reason.RESET and self._is_kept and not request.is_answered
            # Opened in this turn, so its head has not been sent.
            is_unsent = request.stream_id > self._sent_id
            request.fail(Failure(reason, f"{self._name}: {what}", is_unprocessed=is_unsent, was_reused=was_reused))

    def _take_all(self) -> list[Request]:
        requests = list(self._requests.values())
        self._requests.clear()
        self._uploads.clear()
        self._ending.clear()
        return requests

    def _forget(self, request: Request) -> None:
        """The request's stream is over."""
        if self._uploads.waiting:
            self._uploads.forget(request)
        if self._ending:
            self._ending.pop(request, None)

    def _on_tick(self) -> None:
        if not self._is_ready:
            self._break(
                Reason.CONNECT_TIMEOUT, f"no HTTP/2 SETTINGS within {self._shared.connect_timeout_s or SILENCE_S:g} s"
            )
            return
        now_s, keeping = self._loop.now_s, self._keeping
        for request in [request for request, since_s in self._ending.items() if now_s >= since_s + _END_TIMEOUT_S]:
            self.cancel(request)
        if self._is_gone:
            return
        idle_timeout_s = self._shared.idle_timeout_s
        sign = keeping.look(now_s, is_used=bool(self._requests), idle_timeout_s=idle_timeout_s)
        if sign is Sign.DEAD:
            self._break(Reason.RESET, f"silent for {2 * SILENCE_S:g} s, without an answer to a PING")
            return
        if sign is Sign.UNUSED or now_s >= keeping.retire_at_s:
            self.drain()
        if sign is Sign.SILENT:
            self._codec.ping(_PING)
            self._transport.flush_later()
        self._tick.set(keeping.next_look_s(now_s, idle_timeout_s))

    def _leave(self, unused: Failure | None = None) -> None:
        """`unused`: why the link has carried no request."""
        if not self._is_gone:
            self._is_gone = True
            self._tick.cancel()
            self._home.on_gone(self, unused)
