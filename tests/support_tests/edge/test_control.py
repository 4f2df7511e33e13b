"""What the simulated edge does to registered connections: pushes, and faults of its control stream."""

from proxy.tunnel.controlevents import ControlStreamBroken, LocalConfigurationAnswered, Registered
from tests.support.edge.edge import Edge
from tests.support.edge.ledger import PushAnswer
from tests.support_tests.edge.conftest import Connect
from tests.support_tests.edge.connector import Connector


def test_a_configuration_is_pushed_and_answered(edge: Edge, connector: Connector) -> None:
    assert PushAnswer(3, None) == edge.push(3, {"ingress": []})
    assert PushAnswer(3, None) == edge.push(2, {})
    assert b'{"ingress":[]}' == connector.configuration.config
    assert edge.push(4, "no object").err is not None


def test_every_connection_gets_the_configuration_when_it_is_registered(edge: Edge, connect: Connect) -> None:
    edge.push_at_registration(7, {"ingress": []})
    connectors = [connect(index, index) for index in range(2)]
    records = edge.wait_for_registered(2)

    edge.wait_for(lambda: all(record.push_answers for record in records), "answers")

    assert [[PushAnswer(7, None)]] * 2 == [record.push_answers for record in records]
    assert [b'{"ingress":[]}'] * 2 == [connector.configuration.config for connector in connectors]


def test_a_local_configuration_is_accepted_and_recorded(edge: Edge, connector: Connector) -> None:
    connector.upload(b'{"ingress":[],"warp-routing":{}}')

    connector.wait_for(lambda: len(connector.said) == 2, "an answer")
    assert LocalConfigurationAnswered(None) == connector.said[1]
    assert [b'{"ingress":[],"warp-routing":{}}'] == edge.ledger.records[0].local_configurations


def test_an_invalid_message_reaches_the_control_stream(edge: Edge, connector: Connector) -> None:
    edge.send_control(edge.ledger.registered[0], b"\xff" * 8)

    connector.wait_for(lambda: len(connector.said) == 2, "the garbage")
    assert isinstance(connector.said[1], ControlStreamBroken)


def test_the_control_stream_ends_on_demand(edge: Edge, connector: Connector) -> None:
    edge.end_control(edge.ledger.registered[0])

    connector.wait_for(lambda: len(connector.said) == 2, "the end")
    assert isinstance(connector.said[1], ControlStreamBroken)


def test_the_control_stream_is_reset_on_demand_and_requests_go_on(edge: Edge, connector: Connector) -> None:
    edge.reset_control(edge.ledger.registered[0])

    connector.wait_for(lambda: connector.resets == [8], "the reset")
    assert b"hello\n" == edge.call("/hello").read_all()


def test_an_edge_that_does_not_read_stalls_its_connector(edge: Edge, connector: Connector) -> None:
    (record,) = edge.ledger.registered
    edge.stop_reading(record)
    call = edge.call("/hello", record=record)
    connector.wait_for(lambda: bool(connector.requests), "the request")
    assert call.raw_head is None

    edge.resume_reading(record)

    assert b"hello\n" == call.read_all()


def test_a_connector_is_asked_to_register_a_second_time_on_demand(edge: Edge, connect: Connect) -> None:
    connector = connect()
    (record,) = edge.wait_for_registered(1)
    assert isinstance(connector.wait_for_event(), Registered)

    edge.open_second_control(record)

    connector.wait_for(lambda: connector.control_streams == 2, "the second one")
