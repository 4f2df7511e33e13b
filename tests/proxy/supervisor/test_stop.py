"""The stop: running requests are finished, queued ones are served, and the grace period is the limit."""

from __future__ import annotations

import json
import signal
import socket
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest
import requests
from werkzeug.test import Client

from daemonkit.options import parse
from proxy.accesslog import AccessLogSettings
from proxy.control import Begin, Ready, Report
from proxy.options import COMMANDS, PREFIX, Options
from proxy.supervisor import main as supervisor
from proxy.supervisor.configuration import Configuration, Stopping
from proxy.supervisor.fleet import Fleet
from proxy.supervisor.slot import State
from proxy.supervisor.sockets import ListeningSockets
from tests.proxy.site import DEADLINE_S, Backend, Proxy, ask, eventually, fixed, forwarding, reserved_port
from tests.proxy.supervisor.begunput import BegunPut
from tests.proxy.supervisor.playedworker import PlayedWorker, begun_fleet_of
from tests.support.ports import LOOPBACK
from tests.support.socketbackend import SocketBackend


class Asking:
    """A request that runs in a thread of its own."""

    def __init__(self, port: int, path: str) -> None:
        self.response: requests.Response | None = None
        self.error: Exception | None = None
        self._thread = threading.Thread(target=self._ask, args=(port, path))
        self._thread.start()

    def _ask(self, port: int, path: str) -> None:
        try:
            self.response = ask(port, path)
        except requests.RequestException as error:
            self.error = error

    def join(self) -> None:
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive()


def test_a_running_request_is_finished_before_the_proxy_ends_with_code_0() -> None:
    with Backend() as backend, reserved_port() as port, Proxy("--workers", "2") as proxy:
        proxy.use(forwarding(port, backend.address))
        running = Asking(port, "/wait")
        assert backend.asked.wait(DEADLINE_S)

        proxy.send_signal(signal.SIGTERM)
        proxy.wait_for_message("stopped listening")
        assert proxy.readiness() == (503, "stopping")
        backend.release.set()

        running.join()
        assert running.response is not None
        assert running.response.text == "hello"
        assert proxy.wait(DEADLINE_S) == 0


def test_idle_connections_to_backends_are_closed_while_the_last_requests_finish() -> None:
    """A backend that stops at the same time would wait for them, for as long as our grace period."""
    with Backend() as slow, closing(SocketBackend()) as other, reserved_port() as port, Proxy() as proxy:
        document = forwarding(port, slow.address)
        aside = {"matches": [{"path": {"value": "/aside"}}], "backends": [{"address": other.address}]}
        proxy.use({**document, "routes": [{"rules": [aside]}, *document["routes"]]})
        assert ask(port, "/aside").text == "connection 1"
        running = Asking(port, "/wait")
        assert slow.asked.wait(DEADLINE_S)

        proxy.send_signal(signal.SIGTERM)
        other.wait_until_closed()
        slow.release.set()

        running.join()
        assert running.response is not None
        assert running.response.text == "hello"
        assert proxy.wait(DEADLINE_S) == 0


def test_a_first_document_put_during_a_stop_is_refused_as_stopping() -> None:
    """No worker is late: a rollout may end a Pod in its first second."""
    fleet = Fleet([Begin(0, "error", "json", AccessLogSettings("off", 1.0))])
    fleet.slots[0].state = State.RUNNING
    fleet.stop_is_near()

    with pytest.raises(Stopping, match="this proxy is stopping"):
        Configuration(fleet, ListeningSockets(1), None).put(b'{"routes": []}')


def test_a_document_is_refused_as_soon_as_readiness_reports_the_stop() -> None:
    """It was accepted until the daemon had notified its other parts."""
    arguments = ["--config-addr", "127.0.0.1:0", "--allow-unauthenticated-config"]
    _, options = parse(Options, prefix=PREFIX, argv=arguments, environ={}, commands=COMMANDS)
    fleet = Fleet([])
    configuration = Configuration(fleet, ListeningSockets(1), None)
    client = Client(supervisor._api(options, configuration, fleet, None)._app)

    fleet.stop_is_near()
    answer = client.put("/config", json={"routes": []})

    assert (answer.status_code, "this proxy is stopping" in answer.text) == (503, True)
    assert configuration.loaded is None


