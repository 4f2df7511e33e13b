"""External authorization: its requests, the effect of the responses, and that nothing is forwarded without it."""

from __future__ import annotations

import pytest

from proxy.backend.stream import NO_WISH, Reason
from proxy.exchange.answers import http_date
from proxy.exchange.asking import Asking
from proxy.exchange.exchange import Exchange
from proxy.heads import Fields
from tests.proxy.exchange.conftest import MakeWorld
from tests.proxy.exchange.sides import DATE, WALL_S, MemoryClient, MemoryStream, World, asked, config

SERVER = "http://192.0.2.50:9091"


def guarded(members: str = "", rule: str = "", **more: str) -> str:
    """A rule with external authorization; `members` are further ones of `externalAuth`, `more` of `filters`."""
    filters = "".join(f'"{name}": {value}, ' for name, value in more.items())
    auth = f'{{"backend": {{"address": "192.0.2.50:9091"}}{members}}}'
    return f'"filters": {{{filters}"externalAuth": {auth}}}, {rule}'


def begin(
    make_world: MakeWorld,
    rule: str = guarded(),
    method: bytes = b"GET",
    path: bytes = b"/a?b",
    fields: Fields | None = None,
    *,
    protocol: bytes | None = None,
    end_stream: bool = True,
) -> tuple[World, MemoryClient, MemoryStream]:
    """World, client, and the authorization request in progress."""
    world = make_world(config(rule))
    client = world.begin(asked(method, path, fields or [], protocol=protocol), end_stream=end_stream)
    (question,) = world.pool.streams
    assert question.key == SERVER
    return world, client, question


def leaving(world: World) -> MemoryStream:
    """The request as it is forwarded to the backend."""
    world.wait()
    *_, stream = world.pool.streams
    assert stream.key == "http://192.0.2.10:80"
    return stream


# -- the question ------------------------------------------------------------------------------------------------------


def test_the_authorization_request_has_the_method_host_path_and_credentials_but_no_body(
    make_world: MakeWorld,
) -> None:
    fields = [(b"authorization", b"Basic eDp5"), (b"cookie", b"a=b"), (b"content-length", b"5")]
    _, client, question = begin(make_world, method=b"PUT", fields=fields, end_stream=False)
    client.send(b"hello", end_stream=True)

    head = question.head
    assert (head.method, head.scheme, head.authority, head.path) == (b"PUT", b"http", b"a.example", b"/a?b")
    assert head.fields == [(b"authorization", b"Basic eDp5"), (b"content-length", b"0")]
    assert (question.has_no_body, question.body) == (True, b"")


@pytest.mark.parametrize("path", ["check", "/check", "/check/", "//check"])
def test_the_path_prefix_of_the_rule_is_joined_with_one_slash(make_world: MakeWorld, path: str) -> None:
    _, _, question = begin(make_world, guarded(f', "path": "{path}"'))

    assert question.head.path == b"/check/a?b"


def test_allowed_headers_are_sent_to_the_server_as_a_backend_would_get_them(
    make_world: MakeWorld,
) -> None:
    names = ', "allowedHeaders": ["Cookie", "X-Forwarded-For", "X-Forwarded-Host", "Connection-Id"]'
    fields = [
        (b"cookie", b"a=b"),
        (b"cookie", b"c=d"),
        (b"x-forwarded-for", b"127.0.0.1"),
        (b"x-other", b"1"),
        (b"connection", b"connection-id"),
        (b"connection-id", b"7"),
    ]
    _, _, question = begin(make_world, guarded(names), fields=fields)

    assert question.head.fields == [
        (b"cookie", b"a=b; c=d"),
        (b"x-forwarded-for", b"203.0.113.7"),
        (b"x-forwarded-host", b"a.example"),
        (b"content-length", b"0"),
    ]


