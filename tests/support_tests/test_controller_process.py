"""Life cycle of the simulated controller: restart, leaks, TLS, many connections, and running as another process."""

import gc
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import requests

from tests.support.controller import Controller, generated_drafts
from tests.support.descriptors import open_descriptors
from tests.support_tests.callers import TIMEOUT_S, Caller, a_record

ROOT = Path(__file__).parents[2]


def test_the_controller_restarts_on_the_same_port_with_its_rows(controller: Controller) -> None:
    controller.add_row("app.example.com", "A", "192.0.2.1")
    url = controller.url
    with Caller(controller) as caller:
        caller.v2("GET")

        controller.stop()
        with pytest.raises(requests.ConnectionError):
            caller.v2("GET")
        controller.start()

        assert (controller.url, len(caller.v2("GET").json())) == (url, 1)


def test_fifty_rounds_leave_neither_threads_nor_descriptors() -> None:
    def held() -> Counter[object]:
        # Objects that earlier tests left in reference cycles do not count.
        gc.collect()
        return Counter([*threading.enumerate(), *open_descriptors(os.getpid())])

    def round_trip() -> None:
        with Controller() as controller, Caller(controller) as caller:
            caller.v2("GET")
            idle = socket.create_connection(("127.0.0.1", controller.port))
            controller.release_hangs()
            controller.stop()
            idle.close()

    round_trip()
    before = held()
    for _ in range(50):
        round_trip()

    # Nor do those of theirs that end meanwhile.
    assert not held() - before


def test_a_connection_is_kept_alive_and_pipelined_requests_are_answered_in_order(controller: Controller) -> None:
    request = f"GET /_sim/rows HTTP/1.1\r\nHost: x\r\n\r\nGET /nowhere HTTP/1.1\r\nHost: {controller.port}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", controller.port), TIMEOUT_S) as sock:
        sock.sendall(request.encode())
        received = b""
        while b"</html>" not in received:
            received += sock.recv(65536)

    assert received.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"HTTP/1.1 404 Not Found\r\n" in received


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", b"411"),
        (b"POST / HTTP/1.1\r\nContent-Length: x\r\n\r\n", b"400"),
        (b"POST / HTTP/1.1\r\nContent-Length: 99999999\r\n\r\n", b"413"),
        (b"nonsense\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nX: " + b"x" * 70_000, b"431"),
    ],
)
def test_unacceptable_requests_are_answered_with_an_error_status(
    controller: Controller, request_bytes: bytes, status: bytes
) -> None:
    with socket.create_connection(("127.0.0.1", controller.port), TIMEOUT_S) as sock:
        sock.sendall(request_bytes)
        received = sock.recv(65536)

    assert received.split(b" ")[1] == status


def test_two_hundred_concurrent_clients_are_served(controller: Controller) -> None:
    def create(number: int) -> int:
        with Caller(controller) as caller:
            return caller.v2("POST", content=a_record(f"host-{number}.example.com")).status_code

    with ThreadPoolExecutor(50) as pool:
        statuses = list(pool.map(create, range(200)))

    assert statuses == [200] * 200
    assert controller.resolver_reloads == len(controller.rows()) == 200


def test_tls_is_trusted_through_its_authority_and_known_by_its_fingerprint() -> None:
    with Controller(uses_tls=True) as controller, Caller(controller) as caller:
        caller.session.verify = str(controller.ca_pem_path)

        assert caller.v2("GET").json() == []
        assert len(controller.fingerprint_sha256) == 64
        caller.session.verify = True
        with pytest.raises(requests.exceptions.SSLError, match="certificate verify failed"):
            caller.call("GET", controller.url.replace("127.0.0.1", "localhost"))


def test_the_certificate_can_be_issued_for_the_wrong_name() -> None:
    with (
        Controller(uses_tls=True, certificate_names=("unifi.local",)) as controller,
        Caller(controller) as caller,
        pytest.raises(requests.exceptions.SSLError, match=r"not valid for|doesn't match"),
    ):
        caller.v2("GET", verify=str(controller.ca_pem_path))


def test_25000_rows_are_listed_by_both_apis(caller: Caller) -> None:
    caller.controller.add_rows(generated_drafts(25_000))

    assert len(caller.v2("GET").json()) == 25_000
    assert caller.policies("GET", "?offset=24999&limit=200").json()["count"] == 1


