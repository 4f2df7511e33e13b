"""A client's HTTP/1.1 connection: requests one after another, each an exchange, answered in order.

Pipelined requests wait inside the codec, which says when to stop reading. Reading also stops while the exchange cannot
pass on the body. A client that closes its side while it is owed a response counts as gone (as in nginx and Envoy), and
the exchange is told; between requests, closing ends the connection. A connection that begins with the HTTP/2 preface
continues as an `H2Connection`.

There is one deadline at a time: first until the first head is complete; later until the next request begins, then until
its head is complete. While an exchange runs, it does its own timing.
"""

import time
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from daemonkit.logs import get_logger
from proxy import h1
from proxy.doors.h1stream import H1Stream
from proxy.doors.member import BUSY, UNWATCHED, Keeper
from proxy.doors.misdirected import Misdirection
from proxy.doors.refusals import MISDIRECTED, refusal
from proxy.doors.terms import Terms
from proxy.exchange.client import Arrival
from proxy.loop import LITTLE_BYTES, Buffer, Loop, Transport
from proxy.stats import RefusalCause

log = get_logger(__name__)

PAUSE_BYTES: Final = 256 * 1024
"""If the exchange holds more of the request than this, reading stops; it is resumed at half of it. While the loop
`reads_little`, LITTLE_BYTES."""
MAX_QUEUED_BYTES: Final = 256 * 1024
"""If more output than this waits for the socket, no further request is taken until all of it has been sent."""
MAX_CHUNKS: Final = 1_000
"""How many chunks of a body are read in a turn: some milliseconds."""
DRAIN_S: Final = 1.0
"""How long a draining door waits for the next request of an active client, which is answered with `connection: close`.
If we closed at once, that request might be under way, and many clients do not repeat one."""
FIRST_S: Final = 5.0
"""The same for the first request on a new connection, which hardly any client repeats."""
RECENT_S: Final = 5.0
"""A client that has sent no request for this long is not active."""

UpgradeToH2 = Callable[["H1Connection", Transport, bytes], None]
"""Continue in HTTP/2, with what was received so far."""


