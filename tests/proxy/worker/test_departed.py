"""A worker drops the counts of removed routes, backends and doors once nothing uses them."""

from __future__ import annotations

import msgspec

from proxy import document
from proxy.routing import Table, compile_table
from proxy.stats import MAX_SERIES, NO_ROUTE, OTHER, DoorStats, Stats
from proxy.supervisor.totals import Totals
from proxy.worker.departed import Departed


def table_of(*names: str) -> Table:
    """A route and a backend for each name."""
    return compile_table(
        document.Document(
            backends=tuple(document.Backend(name=name, addresses=("192.0.2.1:80",)) for name in names),
            routes=tuple(
                document.Route(name=name, hostnames=(f"{name}.example",), backends=(document.BackendRef(backend=name),))
                for name in names
            ),
        )
    )


class Worker:
    def __init__(self) -> None:
        self.stats = Stats()
        self.served: set[str] = set()
        """Backends that are served though the table does not have them."""
        self._departed = Departed(self.stats, self.served.__contains__)

    def use(self, *names: str) -> None:
        """Serves these names; each gets a request."""
        self._departed.use(table_of(*names))
        for name in names:
            self.stats.route(name)
            self.stats.backend(name)

    def report(self) -> tuple[set[str], set[str]]:
        """Names of routes and of backends that are counted afterwards."""
        for _ in self._departed.let_go():
            pass
        return set(self.stats.routes), set(self.stats.backends)


def test_a_removed_route_is_dropped_with_the_report_after_the_one_that_finds_it() -> None:
    worker = Worker()
    worker.use("kept", "gone")
    worker.report()
    worker.use("kept")

    assert worker.report() == ({"kept", "gone"}, {"kept", "gone"})
    assert worker.report() == ({"kept"}, {"kept"})


def test_a_removed_route_is_kept_while_it_is_in_use() -> None:
    worker = Worker()
    worker.use("gone")
    worker.stats.route("gone").in_flight = 1
    worker.served.add("gone")
    worker.use()
    worker.report()

    assert worker.report() == ({"gone"}, {"gone"})

    worker.stats.route("gone").in_flight = 0
    assert worker.report() == (set(), {"gone"})

    worker.served.clear()
    assert worker.report() == (set(), set())


def test_a_route_that_returns_before_the_next_report_is_kept() -> None:
    worker = Worker()
    worker.use("back")
    worker.use()
    worker.use("back")

    assert [worker.report(), worker.report()] == [({"back"}, {"back"})] * 2


def test_removed_routes_are_dropped_though_the_table_changes_before_each_report() -> None:
    """As in a cluster whose Pods change all the time: otherwise new routes would some day be counted as others."""
    worker = Worker()
    for number in range(10):
        worker.use(f"passing-{number}")
        counted = worker.report()

    assert counted == ({"passing-8", "passing-9"},) * 2


def test_a_route_that_returns_after_it_was_found_removed_is_counted_on() -> None:
    worker = Worker()
    worker.use("back")
    worker.use()
    worker.report()
    worker.use("back")
    worker.served.add("back")
    worker.stats.route("back").in_flight = 1

    assert [worker.report(), worker.report()] == [({"back"}, {"back"})] * 2


def test_requests_of_a_route_that_returned_just_after_its_counts_were_dropped_are_added_to_them() -> None:
    worker, totals = Worker(), Totals()

    def report() -> tuple[int, int]:
        """What all reports add up to: requests of the route, and of its backend."""
        totals.update(msgspec.msgpack.decode(msgspec.msgpack.encode(worker.stats), type=Stats))
        worker.report()
        total = Stats()
        totals.add_to(total)
        return total.route("back").responses[2], total.backend("back").requests

    worker.use("back")
    worker.stats.route("back").responses[2] = worker.stats.backend("back").requests = 100
    worker.use()

    assert [report(), report()] == [(100, 100)] * 2

    worker.use("back")
    worker.stats.route("back").responses[2] = worker.stats.backend("back").requests = 1

    assert [report(), report()] == [(101, 101)] * 2


