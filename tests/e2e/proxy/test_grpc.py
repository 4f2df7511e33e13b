"""grpcio on both sides: all kinds of calls, deadlines, metadata, and errors as a real client sees them."""

import json
import queue
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from typing import Any

import grpc
import h2.errors
import h2.events
import pytest

from tests.e2e.proxy.doors import through_both_doors
from tests.proxy.backend.h2peer import H2Peer, speaks
from tests.proxy.backend.servers import backend as backend_that
from tests.support.certificates import Authority
from tests.support.gateway import Gateway, route_to
from tests.support.grpcpeer import DETAILS, GrpcClient, GrpcServer, clear_client, code_of, tls_client, usual_client
from tests.support.ports import ReservedPort
from tests.support.socketbackend import Dialogue, SocketBackend

BACKEND_NAME = "grpc.internal"


@pytest.fixture(params=["h2c", "https"])
def server(request: pytest.FixtureRequest, gateway: Gateway) -> Iterator[GrpcServer]:
    """Reached by the gRPC route that the gateway serves meanwhile."""
    authority = gateway.doors.authority
    certificate = authority.issue(BACKEND_NAME) if request.param == "https" else None
    tls: dict[str, Any] = {"tls": {"serverName": BACKEND_NAME, "ca": authority.pem}} if certificate else {}
    with GrpcServer(certificate) as server:
        gateway.serve(route_to(server.address, kind="grpc", protocol=request.param, **tls))
        yield server


each_client = pytest.mark.parametrize(
    ("gateway", "client"), [("listener", "clear"), ("listener", "tls"), ("tunnel", "clear")], indirect=True
)


@pytest.fixture
def client(request: pytest.FixtureRequest, gateway: Gateway) -> Iterator[GrpcClient]:
    if request.param == "clear":
        made = clear_client(gateway.clear[1])
    else:
        made = tls_client(gateway.tls[1], gateway.doors.authority.pem)
    with made:
        yield made


@each_client
def test_a_unary_call_carries_message_and_metadata_both_ways(server: GrpcServer, client: GrpcClient) -> None:
    answer, call = client.unary("Unary", b"hello", metadata=(("x-note", "a"), ("x-note-bin", b"\x01\x80")))

    assert b"hello" == answer
    assert ("x-note", "a") in [tuple(pair) for pair in call.initial_metadata()]
    assert {("x-tail", "17"), ("x-tail-bin", b"\x00\xff")} <= {tuple(pair) for pair in call.trailing_metadata()}
    assert grpc.StatusCode.OK == call.code()


