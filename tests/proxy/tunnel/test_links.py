"""A worker's connections to the edge: its orders, its reports, and how each way of ending is reported."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from functools import partial

import pytest

from proxy import document, h2
from proxy.h2 import ErrorCode, frames
from proxy.tunnel import capnp, link
from proxy.tunnel.failures import FailureCause
from proxy.tunnel.orders import Dial, DialMeans, Ended, Pushed, Reached, Registered
from proxy.tunnel.remoteconfig import LOCAL_CONFIGURATION, MAX_UPDATE_BYTES
from tests.proxy.h2.wire import data, headers
from tests.proxy.loop.sides import Clock
from tests.proxy.tunnel.rig import CLIENT_ID, Rig, address_of
from tests.support.deafness import lose_data, wait_for_repeats_to
from tests.support.edge.authority import EdgeAuthority
from tests.support.edge.behaviour import DUPLICATE, Behaviour, Hang, busy, unauthorized
from tests.support.edge.call import Call
from tests.support.edge.edge import Edge
from tests.support.edge.heads import UPDATE_CONFIGURATION, WEBSOCKET
from tests.support.edge.ledger import PATIENCE_S, Record
from tests.support.ports import LOOPBACK


@pytest.fixture
def edge() -> Iterator[Edge]:
    with Edge() as edge:
        yield edge


@pytest.fixture
def rig(edge: Edge) -> Iterator[Rig]:
    with Rig(edge) as rig:
        yield rig


def record_of(rig: Rig) -> Record:
    (record,) = rig.edge.wait_for_registered(1)
    return record


def settle(rig: Rig, record: Record) -> None:
    """Waits until all that either side had sent has arrived: the second round trip begins after the first has ended."""
    rig.edge.ping(record)
    rig.edge.ping(record)


def wait_for_registering(rig: Rig) -> Record:
    """Waits until the edge has been asked to register the connection."""
    (record,) = rig.edge.wait_for_attempts(1)
    rig.edge.wait_for(lambda: bool(record.registrations), "the registration")
    return record


def join_handshakes(rig: Rig) -> None:
    """Waits until the loop knows of each TLS handshake that its edge has completed."""
    for thread in threading.enumerate():
        if thread.name == "edge-handshake":
            thread.join(PATIENCE_S)
            assert not thread.is_alive()
    rig.call(lambda: None)


# -- dialling and registering ------------------------------------------------------------------------------------------


def test_a_dial_registers_serves_and_is_counted(rig: Rig) -> None:
    number = rig.dial(conn_index=3)
    report = rig.wait_for(Registered, number)
    record = record_of(rig)
    assert report.location == "LIS"
    assert (record.registration.conn_index, record.registration.options.client.client_id) == (3, CLIENT_ID)

    assert rig.edge.call("/hello").read_all() == b"hello\n"
    call = rig.edge.call("/hold")
    rig.edge.wait_for(lambda: record.streams == 1, "the request that is held")
    rig.services.begun.get(timeout=20)
    rig.services.begun.get(timeout=20)
    rig.call(rig.links.measure)
    stats = rig.stats.edge(3)
    assert (stats.is_up, stats.requests, stats.in_flight) == (1, 2, 1)
    assert min(stats.sent_bytes, stats.received_bytes) > 0
    rig.call(rig.services.let_go)
    assert call.read_all() == b"hello\n"


@pytest.mark.parametrize("how", ["closed by the edge", "broken", "given up by us"])
def test_the_last_bytes_of_a_connection_are_counted_however_it_ends(rig: Rig, how: str) -> None:
    number = rig.register()
    record = record_of(rig)
    rig.call(rig.links.measure)
    before = rig.stats.edge(0).sent_bytes
    assert len(rig.edge.call("/bulk/3000000").read_all()) == 3_000_000
    if how == "closed by the edge":
        rig.edge.close_connection(record)
    elif how == "broken":
        rig.edge.drop(record)
    else:
        rig.withdraw(number)
        rig.pass_time(30)
    rig.edge.wait_until_closed(record)
    rig.wait_for_end(number)
    rig.call(rig.links.measure)
    # The kernel counts what has been acknowledged, and a peer that aborts does not acknowledge the last of it.
    want_bytes = 2_000_000 if how == "broken" else 3_000_000
    assert rig.stats.edge(0).sent_bytes - before > want_bytes


def test_requests_through_the_tunnel_are_bounded_by_the_limits_of_the_document(rig: Rig) -> None:
    """Those of the newest one: connections to the edge last for days."""
    rig.call(lambda: rig.links.use(document.Limits(max_uri_bytes=300)))
    rig.register()
    record_of(rig)

    def answers() -> list[int]:
        heads = [rig.edge.call("/" + "a" * (size - 1)).wait_for_head() for size in (300, 301)]
        return [head.status_code for head in heads]

    assert answers() == [200, 414]
    rig.call(lambda: rig.links.use(document.Limits(max_uri_bytes=301)))
    assert answers() == [200, 200]


def test_requests_and_websockets_are_served_and_counted_and_private_routing_is_refused(rig: Rig) -> None:
    rig.register()
    record = record_of(rig)
    upload = rig.edge.call("/count", "POST", end_stream=False)
    upload.send(b"abc", True)
    assert upload.read_all() == b"3 bytes, trailers []\n"
    bodiless = rig.edge.call("/count", "POST", [(b"content-length", b"0")], end_stream=False)
    assert bodiless.read_all() == b"0 bytes, trailers []\n", "it waits for no end"
    websocket = rig.edge.call("/switch", fields=[WEBSOCKET], end_stream=False)
    websocket.send(b"hello")
    assert (websocket.response().status_code, websocket.read(5)) == (200, b"hello")
    private = rig.edge.call(fields=[(b"cf-cloudflared-proxy-src", b"192.0.2.7")], end_stream=False)
    assert (private.response().status_code, private.response().source) == (502, "cloudflared")
    assert private.read_all() == b""

    settle(rig, record)
    rig.call(rig.links.measure)
    stats = rig.stats.edge(0)
    assert (stats.requests, stats.in_flight) == (3, 1)


def test_the_edges_own_streams_need_no_host_but_requests_do(rig: Rig) -> None:
    """Which :authority the provider's edge sends with its own streams is not known; its connector takes any or none."""
    rig.edge.behave(Behaviour(control_authority=b""))
    rig.register()
    push = rig.edge.call(host="", fields=[UPDATE_CONFIGURATION], end_stream=False)
    push.send(b'{"version":5,"config":{}}', True)
    rig.take_push(rig.wait_for_one(Pushed).push, 5)

    assert push.read_all() == b'{"lastAppliedVersion":5,"err":null}'
    assert rig.edge.call(host="").response().status_code == 400
    assert rig.edge.call(host="", fields=[WEBSOCKET], end_stream=False).response().status_code == 400
    assert rig.edge.call().response().status_code == 200


