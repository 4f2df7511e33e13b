"""From bytes to a table in slices."""

import gc
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from proxy import document
from proxy.document import handover
from proxy.document import listeners as listeners_module
from proxy.pattern import automaton
from proxy.routing import TUNNEL_HTTPS, Forward, PlainHead, Table, compile_table, decide
from proxy.worker.swap import Swapper
from tests.support.collector import thaw


class Told:
    """A worker's swapper, which gets one document after the other."""

    def __init__(self) -> None:
        self.swapper = Swapper()
        self._reader = document.Reader()
        self._content: document.Content | None = None

    def change_to(self, *hosts: str) -> memoryview:
        return self.change_to_routes(
            [{"name": host, "hostnames": [host], "backends": [{"address": f"{host}:80"}]} for host in hosts]
        )

    def change_to_routes(self, routes: list[dict[str, Any]]) -> memoryview:
        before = self._content
        self._content = self._reader.read(msgspec.json.encode({"routes": routes})).content
        return memoryview(handover.pack(before, self._content))

    def swap(self, *hosts: str) -> tuple[Table, int, int]:
        """The table, and how many steps had been taken when it was used, and in all."""
        used: list[Table] = []
        used_at = steps = 0
        for _ in self.swapper.swap(self.change_to(*hosts), used.append, lambda _: None):
            steps += 1
            used_at = used_at or (steps if used else 0)
        (table,) = used
        return table, used_at, steps


def backend_of(table: Table, host: str) -> str | None:
    decision = decide(table, TUNNEL_HTTPS, PlainHead(b"GET", host.encode(), b"/"), lambda: 0.0, 0.0)
    return decision.backend.key if isinstance(decision, Forward) else None


def test_the_table_routes_as_the_document_says() -> None:
    table, _, _ = Told().swap("a.example", "b.example")

    assert backend_of(table, "b.example") == "http://b.example:80"
    assert backend_of(table, "c.example") is None


def test_many_routes_take_many_steps_and_the_table_is_used_once() -> None:
    hosts = [f"h{number}.example" for number in range(1000)]

    table, used_at, steps = Told().swap(*hosts)

    assert len(table.routes) == 1000
    assert used_at >= 200
    assert steps >= used_at


def route(matches: list[dict[str, Any]], hosts: list[str]) -> dict[str, Any]:
    rules = [{"matches": matches[at : at + 64], "backends": [{"address": "b:80"}]} for at in range(0, len(matches), 64)]
    return {"name": "large", "hostnames": hosts, "rules": rules}


EXPRESSIONS = [{"headers": [{"name": "x", "type": "RegularExpression", "value": f"new-{at}.*"}]} for at in range(128)]
PATHS = [{"path": {"type": "Exact", "value": f"/{at}"}} for at in range(6_400)]


