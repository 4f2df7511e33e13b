"""One connection to the edge, from its dial to its end: it registers, then serves what the edge sends.

    dialling -> opening (the edge is to open its control stream) -> registering -> registered -> leaving -> gone

Silence ends it at any step: an edge may fail to register us in time, or to answer a PING (`heartbeat`). Nothing but
PINGs shows that a connection without requests is dead. When leaving, it unregisters: the edge may still send requests
for a moment, then closes; if it does not, we do. `Ended` is reported as soon as the connection is unregistered, so that
another one can take its place, however long its last requests run.
"""

import contextlib
import math
import ssl
from enum import Enum, auto
from functools import partial
from typing import Final, NamedTuple, Protocol

import msgspec

from daemonkit.logs import get_logger
from proxy.doors.member import Member
from proxy.doors.terms import Terms
from proxy.exchange.client import ClientExchange, ClientStream
from proxy.h2 import ErrorCode
from proxy.heads import RequestHead
from proxy.loop import Loop, Transport
from proxy.stats import EdgeStats
from proxy.tunnel.control import Control
from proxy.tunnel.controlevents import (
    ControlEvent,
    ControlStreamBroken,
    LocalConfigurationAnswered,
    Registered,
    RegistrationFailed,
    Unregistered,
)
from proxy.tunnel.dialling import Dialling
from proxy.tunnel.edgehttp import EdgeHttp
from proxy.tunnel.ending import Ending
from proxy.tunnel.failures import FailureCause
from proxy.tunnel.heartbeat import PING_PERIOD_S, Heartbeat
from proxy.tunnel.identity import ClientInfo, connection_options
from proxy.tunnel.orders import Dial, EdgeReport, Reached
from proxy.tunnel.orders import Registered as RegisteredReport
from proxy.tunnel.packetsize import BlackHole
from proxy.tunnel.pushes import Acknowledge, Push, Room
from proxy.tunnel.refused import REFUSED
from proxy.tunnel.registration import ConnectionDetails, Registration
from proxy.tunnel.responses import FAILURE_HEAD, ResponseHeads
from proxy.tunnel.streams import Entrance, StreamKind, is_bodiless
from proxy.tunnel.token import TunnelToken
from proxy.tunnel.wirebytes import WireBytes

log = get_logger(__name__)
quiet_log = log.every(60.0)

RPC_TIMEOUT_S: Final = 5.0
_MAX_SHOWN: Final = 256
LINGER_S: Final = 5.0
"""How long an unregistered connection stays open without requests."""


class Phase(Enum):
    DIALLING = auto()
    OPENING = auto()
    REGISTERING = auto()
    REGISTERED = auto()
    LEAVING = auto()
    GONE = auto()


class Means(NamedTuple):
    """What a `Dial` is carried out with: its `DialMeans`, decoded."""

    token: TunnelToken
    client: ClientInfo
    context: ssl.SSLContext
    source: str


class Home(Protocol):
    """What all edge connections of a worker share."""

    def terms(self) -> Terms: ...
    def begin(self, client: ClientStream, head: RequestHead, end_stream: bool) -> ClientExchange: ...
    @property
    def heads(self) -> ResponseHeads: ...
    def report(self, report: EdgeReport) -> None: ...
    def forget(self, link: "Link") -> None: ...
    @property
    def acknowledge(self) -> Acknowledge: ...


