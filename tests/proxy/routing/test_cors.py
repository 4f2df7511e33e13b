"""CORS: preflights answered here, fields on the responses to other requests, and nothing for foreign origins."""

from typing import Any

import pytest

from proxy import routing
from tests.support.goldencases import ORIGINS
from tests.support.routes import DOOR, answered, forwarded, headers, path, request, route, table_of

PREFLIGHT = {"origin": "https://a.example", "access_control_request_method": "PUT"}


def table_with(**cors: Any) -> routing.Table:
    cors.setdefault("allowOrigins", ["https://a.example"])
    return table_of(route("r", rule={"filters": {"cors": cors}}))


def edits_of(table: routing.Table, **fields: str) -> dict[bytes, bytes]:
    """The CORS fields of a response whose backend wrote some itself."""
    edits = forwarded(table, request("h/", **fields)).response_edits
    from_backend = [(b"access-control-allow-origin", b"https://backend.example"), (b"x", b"1")]
    return dict(edits.apply(from_backend) if edits else from_backend)


@pytest.mark.parametrize(("configured", "sent", "is_allowed"), ORIGINS)
def test_the_cors_fields_name_allowed_origins_only(configured: list[str], sent: str, is_allowed: bool) -> None:
    table = table_with(allowOrigins=configured)

    answer = answered(table, request("h/", "OPTIONS", **{**PREFLIGHT, "origin": sent}))
    response = edits_of(table, origin=sent)

    expected = (b"*" if configured == ["*"] else sent.encode()) if is_allowed else None
    assert expected == dict(answer.headers).get(b"access-control-allow-origin")
    assert expected == response.get(b"access-control-allow-origin")
    assert (204 if is_allowed else 403) == answer.status_code


def test_a_preflight_is_answered_with_all_that_is_configured() -> None:
    table = table_with(
        allowMethods=["GET", "PUT"],
        allowHeaders=["X-A", "X-B"],
        exposeHeaders=["X-C"],
        allowCredentials=True,
        maxAge=60,
    )

    answer = answered(table, request("h/", "OPTIONS", **PREFLIGHT))

    assert {
        b"access-control-allow-origin": b"https://a.example",
        b"vary": b"Origin",
        b"access-control-allow-credentials": b"true",
        b"access-control-expose-headers": b"X-C",
        b"access-control-allow-methods": b"GET, PUT",
        b"access-control-allow-headers": b"X-A, X-B",
        b"access-control-max-age": b"60",
    } == dict(answer.headers)
    assert (204, "preflight", b"") == (answer.status_code, answer.reason, answer.body)


def test_max_age_is_five_seconds_by_default_and_empty_lists_send_no_fields() -> None:
    answer = answered(table_with(), request("h/", "OPTIONS", **PREFLIGHT))

    assert {b"access-control-allow-origin", b"vary", b"access-control-max-age"} == set(dict(answer.headers))
    assert b"5" == dict(answer.headers)[b"access-control-max-age"]


def test_wildcards_are_sent_as_wildcards_without_credentials() -> None:
    table = table_with(allowOrigins=["*"], allowMethods=["*"], allowHeaders=["*"], exposeHeaders=["*"])
    head = request("h/", "OPTIONS", **PREFLIGHT, access_control_request_headers="x-a, x-b")

    fields = dict(answered(table, head).headers)

    assert b"*" == fields[b"access-control-allow-origin"]
    assert b"*" == fields[b"access-control-allow-methods"]
    assert b"*" == fields[b"access-control-allow-headers"]
    assert b"*" == fields[b"access-control-expose-headers"]
    assert b"vary" not in fields


