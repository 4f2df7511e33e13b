"""What a small request costs a worker, by client's and backend's protocol: python -m benchmarks.proxy_request

One process and one thread: a worker's data plane with real sockets, from listeners to backends. The benchmark plays
clients and backend between its turns, when no time is taken. A round is 64 requests on four connections, all sent
before the first response, as a saturated worker sees them. The figure is CPU time per request in the best tenth of the
rounds, since other load can only make it worse. `--profile` shows instead where Python's calls go. `--count` shows the
steps of its bytecode: the same in every hour, so that two versions can be compared to one in a thousand, but blind to
the cost of C functions.

A request has few fields. With `--new-fields 8` it has sixteen, as a trusted proxy in front sends them over HTTP/2, and
eight of them were never seen before. Compare with `--new-fields 1`: a `cf-ray` never repeats.
"""

import argparse
import contextlib
import cProfile
import functools
import itertools
import pstats
import socket
import sys
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any, Literal

from hpack import Encoder

from benchmarks.requestmix import MAX_NEW_FIELDS, TABLE_SIZE_ZERO, RequestMix
from daemonkit.memory import spare_the_collector
from proxy import document
from proxy.accesslog import AccessLogSettings
from proxy.accesslog.writer import AccessLogWriter
from proxy.h2 import Caches, Connection, RequestReceived, frames
from proxy.heads import ResponseHead
from proxy.loop import Loop
from proxy.routing import compile_table, socket_door
from proxy.stats import Stats
from proxy.worker.dataplane import DataPlane

CONNECTIONS = 4
STREAMS = 16
ROUNDS = 600
COUNTED_ROUNDS = 10
SHOWN = 45
"""Number of functions."""
WARM_UP = 50
REQUEST = b"GET / HTTP/1.1\r\nHost: bench.example\r\nUser-Agent: h2load nghttp2/1.52.0\r\n\r\n"
USUAL_BLOCK = Encoder().encode(
    [
        (":method", "GET"),
        (":scheme", "http"),
        (":authority", "bench.example"),
        (":path", "/"),
        ("user-agent", "h2load nghttp2/1.52.0"),
    ]
)
BODY = b"ok, this is the answer of the backend, some sixty bytes long\n"
ANSWER = (
    b"HTTP/1.1 200 OK\r\nServer: nginx/1.22.1\r\nDate: Sat, 21 Nov 2026 12:00:00 GMT\r\nContent-Type: text/plain\r\n"
    b"Content-Length: %d\r\nConnection: keep-alive\r\n\r\n%b" % (len(BODY), BODY)
)
ANSWER_HEAD = ResponseHead(
    200,
    [
        (b"server", b"nginx/1.22.1"),
        (b"date", b"Sat, 21 Nov 2026 12:00:00 GMT"),
        (b"content-type", b"text/plain"),
        (b"content-length", b"%d" % len(BODY)),
    ],
)
BackendProtocol = Literal["http", "h2c"]
PAIRS: tuple[tuple[str, BackendProtocol], ...] = (("h1", "http"), ("h2", "http"), ("h2", "h2c"))
"""Protocols of clients and of the backend."""


class H2Client:
    """One connection with STREAMS requests at a time."""

    def __init__(self, sock: socket.socket, block: Callable[[], bytes]) -> None:
        """`block` returns the field block of a request."""
        self._sock = sock
        self._block = block
        self._stream_ids = itertools.count(1, 2)
        self._prologue = TABLE_SIZE_ZERO
        self._tail = b""
        settings = frames.encode_settings([]) + frames.encode_frame(frames.SETTINGS, frames.ACK, 0)
        sock.sendall(frames.PREFACE + settings + frames.encode_window_update(0, 1 << 30))

    def ask(self) -> None:
        flags = frames.END_HEADERS | frames.END_STREAM
        for stream_id in itertools.islice(self._stream_ids, STREAMS):
            block, self._prologue = self._prologue + self._block(), b""
            self._sock.sendall(frames.encode_frame(frames.HEADERS, flags, stream_id, block))

    def take(self) -> int:
        """Read; returns how many responses have arrived."""
        answered = 0
        with contextlib.suppress(BlockingIOError):
            received = self._tail + self._sock.recv(1 << 20, socket.MSG_DONTWAIT)
            answered = received.count(BODY)
            self._tail = received[1 - len(BODY) :]
        return answered


class H1Client:
    """STREAMS connections with one request at a time."""

    def __init__(self, socks: list[socket.socket]) -> None:
        self._socks = socks

    def ask(self) -> None:
        for sock in self._socks:
            sock.sendall(REQUEST)

    def take(self) -> int:
        answered = 0
        for sock in self._socks:
            with contextlib.suppress(BlockingIOError):
                answered += sock.recv(1 << 16, socket.MSG_DONTWAIT).count(BODY)
        return answered


class Backend(ABC):
    """Responds to each request that has arrived when told to."""

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
                count, answers = self._answers(sock, sock.recv(1 << 20, socket.MSG_DONTWAIT))
                sock.sendall(answers)
                answered += count
        return answered

    @abstractmethod
    def _answers(self, sock: socket.socket, data: bytes) -> tuple[int, bytes]:
        """How many requests `data` contains, and what to send."""


