"""Clients that are slow, many, or gone, and what they may cost: slow loris, idle connections, no free descriptor."""

import contextlib
import operator
import os
import resource
import select
import signal
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.proxy.site import eventually
from tests.support.asking import ask
from tests.support.descriptors import open_descriptors
from tests.support.gateway import Gateway, resident_bytes, route_to, thread_count
from tests.support.h2peer import H2Client
from tests.support.recordingbackend import Received, RecordingBackend, Reply, echo
from tests.support.socketbackend import Dialogue, SocketBackend

MIB = 1 << 20
WAIT_S = 20.0
STUCK_S = 1.0


@contextlib.contextmanager
def connections(port: int, count: int, first: bytes = b"") -> Iterator[list[socket.socket]]:
    """Each has sent `first` before the next one connects."""
    opened: list[socket.socket] = []
    try:
        for _ in range(count):
            opened.append(socket.create_connection(("127.0.0.1", port), timeout=WAIT_S))
            opened[-1].sendall(first)
        yield opened
    finally:
        for sock in opened:
            sock.close()


@contextlib.contextmanager
def standing_still(pid: int) -> Iterator[None]:
    """The process is stopped until the end of the block, so that no timeout of its clients has begun."""
    os.kill(pid, signal.SIGSTOP)
    stat = Path(f"/proc/{pid}/stat")
    try:
        eventually(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T", "it stands still")
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def read_to_end(sock: socket.socket) -> bytes:
    sock.settimeout(WAIT_S)
    received = b""
    with contextlib.suppress(ConnectionError):
        while data := sock.recv(65536):
            received += data
    return received


def test_slow_heads_are_answered_408_and_closed_while_others_are_served(
    lone_gateway: Gateway, backend: RecordingBackend
) -> None:
    """Slow loris: each client sends a part of its head, and then a byte now and then."""
    lone_gateway.serve(route_to(backend.address), limits={"headerTimeout": "700ms"})
    (worker,) = lone_gateway.worker_pids
    with contextlib.ExitStack() as stack:
        with standing_still(worker):
            begun = b"GET / HTTP/1.1\r\nHost: a.example\r\nX-Slow: "
            slow = stack.enter_context(connections(lone_gateway.clear[1], 200, begun))
        assert 200 == ask(lone_gateway.clear[1]).status_code
        with contextlib.suppress(ConnectionError):
            for sock in slow:
                sock.sendall(b"y")

        answers = [read_to_end(sock) for sock in slow]

    assert {b"HTTP/1.1 408"} == {answer[:12] for answer in answers}


def test_a_head_sent_byte_by_byte_does_not_extend_the_header_timeout(
    lone_gateway: Gateway, backend: RecordingBackend
) -> None:
    lone_gateway.serve(route_to(backend.address), limits={"headerTimeout": "500ms"})
    (worker,) = lone_gateway.worker_pids
    with contextlib.ExitStack() as stack:
        with standing_still(worker):
            (sock,) = stack.enter_context(connections(lone_gateway.clear[1], 1, b"GET / HTTP/1.1\r\nX: "))
        sock.settimeout(0.05)
        end_s = time.monotonic() + WAIT_S
        answer = b""
        while not answer and time.monotonic() < end_s:
            with contextlib.suppress(TimeoutError):
                answer = sock.recv(65536)
                continue
            sock.sendall(b"y")

    assert answer.startswith(b"HTTP/1.1 408")


@pytest.mark.parametrize("sent", [b"", b"\x16\x03\x01"])
def test_a_stalled_tls_handshake_is_closed(lone_gateway: Gateway, backend: RecordingBackend, sent: bytes) -> None:
    lone_gateway.serve(route_to(backend.address), limits={"headerTimeout": "300ms"})
    with connections(lone_gateway.tls[1], 20, sent) as silent:
        assert [b""] * 20 == [read_to_end(sock) for sock in silent]


def test_idle_connections_are_closed_after_the_idle_timeout(lone_gateway: Gateway, backend: RecordingBackend) -> None:
    lone_gateway.serve(route_to(backend.address), limits={"idleTimeout": "300ms"})
    with connections(lone_gateway.clear[1], 1) as (sock,):
        sock.sendall(b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n")
        assert read_to_end(sock).startswith(b"HTTP/1.1 200")
    (worker,) = lone_gateway.worker_pids
    with contextlib.ExitStack() as stack:
        # It would be idle before its request, too, and the library reads no response after GOAWAY.
        with standing_still(worker):
            client = stack.enter_context(H2Client(lone_gateway.clear[1]))
            stream_id = client.request()
        client.head(stream_id)
        client.wait_for(lambda: client.has_goaway, "GOAWAY")


def test_hundreds_of_idle_connections_cost_little_and_disturb_nobody(
    lone_gateway: Gateway, backend: RecordingBackend
) -> None:
    lone_gateway.serve(route_to(backend.address))
    (worker,) = lone_gateway.worker_pids
    ask(lone_gateway.clear[1])
    before_bytes = resident_bytes(worker)

    with connections(lone_gateway.clear[1], 500) as idle:
        for sock in idle:
            sock.sendall(b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n")
        for sock in idle:
            assert sock.recv(65536).startswith(b"HTTP/1.1 200")

        assert 200 == ask(lone_gateway.clear[1]).status_code
        assert (resident_bytes(worker) - before_bytes) / 500 < 24 * 1024


@contextlib.contextmanager
def request_under_way(gateway: Gateway, backend: RecordingBackend) -> Iterator[None]:
    """One whose backend responds at the end of the block; the response must arrive."""
    go_on = threading.Event()

    def answer_late(received: Received) -> Reply:
        if received.target == "/late":
            go_on.wait(WAIT_S)
        return echo(received)

    backend.respond = answer_late
    with connections(gateway.clear[1], 1) as (sock,):
        sock.sendall(b"GET /late HTTP/1.1\r\nHost: a.example\r\n\r\n")
        backend.wait_for_requests(1)
        try:
            yield
        finally:
            go_on.set()
        assert sock.recv(65536).startswith(b"HTTP/1.1 200")


def test_without_free_descriptors_served_clients_are_unaffected_and_new_ones_are_served_later() -> None:
    with RecordingBackend() as backend, Gateway(workers=1) as gateway:
        gateway.serve(route_to(backend.address))
        (worker,) = gateway.worker_pids
        with H2Client(gateway.clear[1]) as busy, request_under_way(gateway, backend):
            late = busy.request("/late")
            backend.wait_for_requests(2)
            assert "200" == busy.head(busy.request())[":status"]
            used = len(list(open_descriptors(worker)))
            resource.prlimit(worker, resource.RLIMIT_NOFILE, (used + 20, used + 20))
            with connections(gateway.clear[1], 100):
                gateway.wait_for_log(lambda entry: "open files" in str(entry.values()), "that no descriptor is left")
                assert ["200"] * 20 == [busy.head(busy.request())[":status"] for _ in range(20)]
            busy.reset(late)

        def is_served() -> bool:
            try:
                return ask(gateway.clear[1]).status_code == 200
            except ConnectionError:  # closed connections are ahead of it in the queue, and take descriptors once more
                return False

        eventually(is_served, "a client is served again")
        assert gateway.worker_pids == [worker]


def test_a_worker_without_free_descriptors_loads_documents_and_reports_metrics_without_losing_a_request() -> None:
    go_on = threading.Event()

    def answer_late(received: Received) -> Reply:
        go_on.wait(2 * WAIT_S)
        return echo(received)

    with RecordingBackend() as backend, Gateway(workers=1) as gateway:
        gateway.serve(route_to(backend.address))
        resource.prlimit(gateway.pid, resource.RLIMIT_NOFILE, (128, 128))
        os.kill(gateway.worker_pids[0], signal.SIGKILL)
        gateway.wait_for_line(lambda line: '"worker started"' in line, "one with that limit", WAIT_S, 2)
        (worker,) = gateway.worker_pids
        backend.respond = answer_late
        with contextlib.ExitStack() as clients:
            held: list[socket.socket] = []
            while True:
                sock = clients.enter_context(socket.create_connection(gateway.clear, timeout=WAIT_S))
                sock.sendall(b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n")
                if not is_held(sock, backend, len(held) + 1):
                    break
                held.append(sock)

            gateway.serve(route_to(backend.address, name="next"))
            clear, tls = gateway.doors.listeners()
            # Choosing between two certificates takes modules that the worker has not imported before.
            tls["tls"]["certificates"].append(gateway.doors.authority.issue("b.example").pair)
            gateway.serve(route_to(backend.address, name="last"), listeners=[clear, tls])

            assert [worker] == gateway.worker_pids
            assert len(held) <= gateway.metric("tunnelgw_proxy_connections") <= len(held) + 1
            assert gateway.metric("tunnelgw_proxy_worker_open_fds", worker="0") > len(held)
            go_on.set()
            for sock in held:
                assert sock.recv(65536).startswith(b"HTTP/1.1 200")


def is_held(sock: socket.socket, backend: RecordingBackend, number: int) -> bool:
    """Its request has reached the backend as the one with that number; otherwise it was refused or answered."""

    def is_told() -> bool:
        return bool(select.select([sock], [], [], 0)[0])

    eventually(lambda: len(backend.received) >= number or is_told(), "it is held or told", WAIT_S)
    return not is_told()


def test_at_the_connection_limit_idle_connections_make_room_for_new_ones(
    lone_gateway: Gateway, backend: RecordingBackend
) -> None:
    lone_gateway.serve(route_to(backend.address), limits={"maxConnections": 10})
    with request_under_way(lone_gateway, backend), connections(lone_gateway.clear[1], 50):
        assert [200] * 20 == [ask(lone_gateway.clear[1]).status_code for _ in range(20)]


@pytest.mark.parametrize(
    ("limits", "request_head", "status_code"),
    [
        ({"maxHeaderBytes": 4096}, b"GET / HTTP/1.1\r\nHost: a.example\r\nX: " + b"y" * 5000 + b"\r\n\r\n", 431),
        ({}, b"GET / HTTP/1.1\r\nHost: a.example\r\nX: " + b"y" * 70_000 + b"\r\n\r\n", 431),
        ({"maxUriBytes": 1024}, b"GET /" + b"y" * 2000 + b" HTTP/1.1\r\nHost: a.example\r\n\r\n", 414),
        ({}, b"GET /" + b"y" * 17_000 + b" HTTP/1.1\r\nHost: a.example\r\n\r\n", 414),
    ],
)
def test_heads_beyond_the_limits_are_refused(
    lone_gateway: Gateway, backend: RecordingBackend, limits: dict[str, int], request_head: bytes, status_code: int
) -> None:
    lone_gateway.serve(route_to(backend.address), limits=limits)
    with connections(lone_gateway.clear[1], 1) as (sock,):
        sock.sendall(request_head)

        assert read_to_end(sock).startswith(b"HTTP/1.1 %d" % status_code)
    assert [] == backend.received


def test_the_longest_timeouts_of_a_document_crash_no_worker(lone_gateway: Gateway, backend: RecordingBackend) -> None:
    names = ("header", "idle", "streamIdle", "connect", "request", "backendIdle")
    limits = {f"{name}Timeout": "99999h" for name in names}
    lone_gateway.serve(route_to(backend.address), limits=limits)
    workers = lone_gateway.worker_pids
    with connections(lone_gateway.clear[1], 1) as (sock,):
        for _ in range(2):
            sock.sendall(b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n")
            assert sock.recv(65536).startswith(b"HTTP/1.1 200")
    assert workers == lone_gateway.worker_pids


def test_an_http_2_client_that_sends_no_window_updates_stalls_its_own_stream_only(lone_gateway: Gateway) -> None:
    def pour(dialogue: Dialogue) -> None:
        while request := dialogue.read_request():
            dialogue.answer(b"x" * (8 * MIB if b"GET /large" in request else 10))

    with SocketBackend(pour) as backend:
        lone_gateway.serve(route_to(backend.address))
        with H2Client(lone_gateway.clear[1], grants_credit=False) as client:
            stuck = client.request("/large")
            client.wait_for(lambda: len(client.data(stuck)) == 65_535, "all that the windows allow")
        with H2Client(lone_gateway.clear[1]) as client:
            assert b"x" * 10 == client.body(client.request("/small"))


def test_fifty_rounds_of_every_kind_of_client_leave_nothing_open() -> None:
    """Descriptors and threads of both processes are as before; so is what the proxy counts as open."""
    with RecordingBackend() as backend, Gateway(workers=1) as gateway:
        gateway.serve(route_to(backend.address), limits={"backendIdleTimeout": "1s"})
        (worker,) = gateway.worker_pids
        tls = gateway.doors.authority.client_context("h2")
        one_round(gateway, tls)
        before = usage(gateway, worker)

        for _ in range(50):
            one_round(gateway, tls)

        end_s = time.monotonic() + WAIT_S
        after = usage(gateway, worker)
        while not all(map(operator.le, after, before)) and time.monotonic() < end_s:
            # Read once for loop and assertion: a client of the last round may be accepted late, and soon be gone.
            after = usage(gateway, worker)
        assert all(map(operator.le, after, before)), (after, before)


def usage(gateway: Gateway, worker: int) -> tuple[int, ...]:
    """Once the proxy counts nothing as open: a connection kept for the next request is no leak."""
    counts = ("tunnelgw_proxy_connections", "tunnelgw_proxy_backend_connections")
    eventually(lambda: not any(map(gateway.metric, counts)), "no connection is open", WAIT_S)
    pids = (worker, gateway.pid)
    return (*(len(list(open_descriptors(pid))) for pid in pids), *(thread_count(pid) for pid in pids))


def one_round(gateway: Gateway, tls: ssl.SSLContext) -> None:
    assert 200 == ask(gateway.clear[1]).status_code
    with H2Client(gateway.clear[1]) as client:
        client.head(client.request())
        client.request(end_stream=False)
        client.reset(client.request("/reset"))
    with H2Client(gateway.tls[1], tls) as client:
        client.head(client.request())
    with connections(gateway.clear[1], 3) as (half, gone, _):
        half.sendall(b"POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 10\r\n\r\nhalf")
        gone.sendall(b"GET / HTTP/1.1\r\n")
    with connections(gateway.tls[1], 1) as (sock,):
        sock.sendall(b"\x16\x03\x01\x00")


def test_a_few_clients_that_open_no_windows_cannot_fill_the_memory() -> None:
    """By itself, each of their thousand streams may hold half a MiB of its response."""
    clients_count, streams_count = 4, 250
    stuck, gone = threading.Semaphore(0), threading.Event()

    def pour(dialogue: Dialogue) -> None:
        if b"/large" not in (dialogue.read_request() or b""):
            dialogue.answer(b"ok")
            return
        dialogue.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 64 * 1024)
        dialogue.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (2 * MIB))
        dialogue.sock.settimeout(STUCK_S)
        with contextlib.suppress(TimeoutError):
            dialogue.send(bytes(2 * MIB))
        stuck.release()
        gone.wait(WAIT_S)

    with SocketBackend(pour) as backend, Gateway(workers=1) as gateway, contextlib.ExitStack() as stack:
        gateway.serve(route_to(backend.address))
        (worker,) = gateway.worker_pids
        before_bytes = resident_bytes(worker)
        for _ in range(clients_count):
            client = stack.enter_context(H2Client(gateway.clear[1], grants_credit=False))
            for _ in range(streams_count):
                client.request("/large")
        for _ in range(clients_count * streams_count):
            assert stuck.acquire(timeout=WAIT_S)

        assert resident_bytes(worker) - before_bytes < 192 * MIB
        assert ask(gateway.clear[1], "/small").body == b"ok"
        gone.set()
