"""WebSocket over exchanges: both versions of HTTP on both sides, refusals, and bytes of the other protocol; and other
protocols, which only HTTP/1.1 can ask for."""

import base64

import pytest

from proxy.exchange.upgrade import accept_of
from proxy.heads import Fields, RequestHead
from tests.proxy.exchange.conftest import MakeWorld
from tests.proxy.exchange.sides import MemoryClient, World, arrived, asked, config, config_of

KEY = b"dGhlIHNhbXBsZSBub25jZQ=="
ACCEPT = b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
OVER_HTTP2 = config(backend='{"address": "192.0.2.10:80", "protocol": "h2c"}')
PLAIN = config()
VERSION = (b"sec-websocket-version", b"13")


def http1_head(fields: Fields | None = None) -> RequestHead:
    sent = [(b"connection", b"Upgrade"), (b"upgrade", b"websocket"), VERSION, (b"sec-websocket-key", KEY)]
    sent.append((b"content-length", b"0"))
    return asked(fields=sent if fields is None else fields, protocol=b"websocket")


def http2_head() -> RequestHead:
    return asked(b"CONNECT", fields=[VERSION], protocol=b"websocket")


def begin(world: World, *, is_http2: bool) -> MemoryClient:
    return world.begin(http2_head(), end_stream=False) if is_http2 else world.begin(http1_head())


def switch(world: World, *, is_http2: bool) -> None:
    """The backend agrees."""
    stream = world.pool.stream
    if is_http2:
        # The length is Jetty's.
        stream.answer(200, [(b"sec-websocket-protocol", b"chat"), (b"content-length", b"0")])
    else:
        key = stream.field(b"sec-websocket-key")
        assert key is not None
        fields = [(b"connection", b"upgrade"), (b"upgrade", b"websocket"), (b"sec-websocket-protocol", b"chat")]
        stream.answer(101, [*fields, (b"sec-websocket-accept", accept_of(key))])


def test_the_accept_value_is_that_of_the_rfc() -> None:
    assert accept_of(KEY) == ACCEPT


@pytest.mark.parametrize("is_client_http2", [False, True], ids=["client 1.1", "client 2"])
@pytest.mark.parametrize("is_backend_http2", [False, True], ids=["backend 1.1", "backend 2"])
def test_bytes_flow_both_ways_over_any_combination_of_http_versions(
    make_world: MakeWorld, is_client_http2: bool, is_backend_http2: bool
) -> None:
    world = make_world(OVER_HTTP2 if is_backend_http2 else PLAIN)
    client = begin(world, is_http2=is_client_http2)
    stream = world.pool.stream

    assert (stream.head.method, stream.head.protocol) == (b"CONNECT" if is_backend_http2 else b"GET", b"websocket")
    assert stream.has_no_body is not is_backend_http2
    assert (stream.field(b"sec-websocket-key") is None) == is_backend_http2
    assert (stream.field(b"sec-websocket-version"), stream.field(b"content-length")) == (b"13", None)
    assert (stream.field(b"connection"), stream.field(b"upgrade")) == (None, None)

    switch(world, is_http2=is_backend_http2)

    assert client.head is not None
    assert client.head.status_code == (200 if is_client_http2 else 101)
    assert client.field(b"sec-websocket-accept") == (None if is_client_http2 else ACCEPT)
    assert client.field(b"sec-websocket-protocol") == b"chat"
    assert client.field(b"content-length") is None
    assert (client.field(b"connection"), client.field(b"upgrade")) == (None, None)

    client.send(b"ping")
    stream.send(b"pong")
    client.send(b"", end_stream=True)

    assert (stream.body, stream.is_request_ended, client.body, client.is_ended) == (b"ping", True, b"pong", False)

    stream.send(b"bye", end_stream=True)
    stream.taken.drain()
    client.taken.drain()

    assert (client.body, client.is_ended, client.is_request_stopped) == (b"pongbye", True, False)
    assert (client.owed_bytes, stream.owed_bytes, world.record.reason) == (0, 0, "")


@pytest.mark.parametrize(("given", "sent"), [([], b"13"), ([(b"sec-websocket-version", b"8")], b"8")])
def test_a_version_that_an_http2_client_leaves_out_is_added(world: World, given: Fields, sent: bytes) -> None:
    """Firefox leaves it out when it uses a proxy of its own."""
    world.begin(asked(b"CONNECT", fields=given, protocol=b"websocket"), end_stream=False)

    assert [sent] == [value for name, value in world.pool.stream.head.fields if name == b"sec-websocket-version"]


def test_a_new_key_is_generated_for_each_http2_client(world: World) -> None:
    keys = set()
    for _ in range(3):
        begin(world, is_http2=True)
        key = world.pool.stream.field(b"sec-websocket-key")
        assert key is not None
        assert len(base64.b64decode(key)) == 16
        keys.add(key)

    assert len(keys) == 3


