"""Tables are built in slices, from what has changed only, and let go in slices."""

import json
from typing import Any

from proxy import document, routing
from tests.support.routes import DOOR, backend, document_of, path, request, route, taken

LISTENERS = [{"name": "web", "port": 8080}]


def encoded(*routes: dict[str, Any], **settings: Any) -> bytes:
    return json.dumps({"listeners": LISTENERS, **settings, "routes": routes}).encode()


def built(data: bytes, previous: routing.Table | None = None, step: int = 2) -> routing.Table:
    outline = document.decode_outline(data)
    builder = routing.TableBuilder(outline, previous)
    for first in range(0, len(outline.routes), step):
        builder.add_raw_routes(outline.routes[first : first + step])
    return builder.finish()


def many(count: int, **changed: dict[str, Any]) -> list[dict[str, Any]]:
    return [changed.get(f"r{n}") or route(f"r{n}", path(f"/{n}"), hostnames=[f"h{n}.example"]) for n in range(count)]


def answers(table: routing.Table, count: int) -> list[str]:
    return [taken(table, request(f"h{n}.example/{n}/x")) for n in range(count)]


def test_a_table_built_in_slices_decides_like_one_built_at_once() -> None:
    routes = many(9)
    whole = routing.compile_table(document_of(*routes, listeners=LISTENERS))

    sliced = built(encoded(*routes))

    assert [f"r{n}" for n in range(9)] == answers(whole, 9) == answers(sliced, 9)
    assert 9 == whole.route_count == sliced.route_count
    assert set(whole.backends) == set(sliced.backends)


def test_only_routes_whose_bytes_changed_are_compiled_again() -> None:
    before = built(encoded(*many(5)))
    after = built(encoded(*many(5, r2=route("new", path("/2"), hostnames=["h2.example"]))), before)

    assert ["r0", "r1", "new", "r3", "r4"] == answers(after, 5)
    assert ["r0", "r1", "r2", "r3", "r4"] == answers(before, 5)
    shared = [data for data, compiled in after.known.items() if before.known.get(data) is compiled]
    assert 4 == len(shared)


def test_backends_that_no_route_uses_any_more_are_gone_and_kept_ones_are_the_same() -> None:
    before = built(encoded(*many(3)))

    after = built(encoded(*many(2)), before)

    assert {"http://r0.test:80", "http://r1.test:80"} == set(after.backends)
    assert all(after.backends[key] is before.backends[key] for key in after.backends)


def test_a_changed_backend_reaches_routes_that_only_name_it() -> None:
    routes = [route("r", rule={"backends": [{"backend": "b"}]})]
    before = built(encoded(*routes, backends=[{"name": "b", "addresses": ["old.test:80"]}]))

    after = built(encoded(*routes, backends=[{"name": "b", "addresses": ["new.test:80"]}]), before)

    assert "old" == taken(before, request("h/"))
    assert "new" == taken(after, request("h/"))


def test_a_changed_listener_takes_effect_though_its_routes_stay() -> None:
    before = built(encoded(route("r", listeners=["web"])))
    after = built(
        encoded(route("r", listeners=["web"]), listeners=[{"name": "web", "port": 8080, "hostname": "a.example"}]),
        before,
    )

    assert "r" == taken(before, request("b.example/"))
    assert "404 no_listener" == taken(after, request("b.example/"))
    assert "r" == taken(after, request("a.example/"))


def test_the_place_of_nameless_routes_is_never_taken_from_an_older_table() -> None:
    nameless = [{"backends": [backend(name)]} for name in ("one", "two")]
    before = built(encoded(*nameless))

    after = built(encoded(*reversed(nameless)), before)

    assert "one" == taken(before, request("h/"))
    assert "two" == taken(after, request("h/"))


def test_decisions_outlive_a_table_that_is_taken_apart() -> None:
    table = built(encoded(*many(30)))
    decision = routing.decide(table, DOOR, request("h3.example/3"), float)
    assert isinstance(decision, routing.Forward)

    steps = sum(1 for _ in table.dismantle(step=10))

    assert 6 == steps
    assert not table.known
    assert "r3" == decision.rule.route_name
    assert "web" == decision.listener.name


def test_the_minimal_document_serves_every_path_of_its_host() -> None:
    table = routing.compile_table(
        document.decode(b'{"routes":[{"hostnames":["a.example"],"backends":[{"address":"127.0.0.1:3000"}]}]}')
    )

    decision = routing.decide(table, routing.TUNNEL_HTTPS, request("a.example/any/path"), float)

    assert isinstance(decision, routing.Forward)
    assert ("127.0.0.1:3000",) == decision.backend.spec.addresses
    assert "routes[0]" == decision.rule.route_name
