"""Doors are opened and closed with the document, have limits, and drain."""

import errno
import gc
import json
import os
import select
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from h2.settings import SettingCodes

from proxy.doors.acceptor import Acceptor, Reserve
from proxy.doors.h1connection import DRAIN_S, FIRST_S, RECENT_S
from proxy.doors.synfilter import HANDSHAKE_S
from proxy.doors.turns import FULL_BYTES
from proxy.loop import Loop
from proxy.routing import socket_door
from tests.proxy.doors.h2client import H2Client
from tests.proxy.doors.rig import (
    WAIT_S,
    Rig,
    ask,
    connect,
    listening_socket,
    plain,
    port_of,
    read_all,
    read_all_or_reset,
    read_until,
    serving,
    table_of,
)
from tests.proxy.loop.sides import turns, until
from tests.support.deafness import deaf_socket, hear_again, wait_for_handshake
from tests.support.descriptors import open_descriptors
from tests.support.limits import out_of_descriptors
from tests.support.requirements import not_possible_here
from tests.support.watches import watches_refused

HELLO = b"\r\n\r\nhello\n"
SEND_BUFFER_BYTES = 64 * 1024
MORE_THAN_BUFFERS_BYTES = 2 * 1024 * 1024


# -- the document ------------------------------------------------------------------------------------------------------


def test_doors_are_opened_kept_and_retired_as_listeners_come_and_go() -> None:
    first, second = listening_socket(), listening_socket()
    ports = port_of(first), port_of(second)
    names = [socket_door("127.0.0.1", port) for port in ports]
    with Rig() as rig:
        rig.use(table_of(plain(ports[0])), {names[0]: first})
        with connect(ports[0]) as kept:
            ask(kept)
            read_until(kept, HELLO)
            both = table_of(plain(ports[0]), plain(ports[1], "two"))
            rig.use(both, {names[1]: second})
            with connect(ports[1]) as other:
                ask(other)
                assert read_until(other, HELLO)
            ask(kept, "/hold")
            rig.wait_for(lambda: bool(rig.services.held), "the held request")

            rig.use(table_of(plain(ports[1], "two")), {})
            with pytest.raises(ConnectionRefusedError):
                connect(ports[0])
            rig.call(rig.services.let_go)
            answer = read_all(kept)

        assert answer.endswith(HELLO)
        assert b"Connection: close\r\n" in answer


@pytest.mark.parametrize("protocol", ["http/1.1", "h2"])
@pytest.mark.parametrize(("target_bytes", "field_bytes", "refusal"), [(3000, 0, 414), (0, 6000, 431)])
@pytest.mark.parametrize(("before", "after"), [(2048, 4096), (4096, 2048)])
def test_the_limits_of_a_new_document_apply_to_connections_that_are_kept(
    protocol: str, target_bytes: int, field_bytes: int, refusal: int, before: int, after: int
) -> None:
    """Clients keep them for hours, and would be refused what has long been allowed."""

    def limits(size: int) -> dict[str, int]:
        return {"maxUriBytes": size, "maxHeaderBytes": 2 * size}

    path, value = "/hello".ljust(target_bytes, "?"), "f" * field_bytes
    with Rig(limits=limits(before)).open_plain() as rig, rig.connect() as client:
        change = table_of(plain(rig.port), limits=limits(after))
        if protocol == "h2":
            peer = H2Client(client)
            assert 200 == peer.get("/hello").status_code
            rig.use(change, {})
            peer.read_until(lambda: 2 * after == peer.h2.remote_settings.max_header_list_size)
            status_code = peer.answer(peer.ask(path, fields=[(b"f", value.encode())])).status_code
        else:
            ask(client)
            read_until(client, HELLO)
            rig.use(change, {})
            rig.pass_time(0)
            ask(client, path, f"F: {value}\r\n")
            status_code = int(client.recv(65536).split()[1])

    assert (200 if after > before else refusal) == status_code


def test_the_limits_of_a_new_document_apply_although_one_with_the_same_limits_follows_at_once() -> None:
    with Rig(limits={"maxUriBytes": 2048}).open_plain() as rig, rig.connect() as client:
        ask(client)
        read_until(client, HELLO)

        def use() -> None:
            for name in ("one", "two"):
                rig.doors.prepare(table_of(plain(rig.port, name), limits={"maxUriBytes": 4096}), {})()

        rig.call(use)
        rig.pass_time(0)
        ask(client, "/hello".ljust(3000, "?"))

        assert b"200" == client.recv(65536).split()[1]