@pytest.mark.parametrize("is_backend_http2", [False, True])
def test_early_bytes_wait_for_the_response_to_the_handshake(make_world: MakeWorld, is_backend_http2: bool) -> None:
    world = make_world(OVER_HTTP2 if is_backend_http2 else PLAIN)
    client = begin(world, is_http2=True)
    client.send(b"eager")

    assert world.pool.stream.body == b""

    switch(world, is_http2=is_backend_http2)

    assert world.pool.stream.body == b"eager"


@pytest.mark.parametrize("is_backend_http2", [False, True])
@pytest.mark.parametrize("is_client_http2", [False, True])
def test_a_refusal_is_passed_on_as_an_ordinary_response(
    make_world: MakeWorld, is_client_http2: bool, is_backend_http2: bool
) -> None:
    world = make_world(OVER_HTTP2 if is_backend_http2 else PLAIN)
    client = begin(world, is_http2=is_client_http2)
    world.pool.stream.answer(403, [(b"content-length", b"2")])
    world.pool.stream.send(b"no", end_stream=True)

    assert client.head is not None
    assert (client.head.status_code, client.body, client.is_ended) == (403, b"no", True)
    assert client.is_request_stopped is is_client_http2


def test_early_bytes_are_dropped_when_the_backend_refuses(world: World) -> None:
    client = begin(world, is_http2=True)
    client.send(b"eager")
    world.pool.stream.answer(403)

    assert (client.owed_bytes, client.is_request_stopped, client.is_over) == (0, True, False)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (
            (101, [(b"sec-websocket-accept", ACCEPT)]),
            "status 101 without the sec-websocket-accept that matches our key",
        ),
        ((101, []), "status 101 without the sec-websocket-accept that matches our key"),
        ((200, []), "status 200 instead of 101, which HTTP/2 would take for a switch"),
        ((299, []), "status 299 instead of 101, which HTTP/2 would take for a switch"),
    ],
    ids=["101 to another key", "101 to no key", "200, which HTTP/2 takes for a switch", "299"],
)
def test_an_invalid_handshake_response_is_answered_502(world: World, answer: tuple[int, Fields], why: str) -> None:
    client = begin(world, is_http2=True)
    world.pool.stream.answer(*answer)

    assert client.head is not None
    assert (client.head.status_code, world.record.reason, world.record.detail) == (502, "protocol", why)
    assert world.pool.stream.is_cancelled


def test_a_200_response_to_an_http1_handshake_is_passed_on(world: World) -> None:
    client = begin(world, is_http2=False)
    world.pool.stream.answer(200, end_stream=True)

    assert client.head is not None
    assert (client.head.status_code, client.is_ended) == (200, True)


@pytest.mark.parametrize("fields", [[VERSION], [(b"sec-websocket-key", KEY)] * 2], ids=["no key", "two keys"])
def test_an_http1_client_without_exactly_one_key_is_refused(make_world: MakeWorld, fields: Fields) -> None:
    world = make_world(OVER_HTTP2)
    client = world.begin(http1_head(fields))

    assert client.head is not None
    assert (client.head.status_code, world.record.reason) == (400, "bad_upgrade")


@pytest.mark.parametrize("method", [b"GET", b"POST"])
def test_an_upgrade_to_another_protocol_is_forwarded_and_bytes_flow_both_ways(world: World, method: bytes) -> None:
    client = world.begin(asked(method, fields=[(b"content-length", b"0")], protocol=b"DERP"))
    stream = world.pool.stream

    assert (stream.head.method, stream.head.protocol, stream.has_no_body) == (method, b"DERP", True)

    stream.answer(101, [(b"connection", b"upgrade"), (b"upgrade", b"DERP"), (b"derp-version", b"2")])
    client.send(b"ping")
    stream.send(b"pong")

    assert client.head is not None
    assert (client.head.status_code, client.field(b"derp-version")) == (101, b"2")
    assert (stream.body, client.body) == (b"ping", b"pong")


def test_the_body_of_an_upgrade_request_reaches_the_backend_before_the_switch(world: World) -> None:
    head = asked(b"POST", fields=[(b"content-length", b"4")], protocol=b"tcp")
    client = world.begin(head, end_stream=False)
    stream = world.pool.stream
    client.send(b"bo")
    client.send(b"dy", True)

    assert (stream.head.protocol, stream.field(b"content-length"), stream.has_no_body) == (b"tcp", b"4", False)
    assert (stream.body, stream.is_request_ended) == (b"body", True)

    stream.answer(101, [(b"connection", b"upgrade"), (b"upgrade", b"tcp")])
    client.send(b"ping")
    stream.send(b"pong")

    assert (stream.body, client.body) == (b"bodyping", b"pong")


def test_the_body_of_an_upgrade_request_is_sent_on_when_the_backend_does_not_switch(world: World) -> None:
    client = world.begin(asked(b"POST", fields=[(b"content-length", b"4")], protocol=b"tcp"), end_stream=False)
    stream = world.pool.stream
    client.send(b"bo")
    stream.answer(200)
    client.send(b"dy", True)
    stream.send(b"done", True)

    assert (stream.body, client.body, client.is_ended) == (b"body", b"done", True)