@pytest.mark.parametrize(
    ("prefix", "path", "asked_for"),
    [
        ("/auth", b"/a?b", b"/auth/a?b"),
        ("/auth/", b"/a", b"/auth/a"),
        ("/", b"/a", b"/a"),
        ("/auth", b"/public/%2e%2e/admin", b"/auth/admin"),
        ("/auth", b"//admin", b"/auth/admin"),
    ],
)
def test_the_normalized_path_that_was_matched_is_authorized(
    make_world: MakeWorld, prefix: str, path: bytes, asked_for: bytes
) -> None:
    """Otherwise another path could be allowed than the one that the backend gets."""
    _, _, question = begin(make_world, guarded(f', "path": "{prefix}"'), path=path)

    assert question.head.path == asked_for


def test_rewrites_and_header_changes_do_not_apply_to_the_authorization_request(make_world: MakeWorld) -> None:
    rule = guarded(
        ', "allowedHeaders": ["Cookie"]',
        urlRewrite='{"hostname": "b.example", "path": {"type": "ReplaceFullPath", "replaceFullPath": "/new"}}',
        requestHeaderModifier='{"remove": ["Cookie"]}',
    )
    world, _, question = begin(make_world, rule, fields=[(b"cookie", b"a=b")])
    assert (question.head.authority, question.head.path) == (b"a.example", b"/a?b")
    assert question.field(b"cookie") == b"a=b"

    question.answer(200, end_stream=True)

    stream = leaving(world)
    assert (stream.head.authority, stream.head.path, stream.field(b"cookie")) == (b"b.example", b"/new?b", None)


def test_nothing_is_forwarded_when_the_server_has_no_address(make_world: MakeWorld) -> None:
    world = make_world(
        config(
            '"filters": {"externalAuth": {"backend": {"backend": "auth"}}},',
            more='"backends": [{"name": "auth", "addresses": []}],',
        )
    )
    client = world.begin(asked())

    assert client.head is not None
    assert (client.head.status_code, world.record.reason, world.pool.streams) == (503, "no_address", [])


# -- leave -------------------------------------------------------------------------------------------------------------


ABOUT_ITSELF = [
    b"accept-ranges",
    b"content-encoding",
    b"content-language",
    b"content-location",
    b"content-type",
    b"date",
    b"etag",
    b"last-modified",
    b"server",
    b"set-cookie",
    b"trailer",
    b"vary",
    b"www-authenticate",
]
"""What an answer says of itself or to the client: a backend would take it for what its client says."""


def test_after_200_the_request_is_forwarded_with_the_fields_of_the_response(make_world: MakeWorld) -> None:
    fields = [(b"accept", b"*/*"), (b"remote-user", b"root"), (b"remote_user", b"root"), (b"remote.user", b"root")]
    world, client, question = begin(make_world, fields=fields)
    consent = [
        (b"remote-user", b"ann"),
        (b"remote-groups", b"dev"),
        (b"content-length", b"2"),
        (b"connection", b"x-hop"),
        (b"x-hop", b"1"),
        (b"host", b"auth.example"),
        *((name, b"auth") for name in ABOUT_ITSELF),
    ]
    question.answer_whole(b"ok", 200, consent)
    assert len(world.pool.streams) == 1, "not from within the call"

    stream = leaving(world)
    names = [name for name, _ in stream.head.fields]
    assert names.count(b"remote-user") == 1
    assert {b"remote_user", b"remote.user", b"content-length", b"x-hop", *ABOUT_ITSELF}.isdisjoint(names)
    assert (stream.field(b"remote-user"), stream.field(b"remote-groups")) == (b"ann", b"dev")
    assert stream.field(b"accept") == b"*/*"

    stream.answer_whole(b"hello")
    assert client.head is not None
    assert (client.head.status_code, client.body, world.record.status_code) == (200, b"hello", 200)
    assert not world.services.running


