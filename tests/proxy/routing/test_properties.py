"""Properties of routing: it agrees with a plain reference, does not depend on the order, and never raises."""

import json
import random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from proxy import document, routing
from proxy.routing.indexes import PathIndex
from tests.support.reference_router import verdict
from tests.support.routes import DOOR, head_of, outcome, table_of, taken

HOSTS = ["a.example", "b.a.example", "c.b.a.example", "example", "other.test"]
HOSTNAMES = [*HOSTS, "*.example", "*.a.example", "*.b.a.example", "*.test"]
ELEMENTS = ["a", "b", "ab"]

request_paths = st.lists(st.sampled_from(ELEMENTS), max_size=4).flatmap(
    lambda elements: st.sampled_from(["/" + "/".join(elements), "/" + "".join(f"{element}/" for element in elements)])
)
path_matches = st.one_of(
    st.fixed_dictionaries({"type": st.sampled_from(["Exact", "PathPrefix"]), "value": request_paths}),
    st.fixed_dictionaries(
        {"type": st.just("RegularExpression"), "value": st.sampled_from(["/.*", "/a(/.*)?", "/[ab]+", "/a/b/?"])}
    ),
)
conditions = st.lists(
    st.fixed_dictionaries({"name": st.sampled_from(["p", "q", "cf-x"]), "value": st.sampled_from(["1", "2"])}),
    max_size=2,
    unique_by=lambda condition: condition["name"],
)
matches = st.fixed_dictionaries(
    {},
    optional={
        "path": path_matches,
        "method": st.sampled_from(["GET", "POST"]),
        "headers": conditions,
        "queryParams": conditions,
    },
)
rules = st.fixed_dictionaries({"matches": st.lists(matches, max_size=3)})
routes = st.fixed_dictionaries(
    {"rules": st.lists(rules, min_size=1, max_size=2)},
    optional={
        "hostnames": st.lists(st.sampled_from(HOSTNAMES), min_size=1, max_size=2, unique=True),
        "createdAt": st.sampled_from(["2020-01-01T00:00:00Z", "2024-01-01T00:00:00Z"]),
    },
)
documents = st.lists(routes, max_size=6)
heads = st.fixed_dictionaries(
    {
        "host": st.sampled_from(HOSTS),
        "path": request_paths,
        "query": st.sampled_from(["", "p=1", "q=2&p=1", "p=1&p=2", "q"]),
        "method": st.sampled_from(["GET", "POST", "PUT"]),
        "headers": st.lists(st.tuples(st.sampled_from(["p", "q", "cf-x"]), st.sampled_from(["1", "2"])), max_size=2),
    }
)


PREFLIGHT = {"origin": "https://a.example", "access-control-request-method": "GET"}
cors_documents = st.lists(
    st.fixed_dictionaries(
        {
            "rules": st.lists(
                st.fixed_dictionaries(
                    {
                        "matches": st.lists(
                            st.fixed_dictionaries(
                                {},
                                optional={
                                    "path": path_matches,
                                    "method": st.sampled_from(["GET", "POST", "OPTIONS"]),
                                    "headers": conditions,
                                },
                            ),
                            max_size=2,
                        ),
                        "filters": st.sampled_from([{}, {"cors": {"allowOrigins": ["*"]}}]),
                    }
                ),
                min_size=1,
                max_size=2,
            )
        }
    ),
    max_size=5,
)
preflights = st.fixed_dictionaries(
    {
        "host": st.just("a.example"),
        "path": request_paths,
        "query": st.just(""),
        "method": st.sampled_from(["OPTIONS", "OPTIONS", "GET"]),
        "headers": st.fixed_dictionaries(
            {},
            optional={
                "origin": st.just("https://a.example"),
                "access-control-request-method": st.sampled_from(["GET", "POST"]),
                "access-control-request-headers": st.sampled_from(["p", "q,p", "r, p", "cf-x,p"]),
                "p": st.sampled_from(["1", "2"]),
            },
        ).map(lambda given: list(({**PREFLIGHT, **given} if len(given) > 2 else given).items())),
    }
)


