"""Which match wins (Gateway API, HTTPRoute): every criterion decides when all before it tie, whatever the order."""

import random
from typing import Any

import pytest

from proxy import routing
from tests.support.goldencases import PAIRS
from tests.support.routes import headers, path, request, route, table_of, taken


@pytest.mark.parametrize(("winner", "loser", "head"), PAIRS.values(), ids=PAIRS)
def test_the_better_match_wins_in_either_order(
    winner: dict[str, Any], loser: dict[str, Any], head: routing.PlainHead
) -> None:
    assert winner["name"] == taken(table_of(winner, loser), head)
    assert winner["name"] == taken(table_of(loser, winner), head)
    assert loser["name"] == taken(table_of(loser), head), "the loser would have fitted, or this test shows nothing"


def test_of_equal_matches_in_one_route_the_first_wins() -> None:
    rules = [{"name": name, "backends": [{"address": f"{name}.test:80"}]} for name in ("one", "two")]

    assert "one" == taken(table_of({"name": "r", "rules": rules}), request("h/"))


def test_matches_are_ranked_one_by_one_and_not_by_their_rule() -> None:
    """The example of the API's own documentation."""
    table = table_of(
        route("r1", path("/admin", "Exact"), path("/")),
        route("r2", path("/bar", headers=headers(v="2"))),
        route("r3", path("/bar")),
    )

    assert "r2" == taken(table, request("h/bar", v="2"))
    assert "r3" == taken(table, request("h/bar"))
    assert "r1" == taken(table, request("h/admin"))
    assert "r1" == taken(table, request("h/barn"))


def test_a_less_specific_hostname_is_tried_when_no_match_of_the_more_specific_one_fits() -> None:
    table = table_of(
        route("exact", path("/only-here"), hostnames=["a.example"]),
        route("wild", path("/wild"), hostnames=["*.example"]),
        route("any", path("/")),
    )

    assert "exact" == taken(table, request("a.example/only-here"))
    assert "wild" == taken(table, request("a.example/wild"))
    assert "any" == taken(table, request("a.example/else"))


def test_a_match_without_working_backend_answers_and_does_not_fall_through() -> None:
    table = table_of(route("broken", path("/a"), rule={"backends": []}), route("fine", path("/")))

    assert "500 no_backend" == taken(table, request("h/a"))


PREFIXES = [
    ("/a", "h/a", True),
    ("/a", "h/a/", True),
    ("/a", "h/a/b", True),
    ("/a", "h/ab", False),
    ("/a/", "h/a", True),
    ("/a/", "h/a/b", True),
    ("/a/", "h/ab", False),
    ("/", "h/anything/at/all", True),
    ("/a/b", "h/a", False),
    ("/a", "h/A", False),
    ("/a", "h/a?b=c", True),
]


@pytest.mark.parametrize(("prefix", "url", "fits"), PREFIXES)
def test_path_prefixes_match_whole_segments(prefix: str, url: str, fits: bool) -> None:
    assert fits == (taken(table_of(route("r", path(prefix))), request(url)) == "r")


def test_exact_paths_match_the_whole_path_case_sensitively_without_the_query() -> None:
    table = table_of(route("r", path("/a", "Exact")))

    assert "r" == taken(table, request("h/a?x=1"))
    for url in ("h/a/", "h/A", "h/a/b", "h/"):
        assert "404 no_route" == taken(table, request(url))


def test_all_conditions_of_a_match_must_hold() -> None:
    match = path("/a", method="POST", headers=headers(x="1"), queryParams=headers(q="2"))
    table = table_of(route("r", match))

    assert "r" == taken(table, request("h/a?q=2", "POST", x="1"))
    assert "404 no_route" == taken(table, request("h/a?q=2", "GET", x="1"))
    assert "404 no_route" == taken(table, request("h/a?q=2", "POST", x="2"))
    assert "404 no_route" == taken(table, request("h/a?q=1", "POST", x="1"))
    assert "404 no_route" == taken(table, request("h/a", "POST", x="1"))


def test_header_names_ignore_case_and_of_two_spellings_the_first_counts() -> None:
    table = table_of(route("r", path("/", headers=[*headers(X_Color="red"), *headers(x_color="blue")])))

    assert "r" == taken(table, routing.PlainHead(b"GET", b"h", b"/", ((b"x_color", b"red"),)))
    assert "404 no_route" == taken(table, routing.PlainHead(b"GET", b"h", b"/", ((b"x_color", b"blue"),)))


def test_a_condition_on_host_sees_the_authority_of_the_request() -> None:
    """Codecs do not keep it among the fields."""
    table = table_of(route("r", path("/", headers=headers(Host="h:8080"))))

    assert "r" == taken(table, request("h:8080/"))
    assert "404 no_route" == taken(table, request("h/"))


def test_a_repeated_header_is_compared_as_one_list() -> None:
    table = table_of(route("r", path("/", headers=headers(x="a, b"))))

    assert "r" == taken(table, routing.PlainHead(b"GET", b"h", b"/", ((b"x", b"a"), (b"y", b"-"), (b"x", b"b"))))


QUERIES = [
    ("a=1", True),
    ("b=2&a=1", True),
    ("a=1&a=2", True),
    ("a=2&a=1", False),
    ("A=1", False),
    ("a=%31", True),
    ("%61=1", True),
    ("a", False),
    ("", False),
]


@pytest.mark.parametrize(("query", "fits"), QUERIES)
def test_of_a_repeated_query_parameter_the_first_value_counts(query: str, fits: bool) -> None:
    table = table_of(route("r", path("/", queryParams=headers(a="1"))))

    assert fits == (taken(table, request(f"h/?{query}")) == "r")