def test_allowed_response_headers_come_from_the_server_and_never_from_the_client(
    make_world: MakeWorld,
) -> None:
    names = ', "allowedResponseHeaders": ["Remote-User", "Remote-Groups"]'
    fields = [(b"remote-user", b"root"), (b"remote-groups", b"wheel"), (b"remote_groups", b"wheel")]
    world, _, question = begin(make_world, guarded(names), fields=fields)

    question.answer(200, [(b"remote-user", b"ann"), (b"x-other", b"1")], end_stream=True)

    head = leaving(world).head
    assert [field for field in head.fields if field[0].startswith((b"remote", b"x-other"))] == [
        (b"remote-user", b"ann")
    ]


COOKIES = [(b"set-cookie", b"session=2; Path=/"), (b"set-cookie", b"session_1=x")]


@pytest.mark.parametrize("rule", ["", '"sessionPersistence": {"sessionName": "s"},'])
def test_cookies_set_by_the_server_with_200_go_to_the_client_beside_those_of_the_backend(
    make_world: MakeWorld, rule: str
) -> None:
    """Such a cookie renews a session whose token has been exchanged: without it the next request would be denied."""
    modifier = '{"add": [{"name": "X-Seen", "value": "1"}]}'
    world, client, question = begin(make_world, guarded(rule=rule, responseHeaderModifier=modifier))
    question.answer_whole(b"ok", 200, [(b"remote-user", b"ann"), *COOKIES])
    stream = leaving(world)
    stream.answer_whole(b"hello", 200, [(b"set-cookie", b"cart=7")])

    assert client.head is not None
    cookies = [field for field in client.head.fields if field[0] == b"set-cookie"]
    assert cookies[:3] == [(b"set-cookie", b"cart=7"), *COOKIES]
    assert len(cookies) == (4 if rule else 3)
    assert (client.field(b"x-seen"), client.field(b"remote-user"), client.body) == (b"1", None, b"hello")
    assert stream.field(b"set-cookie") is None


def test_a_client_gets_the_cookies_of_the_server_even_if_the_backend_fails(make_world: MakeWorld) -> None:
    world, client, question = begin(make_world)
    question.answer(200, COOKIES, end_stream=True)
    leaving(world).fail(Reason.REFUSED, is_unprocessed=True)
    world.wait()

    assert client.head is not None
    assert client.head.status_code == 502
    assert [field for field in client.head.fields if field[0] == b"set-cookie"] == COOKIES


def test_a_rule_that_removes_cookies_from_responses_removes_those_of_the_server_too(make_world: MakeWorld) -> None:
    world, client, question = begin(make_world, guarded(responseHeaderModifier='{"remove": ["Set-Cookie"]}'))
    question.answer(200, COOKIES, end_stream=True)
    leaving(world).answer_whole(b"hello", 200, [(b"set-cookie", b"cart=7")])

    assert (client.body, client.field(b"set-cookie")) == (b"hello", None)


def test_header_changes_of_the_rule_apply_after_the_fields_of_the_server(make_world: MakeWorld) -> None:
    changes = '{"remove": ["Remote-Groups"], "add": [{"name": "Remote-User", "value": "via-shop"}]}'
    rule = guarded(requestHeaderModifier=changes)
    world, _, question = begin(make_world, rule)

    question.answer(200, [(b"remote-user", b"ann"), (b"remote-groups", b"dev")], end_stream=True)

    fields = leaving(world).head.fields
    assert [value for name, value in fields if name == b"remote-user"] == [b"ann", b"via-shop"]
    assert b"remote-groups" not in dict(fields)


