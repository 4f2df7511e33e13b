"""GRPCRoute: what a match requires of a method, which match wins, and the status codes that gRPC clients get."""

from typing import Any

import pytest

from proxy import routing
from tests.support.routes import DOOR, answered, backend, headers, path, request, route, table_of, taken

OLD, NEW = "2020-01-01T00:00:00Z", "2024-01-01T00:00:00Z"


def call(service: str | None = None, method: str | None = None, type_: str = "Exact", **more: Any) -> dict[str, Any]:
    names = {"service": service, "method": method}
    return {"grpc": {"type": type_, **{name: value for name, value in names.items() if value}}, **more}


def grpc(name: str, *matches: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return route(name, *matches, kind="grpc", **fields)


def called(url: str, **fields: str) -> routing.PlainHead:
    return request(url, "POST", content_type="application/grpc", **fields)


MATCHES = [
    (call("a.Svc", "Get"), "h/a.Svc/Get", True),
    (call("a.Svc", "Get"), "h/a.Svc/Put", False),
    (call("a.Svc", "Get"), "h/a.svc/Get", False),
    (call("a.Svc", "Get"), "h/b.Svc/Get", False),
    (call("a.Svc"), "h/a.Svc/Anything", True),
    (call("a.Svc"), "h/a.SvcTwo/Get", False),
    (call(None, "Get"), "h/any.Service/Get", True),
    (call(None, "Get"), "h/any.Service/GetAll", False),
    (call("a[.].*", None, "RegularExpression"), "h/a.Svc/Get", True),
    (call("a[.].*", None, "RegularExpression"), "h/b.Svc/Get", False),
    (call("a[.].*", "G.t", "RegularExpression"), "h/a.Svc/Got", True),
    (call("a[.].*", "G.t", "RegularExpression"), "h/a.Svc/Go", False),
    (call(None, "G.t", "RegularExpression"), "h/x/Get", True),
    (call("a.Svc", "Get", headers=headers(a="1")), "h/a.Svc/Get", False),
    (call("a.Svc", headers=headers(a="1")), "h/a.Svc/Get", False),
    (call(None, "Get", headers=headers(a="1")), "h/a.Svc/Get", False),
    (call("a[.].*", None, "RegularExpression", headers=headers(a="1")), "h/a.Svc/Get", False),
    ({"headers": headers(a="1")}, "h/a.Svc/Get", False),
    ({}, "h/x.Y/Z", True),
    ({}, "h/odd", True),
]


@pytest.mark.parametrize(("match", "url", "fits"), MATCHES)
def test_a_grpc_match_takes_the_calls_of_its_service_and_method(match: dict[str, Any], url: str, fits: bool) -> None:
    assert fits == (taken(table_of(grpc("r", match)), called(url)) == "r")


@pytest.mark.parametrize(("match", "url", "fits"), MATCHES)
def test_explain_agrees_on_which_calls_a_match_takes(match: dict[str, Any], url: str, fits: bool) -> None:
    table = table_of(grpc("r", match))

    assert fits == (routing.explain(table, DOOR, called(url)).winner is not None)


@pytest.mark.parametrize(
    ("match", "said"),
    [
        (call("a.Svc", "Get"), "gRPC Exact /a.Svc/Get"),
        (call("a.Svc"), "gRPC Exact /a.Svc/*"),
        (call(None, "Get"), "gRPC Exact /*/Get"),
        ({}, "gRPC Exact /*/*"),
        (call("a[.].*", None, "RegularExpression"), "gRPC RegularExpression a[.].* / *"),
        (call(None, "G.t", "RegularExpression"), "gRPC RegularExpression * / G.t"),
    ],
)
def test_explain_prints_the_condition_on_service_and_method(match: dict[str, Any], said: str) -> None:
    winner = routing.explain(table_of(grpc("r", match)), DOOR, called("h/a.Svc/Get")).winner

    assert winner is not None
    assert winner.conditions == (said,)


def test_a_route_without_matches_takes_every_call() -> None:
    table = table_of({"name": "r", "kind": "grpc", "rules": [{"backends": [backend("r")]}]})

    assert "r" == taken(table, called("h/a.B/C"))


PAIRS: dict[str, tuple[dict[str, Any], dict[str, Any], routing.PlainHead]] = {
    "exact hostname before wildcard": (
        grpc("win", {}, hostnames=["a.b.example"], createdAt=NEW),
        grpc("lose", call("s", "m"), hostnames=["*.b.example"], createdAt=OLD),
        called("a.b.example/s/m"),
    ),
    "service and method before service": (
        grpc("win", call("s", "m"), createdAt=NEW),
        grpc("lose", call("s", headers=headers(a="1")), createdAt=OLD),
        called("h/s/m", a="1"),
    ),
    "service before method": (
        grpc("win", call("s"), createdAt=NEW),
        grpc("lose", call(None, "method", headers=headers(a="1")), createdAt=OLD),
        called("h/s/method", a="1"),
    ),
    "service before pattern": (
        grpc("win", call("s"), createdAt=NEW),
        grpc("lose", call("long.*|s", "m.*", "RegularExpression"), createdAt=OLD),
        called("h/s/m"),
    ),
    "longer pattern of the service before a shorter one": (
        grpc("win", call("s[a-z]*", None, "RegularExpression"), createdAt=NEW),
        grpc("lose", call("s.*", "long[a-z]*", "RegularExpression"), createdAt=OLD),
        called("h/sx/long"),
    ),
    "longer expression of a method before shorter": (
        grpc("win", call("s", "me.*", "RegularExpression"), createdAt=NEW),
        grpc("lose", call("s", "m.*", "RegularExpression"), createdAt=OLD),
        called("h/s/method"),
    ),
    "method before everything": (
        grpc("win", call(None, "m"), createdAt=NEW),
        grpc("lose", {"headers": headers(a="1", b="1")}, createdAt=OLD),
        called("h/s/m", a="1", b="1"),
    ),
    "more headers before age": (
        grpc("win", call("s", headers=headers(a="1", b="1")), createdAt=NEW),
        grpc("lose", call("s", headers=headers(a="1")), createdAt=OLD),
        called("h/s/m", a="1", b="1"),
    ),
    "age before name": (
        grpc("z-win", call("s"), createdAt=OLD),
        grpc("a-lose", call("s"), createdAt=NEW),
        called("h/s/m"),
    ),
    "name last": (grpc("a-win", call("s")), grpc("b-lose", call("s")), called("h/s/m")),
}


@pytest.mark.parametrize(("winner", "loser", "head"), PAIRS.values(), ids=PAIRS)
def test_the_better_match_wins_in_either_order(
    winner: dict[str, Any], loser: dict[str, Any], head: routing.PlainHead
) -> None:
    assert winner["name"] == taken(table_of(winner, loser), head)
    assert winner["name"] == taken(table_of(loser, winner), head)
    assert loser["name"] == taken(table_of(loser), head)


def test_grpc_calls_go_to_grpc_routes_first_and_other_requests_never() -> None:
    table = table_of(grpc("grpc", call("s")), route("http", path("/s/m", "Exact")))

    assert "grpc" == taken(table, called("h/s/m"))
    assert "http" == taken(table_of(grpc("grpc", call("other")), route("http", path("/s/m", "Exact"))), called("h/s/m"))
    assert "http" == taken(table, request("h/s/m", "POST", content_type="application/json"))
    assert "http" == taken(table, request("h/s/m"))
    assert "404 no_route" == taken(table, request("h/s/other", "POST"))


def test_a_more_specific_hostname_of_an_http_route_wins_over_a_grpc_route() -> None:
    table = table_of(grpc("grpc", {}, hostnames=["*.example"]), route("http", hostnames=["a.example"]))

    assert "http" == taken(table, called("a.example/s/m"))
    assert "grpc" == taken(table, called("b.example/s/m"))


CONTENT_TYPES = [
    ("application/grpc", True),
    ("application/grpc+proto", True),
    ("application/grpc;charset=x", True),
    ("application/grpc-web", False),
    ("application/grpc-web+proto", False),
    ("application/json", False),
]


@pytest.mark.parametrize(("content_type", "is_call"), CONTENT_TYPES)
def test_the_content_type_decides_whether_a_request_is_a_grpc_call(content_type: str, is_call: bool) -> None:
    assert is_call == routing.is_grpc(request("h/s/m", "POST", content_type=content_type))


def test_calls_without_a_route_are_unimplemented_and_without_a_backend_unavailable() -> None:
    table = table_of(
        grpc("none", call("none"), rule={"backends": []}),
        grpc("empty", call("empty"), rule={"backends": [{"backend": "e"}]}),
        backends=[{"name": "e"}],
    )

    assert 12 == answered(table, called("h/other/m")).grpc_status
    assert 14 == answered(table, called("h/none/m")).grpc_status
    assert 14 == answered(table, called("h/empty/m"), 0.0).grpc_status


def test_an_http_error_has_the_grpc_status_that_calls_expect() -> None:
    codes = (400, 401, 403, 404, 429, 500, 502, 503, 504, 418)

    assert [13, 16, 7, 12, 14, 14, 14, 14, 4, 2] == [routing.grpc_status_of(code) for code in codes]


@pytest.mark.parametrize("wanted", [{}, call(method="Get"), call("a[.]S.*", type_="RegularExpression")], ids=str)
def test_header_conditions_apply_whatever_the_condition_on_the_method(wanted: dict[str, Any]) -> None:
    table = table_of(grpc("r", {**wanted, "headers": headers(tenant="one")}))

    assert "r" == taken(table, called("h/a.Svc/Get", tenant="one"))
    assert "404 no_route" == taken(table, called("h/a.Svc/Get", tenant="two"))
    assert "404 no_route" == taken(table, called("h/a.Svc/Get"))
