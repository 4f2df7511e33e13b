"""A client's HTTP/2 connection, on a listener or from the tunnel's edge: each stream is an exchange.

Streams are in one dictionary from their head to the end of their response, or until the client or the exchange resets
them. A stream that could not send all its data waits: for its own window, until an event says that it is open, or for
its turn, if the connection's window or the socket takes less than all streams have (`turns`). Floods end the
connection; the codec decides what a flood is.

Deadlines: for the client's first SETTINGS, and for the next stream to begin if there is none. Draining is announced
first; streams are refused later (RFC 9113, 6.8), or at once on an outdated connection. If a client does not respond to
that, its connection is closed once its streams have ended.
"""

import time
from typing import ClassVar, Final

from daemonkit.logs import get_logger
from proxy import h2
from proxy.doors.h2stream import Dialect, H2Stream
from proxy.doors.member import BUSY, UNWATCHED, Keeper
from proxy.doors.misdirected import Misdirection
from proxy.doors.refusals import MISDIRECTED, OUTDATED, refusal, silent_refusal
from proxy.doors.rests import Rests
from proxy.doors.terms import Terms
from proxy.doors.turns import Turns
from proxy.exchange.client import Arrival
from proxy.h2 import ErrorCode
from proxy.heads import RequestHead
from proxy.loop import Buffer, Loop, Transport
from proxy.stats import RefusalCause

log = get_logger(__name__)

MAX_QUEUED_BYTES: Final = 1024 * 1024
"""If more than this waits for the socket, bodies included (`turns`), nothing is read until all of it has been sent."""
MAX_WORK: Final = 1_000
"""Fields and pieces of bodies processed in a turn: some milliseconds, so that other clients need not wait."""
DRAIN_S: Final = 5.0
"""How long a client without streams may take to answer the announcement that the connection drains."""


