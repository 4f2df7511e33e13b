"""A name comes to lead to another host: which connections go on, and until when."""

import socket
import threading

import pytest

from proxy.backend import resolver
from tests.proxy.backend.h2peer import speaks
from tests.proxy.backend.names import Names, named
from tests.proxy.backend.servers import Behaviour, Conn, backend
from tests.proxy.backend.world import Owed, World, world

MOVABLE = pytest.mark.parametrize(("protocol", "behaviour"), [("http", Conn.serve), ("h2c", speaks())])


def look_up_again(w: World) -> None:
    """Returns when the pools know the answer."""
    told = w.told + 1
    w.pass_time(resolver.RENEW_S)
    w.until(lambda: w.told == told)
    w.turns()


@MOVABLE
def test_requests_follow_a_name_to_another_host_although_connections_to_the_last_one_are_kept(
    protocol: str, behaviour: Behaviour
) -> None:
    with backend(behaviour) as before, backend(behaviour) as after:
        names = Names((before.host, before.port))
        with world(names) as w:
            w.clock.stop()
            w.use(named(protocol=protocol), backend_idle_timeout="0s")
            w.fetch()
            # The name is looked up although no connection is opened.
            for _ in range(13):
                look_up_again(w)
            w.fetch()
            assert (before.connections, after.connections) == (1, 0)
            names.addresses = ((after.host, after.port),)
            look_up_again(w)

            assert w.fetch().status_code == 200
            assert (before.connections, after.connections, w.backend().connections) == (1, 1, 1)


@MOVABLE
def test_connections_to_an_address_that_a_name_still_leads_to_are_kept(protocol: str, behaviour: Behaviour) -> None:
    with backend(behaviour) as peer, backend(behaviour) as other:
        names = Names((peer.host, peer.port))
        with world(names) as w:
            w.clock.stop()
            w.use(named(protocol=protocol), backend_idle_timeout="0s")
            w.fetch()
            names.addresses = ((other.host, other.port), (peer.host, peer.port))
            look_up_again(w)
            # What a resolver says that is down, or that lacks the name for a moment, ends no connection.
            for fault in (socket.EAI_AGAIN, socket.EAI_NONAME):
                names.addresses, names.fault = None, fault
                look_up_again(w)

            assert w.fetch().status_code == 200
            assert (peer.connections, other.connections) == (1, 0)


def test_a_request_ends_on_the_connection_that_it_began_on_although_its_name_leads_to_another_host() -> None:
    may_end = threading.Event()

    def wait(conn: Conn) -> None:
        while conn.request() is not None:
            conn.send(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\no")
            assert may_end.wait(10)
            conn.send(b"k")

    with backend(wait) as before, backend() as after:
        names = Names((before.host, before.port))
        with world(names) as w:
            w.clock.stop()
            w.use(named())
            running = w.get()
            w.until(lambda: bool(running.body))
            names.addresses = ((after.host, after.port),)
            look_up_again(w)
            may_end.set()
            w.until(lambda: running.is_over)

            assert bytes(running.body) == b"ok"
            assert w.fetch().status_code == 200
            assert (before.connections, after.connections, w.backend().connections) == (1, 1, 1)


def test_a_complete_request_that_is_cancelled_is_sent_although_its_name_leads_to_another_host() -> None:
    body = bytes(1_000_000)
    has_moved = threading.Event()
    taken: list[bytes | None] = []

    def take_late(conn: Conn) -> None:
        assert has_moved.wait(10)
        conn.send(b"HTTP/1.1 102 Processing\r\n\r\n")
        taken.append(conn.request())

    with backend(take_late) as before, backend() as after:
        names = Names((before.host, before.port))
        with world(names) as w:
            w.use(named(), connect_timeout="1h")
            answer = w.get(method=b"POST", fields=[(b"content-length", b"%d" % len(body))], end_stream=False)
            w.until(lambda: answer.is_open_told == 1)
            assert answer.request is not None
            owed = Owed()
            answer.request.send_data(body, True, owed)
            w.until(lambda: owed.released_bytes == len(body))
            answer.request.cancel()
            names.addresses = ((after.host, after.port),)
            look_up_again(w)
            has_moved.set()
            w.until(lambda: bool(taken))

            assert taken[0] is not None
            assert taken[0].endswith(body)


def test_a_connection_that_is_about_to_be_ready_carries_its_request_although_its_name_leads_to_another_host() -> None:
    """An active health check has no other connection, and would fail."""
    may_greet = threading.Event()

    def wait(conn: Conn) -> None:
        assert may_greet.wait(10)
        speaks()(conn)

    with backend(wait) as before, backend(speaks()) as after:
        names = Names((before.host, before.port))
        with world(names) as w:
            w.clock.stop()
            w.use(named(protocol="h2c"), connect_timeout="1h")
            answer = w.get()
            w.until(lambda: before.connections == 1 and w.backend().connections == 1)
            names.addresses = ((after.host, after.port),)
            look_up_again(w)
            may_greet.set()
            w.until(lambda: answer.is_over)

            assert answer.status_code == 200
            assert (before.connections, after.connections) == (1, 0)