@each_client
@pytest.mark.parametrize("size_bytes", [0, 65_535, 3_000_000])
def test_messages_of_any_size_pass(server: GrpcServer, client: GrpcClient, size_bytes: int) -> None:
    message = bytes(range(256)) * (size_bytes // 256) + bytes(size_bytes % 256)

    assert message == client.unary("Unary", message)[0]


@each_client
def test_a_server_streams_many_messages(server: GrpcServer, client: GrpcClient) -> None:
    message = b"0123456789" * 50

    assert message == b"".join(client.split("Split", message))


@each_client
def test_a_client_streams_many_messages(server: GrpcServer, client: GrpcClient) -> None:
    messages = [b"%d," % number for number in range(500)]

    assert b"".join(messages) == client.join(iter(messages))


@each_client
def test_bidirectional_messages_alternate(server: GrpcServer, client: GrpcClient) -> None:
    """Each message is sent only once the previous one has been answered."""
    outbox: queue.Queue[bytes | None] = queue.Queue()
    answers = client.chat(iter(outbox.get, None))

    for number in range(20):
        outbox.put(b"turn %d" % number)
        assert b"turn %d" % number == next(answers)
    outbox.put(None)

    assert [] == list(answers)
    assert grpc.StatusCode.OK == answers.code()


@each_client
@pytest.mark.parametrize("code", [code for code in grpc.StatusCode if code is not grpc.StatusCode.OK])
def test_errors_of_the_backend_come_through_with_their_details(
    server: GrpcServer, client: GrpcClient, code: grpc.StatusCode
) -> None:
    assert (code, DETAILS) == code_of(lambda: client.unary("Fail", code.name.encode()))


@each_client
def test_an_error_after_messages_comes_with_the_trailers(server: GrpcServer, client: GrpcClient) -> None:
    answers = client.split("Late", b"first")

    assert b"first" == next(answers)
    assert (grpc.StatusCode.DATA_LOSS, DETAILS) == code_of(lambda: next(answers))


@each_client
def test_the_deadline_reaches_the_backend(server: GrpcServer, client: GrpcClient) -> None:
    began_s = time.monotonic()
    client.unary("Unary", b"", timeout_s=9.0)

    ((left_s, looked_s),) = server.deadlines
    assert left_s is not None
    # grpcio's server computes it from a time that it read a little earlier, and may look at it late.
    assert 5.0 < left_s + looked_s - began_s
    assert left_s < 9.5


@each_client
def test_an_expired_deadline_of_the_client_cancels_the_call_at_the_backend(
    server: GrpcServer, client: GrpcClient
) -> None:
    """The deadline must not expire before the call has arrived, which takes longer on a slow machine."""
    for timeout_s in (0.3, 3.0, 30.0):
        code, _ = code_of(partial(client.unary, "Hang", b"", timeout_s=timeout_s))
        assert grpc.StatusCode.DEADLINE_EXCEEDED == code
        if server.hanging.is_set():
            break

    assert server.gone.wait(30)


@each_client
def test_a_cancelled_call_is_cancelled_at_the_backend(server: GrpcServer, client: GrpcClient) -> None:
    call = client.start("Hang", b"")
    assert server.hanging.wait(10)

    call.cancel()

    assert server.gone.wait(10)


@through_both_doors
def test_calls_are_counted_and_logged_by_their_status(gateway: Gateway) -> None:
    with GrpcServer() as server, clear_client(gateway.clear[1]) as client:
        name = f"of-{server.address}"
        gateway.serve(route_to(server.address, kind="grpc", protocol="h2c", name=name))
        client.unary("Unary", b"hello")
        code_of(lambda: client.unary("Fail", b"NOT_FOUND"))
        code_of(lambda: client.unary("Fail", b"UNAVAILABLE"))

        found = [gateway.wait_for_line(lambda line: name in line, "each call", 10.0, nth) for nth in (1, 2, 3)]
        counted = [
            gateway.metric("tunnelgw_proxy_grpc_calls_total", route=name, grpc_status=status)
            for status in ("0", "5", "14", "13")
        ]

    logged = {line["grpc_status"]: (line["status_code"], line["level"]) for line in map(json.loads, found)}
    assert logged == {0: (200, "INFO"), 5: (200, "INFO"), 14: (200, "WARNING")}
    assert counted == [1, 1, 1, 0]


# -- what the proxy answers by itself --------------------------------------------------------------------------------


def failing(gateway: Gateway, call: Callable[[GrpcClient], object]) -> tuple[grpc.StatusCode, str]:
    with clear_client(gateway.clear[1]) as client:
        return code_of(lambda: call(client))


def test_a_client_does_not_notice_that_the_authorities_for_client_certificates_change(gateway: Gateway) -> None:
    """Its connection from before is refused the next call unprocessed, which it makes again over a new one."""
    with closing(Authority()) as authority, closing(Authority()) as other, GrpcServer() as server:
        issued = authority.issue("client.example")

        def admit(authorities_pem: str) -> None:
            clear, tls = gateway.doors.listeners()
            tls = {**tls, "tls": {**tls["tls"], "clientValidation": {"ca": authorities_pem}}}
            gateway.serve(route_to(server.address, kind="grpc", protocol="h2c"), listeners=[clear, tls])

        admit(authority.pem)
        with usual_client(gateway.tls[1], gateway.doors.authority.pem, issued) as client:
            answers = [client.unary("Unary", b"before")[0]]
            admit(authority.pem + other.pem)
            answers += [client.unary("Unary", b"after")[0] for _ in range(3)]

    assert [b"before", *[b"after"] * 3] == answers


@through_both_doors
def test_a_method_without_a_route_is_unimplemented(gateway: Gateway) -> None:
    match = {"grpc": {"service": "test.Echo", "method": "Unary"}}
    with GrpcServer() as server:
        gateway.serve(route_to(server.address, kind="grpc", protocol="h2c", matches=[match]))

        with clear_client(gateway.clear[1]) as client:
            assert b"x" == client.unary("Unary", b"x")[0]
        code, _ = failing(gateway, lambda client: client.unary("Split", b"x"))

    assert grpc.StatusCode.UNIMPLEMENTED == code


@through_both_doors
@pytest.mark.parametrize("rule", ["refused", "no addresses", "no backends"])
def test_a_backend_that_cannot_be_reached_is_unavailable(gateway: Gateway, rule: str) -> None:
    with ReservedPort() as nobody:
        route = route_to(nobody.address, kind="grpc", protocol="h2c")
        if rule == "no addresses":
            route["rules"][0]["backends"] = [{"backend": "empty"}]
        elif rule == "no backends":
            route["rules"][0]["backends"] = []
        gateway.serve(route, backends=[{"name": "empty"}])

        code, details = failing(gateway, lambda client: client.unary("Unary", b"x"))

    assert grpc.StatusCode.UNAVAILABLE == code
    assert details


@through_both_doors
def test_the_routes_timeout_is_deadline_exceeded(gateway: Gateway) -> None:
    with GrpcServer() as server:
        gateway.serve(route_to(server.address, kind="grpc", protocol="h2c", timeouts={"request": "200ms"}))

        code, _ = failing(gateway, lambda client: client.unary("Hang", b"x"))

    assert grpc.StatusCode.DEADLINE_EXCEEDED == code


@through_both_doors
def test_a_backend_that_breaks_the_protocol_is_unavailable(gateway: Gateway) -> None:
    def babble(dialogue: Dialogue) -> None:
        dialogue.send(b"220 mail.example ESMTP\r\n")
        dialogue.read_to_end()

    with SocketBackend(babble) as server:
        gateway.serve(route_to(server.address, kind="grpc", protocol="h2c"))

        code, _ = failing(gateway, lambda client: client.unary("Unary", b"x"))

    assert grpc.StatusCode.UNAVAILABLE == code


@through_both_doors
def test_a_call_that_its_backend_cancels_is_cancelled(gateway: Gateway) -> None:
    """Not unavailable, after which clients may retry it."""

    def cancel(peer: H2Peer, event: h2.events.Event) -> None:
        if isinstance(event, h2.events.RequestReceived):
            peer.h2.reset_stream(event.stream_id, h2.errors.ErrorCodes.CANCEL)

    with backend_that(speaks(cancel)) as server:
        gateway.serve(route_to(server.address, kind="grpc", protocol="h2c"))

        code, details = failing(gateway, lambda client: client.unary("Unary", b"x"))

    assert grpc.StatusCode.CANCELLED == code
    assert "the backend broke the connection before it answered" in details


def test_a_stream_that_its_backend_cancels_is_cancelled(gateway: Gateway) -> None:
    def begin_and_cancel(peer: H2Peer, event: h2.events.Event) -> None:
        if isinstance(event, h2.events.RequestReceived):
            peer.h2.send_headers(event.stream_id, [(b":status", b"200"), (b"content-type", b"application/grpc")])
            peer.h2.send_data(event.stream_id, b"\0\0\0\0\x05first")
            peer.h2.reset_stream(event.stream_id, h2.errors.ErrorCodes.CANCEL)

    with backend_that(speaks(begin_and_cancel)) as server:
        gateway.serve(route_to(server.address, kind="grpc", protocol="h2c"))

        code, _ = failing(gateway, lambda client: list(client.split("Split", b"x")))

    assert grpc.StatusCode.CANCELLED == code
