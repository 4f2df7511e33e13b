"""One connector's connection at the edge: TLS server, HTTP/2 client, registered by its control stream.

Everything that the connector does against the protocol is a violation: it is recorded, and ends the connection. After
an unregistration, the edge goes on sending requests for a while, and closes once the last one has been answered.
"""

from __future__ import annotations

import ssl
from typing import Protocol

from proxy import h2
from proxy.h2 import frames
from proxy.h2.errors import ProtocolError
from proxy.heads import Fields, RequestHead
from proxy.loop import Buffer, Creditor, Loop, Transport
from proxy.tunnel.registration import Refusal, Registration
from tests.support.edge.behaviour import Behaviour, Hang
from tests.support.edge.control import ControlDesk
from tests.support.edge.heads import CONTROL_STREAM
from tests.support.edge.ledger import Ledger, Record
from tests.support.edge.stream import EdgeStream, StreamOwner

_ANY = 1 << 40
_LIMITS = h2.Limits(
    max_pings=_ANY, max_settings=_ANY, max_empty_data=_ANY, max_window_updates=_ANY, max_ignored=_ANY, max_dribbles=_ANY
)
"""No limits: a connector is not an attacker, and a benchmark is not a flood."""


class Home(Protocol):
    """The edge, as its connections see it."""

    def verdict(self, connection: EdgeConnection, registration: Registration) -> Refusal | None: ...
    def on_registered(self, connection: EdgeConnection) -> None: ...
    def on_leaving(self, connection: EdgeConnection) -> None:
        """The connection gets no more requests."""

    def on_closed(self, connection: EdgeConnection) -> None: ...


