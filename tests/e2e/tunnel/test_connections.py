"""Connections of the tunnel: how many, from which worker, how they end and how they are reestablished."""

from __future__ import annotations

import os
import signal
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import requests

from proxy.tunnel.failures import FailureCause
from tests.e2e.tunnel.connector import BOOTSTRAP_LINE, REGISTERED_LINE, RETRY_LINE, Connector
from tests.support.edge.behaviour import DUPLICATE, Behaviour, Hang, busy, unauthorized
from tests.support.edge.edge import Edge
from tests.support.edge.ledger import Record
from tests.support.edge.tunnels import new_tunnel
from tests.support.gateway import route_to
from tests.support.socketbackend import Dialogue, SocketBackend

ADDRESSES = ("127.0.0.1:0",) * 4
HEAL_S = 60.0


@pytest.fixture
def edge() -> Iterator[Edge]:
    with Edge(ADDRESSES) as edge:
        yield edge


FIXED = {"name": "fixed", "rules": [{"respond": {"statusCode": 200}}]}


def begin(proxy: Connector, connections: int = 1) -> list[Record]:
    proxy.put(proxy.document(FIXED, listeners=[]))
    for index in range(connections):
        # The edge notices first.
        proxy.wait_for_message(REGISTERED_LINE, HEAL_S, conn_index=index)
    return proxy.edge.wait_for_registered(connections, HEAL_S)


def test_connections_are_spread_over_workers_and_addresses(edge: Edge) -> None:
    with Connector(edge, connections=4, workers=2) as proxy:
        records = begin(proxy, 4)
        assert len({record.address for record in records}) == 4
        assert sorted(record.registration.conn_index for record in records) == [0, 1, 2, 3]
        assert len({record.registration.options.client.client_id for record in records}) == 1
        assert records[0].registration.conn_index == 0

        lines = [proxy.wait_for_message(REGISTERED_LINE, conn_index=index) for index in range(4)]
        assert sorted(line["worker"] for line in lines) == [0, 0, 1, 1]
        assert proxy.metric("tunnelgw_proxy_tunnel_connection_up") == 4
        assert proxy.metric("tunnelgw_proxy_tunnel_connection_info", location="LIS", worker="1") == 2
        for _ in range(8):
            assert proxy.ask().status_code == 200
        assert proxy.metric("tunnelgw_proxy_tunnel_requests_total") == 8
        assert proxy.metric("tunnelgw_proxy_tunnel_received_bytes_total") > 0


def test_there_are_no_more_connections_than_addresses() -> None:
    with Edge(("127.0.0.1:0",)) as edge, Connector(edge, connections=4) as proxy:
        begin(proxy)
        line = proxy.wait_for_message("fewer edge addresses than connections wanted")
        assert (line["addresses"], line["connections"]) == (1, 4)
        assert proxy.readiness() == (200, "ready")
        assert len(edge.ledger.records) <= 2


def test_connections_of_a_dead_worker_are_taken_over_by_the_others(edge: Edge) -> None:
    with Connector(edge, connections=2, workers=2) as proxy:
        begin(proxy, 2)
        pid = proxy.wait_for_message("worker started", worker=0)["pid"]

        os.kill(pid, signal.SIGKILL)

        proxy.wait_for_message(RETRY_LINE, error="its worker died")
        proxy.wait_for_line(lambda line: REGISTERED_LINE in line, "a third registration", HEAL_S, 3)
        assert proxy.ask().status_code == 200


Fault = Callable[[Edge, Record], None]

