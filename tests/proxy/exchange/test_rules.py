"""What a rule changes in requests and responses: fields, rewrites, sessions, CORS."""

import pytest

from proxy.backend.stream import Reason
from proxy.exchange.exchange import Exchange
from proxy.heads import RequestHead
from proxy.routing import fingerprint
from tests.proxy.exchange.conftest import MakeWorld
from tests.proxy.exchange.sides import DATE, arrived, asked, config, config_of

STICKY = config(
    '"sessionPersistence": {"sessionName": "s"},', backend='{"addresses": ["192.0.2.10:80", "192.0.2.11:80"]}'
)
CORS = config('"filters": {"cors": {"allowOrigins": ["http://b.example"]}},')
EDITED = config(
    '"filters": {"requestHeaderModifier": {"set": [{"name": "X-Forwarded-Proto", "value": "mine"}], "remove": ["Dnt"]},'
    '"responseHeaderModifier": {"set": [{"name": "Server", "value": "ours"}], "remove": ["X-Powered-By"]}},'
)


def test_header_modifiers_override_our_own_fields(make_world: MakeWorld) -> None:
    world = make_world(EDITED)
    client = world.begin(asked(fields=[(b"dnt", b"1"), (b"accept", b"*/*")]))
    stream = world.pool.stream
    stream.answer(200, [(b"server", b"theirs"), DATE, (b"x-powered-by", b"them")], end_stream=True)

    assert (stream.field(b"dnt"), stream.field(b"accept")) == (None, b"*/*")
    assert [value for name, value in stream.head.fields if name == b"x-forwarded-proto"] == [b"mine"]
    assert client.head is not None
    assert client.head.fields == [DATE, (b"server", b"ours")]


def test_response_header_modifiers_apply_to_errors_too(make_world: MakeWorld) -> None:
    world = make_world(EDITED)
    client = world.begin(asked())
    world.pool.stream.fail(Reason.REFUSED)

    assert client.field(b"server") == b"ours"


@pytest.mark.parametrize(
    ("request_head", "status_code"),
    [
        (asked(authority=b"a.example:80,evil.example"), 400),
        (asked(b"OPTIONS", fields=[(b"max-forwards", b"0")]), 204),
        (asked(b"TRACE", fields=[(b"max-forwards", b"0")]), 405),
        (asked(protocol=b"websocket"), 400),
    ],
    ids=["unusable host", "last hop", "last hop of TRACE", "no websocket key"],
)
def test_response_header_modifiers_apply_to_answers_in_place_of_forwarding(
    make_world: MakeWorld, request_head: RequestHead, status_code: int
) -> None:
    world = make_world(EDITED)
    client = world.begin(request_head)

    assert client.head is not None
    assert (client.head.status_code, client.field(b"server"), world.pool.streams) == (status_code, b"ours", [])


def test_the_original_of_a_rewritten_host_is_sent_as_x_forwarded_host(make_world: MakeWorld) -> None:
    rewrite = '{"hostname": "inner.example", "path": {"type": "ReplaceFullPath", "replaceFullPath": "/in"}}'
    world = make_world(config(f'"filters": {{"urlRewrite": {rewrite}}},'))
    world.begin(asked(path=b"/out?q"))
    stream = world.pool.stream

    assert (stream.head.authority, stream.head.path) == (b"inner.example", b"/in?q")
    assert stream.field(b"x-forwarded-host") == b"a.example"


def test_the_scheme_of_a_request_to_a_tls_backend_is_https(make_world: MakeWorld) -> None:
    backend = '{"address": "192.0.2.10:443", "protocol": "https", "tls": {"serverName": "b.example"}}'
    world = make_world(config(backend=backend))
    world.begin(asked())

    assert world.pool.stream.head.scheme == b"https"


