"""Conditions see fields that describe clients as a backend would get them, and all others as sent."""

import json
from typing import Any

import pytest

from proxy import routing
from proxy.heads import Field
from tests.proxy.routing.served import Served
from tests.support.routes import DOOR, Sender, draws, headers, request, route, table_of, taken

LISTENERS = [{"name": "web", "port": 8080}]
NAMES = [
    *("X-Forwarded-For", "x-forwarded-proto", "X-FORWARDED-HOST", "X-Forwarded-Port", "X-Forwarded-User", "Forwarded"),
    *("X-Real-IP", "True-Client-Ip", "CF-Connecting-IP", "Cf-Ipcountry", "Client-Cert", "Client-Cert-Chain"),
    *("X_Real_IP", "X.Forwarded.For", "X-Request-Id", "x_request_id"),
]


def inside(*fields: tuple[str, str], **more: Any) -> dict[str, Any]:
    """A route for requests with these fields."""
    return route("inside", {"headers": [{"name": name, "value": value} for name, value in fields]}, **more)


def sent(*fields: Field, method: bytes = b"GET") -> routing.PlainHead:
    return routing.PlainHead(method, b"a.example", b"/", fields)


@pytest.mark.parametrize("name", NAMES)
def test_an_unknown_client_cannot_fulfil_a_condition_on_a_field_that_describes_clients(name: str) -> None:
    table = table_of(inside((name, "1")), route("outside"))
    spoofed = sent((name.lower().encode(), b"1"))

    assert "outside" == taken(table, spoofed)


@pytest.mark.parametrize("name", NAMES)
def test_a_condition_on_such_a_field_sees_what_a_backend_gets(name: str) -> None:
    table = table_of(inside((name, "ours")), route("outside"))
    field = name.lower().encode()

    assert "inside" == taken(table, sent((field, b"1")), sender=Sender((field, b"ours")))
    assert "outside" == taken(table, sent((field, b"ours")), sender=Sender((field, b"1")))


def test_repeated_fields_of_a_believed_sender_are_joined() -> None:
    table = table_of(inside(("X-Forwarded-For", "10.0.0.1, 10.0.0.2")), route("outside"))
    chain = (b"x-forwarded-for", b"10.0.0.1"), (b"x-forwarded-for", b"10.0.0.2")

    assert "inside" == taken(table, sent(*chain), sender=Sender(*chain, is_trusted=True))


def test_conditions_on_other_fields_see_what_was_sent_although_backends_do_not_get_it() -> None:
    """Whatever conditions the rest of the document has."""
    fields = ((b"connection", b"upgrade"), (b"upgrade", b"x"), (b"te", b"trailers"), (b"cookie", b"a=1"))
    others = inside(("Upgrade", "x"), ("Connection", "upgrade"), ("TE", "trailers"), ("Cookie", "a=1"))
    guarded = route("guarded", {"headers": headers(Forwarded="x")})

    for table in (table_of(others), table_of(others, guarded)):
        assert "inside" == taken(table, sent(*fields), sender=Sender((b"x-forwarded-proto", b"http")))


@pytest.mark.parametrize("name", ["Accept", "X-List"])
def test_a_field_that_lists_the_name_of_such_a_field_is_seen_as_it_was_sent(name: str) -> None:
    described = route("described", {"headers": [{"name": "X-Real-IP", "value": "192.0.2.1"}]})
    table = table_of(inside((name, "x-real-ip, b")), described, route("outside"))

    assert "inside" == taken(table, sent((name.lower().encode(), b"x-real-ip, b")))


def test_conditions_on_fields_of_calls_see_them_alike() -> None:
    call: Field = (b"content-type", b"application/grpc")
    table = table_of(inside(("X-Real-Ip", "10.0.0.1"), kind="grpc"), route("outside"))
    spoofed = sent(call, (b"x-real-ip", b"10.0.0.1"))

    assert "outside" == taken(table, spoofed)
    assert "inside" == taken(table, spoofed, sender=Sender(call, (b"x-real-ip", b"10.0.0.1"), is_trusted=True))


def test_a_redirect_to_https_can_depend_on_the_scheme_that_we_tell_backends() -> None:
    """A rule for X-Forwarded-Proto: http, as routes for load balancers in front have it."""
    to_https = {"backends": [], "filters": {"requestRedirect": {"scheme": "https", "statusCode": 301}}}
    table = table_of(
        route("plain", {"headers": [{"name": "X-Forwarded-Proto", "value": "http"}]}, rule=to_https), route("served")
    )
    spoofed = sent((b"x-forwarded-proto", b"https"))

    assert taken(table, spoofed, sender=Sender((b"x-forwarded-proto", b"http"))).startswith("301 https://")
    assert "served" == taken(table, sent(), sender=Sender((b"x-forwarded-proto", b"https")))


