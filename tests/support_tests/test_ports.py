"""A port that a test reserves for a program is used by nobody else, even while the program does not run."""

from __future__ import annotations

import socket

import pytest

from tests.proxy.backend.servers import dead_port
from tests.support.controller import Controller
from tests.support.ports import LOOPBACK, ReservedPort
from tests.support.servers import nginx


def is_for_all(port: int) -> bool:
    with socket.socket() as sock:
        try:
            sock.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def test_a_reserved_port_can_be_used_by_one_server_only() -> None:
    with ReservedPort() as port:
        assert not is_for_all(port.number)
        with socket.create_server((LOOPBACK, port.number)) as server:
            with socket.create_connection((LOOPBACK, port.number)) as client, server.accept()[0] as accepted:
                assert accepted.getpeername() == client.getsockname()
            with pytest.raises(OSError, match="in use"):
                socket.create_server((LOOPBACK, port.number))


def test_a_stopped_controller_keeps_its_port() -> None:
    with Controller() as controller:
        controller.stop()
        assert not is_for_all(controller.port)
        controller.start()


def test_a_server_reserves_its_port_before_it_starts() -> None:
    server = nginx()
    port = int(server.address.rpartition(":")[2])
    assert not is_for_all(port)
    with server, socket.create_connection((LOOPBACK, port)):
        pass


def test_nobody_can_listen_on_a_dead_port() -> None:
    assert not is_for_all(dead_port())
