"""How connections are set up although the edge is odd: silent before TLS, unreachable over one IP version."""

from __future__ import annotations

import json
import math
import signal
import socket
from pathlib import Path

import pytest
from msgspec.structs import replace

from proxy.tunnel.failures import FailureCause
from tests.e2e.tunnel.connector import BOOTSTRAP_LINE, WAITING_LINE, Connector
from tests.support.daemon import LogLine
from tests.support.edge.behaviour import Behaviour, Hang, busy
from tests.support.edge.edge import Edge
from tests.support.requirements import not_possible_here

FIXED = {"name": "fixed", "rules": [{"respond": {"statusCode": 200}}]}
PATIENCE_S = 60.0
EAGER = ["--register-without-config"]


def serves(proxy: Connector) -> None:
    proxy.put(proxy.document(FIXED))
    assert proxy.ask().status_code == 200


def test_an_edge_that_is_silent_before_tls_fails_the_attempt_and_another_address_is_dialled() -> None:
    with Edge() as edge:
        edge.plan(Behaviour(hang=Hang.BEFORE_TLS))
        with Connector(edge, arguments=EAGER) as proxy:
            line = proxy.wait_for_message(BOOTSTRAP_LINE, PATIENCE_S)
            assert line["error"] == "TLS was not set up within 15 s"
            (record,) = edge.wait_for_registered(1, PATIENCE_S)
            assert record.address != line["edge"]
            assert proxy.metric("tunnelgw_proxy_tunnel_connection_failures_total", cause=FailureCause.TLS) == 1


def test_a_proxy_that_starts_with_a_document_registers_on_its_first_dial(tmp_path: Path) -> None:
    document = tmp_path / "document.json"
    document.write_text(json.dumps({"listeners": [], "routes": [FIXED]}))
    with Edge() as edge, Connector(edge, arguments=["--config", str(document)]) as proxy:
        (record,) = edge.wait_for_registered(1, PATIENCE_S)

        assert edge.ledger.records == [record]
        assert not proxy.lines_of(WAITING_LINE)
        assert proxy.ask().status_code == 200


def test_a_connector_sends_the_server_name_tls_version_and_registration_that_the_edge_expects() -> None:
    with Edge() as edge, Connector(edge, arguments=EAGER) as proxy:
        (record,) = edge.wait_for_registered(1)
        assert (record.server_name, record.tls_version) == ("h2.cftunnel.com", "TLSv1.3")
        registration = record.registration
        assert registration.token.account_tag == edge.tunnel.account_tag
        assert (registration.token.tunnel_id, registration.token.secret_bytes) == (
            edge.tunnel.tunnel_id,
            edge.tunnel.secret,
        )
        options = registration.options
        assert options.origin_local_ip == bytes(10) + b"\xff\xff\x7f\0\0\x01"
        assert options.client.features == ("allow_remote_config", "serialized_headers")
        assert (len(options.client.client_id), options.replace_existing, options.previous_attempts) == (16, False, 0)
        serves(proxy)


@pytest.mark.parametrize(
    "behaviour",
    [Behaviour(is_scattered=True), Behaviour(rpc_piece_bytes=1), Behaviour(is_scattered=True, rpc_piece_bytes=7)],
    ids=["in several segments", "byte by byte", "both"],
)
def test_responses_of_the_edge_may_arrive_in_any_pieces(behaviour: Behaviour) -> None:
    with Edge() as edge:
        # Otherwise it closes half a second after the unregistration, perhaps before it has received the abort.
        edge.behave(replace(behaviour, keeps_sending_s=math.inf))
        with Connector(edge, arguments=EAGER) as proxy:
            (record,) = edge.wait_for_registered(1)
            serves(proxy)
            edge.ping(record)
            proxy.send_signal(signal.SIGTERM)
            edge.wait_for(lambda: record.has_control_ended, "the end of the control stream")
            assert record.is_unregistered
            assert record.abort_reason == "rpc: shutdown"
            edge.close_connection(record)
            assert proxy.wait(PATIENCE_S) == 0
        assert len(edge.ledger.records) == 1


def test_a_refused_connector_aborts_the_rpc_session_and_closes() -> None:
    with Edge() as edge:
        edge.plan(Behaviour(refusal=busy(0.1), closes_refused=False))
        with Connector(edge, arguments=EAGER):
            edge.wait_for_registered(1, PATIENCE_S)
        refused = edge.ledger.records[0]
        assert edge.wait_until_closed(refused) == "closed by the connector"
        assert refused.has_control_ended
        assert refused.abort_reason == "rpc: shutdown"


