"""New documents do not affect what is under way: a download and WebSockets survive a hundred of them."""

import hashlib
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
from websockets.sync.client import connect as connect_websocket

from tests.support.asking import ask, connect
from tests.support.gateway import Gateway, route_to
from tests.support.ports import LOOPBACK, ReservedPort
from tests.support.socketbackend import Dialogue, SocketBackend
from tests.support.websocketpeer import WebSocketServer

SWAPS = 100
STEP = bytes(range(256)) * 64


def test_a_download_and_a_websocket_survive_a_hundred_swaps_that_remove_their_routes(gateway: Gateway) -> None:
    """The backend sends a part for each swap, so the download spans all of them."""
    swapped = threading.Semaphore(0)

    def send_a_part_for_each_swap(dialogue: Dialogue) -> None:
        dialogue.read_request()
        dialogue.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (SWAPS * len(STEP)))
        for _ in range(SWAPS):
            assert swapped.acquire(timeout=20)
            dialogue.send(STEP)

    with SocketBackend(send_a_part_for_each_swap) as backend, WebSocketServer() as server, SocketBackend() as other:
        download = route_to(backend.address, name="download", hostnames=["a.example"])
        sockets = route_to(server.address, name="sockets", hostnames=["localhost"])
        gateway.serve(download, sockets)
        connection = connect(gateway.clear[1])
        connection.request("GET", "/", headers={"Host": "a.example"})
        response = connection.getresponse()
        uri = f"ws://localhost:{gateway.clear[1]}/"
        with connect_websocket(uri, proxy=None, legacy=True) as websocket:
            for number in range(SWAPS):
                routes = (download, sockets) if number % 2 else (route_to(other.address, name=f"other-{number}"),)
                gateway.serve(*routes)
                swapped.release()
                websocket.send(f"message {number}")
                assert f"message {number}" == websocket.recv(20)

        body = response.read()
        connection.close()
        gateway.serve(route_to(other.address))
        assert 200 == ask(gateway.clear[1]).status_code

    assert hashlib.sha256(STEP * SWAPS).digest() == hashlib.sha256(body).digest()


def test_a_kept_connection_follows_the_new_document(gateway: Gateway) -> None:
    with SocketBackend() as backend:
        connection = connect(gateway.clear[1])
        gateway.serve(route_to(backend.address))
        assert 200 == ask(0, connection=connection).status_code
        gateway.serve()
        assert 404 == ask(0, connection=connection).status_code
        gateway.serve(route_to(backend.address))
        assert 200 == ask(0, connection=connection).status_code
        connection.close()


def test_a_listener_is_bound_when_added_and_released_when_removed(gateway: Gateway) -> None:
    with SocketBackend() as backend, ReservedPort() as port:
        more = {"name": "more", "address": LOOPBACK, "port": port.number}
        for _ in range(3):
            gateway.serve(route_to(backend.address), listeners=[*gateway.doors.listeners(), more])
            assert 200 == ask(port.number).status_code
            gateway.serve(route_to(backend.address))
            with pytest.raises(ConnectionRefusedError):
                ask(port.number)


def test_a_request_that_is_authorized_after_its_backend_has_left_is_still_forwarded_there(gateway: Gateway) -> None:
    """Nobody has asked that backend before."""
    is_asked, is_swapped = threading.Event(), threading.Event()

    def allow_after_the_swap(dialogue: Dialogue) -> None:
        while dialogue.read_request():
            is_asked.set()
            assert is_swapped.wait(20)
            dialogue.answer()

    with (
        SocketBackend(allow_after_the_swap) as authorizer,
        SocketBackend(partial(answer_with, b"before")) as backend,
        SocketBackend(partial(answer_with, b"after")) as successor,
        ThreadPoolExecutor(1) as threads,
    ):
        gateway.serve(route_to(backend.address, filters={"externalAuth": {"backend": {"address": authorizer.address}}}))
        asking = threads.submit(ask, gateway.clear[1])
        assert is_asked.wait(20)
        gateway.serve(route_to(successor.address))
        later = ask(gateway.clear[1])
        is_swapped.set()

        assert (200, b"before") == (asking.result(20).status_code, asking.result().body)
        assert b"after" == later.body


def answer_with(body: bytes, dialogue: Dialogue) -> None:
    while dialogue.read_request():
        dialogue.answer(body)