def test_the_idle_timeout_of_a_new_document_applies_from_the_next_request_on_to_connections_that_are_kept() -> None:
    with Rig(limits={"idleTimeout": "1h"}).open_plain() as rig, rig.connect() as client, rig.connect() as h2_client:
        peer = H2Client(h2_client)
        ask(client)
        read_until(client, HELLO)
        peer.get("/hello")
        rig.use(table_of(plain(rig.port), limits={"idleTimeout": "5s"}), {})
        rig.pass_time(6)
        ask(client)
        read_until(client, HELLO)
        peer.get("/hello")
        rig.pass_time(6)

        assert b"" == read_all(client)
        peer.read_until(lambda: peer.is_closed)


def test_timeouts_of_0_s_mean_none() -> None:
    with serving(limits={"headerTimeout": "0s", "idleTimeout": "0s"}) as rig, rig.connect() as client:
        for _ in range(2):
            rig.pass_time(100_000)
            ask(client)
            assert read_until(client, HELLO)


def test_clients_in_the_accept_queue_are_served_before_a_door_closes() -> None:
    waiting = listening_socket()
    port = port_of(waiting)
    clients = [connect(port) for _ in range(100)]
    for client in clients:
        ask(client)
    with Rig() as rig:

        def open_and_drain() -> None:
            rig.doors.prepare(table_of(plain(port)), {socket_door("127.0.0.1", port): waiting})()
            rig.drain()

        rig.call(open_and_drain)
        for client in clients:
            answer = read_all(client)
            client.close()
            assert answer.endswith(HELLO)
            assert b"Connection: close\r\n" in answer
        assert rig.is_idle.wait(WAIT_S)


def test_a_door_without_a_socket_accepts_nothing_until_it_gets_one() -> None:
    sock = listening_socket()
    port = port_of(sock)
    name = socket_door("127.0.0.1", port)
    with Rig() as rig:
        rig.use(table_of(plain(port)), {})
        with connect(port) as client:
            ask(client)
            rig.call(lambda: None)
            assert 0 == rig.stats.door(name).accepted
            rig.use(table_of(plain(port)), {name: sock})
            assert read_until(client, HELLO)


def test_if_one_door_cannot_be_opened_the_others_are_unchanged() -> None:
    sound, broken = listening_socket(), listening_socket()
    ports = port_of(sound), port_of(broken)
    sockets = dict(zip((socket_door("127.0.0.1", port) for port in ports), (sound, broken), strict=True))
    both = table_of(plain(ports[0]), plain(ports[1], "two"))
    broken.close()
    with Rig() as rig:

        def fails() -> bool:
            with pytest.raises(OSError, match="Bad file descriptor"):
                rig.doors.prepare(both, sockets)
            return True

        assert rig.call(fails)
        with connect(ports[0]) as client:
            ask(client)
            rig.call(lambda: None)
            assert 0 == rig.stats.door(next(iter(sockets))).accepted
            rig.use(table_of(plain(ports[0])), {next(iter(sockets)): sound})
            assert read_until(client, HELLO)


def test_a_socket_without_a_listener_is_closed() -> None:
    sock = listening_socket()
    with Rig() as rig:
        rig.use(table_of(), {"127.0.0.1:1": sock})

        assert sock.fileno() < 0


def test_an_ipv4_client_has_an_ipv4_address_on_a_dual_stack_socket() -> None:
    if not socket.has_dualstack_ipv6():
        not_possible_here("this host has no IPv6")
    sock = socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True)
    port = port_of(sock)
    with Rig() as rig:
        rig.use(table_of({"name": "web", "port": port}), {socket_door("", port): sock})
        for host, expected in (("127.0.0.1", "127.0.0.1"), ("::1", "::1")):
            with socket.create_connection((host, port), timeout=WAIT_S) as client:
                ask(client)
                read_until(client, HELLO)
            assert expected == rig.services.begun.get(timeout=WAIT_S).client.arrival.address


# -- the end -----------------------------------------------------------------------------------------------------------