def test_an_upgrade_to_another_protocol_is_not_forwarded_over_http2(make_world: MakeWorld) -> None:
    world = make_world(OVER_HTTP2)
    client = world.begin(asked(b"POST", protocol=b"DERP"))
    stream = world.pool.stream

    assert (stream.head.method, stream.head.protocol) == (b"POST", None)

    stream.answer(426, [], end_stream=True)

    assert client.head is not None
    assert (client.head.status_code, client.is_ended) == (426, True)


@pytest.mark.parametrize("status_code", [200, 204, 299])
def test_a_2xx_response_of_a_rule_does_not_open_a_websocket(make_world: MakeWorld, status_code: int) -> None:
    """Over HTTP/2 any 2xx response means that it is open."""
    filters = '{"responseHeaderModifier": {"set": [{"name": "Server", "value": "ours"}]}}'
    rule = f'{{"filters": {filters}, "respond": {{"statusCode": {status_code}}}}}'
    world = make_world(
        config_of(f"""{{"listeners": [{{"name": "web", "port": 80}}], "routes": [{{"rules": [{rule}]}}]}}""")
    )
    client = world.begin(http2_head(), end_stream=False)

    assert client.head is not None
    assert (client.head.status_code, world.record.reason) == (400, "bad_upgrade")
    assert client.field(b"server") == b"ours"
    assert client.is_ended


def test_a_4xx_response_of_a_rule_refuses_a_websocket(make_world: MakeWorld) -> None:
    rule = '{"respond": {"statusCode": 403, "body": "no"}}'
    world = make_world(
        config_of(f"""{{"listeners": [{{"name": "web", "port": 80}}], "routes": [{{"rules": [{rule}]}}]}}""")
    )
    client = world.begin(http2_head(), end_stream=False)

    assert client.head is not None
    assert (client.head.status_code, client.body) == (403, b"no")


def test_only_the_idle_timeout_applies_after_the_switch(make_world: MakeWorld) -> None:
    limits = '"limits": {"streamIdleTimeout": "10s"},'
    world = make_world(config('"timeouts": {"request": "2s", "backendRequest": "1s"},', more=limits))
    client = begin(world, is_http2=False)
    switch(world, is_http2=False)
    world.wait(9.0)

    assert not client.is_over

    world.wait(2.0)

    assert (client.is_reset, world.record.reason) == (True, "idle_timeout")


@pytest.mark.parametrize("ends_early", [False, True], ids=["ends after the switch", "ends before it"])
def test_once_the_edge_has_ended_a_switched_stream_its_backend_has_two_seconds_for_last_words(
    world: World, ends_early: bool
) -> None:
    """The edge ends both directions at once, so nobody reads what comes later."""
    client = world.begin(http2_head(), end_stream=False, arrival=arrived(is_edge=True))
    if ends_early:
        client.send(b"bye", end_stream=True)
    switch(world, is_http2=False)
    if not ends_early:
        client.send(b"bye", end_stream=True)
    stream = world.pool.stream

    world.wait(1.9)
    stream.send(b"bye, too")
    assert (stream.is_request_ended, stream.is_cancelled, client.is_ended) == (True, False, False)
    world.wait(0.2)
    assert (stream.is_cancelled, client.body, client.is_ended) == (True, b"bye, too", True)
    assert (world.record.address, world.record.reason) == (stream.address, "")


def test_the_answer_to_an_upload_from_the_edge_may_outlast_it(world: World) -> None:
    """Its backend may have begun to answer before the upload was complete."""
    client = world.begin(asked(b"POST"), end_stream=False, arrival=arrived(is_edge=True))
    world.pool.stream.answer()
    client.send(b"all", end_stream=True)
    world.wait(60.0)

    world.pool.stream.send(b"done", end_stream=True)
    assert (client.body, client.is_ended, client.is_reset) == (b"done", True, False)


def test_a_client_of_ours_that_has_ended_its_direction_reads_on(world: World) -> None:
    client = begin(world, is_http2=True)
    switch(world, is_http2=False)
    client.send(b"bye", end_stream=True)
    world.wait(60.0)

    world.pool.stream.send(b"bye, too", end_stream=True)
    assert (client.body, client.is_ended, client.is_reset) == (b"bye, too", True, False)


def test_a_websocket_over_http2_matches_routes_as_a_get(make_world: MakeWorld) -> None:
    world = make_world(config('"matches": [{"method": "GET"}],'))
    begin(world, is_http2=True)

    assert world.pool.stream.head.method == b"GET"


def test_a_handshake_on_a_broken_kept_connection_is_retried(world: World) -> None:
    client = begin(world, is_http2=False)
    world.pool.stream.fail(was_reused=True)
    world.wait()
    switch(world, is_http2=False)
    client.send(b"ping")

    assert (len(world.pool.streams), world.pool.stream.body) == (2, b"ping")


def test_a_backend_that_closes_at_once_ends_the_exchange(make_world: MakeWorld) -> None:
    world = make_world(OVER_HTTP2)
    client = begin(world, is_http2=False)
    world.pool.stream.answer(200, end_stream=True)

    assert client.head is not None
    assert (client.head.status_code, client.is_ended, client.is_request_stopped) == (101, True, True)