def test_no_wildcard_is_sent_with_credentials() -> None:
    table = table_with(
        allowOrigins=["*"], allowMethods=["*"], allowHeaders=["*"], exposeHeaders=["*"], allowCredentials=True
    )
    head = request("h/", "OPTIONS", **PREFLIGHT, access_control_request_headers="x-a, x-b")

    fields = dict(answered(table, head).headers)

    assert b"*" not in fields.values()
    assert b"https://a.example" == fields[b"access-control-allow-origin"]
    assert b"PUT" == fields[b"access-control-allow-methods"]
    assert b"x-a, x-b" == fields[b"access-control-allow-headers"]


@pytest.mark.parametrize(
    ("cors", "named"),
    [
        ({}, b"Origin"),
        ({"allowMethods": ["*"], "allowHeaders": ["*"]}, b"Origin"),
        ({"allowMethods": ["*"], "allowCredentials": True}, b"Origin, Access-Control-Request-Method"),
        ({"allowHeaders": ["*"], "allowCredentials": True}, b"Origin, Access-Control-Request-Headers"),
        (
            {"allowMethods": ["*"], "allowHeaders": ["*"], "allowCredentials": True},
            b"Origin, Access-Control-Request-Method, Access-Control-Request-Headers",
        ),
    ],
)
def test_preflights_vary_by_the_fields_that_their_answers_depend_on_denied_or_not(
    cors: dict[str, Any], named: bytes
) -> None:
    for origin in ("https://a.example", "https://foreign.example"):
        answer = answered(table_with(**cors), request("h/", "OPTIONS", **{**PREFLIGHT, "origin": origin}))

        assert named == dict(answer.headers).get(b"vary"), origin
        assert [b"vary"] == [name for name, _ in answer.headers if name == b"vary"]


def test_an_empty_repetition_of_a_preflight_field_is_ignored() -> None:
    """A value that ends in a space cannot be sent (RFC 9113, 8.2.1)."""
    everything = ["*"]
    table = table_with(allowOrigins=everything, allowMethods=everything, allowHeaders=everything, allowCredentials=True)
    given = {b"origin": b"https://a.example", b"access-control-request-method": b"PUT"}
    wishes = (*given.items(), (b"access-control-request-headers", b"x-a"))
    head = routing.PlainHead(b"OPTIONS", b"h", b"/", (*wishes, *((name, b"") for name, _ in wishes)))

    fields = dict(answered(table, head).headers)

    assert b"https://a.example" == fields[b"access-control-allow-origin"]
    assert b"PUT" == fields[b"access-control-allow-methods"]
    assert b"x-a" == fields[b"access-control-allow-headers"]


def test_the_cors_fields_of_the_rule_replace_those_of_the_backend() -> None:
    table = table_with(exposeHeaders=["X-C"], allowCredentials=True)

    assert {
        b"x": b"1",
        b"access-control-allow-origin": b"https://a.example",
        b"vary": b"Origin",
        b"access-control-allow-credentials": b"true",
        b"access-control-expose-headers": b"X-C",
    } == edits_of(table, origin="https://a.example")


def test_a_foreign_origin_is_served_without_access_control_fields() -> None:
    assert {b"x": b"1", b"vary": b"Origin"} == edits_of(table_with(), origin="https://foreign.example")


def test_the_response_to_a_request_without_origin_gets_vary_at_most() -> None:
    plain = {b"access-control-allow-origin": b"https://backend.example", b"x": b"1"}

    assert {**plain, b"vary": b"Origin"} == edits_of(table_with())
    assert plain == edits_of(table_with(allowOrigins=["*"]))


@pytest.mark.parametrize("missing", PREFLIGHT)
def test_options_without_the_fields_of_a_preflight_is_forwarded(missing: str) -> None:
    fields = {name: value for name, value in PREFLIGHT.items() if name != missing}

    forwarded(table_with(), request("h/", "OPTIONS", **fields))


def test_another_method_with_the_fields_of_a_preflight_is_forwarded() -> None:
    forwarded(table_with(), request("h/", "GET", **PREFLIGHT))