def test_a_request_that_ends_after_its_backend_was_dropped_does_not_keep_the_backend_for_ever() -> None:
    """Its client may take minutes to read what the backend has sent long ago."""
    worker = Worker()
    worker.use("gone")
    worker.use()
    worker.report()
    assert worker.report() == (set(), set())

    worker.stats.backend("gone").responses[2] += 1

    assert worker.report() == (set(), set())


def test_counts_that_belong_to_no_route_are_kept() -> None:
    worker = Worker()
    worker.stats.route(NO_ROUTE)
    worker.stats.route(OTHER)
    worker.stats.backend(OTHER)
    worker.use()
    worker.report()

    assert worker.report() == ({NO_ROUTE, OTHER}, {OTHER})


def test_ten_thousand_routes_are_scanned_in_slices() -> None:
    stats = Stats()
    departed = Departed(stats, lambda _key: False)
    departed.use(compile_table(document.Document(routes=tuple(document.Route(name=f"r{n}") for n in range(10_000)))))

    assert sum(1 for _ in departed.let_go()) == 20
    assert sum(1 for _ in departed.let_go()) == 0


def door_table(*ports: int) -> Table:
    return compile_table(
        document.Document(listeners=tuple(document.Listener(name=f"l{port}", port=port) for port in ports))
    )


class Doorkeeper:
    """A worker whose doors are opened as `Doors` opens them: each keeps its counts for as long as it is open."""

    def __init__(self) -> None:
        self.stats, self.totals = Stats(), Totals()
        self._departed = Departed(self.stats, lambda _key: False)
        self.counts = dict[str, DoorStats]()

    def use(self, *ports: int) -> None:
        names = [f":{port}" for port in ports]
        self.counts = {name: self.counts.get(name) or self.stats.door(name) for name in names}
        self._departed.use(door_table(*ports))

    def report(self) -> dict[str, int]:
        """Clients accepted, by door, in all reports so far."""
        self.totals.update(msgspec.msgpack.decode(msgspec.msgpack.encode(self.stats), type=Stats))
        for _ in self._departed.let_go():
            pass
        total = Stats()
        self.totals.add_to(total)
        return {name: door.accepted for name, door in total.doors.items()}


def test_a_closed_door_is_dropped_once_its_last_connection_has_gone() -> None:
    worker = Doorkeeper()
    worker.use(80, 81)
    gone = worker.counts[":81"]
    gone.accepted = gone.connections = 1
    worker.use(80)
    worker.report()
    worker.report()
    assert set(worker.stats.doors) == {":80", ":81"}

    gone.connections = 0
    assert worker.report() == {":80": 0, ":81": 1}
    assert set(worker.stats.doors) == {":80"}
    assert worker.report() == {":80": 0, ":81": 1}  # the supervisor shows it for a while


def test_a_door_that_is_opened_again_counts_on() -> None:
    worker = Doorkeeper()
    worker.use(80)
    worker.counts[":80"].accepted = 100
    worker.use()
    worker.report()
    worker.use(80)  # found to have left, but not dropped yet
    worker.report()
    worker.counts[":80"].accepted += 1
    assert worker.report() == {":80": 101}

    worker.use()
    worker.report()
    worker.report()
    assert not worker.stats.doors
    worker.use(80)
    worker.counts[":80"].accepted += 1
    assert worker.report() == {":80": 102}


def test_doors_that_come_and_go_do_not_use_up_the_names() -> None:
    """Gateways may have ports of their own."""
    worker = Doorkeeper()
    for port in range(1, MAX_SERIES + 100):
        worker.use(port)
        worker.report()

    assert set(worker.stats.doors) == {f":{port}" for port in (MAX_SERIES + 98, MAX_SERIES + 99)}
