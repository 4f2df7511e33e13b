"""An edge on loopback with which connectors register, with front doors for clients, and faults on demand.

    with Edge() as edge:
        ... start a connector with edge.addresses, edge.ca_file, edge.tunnel.token
        edge.wait_for_registered(4)
        ... ask edge.front as a client, look at edge.ledger, cause faults

A single loop in one thread does everything; other threads may call the methods here. The edge never retries anything.
`stop` and `start` simulate a crash and a restart on the same ports, with the same certificate.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Final, Self, TypeVar

import msgspec

from proxy.exchange.relay import NOBODY
from proxy.heads import Fields, RequestHead
from proxy.loop import Loop
from tests.support.edge.authority import EdgeAuthority
from tests.support.edge.behaviour import WELL, Behaviour
from tests.support.edge.call import Call
from tests.support.edge.connection import EdgeConnection
from tests.support.edge.heads import UPDATE_CONFIGURATION
from tests.support.edge.ledger import PATIENCE_S, Ledger, PushAnswer, Record
from tests.support.edge.listening import Listening
from tests.support.edge.loopside import LoopSide, Treatment
from tests.support.edge.pushing import Update, check_head
from tests.support.edge.tunnels import Tunnels, new_tunnel
from tests.support.loops import call_in

T = TypeVar("T")

SERVER_NAMES: Final = ("h2.cftunnel.com", "quic.cftunnel.com", "probe.cftunnel.com")
"""The server names that connectors request, whatever address they dial."""
_ANY_PORT: Final = "127.0.0.1:0"


class Edge:
    def __init__(
        self,
        listen: Sequence[str] = (_ANY_PORT, _ANY_PORT),
        front: str = _ANY_PORT,
        secure_front: str = _ANY_PORT,
        *,
        authority: EdgeAuthority | None = None,
        server_names: Iterable[str] = SERVER_NAMES,
    ) -> None:
        """Two addresses by default: connectors avoid one that has failed them. Call `start`, or use `with`."""
        self._folder = tempfile.TemporaryDirectory(prefix="tunnelgw-edge-")
        self.ca_file = Path(self._folder.name) / "ca.pem"
        self.authority = authority or EdgeAuthority.make()
        self.ca_file.write_bytes(self.authority.pem)
        self._context = self.authority.server_context(server_names)
        self._listening = {each.address: each for each in map(Listening, listen)}
        self._front, self._secure_front = Listening(front), Listening(secure_front)
        self.ledger = Ledger()
        self.tunnels = Tunnels()
        self.tunnel = new_tunnel()
        """The initial tunnel, for all hosts."""
        self.tunnels.add(self.tunnel)
        self.treatment = Treatment()
        self._side: LoopSide | None = None
        self._thread: threading.Thread | None = None

    # -- life --------------------------------------------------------------------------------------------------------

    @property
    def addresses(self) -> list[str]:
        """host:port, for connectors."""
        return list(self._listening)

    @property
    def front(self) -> str:
        """host:port for clients; connectors are told that requests came over http."""
        return self._front.address

    @property
    def secure_front(self) -> str:
        """The same, but connectors are told https; this door does not speak TLS either."""
        return self._secure_front.address

    def start(self) -> Self:
        loop = Loop()
        side = self._side = LoopSide(loop, self._context, self.ledger, self.tunnels, self.treatment)
        for address, listening in self._listening.items():
            side.open(address, listening.open())
        side.open_front(self._front.open(), b"http")
        side.open_front(self._secure_front.open(), b"https")
        self._thread = threading.Thread(target=loop.run, name="edge", daemon=True)
        self._thread.start()
        return self

    def stop(self) -> None:
        """Break all connections, and refuse new ones."""
        if self._thread is None or self._side is None:
            return
        loop = self._side.loop
        self._do(lambda side: side.close())
        loop.call_from_thread(loop.stop)
        self._thread.join(PATIENCE_S)
        loop.close()
        self._thread = self._side = None

    def close(self) -> None:
        """Stop for good."""
        self.stop()
        for listening in (*self._listening.values(), self._front, self._secure_front):
            listening.close()
        self._folder.cleanup()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Connectors that broke the protocol fail the test, unless it has called `forgive`."""
        self.close()
        if kind is None:
            assert not self.ledger.violations, self.ledger.violations

    def forgive(self) -> list[str]:
        """The violations so far, which the test expected; they no longer count."""
        with self.ledger.writing():
            violations, self.ledger.violations = self.ledger.violations, []
        return violations

    # -- waiting -----------------------------------------------------------------------------------------------------

    def wait_for_registered(self, count: int, timeout_s: float = PATIENCE_S) -> list[Record]:
        """Wait until at least this many connections are registered at the same time."""
        self.wait_for(lambda: len(self.ledger.registered) >= count, f"{count} registered connections", timeout_s)
        return self.ledger.registered

    def wait_for_attempts(self, count: int, timeout_s: float = PATIENCE_S) -> list[Record]:
        """Wait until this many connections have been accepted since the beginning."""
        self.wait_for(lambda: len(self.ledger.records) >= count, f"{count} connections", timeout_s)
        return self.ledger.records

    def wait_until_closed(self, record: Record, timeout_s: float = PATIENCE_S) -> str:
        """Wait for the end of a connection, and return its reason."""
        self.wait_for(lambda: record.closed is not None, f"the end of connection {record.number}", timeout_s)
        assert record.closed is not None
        return record.closed

    def wait_for(self, is_there: Callable[[], bool], what: str, timeout_s: float = PATIENCE_S) -> None:
        """Wait for a condition on the ledger and its records."""
        self.ledger.wait_for(is_there, what, timeout_s)

    def push_at_registration(self, version: int, config: object) -> None:
        """Push a configuration over every connection from now on; see `Record.push_answers`."""
        self.treatment.configuration = Update(version, config)

    # -- faults ------------------------------------------------------------------------------------------------------

    def behave(self, usual: Behaviour = WELL) -> None:
        """Set the behaviour from the next connection on."""
        self.treatment.planned.clear()
        self.treatment.usual = usual

    def plan(self, *behaviours: Behaviour) -> None:
        """Set the behaviour of the next connections, one each; later ones get the usual one."""
        self.treatment.planned.extend(behaviours)

    def refuse(self, *addresses: str) -> None:
        """Have the kernel refuse connections, at all addresses if none is named; existing ones stay."""
        for address in addresses or self.addresses:
            self._do(partial(LoopSide.shut, address=address))

    def admit(self, *addresses: str) -> None:
        """Undo `refuse`."""
        for address in addresses or self.addresses:
            sock = self._listening[address].open()
            self._do(partial(LoopSide.open, address=address, sock=sock))

    def lose_large(self, most_bytes: int) -> None:
        """Silently lose segments to the edge that are larger than this, headers included."""
        for listening in self._listening.values():
            listening.lose_large(most_bytes)

    def drop(self, *records: Record) -> None:
        """Break connections: all open ones if none is named."""
        for record in records or self.ledger.open:
            self._do(partial(LoopSide.drop, number=record.number, why="dropped"))

    def close_connection(self, record: Record) -> None:
        """Close a connection in order."""
        self._at(record, lambda connection: connection.end("closed by the edge"))

    def ask_to_reconnect(self, record: Record) -> None:
        """Send GOAWAY and no more requests, and end once those in flight are answered."""
        self._at(record, EdgeConnection.ask_to_reconnect)

    def goaway(self, record: Record) -> None:
        self._at(record, EdgeConnection.goaway)

    def send_bytes(self, record: Record, data: bytes) -> None:
        """Send bytes that need not be HTTP/2."""
        self._at(record, lambda connection: connection.send_bytes(data))

    def send_control(self, record: Record, data: bytes) -> None:
        """Send bytes on the control stream that need not be RPC."""
        self._at(record, lambda connection: connection.control.send(data))

    def end_control(self, record: Record) -> None:
        """Send END_STREAM on the control stream."""
        self._at(record, lambda connection: connection.control.stream.send_data(b"", True, NOBODY))

    def reset_control(self, record: Record) -> None:
        self._at(record, lambda connection: connection.control.stream.reset())

    def open_second_control(self, record: Record) -> None:
        self._at(record, EdgeConnection.open_control_stream)

    def stop_reading(self, record: Record) -> None:
        """Leave everything that the connector sends in the sockets."""
        self._at(record, EdgeConnection.stop_reading)

    def resume_reading(self, record: Record) -> None:
        self._at(record, EdgeConnection.resume_reading)

    # -- streams -----------------------------------------------------------------------------------------------------

    def ping(self, record: Record) -> None:
        """Send a PING, and wait for the answer."""
        before = record.pings_acked
        self._at(record, lambda connection: connection.ping(b"edgeping"))
        self.wait_for(lambda: record.pings_acked > before, "the answer to a PING")

    def call(
        self,
        path: str = "/",
        method: str = "GET",
        fields: Fields | None = None,
        *,
        host: str = "a.example",
        scheme: str = "https",
        end_stream: bool = True,
        record: Record | None = None,
    ) -> Call:
        """Open a stream with these fields and no others, on the connection of `record`, or the first registered."""
        head = RequestHead(method.encode(), scheme.encode(), host.encode(), path.encode(), list(fields or []))
        assert self._side is not None, "the edge is stopped"
        call = Call(self._side.loop.call_from_thread)

        def open_(connection: EdgeConnection) -> None:
            call.stream = connection.open(head, end_stream, call)

        self._at(record or self.wait_for_registered(1)[0], open_)
        return call

    def push(self, version: int, config: object, record: Record | None = None) -> PushAnswer:
        """Send a configuration over one connection; returns the connector's answer."""
        call = self.call(fields=[UPDATE_CONFIGURATION], end_stream=False, record=record)
        call.send(msgspec.json.encode(Update(version, config)), True)
        check_head(call.wait_for_head())
        return msgspec.json.decode(call.read_all(), type=PushAnswer)

    # -- the loop's thread -------------------------------------------------------------------------------------------

    def _at(self, record: Record, what: Callable[[EdgeConnection], object]) -> None:
        def do(side: LoopSide) -> None:
            connection = side.connections.get(record.number)
            assert connection is not None, f"connection {record.number} is {record.closed or 'not set up'}"
            what(connection)

        self._do(do)

    def _do(self, what: Callable[[LoopSide], T]) -> T:
        """Call in the loop's thread; exceptions are raised here."""
        assert self._side is not None, "the edge is stopped"
        return call_in(self._side.loop, partial(what, self._side), PATIENCE_S)