def test_the_cors_filter_runs_before_a_redirect_and_sets_its_fields_on_it() -> None:
    filters = {"cors": {"allowOrigins": ["https://a.example"]}, "requestRedirect": {"scheme": "https"}}
    table = table_of(route("r", rule={"backends": [], "filters": filters}))

    assert 204 == answered(table, request("h/", "OPTIONS", **PREFLIGHT)).status_code

    redirect = routing.decide(table, routing.socket_door("", 8080), request("h/", origin="https://a.example"), float)
    assert isinstance(redirect, routing.Redirect)
    assert redirect.response_edits is not None
    assert (b"access-control-allow-origin", b"https://a.example") in redirect.response_edits.append


@pytest.mark.parametrize(
    "rule", [{}, {"respond": {"statusCode": 403}, "backends": []}, {"filters": {"requestRedirect": {}}, "backends": []}]
)
def test_the_cors_fields_of_a_rule_come_after_its_response_header_modifier(rule: dict[str, Any]) -> None:
    own = {"set": [{"name": "Access-Control-Allow-Origin", "value": "https://own.example"}]}
    filters = {"cors": {"allowOrigins": ["https://a.example"]}, "responseHeaderModifier": own}
    table = table_of(route("r", rule={**rule, "filters": {**rule.get("filters", {}), **filters}}))

    edits = routing.decide(table, DOOR, request("h/", origin="https://a.example"), float).response_edits

    assert edits is not None
    changed = edits.apply([])
    assert [value for name, value in changed if name == b"access-control-allow-origin"] == [b"https://a.example"]


# -- which rule answers a preflight ----------------------------------------------------------------------------------

OPEN = {"filters": {"cors": {"allowOrigins": ["https://a.example"]}}}
EVERYBODY = route("everybody")
PUT_ASKED = request("h/api/x", "OPTIONS", **PREFLIGHT)
VERSION_ASKED = request("h/api/x", "OPTIONS", **PREFLIGHT, access_control_request_headers="content-type, X-Version")


def taker(head: routing.PlainHead, *routes: dict[str, Any]) -> tuple[str, bool]:
    """The route that takes a request, and whether its filter answers it; `explain` has to name the same."""
    table = table_of(*routes)
    decision = routing.decide(table, DOOR, head, lambda: 0.0)
    winner = routing.explain(table, DOOR, head).winner
    assert (decision.rule.route_name if decision.rule else None) == (winner.route if winner else None)
    return winner.route if winner else "", isinstance(decision, routing.Answer) and decision.reason == "preflight"


def test_a_preflight_goes_to_the_rule_of_the_method_that_it_requests() -> None:
    puts = route("puts", path("/api", method="PUT"), rule=OPEN)
    posts = route("posts", path("/api", method="POST"), rule=OPEN)

    assert ("puts", True) == taker(PUT_ASKED, puts)
    assert ("puts", True) == taker(PUT_ASKED, posts, puts, EVERYBODY)
    assert ("everybody", False) == taker(PUT_ASKED, posts, EVERYBODY)
    assert ("", False) == taker(PUT_ASKED, posts)


def test_a_preflight_goes_to_the_rule_of_the_fields_that_it_announces() -> None:
    """Whatever the value: a preflight announces names alone."""
    exact = route("versions", path("/api", headers=headers(**{"X-Version": "2"})), rule=OPEN)
    pattern = [{"name": "x-version", "value": "[0-9]", "type": "RegularExpression"}]

    assert ("versions", True) == taker(VERSION_ASKED, exact, EVERYBODY)
    assert ("versions", True) == taker(VERSION_ASKED, route("versions", path("/api", headers=pattern), rule=OPEN))
    assert ("everybody", False) == taker(PUT_ASKED, exact, EVERYBODY)


@pytest.mark.parametrize(("value", "is_taken"), [("https://a.example", True), ("https://b.example", False)])
def test_the_value_of_a_field_that_the_preflight_has_itself_is_compared(value: str, is_taken: bool) -> None:
    asked = route("one", path("/api", headers=headers(Origin=value)), rule=OPEN)

    assert is_taken == (("one", True) == taker(PUT_ASKED, asked))


