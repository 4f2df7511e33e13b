"""A connection that the network has forgotten. What takes its time by nature, in a file of its own."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest
from kubernetes.client import Configuration

from tests.support.deafness import lose_data
from tunnelgw.sources.kubernetes.server import ApiServer, Unreachable

FOR_EVER_S = 3600.0
WAIT_S = 120.0


class ForgottenApi:
    """Answers one request on its only connection; whatever comes after that is lost."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def configuration(self) -> Configuration:
        configuration = Configuration()
        configuration.host = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        return configuration

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            sock, _ = self._listener.accept()
            with sock:
                sock.recv(65536)
                lose_data(sock)
                sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
                self._over.wait(WAIT_S)

    def stop(self) -> None:
        self._over.set()
        self._listener.close()
        self._thread.join(WAIT_S)


@pytest.fixture
def server() -> Iterator[ApiServer]:
    api = ForgottenApi()
    with contextlib.closing(ApiServer(api.configuration)) as server:
        yield server
    api.stop()


@pytest.mark.timeout(WAIT_S)
def test_a_request_that_does_not_arrive_ends_long_before_the_time_for_its_answer(server: ApiServer) -> None:
    assert server.request("GET", "/version") == b"{}"

    with pytest.raises(Unreachable):
        server.request("PUT", "/status", body=b"{}", timeout_s=FOR_EVER_S)