def test_a_worker_that_starts_after_the_ports_were_closed_is_not_killed_as_unresponsive(
    tmp_path: Path,
) -> None:
    file, worker = tmp_path / "document.json", PlayedWorker()
    with reserved_port() as port, begun_fleet_of(worker) as fleet:
        (slot,) = fleet.slots
        file.write_text(json.dumps(fixed(port)))
        configuration = Configuration(fleet, ListeningSockets(1), None)
        configuration.load_file(file)
        configuration.close_sockets()

        worker.says(Ready())
        eventually(lambda: slot.is_running, "the worker")
        asked = slot.report()
        worker.hears(Report)
        worker.reports(0)
        eventually(lambda: slot.reports >= asked, "all that it said")

        assert not worker.is_killed


def test_a_document_completed_while_the_proxy_stops_is_refused_and_binds_no_port() -> None:
    with Backend() as backend, reserved_port() as port, Proxy() as proxy:
        proxy.use(forwarding(port, backend.address))
        running = Asking(port, "/wait")
        assert backend.asked.wait(DEADLINE_S)
        with BegunPut(proxy, fixed(port)) as put:
            proxy.send_signal(signal.SIGTERM)
            proxy.wait_for_message("stopped listening")
            answer = put.finish()

        assert answer.startswith(b"HTTP/1.1 503")
        assert b"this proxy is stopping" in answer
        backend.release.set()
        running.join()
        assert proxy.wait(DEADLINE_S) == 0
        bound = [line for line in proxy.log if line["msg"] == "listening" and line["server"] == "listener"]
        assert len(bound) == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_proxy_with_a_config_file_stops_like_any_other(number: signal.Signals, tmp_path: Path) -> None:
    file = tmp_path / "document.json"
    with reserved_port() as port:
        file.write_text(json.dumps(fixed(port)), encoding="utf-8")
        with Proxy("--config", str(file)) as proxy:
            proxy.wait_for_message("started")

            proxy.send_signal(number)

            assert proxy.wait(DEADLINE_S) == 0
            proxy.wait_for_message("stopped")


def test_connections_and_documents_are_refused_after_the_listeners_have_closed() -> None:
    with Backend() as backend, reserved_port() as port, Proxy() as proxy:
        proxy.use(forwarding(port, backend.address))
        running = Asking(port, "/wait")
        assert backend.asked.wait(DEADLINE_S)
        proxy.send_signal(signal.SIGTERM)

        def is_refused() -> bool:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S).close()
            except ConnectionRefusedError:
                return True
            return False

        eventually(is_refused, "connections are refused")
        assert proxy.put({"routes": []}).status_code == 503
        backend.release.set()
        running.join()


def test_a_proxy_that_stops_exports_no_metrics_that_would_raise_alerts() -> None:
    """With a long grace period, requests may take an hour to end, and alerts fire after minutes."""
    up = "tunnelgw_proxy_worker_up"
    with Backend() as backend, reserved_port() as port, Proxy("--workers", "2") as proxy:
        proxy.use(forwarding(port, backend.address))
        running = Asking(port, "/wait")
        assert backend.asked.wait(DEADLINE_S)
        assert [proxy.metric(up, worker=each) for each in "01"] == [1, 1]

        proxy.send_signal(signal.SIGTERM)

        told = "the worker without requests has ended"
        eventually(lambda: {proxy.metric(up, worker=each) for each in "01"} == {1, None}, told)
        assert proxy.metric("tunnelgw_proxy_config_hash") is None
        assert proxy.metric("tunnelgw_proxy_config_version") == 1
        backend.release.set()
        running.join()