def test_draining_lets_running_exchanges_finish_and_closes_idle_connections() -> None:
    with serving() as rig, rig.connect() as idle, rig.connect() as busy, H2Client(rig.connect()) as client:
        ask(idle)
        read_until(idle, HELLO)
        ask(busy, "/hold")
        stream_id = client.ask("/hold")
        rig.wait_for(lambda: len(rig.services.held) == 2, "two held requests")

        rig.call(rig.drain)
        assert b"" == idle.recv(10)
        client.read_until(lambda: bool(client.goaways))
        assert not rig.is_idle.is_set()
        rig.call(rig.services.let_go)

        assert read_all(busy).endswith(HELLO)
        assert b"hello\n" == client.answer(stream_id).body
        client.read_until(lambda: client.is_closed)
        assert rig.is_idle.wait(WAIT_S)
        assert 0 == rig.door_stats.connections
        assert rig.services.gone.empty()


def test_draining_closes_at_once_a_connection_without_a_recent_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.doors.h1connection.DRAIN_S", 100.0)
    with serving() as rig, rig.connect() as client:
        ask(client)
        read_until(client, HELLO)
        rig.pass_time(RECENT_S + 1)
        rig.call(rig.drain)

        assert b"" == client.recv(10)


@pytest.mark.parametrize("idle_s", [0.0, RECENT_S + 1], ids=["in use", "idle for long"])
def test_a_request_unread_in_the_socket_when_draining_begins_is_answered(idle_s: float) -> None:
    with serving() as rig, rig.connect() as client:
        ask(client)
        read_until(client, HELLO)
        rig.pass_time(idle_s)

        def drain() -> None:
            # From within the loop's thread: it cannot have read this.
            ask(client)
            rig.drain()

        rig.call(drain)
        assert read_all(client).endswith(HELLO)


def test_a_request_that_crosses_with_the_drain_is_answered() -> None:
    with serving() as rig, rig.connect() as client:
        ask(client)
        read_until(client, HELLO)

        def drain() -> None:
            """In one turn of the loop: however late this thread is, the request is on its way in time."""
            rig.drain()
            ask(client)

        rig.call(drain)
        answer = read_all(client)
        assert answer.endswith(HELLO)
        assert b"Connection: close\r\n" in answer


@pytest.mark.parametrize("is_pipelined", [False, True])
def test_a_request_after_a_response_begun_before_the_drain_is_answered(is_pipelined: bool) -> None:
    """The head of that response did not announce the close."""
    with serving() as rig, rig.connect() as client:
        ask(client, "/begin")
        read_until(client, b"\r\n\r\n")
        rig.call(rig.drain)
        if is_pipelined:
            ask(client, "/hello")

        def end() -> None:
            """In one turn of the loop, as above."""
            rig.services.let_go()
            if not is_pipelined:
                ask(client, "/hello")

        rig.call(end)
        answer = read_all(client)
        assert answer.startswith(b"hello\nHTTP/1.1 200 OK\r\n")
        assert answer.endswith(HELLO)
        assert b"Connection: close\r\n" in answer
        assert rig.is_idle.wait(WAIT_S)


