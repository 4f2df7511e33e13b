"""Routing agrees with a plain reference on whole documents: listeners, both kinds of routes, and every spelling.

Names and values are few, so that matches compete.
"""

import json
from typing import Any, TypeAlias
from urllib.parse import quote, quote_plus

from hypothesis import given, settings
from hypothesis import strategies as st

from proxy import document, routing
from tests.support.reference_router import normal, verdict
from tests.support.routes import DOOR, head_of, outcome, table_of

Made: TypeAlias = st.SearchStrategy[dict[str, Any]]

HOSTS = ["a.example", "a.example", "b.a.example", "c.b.a.example", "example"]
hostnames = st.sampled_from(["*.example", "a.example", "b.a.example", "*.a.example"])
names_of_listeners = st.sampled_from(["l0", "l1", "l2"])
listeners = st.lists(
    st.fixed_dictionaries(
        {"name": names_of_listeners, "port": st.sampled_from([8080, 8080, 8080, 8081])},
        optional={"hostname": hostnames},
    ),
    min_size=1,
    max_size=3,
    unique_by=(lambda one: one["name"], lambda one: (one["port"], one.get("hostname"))),
)


def conditions(names: list[str], values: list[str]) -> st.SearchStrategy[list[dict[str, str]]]:
    """On header fields or query parameters."""
    name = st.sampled_from(names)
    exact = st.fixed_dictionaries({"name": name, "value": st.sampled_from(values)})
    expression = st.fixed_dictionaries(
        {"name": name, "type": st.just("RegularExpression"), "value": st.sampled_from(["1|2", ".*", "[12, ]+", "a.*"])}
    )
    return st.lists(exact | expression, max_size=3, unique_by=lambda condition: condition["name"])


headers = conditions(["p", "P", "cookie", "X-Real-IP", "x_forwarded_for"], ["1", "2", "1, 2", "1; 2", "1; 2"])
parameters = conditions(["p", "P", "p q"], ["1", "a+b", "a b", "ü"])
http_matches = st.fixed_dictionaries(
    {},
    optional={
        "path": st.fixed_dictionaries(
            {
                "type": st.sampled_from(["Exact", "PathPrefix"]),
                "value": st.sampled_from(["/", "/a", "/a/", "/a/b", "/ab", "/%61", "/%7e/", "/ü", "/a%20b"]),
            }
        )
        | st.fixed_dictionaries(
            {"type": st.just("RegularExpression"), "value": st.sampled_from(["/.*", "/a(/.*)?", "/[ab]+", "/a/b/?"])}
        ),
        "method": st.sampled_from(["GET", "POST", "OPTIONS"]),
        "headers": headers,
        "queryParams": parameters,
    },
)
calls = st.one_of(
    st.fixed_dictionaries({"service": st.sampled_from(["a", "a.a"])}, optional={"method": st.sampled_from("ab")}),
    st.fixed_dictionaries({"method": st.sampled_from("ab")}),
    st.fixed_dictionaries(
        {"type": st.just("RegularExpression"), "service": st.sampled_from(["a.*", "a|b"])},
        optional={"method": st.sampled_from(["a|b", ".*"])},
    ),
)
grpc_matches = st.fixed_dictionaries({}, optional={"grpc": calls, "headers": headers})


def routes(kind: str, matches: Made, *filters: dict[str, Any]) -> Made:
    rules = st.fixed_dictionaries(
        {
            "matches": st.lists(matches, max_size=3),
            "filters": st.sampled_from(filters),
            "backends": st.just([{"address": "b.test:80"}]),
        }
    )
    return st.fixed_dictionaries(
        {
            "kind": st.just(kind),
            "name": st.sampled_from(["x/a", "x/b", "w/c", "y/d", "x/e", "w/f"]),
            "rules": st.lists(rules, min_size=1, max_size=3),
        },
        optional={
            "listeners": st.lists(names_of_listeners, min_size=1, max_size=2),
            "hostnames": st.lists(hostnames, min_size=1, max_size=2),
            "createdAt": st.sampled_from(["2020-01-01T00:00:00Z", "2024-01-01T00:00:00Z"]),
        },
    )


def with_known_listeners(made: dict[str, Any]) -> dict[str, Any]:
    """Without the routes that name another listener, which no document may."""
    known = {listener["name"] for listener in made["listeners"]}
    return {**made, "routes": [route for route in made["routes"] if known.issuperset(route.get("listeners", []))]}


def documents(some_routes: Made) -> Made:
    listed = st.lists(some_routes, min_size=1, max_size=6, unique_by=lambda route: route["name"])
    return st.fixed_dictionaries({"listeners": listeners, "routes": listed}).map(with_known_listeners)


CONTENT_TYPES = [
    "application/grpc",
    "application/grpc",
    "application/grpc+proto",
    "application/grpc;x=y",
    "application/grpc-web",
]
PREFLIGHT = [("origin", "https://a.example"), ("access-control-request-method", "GET")]


def octets(text: str) -> str:
    """Every octet percent-encoded."""
    return "".join(f"%{octet:02x}" for octet in text.encode())