class Link:
    """One connection to the edge; also the `EdgeKeeper` of its HTTP/2 connection."""

    def __init__(self, loop: Loop, order: Dial, means: Means, home: Home, stats: EdgeStats) -> None:
        self._loop = loop
        self._order = order
        self._means = means
        self._home = home
        self._stats = stats
        self._phase = Phase.DIALLING
        self._dialling: Dialling | None = Dialling(
            loop,
            order.address,
            means.context,
            self._on_connected,
            self._on_failed,
            source=means.source,
            is_small=order.is_small,
        )
        self._deadline = loop.deadline(self._on_deadline)
        self._entrance = Entrance(order.address.ip)
        self._begin_exchange = home.begin
        self._local_address = ""
        self._http: EdgeHttp | None = None
        self._control: Control | None = None
        self._push_room = Room()
        self._ending = Ending()
        self._is_withdrawn = False
        """To be unregistered as soon as it is registered."""
        self._left_at_s = 0.0
        self._active_at_s = 0.0
        self._heartbeat: Heartbeat | None = None
        self._wire: WireBytes | None = None

    @property
    def number(self) -> int:
        return self._order.number

    def start(self) -> None:
        if self._dialling is not None:
            self._dialling.start()

    # -- the connection ----------------------------------------------------------------------------------------------

    def _on_failed(self, cause: FailureCause, error: str) -> None:
        self._ending.note(cause, error)
        self._end()

    def _on_connected(self, sock: ssl.SSLSocket) -> None:
        self._dialling = None
        if not self._order.registers:
            with contextlib.suppress(OSError, ValueError):
                sock.unwrap()
            sock.close()
            self._phase = Phase.GONE
            self._deadline.cancel()
            self._home.report(Reached(self.number))
            self._home.forget(self)
            return
        self._local_address = sock.getsockname()[0]
        self._wire, self._heartbeat = WireBytes(sock), Heartbeat(WireBytes(sock))
        self._enter(Phase.OPENING, RPC_TIMEOUT_S)
        http = self._http = EdgeHttp(self._loop, self._own_terms(), self, self._home.heads, self._heartbeat)
        transport = Transport(self._loop, sock, http)
        transport.before_close = self._count_bytes
        http.start(transport)

    def renew_terms(self) -> None:
        """The document has changed."""
        if self._http is not None:
            self._http.use(self._own_terms())

    def _own_terms(self) -> Terms:
        return msgspec.structs.replace(
            self._home.terms(), begin=self.begin, header_timeout_s=math.inf, idle_timeout_s=math.inf
        )

    def _enter(self, phase: Phase, wait_s: float) -> None:
        self._phase = phase
        self._deadline.set(self._loop.now_s + wait_s)

    def forget(self, member: Member) -> None:  # noqa: ARG002 - there is one
        self._end()

    def refused(self, cause: str, detail: str) -> None:
        """Nothing to count: requests come from clients of the edge. If the edge itself breaks HTTP/2,
        `on_connection_end` is called."""

    # -- streams -----------------------------------------------------------------------------------------------------

    def begin(self, stream: ClientStream, head: RequestHead, end_stream: bool) -> ClientExchange:
        """Replaces `Services.begin` on this connection."""
        kind, stream.arrival = self._entrance.admit(head)
        if kind is StreamKind.HTTP:
            self._stats.requests += 1
            if not end_stream and is_bodiless(head):
                stream.stop_request()
                end_stream = True
            return self._begin_exchange(stream, head, end_stream)
        if kind is StreamKind.WEBSOCKET:
            self._stats.requests += 1
            # Its end, if that has come already, is passed on as that of the client's data.
            return self._begin_exchange(stream, head, False)
        if kind is StreamKind.CONTROL:
            return self._on_control_stream(stream)
        if kind is StreamKind.CONFIGURATION:
            push = Push(stream, self._home.acknowledge, self._push_room)
            if end_stream:
                push.take()
            return push
        quiet_log.warning(
            "stream of a private network refused", destination=head.authority.decode("latin-1")[:_MAX_SHOWN]
        )
        stream.send_headers(FAILURE_HEAD, True)
        return REFUSED

    def _on_control_stream(self, stream: ClientStream) -> ClientExchange:
        if self._phase is Phase.LEAVING:
            # Left open, it would count as a running request, for which the connection waits.
            stream.reset(is_cancelled=True)
            return REFUSED
        if self._control is not None:
            # Later: it ends all streams, which must not happen within the codec's events.
            self._loop.call_soon(partial(self._break, "the edge opened a second control stream"))
            return REFUSED
        options = connection_options(self._means.client, self._local_address, self._order.previous_attempts)
        registration = Registration(self._means.token, self._order.conn_index, options)
        self._control = Control(stream, registration, self._on_event, self._on_control_gone)
        self._enter(Phase.REGISTERING, RPC_TIMEOUT_S)
        self._control.register()
        return self._control

    # -- the control stream ------------------------------------------------------------------------------------------

    def _on_event(self, event: ControlEvent) -> None:
        match event:
            case Registered(details):
                self._on_registered(details)
            case RegistrationFailed():
                self._ending.retry_after_s = event.retry_after_s
                self._loop.call_soon(partial(self._leave, event.cause, event.error))
            case LocalConfigurationAnswered(complaint):
                if complaint is not None:
                    log.warning("the edge did not accept our local configuration", error=complaint)
            case Unregistered(complaint):
                if complaint is not None:
                    log.warning("edge connection was not unregistered cleanly", error=complaint)
                if self._control is not None:
                    self._control.close()
                self._report_end()
            case ControlStreamBroken(reason):
                self._loop.call_soon(partial(self._break, reason))

    def _on_registered(self, details: ConnectionDetails) -> None:
        self._ending.note_registered(self._loop.now_s)
        self._enter(Phase.REGISTERED, PING_PERIOD_S)
        self._ping()
        self._home.report(RegisteredReport(self.number, str(details.connection_id), details.location))
        if self._is_withdrawn:
            self.withdraw()
        describes = not details.is_remotely_managed and self._order.conn_index == 0
        # The report may have caused an immediate withdrawal.
        if describes and self._control is not None and self._control.is_registered:
            self._control.describe()

    def _on_control_gone(self, reason: str) -> None:
        """The control stream is gone: alone, or with its connection, whose reason is already noted."""
        if not self._ending.has_reason:
            self._loop.call_soon(partial(self._break, f"the control stream was lost: {reason}"))

    def _break(self, reason: str) -> None:
        if self._phase not in (Phase.GONE, Phase.LEAVING):
            self._leave(FailureCause.MALFORMED, reason, ErrorCode.PROTOCOL_ERROR)

    # -- leaving -----------------------------------------------------------------------------------------------------

    def withdraw(self) -> None:
        """Unregister, finish running requests, then close. Closes at once if the edge has not been asked to register.

        If it has been, its answer is awaited: it may have accepted, and sends requests from then on.
        """
        if self._phase is Phase.REGISTERED and self._control is not None and self._control.is_registered:
            self._left_at_s = self._active_at_s = self._loop.now_s
            self._enter(Phase.LEAVING, 1.0)
            self._control.unregister()
        elif self._phase is Phase.REGISTERING:
            self._is_withdrawn = True
        elif self._phase not in (Phase.LEAVING, Phase.GONE):
            self.abandon("given up before it was registered")

    def abandon(self, why: str) -> None:
        """Close at once, whatever is running."""
        self._ending.note(FailureCause.LOST, why)
        if self._http is not None:
            self._http.abort(why)
            return
        if self._dialling is not None:
            self._dialling.cancel()
        self._end()

    def on_goaway(self, words: str) -> None:
        reason = f"the edge takes this connection out of service ({words})"
        if self._phase is Phase.REGISTERED:
            self._ending.note(FailureCause.LOST, reason)
            self.withdraw()
        elif self._phase in (Phase.OPENING, Phase.REGISTERING):
            # It would register without ever getting a request. Later, not within the codec's events.
            self._loop.call_soon(partial(self._leave, FailureCause.LOST, reason))

    def _leave(self, cause: FailureCause, error: str, code: ErrorCode = ErrorCode.NO_ERROR) -> None:
        """Send the last messages of the control stream, and close."""
        if self._phase is Phase.GONE or self._http is None:
            return
        self._ending.note(cause, error)
        self._deadline.clear()
        if self._control is not None:
            self._control.close()
        self._http.close(error, code)

    def on_connection_end(self, cause: FailureCause, error: str) -> None:
        self._ending.note(
            cause, f"{error} before it opened its control stream" if self._phase is Phase.OPENING else error
        )

    def _end(self) -> None:
        if self._phase is Phase.GONE:
            return
        self._phase = Phase.GONE
        self._deadline.cancel()
        self._report_end()
        self._home.forget(self)
        # These refer to this link; without them it is freed at once, not only by the garbage collector.
        self._dialling = self._http = self._control = None

    def _report_end(self) -> None:
        if not self._ending.is_told:
            self._home.report(self._ending.report(self.number, self._loop.now_s, self._black_hole()))

    def _black_hole(self) -> BlackHole:
        self._count_bytes()
        if self._wire is not None and self._wire.is_stuck:
            return BlackHole.YES if self._heartbeat is not None and self._heartbeat.is_heard else BlackHole.PERHAPS
        # The line is not cut, as the edge has just been reached.
        return BlackHole.YES if self._dialling is not None and self._dialling.is_stuck else BlackHole.NO

    # -- watching ----------------------------------------------------------------------------------------------------

    def _on_deadline(self) -> None:
        if self._phase is Phase.OPENING:
            self._leave(
                FailureCause.SILENT, f"the edge did not open its control stream within {RPC_TIMEOUT_S:g} s of TLS"
            )
        elif self._phase is Phase.REGISTERING:
            self._leave(FailureCause.SILENT, f"the edge did not answer the registration within {RPC_TIMEOUT_S:g} s")
        elif self._phase is Phase.REGISTERED:
            self._look_after()
        elif self._phase is Phase.LEAVING:
            self._linger()

    def _look_after(self) -> None:
        if self._heartbeat is None or not self._heartbeat.is_awaited:
            self._ping()
        elif reason := self._heartbeat.end():
            self.abandon(reason)
            return
        self._deadline.set(self._loop.now_s + PING_PERIOD_S)

    def _ping(self) -> None:
        if self._http is not None and self._heartbeat is not None:
            self._heartbeat.asked(self._loop.now_s)
            self._http.ping()

    def on_pong(self) -> None:
        round_trip_s = None if self._heartbeat is None else self._heartbeat.answered(self._loop.now_s)
        if round_trip_s is not None:
            self._stats.round_trip_s = round_trip_s

    def _linger(self) -> None:
        now_s = self._loop.now_s
        if now_s - self._left_at_s >= LINGER_S and not self._ending.is_told:
            # The edge has not answered.
            self._report_end()
            if self._wire is not None and self._wire.is_stuck:
                # The edge has not even received it, so it keeps sending requests.
                self.abandon("nothing that was sent has reached the edge")
                return
        if self._http is not None and self._running:
            self._active_at_s = now_s
        elif self._http is not None and now_s - self._active_at_s >= LINGER_S:
            self._http.close("unregistered")
            return
        self._deadline.set(now_s + 1.0)

    @property
    def _running(self) -> int:
        """The number of running requests."""
        if self._http is None:
            return 0
        return self._http.stream_count - (1 if self._control is not None and not self._control.has_ended else 0)

    def measure(self) -> None:
        """Add this connection to the metrics of its index, which a leaving connection shares with its successor."""
        stats = self._stats
        if self._phase is Phase.REGISTERED:
            stats.is_up = 1
        stats.in_flight += max(0, self._running)
        self._count_bytes()

    def _count_bytes(self) -> None:
        if self._wire is not None:
            sent_bytes, received_bytes = self._wire.growth()
            self._stats.sent_bytes += sent_bytes
            self._stats.received_bytes += received_bytes
