"""Requests through the tunnel: from a client of the edge to a backend and back, by the routes of the document."""

from __future__ import annotations

from tests.e2e.tunnel.connector import Connector
from tests.support.edge.heads import WEBSOCKET
from tests.support.gateway import route_to
from tests.support.ports import ReservedPort
from tests.support.recordingbackend import Received, RecordingBackend, Reply


def serve(proxy: Connector, *routes: object, **settings: object) -> None:
    proxy.put({"listeners": [], "routes": list(routes), **settings})


def test_fields_about_the_client_reach_the_backend_with_joined_cookies_and_no_trace_id(
    proxy: Connector, backend: RecordingBackend
) -> None:
    serve(proxy, route_to(backend.address))
    call = proxy.edge.call(
        "/x?y=1",
        fields=[
            (b"cf-connecting-ip", b"192.0.2.7"),
            (b"x-forwarded-for", b"198.51.100.1, 192.0.2.7"),
            (b"x-forwarded-proto", b"https"),
            (b"cf-ray", b"0123456789abcdef-LIS"),
            (b"cf-trace-id", b"1:2:3:1"),
            (b"cookie", b"a=1"),
            (b"cookie", b"b=2"),
        ],
    )
    assert call.response().source == "origin"
    call.read_all()
    (received,) = backend.received
    assert received.target == "/x?y=1"
    assert received.value("host") == "a.example"
    assert received.value("cf-connecting-ip") == "192.0.2.7"
    assert received.value("x-forwarded-for") == "198.51.100.1, 192.0.2.7"
    assert received.value("x-forwarded-proto") == "https"
    assert received.value("cf-ray") == "0123456789abcdef-LIS"
    assert received.values("cookie") == ["a=1; b=2"]
    assert not received.values("cf-trace-id")
    assert not received.values("accept-encoding")
    line = proxy.wait_for_request("/x")
    assert line["client"] == "192.0.2.7"


def test_conditions_believe_the_edge_but_not_what_it_does_not_know(proxy: Connector) -> None:
    def taker_of(*names: str) -> dict[str, object]:
        conditions = [{"name": name, "value": "1"} for name in names]
        answer = {"respond": {"statusCode": 200, "body": f"{names or 'others'}"}}
        return {"matches": [{"headers": conditions}], "backends": [answer]}

    rules = [taker_of("CF-IPCountry"), taker_of("Client-Cert"), taker_of("X_Real_IP"), taker_of()]
    serve(proxy, {"rules": rules})
    bodies = []
    for name in (b"cf-ipcountry", b"client-cert", b"x_real_ip"):
        call = proxy.edge.call(fields=[(b"x-forwarded-proto", b"https"), (name, b"1")])
        assert call.response().status_code == 200
        bodies.append(call.read_all())

    assert bodies == [b"('CF-IPCountry',)", b"others", b"others"]


def test_reserved_fields_of_a_backend_are_dropped(proxy: Connector, backend: RecordingBackend) -> None:
    def respond(_: Received) -> Reply:
        names = ("Cf-Int-X", "Cf-Cloudflared-X", "Cf-Proxy-X", "X-Kept", "Set-Cookie", "Set-Cookie")
        return Reply(201, tuple((name, f"v{number}") for number, name in enumerate(names)), b"body")

    backend.respond = respond
    serve(proxy, route_to(backend.address))
    call = proxy.edge.call()
    response = call.response()
    assert response.status_code == 201
    assert response.values(b"x-kept") == [b"v3"]
    assert response.values(b"set-cookie") == [b"v4", b"v5"]
    assert (b"content-length", b"4") in response.raw.fields
    assert call.read_all() == b"body"


def test_a_backend_that_is_down_is_answered_502_of_the_connector_without_a_body(proxy: Connector) -> None:
    port = ReservedPort()
    try:
        serve(proxy, route_to(f"127.0.0.1:{port.number}"))
        call = proxy.edge.call("/down")
        response = call.response()
        assert (response.status_code, response.source) == (502, "cloudflared")
        assert (b"content-length", b"0") in response.raw.fields
        assert call.read_all() == b""
        line = proxy.wait_for_request("/down")
        assert (line["status_code"], line["reason"]) == (502, "refused")
    finally:
        port.close()