def test_a_session_binds_a_client_to_the_address_that_answered(make_world: MakeWorld) -> None:
    world = make_world(STICKY)
    world.pool.addresses = ["192.0.2.11:80", "192.0.2.10:80"]
    first = world.begin(asked())
    world.pool.stream.answer(200, end_stream=True)
    cookie = first.field(b"set-cookie")

    assert cookie is not None
    assert cookie.startswith(b"s=")

    again = world.begin(asked(fields=[(b"cookie", b"a=b"), (b"cookie", cookie.partition(b";")[0])]))
    world.pool.stream.answer(200, end_stream=True)

    assert world.pool.stream.wish.session_address == fingerprint("192.0.2.11:80")
    assert again.field(b"set-cookie") is None


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_the_session_cookie_is_secure_when_the_client_uses_tls(make_world: MakeWorld, scheme: str) -> None:
    """A browser without TLS would not store a secure cookie."""
    pem = "-----BEGIN %s-----\\nYQ==\\n-----END %s-----"
    pair = f'{{"certificate": "{pem % (("CERTIFICATE",) * 2)}", "privateKey": "{pem % (("PRIVATE KEY",) * 2)}"}}'
    tls = f', "tls": {{"certificates": [{pair}]}}' if scheme == "https" else ""
    world = make_world(
        config_of(
            f"""{{"listeners": [{{"name": "web", "port": 80, "protocol": "{scheme.upper()}"{tls}}}],
            "routes": [{{"name": "shop", "rules": [{{"sessionPersistence": {{"sessionName": "s"}},
            "backends": [{{"address": "192.0.2.10:80"}}]}}]}}]}}"""
        )
    )
    client = world.begin(asked(), arrival=arrived(scheme=scheme.encode()))
    world.pool.stream.answer(200, end_stream=True)

    assert (b"Secure" in (client.field(b"set-cookie") or b"")) is (scheme == "https")


@pytest.mark.parametrize(
    ("is_trusted", "given", "is_secure"), [(True, b"https", True), (True, b"http", False), (False, b"https", False)]
)
def test_a_trusted_proxy_tells_whether_its_client_uses_tls(
    make_world: MakeWorld, is_trusted: bool, given: bytes, is_secure: bool
) -> None:
    world = make_world(STICKY)
    head = asked(fields=[(b"x-forwarded-proto", given)])
    client = world.begin(head, arrival=arrived(is_trusted=is_trusted))
    world.pool.stream.answer(200, end_stream=True)

    assert (b"Secure" in (client.field(b"set-cookie") or b"")) is is_secure


def test_a_redirect_keeps_the_scheme_given_by_a_trusted_proxy(make_world: MakeWorld) -> None:
    world = make_world(
        config_of(
            """{"listeners": [{"name": "web", "port": 80}], "routes": [{"name": "old", "rules": [
            {"filters": {"requestRedirect": {"hostname": "b.example"}}, "backends": []}]}]}"""
        )
    )
    head = asked(fields=[(b"x-forwarded-proto", b"https")])

    client = world.begin(head, arrival=arrived(is_trusted=True))

    assert client.field(b"location") == b"https://b.example/"


def test_a_session_is_bound_to_the_address_reached_by_a_retry(make_world: MakeWorld) -> None:
    world = make_world(STICKY)
    world.pool.addresses = ["192.0.2.10:80", "192.0.2.11:80"]
    client = world.begin(asked())
    world.pool.stream.fail(Reason.REFUSED, is_unprocessed=True)
    world.wait()
    world.pool.stream.answer(200, end_stream=True)
    cookie = client.field(b"set-cookie")

    assert cookie is not None

    world.begin(asked(fields=[(b"cookie", cookie.partition(b";")[0])]))

    assert world.pool.stream.wish.session_address == fingerprint("192.0.2.11:80")


def test_our_own_error_response_does_not_bind_a_session(make_world: MakeWorld) -> None:
    world = make_world(STICKY)
    client = world.begin(asked())
    world.pool.stream.fail(Reason.UNHEALTHY)

    assert client.field(b"set-cookie") is None