def test_a_client_whose_response_began_before_the_drain_is_closed_if_it_stays_idle(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("proxy.doors.h1connection.DRAIN_S", 100.0)
    with serving(limits={"idleTimeout": "1h"}) as rig, rig.connect() as client:
        ask(client, "/begin")
        read_until(client, b"\r\n\r\n")
        rig.call(rig.drain)
        rig.call(rig.services.let_go)
        read_until(client, b"hello\n")
        rig.pass_time(99)
        assert not rig.is_idle.is_set()

        rig.pass_time(1)
        assert b"" == client.recv(10)
        assert rig.is_idle.wait(WAIT_S)


def test_a_client_that_just_connected_before_the_drain_has_time_for_its_first_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    while_s = 100.0
    assert DRAIN_S < FIRST_S < while_s
    for name in ("FIRST_S", "RECENT_S"):
        monkeypatch.setattr(f"proxy.doors.h1connection.{name}", while_s)
    with serving(limits={"headerTimeout": "1h"}) as rig, rig.connect() as client, rig.connect() as silent:
        rig.wait_for_connections(2)
        rig.call(rig.drain)
        rig.pass_time(while_s / 2)
        ask(client)

        answer = read_all(client)
        assert answer.endswith(HELLO)
        assert b"Connection: close\r\n" in answer
        assert not rig.is_idle.is_set()
        rig.pass_time(while_s / 2)
        assert b"" == silent.recv(10)


def test_a_client_that_just_connected_before_the_drain_may_begin_with_http2_and_is_told_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("FIRST_S", "RECENT_S"):
        monkeypatch.setattr(f"proxy.doors.h1connection.{name}", 100.0)
    with serving(limits={"headerTimeout": "1h"}) as rig, rig.connect() as sock:
        rig.wait_for_connections(1)
        rig.call(rig.drain)

        with H2Client(sock) as client:
            assert b"hello\n" == client.get("/hello").body
            client.read_until(lambda: client.is_closed)
            assert client.goaways
        assert rig.is_idle.wait(WAIT_S)


def test_a_kept_connection_of_a_port_that_a_document_removes_gets_421_for_its_next_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Not what the port serves when it comes back: that may be for other clients."""
    monkeypatch.setattr("proxy.doors.h1connection.DRAIN_S", 100.0)
    monkeypatch.setattr("proxy.doors.h1connection.RECENT_S", 100.0)
    with Rig().open_plain() as rig, rig.connect() as client:
        ask(client)
        read_until(client, HELLO)
        rig.use(table_of(), {})
        ask(client)

        answer = read_all(client)
        assert answer.startswith(b"HTTP/1.1 421 ")
        assert b"\r\nConnection: close\r\n" in answer


def test_draining_waits_no_longer_than_the_header_timeout() -> None:
    with serving(limits={"headerTimeout": "2s"}) as rig, rig.connect() as silent:
        rig.wait_for_connections(1)
        rig.call(rig.drain)
        rig.pass_time(2)

        assert b"" == silent.recv(10)


def test_a_stream_opened_before_the_client_has_read_the_goaway_is_answered() -> None:
    with serving() as rig, H2Client(rig.connect()) as client:
        client.get("/hello")
        rig.call(rig.drain)
        # The client has not read the GOAWAY yet.
        stream_id = client.ask("/hello")

        assert b"hello\n" == client.answer(stream_id).body
        client.read_until(lambda: client.is_closed)


def test_a_worker_without_clients_is_not_idle_while_its_doors_are_open() -> None:
    with serving() as rig:
        for _ in range(2):
            with rig.connect() as client:
                ask(client)
                read_until(client, HELLO)
            rig.wait_for_connections(0)
            assert not rig.is_idle.is_set()
            assert rig.call(lambda: rig.doors._reserve._descriptor) >= 0, "kept for a lack of descriptors"

        rig.call(rig.drain)
        assert rig.is_idle.wait(WAIT_S)


class Door:
    """An acceptor and its owner; the test turns the loop."""

    def __init__(self) -> None:
        self.loop, self.reserve = Loop(), Reserve()
        waiting = listening_socket()
        self.port = port_of(waiting)
        self.accepted: list[socket.socket] = []
        self.acceptor = Acceptor(self.loop, waiting, self.reserve, self)

    def on_accepted(self, sock: socket.socket, _address: object) -> None:
        self.accepted.append(sock)

    def on_starved(self) -> None:
        raise AssertionError

    def close(self) -> None:
        for sock in self.accepted:
            sock.close()
        self.acceptor.close()
        self.reserve.close()
        self.loop.close()


@contextmanager
def door_with(clients: int, kind: type[Door] = Door) -> Iterator[Door]:
    """These wait in its queue."""
    with ExitStack() as stack:
        door = kind()
        stack.callback(door.close)
        for _ in range(clients):
            stack.enter_context(connect(door.port))
        yield door


@contextmanager
def accepted_connection() -> Iterator[socket.socket]:
    """The proxy's end of a client's connection."""
    with door_with(1) as door:
        door.loop.turn()
        (sock,) = door.accepted
        yield sock


def test_clients_that_wait_together_are_accepted_together() -> None:
    with door_with(3) as door:
        door.loop.turn()
        assert len(door.accepted) == 3


def test_a_door_that_is_taken_away_accepts_all_who_wait_first() -> None:
    with door_with(3) as door:
        closed: list[bool] = []
        door.acceptor.finish(lambda: closed.append(True))
        assert len(door.accepted) == 3
        door.acceptor.close()
        assert closed == [True]


def test_a_door_that_its_owner_closes_while_it_accepts_ends_without_an_error() -> None:
    class Shy(Door):
        def on_accepted(self, sock: socket.socket, address: object) -> None:
            super().on_accepted(sock, address)
            self.acceptor.close()

    with door_with(2, Shy) as door:
        door.loop.turn()
        assert len(door.accepted) == 1


def test_tcp_nodelay_is_set_on_accepted_connections() -> None:
    """Otherwise the end of each response would wait for the acknowledgement of the data before it."""
    with accepted_connection() as sock:
        assert 1 == sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_tcp_keepalive_is_set_on_accepted_connections() -> None:
    """Otherwise a client that vanishes would keep a silent WebSocket for ever where `streamIdleTimeout` is 0s."""
    with accepted_connection() as sock:
        assert 1 == sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)


@pytest.mark.usefixtures("with_an_error")
def test_a_door_that_the_kernel_does_not_watch_again_after_a_lack_of_descriptors_opens_once_it_does() -> None:
    class Owner:
        def on_accepted(self, sock: socket.socket, _address: object) -> None:
            accepted.append(sock)

        def on_starved(self) -> None:
            starved.append(True)

    accepted: list[socket.socket] = []
    starved: list[bool] = []
    loop, waiting, reserve = Loop(), listening_socket(), Reserve()
    acceptor = Acceptor(loop, waiting, reserve, Owner())
    with connect(port_of(waiting)):
        with out_of_descriptors():
            until(loop, lambda: bool(starved))
        with watches_refused(Acceptor, times=2) as refused, connect(port_of(waiting)):
            until(loop, lambda: bool(accepted))
            assert refused() == 2
    for sock in accepted:
        sock.close()
    acceptor.close()
    reserve.close()
    loop.close()


@pytest.mark.usefixtures("with_an_error")
def test_a_door_at_which_a_security_policy_refuses_clients_pauses_until_it_does_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The client stays in the queue, so that without a pause the loop would spin."""

    class Guarded(socket.socket):
        def accept(self) -> tuple[socket.socket, object]:
            tries.append(True)
            if refusals:
                code = refusals.pop()
                raise OSError(code, os.strerror(code))
            return super().accept()

    class Owner:
        def on_accepted(self, sock: socket.socket, _address: object) -> None:
            accepted.append(sock)

        def on_starved(self) -> None:
            raise AssertionError

    accepted: list[socket.socket] = []
    tries: list[bool] = []
    refusals = [errno.EPERM, errno.EACCES, errno.ENOSYS]
    passed_s = 0.0
    loop, reserve = Loop(lambda: passed_s), Reserve()
    acceptor = Acceptor(loop, Guarded(fileno=listening_socket().detach()), reserve, Owner())
    with connect(port_of(acceptor._sock)):
        for pauses in range(3):
            turns(loop)
            assert (len(tries), accepted) == (pauses + 1, [])
            passed_s += 0.2
        turns(loop)
    (sock,) = accepted
    sock.close()
    acceptor.close()
    reserve.close()
    loop.close()
    assert caplog.text.count("refused by a security policy") == 1


def test_draining_an_empty_worker_ends_after_the_time_for_tcp_handshakes() -> None:
    with serving() as rig:

        def drain() -> None:
            rig.drain()
            rig.hold_time(60)

        rig.call(drain)
        assert not rig.is_idle.is_set()

        rig.pass_time(60 + HANDSHAKE_S)
        assert rig.is_idle.is_set()
        with pytest.raises(ConnectionRefusedError):
            rig.connect()


def test_draining_a_worker_without_doors_ends_at_once() -> None:
    with Rig() as rig:
        rig.call(rig.drain)

        assert rig.is_idle.is_set()


def test_a_tcp_handshake_in_progress_when_draining_begins_is_completed() -> None:
    with serving() as rig, deaf_socket() as client:
        client.setblocking(False)
        client.connect_ex(("127.0.0.1", rig.port))
        wait_for_handshake(rig.port)

        def drain() -> None:
            rig.drain()
            rig.hold_time(60)

        rig.call(drain)
        hear_again(client)
        client.settimeout(WAIT_S)
        # The kernel retransmits what the client has not received, after a second.
        assert [client] == select.select([], [client], [], WAIT_S)[1]
        ask(client)
        read_until(client, HELLO)
        rig.pass_time(60 + HANDSHAKE_S)

        assert rig.is_idle.wait(WAIT_S)


def test_aborting_ends_the_wait_for_tcp_handshakes() -> None:
    with serving() as rig:

        def drain_and_abort() -> None:
            rig.drain()
            rig.doors.abort("grace period over")

        rig.call(drain_and_abort)

        assert rig.is_idle.is_set()
        with pytest.raises(ConnectionRefusedError):
            rig.connect()


@pytest.mark.parametrize("is_listener_removed", [False, True])
def test_aborting_closes_everything_and_notifies_running_exchanges(is_listener_removed: bool) -> None:
    with serving() as rig, rig.connect() as client, H2Client(rig.connect()) as other:
        ask(client, "/hold")
        other.ask("/hold")
        rig.wait_for(lambda: len(rig.services.held) == 2, "two held requests")
        if is_listener_removed:
            rig.use(table_of(), {})
        rig.call(rig.drain)
        rig.call(lambda: rig.doors.abort("grace period over"))

        assert ["grace period over"] * 2 == [rig.services.gone.get(timeout=WAIT_S) for _ in range(2)]
        assert b"" == read_all_or_reset(client)
        assert rig.is_idle.wait(WAIT_S)


# -- limits ------------------------------------------------------------------------------------------------------------


def test_two_hundred_idle_connections_are_kept_and_served() -> None:
    with serving() as rig:
        clients = [rig.connect() for _ in range(200)]
        for client in clients:
            ask(client)
            read_until(client, HELLO)
        rig.wait_for_connections(200)
        for client in reversed(clients):
            ask(client)
            assert read_until(client, HELLO)
            client.close()
        rig.wait_for_connections(0)
        assert (0, 200) == (rig.door_stats.connections, rig.door_stats.accepted)


def test_over_the_limit_the_longest_idle_connection_is_closed() -> None:
    with serving(limits={"maxConnections": 3}) as rig:
        clients = [rig.connect() for _ in range(3)]
        for client in (clients[1], clients[0], clients[2]):
            ask(client)
            read_until(client, HELLO)
        ask(clients[1], "/hold")
        rig.wait_for(lambda: bool(rig.services.held), "the held request")
        with rig.connect() as newcomer:
            ask(newcomer)
            assert read_until(newcomer, HELLO)
            assert b"" == clients[0].recv(10)
            ask(clients[2])
            assert read_until(clients[2], HELLO)
            # Found idle together with the one that was closed, it is in use by now.
            ask(clients[2], "/hold")
            rig.wait_for(lambda: len(rig.services.held) == 2, "another held request")
            with rig.connect() as latest:
                ask(latest)
                assert read_until(latest, HELLO)
                assert b"" == newcomer.recv(10)
        for client in clients:
            client.close()
        assert {} == rig.door_stats.refused


def test_over_the_limit_a_new_connection_is_refused_when_all_are_in_use() -> None:
    with serving(limits={"maxConnections": 2}) as rig, rig.connect() as one, rig.connect() as two:
        ask(one, "/hold")
        ask(two, "/hold")
        rig.wait_for(lambda: len(rig.services.held) == 2, "two held requests")
        with rig.connect() as newcomer:
            assert b"" == read_all_or_reset(newcomer)
        rig.call(rig.services.let_go)

        assert read_until(one, HELLO)
        assert {"limit": 1} == rig.door_stats.refused


def test_over_the_limit_a_client_that_is_still_reading_its_response_is_kept() -> None:
    rig = Rig(limits={"maxConnections": 1}).open_plain(send_buffer_bytes=SEND_BUFFER_BYTES)
    with rig, rig.connect() as slow:
        ask(slow, f"/bulk/{MORE_THAN_BUFFERS_BYTES}")
        response = rig.services.begun.get(timeout=WAIT_S)
        rig.wait_for(lambda: response.is_over, "the end of the response")
        with rig.connect() as newcomer:
            assert b"" == read_all_or_reset(newcomer)

        head, _, body = read_until(slow, b"\0" * 1000).partition(b"\r\n\r\n")
        while len(body) < MORE_THAN_BUFFERS_BYTES:
            body += read_until(slow, b"\0")

        assert head.startswith(b"HTTP/1.1 200 ")
        assert len(body) == MORE_THAN_BUFFERS_BYTES
        assert {"limit": 1} == rig.door_stats.refused


def narrow_connection(port: int) -> socket.socket:
    """The kernel buffers little of the unread data."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SEND_BUFFER_BYTES)
    sock.settimeout(WAIT_S)
    sock.connect(("127.0.0.1", port))
    return sock


def test_over_the_limit_an_http2_client_that_is_still_reading_its_response_is_kept() -> None:
    size_bytes = FULL_BYTES
    # All of it is sent in one turn, and the kernel buffers half at most.
    rig = Rig(limits={"maxConnections": 1}).open_plain(send_buffer_bytes=1)
    with rig, H2Client(narrow_connection(rig.port)) as slow:
        slow.h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: size_bytes})
        slow.h2.increment_flow_control_window(size_bytes)
        slow.get("/hello")
        stream_id = slow.ask(f"/bulk/{size_bytes}")
        _, response = (rig.services.begun.get(timeout=WAIT_S) for _ in range(2))
        rig.wait_for(lambda: response.is_over, "the end of the response")
        with rig.connect() as newcomer:
            assert b"" == read_all_or_reset(newcomer)

        assert len(slow.answer(stream_id).body) == size_bytes
        assert {"limit": 1} == rig.door_stats.refused


def test_fifty_rounds_leak_no_descriptor() -> None:
    # Otherwise descriptors left in cycles by other tests would be closed meanwhile.
    gc.collect()
    with serving() as rig:
        before: Counter[str] = Counter()
        for number in range(50):
            with rig.connect() as client, rig.connect() as broken, H2Client(rig.connect()) as other:
                ask(client)
                read_until(client, HELLO)
                broken.sendall(b"GET / HT")
                other.get("/hello")
                other.ask("/hold")
            rig.wait_for_connections(0)
            if number == 0:
                before = Counter(open_descriptors(os.getpid()))

        # Threads of other tests may still end meanwhile, and close their descriptors.
        assert not Counter(open_descriptors(os.getpid())) - before
        assert 0 == rig.door_stats.connections


SCARCE = """
import json, resource, sys
from tests.proxy.doors.rig import Rig, ask, read_until, serving, connect
from daemonkit import logs

logs.setup("info", "json")
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
with serving(limits={"maxConnections": 1000}) as rig:
    print(rig.port, flush=True)
    sys.stdin.readline()
    rig.wait_for(lambda: rig.door_stats.refused.get("descriptors", 0) > 0, "a lack of descriptors")
    print("scarce", flush=True)
    sys.stdin.readline()
    print(json.dumps(rig.door_stats.refused), flush=True)
"""


def test_without_descriptors_existing_clients_are_served_and_one_error_is_logged() -> None:
    root = Path(__file__).parents[3]
    process = subprocess.Popen(
        [sys.executable, "-c", SCARCE],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    clients = []
    try:
        port = int(process.stdout.readline())
        with connect(port) as first:
            ask(first, "/hold")
            for _ in range(80):
                clients.append(connect(port))
                ask(clients[-1], "/hold")
            process.stdin.write("\n")
            process.stdin.flush()
            assert "scarce\n" == process.stdout.readline()
            # Connections without a descriptor are accepted all the same, to be refused one after another.
            clients[-1].settimeout(3 * WAIT_S)
            assert b"" == read_all_or_reset(clients[-1])
            # When descriptors become free, others are served again.
            for client in clients:
                client.close()
            clients.clear()
            with connect(port) as late:
                ask(late)
                assert read_until(late, HELLO)
    finally:
        for client in clients:
            client.close()
        output, errors = process.communicate("\n", timeout=WAIT_S)
    lines = [json.loads(line) for line in errors.splitlines() if "cannot accept" in line]
    assert 1 == len(lines)
    assert "LimitNOFILE" in lines[0]["msg"]
    assert json.loads(output.splitlines()[-1])["descriptors"] >= 1