class H1Connection:
    def __init__(
        self,
        loop: Loop,
        terms: Terms,
        arrival: Arrival,
        keeper: Keeper,
        upgrade: UpgradeToH2,
        misdirection: Misdirection | None = None,
    ) -> None:
        """Call `start` next. `arrival.protocol` is HTTP/1.1."""
        self._loop = loop
        self.terms = terms
        self.arrival = arrival
        self._keeper = keeper
        self._upgrade = upgrade
        self.misdirection = misdirection
        self._codec = h1.ServerConnection(terms.caches.of_h1, arrival.scheme, terms.h1_limits)
        self._transport: Transport
        self._stream: H1Stream | None = None
        """The stream of the request that is being answered."""
        self._deadline = loop.deadline(self._on_deadline)
        self._is_head_timed = True
        """The deadline is for a head to be complete, not for the next request to begin."""
        self.is_draining = False
        self._is_paused = False
        self._is_clogged = False
        """Answers wait for a client that does not read them."""
        self._acknowledged_bytes = 0
        """While clogged: how much the client had taken when the deadline was set."""
        self._reads_on = False
        self._is_ending = False
        self.idle_since_s = loop.now_s

    def start(self, transport: Transport) -> None:
        """`transport` belongs to this connection and has not been started."""
        self._transport = transport
        self._deadline.set(self._loop.now_s + self.terms.header_timeout_s)
        transport.start()

    def use(self, terms: Terms) -> None:
        """Keep to these terms from now on. A deadline that is running stays."""
        self.terms = terms
        self._codec.limit_heads(terms.h1_limits)

    # -- what the client sends ---------------------------------------------------------------------------------------

    def on_data(self, data: bytes) -> None:
        if self._stream is not None or not self._transport.is_output_ended:
            self._take(self._codec.receive(data, MAX_CHUNKS))
        # Otherwise the client sent this before it left: nobody waits for the answer to another request.

    def _read_on(self) -> None:
        """Read the next turn's share of what the codec holds."""
        self._reads_on = False
        if not self._is_ending:
            self._take(self._codec.receive(b"", MAX_CHUNKS))
            self._resume()

    def on_eof(self) -> None:
        stream = self._stream
        if stream is not None and not stream.is_switched:
            transport = self._transport
            has_all = self._codec.is_length_reached and not (transport.is_sending or transport.is_output_ended)
            self.abort("" if has_all else "closed by the client")
        elif stream is not None or not self._transport.is_output_ended:
            self._take(self._codec.receive_eof())

    def _take(self, events: Sequence[h1.Event]) -> None:
        preface: h1.Http2PrefaceReceived | None = None
        try:
            for event in events:
                if isinstance(event, h1.RequestReceived):
                    self._begin(event)
                elif isinstance(event, h1.DataReceived):
                    self._on_data(event)
                elif isinstance(event, h1.TrailersReceived):
                    self._on_trailers(event)
                elif isinstance(event, h1.ConnectionTerminated):
                    self._refuse(event.status_code, event.reason, "protocol")
                elif isinstance(event, h1.Http2PrefaceReceived):
                    preface = event
        except Exception:
            # Not left to the loop, since it is not the only caller: a draining door has other connections to tell.
            log.exception("bug in the handling of a request")
            if not self._transport.is_closed:
                self.abort("given up after a bug in this proxy")
        if preface is not None:
            self._is_ending = True
            self._deadline.cancel()
            self._upgrade(self, self._transport, preface.data)
        if not self._is_ending:
            self._watch_input()

    def _watch_input(self) -> None:
        """After input was taken: decide whether to read on, to wait, or to close."""
        codec = self._codec
        if codec.has_unread and not self._reads_on:
            self._reads_on = True
            self._loop.call_soon(self._read_on)
        if self._stream is not None:
            if not codec.wants_data:
                self._pause()
        elif codec.should_close:
            self._finish()
        elif self._transport.queued_bytes > MAX_QUEUED_BYTES:
            self._wait_for_reader()
        elif not self._is_head_timed and not codec.is_idle:
            self._is_head_timed = True
            self._deadline.set(self._loop.now_s + self.terms.header_timeout_s)

    def _wait_for_reader(self) -> None:
        """Between two requests: read nothing until the client has read its answers."""
        self._is_clogged = True
        self._acknowledged_bytes = self._transport.acknowledged_bytes
        self._pause()

    def _take_pipelined(self) -> None:
        is_wanted = self._stream is None or self._stream.is_switched
        if is_wanted and self._codec.has_pipelined and not self._is_ending and not self._is_clogged:
            self._take(self._codec.receive(b"", MAX_CHUNKS))

    def _begin(self, event: h1.RequestReceived) -> None:
        head = event.head
        self._deadline.clear()
        self._is_head_timed = False
        self.idle_since_s = BUSY
        arrival = self.arrival
        if event.is_http_10:
            arrival = msgspec.structs.replace(arrival, protocol="HTTP/1.0")
        stream = self._stream = H1Stream(self, self._codec, self._transport, arrival, event.is_http_10)
        if self.is_draining:
            self._codec.drain()
        if len(head.path) > self.terms.max_uri_bytes:
            limit_bytes = self.terms.max_uri_bytes
            self._refuse(414, f"target of {len(head.path)} bytes, want at most {limit_bytes}", "protocol")
            return
        if self.misdirection is not None and self.misdirection.is_misdirected(head.authority):
            self._refuse(421, MISDIRECTED, "misdirected")
            return
        exchange = self.terms.begin(stream, head, event.end_stream)
        if self._stream is stream:
            stream.exchange = exchange

    def _on_data(self, event: h1.DataReceived) -> None:
        stream = self._stream
        if stream is None or stream.exchange is None or stream.is_request_dropped:
            return
        stream.unreleased_bytes += len(event.data)
        stream.exchange.on_request_data(event.data, event.end_stream)
        if stream.unreleased_bytes > self._pause_bytes and not stream.is_over:
            self._pause()

    def _on_trailers(self, event: h1.TrailersReceived) -> None:
        stream = self._stream
        if stream is not None and stream.exchange is not None and not stream.is_request_dropped:
            stream.exchange.on_request_trailers(event.fields)

    # -- calls of the stream -----------------------------------------------------------------------------------------

    def on_response_end(self) -> None:
        stream = self._stream
        if stream is None:
            return
        self._stream = None
        is_switched = stream.is_switched
        self._let_go(stream)
        if is_switched or self._codec.should_close:
            self._finish()
            return
        if self._transport.queued_bytes > MAX_QUEUED_BYTES:
            self._wait_for_reader()
        else:
            self._resume()
        self.idle_since_s = self._loop.now_s
        self._await_next()
        if self._codec.has_pipelined:
            # Not now: the exchange that has just ended is still in a call.
            self._loop.call_soon(self._take_pipelined)

    def _await_next(self) -> None:
        # While draining: the last response had begun before, so its head does not tell the client to close.
        self._deadline.set(self._loop.now_s + (DRAIN_S if self.is_draining else self.terms.idle_timeout_s))

    def on_switched(self) -> None:
        if self._codec.has_pipelined:
            self._loop.call_soon(self._take_pipelined)

    def on_incomplete(self) -> None:
        """The response cannot be completed. Its queued part is still sent if the framing shows that something is
        missing; otherwise the connection is reset."""
        stream = self._stream
        if stream is None:
            return
        self._stream = None
        is_framed = stream.has_answered and not stream.is_switched and not stream.is_http_10
        self._let_go(stream)
        if is_framed:
            self._finish()
        else:
            self._transport.abort()
            self._leave()

    def on_released(self) -> None:
        if self._is_paused:
            self._resume()

    # -- reading -----------------------------------------------------------------------------------------------------

    def _pause(self) -> None:
        if not self._is_paused:
            self._is_paused = True
            self._transport.pause_reading()

    def _resume(self) -> None:
        """Read on, unless there is still a reason not to."""
        stream = self._stream
        is_full = (
            stream is not None and not stream.is_request_dropped and stream.unreleased_bytes > self._pause_bytes // 2
        )
        if self._is_paused and not is_full and not self._is_clogged and self._codec.wants_data:
            self._is_paused = False
            self._transport.resume_reading()

    @property
    def _pause_bytes(self) -> int:
        return LITTLE_BYTES if self._loop.reads_little else PAUSE_BYTES

    # -- the transport -----------------------------------------------------------------------------------------------

    def buffers_to_send(self) -> list[Buffer]:
        return self._codec.buffers_to_send()

    def on_drained(self) -> None:
        if self._is_clogged:
            self._is_clogged = False
            if self._stream is None and self._codec.is_idle:
                self._await_next()
            self._resume()
            self._take_pipelined()

    def on_lost(self, error: OSError) -> None:
        if self._is_head_timed and error.errno in UNWATCHED:
            self._keeper.refused("descriptors", f"connection cannot be watched: {error.strerror}")
        self._lose(f"connection lost: {error.strerror or error}")
        self._leave()

    def on_closed(self) -> None:
        self._leave()

    # -- the end -----------------------------------------------------------------------------------------------------

    def drain(self) -> None:
        self.is_draining = True
        if self._stream is None and not self._is_ending:
            # A request that has already arrived in the socket is answered.
            self._transport.on_readable()
        if self._is_ending or (self._stream is not None and self._stream.has_answered):
            # The response's head did not tell the client: `on_response_end` waits for another request, for DRAIN_S.
            return
        now_s = self._loop.now_s
        if now_s - self.idle_since_s < RECENT_S and self._codec.is_idle:
            # `is_idle` is false once a head has begun, so a timed head here is the first one.
            is_new = self._is_head_timed
            self._deadline.set(min(now_s + FIRST_S, self._deadline.at_s) if is_new else now_s + DRAIN_S)
            return
        self._codec.drain()
        if self._codec.should_close:
            self._finish()

    @property
    def is_sending(self) -> bool:
        return self._transport.is_sending

    def evict(self) -> None:
        self._transport.close()
        self._leave()

    def abort(self, reason: str) -> None:
        self._lose(reason)
        self._transport.abort()
        self._leave()

    def _on_deadline(self) -> None:
        if self._stream is not None or self._is_ending:
            return
        if self._is_clogged and self._transport.acknowledged_bytes > self._acknowledged_bytes:
            # It reads, if slowly, and cannot be expected to ask for more before it has read all.
            self._acknowledged_bytes = self._transport.acknowledged_bytes
            self._await_next()
            return
        if self._codec.is_idle:
            self._finish()
            return
        # Makes the codec accept an answer to an incomplete head.
        self._codec.receive_eof()
        self._refuse(408, f"no complete request head within {self.terms.header_timeout_s:g} s", "header_timeout")

    def _refuse(self, status_code: int, detail: str, cause: RefusalCause) -> None:
        """Send an error response, if none has begun and the client would understand it, and close."""
        stream, self._stream = self._stream, None
        has_answered = stream is not None and stream.has_answered
        if stream is not None:
            self._tell_gone(stream, detail)
        self._keeper.refused(cause, detail)
        if not has_answered and status_code != h1.NOT_HTTP:
            self._codec.drain()
            head, body = refusal(status_code, detail, time.time())
            self._codec.send_headers(head)
            self._codec.send_data(body, True)
        self._finish()

    def _lose(self, reason: str) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            self._tell_gone(stream, reason)

    def _tell_gone(self, stream: H1Stream, reason: str) -> None:
        exchange = stream.exchange
        self._let_go(stream)
        if exchange is None:
            return
        try:
            exchange.on_client_gone(reason)
        except Exception:
            # The connection still has to be closed and removed from the counts.
            log.exception("bug in the end of an exchange")

    @staticmethod
    def _let_go(stream: H1Stream) -> None:
        stream.is_over = True
        stream.exchange = None

    def _finish(self) -> None:
        """Send what is queued and close."""
        if not self._is_ending:
            self._is_ending = True
            self.idle_since_s = BUSY
            self._deadline.cancel()
            self._transport.finish()

    def _leave(self) -> None:
        self._is_ending = True
        self.idle_since_s = BUSY
        self._deadline.cancel()
        self._keeper.forget(self)