class Process:
    """The simulator as another process, controlled through its admin API."""

    def __init__(self, *arguments: str) -> None:
        command = [sys.executable, "-m", "tests.support.controller", *arguments]
        self.process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().strip()
        self.session = requests.Session()

    def call(self, method: str, path: str, content: object = None) -> requests.Response:
        return self.session.request(method, self.url + path, json=content, timeout=TIMEOUT_S)

    def close(self) -> int:
        self.session.close()
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(TIMEOUT_S)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Process]:
    rows = tmp_path / "rows.json"
    rows.write_text(
        json.dumps([{"key": "printer.example.com", "type": "A", "value": "192.0.2.9", "origin": "DERIVED"}])
    )
    process = Process("--rows", str(rows), "--generate", "3", "--api-key", "secret", "--flavour", "unifi-os")
    try:
        process.session.headers["X-API-KEY"] = "secret"
        yield process
    finally:
        assert process.close() == 0


def test_as_a_process_the_controller_serves_the_given_rows(process: Process) -> None:
    listing = process.call("GET", "/proxy/network/v2/api/site/default/static-dns").json()

    assert len(listing) == 3
    assert [row["origin"] for row in process.call("GET", "/_sim/rows").json()] == ["DERIVED"] + ["USER_DEFINED"] * 3


def test_as_a_process_the_controller_is_controlled_and_inspected_over_http(process: Process) -> None:
    collection = "/proxy/network/v2/api/site/default/static-dns"
    effect = {"type": "Reply", "status": 503}
    assert process.call("POST", "/_sim/faults", {"effect": effect, "scope": {"on": "list", "count": 1}}).ok
    assert process.call("PATCH", "/_sim/quirks", {"accepts_cname_overlap": True}).ok
    assert process.call("PUT", "/_sim/latency", {"latency_s": 0.001}).ok
    assert process.call("POST", "/_sim/rows", [{"key": "a.example.com", "type": "A", "value": "192.0.2.1"}]).ok

    assert [process.call("GET", collection).status_code for _ in range(2)] == [503, 200]
    cname = {"key": "a.example.com", "record_type": "CNAME", "value": "b.example.com"}
    assert process.call("POST", collection, cname).status_code == 200

    state = process.call("GET", "/_sim/state").json()
    assert (state["resolver_reloads"], state["resolver_is_broken"], state["writes"]["create"]) == (1, True, 1)
    assert {"api": "v2", "operation": "list", "status": 503, "count": 1} in state["calls"]
    assert (state["latency_s"], state["quirks"]["accepts_cname_overlap"], state["faults"]) == (0.001, True, [])
    assert [call["status"] for call in process.call("GET", "/_sim/log").json()] == [503, 200, 200]
    for path in ("reset", "release-hangs", "expire-sessions"):
        assert process.call("POST", f"/_sim/{path}").ok
    assert process.call("DELETE", "/_sim/rows").ok
    assert process.call("GET", "/_sim/state").json()["rows"] == 0


@pytest.mark.parametrize(
    ("method", "path", "content", "status"),
    [
        ("POST", "faults", {"effect": {"type": "Unknown"}}, 400),
        ("POST", "faults", {"effect": {"type": "Reset"}, "scope": {"on": "creat"}}, 400),
        ("PATCH", "quirks", {"unknown": True}, 400),
        ("POST", "rows", [{"key": "a"}], 400),
        ("GET", "rows?site=unknown", None, 400),
        ("GET", "nothing", None, 404),
    ],
)
def test_an_invalid_request_to_the_admin_api_is_refused_with_the_reason(
    caller: Caller, method: str, path: str, content: object, status: int
) -> None:
    answer = caller.call(method, f"{caller.controller.url}/_sim/{path}", content)

    assert answer.status_code == status
    assert answer.json()["error"]


def test_help_names_every_option() -> None:
    command = [sys.executable, "-m", "tests.support.controller", "--help"]
    shown = subprocess.run(command, cwd=ROOT, env=os.environ, capture_output=True, text=True, check=True)

    for option in ("--port", "--flavour", "--version", "--api-key", "--latency-s", "--rows", "--generate", "--tls"):
        assert option in shown.stdout