def test_of_conditions_with_the_same_name_only_the_first_counts_for_fit_and_rank() -> None:
    def twice(first: str, second: str) -> list[dict[str, str]]:
        return [{"name": first, "value": "1"}, {"name": second, "value": "2"}]

    table = table_of(
        route("header-twice", path("/h", headers=twice("X", "x"))),
        route("header", path("/h", headers=headers(x="1")), createdAt="2026-01-01T00:00:00Z"),
        route("query-twice", path("/q", queryParams=twice("a", "a"))),
        route("query", path("/q", queryParams=headers(a="1")), createdAt="2026-01-01T00:00:00Z"),
        route("alone", path("/a", queryParams=twice("a", "a"))),
        route("other-query", path("/o", queryParams=twice("a", "A"))),
    )

    assert "header" == taken(table, request("h/h", x="1"))
    assert "query" == taken(table, request("h/q?a=1"))
    assert "alone" == taken(table, request("h/a?a=1"))
    assert "404 no_route" == taken(table, request("h/a?a=2"))
    assert "404 no_route" == taken(table, request("h/o?a=1"))
    assert "other-query" == taken(table, request("h/o?A=2&a=1"))


def test_regular_expressions_must_fit_the_whole_value() -> None:
    wanted = [{"type": "RegularExpression", "name": "v", "value": "[0-9]+"}]
    table = table_of(
        route("path", path("/v[0-9]+", "RegularExpression")),
        route("header", path("/h", headers=wanted)),
        route("query", path("/q", queryParams=wanted)),
    )

    assert "path" == taken(table, request("h/v12"))
    assert "404 no_route" == taken(table, request("h/v12/more"))
    assert "404 no_route" == taken(table, request("h/not/v12"))
    assert "header" == taken(table, request("h/h", v="7"))
    assert "404 no_route" == taken(table, request("h/h", v="7a"))
    assert "query" == taken(table, request("h/q?v=7"))
    assert "404 no_route" == taken(table, request("h/q?v=a7"))


def test_the_order_of_routes_with_names_does_not_matter() -> None:
    routes = [entry for winner, loser, _ in PAIRS.values() for entry in (winner, loser)]
    named = [{**entry, "name": f"r{number}"} for number, entry in enumerate(routes)]
    heads = [head for _, _, head in PAIRS.values()]
    expected = [taken(table_of(*named), head) for head in heads]

    for seed in range(5):
        shuffled = random.Random(seed).sample(named, len(named))

        assert expected == [taken(table_of(*shuffled), head) for head in heads]


@pytest.mark.parametrize("type_", ["Exact", "PathPrefix", "RegularExpression"])
def test_header_conditions_apply_whatever_the_condition_on_the_path(type_: str) -> None:
    table = table_of(route("r", path("/a", type_, headers=headers(tenant="one"))))

    assert "r" == taken(table, request("h/a", tenant="one"))
    assert "404 no_route" == taken(table, request("h/a", tenant="two"))
    assert "404 no_route" == taken(table, request("h/a"))


def test_a_regular_expression_does_not_match_an_absent_field_or_parameter() -> None:
    anything = [{"name": "x", "type": "RegularExpression", "value": ".*"}]
    table = table_of(route("head", path("/", headers=anything)), route("query", path("/", queryParams=anything)))

    assert "head" == taken(table, request("h/", x=""))
    assert "query" == taken(table, request("h/?x="))
    assert "404 no_route" == taken(table, request("h/?y=1", y="1"))


def test_a_request_beyond_the_limit_of_matching_work_is_answered_431() -> None:
    """Not passed on to a rule of lower precedence: one of higher precedence may be there to keep it out."""
    expressions = [
        path("/", headers=[{"name": "x", "type": "RegularExpression", "value": f".*{n}!"}]) for n in range(64)
    ]
    table = table_of(route("chosen", *expressions), route("other"))

    assert "other" == taken(table, request("h/", x="v" * 1024))
    assert "chosen" == taken(table, request("h/", x="v" * 60_000 + "0!"))
    assert "431 too_much_to_match" == taken(table, request("h/", x="v" * 60_000))


@pytest.mark.parametrize("content_type", ["text/plain", "application/grpc"])
def test_the_limit_of_matching_work_covers_the_expressions_of_all_hostnames(content_type: str) -> None:
    matches = [path("/", headers=[{"name": "x", "type": "RegularExpression", "value": f".*{n}!"}]) for n in range(6)]
    hostnames = ["a.b.example", "*.b.example", "*.example", ""]
    routes = [route(f"r{n}", *matches, hostnames=[name] if name else []) for n, name in enumerate(hostnames)]
    calls = route("calls", {"grpc": {"method": "m"}}, kind="grpc", hostnames=["*.example"])
    table = table_of(*routes, calls)

    for size_bytes, seen in [(40_000, "404 no_route"), (60_000, "431 too_much_to_match")]:
        request_ = request("a.b.example/", x="v" * size_bytes, **{"content-type": content_type})
        assert seen == taken(table, request_)


def test_the_limit_of_matching_work_covers_path_and_method_expressions() -> None:
    paths = [path(f".*{n}!", "RegularExpression") for n in range(64)]
    calls = [{"grpc": {"type": "RegularExpression", "method": f".*{n}!"}} for n in range(64)]
    head = routing.PlainHead(b"POST", b"h", b"/s/" + b"v" * 60_000, ((b"content-type", b"application/grpc"),))

    assert "431 too_much_to_match" == taken(table_of(route("r", *paths)), request("h/" + "v" * 60_000))
    assert "431 too_much_to_match" == taken(table_of(route("r", *calls, kind="grpc")), head)
