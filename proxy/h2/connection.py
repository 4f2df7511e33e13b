"""One HTTP/2 connection, either role, without I/O (RFC 9113): dispatches frames, and handles those of the connection.

    events = connection.receive(data, now_s)      what the peer did, in order
    connection.send_headers(...) and the others   what we answer (see `sending`)
    connection.buffers_to_send()                  output for the transport

`receive` never raises for anything the peer sends: stream errors reset the stream, connection errors queue a GOAWAY and
end with a `ConnectionTerminated` event. No sockets, clocks, threads or logs: `now_s` is any monotonic clock, used only
for the limits of `abuse`; windows get the time from their line (`carried_by`). One thread at a time; connections of one
thread share a `Caches`. Rules about heads are in `fields`, those about windows, streams and settings in the modules of
these names.
"""

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Final

from proxy.h2 import events, frames
from proxy.h2.abuse import Flood, Limits
from proxy.h2.errors import ErrorCode, FieldsTooLargeError, RemoteProtocolError, protocol_error
from proxy.h2.events import Event
from proxy.h2.fieldcache import BlockDecoder, FieldCache, make_cache
from proxy.h2.fieldlines import BlockEncoder, LineCache
from proxy.h2.framereader import Frame, FrameReader
from proxy.h2.receiving import UNLIMITED, Receiving
from proxy.h2.sending import DRAIN_PING
from proxy.h2.settings import Settings
from proxy.h2.streams import Gone
from proxy.h2.windows import widened

# Connection, flags, stream identifier, payload: bytes, or a view for DATA.
Handler = Callable[["Connection", int, int, Any], None]


class Caches:
    """Shared by the connections of one thread: decoded fields and encoded lines."""

    __slots__ = ("fields", "lines")

    def __init__(self) -> None:
        self.fields: FieldCache = make_cache()
        self.lines = LineCache()


