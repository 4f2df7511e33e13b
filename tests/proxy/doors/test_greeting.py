"""TLS clients that do not get as far as a request: plain HTTP, silence, half a handshake."""

import re
import socket
import threading
from pathlib import Path

import pytest

from proxy.doors.greeting import Greeting
from proxy.doors.peeking import Peeking
from proxy.loop import Handshake
from tests.proxy.doors.rig import Rig, ask, read_all, read_all_or_reset
from tests.proxy.doors.tlsrig import A, TLSRig, client_context, client_hello, https, status_of
from tests.proxy.loop.keyupdates import key_updates
from tests.support.watches import watches_refused


def test_plain_http_on_a_tls_door_is_answered_400() -> None:
    with TLSRig().open(https("l", A)) as rig, rig.connect() as client:
        ask(client)

        answer = read_all(client)
        assert answer.startswith(b"HTTP/1.1 400 ")
        assert b"https" in answer
        assert re.search(rb"\r\nDate: \w{3}, [^\r]+ GMT\r\n", answer)


@pytest.mark.parametrize("first", [b"", b"\x16\x03", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc"])
def test_a_client_that_does_not_finish_its_hello_is_closed_after_the_header_timeout(first: bytes) -> None:
    with TLSRig().open(https("l", A), limits={"headerTimeout": "50ms"}) as rig, rig.connect() as client:
        client.sendall(first)

        assert b"" == read_all_or_reset(client)
        rig.wait_for_connections(0)
        assert {"header_timeout": 1} == rig.door_stats.refused


def test_a_client_that_stops_after_its_hello_is_closed_after_the_header_timeout() -> None:
    with TLSRig().open(https("l", A), limits={"headerTimeout": "100ms"}) as rig, rig.connect() as client:
        client.sendall(client_hello())
        read_all_or_reset(client)

        rig.wait_for_connections(0)
        assert {"header_timeout": 1} == rig.door_stats.refused


def test_the_timeout_for_a_handshake_ends_with_it() -> None:
    with TLSRig().open(https("l", A), limits={"headerTimeout": "10s"}) as rig, rig.handshake() as client:
        assert status_of(client) == 200
        rig.pass_time(11)

        assert status_of(client) == 200
        assert rig.door_stats.refused == {}


def test_a_client_that_closes_within_its_hello_is_closed() -> None:
    with TLSRig().open(https("l", A)) as rig:
        for size_bytes in (0, 3, 100):
            with rig.connect() as client:
                client.sendall(client_hello()[:size_bytes])
                client.shutdown(socket.SHUT_WR)
                assert b"" == read_all_or_reset(client)
        rig.wait_for_connections(0)


def test_a_hello_that_comes_byte_by_byte_does_not_keep_the_loop_busy() -> None:
    with TLSRig().open(https("l", A)) as rig, rig.connect() as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        data = client_hello()
        client.sendall(data[:60])
        rig.wait_for_connections(1)
        turns = rig.call(lambda: _Turns(rig))
        assert not turns.are_many.wait(0.2)
        for place in range(60, len(data)):
            client.sendall(data[place : place + 1])

        assert b"\x16" == client.recv(1)


def test_waiting_for_a_hello_in_parts_does_not_spin_even_if_rcvlowat_is_ignored() -> None:
    """The kernel reports any part while it is short of socket memory, whatever SO_RCVLOWAT says."""
    with TLSRig().open(https("l", A)) as rig, rig.connect() as client:
        data = client_hello()
        client.sendall(data[:100])

        def waits_for_the_rest() -> bool:
            return any(isinstance(one, Greeting) and one._peeking.wanted_bytes > 100 for one in rig.doors._registry)

        rig.wait_for(waits_for_the_rest, "a look at the first part")

        def tell_of_any_part() -> _Turns:
            (greeting,) = rig.doors._registry
            assert isinstance(greeting, Greeting)
            greeting._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
            return _Turns(rig)

        turns = rig.call(tell_of_any_part)
        assert not turns.are_many.wait(0.2)
        client.sendall(data[100:])

        assert b"\x16" == client.recv(1)


def test_a_client_that_only_sends_key_updates_does_not_block_the_loop(tmp_path: Path) -> None:
    context, secrets = client_context(), tmp_path / "secrets"
    context.keylog_filename = str(secrets)
    with TLSRig().open(https("l", A)) as rig, rig.handshake(context=context) as client:
        turns = rig.call(lambda: _Turns(rig))
        socket.socket.sendall(client, key_updates(200, client, secrets))

        assert turns.are_many.wait(10)


class _Turns:
    """Counts the turns of a loop by its selects."""

    def __init__(self, rig: Rig) -> None:
        self.are_many = threading.Event()
        turn, self._count = rig.loop.turn, 0

        def counted() -> None:
            self._count += 1
            if self._count > 50:
                self.are_many.set()
            turn()

        rig.loop.turn = counted  # type: ignore[method-assign]


@pytest.mark.parametrize("part", [Peeking, Handshake])
def test_a_client_that_the_kernel_does_not_watch_is_closed_even_without_a_header_timeout(part: type) -> None:
    with (
        TLSRig().open(https("l", A), limits={"headerTimeout": "0s"}) as rig,
        watches_refused(part),
        rig.connect() as client,
    ):
        client.sendall(client_hello())

        assert b"" == read_all_or_reset(client)
        rig.wait_for_connections(0)
        assert {"tls": 1} == rig.door_stats.refused