def test_requests_that_still_run_after_the_grace_period_are_aborted() -> None:
    with Backend() as backend, reserved_port() as port, Proxy("--grace-period", "1s") as proxy:
        proxy.use(forwarding(port, backend.address))
        running = Asking(port, "/wait")
        assert backend.asked.wait(DEADLINE_S)
        began_s = time.monotonic()

        proxy.send_signal(signal.SIGTERM)

        assert proxy.wait(DEADLINE_S) == 0
        assert time.monotonic() - began_s >= 1
        running.join()
        assert running.error is not None
        said = proxy.wait_for_message("grace period is over, aborting the remaining requests")
        assert said["requests"] == 1
        told = proxy.wait_for_message("request")
        assert (told["path"], told["status_code"]) == ("/wait", 0)


def test_a_response_that_is_cut_off_is_reset_and_logged_in_the_access_log() -> None:
    """To an HTTP/1.0 client, an orderly close of the connection would be the end of a complete response."""
    arguments = ("--grace-period", "1s", "--access-log", "all")
    with socket.create_server((LOOPBACK, 0)) as backend, reserved_port() as port, Proxy(*arguments) as proxy:
        proxy.use(forwarding(port, f"{LOOPBACK}:{backend.getsockname()[1]}"))
        with socket.create_connection((LOOPBACK, port), timeout=DEADLINE_S) as client:
            client.sendall(b"GET /half HTTP/1.0\r\nHost: a\r\n\r\n")
            backend.settimeout(DEADLINE_S)
            with backend.accept()[0] as served:
                served.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n")
                received = b""
                while b"hello" not in received:
                    received += client.recv(1024)

                proxy.send_signal(signal.SIGTERM)

                with pytest.raises(ConnectionResetError):
                    client.recv(1024)
        assert proxy.wait(DEADLINE_S) == 0
        told = proxy.wait_for_message("request")
    assert (told["path"], told["status_code"], told["detail"]) == ("/half", 200, "cut off, the proxy is stopping")


def test_during_the_shutdown_delay_the_proxy_serves_on_but_is_not_ready() -> None:
    # However long all of this takes; the signal at the end of the block ends it at once.
    with reserved_port() as port, Proxy("--shutdown-delay", "10m") as proxy:
        proxy.use(fixed(port))
        proxy.send_signal(signal.SIGTERM)
        proxy.wait_for_message("stopping")

        eventually(lambda: proxy.readiness() == (503, "stopping"), "not ready")
        assert proxy.readiness("direct") == (503, "stopping")
        assert ask(port).text == "fixed"
        refused = proxy.put(fixed(port, "other"))
        assert (refused.status_code, refused.json()["message"]) == (503, "this proxy is stopping")


def test_a_proxy_ends_by_itself_when_its_shutdown_delay_is_over() -> None:
    with reserved_port() as port, Proxy("--shutdown-delay", "1s") as proxy:
        proxy.use(fixed(port))
        began_s = time.monotonic()

        proxy.send_signal(signal.SIGTERM)

        assert proxy.wait(DEADLINE_S) == 0
        assert time.monotonic() - began_s >= 1


def test_a_second_signal_ends_everything_at_once() -> None:
    with Backend() as backend, reserved_port() as port:
        proxy = Proxy().start()
        proxy.use(forwarding(port, backend.address))
        running = Asking(port, "/wait")
        assert backend.asked.wait(DEADLINE_S)

        proxy.send_signal(signal.SIGTERM)
        proxy.wait_for_message("stopping")
        proxy.send_signal(signal.SIGTERM)

        assert proxy.wait(DEADLINE_S) == 1
        running.join()
        assert running.error is not None


def test_a_proxy_without_configuration_stops_at_once() -> None:
    with Proxy() as proxy:
        proxy.worker_pid()
        proxy.send_signal(signal.SIGINT)

        assert proxy.wait(DEADLINE_S) == 0
