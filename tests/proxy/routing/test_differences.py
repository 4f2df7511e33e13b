"""A table after any number of changes equals the table that its last document makes alone."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy import document, routing
from tests.proxy.routing.served import Served

HOSTS = ["a.example", "b.a.example", "other.test"]
PATHS = ["/", "/a", "/a/b", "/s/m", "/t/m"]
hostnames = st.lists(st.sampled_from([*HOSTS, "*.example", "*.test"]), max_size=2)
conditions: st.SearchStrategy[list[dict[str, str]]] = st.lists(
    st.builds(dict, name=st.sampled_from(["p", "X-Real-IP", "X-Trace"]), value=st.just("1")),
    max_size=2,
    unique_by=lambda condition: condition["name"],
)
http_matches = st.fixed_dictionaries(
    {},
    optional={
        "path": st.fixed_dictionaries(
            {
                "type": st.sampled_from(["Exact", "PathPrefix", "RegularExpression"]),
                "value": st.sampled_from(PATHS),
            }
        ),
        "method": st.sampled_from(["GET", "POST"]),
        "headers": conditions,
    },
)
grpc_matches = st.fixed_dictionaries(
    {"grpc": st.sampled_from([{"service": "s"}, {"service": "s", "method": "m"}, {"method": "m"}])},
    optional={"headers": conditions},
)
targets = st.one_of(
    st.fixed_dictionaries({"address": st.sampled_from(["x.test:80", "y.test:80"])}),
    st.fixed_dictionaries({"backend": st.sampled_from(["one", "two"])}),
)
backends = st.fixed_dictionaries(
    {
        "name": st.sampled_from(["one", "two", "spare"]),
        "addresses": st.lists(st.sampled_from(["p.test:80", "q.test:80"]), max_size=1),
    },
    optional={"activeHealth": st.just({"path": "/healthy"})},
)
listeners = st.lists(
    st.sampled_from(
        [
            {"name": "web", "port": 8080},
            {"name": "web", "port": 8080, "hostname": "*.example"},
            {"name": "side", "port": 8081},
            {"name": "inner", "port": 8080, "hostname": "b.a.example"},
        ]
    ),
    max_size=3,
    unique_by=(lambda one: one["name"], lambda one: (one["port"], one.get("hostname"))),
)


def rules(matches: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {"matches": st.lists(matches, max_size=2), "backends": st.lists(targets, min_size=1, max_size=2)},
        optional={
            "filters": st.fixed_dictionaries(
                {"requestMirrors": st.lists(st.builds(dict, backend=targets), max_size=1)},
                optional={"externalAuth": st.builds(dict, backend=targets)},
            )
        },
    )


def routes(kind: str, matches: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {"kind": st.just(kind), "hostnames": hostnames, "rules": st.lists(rules(matches), min_size=1, max_size=2)},
        optional={
            "name": st.sampled_from(["r", "s", "t"]),
            "listeners": st.lists(st.sampled_from(["web", "side", "inner"]), max_size=2),
            "createdAt": st.just("2020-01-01T00:00:00Z"),
        },
    )


pool = st.lists(st.one_of(routes("http", http_matches), routes("grpc", grpc_matches)), min_size=3, max_size=6)


def references_mended(parts: dict[str, Any]) -> dict[str, Any]:
    """The document without references to what it lacks, and with no name twice; such documents are refused."""
    names = [one["name"] for one in parts["listeners"]]
    chosen = {one.get("name", place): one for place, one in enumerate(parts["routes"])}
    attached = [
        {**one, "listeners": [name for name in one.get("listeners", []) if name in names]} for one in chosen.values()
    ]
    referred = [name for name in ("one", "two") if f'"{name}"' in json.dumps(attached)]
    specs = {name: {"name": name} for name in referred} | {one["name"]: one for one in parts["backends"]}
    return {**parts, "backends": list(specs.values()), "routes": attached}


PARTS: dict[str, st.SearchStrategy[Any]] = {
    "forwarding": st.sampled_from([{}, {"requestIdHeader": "X-Trace"}]),
    "listeners": listeners,
    "backends": st.lists(backends, max_size=2),
}


@st.composite
def histories(draw: st.DrawFn) -> list[bytes]:
    """Documents that each differ a little from the one before; some are refused, and must have no effect."""
    shared = draw(pool)
    parts, routes = draw(st.fixed_dictionaries(PARTS)), shared
    history = []
    for _ in range(draw(st.integers(2, 5))):
        whole = {**parts, "routes": routes}
        is_refused = draw(st.integers(0, 5)) == 5
        history.append(json.dumps(whole if is_refused else references_mended(whole)).encode())
        changed = draw(st.sampled_from(["routes", *PARTS]))
        if changed in PARTS:
            parts = {**parts, changed: draw(PARTS[changed])}
        else:
            leaving = draw(st.integers(0, 2))
            routes = [*routes[leaving:], *draw(st.lists(st.sampled_from(shared), min_size=not leaving, max_size=2))]
    return history


def heads() -> list[routing.PlainHead]:
    said = ((b"p", b"1"), (b"x-real-ip", b"1"), (b"x-trace", b"1"))
    fields = [(), said, ((b"content-type", b"application/grpc"), *said)]
    return [
        routing.PlainHead(method, host.encode(), path.encode(), of_call)
        for host in HOSTS
        for path in PATHS
        for method in (b"GET", b"POST")
        for of_call in fields
    ]


HEADS = heads()


def fresh(data: bytes) -> tuple[routing.Table | None, tuple[document.Problem, ...]]:
    """The table that a document makes alone, or what is wrong with it."""
    try:
        return routing.compile_table(document.decode(data)), ()
    except document.DocumentError as error:
        return None, error.problems


def decisions(table: routing.Table) -> list[object]:
    """The decision for each request at each door, as route, rule and match, for all that could be taken."""
    found: list[object] = []
    for door in sorted(table.doors):
        for head in HEADS:
            decision = routing.decide(table, door, head, lambda: 0.6, 0.0)
            taken = (type(decision).__name__, getattr(decision, "reason", ""))
            if isinstance(decision, routing.Forward):
                rule = decision.rule
                found.append((*taken, rule.route_name, rule.route_kind, rule.index, decision.backend))
            else:
                found.append(taken)
    return found


def holdings(table: routing.Table) -> dict[str, object]:
    """All that is in the table, so that nothing stays of what has left."""
    return (
        {
            name: sorted((hostname, match.rule.route_kind, match.rank) for hostname, match in routes)
            for name, routes in table.sets.items()
        }
        | {"client routes": table.client_routes, "reads them": table.client_fields is not None}
        | {"backends": table.backends, "probed": table.probed, "uses": table.uses, "doors": sorted(table.doors)}
    )


@given(histories())
@settings(max_examples=300, deadline=None)
def test_differences_make_the_same_table_as_the_whole_document(history: list[bytes]) -> None:
    served = Served()
    for data in history:
        whole, problems = fresh(data)
        if whole is None:
            assert served.refusal_of(data) == problems
            continue
        before = served.table
        seen = decisions(before) if before is not None else []

        table = served.take(data)

        assert decisions(table) == decisions(whole)
        assert holdings(table) == holdings(whole)
        assert len(table.routes) == len(whole.routes)
        assert before is None or decisions(before) == seen


ALONE = [
    {"path": {"type": "Exact", "value": "/a"}},
    {"path": {"type": "RegularExpression", "value": "/a"}},
    {"path": {"type": "PathPrefix", "value": "/a"}},
    {"path": {"type": "PathPrefix", "value": "/"}},
    {"grpc": {"service": "s", "method": "m"}},
    {"grpc": {"service": "s"}},
    {"grpc": {"method": "m"}},
]


def one_host_with(matches: list[dict[str, Any]]) -> bytes:
    """A route for each."""
    routes = [
        {
            "name": json.dumps(match, separators=(",", ":")),
            "kind": "grpc" if "grpc" in match else "http",
            "hostnames": ["a.example"],
            "rules": [{"matches": [match], "backends": [{"address": "x.test:80"}]}],
        }
        for match in matches
    ]
    return json.dumps({"listeners": [{"name": "web", "port": 8080}], "routes": routes}).encode()


@pytest.mark.parametrize("kept", ALONE, ids=str)
def test_a_hostname_stays_as_long_as_any_match_is_left_under_it(kept: dict[str, Any]) -> None:
    served = Served()
    others = [match for match in ALONE if match != kept]
    for count in range(len(others), -1, -1):
        data = one_host_with([kept, *others[:count]])
        table, whole = served.take(data), routing.compile_table(document.decode(data))
        assert holdings(table) == holdings(whole)
        assert decisions(table) == decisions(whole)

    assert not holdings(served.take(one_host_with([])))["web"]


@pytest.mark.parametrize("repeated", ["hostnames", "listeners"])
def test_a_route_that_repeats_a_hostname_or_listener_is_removed_entirely(repeated: str) -> None:
    names = {"hostnames": ["a.example"], "listeners": ["web"]}
    going, staying = (
        {
            "name": name,
            **names,
            "rules": [{"matches": [{"path": {"value": f"/{name}"}}], "backends": [{"address": "x.test:80"}]}],
        }
        for name in ("going", "staying")
    )
    served = Served()

    def take(*routes: object) -> routing.Table:
        return served.take(json.dumps({"listeners": [{"name": "web", "port": 8080}], "routes": routes}).encode())

    before = take(staying)
    take(staying, {**going, repeated: names[repeated] * 2})

    assert holdings(take(staying)) == holdings(before)


@pytest.mark.parametrize("kind", ["http", "grpc"])
def test_nothing_is_kept_of_removed_hostnames(kind: str) -> None:
    def routes_of(*hostnames: str) -> bytes:
        backends = [{"address": "x.test:80"}]
        staying = [
            f"stays-{number}.example" for number in range(4)
        ]  # enough that most of it stays: otherwise the table is made anew
        named = [
            {"name": name, "kind": kind, "hostnames": [name], "rules": [{"backends": backends}]}
            for name in (*staying, *hostnames)
        ]
        return json.dumps({"listeners": [{"name": "web", "port": 8080}], "routes": named}).encode()

    served = Served()
    served.take(routes_of())
    for number in range(3):
        gone = f"{number}.example", f"*.{number}.example"
        hosts = b"%d.example" % number, b"a.%d.example" % number
        there, left = served.take(routes_of(*gone)).sets["web"], served.take(routes_of()).sets["web"]

        assert [1, 1] == [len(list(there.indexes_of(host))) for host in hosts]
        assert [0, 0] == [len(list(left.indexes_of(host))) for host in hosts]


NAMED = {"backend": "named"}
INLINE = {"address": "y.test:80"}


@pytest.mark.parametrize(
    "rule",
    [
        {"backends": [NAMED, INLINE]},
        {"backends": [{"respond": {"statusCode": 500}}, INLINE]},
        {"backends": [INLINE], "filters": {"requestMirrors": [{"backend": NAMED}, {"backend": INLINE}]}},
        {"backends": [INLINE], "filters": {"externalAuth": {"backend": NAMED}}},
        {"backends": [NAMED], "filters": {"externalAuth": {"backend": INLINE}}},
    ],
    ids=["a named backend", "an answer", "mirrors", "named authorization", "authorization"],
)
def test_only_backends_that_nothing_names_any_more_go_with_a_route(rule: dict[str, Any]) -> None:
    def documented(*names: str) -> bytes:
        parts = {
            "listeners": [{"name": "web", "port": 8080}],
            "backends": [{"name": "named", "addresses": ["p.test:80"]}],
            # So many stay that the table is not made anew.
            "routes": [
                {"name": name, "hostnames": [name], "rules": [rule if name in names else {"backends": [NAMED]}]}
                for name in (*(f"stays-{number}.example" for number in range(4)), *names)
            ],
        }
        return json.dumps(parts).encode()

    served = Served()
    for names in (["a.example", "b.example"], ["a.example"], []):
        data = documented(*names)
        assert holdings(served.take(data)) == holdings(routing.compile_table(document.decode(data)))
