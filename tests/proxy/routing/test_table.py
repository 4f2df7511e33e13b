"""Tables are built in slices, from what has changed only, and released in slices."""

import json
from typing import Any

from proxy import document, routing
from proxy.routing.indexes import PathIndex
from tests.proxy.routing.served import Served
from tests.support.routes import DOOR, backend, document_of, path, request, route, table_of, taken

LISTENERS = [{"name": "web", "port": 8080}]


def encoded(*routes: dict[str, Any], **settings: Any) -> bytes:
    return json.dumps({"listeners": LISTENERS, **settings, "routes": routes}).encode()


def tables(*documents: bytes) -> list[routing.Table]:
    served = Served()
    return [served.take(data) for data in documents]


def many(count: int, **changed: dict[str, Any]) -> list[dict[str, Any]]:
    return [changed.get(f"r{n}") or route(f"r{n}", path(f"/{n}"), hostnames=[f"h{n}.example"]) for n in range(count)]


def answers(table: routing.Table, count: int) -> list[str]:
    return [taken(table, request(f"h{n}.example/{n}/x")) for n in range(count)]


def test_a_table_built_from_differences_decides_like_one_built_at_once() -> None:
    routes = many(9)
    whole = routing.compile_table(document_of(*routes, listeners=LISTENERS))

    (handed_over,) = tables(encoded(*routes))

    assert [f"r{n}" for n in range(9)] == answers(whole, 9) == answers(handed_over, 9)
    assert 9 == len(whole.routes) == len(handed_over.routes)
    assert set(whole.backends) == set(handed_over.backends)


def test_a_route_may_have_more_matches_than_a_step_adds_or_removes() -> None:
    count = 45
    large = route("large", *(path(f"/{n}", "Exact") for n in range(count)))
    *whole, after = tables(encoded(large), encoded(large, route("rest")), encoded(route("rest")))

    for table in whole:
        assert ["large"] * count == [taken(table, request(f"h/{n}")) for n in range(count)]
    assert ["rest"] * count == [taken(after, request(f"h/{n}")) for n in range(count)]


def test_only_routes_whose_bytes_changed_are_compiled_again() -> None:
    before, after = tables(encoded(*many(5)), encoded(*many(5, r2=route("new", path("/2"), hostnames=["h2.example"]))))

    assert ["r0", "r1", "new", "r3", "r4"] == answers(after, 5)
    assert ["r0", "r1", "r2", "r3", "r4"] == answers(before, 5)
    shared = [number for number, compiled in after.routes.items() if before.routes.get(number) is compiled]
    assert 4 == len(shared)


def test_backends_that_no_route_uses_any_more_are_gone_and_kept_ones_are_the_same() -> None:
    before, after = tables(encoded(*many(3)), encoded(*many(2)))

    assert {"http://r0.test:80", "http://r1.test:80"} == set(after.backends)
    assert all(after.backends[key] is before.backends[key] for key in after.backends)


def test_a_changed_backend_reaches_routes_that_only_name_it() -> None:
    routes = [route("r", rule={"backends": [{"backend": "b"}]})]
    before, after = tables(
        encoded(*routes, backends=[{"name": "b", "addresses": ["old.test:80"]}]),
        encoded(*routes, backends=[{"name": "b", "addresses": ["new.test:80"]}]),
    )

    assert "old" == taken(before, request("h/"))
    assert "new" == taken(after, request("h/"))


def test_a_changed_listener_takes_effect_though_its_routes_stay() -> None:
    before, after = tables(
        encoded(route("r", listeners=["web"])),
        encoded(route("r", listeners=["web"]), listeners=[{"name": "web", "port": 8080, "hostname": "a.example"}]),
    )

    assert "r" == taken(before, request("b.example/"))
    assert "404 no_listener" == taken(after, request("b.example/"))
    assert "r" == taken(after, request("a.example/"))


def test_nameless_routes_are_never_reused_from_an_older_table() -> None:
    nameless = [{"backends": [backend(name)]} for name in ("one", "two")]
    before, after = tables(encoded(*nameless), encoded(*reversed(nameless)))

    assert "one" == taken(before, request("h/"))
    assert "two" == taken(after, request("h/"))


def test_decisions_stay_valid_after_their_table_is_dismantled() -> None:
    (table,) = tables(encoded(*many(30)))
    decision = routing.decide(table, DOOR, request("h3.example/3"), float)
    assert isinstance(decision, routing.Forward)

    steps = sum(1 for _ in table.dismantle())

    assert 6 == steps
    assert not table.routes
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


def test_shorter_prefixes_are_found_after_the_longest_is_removed() -> None:
    rest = [route("longer", path("/a/b")), route("shorter", path("/a"))]
    before, after = tables(encoded(route("longest", path("/a/b/c")), *rest), encoded(*rest))

    assert [taken(table, request("h/a/b/c")) for table in (before, after)] == ["longest", "longer"]
    assert taken(after, request("h/a/c")) == "shorter"


def test_a_prefix_is_removed_without_a_look_at_all_others_of_its_host() -> None:
    """Removing thousands together would take seconds, in steps that should take some tenths of a millisecond."""

    class Counted(bytes):
        looks = 0

        def __len__(self) -> int:
            Counted.looks += 1
            return super().__len__()

    index = PathIndex()
    matches = [match for one in table_of(*many(100)).routes.values() for match in one.matches]
    for match in matches:
        match.path = Counted(match.path)
        index.add(match)
    Counted.looks = 0

    for match in matches:
        index.remove(match)

    assert index.is_empty
    assert Counted.looks <= len(matches)


def test_each_new_expression_is_compiled_in_a_step_of_its_own() -> None:
    wanted = [path(f"/compiled-once-{number}.*", "RegularExpression") for number in range(3)]
    # As a worker gets it: unchecked, since checking would have compiled them.
    unchecked = document.decode_route(json.dumps(route("r", *wanted)).encode())

    def steps() -> int:
        return len(list(routing.TableBuilder(document.Settings()).adding_routes([(0, 0, unchecked)])))

    assert [steps(), steps()] == [3, 0]


def test_what_a_table_has_replaced_is_let_go_a_few_parts_at_a_time() -> None:
    """Freeing the indexes of a thousand hostnames at once would take milliseconds."""
    count, settings = 200, document.settings_of(document_of(listeners=LISTENERS))
    first = routing.TableBuilder(settings)
    routes = document_of(*many(count), listeners=LISTENERS).routes
    first.add_routes((place, place, one) for place, one in enumerate(routes))
    builder = routing.TableBuilder(settings, first.finish())
    list(builder.removing_routes(range(count)))
    list(builder.fill())
    builder.finish()

    # The routes, and the indexes of their hostnames.
    assert len(list(builder.let_go())) >= 2 * count // 20


def test_a_table_names_the_backends_with_active_health_checks() -> None:
    plain = {"name": "b", "addresses": ["b.test:80"]}
    probed = {**plain, "activeHealth": {"path": "/healthy"}}
    documents = [encoded(route("r"), backends=[one]) for one in (plain, probed, plain)]
    documents.insert(2, encoded(route("r"), route("another"), backends=[probed]))

    assert [set(table.probed) for table in tables(*documents)] == [set(), {"b"}, {"b"}, set()]
