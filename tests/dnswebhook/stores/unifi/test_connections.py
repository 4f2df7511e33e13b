"""The pool of connections: which of them are reused, and what is never sent on one."""

import contextlib
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial

import pytest
from urllib3.connection import HTTPConnection

from dnswebhook.stores.unifi import connections, sockets
from dnswebhook.stores.unifi.connections import Pool

WAIT_S = 30.0
HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n"
LASTING, LAST = HEAD + b"\r\n[]", HEAD + b"Connection: close\r\n\r\n[]"


class Peer:
    """Answers each request with `answer`; records the requests and the connections."""

    def __init__(self) -> None:
        self.answer = LASTING
        self.heads: list[bytes] = []
        self.accepted: list[socket.socket] = []
        self.gate = threading.Event()
        self.gate.set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                sock, _ = self._listener.accept()
                self.accepted.append(sock)
                self._threads.append(threading.Thread(target=self._serve, args=(sock,)))
                self._threads[-1].start()

    def _serve(self, sock: socket.socket) -> None:
        with sock, contextlib.suppress(OSError):
            while head := sock.recv(65536):
                self.heads.append(head)
                self.gate.wait(WAIT_S)
                sock.sendall(self.answer)

    def hang_up(self) -> None:
        """Close every connection, and return when they are closed."""
        for sock in self.accepted:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        for thread in self._threads[1:]:
            thread.join(WAIT_S)

    def stop(self) -> None:
        self.gate.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._threads[0].join(WAIT_S)
        self.hang_up()


@pytest.fixture
def peer() -> Iterator[Peer]:
    with contextlib.ExitStack() as stack:
        one = Peer()
        stack.callback(one.stop)
        yield one


@pytest.fixture
def opened() -> list[HTTPConnection]:
    """Every connection that the pool has opened."""
    return []


@pytest.fixture
def pool(peer: Peer, opened: list[HTTPConnection]) -> Iterator[Pool]:
    def open_one() -> HTTPConnection:
        opened.append(connections.http("127.0.0.1", peer.port))
        return opened[-1]

    with contextlib.closing(Pool(open_one, max_idle=2, max_reply_bytes=1000)) as one:
        yield one


def get(pool: Pool, target: str = "/") -> bytes:
    return pool.exchange("GET", target, {"Accept": "application/json"}, b"", WAIT_S).data


def get_at_once(pool: Pool, peer: Peer, count: int) -> None:
    """`count` exchanges, all of them under way before the first is answered."""
    arrived = len(peer.heads) + count
    peer.gate.clear()
    threads = [threading.Thread(target=partial(get, pool)) for _ in range(count)]
    threads.append(threading.Thread(target=_open_when, args=(peer, arrived)))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)


def _open_when(peer: Peer, arrived: int) -> None:
    for _ in range(int(WAIT_S / 0.01)):
        if len(peer.heads) >= arrived:
            break
        threading.Event().wait(0.01)
    peer.gate.set()


