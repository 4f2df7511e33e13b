"""Streams as the edge may open them: which are requests, what a backend gets of them, what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from proxy import h2
from proxy.h2 import ErrorCode
from tests.e2e.tunnel.connector import Connector
from tests.support.edge.behaviour import Behaviour
from tests.support.edge.edge import Edge
from tests.support.edge.heads import UPGRADE
from tests.support.gateway import route_to
from tests.support.recordingbackend import Received, RecordingBackend, Reply

SOURCE = (b"cf-cloudflared-proxy-src", b"192.0.2.7")
KEY = (b"sec-websocket-key", b"dGhlIHNhbXBsZSBub25jZQ==")
PUSH = b'{"version":1,"config":{}}'


def serve(proxy: Connector, backend: RecordingBackend, **route: Any) -> None:
    proxy.put({"listeners": [], "routes": [route_to(backend.address, **route)]})


# -- which are requests ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fields",
    [
        [(UPGRADE, b"Websocket"), KEY],
        [(UPGRADE, b"websockets"), KEY],
        [(UPGRADE, b"")],
        [(UPGRADE, b"something"), (UPGRADE, b"control-stream")],
        [(b"cf-cloudflared-proxy-src", b"")],
        [(b"upgrade-insecure-requests", b"1")],
    ],
    ids=["other case", "more than the word", "empty", "the first of two counts", "no source", "a client's own"],
)
def test_marks_that_do_not_match_exactly_make_plain_requests(
    proxy: Connector, backend: RecordingBackend, fields: list[tuple[bytes, bytes]]
) -> None:
    serve(proxy, backend)
    call = proxy.edge.call("/plain", fields=fields)
    assert (call.response().status_code, call.response().source) == (200, "origin")
    call.read_all()
    (received,) = backend.received
    assert not any(name.startswith("cf-cloudflared-") for name, _ in received.headers)
    assert received.value("upgrade") is None


def test_a_stream_marked_websocket_is_one_even_with_a_source_address(
    proxy: Connector, backend: RecordingBackend
) -> None:
    backend.respond = lambda _: Reply(403)
    serve(proxy, backend)
    fields = [SOURCE, (UPGRADE, b"websocket"), KEY, (b"sec-websocket-version", b"12")]
    call = proxy.edge.call("/ws", "POST", fields, end_stream=False)
    assert call.response().status_code == 403
    (received,) = backend.received
    assert (received.method, received.value("upgrade")) == ("GET", "websocket")
    assert str(received.value("connection")).lower() == "upgrade"
    assert received.values("sec-websocket-version") == ["13"]


def test_a_stream_marked_configuration_is_one_with_any_method_and_a_source_address(proxy: Connector) -> None:
    call = proxy.edge.call("/x", "GET", [SOURCE, (UPGRADE, b"update-configuration")], end_stream=False)
    call.send(PUSH, True)
    head = call.wait_for_head()
    assert (head.status_code, head.fields) == (200, [(b"content-type", b"application/json")])
    assert call.read_all() == b'{"lastAppliedVersion":1,"err":null}'


@pytest.mark.parametrize("host", ["127.0.0.1:22", "[2001:db8::1]:22", "a.example:22"])
@pytest.mark.parametrize("end_stream", [True, False])
def test_private_network_streams_are_refused_without_a_body(
    proxy: Connector, backend: RecordingBackend, host: str, end_stream: bool
) -> None:
    serve(proxy, backend)
    fields = [SOURCE, KEY, (UPGRADE, b"control-stream")]
    call = proxy.edge.call(fields=fields, host=host, end_stream=end_stream)
    response = call.response()
    assert (response.status_code, response.source) == (502, "cloudflared")
    assert call.read_all() == b""
    assert sorted(name for name, _ in response.raw.fields) == [b"cf-cloudflared-response-meta", b"content-length"]
    assert not backend.received
    assert len(proxy.edge.ledger.registered) == 1


# -- what a backend gets -----------------------------------------------------------------------------------------------


def test_fields_of_the_edge_and_the_client_reach_the_backend(proxy: Connector, backend: RecordingBackend) -> None:
    serve(proxy, backend)
    kept = [
        (b"cf-connecting-ip", b"2001:db8::7"),
        (b"cf-ray", b"0123456789abcdef-LIS"),
        (b"cf-visitor", b'{"scheme":"https"}'),
        (b"cf-ipcountry", b"PT"),
        (b"cf-access-jwt-assertion", b"a.b.c"),
        (b"cdn-loop", b"cloudflare; loops=1"),
        (b"x-forwarded-for", b"2001:db8::7"),
        (b"x-forwarded-proto", b"https"),
        (b"user-agent", b"agent/1"),
        (b"accept-encoding", b"br"),
        (b"authorization", b"Bearer 1"),
        (b"traceparent", b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
        (b"tracestate", b"a=1"),
        (b"b3", b"0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-1"),
        (b"x-empty", b""),
    ]
    proxy.edge.call("/a%20b?x=%2F&y", fields=[*kept, (b"x-twice", b"1"), (b"x-twice", b"2")]).read_all()
    (received,) = backend.received
    assert received.target == "/a%20b?x=%2F&y"
    for name, value in kept:
        assert received.values(name.decode()) == [value.decode()], name
    assert received.values("x-twice") == ["1", "2"]
    assert received.value("host") == "a.example"


def test_no_fields_are_invented_for_a_client_that_sent_few(proxy: Connector, backend: RecordingBackend) -> None:
    serve(proxy, backend)
    proxy.edge.call().read_all()
    (received,) = backend.received
    assert not [name for name, _ in received.headers if name in ("user-agent", "accept-encoding", "accept")]
    assert not any(name.startswith("cf-") for name, _ in received.headers)


def test_a_stream_without_authority_is_routed_by_its_host_field(proxy: Connector, backend: RecordingBackend) -> None:
    serve(proxy, backend, hostnames=["b.example"])
    call = proxy.edge.call(fields=[(b"host", b"b.example")], host="")
    assert call.response().status_code == 200
    assert backend.received[0].values("host") == ["b.example"]


# -- bodies ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["POST", "GET", "DELETE"])
def test_a_body_of_unknown_length_is_chunked_for_the_backend(
    proxy: Connector, backend: RecordingBackend, method: str
) -> None:
    serve(proxy, backend)
    call = proxy.edge.call(method=method, end_stream=False)
    for piece in (b"one", b"two"):
        call.send(piece)
    call.end()
    assert call.response().status_code == 200
    (received,) = backend.received
    assert received.body == b"onetwo"
    assert received.value("transfer-encoding") == "chunked"
    assert received.value("content-length") is None


def test_a_get_whose_stream_ends_later_with_empty_data_is_served(proxy: Connector, backend: RecordingBackend) -> None:
    serve(proxy, backend)
    call = proxy.edge.call(end_stream=False)
    call.end()
    assert call.response().status_code == 200
    assert backend.received[0].body == b""


def test_a_body_of_known_length_has_content_length_at_the_backend(proxy: Connector, backend: RecordingBackend) -> None:
    serve(proxy, backend)
    call = proxy.edge.call(method="PUT", fields=[(b"content-length", b"4")], end_stream=False)
    call.send(b"body", True)
    assert call.response().status_code == 200
    (received,) = backend.received
    assert (received.body, received.value("content-length"), received.value("transfer-encoding")) == (
        b"body",
        "4",
        None,
    )


@pytest.mark.parametrize("body", [b"too short", b"much too long"])
def test_a_wrong_content_length_resets_its_stream_only(
    proxy: Connector, backend: RecordingBackend, body: bytes
) -> None:
    serve(proxy, backend)
    call = proxy.edge.call(method="POST", fields=[(b"content-length", b"10")], end_stream=False)
    call.send(body, True, waits=False)
    assert call.wait_until_lost() == ErrorCode.PROTOCOL_ERROR
    assert not backend.received
    assert proxy.edge.call().response().status_code == 200


def test_trailers_of_a_request_reach_the_backend(proxy: Connector, backend: RecordingBackend) -> None:
    serve(proxy, backend)
    call = proxy.edge.call(method="POST", fields=[(b"te", b"trailers")], end_stream=False)
    call.send(b"body")
    call.send_trailers([(b"x-sum", b"1")])
    assert call.response().status_code == 200
    assert backend.received[0].trailers == (("x-sum", "1"),)


# -- too large ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("window_bytes", [1, 1 << 20])
def test_a_request_that_is_too_large_is_answered_414_or_431(window_bytes: int) -> None:
    """Even if the window has no room for the body."""
    windows = h2.Settings(stream_window_bytes=window_bytes, connection_window_bytes=1 << 20)
    with Edge() as edge:
        edge.behave(Behaviour(h2_settings=windows))
        with Connector(edge, arguments=["--register-without-config"]) as proxy:
            edge.wait_for_registered(1)
            for call, status_code in (
                (edge.call("/" + "x" * 100_000), 414),
                (edge.call(fields=[(b"x-large", b"v" * 60_000)] * 18), 431),
            ):
                response = call.response()
                assert (response.status_code, response.source) == (status_code, "origin")
                assert (str(status_code).encode() in call.read_all()) is (window_bytes > 1)
            assert proxy.ask().status_code == 404


# -- small windows -----------------------------------------------------------------------------------------------------


def test_bodies_pass_through_small_windows_in_small_pieces() -> None:
    """Of the edge: it takes 1,000 bytes at a time."""
    body = bytes(range(256)) * 400
    windows = h2.Settings(stream_window_bytes=1000, window_pool_bytes=0, connection_window_bytes=70_000)

    def respond(received: Received) -> Reply:
        return Reply(body=received.body)

    with RecordingBackend(respond=respond) as backend, Edge() as edge:
        edge.behave(Behaviour(h2_settings=windows))
        with Connector(edge) as proxy:
            serve(proxy, backend)
            edge.wait_for_registered(1)
            call = edge.call(method="POST", end_stream=False)
            call.send(body, True, waits=False)
            assert call.read_all() == body
            assert max(call.pieces) <= 1000


def test_the_limits_of_a_document_apply_to_connections_made_since() -> None:
    route = {"rules": [{"respond": {"statusCode": 200}}]}
    with Edge() as edge, Connector(edge) as proxy:

        def status_code() -> int:
            return proxy.ask("/" + "x" * 3000).status_code

        proxy.serve(route, limits={"maxUriBytes": 2000})
        (first,) = edge.wait_for_registered(1)
        assert status_code() == 414

        proxy.serve(route)
        edge.drop(first)
        edge.wait_for_attempts(first.number + 1)
        edge.wait_for_registered(1)
        assert status_code() == 200
