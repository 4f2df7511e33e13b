"""What operators rely on when a proxy with a tunnel starts, waits, loses the edge and stops, with its real log."""

from __future__ import annotations

import base64
import datetime
import itertools
import json
import re
import signal
import threading
import time
from pathlib import Path
from typing import Self

import pytest
import requests

from tests.e2e.tunnel.connector import BOOTSTRAP_LINE, REGISTERED_LINE, RETRY_LINE, WAITING_LINE, Connector
from tests.support.daemon import Daemon, LogLine
from tests.support.edge.authority import EdgeAuthority
from tests.support.edge.behaviour import Behaviour, busy, unauthorized
from tests.support.edge.edge import Edge
from tests.support.gateway import route_to
from tests.support.recordingbackend import Received, RecordingBackend, Reply

EXIT_S = 20.0
LATE_S = 1.0
"""How late a line may be written on a busy machine."""
BOOTSTRAP_FIELDS = ["time", "level", "msg", "error", "attempt", "delay_s", "edge"]


def cap_s(attempt: int) -> float:
    return min(30.0, 2.0**attempt)


def malformed_tokens() -> list[str]:
    """One for each kind of fault; tests/proxy/tunnel/test_token.py has them all."""
    secret = base64.b64encode(b"a very secret secret").decode()
    whole = {"a": "acct", "t": "99999999-8888-7777-6666-555555555555", "s": secret}
    contents = [
        {**whole, "t": "no-uuid"},
        {**whole, "s": "not base64!"},
        {key: value for key, value in whole.items() if key != "a"},
        [secret],
    ]
    encoded = [base64.b64encode(json.dumps(content).encode()).decode() for content in contents]
    return ["not base64!", base64.b64encode(b"{").decode(), *encoded]


@pytest.mark.parametrize("token", malformed_tokens())
def test_a_malformed_token_ends_the_process_with_one_line_that_does_not_contain_it(token: str) -> None:
    with Daemon("proxy", ["run", "--config-addr", "127.0.0.1:0"], {"TUNNEL_TOKEN": token}) as proxy:
        assert proxy.wait(EXIT_S) == 1
        (line,) = proxy.log
        assert (line["level"], line["msg"]) == ("ERROR", "refusing to start with a broken tunnel token")
        assert token not in "\n".join(proxy.lines)
        assert "very secret" not in "\n".join(proxy.lines)


