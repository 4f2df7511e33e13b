"""Connectors at the simulated edge: how they are registered, refused, left hanging, dropped and unregistered."""

import contextlib
import math
import socket
import ssl
import threading

import pytest

from proxy.tunnel.controlevents import Registered, RegistrationFailed, Unregistered
from proxy.tunnel.failures import FailureCause
from tests.support.edge.behaviour import Behaviour, Hang, busy, unauthorized
from tests.support.edge.edge import Edge
from tests.support.edge.tunnels import Tunnel, new_tunnel
from tests.support_tests.edge.conftest import Connect
from tests.support_tests.edge.connector import CLIENT_ID, WAIT_S, Connector, dial


def test_a_connector_is_registered_and_recorded_with_its_details(edge: Edge, connect: Connect) -> None:
    connector = connect(1, conn_index=2)

    (record,) = edge.wait_for_registered(1)

    answer = connector.wait_for_event()
    assert isinstance(answer, Registered)
    assert [answer.details] == record.answers
    assert ("LIS", True) == (answer.details.location, answer.details.is_remotely_managed)
    registration = record.registration
    assert (edge.tunnel.tunnel_id, edge.tunnel.secret) == (
        registration.token.tunnel_id,
        registration.token.secret_bytes,
    )
    assert (2, CLIENT_ID.bytes) == (registration.conn_index, registration.options.client.client_id)
    assert (edge.addresses[1], "h2.cftunnel.com", "TLSv1.3") == (record.address, record.server_name, record.tls_version)


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        ({"secret": b"another"}, "Unauthorized: Invalid tunnel secret"),
        ({"account_tag": "somebody"}, "Unauthorized: Account doesn't have tunnel"),
        ({"tunnel_id": new_tunnel().tunnel_id}, "Unauthorized: Tunnel not found"),
    ],
)
def test_a_wrong_token_is_refused_with_its_cause_and_the_connection_closed(
    edge: Edge, connect: Connect, change: dict[str, object], cause: str
) -> None:
    parts = {"account_tag": edge.tunnel.account_tag, "tunnel_id": edge.tunnel.tunnel_id, "secret": edge.tunnel.secret}
    connector = connect(token=Tunnel(**{**parts, **change}).token)  # type: ignore[arg-type]

    assert RegistrationFailed(FailureCause.UNAUTHORIZED, cause) == connector.wait_for_event()
    connector.wait_until_closed()
    assert [] == edge.ledger.registered


def test_a_changed_secret_applies_to_new_connections(edge: Edge, connector: Connector, connect: Connect) -> None:
    tunnel = edge.tunnel
    edge.tunnels.add(Tunnel(tunnel.account_tag, tunnel.tunnel_id, b"rotated"))

    assert isinstance(connect(token=tunnel.token).wait_for_event(), RegistrationFailed)
    assert 1 == len(edge.ledger.registered)


def test_planned_faults_occur_in_order_before_registrations_succeed(edge: Edge, connect: Connect) -> None:
    edge.plan(Behaviour(refusal=busy(27.0)), Behaviour(exception="no memory"), Behaviour(refusal=unauthorized()))

    answers = [connect().wait_for_event() for _ in range(4)]

    failures = [answer for answer in answers if isinstance(answer, RegistrationFailed)]
    assert [
        RegistrationFailed(FailureCause.REFUSED, "try later", 27.0),
        RegistrationFailed(FailureCause.EXCEPTION, "no memory"),
        RegistrationFailed(FailureCause.UNAUTHORIZED, "Unauthorized: Invalid tunnel secret"),
    ] == failures
    assert isinstance(answers[3], Registered)


def test_an_address_accepts_a_connector_once_when_duplicates_are_refused(edge: Edge, connect: Connect) -> None:
    edge.treatment.refuses_duplicates = True
    assert isinstance(connect(0).wait_for_event(), Registered)

    duplicate = connect(0, conn_index=1).wait_for_event()

    assert isinstance(duplicate, RegistrationFailed)
    assert FailureCause.DUPLICATE is duplicate.cause
    assert isinstance(connect(1, conn_index=1).wait_for_event(), Registered)


