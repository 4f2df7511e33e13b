"""Large bodies through the tunnel, and clients that are slow to read them: their memory, and delays of others.

`make limits-tunnel` does the same with 1 GiB.
"""

from __future__ import annotations

import contextlib
import hashlib
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from proxy.h2 import Settings
from proxy.worker.freeheap import WORTH_BYTES
from tests.e2e.tunnel.connector import Connector
from tests.support.asking import ask, connect
from tests.support.edge.behaviour import Behaviour
from tests.support.edge.edge import Edge
from tests.support.gateway import resident_bytes, route_to
from tests.support.socketbackend import Dialogue, SocketBackend

MIB = 1 << 20
SIZE_BYTES = 64 * MIB
MOST_BYTES = 16 * MIB
SLOW_CLIENTS = 20
STUCK_CLIENTS = 1_000
KEPT_BYTES = WORTH_BYTES + MOST_BYTES
STUCK_S = 1.0
WAIT_S = 30.0


@pytest.fixture(scope="module")
def proxy() -> Iterator[Connector]:
    """With one worker and one connection, which all requests share."""
    with Edge() as edge, Connector(edge) as proxy:
        proxy.serve()
        edge.wait_for_registered(1)
        yield proxy


def block(number: int) -> bytes:
    """A MiB that encodes its position."""
    return number.to_bytes(4, "big") * (MIB // 4)


def test_a_large_download_is_complete_and_takes_little_memory(proxy: Connector) -> None:
    def pour(dialogue: Dialogue) -> None:
        dialogue.read_request()
        dialogue.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % SIZE_BYTES)
        for number in range(SIZE_BYTES // MIB):
            dialogue.send(block(number))

    with SocketBackend(pour) as backend:
        proxy.serve(route_to(backend.address))
        (worker,) = proxy.worker_pids
        before_bytes, most_bytes = resident_bytes(worker), 0
        connection = connect(proxy.clear[1])
        connection.request("GET", "/", headers={"Host": "a.example"})
        response = connection.getresponse()

        for number in range(SIZE_BYTES // MIB):
            assert response.read(MIB) == block(number)
            most_bytes = max(most_bytes, resident_bytes(worker))

        assert response.read() == b""
        connection.close()
    assert most_bytes - before_bytes < MOST_BYTES


@pytest.mark.parametrize("framing", ["length", "chunks"])
def test_a_large_upload_is_complete_and_takes_little_memory(proxy: Connector, framing: str) -> None:
    def digest(dialogue: Dialogue) -> None:
        found = hashlib.sha256()
        dialogue.read_until(b"\r\n\r\n")
        for _ in range(SIZE_BYTES // MIB):
            found.update(dialogue.read_exactly(MIB))
        dialogue.answer(found.digest())

    def digest_chunks(dialogue: Dialogue) -> None:
        found = hashlib.sha256()
        dialogue.read_until(b"\r\n\r\n")
        while size_bytes := int(dialogue.read_until(b"\r\n"), 16):
            found.update(dialogue.read_exactly(size_bytes))
            dialogue.read_exactly(2)
        dialogue.read_exactly(2)
        dialogue.answer(found.digest())

    with SocketBackend(digest if framing == "length" else digest_chunks) as backend:
        proxy.serve(route_to(backend.address))
        (worker,) = proxy.worker_pids
        before_bytes, most_bytes = resident_bytes(worker), 0
        sent = hashlib.sha256()

        def blocks() -> Iterator[bytes]:
            nonlocal most_bytes
            for number in range(SIZE_BYTES // MIB):
                sent.update(block(number))
                yield block(number)
                most_bytes = max(most_bytes, resident_bytes(worker))

        length = {"Content-Length": str(SIZE_BYTES)} if framing == "length" else {}
        connection = connect(proxy.clear[1])
        connection.request("POST", "/", blocks(), {"Host": "a.example", **length})

        assert connection.getresponse().read() == sent.digest()
        connection.close()
    assert most_bytes - before_bytes < MOST_BYTES


def test_clients_that_read_nothing_delay_no_other_and_take_little_memory(proxy: Connector) -> None:
    """Their streams are stalled on the connection that the others share."""
    stuck, gone = threading.Semaphore(0), threading.Event()

    def pour_until_stuck(dialogue: Dialogue) -> None:
        dialogue.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % SIZE_BYTES)
        dialogue.sock.settimeout(STUCK_S)
        with contextlib.suppress(TimeoutError):
            dialogue.send(bytes(SIZE_BYTES))
            raise AssertionError("all of it was taken")
        stuck.release()
        gone.wait(WAIT_S)

    def talk(dialogue: Dialogue) -> None:
        while request := dialogue.read_request():
            if b"/slow" in request.partition(b"\r\n")[0]:
                pour_until_stuck(dialogue)
                return
            dialogue.answer(b"ok")

    with SocketBackend(talk) as backend:
        proxy.serve(route_to(backend.address))
        (worker,) = proxy.worker_pids
        before_bytes = resident_bytes(worker)
        slow = [proxy.edge.call("/slow") for _ in range(SLOW_CLIENTS)]
        for _ in slow:
            assert stuck.acquire(timeout=WAIT_S)

        for _ in range(50):
            assert ask(proxy.clear[1], "/quick").body == b"ok"

        assert all(call.response().status_code == 200 for call in slow)
        assert resident_bytes(worker) - before_bytes < MOST_BYTES
        gone.set()
        for call in slow:
            call.reset()


def test_memory_for_clients_that_read_nothing_is_returned_when_they_have_gone() -> None:
    def pour(dialogue: Dialogue) -> None:
        dialogue.read_request()
        dialogue.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % MIB)
        with contextlib.suppress(OSError):
            dialogue.send(block(0))

    def wait_until(is_there: Callable[[int], bool], what: str) -> None:
        end_s = time.monotonic() + WAIT_S
        while not is_there(resident_bytes(worker) - before_bytes):
            assert time.monotonic() < end_s, f"never came: {what}; {resident_bytes(worker) - before_bytes} bytes more"
            assert proxy.is_ready()

    with Edge() as edge, SocketBackend(pour) as backend, contextlib.ExitStack() as stack:
        edge.behave(Behaviour(h2_settings=Settings(stream_window_bytes=65_535)))
        proxy = stack.enter_context(Connector(edge))
        proxy.serve(route_to(backend.address))
        edge.wait_for_registered(1)
        (worker,) = proxy.worker_pids
        before_bytes = resident_bytes(worker)
        calls = [edge.call() for _ in range(STUCK_CLIENTS)]
        for call in calls:
            call.wait_for_head()
        wait_until(lambda more_bytes: more_bytes > KEPT_BYTES + MOST_BYTES, "the responses in the worker")
        for call in calls:
            call.reset()

        wait_until(lambda more_bytes: more_bytes < KEPT_BYTES, "the memory's return")