def test_the_retry_delay_that_the_edge_asks_for_is_respected() -> None:
    with Edge() as edge:
        edge.plan(Behaviour(refusal=busy(3.0)))
        with Connector(edge, arguments=EAGER) as proxy:
            assert 3.0 <= proxy.wait_for_message(BOOTSTRAP_LINE)["delay_s"] <= 30.0
            edge.wait_for_registered(1, PATIENCE_S)
            first, second = (record.accepted_at_s for record in edge.ledger.records)
            assert second - first >= 2.9


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as sock:
            sock.bind(("::1", 0))
    except OSError:
        return False
    return True


def is_attempt(line: LogLine) -> bool:
    return "attempt" in line


def test_a_region_whose_ipv6_is_refused_is_reached_by_ipv4() -> None:
    """The first and the third address are one region, of which only the first one's IP version is tried at first."""
    if not has_ipv6():
        not_possible_here("this machine has no IPv6 on loopback")
    with Edge(("[::1]:0", "127.0.0.1:0", "127.0.0.1:0")) as edge:
        refused, second, third = edge.addresses
        edge.refuse(refused)
        with Connector(edge, connections=2, arguments=EAGER) as proxy:
            records = edge.wait_for_registered(2, PATIENCE_S)
            assert sorted(record.address for record in records) == sorted((second, third))
            proxy.wait_for_log(is_attempt, "the refused one")
            failed = [line for line in proxy.log if is_attempt(line)]
            assert [line["edge"] for line in failed] == [refused]
            serves(proxy)


@pytest.mark.parametrize(("version", "wanted"), [("4", "127.0.0.1"), ("6", "[::1]")])
def test_only_the_configured_ip_version_is_dialled(version: str, wanted: str) -> None:
    if not has_ipv6():
        not_possible_here("this machine has no IPv6 on loopback")
    listen = ("[::1]:0", "[::1]:0", "127.0.0.1:0", "127.0.0.1:0")
    with Edge(listen) as edge:
        arguments = [*EAGER, "--edge-ip-version", version]
        with Connector(edge, connections=4, arguments=arguments) as proxy:
            records = edge.wait_for_registered(2, PATIENCE_S)
            assert {record.address.rpartition(":")[0] for record in records} == {wanted}
            proxy.wait_for_message("fewer edge addresses than connections wanted", addresses=2)


@pytest.mark.parametrize(("source", "wanted"), [("127.0.0.2", "127.0.0.1"), ("::1", "[::1]")])
def test_connections_use_the_configured_source_address_and_its_ip_version(source: str, wanted: str) -> None:
    if not has_ipv6():
        not_possible_here("this machine has no IPv6 on loopback")
    listen = ("[::1]:0", "[::1]:0", "127.0.0.1:0", "127.0.0.1:0")
    with Edge(listen) as edge:
        arguments = [*EAGER, "--edge-bind-address", source]
        with Connector(edge, connections=2, arguments=arguments) as proxy:
            records = edge.wait_for_registered(2, PATIENCE_S)
            assert {record.address.rpartition(":")[0] for record in records} == {wanted}
            assert {record.source for record in records} == {source}
            serves(proxy)


def test_a_source_address_that_this_host_does_not_have_is_a_failed_attempt() -> None:
    """The host may get it later, as from a link that comes up after the proxy has started."""
    with Edge() as edge, Connector(edge, arguments=[*EAGER, "--edge-bind-address", "192.0.2.1"]) as proxy:
        line = proxy.wait_for_message(BOOTSTRAP_LINE, PATIENCE_S, attempt=1)
        assert line["error"] == (
            "--edge-bind-address 192.0.2.1: Cannot assign requested address, want an address that this host has"
        )
        assert line["edge"] in edge.addresses
        proxy.wait_for_message(BOOTSTRAP_LINE, PATIENCE_S, attempt=2)
        assert not edge.ledger.records


def test_an_edge_without_addresses_of_the_source_addresss_ip_version_is_a_failed_attempt() -> None:
    with Edge() as edge, Connector(edge, arguments=[*EAGER, "--edge-bind-address", "::1"]) as proxy:
        line = proxy.wait_for_message(BOOTSTRAP_LINE, PATIENCE_S, attempt=1)
        assert line["error"] == (
            f"no IPv6 address among the edge's {', '.join(edge.addresses)}, which --edge-bind-address ::1 asks for"
        )


def test_an_edge_without_addresses_of_the_configured_ip_version_is_a_failed_attempt() -> None:
    with Edge() as edge, Connector(edge, arguments=[*EAGER, "--edge-ip-version", "6"]) as proxy:
        line = proxy.wait_for_message(BOOTSTRAP_LINE, PATIENCE_S, attempt=1)
        assert line["error"] == (
            f"no IPv6 address among the edge's {', '.join(edge.addresses)}, which --edge-ip-version 6 asks for"
        )
        proxy.wait_for_message(BOOTSTRAP_LINE, PATIENCE_S, attempt=2)
        assert not edge.ledger.records