FAULTS: dict[str, Fault] = {
    "dropped": lambda edge, record: edge.drop(record),
    "closed": lambda edge, record: edge.close_connection(record),
    "no HTTP/2": lambda edge, record: edge.send_bytes(record, b"\x00" * 64),
    "no RPC": lambda edge, record: edge.send_control(record, b"\xff" * 64),
    "control stream ended": lambda edge, record: edge.end_control(record),
    "control stream reset": lambda edge, record: edge.reset_control(record),
    "second control stream": lambda edge, record: edge.open_second_control(record),
    "asked to reconnect": lambda edge, record: edge.ask_to_reconnect(record),
    "GOAWAY": lambda edge, record: edge.goaway(record),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_lost_connection_is_reestablished_with_its_index(fault: str, edge: Edge) -> None:
    with Connector(edge) as proxy:
        (record,) = begin(proxy)

        FAULTS[fault](edge, record)

        edge.wait_until_closed(record, HEAL_S)
        (again,) = edge.wait_for_registered(1, HEAL_S)
        assert again is not record
        assert again.registration.conn_index == record.registration.conn_index
        assert again.registration.options.client == record.registration.options.client
        assert again.registration.options.previous_attempts == 1
        assert proxy.ask().status_code == 200
        line = proxy.wait_for_message(RETRY_LINE)
        assert list(line) == ["time", "level", "msg", "error", "attempt", "delay_s", "edge", "conn_index"]
        assert "edge" in line["error"] or "connection lost" in line["error"], line["error"]
        edge.forgive()


def test_a_connection_whose_edge_answers_no_ping_is_given_up(edge: Edge) -> None:
    with Connector(edge) as proxy:
        (record,) = begin(proxy)
        edge.stop_reading(record)
        line = proxy.wait_for_message(RETRY_LINE, HEAL_S)
        assert "PING" in line["error"]
        proxy.wait_for_line(lambda line: REGISTERED_LINE in line, "a second registration", HEAL_S, 2)
        assert proxy.readiness() == (200, "ready")


@pytest.mark.parametrize("hang", [hang for hang in Hang if hang is not Hang.BEFORE_TLS])
def test_silence_before_the_registration_fails_the_attempt_and_another_address_is_dialled(
    hang: Hang, edge: Edge
) -> None:
    edge.plan(Behaviour(hang=hang))
    with Connector(edge, arguments=["--register-without-config"]) as proxy:
        line = proxy.wait_for_message(BOOTSTRAP_LINE)
        assert "within 5 s" in line["error"]
        (record,) = edge.wait_for_registered(1, HEAL_S)
        assert record.address != line["edge"]
        assert proxy.metric("tunnelgw_proxy_tunnel_connection_failures_total", cause=FailureCause.SILENT) == 1


def test_a_duplicate_connection_takes_another_address(edge: Edge) -> None:
    edge.behave(Behaviour(refusal=DUPLICATE))
    with Connector(edge, arguments=["--register-without-config"]) as proxy:
        line = proxy.wait_for_message(BOOTSTRAP_LINE, attempt=1)
        assert "EDUPCONN" in line["error"]
        assert proxy.wait_for_message(BOOTSTRAP_LINE, attempt=2)["edge"] != line["edge"]
        edge.behave()
        edge.wait_for_registered(1, HEAL_S)
        assert proxy.metric("tunnelgw_proxy_tunnel_connection_failures_total", cause=FailureCause.DUPLICATE) >= 2


@pytest.mark.parametrize(
    "ill",
    [Behaviour(drops_at_register=True), Behaviour(exception="a bug of the edge"), Behaviour(refusal=busy(0.1))],
    ids=["dropped", "exception", "refused"],
)
def test_an_address_where_registration_fails_is_left_for_another(ill: Behaviour, edge: Edge) -> None:
    edge.behave(ill)
    with Connector(edge, arguments=["--register-without-config"]) as proxy:
        line = proxy.wait_for_message(BOOTSTRAP_LINE, HEAL_S, attempt=1)
        assert proxy.wait_for_message(BOOTSTRAP_LINE, HEAL_S, attempt=2)["edge"] != line["edge"]


def test_a_refused_token_is_retried_at_the_same_address(edge: Edge) -> None:
    edge.behave(Behaviour(refusal=unauthorized()))
    with Connector(edge, arguments=["--register-without-config"]) as proxy:
        line = proxy.wait_for_message(BOOTSTRAP_LINE, HEAL_S, attempt=1)
        assert proxy.wait_for_message(BOOTSTRAP_LINE, HEAL_S, attempt=2)["edge"] == line["edge"]


def test_a_pushed_configurations_version_applies_to_all_connections_and_is_shown(edge: Edge) -> None:
    """As a metric, and beside the document."""

    def shown() -> list[str | None]:
        answers = [requests.request(method, f"{proxy.api}/config", timeout=30) for method in ("GET", "HEAD")]
        return [answer.headers.get("Remote-Configuration-Version") for answer in answers]

    with Connector(edge, connections=4, workers=2) as proxy:
        records = begin(proxy, 4)
        assert shown() == [None, None]
        assert [edge.push(7, {"ingress": []}, record).last_applied_version for record in records] == [7] * 4
        assert edge.push(6, {"ingress": []}, records[1]).last_applied_version == 7
        refused = edge.push(8, "no object", records[2])
        assert (refused.last_applied_version, refused.err is None) == (7, False)
        assert proxy.ask().status_code == 200
        assert proxy.metric("tunnelgw_proxy_tunnel_remote_config_version") == 7
        assert shown() == ["7", "7"]


def test_a_locally_managed_tunnel_gets_an_empty_local_configuration_once(edge: Edge) -> None:
    edge.behave(Behaviour(is_remotely_managed=False))
    with Connector(edge, connections=2) as proxy:
        records = begin(proxy, 2)
        edge.wait_for(lambda: bool(records[0].local_configurations), "the local configuration")
        assert records[0].local_configurations == [b'{"ingress":[],"warp-routing":{}}']
        assert proxy.ask().status_code == 200
        assert not records[1].local_configurations


def test_a_changed_token_is_used_by_one_connection_after_the_other(edge: Edge, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(edge.tunnel.token)
    with Connector(edge, connections=2, env={"TUNNEL_TOKEN_FILE": str(file)}, has_token=False) as proxy:
        before = begin(proxy, 2)

        file.write_text("not base64!")
        line = proxy.wait_for_message("cannot use the tunnel token file, the previous token stays in use")
        assert line["level"] == "ERROR"
        assert "not base64!" not in "\n".join(proxy.lines)
        assert edge.ledger.registered == before

        renewed = new_tunnel()
        edge.tunnels.add(renewed, "b.example")
        file.write_text(renewed.token)

        def tunnels() -> list[uuid.UUID]:
            return [record.registration.token.tunnel_id for record in edge.ledger.registered]

        edge.wait_for(lambda: tunnels() == [renewed.tunnel_id] * 2, "both with the new token", HEAL_S)
        assert proxy.ask(host="b.example").status_code == 200
        assert edge.ledger.unregistrations == 2
        assert not proxy.lines_of(RETRY_LINE)


@pytest.mark.parametrize("reason", ["another token", "GOAWAY"])
def test_a_draining_connection_is_replaced_while_its_last_requests_run(reason: str, edge: Edge, tmp_path: Path) -> None:
    """A request that lasts for hours, as WebSockets do, delays neither the replacement nor the other connections."""
    file = tmp_path / "token"
    file.write_text(edge.tunnel.token)
    over = threading.Event()

    def hold(dialogue: Dialogue) -> None:
        if b"/hold" in dialogue.read_request().partition(b"\r\n")[0]:
            assert over.wait(HEAL_S)
        dialogue.answer(b"held")

    with (
        SocketBackend(hold) as backend,
        Connector(edge, connections=2, env={"TUNNEL_TOKEN_FILE": str(file)}, has_token=False) as proxy,
    ):
        proxy.serve(route_to(backend.address))
        before = edge.wait_for_registered(2, HEAL_S)
        calls = [edge.call("/hold", record=record) for record in before]
        renewed = edge.tunnel
        if reason == "another token":
            renewed = new_tunnel()
            edge.tunnels.add(renewed, "b.example")
            file.write_text(renewed.token)
        else:
            for record in before:
                edge.goaway(record)

        def tunnels() -> list[uuid.UUID]:
            fresh = [record for record in edge.ledger.registered if record not in before]
            return [record.registration.token.tunnel_id for record in fresh]

        edge.wait_for(lambda: tunnels() == [renewed.tunnel_id] * 2, "two others", HEAL_S)
        assert [record.closed for record in before] == [None, None]
        over.set()
        assert [call.read_all() for call in calls] == [b"held", b"held"]
        for record in before:
            edge.wait_until_closed(record)