def test_the_body_waits_for_permission_without_credit_for_its_client(make_world: MakeWorld) -> None:
    world, client, question = begin(make_world, method=b"POST", end_stream=False)
    client.send(b"one ")
    client.send(b"two", end_stream=True)
    assert (question.body, client.owed_bytes) == (b"", 7)

    question.answer(200, end_stream=True)

    stream = leaving(world)
    assert (stream.head.method, stream.head.scheme, stream.head.path) == (b"POST", b"http", b"/a?b")
    assert (stream.body, stream.is_request_ended) == (b"one two", True)
    stream.taken.drain()
    assert client.owed_bytes == 0


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("names", ["", ', "allowedResponseHeaders": ["Remote-User"]'])
def test_trailers_of_the_client_cannot_set_fields_of_the_server(make_world: MakeWorld, moment: str, names: str) -> None:
    """Some backends treat trailers like fields of the head."""
    mirrors = '[{"backend": {"address": "192.0.2.99:80"}}]'
    rule = guarded(names, requestMirrors=mirrors)
    world, client, question = begin(make_world, rule, b"POST", end_stream=False)
    spellings = (b"remote-user", b"remote_user", b"remote.user")
    trailers = [*((name, b"root") for name in spellings), (b"checksum", b"1")]
    if moment == "before":
        client.exchange.on_request_trailers(trailers)
    question.answer(200, [(b"remote-user", b"ann")], end_stream=True)
    stream = leaving(world)
    if moment == "after":
        client.exchange.on_request_trailers(trailers)

    _, mirror, _ = world.pool.streams
    assert stream.field(b"remote-user") == b"ann"
    assert stream.trailers == mirror.trailers == [(b"checksum", b"1")]


def test_mirrors_get_the_whole_request_after_permission(make_world: MakeWorld) -> None:
    mirrors = '[{"backend": {"address": "192.0.2.99:80"}}]'
    world, client, question = begin(make_world, guarded(requestMirrors=mirrors), b"POST", end_stream=False)
    client.send(b"one ")
    question.answer(200, end_stream=True)
    client.send(b"two ")
    world.wait()
    client.send(b"three")
    client.exchange.on_request_trailers([(b"checksum", b"1")])

    _, mirror, stream = world.pool.streams
    assert (mirror.key, mirror.body, mirror.trailers) == (
        "http://192.0.2.99:80",
        b"one two three",
        [(b"checksum", b"1")],
    )
    assert (stream.body, stream.trailers) == (b"one two three", [(b"checksum", b"1")])


def test_a_mirror_is_told_of_the_end_of_a_request_that_was_whole_before_permission(make_world: MakeWorld) -> None:
    mirrors = '[{"backend": {"address": "192.0.2.99:80"}}]'
    world, client, question = begin(make_world, guarded(requestMirrors=mirrors), b"POST", end_stream=False)
    client.send(b"whole", end_stream=True)
    question.answer(200, end_stream=True)
    world.wait()

    _, mirror, stream = world.pool.streams
    assert (mirror.body, mirror.is_request_ended) == (stream.body, stream.is_request_ended) == (b"whole", True)


def test_the_rest_of_a_200_response_is_read_so_that_its_connection_can_be_reused(make_world: MakeWorld) -> None:
    world, client, question = begin(make_world)
    question.answer(200)
    stream = leaving(world)
    question.send(b"o")
    stream.answer(200, end_stream=True)

    assert (question.owed_bytes, question.is_cancelled) == (0, False)
    assert client.is_ended
    question.send(b"k", end_stream=True)
    assert (question.owed_bytes, not world.services.running) == (0, True)


def test_a_200_response_that_does_not_end_is_cancelled_at_64_kib_or_after_30_seconds(make_world: MakeWorld) -> None:
    """One that arrives byte by byte would occupy its connection for weeks."""
    for is_large in (True, False):
        world, _, question = begin(make_world)
        question.answer(200)
        leaving(world).answer(200, end_stream=True)
        if is_large:
            question.send(b"x" * 65_536)
            assert not question.is_cancelled
            question.send(b"x")
        else:
            for _ in range(2):
                assert not question.is_cancelled
                world.wait(14.0)
                question.send(b"x")
            assert not question.is_cancelled
            world.wait(4.0)

        assert (question.is_cancelled, not world.services.running) == (True, True)


