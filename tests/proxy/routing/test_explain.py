"""Explain: the winner, why it won, the outcome, and the nearest misses."""

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


def test_the_winner_is_reported_with_listener_conditions_and_runner_up() -> None:
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


def test_the_outcome_is_reported_with_shares_and_filters() -> None:
    filters = {
        "requestHeaderModifier": {"set": [{"name": "X-A", "value": "1"}], "remove": ["X-B"]},
        "urlRewrite": {"hostname": "in.example", "path": {"type": "ReplacePrefixMatch", "replacePrefixMatch": "/y"}},
        "requestMirrors": [{"backend": {"address": "m:1"}, "percent": 25}, {"backend": {"address": "n:1"}}],
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
        "every request copied to http://n:1",
    ) == told.backends[0].filters
    assert isinstance(told.decision, routing.Forward)


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ({}, ()),
        ({"filters": {"requestRedirect": {"statusCode": 308}}, "backends": []}, ("requestRedirect 308",)),
        ({"respond": {"statusCode": 403}, "backends": []}, ("respond 403 (fixed)",)),
        ({"sessionPersistence": {"sessionName": "s"}}, ("sessionPersistence s",)),
        (
            {"timeouts": {"request": "1m30s", "backendRequest": "500ms"}, "retry": {"attempts": 3}},
            ("timeouts.request 90s", "timeouts.backendRequest 0.5s", "retry 3 times"),
        ),
    ],
)
def test_the_filters_and_policies_of_a_rule_are_reported(rule: dict[str, Any], said: tuple[str, ...]) -> None:
    assert said == explained(request("h.example/"), route("r", rule=rule)).filters


@pytest.mark.parametrize(
    ("filters", "said"),
    [
        ({}, ()),
        ({"responseHeaderModifier": {"add": [{"name": "X-A", "value": "1"}]}}, ("response header x-a: 1",)),
        ({"urlRewrite": {"path": {"type": "ReplaceFullPath", "replaceFullPath": "/y"}}}, ("path replaced by /y",)),
        (
            {"urlRewrite": {"path": {"type": "ReplacePrefixMatch", "replacePrefixMatch": ""}}},
            ("matched prefix replaced by /",),
        ),
    ],
)
def test_the_changes_to_request_and_response_are_reported_per_backend(
    filters: dict[str, Any], said: tuple[str, ...]
) -> None:
    (share,) = explained(request("h.example/x"), route("r", path("/x"), rule={"filters": filters})).backends

    assert said == share.filters


def test_backends_of_weight_zero_have_no_share() -> None:
    rule = {"backends": [backend("a", weight=0), backend("b", weight=0)]}

    assert [0.0, 0.0] == [share.share for share in explained(request("h.example/"), route("r", rule=rule)).backends]


def test_an_exact_host_wins_over_a_wildcard_whatever_the_path() -> None:
    told = explained(
        request("a.example/x?q=1"),
        route("exact", path("/", queryParams=headers(q="1")), hostnames=["a.example"]),
        route("wildcard", path("/x"), hostnames=["*.example"]),
    )

    assert told.winner is not None
    assert ("exact", ("path PathPrefix /", "query parameter q Exact 1")) == (told.winner.route, told.winner.conditions)
    assert told.runner_up is not None
    assert ("wildcard", "hostname") == (told.runner_up.route, told.decided_by)


def test_only_a_wildcard_that_does_not_cover_the_host_is_missed_by_hostname() -> None:
    told = explained(
        request("ab.example/x"),
        route("above", path("/y"), hostnames=["*.example"]),
        route("beside", path("/x"), hostnames=["*.b.example"]),
        route("same", path("/y"), hostnames=["ab.example"]),
    )

    assert [("same", "path"), ("above", "path"), ("beside", "hostname")] == [
        (miss.place.route, miss.criterion) for miss in told.misses
    ]


def test_the_five_nearest_misses_are_reported_and_absent_values_are_none() -> None:
    """A match that only belongs to another listener is nearer than those of the same listener."""
    told = explained(
        request("a.example/x"),
        route("path", path("/y")),
        route("elsewhere", path("/x"), listeners=["rest"]),
        *(route(f"query{number}", path("/x", queryParams=headers(q="2"))) for number in range(3)),
        route("header", path("/x", headers=headers(h="2"))),
        route("call", {"grpc": {"service": "a.B"}}, kind="grpc"),
    )

    assert [
        ("elsewhere", "listener", "rest", "web"),
        *((f"query{number}", "query parameter q", "Exact 2", None) for number in range(3)),
        ("header", "header h", "Exact 2", None),
    ] == [(miss.place.route, miss.criterion, miss.wanted, miss.seen) for miss in told.misses]


