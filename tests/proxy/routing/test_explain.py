"""Explain: the winner, why it won, what happens then, and the nearest misses."""

from typing import Any

import pytest

from proxy import routing
from tests.support.routes import DOOR, backend, headers, path, request, route, table_of

TABLE: dict[str, Any] = {
    "listeners": [
        {"name": "web", "port": 8080, "hostname": "*.example"},
        {"name": "rest", "port": 8080},
    ]
}


def explained(head: routing.PlainHead, *routes: dict[str, Any], **settings: Any) -> routing.Explanation:
    return routing.explain(table_of(*routes, **(settings or TABLE)), DOOR, head)


def test_the_winner_is_told_with_listener_conditions_and_runner_up() -> None:
    told = explained(
        request("a.example:8080/api//v1/x?q=1", "POST", x="1"),
        route("exact-host", path("/api", method="POST", headers=headers(X="1")), hostnames=["a.example"]),
        route("shorter", path("/"), hostnames=["a.example"]),
    )

    assert ("web", "*.example", ("rest (every host)",)) == (
        told.listener,
        told.listener_hostname,
        told.other_listeners,
    )
    assert ("a.example", "/api/v1/x") == (told.host, told.path)
    assert told.winner is not None
    assert ("exact-host", "http", "rules[0]", 0, "a.example") == (
        told.winner.route,
        told.winner.kind,
        told.winner.rule,
        told.winner.match,
        told.winner.hostname,
    )
    assert ("path PathPrefix /api", "method POST", "header x Exact 1") == told.winner.conditions
    assert told.runner_up is not None
    assert ("shorter", "length of path") == (told.runner_up.route, told.decided_by)


def test_what_happens_then_is_told_with_shares_and_filters() -> None:
    filters = {
        "requestHeaderModifier": {"set": [{"name": "X-A", "value": "1"}], "remove": ["X-B"]},
        "urlRewrite": {"hostname": "in.example", "path": {"type": "ReplacePrefixMatch", "replacePrefixMatch": "/y"}},
        "requestMirrors": [{"backend": {"address": "m:1"}, "percent": 25}],
        "cors": {"allowOrigins": ["*"]},
    }
    backends = [backend("a", weight=3), {"respond": {"statusCode": 500}}]
    rule = {"name": "main", "filters": filters, "backends": backends, "timeouts": {"request": "30s"}}

    told = explained(request("h.example/x"), route("r", path("/x"), rule=rule))

    assert told.winner is not None
    assert "main" == told.winner.rule
    assert ("cors", "timeouts.request 30s") == told.filters
    assert [("http://a.test:80", ("a.test:80",), 0.75), ("500 (fixed)", (), 0.25)] == [
        (share.backend, share.addresses, share.share) for share in told.backends
    ]
    assert (
        "request header x-b removed",
        "request header x-a: 1",
        "host rewritten to in.example",
        "matched prefix replaced by /y",
        "0.25 of requests copied to http://m:1",
    ) == told.backends[0].filters
    assert isinstance(told.decision, routing.Forward)


def test_misses_are_told_with_the_first_criterion_that_failed_nearest_first() -> None:
    told = explained(
        request("a.example/x?q=1", h="1"),
        route("host", path("/x"), hostnames=["b.example"]),
        route("path", path("/y")),
        route("method", path("/x", method="POST")),
        route("header", path("/x", headers=headers(h="2"))),
        route("query", path("/x", queryParams=headers(q="2"))),
    )

    assert told.winner is None
    assert [
        ("query", "query parameter q", "Exact 2", "1"),
        ("header", "header h", "Exact 2", "1"),
        ("method", "method", "POST", "GET"),
        ("path", "path", "path PathPrefix /y", "/x"),
        ("host", "hostname", "b.example", "a.example"),
    ] == [(miss.place.route, miss.criterion, miss.wanted, miss.seen) for miss in told.misses]
    assert isinstance(told.decision, routing.Answer)


@pytest.mark.parametrize(
    ("type_", "value", "target", "said"),
    [
        ("Exact", "/x", "h.example/x", "path Exact /x"),
        ("PathPrefix", "/x/", "h.example/x/y", "path PathPrefix /x"),
        ("PathPrefix", "/", "h.example/y", "path PathPrefix /"),
        ("RegularExpression", "/x.*", "h.example/xy", "path RegularExpression /x.*"),
        ("Exact", "/x", "h.example/x/y", None),
        ("RegularExpression", "/x", "h.example/x/y", None),
    ],
)
def test_the_condition_on_the_path_is_told_in_the_words_of_the_document(
    type_: str, value: str, target: str, said: str | None
) -> None:
    winner = explained(request(target), route("r", {"path": {"type": type_, "value": value}})).winner

    assert (winner.conditions if winner else (None,)) == (said,)


def test_a_match_of_another_listener_is_the_nearest_miss() -> None:
    told = explained(request("a.example/"), route("elsewhere", listeners=["rest"]))

    assert [("elsewhere", "listener", "rest", "web")] == [
        (miss.place.route, miss.criterion, miss.wanted, miss.seen) for miss in told.misses
    ]


def test_without_a_listener_the_others_are_named() -> None:
    listeners = [{"name": "web", "port": 8080, "hostname": "a.example"}]

    told = explained(request("b.example/"), route("r"), listeners=listeners)

    assert told.listener is None
    assert ("web (a.example)",) == told.other_listeners
    assert [("r", "listener", "web", "no listener")] == [
        (miss.place.route, miss.criterion, miss.wanted, miss.seen) for miss in told.misses
    ]


def test_a_path_without_normal_form_has_no_winner() -> None:
    told = explained(request("a.example/../x"), route("r"))

    assert told.winner is None
    assert "/../x" == told.path
    assert isinstance(told.decision, routing.Answer)
    assert "bad_path" == told.decision.reason


def test_options_about_the_server_as_a_whole_has_no_winner() -> None:
    told = explained(routing.PlainHead(b"OPTIONS", b"a.example", b"*"), route("r"))

    assert (None, "*") == (told.winner, told.path)
    assert isinstance(told.decision, routing.Answer)
    assert "no_resource" == told.decision.reason


def test_calls_miss_grpc_routes_by_content_type_or_method() -> None:
    match = {"grpc": {"service": "a.B", "method": "C"}}
    call = route("call", match, kind="grpc")

    by_type = explained(request("a.example/a.B/C", "POST"), call)
    by_name = explained(request("a.example/a.B/D", "POST", content_type="application/grpc"), call)
    found = explained(request("a.example/a.B/C", "POST", content_type="application/grpc"), call, route("http"))

    assert ["content-type"] == [miss.criterion for miss in by_type.misses]
    assert [("path", "gRPC Exact /a.B/C", "/a.B/D")] == [
        (miss.criterion, miss.wanted, miss.seen) for miss in by_name.misses
    ]
    assert found.winner is not None
    assert ("call", "kind of route") == (found.winner.route, found.decided_by)