def test_a_second_control_stream_closes_the_connection(rig: Rig) -> None:
    number = rig.register()
    record = record_of(rig)
    rig.edge.open_second_control(record)
    end = rig.wait_for_end(number)
    assert (end.cause, end.error) == (FailureCause.MALFORMED, "the edge opened a second control stream")
    rig.edge.wait_until_closed(record)


@pytest.mark.parametrize(("is_remotely_managed", "conn_index"), [(False, 0), (False, 1), (True, 0)])
def test_only_the_first_connection_of_a_locally_managed_tunnel_uploads_its_configuration(
    rig: Rig, is_remotely_managed: bool, conn_index: int
) -> None:
    rig.edge.behave(Behaviour(is_remotely_managed=is_remotely_managed))
    rig.wait_for(Registered, rig.dial(conn_index=conn_index))
    record = record_of(rig)
    settle(rig, record)
    told = [LOCAL_CONFIGURATION] if (is_remotely_managed, conn_index) == (False, 0) else []
    assert record.local_configurations == told


def test_a_probe_of_the_edge_is_closed_without_registering(rig: Rig) -> None:
    rig.wait_for(Reached, rig.dial(registers=False))
    (record,) = rig.edge.wait_for_attempts(1)
    rig.edge.wait_until_closed(record)
    assert not record.registrations
    assert len(rig.reports) == 1
    # A drain does not wait for it either.
    rig.call(lambda: rig.links.drain(rig.is_idle.set))
    assert rig.is_idle.is_set()


def test_a_refused_connection_is_a_failure_of_the_address(rig: Rig) -> None:
    rig.edge.refuse()
    end = rig.wait_for_end(rig.dial())
    assert (end.cause, end.error, end.registered_for_s) == (FailureCause.DIAL, "Connection refused", 0.0)
    assert end.cause.is_of_address