class H2Connection:
    peer: ClassVar[str] = "client"
    """What log lines call the peer."""

    def __init__(
        self,
        loop: Loop,
        terms: Terms,
        arrival: Arrival,
        keeper: Keeper,
        codec: h2.Connection | None = None,
        misdirection: Misdirection | None = None,
        dialect: Dialect | None = None,
    ) -> None:
        """Call `start` next. `codec`: a fresh one, if it needs other settings than the terms have."""
        self._loop = loop
        self.terms = terms
        self.arrival = arrival
        self._keeper = keeper
        self.misdirection = misdirection
        self.dialect = dialect
        self._codec = codec or h2.Connection.server(terms.caches.of_h2, terms.h2_settings)
        self._transport: Transport
        self.turns: Turns
        self._streams: dict[int, H2Stream] = {}
        self._deadline = loop.deadline(self._on_deadline)
        self._has_settings = False
        self._answered: list[int] = []
        """Streams answered before the end of their request, until the answer is fetched to be sent."""
        self._rests: Rests | None = None
        """Created when needed: most clients complete their requests."""
        self._reads_on = False
        """`_read_on` will be called."""
        self._is_draining = False
        self._is_ending = False
        self.idle_since_s = loop.now_s

    @property
    def stream_count(self) -> int:
        return len(self._streams)

    def start(self, transport: Transport, received: bytes = b"", *, is_started: bool = False) -> None:
        """`received` arrived before; `is_started`: the transport is reading already."""
        self._transport = transport
        self.turns = Turns(self._loop, self._codec, transport, self._wake)
        self._deadline.set(self._loop.now_s + self.terms.header_timeout_s)
        transport.flush_later()
        if received:
            self.on_data(received)
        if not is_started and not transport.is_closed:
            transport.start()

    def use(self, terms: Terms) -> None:
        """Keep to these terms from now on. A deadline that is running stays."""
        self.terms = terms
        self._codec.limit_field_lists(terms.h2_settings.max_header_list_bytes)
        self._transport.flush_later()

    # -- what the client sends ---------------------------------------------------------------------------------------

    def on_data(self, data: bytes) -> None:
        codec = self._codec
        for event in codec.receive(data, self._loop.now_s, MAX_WORK):
            try:
                self._on_event(event)
            except Exception:
                log.exception("bug in the handling of a stream", event=type(event).__name__)
                self._on_bug(getattr(event, "stream_id", 0))
        if codec.has_output:
            self._transport.flush_later()
        if self._is_draining and codec.is_drained:
            self._finish()
        elif self._transport.queued_bytes > MAX_QUEUED_BYTES:
            # A client does not read its answers, but sends request after request, or frames that demand an answer.
            self._transport.pause_reading()
        elif codec.has_unread:
            self._transport.pause_reading()
            if not self._reads_on:
                self._reads_on = True
                self._loop.call_soon(self._read_on)
        else:
            self._transport.resume_reading()

    def _read_on(self) -> None:
        """Read the next turn's share of what the codec holds."""
        self._reads_on = False
        if not self._is_ending:
            self.on_data(b"")

    def on_eof(self) -> None:
        self._lose(f"closed by the {self.peer}")
        self._finish()

    def _on_event(self, event: h2.Event) -> None:
        if isinstance(event, h2.RequestReceived):
            self._begin(event)
        elif isinstance(event, h2.DataReceived):
            self._on_data(event)
        elif isinstance(event, h2.WindowUpdated):
            self._on_window_opened(event.stream_id)
        elif isinstance(event, h2.TrailersReceived):
            stream = self._streams.get(event.stream_id)
            if stream is None and self._rests is not None:
                self._rests.forget(event.stream_id)
            elif stream is not None and stream.exchange is not None and not stream.is_request_dropped:
                stream.exchange.on_request_trailers(event.fields)
        elif isinstance(event, h2.StreamReset):
            how = event.reason if not event.by_peer else f"reset by the {self.peer}, code {event.error_code}"
            self._lose_stream(event.stream_id, how)
        elif isinstance(event, h2.RequestTooLarge):
            detail = f"header fields of {event.size_bytes} bytes, want at most {event.limit_bytes}"
            self._refuse(event.stream_id, event.method, 431, detail, "protocol")
        elif isinstance(event, h2.RequestRejected):
            if event.error_code != ErrorCode.REFUSED_STREAM:
                self._keeper.refused("protocol", event.reason)
        elif isinstance(event, h2.ConnectionTerminated):
            self.on_broken(event.reason)
        elif isinstance(event, h2.SettingsChanged) and not self._has_settings:
            self._has_settings = True
            if not self._streams:
                self._on_streams_gone()
        else:
            self.on_other(event)

    def on_broken(self, reason: str) -> None:
        """The peer has broken the protocol; the codec has queued a GOAWAY."""
        self._keeper.refused("protocol", reason)
        self._lose(reason)
        self._finish()

    def on_other(self, event: h2.Event) -> None:
        """Other events, such as PING acknowledgements and GOAWAY, which matter only for the edge; see `EdgeHttp`."""

    def may_lack_host(self, head: RequestHead) -> bool:  # noqa: ARG002
        """Whether it is the peer's own and no request for a host; see `EdgeHttp`."""
        return False

    def _begin(self, event: h2.RequestReceived) -> None:
        head, stream_id, has_body = event.head, event.stream_id, not event.end_stream
        if self._transport.is_output_ended or not self._codec.is_live(stream_id):
            # Nobody waits for an answer: the client is gone, or has already reset the stream.
            return
        if len(head.path) > self.terms.max_uri_bytes:
            detail = f"target of {len(head.path)} bytes, want at most {self.terms.max_uri_bytes}"
            self._refuse(stream_id, head.method, 414, detail, "protocol")
            return
        if not head.authority and not self.may_lack_host(head):  # RFC 9113, 8.3.1
            self._refuse(stream_id, head.method, 400, "neither :authority nor Host, or an empty one", "protocol")
            return
        if self.misdirection is not None and self.misdirection.is_misdirected(head.authority):
            if self.misdirection.is_outdated:
                # Most clients send the request again over another connection, whereas those of gRPC, for one, take 421
                # for the outcome of the call.
                self._keeper.refused("misdirected", OUTDATED)
                self._codec.refuse_from(stream_id)
                self.drain()
            else:
                self._refuse(stream_id, head.method, 421, MISDIRECTED, "misdirected")
            return
        streams = self._streams
        if not streams:
            self._deadline.clear()
            self.idle_since_s = BUSY
        stream = streams[stream_id] = H2Stream(self, self._codec, self._transport, stream_id, self.arrival, has_body)
        exchange = self.terms.begin(stream, head, event.end_stream and head.protocol is None)
        if stream_id in streams:
            stream.exchange = exchange
            if event.end_stream and head.protocol is not None:
                # A WebSocket has no body: this is the end of what the client says in the other protocol.
                exchange.on_request_data(b"", True)

    def _on_data(self, event: h2.DataReceived) -> None:
        stream = self._streams.get(event.stream_id)
        if stream is None or stream.exchange is None or stream.is_request_dropped:
            size_bytes = len(event.data)
            self._codec.release(event.stream_id, size_bytes)
            if stream is None and self._rests is not None:
                self._rests.took(event.stream_id, size_bytes, event.end_stream)
        else:
            stream.exchange.on_request_data(event.data, event.end_stream)

    # -- windows -----------------------------------------------------------------------------------------------------

    def on_window_closed(self, stream: H2Stream) -> None:
        stream.is_waiting = True
        codec, stream_id = self._codec, stream.stream_id
        if stream_id in self._streams and (not codec.has_send_window or not codec.awaits_credit(stream_id)):
            self.turns.wait(stream)

    def _on_window_opened(self, stream_id: int) -> None:
        if not stream_id:
            self.turns.on_window_opened()
            return
        stream = self._streams.get(stream_id)
        # A stream that also waits for its turn is woken when that comes.
        if stream is not None and stream_id not in self.turns.waiting:
            self._wake(stream)

    def _wake(self, stream: H2Stream) -> None:
        if not stream.is_waiting or stream.exchange is None:
            return
        stream.is_waiting = False
        try:
            stream.exchange.on_client_writable()
        except Exception:
            # Streams behind it still have to be woken: no further event would come for them.
            log.exception("bug in the handling of a stream", event="WindowUpdated")
            self._on_bug(stream.stream_id)

    # -- calls of a stream -------------------------------------------------------------------------------------------

    def on_response_end(self, stream: H2Stream) -> None:
        stream_id = stream.stream_id
        if self._forget(stream_id) is None:
            return
        stream.exchange = None
        if stream.has_body:
            if self._codec.is_live(stream_id):
                self._answered.append(stream_id)
            else:
                self._codec.abandon(stream_id)
        if not self._streams:
            self._on_streams_gone()

    def _stop_requests(self) -> None:
        """Handle requests that were answered early: the client need not send the rest (RFC 9113, 8.1).

        Clients get a while to send it anyway, and only then are stopped by a reset. The edge does not need that, and on
        a draining or ending connection there is no time for it: those are reset at once. Either way the reset is not
        sent together with the answer: curl 7.88, for one, loses an answer that comes in one TLS record with a reset.
        """
        answered, self._answered = self._answered, []
        codec = self._codec
        is_told_at_once = self._is_draining or self._is_ending or self.arrival.is_edge
        for stream_id in answered:
            if not codec.is_live(stream_id):
                codec.abandon(stream_id)
            elif is_told_at_once:
                codec.reset_stream(stream_id, ErrorCode.NO_ERROR)
            else:
                codec.abandon(stream_id)
                if self._rests is None:
                    self._rests = Rests(self._loop, codec, self._on_stopped)
                self._rests.begin(stream_id)
        self._on_stopped()

    def _on_stopped(self) -> None:
        """Requests that were answered early have ended or were reset."""
        if self._codec.has_output:
            self._transport.flush_later()
        if self._is_draining and self._codec.is_drained:
            self._finish()

    def on_incomplete(self, stream: H2Stream, error_code: ErrorCode) -> None:
        if self._forget(stream.stream_id) is None:
            return
        stream.exchange = None
        self._codec.reset_stream(stream.stream_id, error_code)
        self._transport.flush_later()
        if not self._streams:
            self._on_streams_gone()

    def _refuse(self, stream_id: int, method: bytes | None, status_code: int, detail: str, cause: RefusalCause) -> None:
        """Answer a stream that has no exchange. The text is left out if the window is too small for it."""
        self._keeper.refused(cause, detail)
        head, body = refusal(status_code, detail, time.time())
        codec = self._codec
        if method == b"HEAD":
            body = b""
        elif codec.sendable(stream_id) < len(body):
            head, body = silent_refusal(status_code, time.time()), b""
        if self.dialect is not None:
            head = self.dialect.encode(head)
        codec.send_headers(stream_id, head, not body)
        if body:
            codec.send_data(stream_id, body, True)
        if codec.is_live(stream_id):
            self._answered.append(stream_id)

    def _lose_stream(self, stream_id: int, reason: str) -> None:
        stream = self._forget(stream_id)
        if stream is None:
            if self._rests is not None:
                self._rests.forget(stream_id)
            return
        self._tell_gone(stream, reason)
        if not self._streams:
            self._on_streams_gone()

    @staticmethod
    def _tell_gone(stream: H2Stream, reason: str) -> None:
        exchange, stream.exchange = stream.exchange, None
        if exchange is None:
            return
        try:
            exchange.on_client_gone(reason)
        except Exception:
            # If the connection is lost, the exchanges of its other streams have to be told too.
            log.exception("bug in the end of an exchange")

    def _on_bug(self, stream_id: int) -> None:
        """A bug of ours ends one stream, but no others on the connection."""
        if stream_id and self._codec.is_live(stream_id):
            self._codec.reset_stream(stream_id, ErrorCode.INTERNAL_ERROR)
        self._lose_stream(stream_id, "given up after a bug in this proxy")

    def _forget(self, stream_id: int) -> H2Stream | None:
        if self.turns.waiting:
            self.turns.forget(stream_id)
        return self._streams.pop(stream_id, None)

    # -- the transport -----------------------------------------------------------------------------------------------

    def buffers_to_send(self) -> list[Buffer]:
        self.turns.on_fetched()
        buffers = self._codec.buffers_to_send()
        if self._answered:
            self._stop_requests()
        return buffers

    def on_drained(self) -> None:
        self.turns.on_drained()
        if not self._reads_on:
            self._read_on()

    def on_lost(self, error: OSError) -> None:
        if not self._has_settings and error.errno in UNWATCHED:
            self._keeper.refused("descriptors", f"connection cannot be watched: {error.strerror}")
        self._lose(f"connection lost: {error.strerror or error}")
        self._leave()

    def on_closed(self) -> None:
        self._leave()

    # -- the end -----------------------------------------------------------------------------------------------------

    def drain(self) -> None:
        if self._is_draining or self._is_ending:
            return
        self._is_draining = True
        self._codec.drain()
        self._transport.flush_later()
        if not self._streams:
            self._on_streams_gone()

    def close(self, reason: str, code: ErrorCode = ErrorCode.NO_ERROR) -> None:
        """End every stream, send what is queued and a GOAWAY, and close."""
        self._lose(reason)
        self._codec.terminate(code, reason.encode())
        self._finish()

    @property
    def is_sending(self) -> bool:
        return self._transport.is_sending

    def evict(self) -> None:
        self._codec.terminate()
        self._transport.close()
        self._leave()

    def abort(self, reason: str) -> None:
        self._lose(reason)
        self._transport.abort()
        self._leave()

    def _on_streams_gone(self) -> None:
        if self._is_ending:
            return
        self.turns.on_streams_gone()
        now_s = self._loop.now_s
        if self._is_draining:
            if self._codec.is_drained:
                self._finish()
            else:
                self._deadline.set(now_s + DRAIN_S)
        else:
            self.idle_since_s = now_s
            self._deadline.set(now_s + self.terms.idle_timeout_s)

    def _on_deadline(self) -> None:
        if self._streams or self._is_ending:
            return
        if self._has_settings and not self._is_draining:
            self.drain()
            return
        if not self._has_settings:
            self._keeper.refused("header_timeout", f"no SETTINGS within {self.terms.header_timeout_s:g} s")
        self._codec.terminate()
        self._finish()

    def _lose(self, reason: str) -> None:
        """End every stream, and tell the exchanges."""
        streams, self._streams = self._streams, {}
        self.turns.on_streams_gone()
        for stream in streams.values():
            self._tell_gone(stream, reason)

    def _finish(self) -> None:
        """Send what is queued and close."""
        if not self._is_ending:
            self._is_ending = True
            self.idle_since_s = BUSY
            self._end_waits()
            self._transport.finish()

    def _leave(self) -> None:
        self._is_ending = True
        self.idle_since_s = BUSY
        self._end_waits()
        self.turns.close()
        self._keeper.forget(self)

    def _end_waits(self) -> None:
        self._deadline.cancel()
        if self._rests is not None:
            self._rests.close()