def test_the_zone_of_a_link_local_address_is_not_sent_to_the_peer(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    def connect(_host: str, port: int, timeout_s: float) -> socket.socket:
        return socket.create_connection(("127.0.0.1", port), timeout_s)

    monkeypatch.setattr(sockets, "connect", connect)
    open_one = partial(connections.http, "fe80::1%eth0", peer.port)

    with contextlib.closing(Pool(open_one, max_idle=1, max_reply_bytes=1000)) as pool:
        get(pool)

    assert f"\r\nHost: [fe80::1]:{peer.port}\r\n".encode() in peer.heads[0]


def test_consecutive_exchanges_share_one_connection(pool: Pool, opened: list[HTTPConnection]) -> None:
    assert [b"[]"] * 20 == [get(pool) for _ in range(20)]
    assert 1 == len(opened)


def test_a_connection_that_the_peer_has_closed_is_replaced(
    pool: Pool, peer: Peer, opened: list[HTTPConnection]
) -> None:
    get(pool)
    peer.hang_up()

    assert b"[]" == get(pool)
    assert [False, True] == [one.is_connected for one in opened]


@pytest.mark.parametrize("answer", [LAST, LASTING + b"HTTP/1.1 200 OK\r\n"], ids=["close", "excess"])
def test_a_connection_that_cannot_be_reused_is_closed(
    pool: Pool, peer: Peer, opened: list[HTTPConnection], answer: bytes
) -> None:
    peer.answer = answer

    assert [b"[]"] * 3 == [get(pool) for _ in range(3)]
    assert [None] * 3 == [one.sock for one in opened]


def test_a_connection_whose_exchange_failed_is_closed(pool: Pool, peer: Peer, opened: list[HTTPConnection]) -> None:
    get(pool)
    peer.gate.clear()
    with pytest.raises(TimeoutError):
        pool.exchange("GET", "/", {}, b"", 0.1)
    peer.gate.set()

    assert b"[]" == get(pool)
    assert opened[0].sock is None


def test_after_an_unanswered_exchange_no_idle_connection_is_reused(
    pool: Pool, peer: Peer, opened: list[HTTPConnection]
) -> None:
    get_at_once(pool, peer, 2)
    peer.gate.clear()
    with pytest.raises(TimeoutError):
        pool.exchange("GET", "/", {}, b"", 0.1)
    peer.gate.set()

    assert b"[]" == get(pool)
    assert [False, False, True] == [one.sock is not None for one in opened]


def test_no_more_connections_than_allowed_are_kept(pool: Pool, peer: Peer, opened: list[HTTPConnection]) -> None:
    get_at_once(pool, peer, 5)

    assert 5 == len(opened)
    assert 2 == sum(one.sock is not None for one in opened)


class Idle(deque[HTTPConnection]):
    """Runs `meanwhile`, as far as possible, once it has been decided that one more connection is kept."""

    meanwhile: Callable[[], object]

    def append(self, connection: HTTPConnection) -> None:
        self.meanwhile()
        super().append(connection)


def test_no_more_connections_than_allowed_are_kept_when_several_are_returned_at_once(
    pool: Pool, peer: Peer, opened: list[HTTPConnection]
) -> None:
    together = threading.Barrier(5)

    def wait_for_the_others() -> None:
        with contextlib.suppress(threading.BrokenBarrierError):
            together.wait(0.3)

    pool._idle = Idle()
    pool._idle.meanwhile = wait_for_the_others
    get_at_once(pool, peer, 5)

    assert 5 == len(opened)
    assert 2 == sum(one.sock is not None for one in opened)


def test_a_connection_returned_while_the_pool_is_closed_is_closed_too(pool: Pool, opened: list[HTTPConnection]) -> None:
    closing = threading.Thread(target=pool.close)

    def close() -> None:
        closing.start()
        closing.join(0.3)

    pool._idle = Idle()
    pool._idle.meanwhile = close
    get(pool)
    closing.join(WAIT_S)

    assert [None] == [one.sock for one in opened]


class Sought(deque[HTTPConnection]):
    """A connection is taken whenever it has been checked whether there is one."""

    def __len__(self) -> int:
        count = super().__len__()
        with contextlib.suppress(IndexError):
            self.pop().close()
        return count


def test_a_pool_whose_last_connection_is_taken_while_it_is_closed_closes_without_error(
    pool: Pool, opened: list[HTTPConnection]
) -> None:
    get(pool)
    pool._idle = Sought(pool._idle)

    pool.close()

    assert [None] == [one.sock for one in opened]


def test_a_closed_pool_keeps_none(pool: Pool, opened: list[HTTPConnection]) -> None:
    get(pool)
    pool.close()
    get(pool)

    assert [None, None] == [one.sock for one in opened]


def test_no_row_id_can_break_out_of_the_request_line(pool: Pool, peer: Peer) -> None:
    get(pool, "/rows/a b\r\nX-Evil: 1\r\n\r\nGET /ü#x?site=a%20b")

    line, _, fields = peer.heads[0].partition(b"\r\n")
    assert b"GET /rows/a%20b%0D%0AX-Evil:%201%0D%0A%0D%0AGET%20/%C3%BC%23x?site=a%20b HTTP/1.1" == line
    assert b"X-Evil" not in fields
