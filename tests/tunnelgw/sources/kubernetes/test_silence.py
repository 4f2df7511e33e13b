"""A connection that the network has forgotten, and a slow server."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest
from kubernetes.client import Configuration

from tests.e2e.controller.fronts import Front
from tests.support.deafness import lose_data
from tests.tunnelgw.sources.objects import route
from tunnelgw.model.kinds import Kind
from tunnelgw.sources.kubernetes.failures import Unreachable
from tunnelgw.sources.kubernetes.server import ApiServer
from tunnelgw.sources.kubernetes.statuses import StatusWriter
from tunnelgw.sources.writing import Outcome, Written

FOR_EVER_S = 3600.0
WAIT_S = 120.0
WEBHOOK_S = 20.0
"""An API server waits up to 30 s for an admission webhook, by default 10 s."""


class ForgottenApi:
    """Answers one request on its only connection; all later data is lost."""

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
def test_a_request_that_does_not_arrive_fails_long_before_its_timeout(server: ApiServer) -> None:
    assert server.request("GET", "/version") == b"{}"

    with pytest.raises(Unreachable):
        server.request("PUT", "/status", body=b"{}", timeout_s=FOR_EVER_S)


@pytest.mark.timeout(WAIT_S)
def test_a_status_update_waits_for_slow_admission_webhooks() -> None:
    """The API server drops a write whose client has gone, so that retries would never succeed."""
    configuration = Configuration()
    with Front() as api, Front(api.url) as front, contextlib.closing(ApiServer(lambda: configuration)) as server:
        configuration.host = front.url
        api.answer(lambda _: True, 200)
        admission = front.hold(lambda _: True)
        threading.Timer(WEBHOOK_S, admission.release).start()

        written = StatusWriter(server).write(Kind.HTTP_ROUTE, route("web"), b"{}")

    assert written == Written(Outcome.WRITTEN)