class EdgeConnection:
    def __init__(
        self,
        loop: Loop,
        caches: h2.Caches,
        sock: ssl.SSLSocket,
        behaviour: Behaviour,
        ledger: Ledger,
        record: Record,
        home: Home,
    ) -> None:
        self._loop = loop
        self._ledger = ledger
        self._home = home
        self.behaviour = behaviour
        self.record = record
        self.registration: Registration | None = None
        self.is_gone = False
        self._codec = h2.Connection.client(caches, behaviour.h2_settings, _LIMITS)
        self._garbage: list[bytes] = []
        self._streams: dict[int, EdgeStream] = {}
        self._controls: dict[int, EdgeStream] = {}
        """Streams that carry no request."""
        self._control: ControlDesk | None = None
        self._is_mute = behaviour.hang is Hang.BEFORE_HTTP
        self._ends_when_idle: str | None = None
        self._last_call = loop.deadline(self._on_last_call)
        self._transport = Transport(loop, sock, self)

    def start(self) -> None:
        self._transport.start()
        if not self._is_mute:
            if self.behaviour.hang is not Hang.BEFORE_CONTROL:
                self.open_control_stream()
            self._transport.flush_later()

    # -- streams -----------------------------------------------------------------------------------------------------

    @property
    def has_room(self) -> bool:
        return self._codec.openable > 0

    def open(self, head: RequestHead, end_stream: bool, owner: StreamOwner, *, is_counted: bool = True) -> EdgeStream:
        """`is_counted`: the stream carries a request."""
        stream = EdgeStream(self, self._codec.open_stream(head, end_stream), owner)
        self._transport.flush_later()
        if is_counted:
            self._streams[stream.stream_id] = stream
            self._count()
        else:
            self._controls[stream.stream_id] = stream
        return stream

    def open_control_stream(self) -> None:
        """A second control stream is an error of the edge, which tests cause on purpose."""

        def verdict(registration: Registration) -> Refusal | None:
            return self._home.verdict(self, registration)

        desk = ControlDesk(self._loop, self, self.behaviour, self._ledger, self.record, verdict)
        head = RequestHead(b"GET", b"http", self.behaviour.control_authority, b"/", [CONTROL_STREAM])
        desk.stream = self.open(head, False, desk, is_counted=False)
        self._control = self._control or desk

    @property
    def control(self) -> ControlDesk:
        assert self._control is not None, "the control stream was not opened"
        return self._control

    def send_data(self, stream: EdgeStream, data: bytes | memoryview, end_stream: bool, creditor: Creditor) -> int:
        size_bytes = len(data)
        if self.is_gone or not self._codec.is_live(stream.stream_id):
            creditor.release(size_bytes)
            return size_bytes
        if not size_bytes:
            if end_stream:
                self._codec.end_stream(stream.stream_id)
                self._transport.flush_later()
                self._tidy(stream)
            return 0
        taken_bytes = self._codec.send_data(stream.stream_id, data, end_stream)
        if taken_bytes:
            self._transport.owe(creditor, taken_bytes)
        stream.is_waiting = taken_bytes < size_bytes
        self._tidy(stream)
        return taken_bytes

    def send_trailers(self, stream: EdgeStream, fields: Fields) -> None:
        if not self.is_gone and self._codec.is_live(stream.stream_id):
            self._codec.send_trailers(stream.stream_id, fields)
            self._transport.flush_later()
            self._tidy(stream)

    def release(self, stream: EdgeStream, size_bytes: int) -> None:
        if not self.is_gone:
            self._codec.release(stream.stream_id, size_bytes)
            self._transport.flush_later()

    def reset(self, stream: EdgeStream, code: int) -> None:
        if not self.is_gone:
            self._codec.reset_stream(stream.stream_id, code)
            self._transport.flush_later()
            self._forget(stream)

    def _tidy(self, stream: EdgeStream) -> None:
        """Forget a stream that has ended both ways. The codec learns of an end before the stream's owner does."""
        if stream.has_ended and not self._codec.is_live(stream.stream_id):
            self._forget(stream)

    def _forget(self, stream: EdgeStream) -> None:
        if self._streams.pop(stream.stream_id, None) is not None:
            self._count()
        else:
            self._controls.pop(stream.stream_id, None)

    def _count(self) -> None:
        streams = len(self._streams)
        with self._ledger.writing():
            self.record.streams = streams
            self.record.max_streams = max(streams, self.record.max_streams)
        if not streams and self._ends_when_idle is not None:
            why = self._ends_when_idle
            self._loop.call_soon(lambda: self.end(why))

    # -- what comes --------------------------------------------------------------------------------------------------

    def on_data(self, data: bytes) -> None:
        if self._is_mute:
            return
        for event in self._codec.receive(data, self._loop.now_s):
            try:
                self._on_event(event)
            except (AssertionError, ValueError, ProtocolError) as error:
                self._violate(f"{type(error).__name__}: {error}")
            if self.is_gone:
                return
        if self._codec.has_output:
            self._transport.flush_later()

    def _on_event(self, event: h2.Event) -> None:
        if isinstance(event, h2.ConnectionTerminated):
            self._violate(event.reason)
        elif isinstance(event, h2.WindowUpdated):
            self._on_window(event.stream_id)
        elif isinstance(event, h2.PingAcked):
            with self._ledger.writing():
                self.record.pings_acked += 1
        elif isinstance(event, h2.GoawayReceived):
            with self._ledger.writing():
                self.record.goaways.append(event.error_code)
            self._home.on_leaving(self)
        elif not isinstance(event, h2.SettingsChanged):
            self._on_stream_event(event)

    def _on_stream_event(self, event: h2.Event) -> None:
        stream_id: int = getattr(event, "stream_id", 0)
        stream = self._streams.get(stream_id) or self._controls.get(stream_id)
        if stream is None:
            if isinstance(event, h2.DataReceived):
                self._codec.release(event.stream_id, len(event.data))
            return
        owner = stream.owner
        if isinstance(event, h2.DataReceived):
            owner.on_data(event.data, event.end_stream)
            stream.has_ended = event.end_stream
        elif isinstance(event, h2.ResponseReceived):
            owner.on_head(event.head, event.end_stream)
            stream.has_ended = event.end_stream
        elif isinstance(event, h2.InformationalReceived):
            owner.on_interim(event.head)
        elif isinstance(event, h2.TrailersReceived):
            owner.on_trailers(event.fields)
            stream.has_ended = True
        elif isinstance(event, h2.StreamReset):
            if not event.by_peer:
                self._write_violation(f"stream {event.stream_id}: {event.reason}")
            if not stream.has_ended:
                owner.on_lost(f"stream reset with code {event.error_code}: {event.reason}", event.error_code)
            self._forget(stream)
        self._tidy(stream)

    def _on_window(self, stream_id: int) -> None:
        for stream in [*self._streams.values(), *self._controls.values()]:
            if stream.is_waiting and stream_id in (0, stream.stream_id):
                stream.is_waiting = False
                stream.owner.on_writable()

    def _violate(self, what: str) -> None:
        self._write_violation(what)
        self._leave(f"violation: {what}")
        self._transport.close()

    def _write_violation(self, what: str) -> None:
        with self._ledger.writing():
            self._ledger.violations.append(f"connection {self.record.number}: {what}")

    # -- what the control stream says --------------------------------------------------------------------------------

    def on_registered(self, registration: Registration) -> None:
        if self.is_gone:
            return
        self.registration = registration
        with self._ledger.writing():
            self.record.is_registered = self.record.is_in_rotation = True
        self._home.on_registered(self)

    def on_unregistered(self) -> None:
        with self._ledger.writing():
            self.record.is_registered = False
            self.record.is_unregistered = True
        self._last_call.set(self._loop.now_s + self.behaviour.keeps_sending_s)

    def _on_last_call(self) -> None:
        self.end_when_idle("closed after the unregistration")

    # -- what tests ask for ------------------------------------------------------------------------------------------

    def ping(self, payload: bytes) -> None:
        self._codec.ping(payload)
        self._transport.flush_later()

    def goaway(self) -> None:
        """Send GOAWAY and open no more streams."""
        self._home.on_leaving(self)
        self._codec.drain()
        self.send_bytes(frames.encode_goaway(0, h2.ErrorCode.NO_ERROR, b""))

    def ask_to_reconnect(self) -> None:
        """Send GOAWAY and close when idle: the only way to make every connector reconnect."""
        self.goaway()
        self.end_when_idle("asked to reconnect")

    def send_bytes(self, data: bytes) -> None:
        """Send these bytes instead of frames."""
        self._garbage.append(data)
        self._transport.flush_later()

    def stop_reading(self) -> None:
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._transport.resume_reading()

    # -- the transport -----------------------------------------------------------------------------------------------

    def buffers_to_send(self) -> list[Buffer]:
        garbage, self._garbage = self._garbage, []
        return [*self._codec.buffers_to_send(), *garbage] if not self._is_mute else []

    def on_drained(self) -> None:
        """Nothing to do: senders are limited by windows and by their credit."""

    def on_eof(self) -> None:
        self._leave("closed by the connector")
        self._transport.close()

    def on_lost(self, error: OSError) -> None:
        self._leave(f"connection lost: {error}")

    def on_closed(self) -> None:
        """Nothing to do: `finish` is never used."""

    # -- the end -----------------------------------------------------------------------------------------------------

    def end_when_idle(self, why: str) -> None:
        self._home.on_leaving(self)
        self._ends_when_idle = why
        self._count()

    def end(self, why: str) -> None:
        """Close in order."""
        if not self.is_gone:
            self._leave(why)
            self._transport.close()

    def drop(self, why: str) -> None:
        """As if a cable had been cut, but with a reset."""
        if not self.is_gone:
            self._leave(why)
            self._transport.abort()

    def _leave(self, why: str) -> None:
        if self.is_gone:
            return
        self.is_gone = True
        self._last_call.cancel()
        streams = [*self._streams.values(), *self._controls.values()]
        self._streams, self._controls = {}, {}
        with self._ledger.writing():
            self.record.is_registered = self.record.is_in_rotation = False
            self.record.streams = 0
            self.record.closed = why
        self._home.on_closed(self)
        for stream in streams:
            if not stream.has_ended:
                stream.owner.on_lost(why, None)