@pytest.mark.parametrize("blank", ["", " \n"])
def test_a_token_that_is_set_but_empty_is_fatal(blank: str, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(blank)
    for env in ({"TUNNEL_TOKEN": blank}, {"TUNNEL_TOKEN_FILE": str(file)}):
        with Daemon("proxy", ["run", "--config-addr", "127.0.0.1:0"], env) as proxy:
            assert proxy.wait(EXIT_S) == 1
            (line,) = proxy.log
            assert (line["level"], line["msg"]) == ("ERROR", "refusing to start with a broken tunnel token")
            assert "empty" in line["error"]


def seconds_of(line: LogLine) -> float:
    return datetime.datetime.fromisoformat(line["time"]).timestamp()


class Watch:
    """Polls readiness; `answers` are the responses in order, without repetitions."""

    def __init__(self, proxy: Connector) -> None:
        self._proxy = proxy
        self._over = threading.Event()
        self.answers: list[tuple[int, str]] = []
        self._thread = threading.Thread(target=self._look, daemon=True)

    def _look(self) -> None:
        while not self._over.wait(0.05):
            answer = self._proxy.readiness()
            if self.answers[-1:] != [answer]:
                self.answers.append(answer)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


@pytest.mark.timeout(240)
def test_an_edge_unreachable_for_ten_seconds_is_dialled_until_it_answers(
    backend: RecordingBackend, tmp_path: Path
) -> None:
    # From the start: a document pushed later would end the wait of that moment.
    document = tmp_path / "document.json"
    document.write_text(json.dumps({"listeners": [], "routes": [route_to(backend.address)]}))
    with Edge() as edge:
        edge.refuse()
        with Connector(edge, arguments=["--config", str(document)]) as proxy:
            first = proxy.wait_for_message(BOOTSTRAP_LINE)
            with Watch(proxy) as watch:
                proxy.wait_for_log(
                    lambda line: line.get("msg") == BOOTSTRAP_LINE and seconds_of(line) >= seconds_of(first) + 10,
                    "an attempt ten seconds later",
                    60,
                )
                assert not proxy.lines_of(REGISTERED_LINE)
                edge.admit()
                admitted_at_s = time.time()
                edge.wait_for_registered(1, 60)
                proxy.wait_for_message(REGISTERED_LINE)
                assert proxy.readiness() == (200, "ready")
            assert watch.answers[0] == (503, "no edge connection is registered yet")
            assert watch.answers[1:] in ([], [(200, "ready")])
            assert proxy.ask().status_code == 200
            lines = proxy.lines_of(BOOTSTRAP_LINE)
            assert [line["attempt"] for line in lines] == list(range(1, len(lines) + 1))
            assert all(list(line) == BOOTSTRAP_FIELDS for line in lines)
            assert all(0 <= line["delay_s"] <= cap_s(line["attempt"]) for line in lines)
            due_s = itertools.accumulate((line["delay_s"] for line in lines), initial=seconds_of(first) - LATE_S)
            assert all(seconds_of(line) >= least_s for line, least_s in zip(lines, due_s, strict=False)), "as it said"
            assert all(line["error"] == "Connection refused" for line in lines)
            assert {line["edge"] for line in lines} <= set(edge.addresses)
            assert sum(seconds_of(line) > admitted_at_s for line in lines) <= 1, "found at the next attempt"
            assert not proxy.lines_of(RETRY_LINE)


@pytest.mark.parametrize(
    ("behaviour", "said"),
    [
        (Behaviour(refusal=unauthorized()), "Unauthorized: Invalid tunnel secret"),
        (Behaviour(refusal=busy(0.1)), "try later"),
        (Behaviour(exception="a bug of the edge"), "a bug of the edge"),
        # Python 3.11 reports a reset under TLS as EOF.
        (Behaviour(drops_at_register=True), "the edge closed the connection|Connection reset by peer"),
        (Behaviour(refusal=unauthorized("Unauthorized: Tunnel not found"), closes_refused=False), "Tunnel not found"),
    ],
    ids=["unauthorized", "try later", "exception", "dropped", "refused and kept open"],
)
def test_a_failed_registration_is_retried_until_it_succeeds(
    behaviour: Behaviour, said: str, backend: RecordingBackend
) -> None:
    with Edge() as edge:
        edge.behave(behaviour)
        with Connector(edge) as proxy:
            proxy.put(proxy.document(route_to(backend.address), listeners=[]))
            last = proxy.wait_for_message(BOOTSTRAP_LINE, 60, attempt=2)
            assert re.search(said, last["error"])
            assert proxy.readiness() == (503, "no edge connection is registered yet")

            edge.behave()

            edge.wait_for_registered(1, 60)
            registrations = edge.ledger.registrations
            lines = proxy.lines_of(BOOTSTRAP_LINE)
            assert [line["attempt"] for line in lines] == list(range(1, len(lines) + 1))
            assert all(0 <= line["delay_s"] <= cap_s(line["attempt"]) for line in lines)
            assert len({registration.options.client.client_id for registration in registrations}) == 1
            tries = [registration.options.previous_attempts for registration in registrations]
            assert tries == list(range(tries[0], tries[0] + len(tries)))
            assert edge.tunnel.token not in "\n".join(proxy.lines)


def test_without_a_document_the_edge_is_reached_but_nothing_registered(backend: RecordingBackend) -> None:
    with Edge() as edge, Connector(edge) as proxy:
        proxy.wait_for_message(WAITING_LINE)
        assert proxy.readiness() == (503, "no configuration is loaded yet")
        assert not edge.ledger.registrations

        proxy.put(proxy.document(route_to(backend.address), listeners=[]))

        edge.wait_for_registered(1)
        assert proxy.ask("/first").status_code == 200
        assert len(proxy.lines_of(WAITING_LINE)) == 1
        assert not proxy.lines_of(BOOTSTRAP_LINE)


def test_register_without_config_registers_without_a_document() -> None:
    with Edge() as edge, Connector(edge, arguments=["--register-without-config"]) as proxy:
        edge.wait_for_registered(1)
        assert proxy.ask().status_code == 404
        assert proxy.readiness() == (503, "no configuration is loaded yet")


def test_a_certificate_of_an_unknown_authority_is_logged_with_its_issuer(
    tmp_path: Path, backend: RecordingBackend
) -> None:
    stranger = tmp_path / "ca.pem"
    stranger.write_bytes(EdgeAuthority.make("Somebody Else").pem)
    with Edge(authority=EdgeAuthority.make("The Seen Issuer")) as edge, Connector(edge, ca_file=str(stranger)) as proxy:
        line = proxy.wait_for_message(BOOTSTRAP_LINE)
        assert "not trusted" in line["error"]
        assert "The Seen Issuer" in line["error"]
        assert "--edge-ca-file" in line["error"]


def test_a_certificate_for_another_name_is_refused() -> None:
    with Edge(server_names=["quic.cftunnel.com"]) as edge, Connector(edge) as proxy:
        assert "h2.cftunnel.com" in proxy.wait_for_message(BOOTSTRAP_LINE)["error"]


def test_a_proxy_serves_and_loads_documents_while_the_edge_is_unreachable(backend: RecordingBackend) -> None:
    with Edge() as edge, Connector(edge) as proxy:
        listeners = [*proxy.doors.listeners(), {"name": "tunnel", "tunnel": True}]
        proxy.serve(route_to(backend.address), listeners=listeners)
        proxy.wait_for_message(REGISTERED_LINE)

        edge.stop()

        proxy.wait_for_message(RETRY_LINE)
        assert proxy.readiness() == (503, "all edge connections are lost")
        assert proxy.readiness("direct") == (200, "ready"), "a balancer of the direct door has to keep it"
        direct = f"http://127.0.0.1:{proxy.doors.clear.number}/direct"
        assert requests.get(direct, timeout=10).status_code == 200
        assert proxy.serve(route_to(backend.address, name="other"), listeners=listeners)["changed"]
        edge.start()
        edge.wait_for_registered(1, 60)
        assert proxy.ask().status_code == 200
        assert not proxy.lines_of(BOOTSTRAP_LINE)


def test_sigterm_ends_the_wait_for_the_next_attempt() -> None:
    with Edge() as edge:
        edge.behave(Behaviour(refusal=busy(EXIT_S)))
        with Connector(edge, arguments=["--register-without-config"]) as proxy:
            line = proxy.wait_for_message(BOOTSTRAP_LINE, 60)
            assert line["delay_s"] >= EXIT_S
            proxy.send_signal(signal.SIGTERM)
            assert proxy.wait(line["delay_s"]) == 0


def test_a_stop_does_not_wait_for_an_unresponsive_edge(backend: RecordingBackend) -> None:
    with Edge() as edge, Connector(edge, arguments=["--grace-period", "60s"]) as proxy:
        proxy.put(proxy.document(route_to(backend.address), listeners=[]))
        (record,) = edge.wait_for_registered(1)
        edge.stop_reading(record)
        proxy.send_signal(signal.SIGTERM)
        assert proxy.wait(45) == 0


def test_a_stop_ends_with_the_grace_period_whatever_is_in_flight() -> None:
    gate = threading.Event()

    def never(_: Received) -> Reply:
        gate.wait(EXIT_S)
        return Reply()

    with RecordingBackend(respond=never) as backend, Edge() as edge:
        with Connector(edge, arguments=["--grace-period", "1s"]) as proxy:
            proxy.put(proxy.document(route_to(backend.address), listeners=[]))
            (record,) = edge.wait_for_registered(1)
            call = edge.call("/endless", record=record)
            backend.wait_for_requests(1)
            proxy.send_signal(signal.SIGTERM)
            assert proxy.wait(EXIT_S) == 0
            proxy.wait_for_message("grace period is over, aborting the remaining requests")
            call.wait_until_lost()
        gate.set()


def test_a_stop_unregisters_and_lets_requests_finish(backend: RecordingBackend) -> None:
    with Edge() as edge, Connector(edge, connections=2) as proxy:
        proxy.put(proxy.document(route_to(backend.address), listeners=[]))
        edge.wait_for_registered(2)
        for index in range(2):
            # The edge has sent its response, which may not have been read yet.
            proxy.wait_for_message(REGISTERED_LINE, conn_index=index)
        record = edge.ledger.registered[0]
        call = edge.call("/slow", "POST", [(b"content-length", b"4")], end_stream=False, record=record)
        call.send(b"fo")
        edge.wait_for(lambda: record.streams == 1, "the request")

        proxy.send_signal(signal.SIGTERM)

        edge.wait_for(lambda: edge.ledger.unregistrations == 2, "both unregistrations")
        assert proxy.readiness()[0] == 503
        late = edge.call("/late", record=record)
        assert late.response().status_code == 200, "the edge sends requests for a moment still"
        call.send(b"ur", True)
        assert call.response().status_code == 200
        assert b'"body_bytes": 4' in call.read_all()
        assert proxy.wait(EXIT_S) == 0
        assert not proxy.lines_of(RETRY_LINE)