def test_a_cross_origin_response_gets_our_cors_fields(make_world: MakeWorld) -> None:
    world = make_world(CORS)
    client = world.begin(asked(fields=[(b"origin", b"http://b.example")]))
    world.pool.stream.answer(200, [(b"access-control-allow-origin", b"*")], end_stream=True)

    assert client.head is not None
    assert (b"access-control-allow-origin", b"http://b.example") in client.head.fields
    assert (b"access-control-allow-origin", b"*") not in client.head.fields


def test_a_browser_may_read_an_error_of_a_cross_origin_request(make_world: MakeWorld) -> None:
    world = make_world(CORS)
    client = world.begin(asked(fields=[(b"origin", b"http://b.example")]))
    world.pool.stream.fail(Reason.REFUSED)

    assert client.field(b"access-control-allow-origin") == b"http://b.example"


def test_a_browser_may_read_every_answer_of_ours_to_a_cross_origin_request(make_world: MakeWorld) -> None:
    """So that its page learns more than that something went wrong."""
    origin = [(b"origin", b"http://b.example")]
    cors = '"filters": {"cors": {"allowOrigins": ["http://b.example"]}}, "timeouts": {"request": "2s"},'
    world = make_world(config(cors))
    too_late, behind = world.begin(asked(fields=origin)), world.begin(asked(fields=origin))
    assert isinstance(behind.exchange, Exchange)
    behind.exchange.leave_behind()
    without_key = world.begin(asked(fields=origin, protocol=b"websocket"))
    unusable = world.begin(asked(b"CONNECT", fields=origin, protocol=b"websocket"), end_stream=False)
    world.pool.stream.answer(200)
    world.wait(2.1)

    answers = (too_late, behind, without_key, unusable)
    assert [client.head.status_code for client in answers if client.head] == [504, 503, 400, 502]
    for client in answers:
        assert client.field(b"access-control-allow-origin") == b"http://b.example"


def test_a_preflight_is_answered_by_us_without_a_body(make_world: MakeWorld) -> None:
    world = make_world(CORS)
    fields = [(b"origin", b"http://b.example"), (b"access-control-request-method", b"PUT")]
    client = world.begin(asked(b"OPTIONS", fields=fields))

    assert client.head is not None
    assert (client.head.status_code, client.body, world.pool.streams) == (204, b"", [])
    assert client.field(b"access-control-allow-origin") == b"http://b.example"
    assert client.field(b"content-length") is None


def test_only_the_request_id_of_a_trusted_client_is_kept(make_world: MakeWorld) -> None:
    world = make_world(config(more='"forwarding": {"requestIdHeader": "X-Trace"},'))
    world.begin(asked(fields=[(b"x-trace", b"abc")]), arrival=arrived(is_trusted=True))

    assert world.pool.stream.field(b"x-trace") == b"abc"

    world.begin(asked(fields=[(b"x-trace", b"abc")])).leave()

    assert world.pool.stream.field(b"x-trace") == world.record.request_id != b"abc"


def test_new_request_ids_are_all_different(make_world: MakeWorld) -> None:
    world, other = make_world(), make_world()
    for one in (world, other) * 3:
        one.begin(asked())

    ids = {stream.field(b"x-request-id") for one in (world, other) for stream in one.pool.streams}
    assert len(ids) == 6


def test_trailers_of_the_client_lack_what_the_rule_removes_from_the_head_or_sets_there(make_world: MakeWorld) -> None:
    """Some backends treat trailers like fields of the head."""
    changes = '{"set": [{"name": "X-User", "value": "anybody"}], "remove": ["X-Secret"]}'
    world = make_world(config(f'"filters": {{"requestHeaderModifier": {changes}}},'))
    client = world.begin(asked(b"POST"), end_stream=False)
    names = (b"x-user", b"x_user", b"x-secret", b"x.secret", b"checksum")

    client.exchange.on_request_trailers([(name, b"root") for name in names])

    stream = world.pool.stream
    assert stream.field(b"x-user") == b"anybody"
    assert stream.trailers == [(b"checksum", b"root")]
