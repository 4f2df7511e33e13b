"""Nothing leaks when connections break with requests of every kind on them."""

from __future__ import annotations

import operator
import time

from tests.e2e.tunnel.connector import Connector
from tests.support.descriptors import open_descriptors
from tests.support.edge.call import Call
from tests.support.edge.edge import Edge
from tests.support.edge.heads import WEBSOCKET
from tests.support.gateway import resident_bytes, route_to, thread_count
from tests.support.socketbackend import Dialogue, SocketBackend
from tests.support.websocketpeer import WebSocketServer

CONNECTIONS = 12
ROUNDS = 2
HEAL_S = 90.0
SETTLE_S = 30.0
MOST_GROWTH_BYTES = 4 << 20
POSTED_BYTES = 100_000


def test_twenty_four_losses_of_all_connections_under_load_leak_nothing() -> None:
    with (
        Edge(("127.0.0.1:0",) * CONNECTIONS) as edge,
        Connector(edge, connections=CONNECTIONS) as proxy,
        SocketBackend(pour_or_wait) as backend,
        WebSocketServer() as chat,
    ):
        routes = [
            route_to(chat.address, name="chat", matches=[exactly("/chat")]),
            {"name": "fixed", "rules": [{"matches": [exactly("/fixed")], "respond": {"statusCode": 200}}]},
            route_to(backend.address),
        ]
        proxy.serve(*routes, limits={"backendIdleTimeout": "1s"})
        lose_all(edge)
        before, before_bytes = usage(proxy), memory_bytes(proxy)

        for _ in range(ROUNDS):
            lose_all(edge)

        wait_until_at_most(proxy, before)
        assert memory_bytes(proxy) - before_bytes < MOST_GROWTH_BYTES
        backend.wait_until_closed()
        assert proxy.metric("tunnelgw_proxy_tunnel_connection_failures_total") >= (ROUNDS + 1) * CONNECTIONS
        assert proxy.metric("tunnelgw_proxy_tunnel_requests_total") >= (ROUNDS + 1) * CONNECTIONS * 4
        assert proxy.metric("tunnelgw_proxy_tunnel_requests_in_flight") == 0


def exactly(path: str) -> dict[str, object]:
    return {"path": {"type": "Exact", "value": path}}


def pour_or_wait(dialogue: Dialogue) -> None:
    """Until the proxy cancels the request."""
    head = dialogue.read_until(b"\r\n\r\n")
    if head.startswith(b"GET /pour "):
        dialogue.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000000\r\n\r\n")
        while not dialogue.backend.over.is_set():
            dialogue.send(bytes(65536))
    dialogue.read_to_end()


def lose_all(edge: Edge) -> None:
    """Break all connections, with a download, an upload, a WebSocket and a request without an answer on each."""
    calls: list[Call] = []
    for record in edge.wait_for_registered(CONNECTIONS, HEAL_S):
        download = edge.call("/pour", record=record)
        upload = edge.call("/upload", "POST", [(b"content-length", b"1000000")], end_stream=False, record=record)
        upload.send(bytes(POSTED_BYTES))
        silence = edge.call("/silence", record=record)
        key = [WEBSOCKET, (b"sec-websocket-key", b"dGhlIHNhbXBsZSBub25jZQ=="), (b"sec-websocket-version", b"13")]
        chat = edge.call("/chat", fields=key, end_stream=False, record=record)
        assert download.read(1000)
        # It is the last: the connector has then read the others' heads too, which a broken connection might lose.
        assert chat.response().status_code == 200
        calls += [download, upload, silence, chat]

    edge.drop()

    for call in calls:
        assert call.wait_until_lost() is None
    edge.wait_for_registered(CONNECTIONS, HEAL_S)


def usage(proxy: Connector) -> tuple[int, ...]:
    """Descriptors and threads of both processes."""
    pids = (*proxy.worker_pids, proxy.pid)
    return (*(len(list(open_descriptors(pid))) for pid in pids), *(thread_count(pid) for pid in pids))


def memory_bytes(proxy: Connector) -> int:
    return sum(map(resident_bytes, (*proxy.worker_pids, proxy.pid)))


def wait_until_at_most(proxy: Connector, most: tuple[int, ...]) -> None:
    """Connections to backends are kept for a second."""
    end_s = time.monotonic() + SETTLE_S
    while not all(map(operator.le, usage(proxy), most)):
        assert time.monotonic() < end_s, f"{usage(proxy)} descriptors and threads, want at most {most}"
        assert proxy.ask("/fixed").status_code == 200  # lets the worker run
