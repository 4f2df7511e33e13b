"""A backend that speaks HTTP/2 by the h2 package, told by a test what to do with each event."""

from collections.abc import Callable

import h2.config
import h2.connection
import h2.events
from h2.settings import SettingCodes, Settings

from proxy import document
from tests.proxy.backend.servers import Conn
from tests.proxy.backend.world import Answer, World


class H2Peer:
    """One connection. `on_event(peer, event)` is called in its thread; what it queues is sent afterwards."""

    def __init__(self, conn: Conn, on_event: "OnEvent", settings: dict[SettingCodes, int] | None = None) -> None:
        self.conn = conn
        self.h2 = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False, header_encoding=None))
        self.h2.local_settings = Settings(client=False, initial_values=settings or {})
        self._on_event = on_event
        self.requests: list[int] = []
        self.most_open = 0

    def serve(self) -> None:
        self.h2.initiate_connection()
        self.flush()
        while data := self._read():
            for event in self.h2.receive_data(data):
                if isinstance(event, h2.events.RequestReceived):
                    self.requests.append(event.stream_id)
                    self.most_open = max(self.most_open, self.h2.open_inbound_streams)
                self._on_event(self, event)
            self.flush()

    def _read(self) -> bytes:
        try:
            return self.conn.sock.recv(65536)
        except OSError:
            return b""

    def flush(self) -> None:
        data = self.h2.data_to_send()
        if data:
            self.conn.send(data)

    def answer(self, stream_id: int, body: bytes = b"ok", status: bytes = b"200") -> None:
        self.h2.send_headers(stream_id, [(b":status", status)], end_stream=not body)
        if body:
            self.h2.send_data(stream_id, body, end_stream=True)


OnEvent = Callable[[H2Peer, h2.events.Event], None]


def answers(peer: H2Peer, event: h2.events.Event) -> None:
    """Answer each request when it has come to its end, and give credit at once."""
    if isinstance(event, h2.events.DataReceived):
        peer.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
    if isinstance(event, h2.events.StreamEnded):
        peer.answer(event.stream_id)


def speaks(
    on_event: OnEvent = answers, settings: dict[SettingCodes, int] | None = None, peers: list[H2Peer] | None = None
) -> Callable[[Conn], None]:
    """A behaviour for `backend`; each connection's peer is added to `peers`."""

    def behave(conn: Conn) -> None:
        peer = H2Peer(conn, on_event, settings)
        if peers is not None:
            peers.append(peer)
        peer.serve()

    return behave


def h2c(address: str) -> document.Backend:
    return document.Backend(name="b", addresses=(address,), protocol="h2c")


def opened(w: World, answer: Answer) -> Answer:
    w.until(lambda: answer.request is not None and answer.request.is_open)
    return answer