def test_the_30_seconds_for_the_rest_of_a_200_response_begin_when_permission_is_given(make_world: MakeWorld) -> None:
    """A server that has a person answer, say, takes its time for the decision itself."""
    world, _, question = begin(make_world)
    world.wait(29.0)
    question.answer(200)
    leaving(world).answer(200, end_stream=True)

    world.wait(28.0)
    assert not question.is_cancelled
    world.wait(4.0)
    assert question.is_cancelled


@pytest.mark.parametrize("end", ["trailers", "failure"])
def test_how_the_rest_of_a_200_response_ends_does_not_affect_the_request(make_world: MakeWorld, end: str) -> None:
    world, client, question = begin(make_world)
    question.answer(200)
    stream = leaving(world)
    assert question in [running.stream for running in world.services.running if isinstance(running, Asking)]
    if end == "trailers":
        question.end_with([(b"checksum", b"1")])
    else:
        question.fail()
    assert not [running for running in world.services.running if isinstance(running, Asking)]
    stream.answer_whole(b"hello")

    assert (client.body, client.is_ended, client.trailers) == (b"hello", True, None)


def test_a_websocket_over_http2_is_authorized_as_a_get(make_world: MakeWorld) -> None:
    _, _, question = begin(make_world, method=b"CONNECT", protocol=b"websocket", end_stream=False)

    assert (question.head.method, question.head.protocol) == (b"GET", None)


def test_an_upgrade_by_post_is_authorized_as_a_post(make_world: MakeWorld) -> None:
    _, _, question = begin(make_world, method=b"POST", protocol=b"DERP", end_stream=True)

    assert (question.head.method, question.head.protocol) == (b"POST", None)


def test_the_body_of_an_upgrade_by_post_waits_for_permission(make_world: MakeWorld) -> None:
    """It is part of the upgrade request: the backend gets it before it switches, the server that is asked does not."""
    fields = [(b"content-length", b"5")]
    world, client, question = begin(make_world, method=b"POST", fields=fields, protocol=b"DERP", end_stream=False)
    question.open()
    client.send(b"hello", end_stream=True)
    assert question.body == b""
    question.answer(200, end_stream=True)

    assert leaving(world).body == b"hello"