def test_an_empty_parameter_differs_from_an_absent_one() -> None:
    empty = path("/x", queryParams=headers(q=""))
    one = path("/x", queryParams=headers(q="1"))

    (absent,) = explained(request("a.example/x"), route("empty", empty)).misses
    (seen,) = explained(request("a.example/x?q="), route("one", one)).misses

    assert ("Exact (empty)", None) == (absent.wanted, absent.seen)
    assert ("Exact 1", "") == (seen.wanted, seen.seen)


def test_a_missed_grpc_route_ranks_after_a_missed_path_and_names_the_content_type() -> None:
    call = route("call", {"grpc": {"service": "a.B"}}, kind="grpc")

    told = explained(request("a.example/x"), call, route("path", path("/y")))
    typed = explained(request("a.example/x", content_type="text/plain"), call)

    assert [("path", "path", "path PathPrefix /y", "/x"), ("call", "content-type", "application/grpc", None)] == [
        (miss.place.route, miss.criterion, miss.wanted, miss.seen) for miss in told.misses
    ]
    assert ["text/plain"] == [miss.seen for miss in typed.misses]


def test_the_external_authorization_service_is_reported() -> None:
    told = explained(
        request("h.example/"), route("r", rule={"filters": {"externalAuth": {"backend": {"address": "auth:1"}}}})
    )

    assert told.filters == ("externalAuth by http://auth:1",)


def test_misses_are_reported_with_the_first_criterion_that_failed_nearest_first() -> None:
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
def test_the_path_condition_is_reported_in_the_terms_of_the_document(
    type_: str, value: str, target: str, said: str | None
) -> None:
    winner = explained(request(target), route("r", {"path": {"type": type_, "value": value}})).winner

    assert (winner.conditions if winner else (None,)) == (said,)


def test_a_match_of_another_listener_is_the_nearest_miss_if_its_conditions_hold() -> None:
    told = explained(
        request("a.example/"),
        route("elsewhere", listeners=["rest"]),
        route("neither", path("/other"), listeners=["rest"]),
    )

    assert [("elsewhere", "listener", "rest", "web")] == [
        (miss.place.route, miss.criterion, miss.wanted, miss.seen) for miss in told.misses
    ]


def test_a_match_of_this_listener_is_not_a_miss_of_another_one() -> None:
    told = explained(request("a.example/"), route("everywhere", listeners=["web", "rest"]), route("everywhere-too"))

    assert told.winner is not None
    assert ("everywhere", ()) == (told.winner.route, told.misses)


def test_without_a_listener_the_others_are_named() -> None:
    listeners = [{"name": "web", "port": 8080, "hostname": "a.example"}]

    told = explained(request("b.example/"), route("r"), listeners=listeners)

    assert told.listener is None
    assert ("web (a.example)",) == told.other_listeners
    assert [("r", "listener", "web", "no listener")] == [
        (miss.place.route, miss.criterion, miss.wanted, miss.seen) for miss in told.misses
    ]


def test_an_unknown_door_has_neither_listener_nor_winner() -> None:
    told = routing.explain(table_of(route("r")), routing.socket_door("", 9), request("a.example/"))

    assert (None, (), None, ()) == (told.listener, told.other_listeners, told.winner, told.misses)
    assert isinstance(told.decision, routing.Answer)


def test_a_path_without_normal_form_has_no_winner() -> None:
    told = explained(request("a.example/../x"), route("r"))

    assert told.winner is None
    assert "/../x" == told.path
    assert isinstance(told.decision, routing.Answer)
    assert "bad_path" == told.decision.reason


def test_a_request_beyond_the_limit_of_matching_work_has_no_winner() -> None:
    matches = [path(f".*{n}!", "RegularExpression") for n in range(64)]
    told = explained(request("a.example/" + "v" * 60_000), route("r", *matches))

    assert (None, "web") == (told.winner, told.listener)
    assert isinstance(told.decision, routing.Answer)
    assert "too_much_to_match" == told.decision.reason


def test_options_asterisk_has_no_winner() -> None:
    told = explained(routing.PlainHead(b"OPTIONS", b"a.example", b"*"), route("r"))

    assert (None, "*") == (told.winner, told.path)
    assert isinstance(told.decision, routing.Answer)
    assert "no_resource" == told.decision.reason


def test_grpc_routes_are_missed_by_content_type_or_method() -> None:
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
