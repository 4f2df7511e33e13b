"""What a small request costs a worker, by client's protocol: python -m benchmarks.proxy_request

One process and one thread: a worker's data plane with real sockets, doors to backends, while clients and backend are
played here between its turns, when no time is taken. A round is 64 requests on four connections, all before the first
answer, as a saturated worker meets them. The figure is CPU time a request in the best tenth of the rounds, since other
load can only make it worse. `--profile` shows where Python's calls go instead.
"""

import argparse
import contextlib
import cProfile
import pstats
import socket
import time
from collections.abc import Callable

from daemonkit.memory import spare_the_collector
from proxy import document
from proxy.accesslog import AccessLogSettings
from proxy.accesslog.writer import AccessLogWriter
from proxy.h2 import Caches, Connection, DataReceived, RequestHead
from proxy.loop import Loop
from proxy.routing import compile_table, socket_door
from proxy.stats import Stats
from proxy.worker.dataplane import DataPlane

CONNECTIONS = 4
STREAMS = 16
ROUNDS = 600
WARM_UP = 50
HOST = b"bench.example"
REQUEST = b"GET / HTTP/1.1\r\nHost: bench.example\r\nUser-Agent: h2load nghttp2/1.52.0\r\n\r\n"
BODY = b"ok, this is the answer of the backend, some sixty bytes long\n"
ANSWER = (
    b"HTTP/1.1 200 OK\r\nServer: nginx/1.22.1\r\nDate: Sat, 21 Nov 2026 12:00:00 GMT\r\nContent-Type: text/plain\r\n"
    b"Content-Length: %d\r\nConnection: keep-alive\r\n\r\n%b" % (len(BODY), BODY)
)


class H2Client:
    """One connection with STREAMS requests at a time."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._codec = Connection.client(Caches())
        head = RequestHead(b"GET", b"http", HOST, b"/", [(b"user-agent", b"h2load nghttp2/1.52.0")])
        self._head = head

    def ask(self) -> None:
        for _ in range(STREAMS):
            self._codec.open_stream(self._head, True)
        self.speak()

    def speak(self) -> None:
        self._sock.sendall(self._codec.data_to_send())

    def take(self) -> int:
        """Answers that have come."""
        answered = 0
        with contextlib.suppress(BlockingIOError):
            for event in self._codec.receive(self._sock.recv(1 << 20, socket.MSG_DONTWAIT), time.monotonic()):
                if isinstance(event, DataReceived):
                    self._codec.release(event.stream_id, len(event.data))
                    answered += event.end_stream
        return answered


class H1Client:
    """STREAMS connections with one request at a time."""

    def __init__(self, socks: list[socket.socket]) -> None:
        self._socks = socks

    def ask(self) -> None:
        for sock in self._socks:
            sock.sendall(REQUEST)

    def speak(self) -> None:
        """Nothing comes first."""

    def take(self) -> int:
        answered = 0
        for sock in self._socks:
            with contextlib.suppress(BlockingIOError):
                answered += sock.recv(1 << 16, socket.MSG_DONTWAIT).count(BODY)
        return answered


class Backend:
    """Answers each request that has come when it is told to."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self._listener.setblocking(False)
        self._socks: list[socket.socket] = []
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"

    def answer(self) -> int:
        with contextlib.suppress(BlockingIOError):
            while True:
                self._socks.append(self._listener.accept()[0])
        answered = 0
        for sock in self._socks:
            with contextlib.suppress(BlockingIOError):
                count = sock.recv(1 << 16, socket.MSG_DONTWAIT).count(b"\r\n\r\n")
                sock.sendall(ANSWER * count)
                answered += count
        return answered


class Bench:
    def __init__(self, protocol: str) -> None:
        self._backend = Backend()
        self._loop = Loop()
        stats = Stats()
        log = AccessLogWriter(self._loop, stats, AccessLogSettings("off"))
        self._plane = DataPlane(self._loop, stats, log)
        listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
        listener.setblocking(False)
        port = listener.getsockname()[1]
        web = document.Listener(name="web", address="127.0.0.1", port=port)
        route = document.Route(
            name="bench",
            hostnames=(HOST.decode(),),
            backends=(document.BackendRef(address=self._backend.address),),
        )
        door = socket_door(web.address, port)
        self._plane.use(compile_table(document.Document(listeners=(web,), routes=(route,))), {door: listener})
        socks = [
            socket.create_connection(("127.0.0.1", port))
            for _ in range(CONNECTIONS * (STREAMS if protocol == "h1" else 1))
        ]
        self._clients: list[H1Client] | list[H2Client]
        self._clients = [H2Client(sock) for sock in socks] if protocol == "h2" else [H1Client(socks)]

    def round(self, call: Callable[[Callable[[], None]], int]) -> int:
        """`call` makes a turn and says what it cost."""
        wanted = CONNECTIONS * STREAMS
        cost = asked = answered = 0
        for client in self._clients:
            client.ask()
        while answered < wanted:
            cost += call(self._loop.turn)
            if asked < wanted:
                asked += self._backend.answer()
            answered += sum(client.take() for client in self._clients)
        for client in self._clients:
            client.speak()
        return cost


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.proxy_request", description=__doc__)
    parser.add_argument("--profile", action="store_true", help="show Python's calls by their own time")
    options = parser.parse_args()
    for protocol in ("h1", "h2"):
        bench = Bench(protocol)
        spare_the_collector()
        for _ in range(WARM_UP):
            bench.round(_timed)
        if options.profile:
            _profile(bench)
            continue
        costs = sorted(bench.round(_timed) for _ in range(ROUNDS))
        print(f"{protocol} -> h1: {costs[ROUNDS // 10] / CONNECTIONS / STREAMS / 1000:.2f} us a request")


def _profile(bench: Bench) -> None:
    profile = cProfile.Profile()

    def profiled(call: Callable[[], None]) -> int:
        profile.enable()
        call()
        profile.disable()
        return 0

    for _ in range(ROUNDS):
        bench.round(profiled)
    calls = pstats.Stats(profile)
    print(f"{calls.total_calls / ROUNDS / CONNECTIONS / STREAMS:.0f} calls a request")  # type: ignore[attr-defined]
    calls.strip_dirs().sort_stats("tottime").print_stats(45)


def _timed(call: Callable[[], None]) -> int:
    before = time.thread_time_ns()
    call()
    return time.thread_time_ns() - before


if __name__ == "__main__":
    main()