def named(plain: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each route with a name, and with a backend that identifies it."""
    return [
        {
            **route,
            "name": f"r{place}",
            "rules": [{**rule, "backends": [{"address": f"r{place}.test:80"}]} for rule in route["rules"]],
        }
        for place, route in enumerate(plain)
    ]


def on_one_listener(listed: list[dict[str, Any]]) -> dict[str, Any]:
    return {"listeners": [{"name": "web", "port": 8080}], "routes": listed}


@given(documents, st.lists(heads, min_size=1, max_size=8), st.randoms(use_true_random=False))
@settings(max_examples=150, deadline=None)
def test_the_table_agrees_with_the_reference_in_any_order_of_routes(
    plain: list[dict[str, Any]], requests: list[dict[str, Any]], shuffler: random.Random
) -> None:
    listed = named(plain)
    shuffled = shuffler.sample(listed, len(listed))
    tables = [table_of(*listed), table_of(*shuffled)]

    for request in requests:
        expected = verdict(on_one_listener(listed), 8080, request)
        head = head_of(request)

        assert [expected, expected] == [outcome(routing.decide(table, DOOR, head, lambda: 0.0)) for table in tables]


@given(documents, heads)
@settings(max_examples=80, deadline=None)
def test_explain_names_the_route_that_decide_takes(plain: list[dict[str, Any]], request: dict[str, Any]) -> None:
    table = table_of(*named(plain))
    head = head_of(request)

    explanation = routing.explain(table, DOOR, head)

    assert (explanation.winner.route if explanation.winner else "404 no_route") == taken(table, head)


@given(cors_documents, st.lists(preflights, min_size=1, max_size=8))
@settings(max_examples=150, deadline=None)
def test_preflights_agree_with_the_reference(plain: list[dict[str, Any]], requests: list[dict[str, Any]]) -> None:
    listed = named(plain)
    table = table_of(*listed)

    for request in requests:
        head = head_of(request)
        decision = routing.decide(table, DOOR, head, lambda: 0.0)
        winner = routing.explain(table, DOOR, head).winner

        assert verdict(on_one_listener(listed), 8080, request) == outcome(decision)
        assert (winner.route if winner else None) == (decision.rule.route_name if decision.rule else None)


@given(st.lists(matches, min_size=2, max_size=12))
@settings(max_examples=80, deadline=None)
def test_precedence_is_a_total_order(plain: list[dict[str, Any]]) -> None:
    """Ranks are distinct and comparable, even of equal matches."""
    listed = named([{"rules": [{"matches": [match]}]} for match in plain])
    routes_ = next(iter(table_of(*listed, listeners=[]).doors[routing.TUNNEL_HTTP])).routes
    ranks = [match.rank for _, match in routes_]

    assert len(plain) == len(set(ranks)) == len(sorted(ranks))


session_cookies = st.integers(0, 5).map(lambda short: (b"cookie", b"s=" + b"A" * (32 - short) + b"=" * short))
header_fields = st.lists(
    st.tuples(
        st.sampled_from([b"origin", b"cookie", b"content-type", b"access-control-request-method", b"p", b"host"]),
        st.binary(max_size=40),
    )
    | session_cookies,
    max_size=4,
).map(tuple)
wild_paths = st.one_of(
    st.binary(max_size=60), st.text("/.%2eEfF?#&=ab+;\\", max_size=40).map(lambda text: f"/{text}".encode())
)
wild_heads = st.builds(
    routing.PlainHead,
    st.sampled_from([b"GET", b"OPTIONS", b"CONNECT", b"", b"\xff"]),
    st.one_of(st.binary(max_size=80), st.sampled_from([b"a.example", b"[::1]:1", b"." * 300, b"a." * 4000])),
    wild_paths,
    header_fields,
)

EVERYTHING: list[dict[str, Any]] = [
    {
        "name": "web",
        "rules": [
            {
                "matches": [{"path": {"value": "/a"}, "queryParams": [{"name": "p", "value": "1"}]}],
                "filters": {"requestRedirect": {"path": {"type": "ReplacePrefixMatch", "replacePrefixMatch": "/x"}}},
            },
            {
                "matches": [
                    {"path": {"type": "RegularExpression", "value": "/(b|.c)*"}},
                    {"headers": [{"name": "p", "value": ".*", "type": "RegularExpression"}]},
                ],
                "filters": {
                    "cors": {"allowOrigins": ["https://*.example"], "allowCredentials": True},
                    "urlRewrite": {"path": {"type": "ReplaceFullPath", "replaceFullPath": "/x"}},
                    "requestMirrors": [{"backend": {"address": "m:1"}, "percent": 50}],
                },
                "backends": [{"address": "b:1"}, {"respond": {"statusCode": 500}}],
                "sessionPersistence": {"idleTimeout": "1h", "sessionName": "s"},
            },
            {
                "matches": [{"path": {"value": "/c"}}],
                "filters": {"externalAuth": {"backend": {"address": "auth:1"}, "path": "/ask/"}},
                "backends": [{"address": "b:1"}],
            },
            {"filters": {"requestRedirect": {"scheme": "https"}}},
        ],
    },
    {"name": "calls", "kind": "grpc", "rules": [{"matches": [{"grpc": {"method": "m"}}], "backends": []}]},
]


@given(wild_heads, st.floats(0, 1, exclude_max=True))
@settings(max_examples=400, deadline=None)
def test_routing_raises_for_no_request_head(head: routing.PlainHead, chance: float) -> None:
    table = table_of(*EVERYTHING, listeners=[{"name": "web", "port": 8080}])

    decision = routing.decide(table, DOOR, head, lambda: chance, now_s=1e9)
    explanation = routing.explain(table, DOOR, head, now_s=1e9)

    if isinstance(decision, routing.Redirect):
        assert decision.location.startswith((b"https://", b"http://"))
    assert chance > 0 or type(decision) is type(explanation.decision)


def test_the_work_for_long_hosts_and_deep_paths_is_bounded() -> None:
    """By what the table holds, not by what a client sends."""
    table = table_of(*named([{"hostnames": ["*.example"], "rules": [{"matches": [{"path": {"value": "/a/b"}}]}]}]))
    index: PathIndex = next(iter(next(iter(table.doors[DOOR])).routes.indexes_of(b"x.example")))[1]

    class Counted(bytes):
        """A path that counts how often it is sliced."""

        cuts = 0

        def __getitem__(self, key: Any) -> Any:
            Counted.cuts += 1
            return super().__getitem__(key)

    path = Counted(b"/x" * 5000)

    assert index.find(path, b"", routing.PlainHead(b"GET", b"", b"")) is None
    assert Counted.cuts <= 2
    assert b"" == routing.host_of(b"a." * 5000)


PIECES = st.sampled_from(
    ["/", "/", ".", "%2e", "%2E", "%00", "%2f", "%41", "%c3%bc", "%", "a", "~", "*", "ü", "\\", "#"]
)


@settings(deadline=None)
@given(st.sampled_from(["Exact", "PathPrefix"]), st.lists(PIECES, max_size=6).map("".join))
def test_every_path_that_a_document_accepts_compiles(type_: str, path: str) -> None:
    rule = {"matches": [{"path": {"type": type_, "value": f"/{path}"}}], "backends": [{"address": "b:80"}]}
    try:
        made = document.decode(json.dumps({"routes": [{"rules": [rule]}]}).encode())
    except document.DocumentError:
        return

    routing.compile_table(made)


@given(
    st.sampled_from(["Exact", "PathPrefix"]),
    st.lists(st.sampled_from(["/", ".", "..", "%2e", ";", "a", "ä", "%"]), max_size=4),
)
@settings(max_examples=300, deadline=None)
def test_every_accepted_path_with_dot_segments_compiles(kind: str, parts: list[str]) -> None:
    match = {"path": {"type": kind, "value": "/" + "".join(parts)}}
    try:
        read = document.decode(json.dumps({"routes": [{"rules": [{"matches": [match]}]}]}).encode())
    except document.DocumentError:
        return

    routing.compile_table(read)