@pytest.mark.parametrize("behaviour", [Behaviour(is_scattered=True), Behaviour(rpc_piece_bytes=1)])
def test_answers_may_arrive_in_segments_or_byte_by_byte(edge: Edge, connect: Connect, behaviour: Behaviour) -> None:
    edge.behave(behaviour)

    assert isinstance(connect().wait_for_event(), Registered)


def test_before_tls_a_hanging_edge_sends_nothing_and_notices_a_disconnect(edge: Edge) -> None:
    edge.behave(Behaviour(hang=Hang.BEFORE_TLS))
    host, _, port = edge.addresses[0].rpartition(":")
    with socket.create_connection((host, int(port)), WAIT_S) as sock:
        sock.sendall(b"hello")
        (record,) = edge.wait_for_attempts(1)
        assert record.closed is None

    assert "closed by the connector" == edge.wait_until_closed(record)


def test_before_http_a_hanging_edge_has_set_up_tls_and_sends_nothing(edge: Edge) -> None:
    edge.behave(Behaviour(hang=Hang.BEFORE_HTTP))
    with dial(edge.addresses[0], edge.ca_file) as sock:
        sock.settimeout(0.2)
        with pytest.raises(TimeoutError):
            sock.recv(1)
        (record,) = edge.ledger.records

    assert "closed by the connector" == edge.wait_until_closed(record)


def test_before_the_control_stream_a_hanging_edge_speaks_http_2_and_answers_pings(edge: Edge, connect: Connect) -> None:
    edge.behave(Behaviour(hang=Hang.BEFORE_CONTROL))
    connector = connect()
    (record,) = edge.wait_for_attempts(1)
    edge.wait_for(lambda: record.tls_version is not None, "TLS")

    edge.ping(record)

    assert ([], []) == (record.registrations, connector.said)


def test_a_registration_that_is_never_answered_is_recorded(edge: Edge, connect: Connect) -> None:
    edge.behave(Behaviour(hang=Hang.BEFORE_REGISTRATION))
    connector = connect()
    (record,) = edge.wait_for_attempts(1)
    edge.wait_for(lambda: bool(record.registrations), "a registration")

    edge.ping(record)

    assert ([], []) == (record.answers, connector.said)


def test_before_the_bootstrap_a_hanging_edge_answers_nothing(edge: Edge, connect: Connect) -> None:
    edge.behave(Behaviour(hang=Hang.BEFORE_BOOTSTRAP))
    connector = connect()
    (record,) = edge.wait_for_attempts(1)
    edge.wait_for(lambda: record.tls_version is not None, "TLS")

    edge.ping(record)

    assert ([], []) == (record.registrations, connector.said)


@pytest.mark.parametrize(
    ("behaviour", "how"),
    [
        (Behaviour(drop_after_s=0.05), "dropped in time"),
        (Behaviour(drop_after_s=0.05, hang=Hang.BEFORE_CONTROL), "dropped in time"),
        (Behaviour(drops_at_register=True), "dropped when it asked to be registered"),
    ],
)
def test_connections_are_dropped_at_the_planned_moment(
    edge: Edge, connect: Connect, behaviour: Behaviour, how: str
) -> None:
    edge.behave(behaviour)

    with contextlib.suppress(OSError):  # the drop may come before TLS is set up
        connect().wait_until_closed()

    (record,) = edge.wait_for_attempts(1)
    assert how == edge.wait_until_closed(record)


def test_addresses_refuse_and_admit_while_connections_stay(edge: Edge, connector: Connector, connect: Connect) -> None:
    edge.refuse()
    for address in range(2):
        with pytest.raises(ConnectionRefusedError):
            connect(address)
    assert 1 == len(edge.ledger.registered)

    edge.admit(edge.addresses[1])

    assert isinstance(connect(1).wait_for_event(), Registered)
    with pytest.raises(ConnectionRefusedError):
        connect(0)