sent_parameters = st.builds(
    lambda name, value, spelled: f"{spelled(name)}={spelled(value)}",
    st.sampled_from(["p", "p", "P", "p q"]),
    st.sampled_from(["1", "a b", "a+b", "ü", ""]),
    st.sampled_from([quote_plus, quote, octets]),
)
queries = st.lists(sent_parameters | st.sampled_from(["", "p"]), max_size=3).map("&".join)
sent_fields = st.lists(
    st.tuples(
        st.sampled_from(["p", "cookie", "p", "cookie", "x-real-ip", "x_forwarded_for"]),
        st.sampled_from(["1", "2", "1", "2", ""]),
    ),
    max_size=4,
)
elements = st.sampled_from(["a", "a", "a", "b", "b", "ab", "a.a", "%61", "~", "", "ü", "a b", "a%20b", "%2f"])
heads = st.fixed_dictionaries(
    {
        "host": st.sampled_from(HOSTS)
        | st.sampled_from([spelling for host in HOSTS for spelling in (host.upper(), f"{host}.", f"{host}.:8080")]),
        "path": st.lists(elements, max_size=2).map(lambda listed: "/" + "/".join(listed)),
        "query": queries,
        "method": st.sampled_from(["GET", "POST", "OPTIONS"]),
        "headers": st.builds(
            lambda preflight, content_type, others: [*preflight, *content_type, *others],
            st.sampled_from(
                [
                    [],
                    PREFLIGHT[:1],
                    PREFLIGHT,
                    [*PREFLIGHT, ("access-control-request-headers", "x, P,Cookie , X-Real-IP")],
                ]
            ),
            st.lists(st.tuples(st.just("content-type"), st.sampled_from(CONTENT_TYPES)), max_size=1),
            sent_fields,
        ),
    }
)


def check(plain: dict[str, Any], requests: list[dict[str, Any]]) -> None:
    table = routing.compile_table(document.decode(json.dumps(plain).encode()))
    for port in {listener["port"] for listener in plain["listeners"]}:
        door = routing.socket_door("", port)
        for request in requests:
            head = head_of(request)
            decision = routing.decide(table, door, head, lambda: 0.0)
            winner = routing.explain(table, door, head).winner

            assert verdict(plain, port, request) == outcome(decision)
            assert (winner and winner.route) == (decision.rule and decision.rule.route_name)


@given(
    documents(routes("http", http_matches, {}, {"cors": {"allowOrigins": ["*"]}}) | routes("grpc", grpc_matches, {})),
    st.lists(heads, min_size=6, max_size=10),
)
@settings(max_examples=150)
def test_matches_of_both_kinds_of_routes_agree_with_the_reference(
    plain: dict[str, Any], requests: list[dict[str, Any]]
) -> None:
    check(plain, requests)


everything: Made = st.just({})
every_host = [
    {"host": host, "path": "/", "query": "", "method": "GET", "headers": fields}
    for host in sorted({*HOSTS})
    for fields in ([], [("content-type", "application/grpc")])
]


@given(documents(routes("http", everything, {}) | routes("grpc", everything, {})))
@settings(max_examples=150)
def test_listeners_hostnames_and_ages_of_routes_agree_with_the_reference(plain: dict[str, Any]) -> None:
    check(plain, every_host)


@given(
    st.lists(
        headers.map(lambda listed: {"headers": listed}) | parameters.map(lambda listed: {"queryParams": listed}),
        min_size=1,
        max_size=4,
    ),
    st.lists(
        st.builds(lambda query, fields: {**every_host[0], "query": query, "headers": fields}, queries, sent_fields),
        min_size=8,
        max_size=8,
    ),
)
@settings(max_examples=150)
def test_conditions_on_fields_and_parameters_agree_with_the_reference(
    matches: list[dict[str, Any]], requests: list[dict[str, Any]]
) -> None:
    """A rule for each match, so that the winner is known."""
    rules = [{"matches": [match], "backends": [{"address": "b.test:80"}]} for match in matches]
    check({"listeners": [{"name": "l0", "port": 8080}], "routes": [{"name": "x/a", "rules": rules}]}, requests)


pieces = st.sampled_from([*"//..ab;%~* ü", "..", "%2e", "%2E%2e", "%2F", "%2f", "%7e", "%7B", "%00", "%c3%bc", "\\"])


@given(st.booleans(), st.lists(pieces, max_size=12))
@settings(max_examples=300)
def test_paths_are_forwarded_in_the_normal_form_of_the_reference(merges_slashes: bool, spelled: list[str]) -> None:
    table = table_of({"name": "r", "backends": [{"address": "b.test:80"}]}, mergeSlashes=merges_slashes)
    path = "/" + "".join(spelled)

    decision = routing.decide(table, DOOR, routing.PlainHead(b"GET", b"a", f"{path}?/./%7e".encode()), lambda: 0.0)

    expected = normal(path, merges_slashes=merges_slashes)
    if isinstance(decision, routing.Forward):
        assert f"{expected}?/./%7e".encode() == decision.path
    else:
        assert (None, "bad_path") == (expected, outcome(decision))