def test_a_dial_whose_memory_file_did_not_arrive_fails_alone(rig: Rig) -> None:
    serving = rig.register()

    rig.obey(Dial(serving + 1, 1, address_of(rig.edge.addresses[0]), 0, True))

    reason = "its worker has no descriptor or memory for it"
    assert rig.wait_for_end(serving + 1) == Ended(serving + 1, FailureCause.DIAL, reason, 0.0, 0.0)
    rig.withdraw(serving)
    assert rig.wait_for_end(serving).error == "unregistered"


@pytest.mark.parametrize(
    ("behaviour", "cause", "error"),
    [
        (Behaviour(refusal=unauthorized("Unauthorized: gone")), FailureCause.UNAUTHORIZED, "Unauthorized: gone"),
        (Behaviour(refusal=busy(7.0)), FailureCause.REFUSED, "try later"),
        (Behaviour(refusal=DUPLICATE), FailureCause.DUPLICATE, "EDUPCONN"),
        (Behaviour(exception="a bug"), FailureCause.EXCEPTION, "a bug"),
        (Behaviour(drops_at_register=True), FailureCause.LOST, "connection"),
    ],
    ids=["unauthorized", "refused", "duplicate", "exception", "dropped"],
)
def test_a_registration_that_fails_ends_with_its_cause(
    rig: Rig, behaviour: Behaviour, cause: FailureCause, error: str
) -> None:
    rig.edge.behave(behaviour)
    end = rig.wait_for_end(rig.dial())
    assert (end.cause, error in end.error) == (cause, True), end
    assert end.retry_after_s == (7.0 if behaviour.refusal == busy(7.0) else 0.0)


@pytest.mark.parametrize(
    ("hang", "wait_s", "cause", "error"),
    [
        (Hang.BEFORE_TLS, 15, FailureCause.TLS, "TLS was not set up within 15 s"),
        (Hang.BEFORE_HTTP, 5, FailureCause.SILENT, "the edge did not open its control stream within 5 s of TLS"),
        (Hang.BEFORE_CONTROL, 5, FailureCause.SILENT, "the edge did not open its control stream within 5 s of TLS"),
        (Hang.BEFORE_BOOTSTRAP, 5, FailureCause.SILENT, "the edge did not answer the registration within 5 s"),
        (Hang.BEFORE_REGISTRATION, 5, FailureCause.SILENT, "the edge did not answer the registration within 5 s"),
    ],
)
def test_a_silent_edge_ends_a_connection_at_its_timeout_and_not_before(
    edge: Edge, hang: Hang, wait_s: float, cause: FailureCause, error: str
) -> None:
    edge.behave(Behaviour(hang=hang))
    with Rig(edge, Clock(stands_still=True)) as rig:
        number = rig.dial()
        (record,) = edge.wait_for_attempts(1)
        if hang is not Hang.BEFORE_TLS:
            edge.wait_for(lambda: record.tls_version is not None, "TLS")
            join_handshakes(rig)
            if hang is not Hang.BEFORE_HTTP:
                settle(rig, record)
        rig.pass_time(wait_s / 2)
        assert not rig.reports
        while not rig.reports:
            rig.pass_time(1.5)
        end = rig.wait_for_end(number)
    assert (end.cause, end.error) == (cause, error)


def test_a_dial_whose_client_hello_is_lost_reports_that_nothing_reached_the_edge(rig: Rig) -> None:
    """As where it fills a packet, on a path that loses full-size packets without an ICMP error."""
    with socket.socket() as listener:
        lose_data(listener)
        listener.bind((LOOPBACK, 0))
        listener.listen()
        port = listener.getsockname()[1]
        number = rig.dial(f"{LOOPBACK}:{port}")
        wait_for_repeats_to(port, 1)
        rig.pass_time(15)
        end = rig.wait_for_end(number)
    expected = "TLS was not set up within 15 s: nothing that was sent has reached the edge"
    assert (end.cause, end.error) == (FailureCause.TLS, expected)


@pytest.mark.parametrize("roots", ["", "no PEM", EdgeAuthority.make("Another").pem.decode()])
def test_an_edge_that_the_roots_do_not_verify_fails_the_dial(rig: Rig, roots: str) -> None:
    end = rig.wait_for_end(rig.dial(roots=roots))
    assert (end.cause, end.retry_after_s, end.registered_for_s) == (FailureCause.TLS, 0.0, 0.0)
    assert "CA" in end.error
    rig.call(rig.links.measure)
    assert rig.stats.edge(0).is_up == 0