def test_a_field_that_the_preflight_does_not_announce_counts_as_absent() -> None:
    """Browsers send cookies without announcing them, and never with the preflight."""
    asked = route("one", path("/api", headers=headers(Cookie="a=1")), rule=OPEN)

    assert ("everybody", False) == taker(VERSION_ASKED, asked, EVERYBODY)


def test_all_conditions_have_to_be_announced() -> None:
    wanted = headers(**{"X-Version": "2", "X-Other": "1"})
    asked = route("one", path("/api", method="PUT", headers=wanted), rule=OPEN)
    both = request("h/api/x", "OPTIONS", **PREFLIGHT, access_control_request_headers="x-other,x-version")

    assert ("", False) == taker(VERSION_ASKED, asked)
    assert ("one", True) == taker(both, asked)
    assert ("", False) == taker(both, route("one", path("/api", method="POST", headers=wanted), rule=OPEN))
    parameter = path("/api", method="PUT", queryParams=headers(q="1"))
    assert ("", False) == taker(both, route("one", parameter, rule=OPEN))


@pytest.mark.parametrize("missing", PREFLIGHT)
def test_an_options_request_that_is_not_a_preflight_matches_as_options(missing: str) -> None:
    fields = {name: value for name, value in PREFLIGHT.items() if name != missing}
    puts = route("puts", path("/api", method="PUT"), rule=OPEN)
    versions = route("versions", path("/api", headers=headers(**{"X-Version": "2"})), rule=OPEN)
    head = request("h/api/x", "OPTIONS", **fields, access_control_request_headers="x-version")

    assert ("everybody", False) == taker(head, puts, versions, EVERYBODY)


def test_preflight_fields_on_other_methods_are_ignored() -> None:
    head = request("h/api/x", "GET", **PREFLIGHT, access_control_request_headers="x-version")
    puts = route("puts", path("/api", method="PUT"), rule=OPEN)
    versions = route("versions", path("/api", headers=headers(**{"X-Version": "2"})), rule=OPEN)

    assert ("everybody", False) == taker(head, puts, versions, EVERYBODY)


def test_a_rule_without_the_cors_filter_takes_no_preflight_of_another_method_or_field() -> None:
    puts = route("puts", path("/api", method="PUT"))
    versions = route("versions", path("/api", headers=headers(**{"X-Version": "2"})))

    assert ("everybody", False) == taker(VERSION_ASKED, puts, versions, EVERYBODY)


def test_a_rule_for_options_keeps_its_preflights_unless_the_other_has_the_longer_path() -> None:
    puts = route("a-puts", path("/api", method="PUT"), rule=OPEN)
    versions = route("a-versions", path("/api", headers=headers(**{"X-Version": "2"})), rule=OPEN)
    options = route("options", path("/api", method="OPTIONS"))

    assert ("options", False) == taker(VERSION_ASKED, puts, versions, options)
    assert ("a-puts", True) == taker(VERSION_ASKED, puts, versions, route("options", path("/", method="OPTIONS")))
    assert ("options", True) == taker(PUT_ASKED, puts, route("options", path("/api", method="OPTIONS"), rule=OPEN))


def test_explain_names_what_kept_a_preflight_from_a_rule() -> None:
    posts = route("posts", path("/api", method="POST"), rule=OPEN)
    plain = route("plain", path("/api", method="PUT"))
    versions = route("versions", path("/api", headers=headers(**{"X-Version": "2"})), rule=OPEN)

    told = routing.explain(table_of(posts, plain, versions), DOOR, PUT_ASKED)

    assert [
        ("versions", "header x-version", "Exact 2", None),
        ("plain", "method", "PUT", "OPTIONS"),
        ("posts", "method", "POST", "preflight of PUT"),
    ] == [(miss.place.route, miss.criterion, miss.wanted, miss.seen) for miss in told.misses]