def test_another_authority_is_not_trusted(edge: Edge) -> None:
    with Edge() as other, pytest.raises(ssl.SSLCertVerificationError):
        dial(edge.addresses[0], other.ca_file)
    edge.wait_for(lambda: bool(edge.ledger.handshakes_failed), "a failed handshake")


def test_drop_breaks_all_connections_and_is_not_a_violation(edge: Edge, connect: Connect) -> None:
    connectors = [connect(index % 2, index) for index in range(4)]
    records = edge.wait_for_registered(4)

    edge.drop()

    for connector in connectors:
        connector.wait_until_closed()
    assert ["dropped"] * 4 == [record.closed for record in records]


def test_the_edge_restarts_at_the_same_addresses_with_the_same_certificate(
    edge: Edge, connector: Connector, connect: Connect
) -> None:
    edge.stop()
    connector.wait_until_closed()
    with pytest.raises(ConnectionRefusedError):
        connect()

    edge.start()

    assert isinstance(connect().wait_for_event(), Registered)


def test_after_an_unregistration_requests_still_arrive_for_a_while(edge: Edge, connect: Connect) -> None:
    edge.behave(Behaviour(keeps_sending_s=math.inf))
    connector = connect()
    (record,) = edge.wait_for_registered(1)
    connector.wait_for_event()

    connector.unregister()

    connector.wait_for(lambda: len(connector.said) == 2, "the answer to the unregistration")
    assert Unregistered(None) == connector.said[1]
    assert (False, True, True) == (record.is_registered, record.is_in_rotation, record.is_unregistered)
    assert b"hello\n" == edge.call("/hello", record=record).read_all()


def test_an_unregistered_connection_is_closed_after_its_requests_end(edge: Edge, connector: Connector) -> None:
    (record,) = edge.ledger.registered
    held = edge.call("/hold", record=record)

    connector.unregister()

    edge.wait_for(lambda: not record.is_in_rotation, "the end of the requests")
    edge.ping(record)
    assert record.closed is None
    connector.answer_held()
    assert b"hello\n" == held.read_all()
    assert "closed after the unregistration" == edge.wait_until_closed(record)


def test_a_connection_asked_to_reconnect_is_closed_after_its_requests_end(edge: Edge, connector: Connector) -> None:
    (record,) = edge.ledger.registered
    held = edge.call("/hold")
    connector.wait_for(lambda: bool(connector.requests), "the request")

    edge.ask_to_reconnect(record)

    connector.wait_for(lambda: connector.goaways == [0], "a GOAWAY")
    assert record.closed is None
    connector.answer_held()
    assert 200 == held.response().status_code
    assert "asked to reconnect" == edge.wait_until_closed(record)


def test_invalid_frames_reach_the_connector(edge: Edge, connector: Connector) -> None:
    (record,) = edge.ledger.registered

    edge.send_bytes(record, b"\x00\x00\x01\x00\x00\x00\x00\x00\x00x")

    edge.wait_for(lambda: bool(record.goaways), "a GOAWAY from the connector")
    assert [1] == record.goaways


def test_a_protocol_violation_of_a_connector_is_recorded(edge: Edge, connect: Connect) -> None:
    connector = connect(is_polite=False)

    connector.wait_until_closed()

    (violation,) = edge.forgive()
    assert "status 500 on the control stream" in violation


def test_many_rounds_leave_neither_threads_nor_connections(edge: Edge, connect: Connect) -> None:
    before = {*threading.enumerate()}
    for _ in range(20):
        connector = connect()
        assert isinstance(connector.wait_for_event(), Registered)
        connector.close()
    edge.wait_for(lambda: not edge.ledger.open, "the end of all")

    # Threads of other tests may end meanwhile.
    assert not {*threading.enumerate()} - before
    assert ["closed by the connector"] * 20 == [record.closed for record in edge.ledger.records]