def test_renewed_roots_apply_to_the_next_dial(rig: Rig) -> None:
    rig.wait_for_end(rig.dial(roots=EdgeAuthority.make("Yesterday's").pem.decode()))
    rig.register()


# -- keepalive and control stream --------------------------------------------------------------------------------------


def test_a_connection_is_pinged_and_its_round_trip_measured(rig: Rig) -> None:
    rig.register()
    settle(rig, record_of(rig))
    assert 0 < rig.stats.edge(0).round_trip_s < PATIENCE_S
    for _ in range(3):
        rig.pass_time(11)
        assert rig.edge.call("/hello").read_all() == b"hello\n"
    assert [type(report) for report in rig.reports] == [Registered]


def test_a_connection_without_an_answer_to_a_ping_is_closed(rig: Rig) -> None:
    number = rig.register()
    record = record_of(rig)
    settle(rig, record)
    rig.edge.stop_reading(record)
    rig.pass_time(11)
    assert not [report for report in rig.reports if isinstance(report, Ended)]
    rig.pass_time(11)
    end = rig.wait_for_end(number)
    assert (end.cause, end.error) == (FailureCause.LOST, "the edge answered no PING within 10 s")
    assert end.registered_for_s >= 20


def test_an_acknowledgement_of_another_ping_is_ignored(rig: Rig) -> None:
    rig.register()
    record = record_of(rig)
    settle(rig, record)
    measured_s = rig.stats.edge(0).round_trip_s
    rig.edge.stop_reading(record)
    rig.pass_time(11)
    rig.pass_time(3)
    rig.edge.send_bytes(record, frames.encode_frame(frames.PING, frames.ACK, 0, b"notasked"))
    rig.edge.call("/hold")
    rig.services.begun.get(timeout=PATIENCE_S)
    assert rig.stats.edge(0).round_trip_s == measured_s


def test_a_connection_whose_control_stream_is_reset_is_closed(rig: Rig) -> None:
    """Our codec resets a stream whose trailers do not end it; without its control stream a connection is useless."""
    number = rig.register()
    record = record_of(rig)
    rig.edge.send_bytes(record, headers(1, [(b"x-any", b"1")], frames.END_HEADERS))
    end = rig.wait_for_end(number)
    assert "trailers without END_STREAM" in end.error
    rig.edge.wait_until_closed(record)


@pytest.mark.parametrize(
    "end",
    [
        pytest.param(headers(1, [(b"x-any", b"1")], frames.END_HEADERS | frames.END_STREAM), id="by trailers"),
        pytest.param(data(1, b"", frames.END_STREAM), id="by data"),
    ],
)
def test_the_end_of_the_control_stream_closes_the_connection(rig: Rig, end: bytes) -> None:
    number = rig.register()
    record = record_of(rig)
    rig.edge.send_bytes(record, end)
    assert rig.wait_for_end(number).error == "the edge ended the control stream, which it must not"
    rig.edge.wait_until_closed(record)


def test_the_edge_may_send_more_on_its_control_stream_than_a_window_holds(rig: Rig) -> None:
    number = rig.register()
    record = record_of(rig)
    finish = capnp.encode(capnp.Struct(b"\x04".ljust(8, b"\0"), (capnp.Struct(bytes(4096), ()),)))
    for _ in range(20):
        rig.edge.send_control(record, finish)
        settle(rig, record)
    rig.edge.send_control(record, b"\xff" * 64)
    assert "the edge sent something that is not a message" in rig.wait_for_end(number).error


def test_an_edge_with_small_windows_receives_every_message_on_its_control_stream(edge: Edge) -> None:
    edge.behave(Behaviour(h2_settings=h2.Settings(stream_window_bytes=7)))
    with Rig(edge) as rig:
        number = rig.register()
        record = record_of(rig)
        rig.withdraw(number)

        assert rig.wait_for_end(number).error == "unregistered"
        edge.wait_until_closed(record)
        assert record.is_unregistered
        assert record.has_control_ended


# -- withdrawing -------------------------------------------------------------------------------------------------------


def withdrawn_during_a_request(rig: Rig) -> tuple[Record, Call]:
    """A connection that has ended for the supervisor, and serves the request that began before."""
    number = rig.register()
    record = record_of(rig)
    call = rig.edge.call("/hold")
    rig.services.begun.get(timeout=PATIENCE_S)
    rig.withdraw(number)
    rig.wait_for_end(number)
    return record, call


