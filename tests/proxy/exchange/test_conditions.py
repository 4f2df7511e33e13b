"""What header conditions see of a client: what its backend would be told."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy import document
from proxy.exchange.client import Arrival
from proxy.heads import Field, Fields
from proxy.routing import compile_table
from tests.proxy.exchange.conftest import MakeWorld
from tests.proxy.exchange.sides import GRPC, World, arrived, asked, config_of

STRANGER = arrived()
TRUSTED = arrived(address="10.0.0.1", is_trusted=True)
EDGE = arrived(address="198.51.100.1", is_edge=True)


def split(condition: str, *, kind: str = "http", more: str = "") -> document.Document:
    """Requests that fulfil `condition` go to 192.0.2.1, others to 192.0.2.2."""
    return config_of(
        f"""{{"listeners": [{{"name": "web", "port": 80}}], {more} "routes": [
        {{"name": "in", "kind": "{kind}",
          "rules": [{{"matches": [{{"headers": [{condition}]}}], "backends": [{{"address": "192.0.2.1:80"}}]}}]}},
        {{"name": "out", "backends": [{{"address": "192.0.2.2:80"}}]}}]}}"""
    )


def exactly(name: str, value: str) -> str:
    return f'{{"name": "{name}", "value": "{value}"}}'


def taker(world: World) -> str:
    return {"http://192.0.2.1:80": "in", "http://192.0.2.2:80": "out"}[world.pool.stream.key]


@pytest.mark.parametrize(
    ("arrival", "fields", "name", "value", "expected"),
    [
        (STRANGER, [(b"x-forwarded-for", b"10.1.1.1")], "X-Forwarded-For", "10.1.1.1", "out"),
        (STRANGER, [(b"x-forwarded-for", b"10.1.1.1")], "X-Forwarded-For", "203.0.113.7", "in"),
        (TRUSTED, [(b"x-forwarded-for", b"10.1.1.1")], "X-Forwarded-For", "10.1.1.1, 10.0.0.1", "in"),
        (EDGE, [(b"x-forwarded-for", b"10.1.1.1")], "X-Forwarded-For", "10.1.1.1", "in"),
        (STRANGER, [], "X-Forwarded-Proto", "http", "in"),
        (STRANGER, [(b"x-forwarded-proto", b"https")], "X-Forwarded-Proto", "https", "out"),
        (TRUSTED, [(b"x-forwarded-proto", b"https")], "X-Forwarded-Proto", "https", "in"),
        (TRUSTED, [], "X-Forwarded-Proto", "http", "in"),
        (EDGE, [(b"x-forwarded-proto", b"https")], "X-Forwarded-Proto", "https", "in"),
        (STRANGER, [(b"x-forwarded-host", b"b.example")], "X-Forwarded-Host", "a.example", "in"),
        (STRANGER, [], "X-Forwarded-Port", "80", "in"),
        (STRANGER, [(b"cf-connecting-ip", b"1")], "CF-Connecting-IP", "1", "out"),
        (TRUSTED, [(b"cf-connecting-ip", b"1")], "CF-Connecting-IP", "1", "in"),
        (EDGE, [(b"cf-ipcountry", b"DE")], "CF-IPCountry", "DE", "in"),
        (EDGE, [(b"client-cert", b":YQ==:")], "Client-Cert", ":YQ==:", "out"),
        (TRUSTED, [(b"client-cert", b":YQ==:")], "Client-Cert", ":YQ==:", "in"),
        (EDGE, [(b"x_real_ip", b"1")], "X_Real_IP", "1", "out"),
        (STRANGER, [(b"forwarded", b"for=1")], "Forwarded", "for=1", "out"),
        (TRUSTED, [(b"forwarded", b"for=1")], "Forwarded", "for=1", "in"),
        (STRANGER, [(b"x-request-id", b"1")], "X-Request-Id", "1", "out"),
        (TRUSTED, [(b"x-request-id", b"1")], "X-Request-Id", "1", "in"),
        (STRANGER, [(b"connection", b"x-forwarded-proto")], "X-Forwarded-Proto", "http", "in"),
        (TRUSTED, [(b"connection", b"x-real-ip"), (b"x-real-ip", b"1")], "X-Real-IP", "1", "out"),
    ],
)
def test_a_condition_sees_a_field_about_the_client_as_the_backend_gets_it(
    make_world: MakeWorld, arrival: Arrival, fields: Fields, name: str, value: str, expected: str
) -> None:
    world = make_world(split(exactly(name, value)))
    world.begin(asked(fields=fields), arrival=arrival)

    assert expected == taker(world)
    got = [told for field, told in world.pool.stream.head.fields if field == name.lower().encode()]
    assert (expected == "in") == (got == [value.encode()])


said = st.tuples(
    st.sampled_from(
        [b"x-forwarded-for", b"x_forwarded_for", b"x-forwarded-proto", b"forwarded", b"cf-x", b"client-cert"]
    ),
    st.sampled_from([b"1", b"http", b"203.0.113.7", b""]),
)
settled = st.sampled_from(["{}", '{"forwarded": true}', '{"requestIdHeader": "Cf-X"}'])


@given(
    st.lists(said, max_size=4),
    said,
    st.sampled_from([STRANGER, TRUSTED, EDGE]),
    st.sampled_from([b"close", b"cf-x, x-forwarded-for", b"forwarded"]),
    settled,
)
@settings(max_examples=200, deadline=None)
def test_a_condition_holds_exactly_if_the_backend_gets_its_value(
    fields: Fields, wanted: Field, arrival: Arrival, options: bytes, forwarding: str
) -> None:
    name, value = wanted[0].decode(), wanted[1].decode() or "1"
    world = World(split(exactly(name, value), more=f'"forwarding": {forwarding},'))
    world.begin(asked(fields=[(b"connection", options), *fields]), arrival=arrival)
    world.close()

    got = [told for field, told in world.pool.stream.head.fields if field == wanted[0]]
    whole = b", ".join(filter(None, got)) if got else None
    assert (taker(world) == "in") == (whole == value.encode())


def test_a_condition_on_the_request_id_sees_the_new_one(make_world: MakeWorld) -> None:
    expression = '{"name": "X-Request-Id", "type": "RegularExpression", "value": "[0-9a-f]{12}-1"}'
    world = make_world(split(expression))
    world.begin(asked(fields=[(b"x-request-id", b"spoofed")]), arrival=STRANGER)

    assert "in" == taker(world)


@pytest.mark.parametrize(("arrival", "expected"), [(STRANGER, "out"), (TRUSTED, "in"), (EDGE, "in")])
def test_a_condition_of_a_grpc_route_believes_only_trusted_senders(
    make_world: MakeWorld, arrival: Arrival, expected: str
) -> None:
    world = make_world(split(exactly("X-Real-IP", "1"), kind="grpc"))
    world.begin(asked(b"POST", b"/a.B/c", [GRPC, (b"x-real-ip", b"1")]), arrival=arrival)

    assert expected == taker(world)


@pytest.mark.parametrize(("arrival", "scheme"), [(STRANGER, b"http"), (TRUSTED, b"https")])
def test_a_redirect_that_keeps_the_scheme_believes_only_trusted_senders(
    make_world: MakeWorld, arrival: Arrival, scheme: bytes
) -> None:
    world = make_world(
        config_of(
            """{"listeners": [{"name": "web", "port": 80}],
            "routes": [{"name": "r", "rules": [{"filters": {"requestRedirect": {"hostname": "b.example"}}}]}]}"""
        )
    )
    client = world.begin(asked(fields=[(b"x-forwarded-proto", b"https")]), arrival=arrival)

    assert (client.field(b"location") or b"").partition(b":")[0] == scheme


def test_a_websocket_over_http_2_is_matched_by_what_its_backend_is_told(make_world: MakeWorld) -> None:
    world = make_world(split(exactly("X-Forwarded-Proto", "http")))
    world.begin(asked(b"CONNECT", fields=[(b"x-forwarded-proto", b"https")], protocol=b"websocket"), end_stream=False)

    assert "in" == taker(world)


def test_exchanges_see_new_conditions_and_the_end_of_old_ones(make_world: MakeWorld) -> None:
    """On a connection that goes on, so that what was computed for it is used again."""
    spoofed = asked(fields=[(b"x-real-ip", b"1"), (b"x-shown", b"1")])
    world = make_world(split(exactly("X-Shown", "1")))
    takers = []
    for condition in (exactly("X-Real-IP", "1"), exactly("X-Shown", "1"), exactly("X-Forwarded-Proto", "http")):
        world.services.use(compile_table(split(condition)))
        world.begin(spoofed, arrival=STRANGER)
        takers.append(taker(world))

    assert ["out", "in", "in"] == takers