class Connection(Receiving):
    """Create one with `server` or `client`, send its output at once, then feed `receive`."""

    def __init__(self, settings: Settings, limits: Limits, caches: Caches, *, is_server: bool) -> None:
        decoder = BlockDecoder(caches.fields, settings.max_header_list_bytes)
        super().__init__(settings, limits, BlockEncoder(caches.lines), decoder, is_server=is_server)
        self._reader = FrameReader(settings.max_frame_bytes, expects_preface=is_server)
        self._unread: deque[Iterator[Frame]] = deque()
        self._has_peer_settings = False
        self._last_goaway_id = frames.MAX_STREAM_ID

    @classmethod
    def server(cls, caches: Caches, settings: Settings | None = None, limits: Limits | None = None) -> "Connection":
        """The side that accepts streams: a direct listener, and the connector's side of a tunnel."""
        return cls(settings or Settings(), limits or Limits(), caches, is_server=True)

    @classmethod
    def client(cls, caches: Caches, settings: Settings | None = None, limits: Limits | None = None) -> "Connection":
        """The side that opens streams: the proxy towards a backend."""
        return cls(settings or Settings(), limits or Limits(), caches, is_server=False)

    def __repr__(self) -> str:
        role = "server" if self.is_server else "client"
        state = "terminated" if self.is_terminated else "draining" if self.is_draining else "open"
        return f"<h2 {role}, {state}, {len(self._streams)} streams, last {self._table.last_id}>"

    # -- receiving ---------------------------------------------------------------------------------------------------

    def receive(self, data: bytes, now_s: float, max_work: int = UNLIMITED) -> list[Event]:
        """`max_work` is for callers with other connections to serve: after that many fields and pieces of bodies the
        rest of `data` waits for the next call, and until then `has_unread` is true.
        """
        if self.is_terminated:
            return []
        received: list[Event] = []
        self._events = received
        self._guard.renew(now_s)
        self._work_left = max_work
        self._unread.append(self._reader.frames(data))
        try:
            self._handle_frames()
        except RemoteProtocolError as error:
            self._unread.clear()
            self.terminate(error.code, error.reason.encode())
            are_fields_too_large = isinstance(error, FieldsTooLargeError)
            received.append(events.ConnectionTerminated(error.code, error.reason, are_fields_too_large))
        # Events keep a whole read alive, which must not stay here until more arrives.
        self._events = []
        return received

    @property
    def has_unread(self) -> bool:
        """Frames from earlier calls are left for the next `receive`, which may be called without new data."""
        return bool(self._unread)

    def _handle_frames(self) -> None:
        handlers, unread = _HANDLERS, self._unread
        while unread:
            # Frames are cut lazily, so those of the next call queue up behind these.
            for kind, flags, stream_id, payload in unread[0]:
                try:
                    if not self._has_peer_settings or self._assembly is not None:
                        self._on_restricted(kind, flags, stream_id, payload)
                    elif kind <= frames.CONTINUATION:
                        handlers[kind](self, flags, stream_id, payload)
                    else:
                        self._guard.count(Flood.IGNORED)
                except RemoteProtocolError as error:
                    if not error.stream_id:
                        raise
                    self._on_stream_error(error)
                if self._work_left <= 0:
                    return
            unread.popleft()

    def _on_restricted(self, kind: int, flags: int, stream_id: int, payload: Any) -> None:
        """Handle a frame where only one type is allowed: at the start, and inside a field block."""
        if self._assembly is None:
            if kind != frames.SETTINGS or flags & frames.ACK:
                raise protocol_error(f"first frame of type {kind} with flags {flags:#x}, want SETTINGS")
            self._on_settings(flags, stream_id, payload)
            return
        assembly = self._assembly
        block = assembly.add(kind, flags, stream_id, payload)
        if block is not None:
            self._assembly = None
            self._on_block(stream_id, block, assembly.end_stream, assembly.flaw)

    # -- streams and connection --------------------------------------------------------------------------------------

    def _on_settings(self, flags: int, stream_id: int, payload: bytes) -> None:
        if stream_id:
            raise protocol_error(f"SETTINGS on stream {stream_id}, want 0")
        if flags & frames.ACK:
            self._on_settings_ack(payload)
            return
        self._guard.count(Flood.SETTINGS)
        is_first = not self._has_peer_settings
        growth = self.peer.apply(frames.decode_settings(payload), from_server=not self.is_server, is_first=is_first)
        self._has_peer_settings = True
        self._output.append(frames.encode_frame(frames.SETTINGS, frames.ACK, 0))
        self._events.append(events.SettingsChanged())
        if growth:
            self._grow_send_windows(growth)

    def _on_settings_ack(self, payload: bytes) -> None:
        if payload:
            raise frames.wrong_size("SETTINGS acknowledgement", len(payload), "0")
        if self._is_acknowledged:
            self._guard.count(Flood.IGNORED)
            return
        self._is_acknowledged = True
        self._decoder.settings_acknowledged()
        for stream in self._streams.values():
            if stream.receive_window is not None:
                stream.receive_window.available -= self._leeway_bytes

    def _grow_send_windows(self, growth: int) -> None:
        least = self._least_bytes
        if self._is_window_tiny and least > 1:
            self._least_bytes = 1
            self._events.append(events.WindowUpdated(0))
        for stream in self._streams.values():
            before = stream.send_window
            try:
                stream.send_window = widened(before, growth, stream.stream_id)
            except RemoteProtocolError as error:
                raise RemoteProtocolError(error.code, error.reason) from None
            if before < least and stream.send_window > 0 and stream.is_local_open:
                self._events.append(events.WindowUpdated(stream.stream_id))

    def _on_ping(self, flags: int, stream_id: int, payload: bytes) -> None:
        if stream_id:
            raise protocol_error(f"PING on stream {stream_id}, want 0")
        if len(payload) != 8:
            raise frames.wrong_size("PING", len(payload), "8")
        if not flags & frames.ACK:
            self._guard.count(Flood.PING)
            self._output.append(frames.encode_frame(frames.PING, frames.ACK, 0, payload))
            return
        if self._awaited_pongs:
            self._awaited_pongs -= 1
        else:
            self._guard.count(Flood.IGNORED)
        if payload != DRAIN_PING:
            self._events.append(events.PingAcked(payload))
        elif self._awaits_drain_ack:
            self._finish_drain()

    def _on_goaway(self, _flags: int, stream_id: int, payload: bytes) -> None:
        if stream_id:
            raise protocol_error(f"GOAWAY on stream {stream_id}, want 0")
        last_stream_id, code, debug_data = frames.decode_goaway(payload)
        self._guard.count(Flood.IGNORED)
        if last_stream_id > self._last_goaway_id:
            raise protocol_error(f"GOAWAY with last stream {last_stream_id} after one with {self._last_goaway_id}")
        self._last_goaway_id = last_stream_id
        self._events.append(events.GoawayReceived(last_stream_id, code, debug_data))
        if self.is_server:
            return
        self.is_draining = True
        for refused_id in [live_id for live_id in self._streams if live_id > last_stream_id]:
            self._release_to_connection(self._table.reset(refused_id, Gone.RESET_BY_PEER))
            reason = f"not processed: GOAWAY with last stream {last_stream_id}"
            self._events.append(events.StreamReset(refused_id, ErrorCode.REFUSED_STREAM, True, reason))

    def _on_priority(self, _flags: int, stream_id: int, payload: bytes) -> None:
        """Ignored but for its errors (5.3.2)."""
        # RST_STREAM cannot name an idle stream.
        error_stream_id = 0 if self._table.why_gone(stream_id) is Gone.IDLE else stream_id
        if not stream_id:
            raise protocol_error("PRIORITY on stream 0")
        if len(payload) != 5:
            raise frames.wrong_size("PRIORITY", len(payload), "5", error_stream_id)
        if frames.decode_dependency(payload) == stream_id:
            raise protocol_error("stream depends on itself", error_stream_id)
        self._guard.count(Flood.IGNORED)

    def _on_push_promise(self, _flags: int, _stream_id: int, _payload: bytes) -> None:
        raise protocol_error("PUSH_PROMISE, which we disabled or a client may not send")


_HANDLERS: Final[tuple[Handler, ...]] = (
    Connection._on_data,
    Connection._on_headers,
    Connection._on_priority,
    Connection._on_rst_stream,
    Connection._on_settings,
    Connection._on_push_promise,
    Connection._on_ping,
    Connection._on_goaway,
    Connection._on_window_update,
    Connection._on_continuation,
)
"""By frame type. Unbound methods: a connection that held its own bound methods would keep itself alive."""