class H1Backend(Backend):
    def _answers(self, _: socket.socket, data: bytes) -> tuple[int, bytes]:
        count = data.count(b"\r\n\r\n")
        return count, ANSWER * count


class H2Backend(Backend):
    def __init__(self) -> None:
        super().__init__()
        self._codecs: dict[socket.socket, Connection] = {}

    def _answers(self, sock: socket.socket, data: bytes) -> tuple[int, bytes]:
        codec = self._codecs.get(sock)
        if codec is None:
            codec = self._codecs[sock] = Connection.server(Caches())
        count = 0
        for event in codec.receive(data, time.monotonic()):
            if isinstance(event, RequestReceived):
                codec.send_response(event.stream_id, ANSWER_HEAD, BODY)
                count += 1
        return count, codec.data_to_send()


class Bench:
    def __init__(
        self,
        client: str,
        backend: BackendProtocol,
        mix: RequestMix | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`mix`: the requests of a trusted HTTP/2 client, instead of the same small request."""
        self._backend = H2Backend() if backend == "h2c" else H1Backend()
        self._loop = Loop(clock)
        stats = Stats()
        log = AccessLogWriter(self._loop, stats, AccessLogSettings("off"))
        self._plane = DataPlane(self._loop, stats, log)
        listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
        listener.setblocking(False)
        port = listener.getsockname()[1]
        web = document.Listener(name="web", address="127.0.0.1", port=port)
        route = document.Route(
            name="bench",
            hostnames=("bench.example",),
            backends=(document.BackendRef(address=self._backend.address, protocol=backend),),
        )
        table = compile_table(
            document.Document(
                listeners=(web,),
                forwarding=document.Forwarding(trusted_proxies=("127.0.0.1",) if mix else ()),
                routes=(route,),
            )
        )
        door = socket_door(web.address, port)
        self._plane.use(table, {door: listener})
        socks = [
            socket.create_connection(("127.0.0.1", port))
            for _ in range(CONNECTIONS * (STREAMS if client == "h1" else 1))
        ]
        self._clients: list[H1Client] | list[H2Client]
        self._clients = (
            [H2Client(sock, mix.block if mix else _usual_block) for sock in socks]
            if client == "h2"
            else [H1Client(socks)]
        )

    def round(self, call: Callable[[Callable[[], None]], int]) -> int:
        """`call` makes a turn and returns its cost."""
        wanted = CONNECTIONS * STREAMS
        cost = asked = answered = 0
        for client in self._clients:
            client.ask()
        while answered < wanted:
            cost += call(self._loop.turn)
            if asked < wanted:
                asked += self._backend.answer()
            answered += sum(client.take() for client in self._clients)
        return cost


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.proxy_request", description=__doc__)
    shown = parser.add_mutually_exclusive_group()
    shown.add_argument("--profile", action="store_true", help="show Python's calls by their own time")
    shown.add_argument("--count", action="store_true", help="show the steps of Python's bytecode, by function")
    parser.add_argument(
        "--new-fields",
        type=int,
        choices=range(1, MAX_NEW_FIELDS + 1),
        help="over HTTP/2, requests of sixteen fields with so many new ones",
    )
    options = parser.parse_args()
    for client, backend in PAIRS:
        if options.new_fields is not None and client == "h1":
            continue
        mix = None if options.new_fields is None else RequestMix(options.new_fields)
        # While counting, turns take so long that they would be cut short.
        clock = functools.partial(float, time.monotonic()) if options.count else time.monotonic
        bench = Bench(client, backend, mix, clock)
        spare_the_collector()
        for _ in range(WARM_UP):
            bench.round(_timed)
        if options.profile:
            _profile(bench)
            continue
        name = "h2c" if backend == "h2c" else "h1"
        if options.count:
            print(f"{client} -> {name}, steps and calls a request:")
            _count(bench)
            continue
        costs = sorted(bench.round(_timed) for _ in range(ROUNDS))
        print(f"{client} -> {name}: {costs[ROUNDS // 10] / CONNECTIONS / STREAMS / 1000:.2f} us a request")


def _usual_block() -> bytes:
    return USUAL_BLOCK


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
    calls.strip_dirs().sort_stats("tottime").print_stats(SHOWN)


def _count(bench: Bench) -> None:
    steps: Counter[CodeType] = Counter()
    calls: Counter[CodeType] = Counter()

    def step(frame: FrameType, event: str, _: Any) -> Callable[..., Any]:
        if event == "opcode":
            steps[frame.f_code] += 1
        return step

    def enter(frame: FrameType, _event: str, _: Any) -> Callable[..., Any]:
        calls[frame.f_code] += 1
        frame.f_trace_opcodes = True
        return step

    def counted(call: Callable[[], None]) -> int:
        sys.settrace(enter)
        call()
        sys.settrace(None)
        return 0

    for _ in range(COUNTED_ROUNDS):
        bench.round(counted)
    requests = COUNTED_ROUNDS * CONNECTIONS * STREAMS
    print(f"{steps.total() / requests:7.1f} {calls.total() / requests:6.2f}  all")
    for code, count in steps.most_common(SHOWN):
        print(f"{count / requests:7.1f} {calls[code] / requests:6.2f}  {code.co_qualname}")


def _timed(call: Callable[[], None]) -> int:
    before = time.thread_time_ns()
    call()
    return time.thread_time_ns() - before


if __name__ == "__main__":
    main()