def test_a_502_of_a_backend_is_attributed_to_the_origin(proxy: Connector, backend: RecordingBackend) -> None:
    backend.respond = lambda _: Reply(502, (), b"mine")
    serve(proxy, route_to(backend.address))
    call = proxy.edge.call()
    assert (call.response().status_code, call.response().source) == (502, "origin")
    assert call.read_all() == b"mine"


def test_a_content_length_of_zero_ends_a_request_whose_stream_is_open(
    proxy: Connector, backend: RecordingBackend
) -> None:
    serve(proxy, route_to(backend.address))
    call = proxy.edge.call(fields=[(b"content-length", b"0")], end_stream=False)
    assert call.response().status_code == 200
    assert b'"body_bytes": 0' in call.read_all()


def test_private_network_streams_are_refused_and_logged(proxy: Connector, backend: RecordingBackend) -> None:
    serve(proxy, route_to(backend.address))
    call = proxy.edge.call(fields=[(b"cf-cloudflared-proxy-src", b"192.0.2.7")], host="127.0.0.1:22", end_stream=False)
    assert (call.response().status_code, call.response().source) == (502, "cloudflared")
    assert not backend.received
    assert proxy.wait_for_message("stream of a private network refused")["destination"] == "127.0.0.1:22"


def test_a_malformed_configuration_push_is_answered_502_of_the_connector(
    proxy: Connector, backend: RecordingBackend
) -> None:
    serve(proxy, route_to(backend.address))
    field = (b"cf-cloudflared-proxy-connection-upgrade", b"update-configuration")
    call = proxy.edge.call(fields=[field], end_stream=False)
    call.send(b"no json", True)
    assert (call.response().status_code, call.response().source) == (502, "cloudflared")


def test_a_refused_websocket_gets_the_backends_response(proxy: Connector, backend: RecordingBackend) -> None:
    backend.respond = lambda _: Reply(403, (), b"no")
    serve(proxy, route_to(backend.address))
    key = (b"sec-websocket-key", b"dGhlIHNhbXBsZSBub25jZQ==")
    call = proxy.edge.call("/ws", fields=[WEBSOCKET, key, (b"sec-websocket-version", b"13")], end_stream=False)
    assert call.response().status_code == 403
    (received,) = backend.received
    assert received.value("sec-websocket-key") == "dGhlIHNhbXBsZSBub25jZQ=="
    assert not received.values("cf-cloudflared-proxy-connection-upgrade")


def test_bodies_pass_in_both_directions(proxy: Connector, backend: RecordingBackend) -> None:
    body = bytes(range(256)) * 16384
    backend.respond = lambda received: Reply(body=received.body)
    serve(proxy, route_to(backend.address))
    call = proxy.edge.call(method="POST", end_stream=False)
    call.send(body, True, waits=False)
    assert call.read_all() == body


def test_a_request_reset_during_its_upload_is_cancelled_at_the_backend(
    proxy: Connector, backend: RecordingBackend
) -> None:
    serve(proxy, route_to(backend.address))
    call = proxy.edge.call("/gone", "POST", [(b"content-length", b"10")], end_stream=False)
    call.send(b"12345")
    # A request that arrives together with its reset is not begun.
    for record in proxy.edge.ledger.registered:
        proxy.edge.ping(record)
    call.reset()
    line = proxy.wait_for_request("/gone")
    assert "reset by the edge" in line["detail"]
    assert not backend.received


def test_listeners_get_tunnel_requests_by_scheme(proxy: Connector, backend: RecordingBackend) -> None:
    listeners = [
        {"name": "web", "tunnel": True, "publicPort": 80},
        {"name": "secure", "tunnel": True, "publicPort": 443, "protocol": "HTTPS"},
    ]
    redirect = {
        "name": "up",
        "listeners": ["web"],
        "rules": [{"filters": {"requestRedirect": {"scheme": "https", "statusCode": 301}}}],
    }
    proxy.put(
        {"listeners": listeners, "routes": [redirect, route_to(backend.address, name="app", listeners=["secure"])]}
    )
    moved = proxy.ask("/a", is_secure=False)
    assert (moved.status_code, moved.headers["location"]) == (301, "https://a.example/a")
    assert proxy.ask("/a").status_code == 200