def test_a_websocket_is_authorized_as_a_get_and_opened_after_permission(make_world: MakeWorld) -> None:
    fields = [(b"sec-websocket-key", b"dGhlIHNhbXBsZSBub25jZQ=="), (b"sec-websocket-version", b"13")]
    world, client, question = begin(make_world, fields=fields, protocol=b"websocket", end_stream=False)
    assert (question.head.method, question.head.protocol) == (b"GET", None)
    client.send(b"early")
    question.answer(200, [(b"set-cookie", b"a=b")], end_stream=True)

    stream = leaving(world)
    assert (stream.head.protocol, stream.body) == (b"websocket", b"")
    stream.answer(101, [(b"sec-websocket-accept", b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo="), (b"upgrade", b"websocket")])

    assert (stream.body, client.field(b"set-cookie")) == (b"early", b"a=b")


# -- no leave ----------------------------------------------------------------------------------------------------------


def test_a_denial_is_passed_on_to_the_client_and_nothing_is_forwarded(make_world: MakeWorld) -> None:
    rule = guarded(responseHeaderModifier='{"set": [{"name": "X-Seen", "value": "1"}]}')
    world, client, question = begin(make_world, rule, method=b"POST", end_stream=False)
    client.send(b"secret")
    location = (b"location", b"https://login.example/")
    question.answer_whole(b"log in\n", 302, [DATE, location, (b"set-cookie", b"a=b"), (b"keep-alive", b"timeout=5")])

    assert client.head is not None
    assert (client.head.status_code, client.body, client.is_ended) == (302, b"log in\n", True)
    assert client.head.fields == [DATE, location, (b"set-cookie", b"a=b"), (b"x-seen", b"1")]
    assert (client.is_request_stopped, client.owed_bytes) == (True, 0)
    world.wait()
    assert len(world.pool.streams) == 1
    assert (world.record.status_code, world.record.reason, not world.services.running) == (302, "denied", True)


@pytest.mark.parametrize("is_whole", [False, True])
def test_a_denial_without_a_date_gets_the_time_of_its_arrival(make_world: MakeWorld, is_whole: bool) -> None:
    """RFC 9110, 6.6.1, as for a response of the backend."""
    world, client, question = begin(make_world)
    world.wait(2.0)
    if is_whole:
        question.answer_whole(b"log in\n", 401)
    else:
        question.answer(401, end_stream=True)

    assert client.field(b"date") == http_date(int(WALL_S) + 102)


def test_a_long_denial_is_streamed(make_world: MakeWorld) -> None:
    world, client, question = begin(make_world)
    question.answer(401, [(b"www-authenticate", b"Basic")])
    client.taken.window_bytes = 3
    question.send(b"hello ")
    question.send(b"there", end_stream=True)
    assert (client.body, client.is_ended) == (b"hel", False)
    client.widen()
    client.taken.drain()

    assert (client.body, client.is_ended, question.owed_bytes) == (b"hello there", True, 0)
    assert client.field(b"www-authenticate") == b"Basic"
    assert world.record.status_code == 401


@pytest.mark.parametrize("status_code", [300, 599])
def test_every_redirect_and_error_is_passed_on_with_its_trailers(make_world: MakeWorld, status_code: int) -> None:
    _, client, question = begin(make_world)
    question.answer(status_code)
    question.send(b"no")
    question.end_with([(b"checksum", b"1")])

    assert client.head is not None
    assert (client.head.status_code, client.body, client.trailers) == (status_code, b"no", [(b"checksum", b"1")])


@pytest.mark.parametrize("status_code", [201, 202, 204, 299, 600, 999])
def test_a_response_that_is_neither_200_nor_3xx_to_5xx_becomes_403(make_world: MakeWorld, status_code: int) -> None:
    world, client, question = begin(make_world)
    question.answer(status_code)
    assert question.is_cancelled
    world, client, question = begin(make_world)
    question.answer_whole(b"of the server", status_code)

    assert client.head is not None
    assert (client.head.status_code, b"server" in client.body) == (403, False)
    assert (world.record.reason, world.record.detail) == (
        "denied",
        f"asking for authorization: answered {status_code}, want 200",
    )
    assert world.record.address == question.address
    world.wait()
    assert len(world.pool.streams) == 1


def test_nothing_is_forwarded_when_the_server_cannot_be_reached(make_world: MakeWorld) -> None:
    world, client, question = begin(make_world)
    question.fail(Reason.REFUSED, is_unprocessed=True)
    world.wait()

    assert client.head is not None
    assert (client.head.status_code, len(world.pool.streams)) == (502, 1)
    assert world.record.detail == "asking for authorization: as the test wants"


def test_a_truncated_denial_resets_the_client(make_world: MakeWorld) -> None:
    _, client, question = begin(make_world)
    question.answer(401)
    question.send(b"half")
    question.fail()

    assert client.is_reset


def test_a_retry_before_permission_repeats_the_authorization_request(make_world: MakeWorld) -> None:
    """Whatever the retry is for: an authorization request that failed, or one that took too long."""
    retry = '"retry": {"attempts": 3, "codes": [504], "backoff": "10ms"}, "timeouts": {"backendRequest": "1s"},'
    world, client, question = begin(make_world, guarded(rule=retry))
    question.fail()
    world.wait(0.1)
    _, second = world.pool.streams
    assert second.key == SERVER
    world.wait(1.1)
    assert second.is_timed_out
    world.wait(0.2)
    *_, third = world.pool.streams
    assert (third.key, client.head) == (SERVER, None)

    third.answer(200, end_stream=True)
    assert leaving(world).key != SERVER


def test_an_authorization_request_is_retried_at_another_address_of_its_server(make_world: MakeWorld) -> None:
    addresses = '["192.0.2.50:9091", "192.0.2.51:9091"]'
    world = make_world(
        config(
            '"filters": {"externalAuth": {"backend": {"backend": "auth"}}},',
            more=f'"backends": [{{"name": "auth", "addresses": {addresses}}}],',
        )
    )
    world.pool.addresses = ["192.0.2.50:9091", "192.0.2.51:9091"]
    client = world.begin(asked(b"POST"))
    world.pool.stream.fail(Reason.REFUSED, is_unprocessed=True)
    world.wait()
    _, second = world.pool.streams
    assert (second.key, second.wish.avoid, second.address) == ("auth", ("192.0.2.50:9091",), "192.0.2.51:9091")
    second.answer(200, end_stream=True)

    stream = leaving(world)
    assert stream.wish == NO_WISH, "what is known of the server says nothing of the backend"
    stream.fail(Reason.REFUSED, is_unprocessed=True)
    assert client.head is not None, "which has one address"
    assert (client.head.status_code, world.record.retries) == (502, 1)


def test_an_authorization_request_on_a_stale_connection_is_retried_for_any_method(
    make_world: MakeWorld,
) -> None:
    """It has no effects, unlike the request that it is about."""
    world, client, question = begin(make_world, method=b"POST", end_stream=False)
    client.send(b"x" * 70_000, end_stream=True)
    question.fail(was_reused=True)
    world.wait()
    _, second = world.pool.streams
    assert (second.key, second.wish.needs_new_connection, client.head) == (SERVER, True, None)
    second.answer(200, end_stream=True)

    stream = leaving(world)
    assert (len(stream.body), stream.wish.needs_new_connection) == (70_000, False)
    stream.fail(was_reused=True)
    assert client.head is not None, "the request itself is not repeated"
    assert (client.head.status_code, len(world.pool.streams)) == (502, 3)


def test_a_post_whose_authorization_request_was_retried_is_not_itself_repeated(make_world: MakeWorld) -> None:
    """That the question may be asked again says nothing of the request."""
    retry = '"retry": {"attempts": 1, "codes": [504], "backoff": "10ms"}, "timeouts": {"backendRequest": "1s"},'
    world, client, _ = begin(make_world, guarded(rule=retry), b"POST")
    world.wait(1.1)
    world.wait(0.1)
    world.pool.stream.answer(200, end_stream=True)
    leaving(world).fail(was_reused=True)
    world.wait()

    assert client.head is not None
    assert (client.head.status_code, len(world.pool.streams)) == (502, 3)


def test_session_persistence_applies_to_requests_but_not_to_authorization_requests(make_world: MakeWorld) -> None:
    persistence = '"sessionPersistence": {"sessionName": "s", "type": "Header"},'
    retry = '"retry": {"attempts": 1, "connectionErrors": true, "backoff": "10ms"},'
    world, client, question = begin(make_world, guarded(rule=persistence))
    question.answer(200, end_stream=True)
    leaving(world).answer(200, end_stream=True)
    session = client.field(b"s")
    assert session is not None

    world, client, question = begin(make_world, guarded(rule=persistence + retry), fields=[(b"s", session)])
    assert question.wish.session_address is None
    question.fail()
    world.wait(0.1)
    _, second = world.pool.streams
    assert second.wish.session_address is None
    second.answer(200, end_stream=True)

    assert leaving(world).wish.session_address is not None


def test_an_authorization_request_without_response_ends_with_the_request_timeout(make_world: MakeWorld) -> None:
    world, client, question = begin(make_world, guarded(rule='"timeouts": {"request": "5s"},'))
    world.wait(5.1)

    assert client.head is not None
    assert (client.head.status_code, question.is_cancelled, len(world.pool.streams)) == (504, True, 1)


@pytest.mark.parametrize("moment", ["asking", "allowed", "denied"])
def test_a_client_that_disconnects_ends_the_authorization_request(make_world: MakeWorld, moment: str) -> None:
    world, client, question = begin(make_world)
    if moment == "allowed":
        question.answer(200, end_stream=True)
    elif moment == "denied":
        question.answer(401)
    client.leave()
    world.wait()

    assert (question.is_over, len(world.pool.streams), not world.services.running) == (True, 1, True)


@pytest.mark.parametrize("window_bytes", [1 << 16, 0], ids=["read", "not read"])
def test_a_request_that_timed_out_after_permission_is_not_forwarded(make_world: MakeWorld, window_bytes: int) -> None:
    """Not even while its client has still to read the answer."""
    world, client, question = begin(make_world, guarded(rule='"timeouts": {"request": "5s"},'))
    client.taken.window_bytes = window_bytes
    world.wait(4.0)
    question.answer(200, end_stream=True)
    world._now_s += 2.0
    assert isinstance(client.exchange, Exchange)
    client.exchange.on_idle()
    world.wait()

    assert client.head is not None
    assert (client.head.status_code, len(world.pool.streams)) == (504, 1)


def test_permission_restarts_the_idle_timeout(make_world: MakeWorld) -> None:
    world = make_world(config(guarded(), more='"limits": {"streamIdleTimeout": "10s"},'))
    client = world.begin(asked())
    world.wait(8.0)
    world.pool.stream.answer(200, end_stream=True)
    world.wait(8.0)
    assert (client.is_over, len(world.pool.streams)) == (False, 2)

    world.wait(3.0)

    assert client.head is not None
    assert (client.head.status_code, world.record.reason) == (504, "idle_timeout")


def test_nothing_is_forwarded_after_a_bug_in_handling_the_response(make_world: MakeWorld) -> None:
    world, client, question = begin(make_world)
    question.have_bug()
    world.wait()

    assert (client.is_reset, world.record.reason, len(world.pool.streams)) == (True, "bug", 1)
    assert not world.services.running


def test_permission_given_in_time_is_valid_even_if_the_process_stalls_afterwards(make_world: MakeWorld) -> None:
    world, client, question = begin(make_world, guarded(rule='"timeouts": {"backendRequest": "1s"},'))
    world.wait(0.5)
    question.answer(200, end_stream=True)
    world._now_s += 2.0

    leaving(world).answer(204, end_stream=True)

    assert client.head is not None
    assert client.head.status_code == 204


def test_a_preflight_is_answered_without_authorization(make_world: MakeWorld) -> None:
    """Browsers send them without credentials."""
    world = make_world(config(guarded(cors='{"allowOrigins": ["https://b.example"]}')))
    fields = [(b"origin", b"https://b.example"), (b"access-control-request-method", b"GET")]
    client = world.begin(asked(b"OPTIONS", fields=fields))

    assert client.head is not None
    assert (client.head.status_code, world.pool.streams) == (204, [])


def test_a_denial_can_be_read_across_origins(make_world: MakeWorld) -> None:
    rule = guarded(cors='{"allowOrigins": ["https://b.example"]}')
    _, client, question = begin(make_world, rule, fields=[(b"origin", b"https://b.example")])
    question.answer(401, end_stream=True)

    assert client.field(b"access-control-allow-origin") == b"https://b.example"


def test_interim_responses_of_the_server_are_not_passed_on(make_world: MakeWorld) -> None:
    _, client, question = begin(make_world)
    question.interim(103)

    assert client.interims == []


def test_what_the_server_denies_is_not_counted_for_the_backend_that_it_guards(make_world: MakeWorld) -> None:
    world, _, question = begin(make_world)
    question.answer(403, end_stream=True)
    world.begin(asked())
    *_, question = world.pool.streams
    question.answer(200, end_stream=True)
    leaving(world).answer(204, end_stream=True)

    assert world.stats.route("shop").responses == [0, 0, 1, 0, 1, 0]
    assert world.stats.backend("http://192.0.2.10:80").responses == [0, 0, 1, 0, 0, 0]