def test_a_withdrawn_connection_unregisters_and_finishes_its_requests(rig: Rig) -> None:
    number = rig.register()
    record = record_of(rig)
    call = rig.edge.call("/hold")
    rig.services.begun.get(timeout=20)
    rig.withdraw(number)
    rig.edge.wait_for(lambda: record.is_unregistered, "the unregistration")
    end = rig.wait_for_end(number)
    assert (end.cause, end.error, end.retry_after_s) == (FailureCause.LOST, "unregistered", 0.0)
    rig.pass_time(3600)
    assert record.closed is None
    rig.call(rig.services.let_go)
    assert call.read_all() == b"hello\n"
    rig.edge.wait_until_closed(record)
    assert record.has_control_ended
    rig.call(rig.links.measure)
    assert rig.stats.edge(0).is_up == 0
    assert [type(report) for report in rig.reports] == [Registered, Ended]


def test_a_withdrawn_connection_stays_open_for_the_linger_time_after_its_last_request(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The edge may not have seen yet that it is unregistered."""
    # Long, since real time passes too.
    monkeypatch.setattr(link, "LINGER_S", 3600.0)
    record, call = withdrawn_during_a_request(rig)
    rig.pass_time(7200)
    rig.call(rig.services.let_go)
    assert call.read_all() == b"hello\n"
    rig.pass_time(1800)
    settle(rig, record)
    assert record.closed is None
    rig.pass_time(1800)
    rig.edge.wait_until_closed(record)


def test_the_gauges_of_a_withdrawn_connection_and_its_successor_are_added_up(
    rig: Rig,
) -> None:
    record, _ = withdrawn_during_a_request(rig)
    rig.register()
    rig.call(rig.links.measure)
    stats = rig.stats.edge(0)
    assert (stats.is_up, stats.in_flight) == (1, 1)

    rig.edge.drop(record)
    rig.services.gone.get(timeout=PATIENCE_S)
    # The turn of the loop in which it ended is over.
    rig.call(lambda: None)
    assert stats.is_up == 1
    rig.call(rig.links.measure)
    assert (stats.is_up, stats.in_flight) == (1, 0)


def test_a_withdrawal_that_the_edge_does_not_answer_ends_after_the_linger_time(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Long, since real time passes too.
    monkeypatch.setattr(link, "LINGER_S", 3600.0)
    number = rig.register()
    record = record_of(rig)
    call = rig.edge.call("/hold")
    rig.services.begun.get(timeout=20)
    settle(rig, record)
    rig.edge.stop_reading(record)
    rig.withdraw(number)
    rig.pass_time(1800)
    assert [type(report) for report in rig.reports] == [Registered]
    rig.pass_time(1800)
    assert rig.wait_for_end(number).error == "unregistered"
    rig.edge.resume_reading(record)
    rig.call(rig.services.let_go)
    assert call.read_all() == b"hello\n"


def test_a_control_stream_that_the_edge_opens_on_a_withdrawn_connection_does_not_keep_it_open(rig: Rig) -> None:
    rig.edge.behave(Behaviour(keeps_sending_s=3600.0))
    number = rig.register()
    record = record_of(rig)
    rig.withdraw(number)
    rig.wait_for_end(number)
    rig.edge.open_second_control(record)
    settle(rig, record)
    for _ in range(2):
        rig.pass_time(link.LINGER_S)
    rig.edge.wait_until_closed(record)


def test_a_withdrawal_before_the_registration_is_carried_out_at_once(rig: Rig) -> None:
    rig.edge.behave(Behaviour(hang=Hang.BEFORE_CONTROL))
    number = rig.dial()
    rig.withdraw(number)
    assert rig.wait_for_end(number).error == "given up before it was registered"
    rig.withdraw(number)
    rig.withdraw(12345)
    assert len(rig.reports) == 1


@pytest.mark.parametrize("is_remotely_managed", [True, False])
def test_a_connection_that_is_withdrawn_while_it_registers_is_unregistered_once_the_edge_has_accepted_it(
    rig: Rig, is_remotely_managed: bool
) -> None:
    rig.edge.behave(Behaviour(register_delay_s=0.5, is_remotely_managed=is_remotely_managed))
    number = rig.dial()
    record = wait_for_registering(rig)
    rig.withdraw(number)
    assert rig.wait_for_end(number).error == "unregistered"
    rig.edge.wait_for(lambda: record.is_unregistered, "the unregistration")
    assert [type(report) for report in rig.reports] == [Registered, Ended]


def test_a_withdrawal_while_the_edge_does_not_answer_the_registration_ends_at_its_timeout(rig: Rig) -> None:
    rig.edge.behave(Behaviour(hang=Hang.BEFORE_REGISTRATION))
    number = rig.dial()
    wait_for_registering(rig)
    rig.withdraw(number)
    rig.pass_time(link.RPC_TIMEOUT_S)
    assert rig.wait_for_end(number).cause is FailureCause.SILENT


def test_a_draining_worker_dials_no_more_and_is_idle_after_its_last_connection(rig: Rig) -> None:
    numbers = [rig.dial(address, conn_index=index) for index, address in enumerate(rig.edge.addresses)]
    for number in numbers:
        rig.wait_for(Registered, number)
    rig.call(lambda: rig.links.drain(rig.is_idle.set))
    assert rig.is_idle.wait(20)
    assert all(record.is_unregistered for record in rig.edge.ledger.records)
    for number in numbers:
        rig.wait_for_end(number)
    late = rig.dial()
    assert rig.wait_for_end(late) == Ended(late, FailureCause.LOST, "the worker is stopping", 0.0, 0.0)


def test_a_worker_without_connections_is_idle_at_once(rig: Rig) -> None:
    rig.call(lambda: rig.links.drain(rig.is_idle.set))
    assert rig.is_idle.is_set()


@pytest.mark.parametrize("hang", [None, Hang.BEFORE_TLS, Hang.BEFORE_HTTP, Hang.BEFORE_REGISTRATION])
def test_closing_a_worker_closes_each_connection_whatever_its_state(rig: Rig, hang: Hang | None) -> None:
    rig.edge.behave(Behaviour(hang=hang))
    number = rig.dial()
    (record,) = rig.edge.wait_for_attempts(1)
    if hang is None:
        rig.wait_for(Registered, number)
    rig.call(rig.links.close)
    assert rig.wait_for_end(number).error == "the worker is stopping"
    rig.edge.wait_until_closed(record)


def test_goaway_makes_the_connection_unregister(rig: Rig) -> None:
    number = rig.register()
    record = record_of(rig)
    rig.edge.goaway(record)
    rig.edge.wait_for(lambda: record.is_unregistered, "the unregistration")
    assert rig.wait_for_end(number).error == "the edge takes this connection out of service (GOAWAY)"


def test_the_code_and_debug_data_of_goaway_are_reported_in_one_line(rig: Rig) -> None:
    number = rig.register()
    payload = bytes(4) + ErrorCode.ENHANCE_YOUR_CALM.to_bytes(4, "big") + b"calm\r\n down" + b"!" * 1000
    rig.edge.send_bytes(record_of(rig), frames.encode_frame(frames.GOAWAY, 0, 0, payload))
    assert rig.wait_for_end(number).error == "the edge takes this connection out of service (GOAWAY, code 11: %s)" % (
        r"calm\r\n down" + "!" * 245
    )


@pytest.mark.parametrize("hang", [Hang.BEFORE_CONTROL, Hang.BEFORE_REGISTRATION])
def test_goaway_before_the_registration_closes_the_connection_at_once(rig: Rig, hang: Hang) -> None:
    """It opens no more streams: once registered, the connection would be up and never get a request."""
    rig.edge.behave(Behaviour(hang=hang))
    number = rig.dial()
    (record,) = rig.edge.wait_for_attempts(1)
    rig.edge.wait_for(lambda: record.tls_version is not None, "TLS")
    settle(rig, record)
    rig.edge.goaway(record)
    end = rig.wait_for_end(number)
    assert (end.cause, end.registered_for_s) == (FailureCause.LOST, 0.0)
    assert end.error == "the edge takes this connection out of service (GOAWAY)"
    rig.edge.wait_until_closed(record)


# -- configurations ----------------------------------------------------------------------------------------------------


def test_a_pushed_configuration_is_reported_and_answered_with_the_version_that_holds(rig: Rig) -> None:
    rig.register()
    call = rig.edge.call(fields=[UPDATE_CONFIGURATION], end_stream=False)
    call.send(b'{"version":5,"config":{"ingress":[]}}', True)
    pushed = rig.wait_for_one(Pushed)
    assert pushed.version == 5
    rig.take_push(pushed.push, 9)
    assert call.read_all() == b'{"lastAppliedVersion":9,"err":null}'
    rig.take_push(pushed.push, 10)


def test_concurrent_pushes_each_get_their_own_answer(rig: Rig) -> None:
    rig.register()
    first, second = (rig.edge.call(fields=[UPDATE_CONFIGURATION], end_stream=False) for _ in range(2))
    first.send(b'{"version":5,"config":{}}', True)
    pushed = rig.wait_for_one(Pushed)
    second.send(b'{"version":6,"config":{}}', True)
    other = rig.wait_for_one(Pushed, lambda report: report != pushed)

    rig.take_push(other.push, 6)
    rig.take_push(pushed.push, 5)

    assert second.read_all() == b'{"lastAppliedVersion":6,"err":null}'
    assert first.read_all() == b'{"lastAppliedVersion":5,"err":null}'


def test_an_invalid_push_replaces_nothing_and_is_answered_with_the_error(rig: Rig) -> None:
    rig.register()
    call = rig.edge.call(fields=[UPDATE_CONFIGURATION], end_stream=False)
    call.send(b'{"version":5,"config":[]}', True)
    pushed = rig.wait_for_one(Pushed)

    assert pushed.version is None
    rig.take_push(pushed.push, 4)
    assert call.read_all() == b'{"lastAppliedVersion":4,"err":"the configuration is not a JSON object"}'


def test_the_answer_to_a_push_that_the_edge_has_reset_is_dropped(rig: Rig) -> None:
    rig.register()
    call = rig.edge.call(fields=[UPDATE_CONFIGURATION], end_stream=False)
    call.send(b'{"version":5,"config":{}}', True)
    pushed = rig.wait_for_one(Pushed)
    call.reset()
    rig.edge.ping(record_of(rig))
    rig.take_push(pushed.push, 5)
    assert rig.edge.call("/hello").read_all() == b"hello\n"


@pytest.mark.parametrize("body", [b"", b"no json", b'{"version":"1"}', b"[" * 100_000])
def test_a_push_that_cannot_be_read_is_refused(rig: Rig, body: bytes) -> None:
    rig.register()
    call = rig.edge.call(fields=[UPDATE_CONFIGURATION], end_stream=not body)
    if body:
        call.send(body, True, waits=False)
    assert (call.response().status_code, call.response().source) == (502, "cloudflared")
    assert rig.edge.call("/hello").read_all() == b"hello\n"
    assert [type(report) for report in rig.reports] == [Registered]


def test_concurrent_pushes_share_the_size_limit_of_one(rig: Rig) -> None:
    rig.register()
    malformed = rig.edge.call(fields=[UPDATE_CONFIGURATION], end_stream=False)
    malformed.send(bytes(MAX_UPDATE_BYTES * 2 // 5), True)
    assert malformed.response().status_code == 502
    pushes = [rig.edge.call(fields=[UPDATE_CONFIGURATION], end_stream=False) for _ in range(3)]
    part = bytes(MAX_UPDATE_BYTES * 2 // 5)
    for push in pushes[:2]:
        push.send(part)
    settle(rig, record_of(rig))
    pushes[2].send(part, waits=False)
    assert pushes[2].response().status_code == 502

    pushes[0].reset()
    settle(rig, record_of(rig))
    other = rig.edge.call(fields=[UPDATE_CONFIGURATION], end_stream=False)
    other.send(b'{"version":1,"config":{}}' + part[: len(part) // 2].replace(b"\0", b" "), True)
    pushed = rig.wait_for_one(Pushed)
    rig.take_push(pushed.push, 1)
    assert other.read_all() == b'{"lastAppliedVersion":1,"err":null}'


def test_pushes_that_have_been_taken_leave_room_for_others(rig: Rig) -> None:
    def is_version(version: int, pushed: Pushed) -> bool:
        return pushed.version == version

    rig.register()
    for version in range(3):
        push = rig.edge.call(fields=[UPDATE_CONFIGURATION], end_stream=False)
        push.send(b'{"version":%d,"config":{}}' % version + b" " * (MAX_UPDATE_BYTES * 2 // 5), True)
        rig.take_push(rig.wait_for_one(Pushed, partial(is_version, version)).push, version)
        assert push.read_all() == b'{"lastAppliedVersion":%d,"err":null}' % version


def test_the_repr_of_dial_means_shows_no_secret() -> None:
    assert repr(DialMeans("secret", b"secret", "roots")) == "<DialMeans>"
