"""HTTP/2 with the edge: a door's connection with higher limits, narrower windows, and PINGs to its peer."""

from typing import Final, Protocol

from proxy import h2
from proxy.doors.h2connection import H2Connection
from proxy.doors.h2stream import Dialect
from proxy.doors.member import Keeper
from proxy.doors.terms import Terms
from proxy.exchange.client import Arrival
from proxy.h2.abuse import Limits
from proxy.heads import RequestHead
from proxy.loop import Loop
from proxy.routing import TUNNEL_HTTPS
from proxy.tunnel.failures import FailureCause
from proxy.tunnel.heartbeat import Heartbeat
from proxy.tunnel.streams import WEBSOCKET_UPGRADE, StreamKind, kind_of

_MAX_STREAMS: Final = 10_000
_STREAM_WINDOW_BYTES: Final = 16 << 10
"""How much of a body a stalled stream may hold; its socket and the kernel's memory for it cost more."""
_POOL_BYTES: Final = 16 << 20
SETTINGS: Final = h2.Settings(
    max_concurrent_streams=_MAX_STREAMS,
    stream_window_bytes=_STREAM_WINDOW_BYTES,
    # 40 MB/s at a round trip of 50 ms; larger windows cost more CPU if the backend is slower than the edge.
    max_stream_window_bytes=2 << 20,
    window_pool_bytes=_POOL_BYTES,
    connection_window_bytes=_MAX_STREAMS * _STREAM_WINDOW_BYTES + _POOL_BYTES,
    # Large, since each frame of an upload costs about twenty of our calls.
    max_frame_bytes=65_536,
    # As the provider's own connector; heads with Access tokens and cookies are large.
    max_header_list_bytes=1_048_896,
    is_extended_connect_enabled=False,
    handshake=WEBSOCKET_UPGRADE,
)
LIMITS: Final = Limits(
    max_resets=20_000,
    max_stream_errors=50_000,
    max_empty_data=20_000,
    max_window_updates=100_000,
    max_ignored=50_000,
    max_dribbles=50_000,
    max_continuations=80,
    max_blocks_before_ack=10_000,
)
"""Thousands of clients are behind this one peer."""
_NOBODY_YET: Final = Arrival(
    door=TUNNEL_HTTPS, scheme=b"https", address="", protocol="HTTP/2", is_trusted=False, is_edge=True
)
"""A placeholder: each stream gets an arrival of its own."""


class EdgeKeeper(Keeper, Protocol):
    """The edge connection whose HTTP/2 this is."""

    def on_pong(self) -> None:
        """The edge has answered the last PING."""

    def on_goaway(self, words: str) -> None:
        """The edge opens no more streams; `words` is for the log."""

    def on_connection_end(self, cause: FailureCause, error: str) -> None:
        """The edge has ended or broken the connection. The streams end after this call."""


class EdgeHttp(H2Connection):
    peer = "edge"

    def __init__(
        self,
        loop: Loop,
        terms: Terms,
        keeper: EdgeKeeper,
        dialect: Dialect,
        heartbeat: Heartbeat,
    ) -> None:
        """`heartbeat` tells the codec how far away the edge is."""
        codec = h2.Connection.server(terms.caches.of_h2, SETTINGS, LIMITS)
        codec.carried_by(_Line(loop, heartbeat))
        super().__init__(loop, terms, _NOBODY_YET, keeper, codec, dialect=dialect)
        self._edge_keeper = keeper
        self._pings = 0

    def use(self, terms: Terms) -> None:
        """The limits of the codec are ours alone (`SETTINGS`), so the edge is told nothing."""
        self.terms = terms

    def ping(self) -> None:
        self._pings += 1
        self._codec.ping(self._pings.to_bytes(8, "big"))
        self._transport.flush_later()

    def on_eof(self) -> None:
        self._edge_keeper.on_connection_end(FailureCause.LOST, "the edge closed the connection")
        super().on_eof()

    def on_lost(self, error: OSError) -> None:
        self._edge_keeper.on_connection_end(FailureCause.LOST, f"connection lost: {error.strerror or error}")
        super().on_lost(error)

    def on_broken(self, reason: str) -> None:
        self._edge_keeper.on_connection_end(FailureCause.MALFORMED, f"the edge broke HTTP/2: {reason}")
        super().on_broken(reason)

    def may_lack_host(self, head: RequestHead) -> bool:
        return kind_of(head.fields) in (StreamKind.CONTROL, StreamKind.CONFIGURATION)

    def on_other(self, event: h2.Event) -> None:
        if isinstance(event, h2.PingAcked):
            if event.payload == self._pings.to_bytes(8, "big"):
                self._edge_keeper.on_pong()
        elif isinstance(event, h2.GoawayReceived):
            self._edge_keeper.on_goaway(event.words)


class _Line:
    """The line to the edge, for the codec. PINGs measure its round-trip time: the kernel's may be that to a NAT on this
    host."""

    __slots__ = ("_heartbeat", "_loop")

    def __init__(self, loop: Loop, heartbeat: Heartbeat) -> None:
        self._loop = loop
        self._heartbeat = heartbeat

    @property
    def now_s(self) -> float:
        return self._loop.now_s

    @property
    def round_trip_s(self) -> float:
        return self._heartbeat.round_trip_s