@pytest.mark.parametrize(
    ("large", "least"),
    [
        pytest.param(route(EXPRESSIONS, ["a.example"]), 128, id="of many expressions"),
        pytest.param(route(PATHS, ["a.example"]), 6_400 // 20 * 2, id="of many matches"),
        pytest.param(route(PATHS[:1], [f"h{at}.example" for at in range(1_000)]), 1_000 // 20, id="of many hostnames"),
    ],
)
def test_adding_and_removing_one_large_route_takes_many_steps(large: dict[str, Any], least: int) -> None:
    """In one step, such a route stopped the loop for seconds."""
    small = [{"name": f"s{at}", "backends": [{"address": "b:80"}]} for at in range(3)]
    told = Told()

    def steps_to(routes: list[dict[str, Any]]) -> int:
        content = told.change_to_routes(routes)
        # Documents are checked in another process, so nothing is cached here.
        automaton.cache_clear()
        return len([*told.swapper.swap(content, lambda _: None, lambda _: None)])

    assert steps_to([*small, large]) >= least
    assert steps_to(small) >= len(large["hostnames"]) * len(large["rules"][0]["matches"]) // 20


def test_routes_that_name_no_listeners_take_many_steps_among_thousands_of_listeners() -> None:
    """Each hostname is compared with that of each listener: a step of fifty routes took 90 ms."""
    hosts = [f"h{number}.example" for number in range(1_000)]
    listeners = [{"name": host, "port": 8080, "hostname": host} for host in hosts]
    swapper, reader = Swapper(), document.Reader()
    before: document.Content | None = None

    def steps_to(wanted: list[str]) -> int:
        nonlocal before
        routes = [{"name": host, "hostnames": [host], "backends": [{"address": "b:80"}]} for host in wanted]
        content = reader.read(msgspec.json.encode({"listeners": listeners, "routes": routes})).content
        change, before = memoryview(handover.pack(before, content)), content
        return len([*swapper.swap(change, lambda _: None, lambda _: None)])

    assert steps_to(hosts[:200]) >= 200 * len(listeners) // 500
    assert steps_to(hosts[:110]) >= 90 * len(listeners) // 500


def test_an_address_that_many_listeners_bind_is_read_once() -> None:
    """With every change the doors of all listeners are made anew."""
    listeners = [{"name": f"l{at}", "address": "0:0:0:0::1", "port": 8080, "hostname": f"h{at}.x"} for at in range(100)]
    config = document.decode(msgspec.json.encode({"listeners": listeners}))
    listeners_module._canonical.cache_clear()

    assert {*compile_table(config).doors} == {"[::1]:8080"}
    assert listeners_module._canonical.cache_info().misses == 1


def test_one_change_among_many_routes_takes_few_steps() -> None:
    hosts = [f"h{number}.example" for number in range(1000)]
    told = Told()
    told.swap(*hosts)

    table, _, steps = told.swap(*hosts[1:], "other.example")

    assert backend_of(table, "h0.example") is None
    assert backend_of(table, "h999.example") == "http://h999.example:80"
    assert backend_of(table, "other.example") == "http://other.example:80"
    assert steps <= 6


@pytest.mark.parametrize("kept", [["k.example"] * 3, []], ids=["in part", "as a whole"])
def test_the_table_before_is_taken_apart_only_after_the_new_one_is_in_use(kept: list[str]) -> None:
    hosts = [f"{place}{host}" for place, host in enumerate(kept)]
    told = Told()
    first, _, _ = told.swap("a.example", *hosts)
    seen: list[str | None] = []

    def use(_table: Table) -> None:
        seen.append(backend_of(first, "a.example"))

    for _ in told.swapper.swap(told.change_to("b.example", *hosts), use, lambda _: seen.append("taken")):
        pass

    assert seen == ["http://a.example:80", "taken"]
    assert backend_of(first, "a.example") is None


def test_unchanged_routes_are_reused_as_they_are() -> None:
    told = Told()
    first, _, _ = told.swap("a.example", "b.example")
    kept = {route.rules[0] for route in first.routes.values()}

    second, _, _ = told.swap("a.example", "c.example")

    assert sum(route.rules[0] in kept for route in second.routes.values()) == 1


def test_the_garbage_collector_is_disabled_during_a_swap_and_enabled_afterwards() -> None:
    seen: list[bool] = []
    told = Told()
    for _ in told.swapper.swap(told.change_to("a.example"), lambda _: seen.append(gc.isenabled()), lambda _: None):
        pass

    assert seen == [False]
    assert gc.isenabled()


def test_the_garbage_collector_is_enabled_after_a_failed_swap() -> None:
    def use(_table: Table) -> None:
        raise RuntimeError("cannot be used")

    told = Told()
    with pytest.raises(RuntimeError, match="cannot be used"):
        list(told.swapper.swap(told.change_to("a.example"), use, lambda _: None))

    assert gc.isenabled()


@pytest.fixture(autouse=True, scope="module")
def thawed() -> Iterator[None]:
    """A swap freezes all objects; other tests count garbage."""
    yield
    thaw()