@pytest.mark.parametrize(
    ("sender", "names", "taker"),
    [
        (Sender(), ["X-Real-IP", "X-Shown"], "outside"),
        (Sender(), ["X-Shown"], "inside"),
        (Sender(is_trusted=True), ["X-Real-IP", "X-Shown"], "inside"),
    ],
)
def test_a_preflight_announces_such_a_field_only_if_the_request_could_have_it(
    sender: Sender, names: list[str], taker: str
) -> None:
    rule = {"filters": {"cors": {"allowOrigins": ["*"]}}}
    other = route("other", {"headers": headers(Forwarded="x")})
    table = table_of(inside(*((name, "1") for name in names), rule=rule), route("outside", rule=rule), other)
    announced: Field = (b"access-control-request-headers", b"x-shown, X-Real-IP ,x-other")
    head = sent(
        (b"origin", b"https://b.example"), (b"access-control-request-method", b"GET"), announced, method=b"OPTIONS"
    )

    decision = routing.decide(table, DOOR, head, draws(), 0.0, sender)

    assert decision.rule is not None
    assert taker == decision.rule.route_name


def test_the_answer_to_a_preflight_depends_on_all_that_it_announces() -> None:
    cors = {"cors": {"allowOrigins": ["https://b.example"], "allowHeaders": ["*"], "allowCredentials": True}}
    table = table_of(inside(("X-Real-IP", "1"), rule={"filters": cors}), route("outside", rule={"filters": cors}))
    announced: Field = (b"access-control-request-headers", b"x-real-ip")
    head = sent(
        (b"origin", b"https://b.example"), (b"access-control-request-method", b"GET"), announced, method=b"OPTIONS"
    )

    decision = routing.decide(table, DOOR, head, draws())

    assert isinstance(decision, routing.Answer)
    assert (b"access-control-allow-headers", b"x-real-ip") in decision.headers


def test_the_sender_is_asked_for_its_fields_only_if_a_condition_needs_them() -> None:
    matches = [{"headers": headers(Forwarded="x")}, {"headers": headers(Origin="x")}]
    guarded = route("guarded", *matches, hostnames=["g.example"])
    sender = Sender()
    plain, mixed = table_of(route("r")), table_of(guarded, route("r"))

    assert "r" == taken(plain, request("g.example/"), sender=sender)
    assert "r" == taken(mixed, request("a.example/"), sender=sender)
    assert [] == sender.asked

    assert "r" == taken(mixed, request("g.example/"), sender=sender)
    assert ["web"] == sender.asked


def test_explain_sees_what_decide_sees() -> None:
    table = table_of(inside(("X-Real-IP", "1")), route("outside"))
    spoofed = sent((b"x-real-ip", b"1"))

    told = routing.explain(table, DOOR, spoofed, 0.0, Sender((b"x-real-ip", b"2")))

    assert told.winner is not None
    assert told.decision.rule is rule_of(table, "outside")
    assert "outside" == told.winner.route
    assert [("header x-real-ip", "2")] == [(miss.criterion, miss.seen) for miss in told.misses]
    believed = routing.explain(table, DOOR, spoofed, 0.0, Sender((b"x-real-ip", b"1"), is_trusted=True))
    assert believed.winner is not None
    assert "inside" == believed.winner.route
    assert believed.decision.rule is rule_of(table, "inside")


def rule_of(table: routing.Table, name: str) -> object:
    (rule,) = (rule for compiled in table.routes.values() for rule in compiled.rules if rule.route_name == name)
    return rule


def test_explain_asks_for_the_fields_that_the_listener_of_the_request_would_send() -> None:
    """As each has a port of its own to tell."""
    listeners = [{"name": "other", "port": 8080, "hostname": "b.example"}, {"name": "web", "port": 8080}]
    table = table_of(inside(("X-Real-IP", "1")), listeners=listeners)
    sender = Sender()

    routing.explain(table, DOOR, sent(), 0.0, sender)

    assert {"web"} == set(sender.asked)


def encoded(*routes: dict[str, Any], request_id: str = "X-Request-Id") -> bytes:
    return json.dumps(
        {"listeners": LISTENERS, "forwarding": {"requestIdHeader": request_id}, "routes": routes}
    ).encode()


def test_documents_with_and_without_such_conditions_may_follow_each_other() -> None:
    spoofed = sent((b"x-real-ip", b"1"))
    guarded, changed = inside(("X-Real-IP", "1")), inside(("X-Real-IP", "1"), ("X-Shown", "1"))
    served = Served()

    for routes in ([], [guarded], [guarded], [changed], [], [changed, {**guarded, "name": "too"}], [guarded], []):
        table = served.take(encoded(*routes, route("outside")))

        assert "outside" == taken(table, spoofed)
        assert (table.client_fields is not None) == bool(routes)
        assert len(routes) == table.client_routes


def test_another_field_for_the_request_id_is_noticed_although_no_route_has_changed() -> None:
    spoofed, odd = sent((b"x-trace", b"1")), sent((b"x_trace", b"1"))
    served = Served()
    routes = [inside(("X-Trace", "1")), route("outside")]

    takers = [
        taken(served.take(encoded(*routes, request_id=name)), spoofed) for name in ("a", "X-Trace", "x-trace", "b")
    ]

    assert ["inside", "outside", "outside", "inside"] == takers
    assert "outside" == taken(
        served.take(encoded(inside(("x_trace", "1")), route("outside"), request_id="X_Trace")), odd
    )
    served.take(encoded(route("outside"), request_id="x-trace"))
    assert served.table is not None
    assert 0 == served.table.client_routes
