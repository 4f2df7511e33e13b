"""Adding up workers: counters never decrease, gauges end with their process."""

from typing import Any

import msgspec

from proxy.stats import BackendStats, DoorStats, EdgeStats, RouteStats, Stats
from proxy.supervisor.totals import Totals, add


def counted(requests: int, in_flight: int) -> Stats:
    stats = Stats()
    route = stats.route("shop/cart")
    route.in_flight = in_flight
    route.request_bytes = 10 * requests
    backend = stats.backend("cart")
    backend.requests = requests
    for outcomes in (route, backend):
        outcomes.responses[2] = outcomes.durations[5] = requests
        outcomes.duration_sum_s = 0.02 * requests
        outcomes.calls["14"] = requests
    backend.connections = in_flight
    backend.failures["reset"] = 1
    for _ in range(requests):
        backend.count_mirrored(599)
    door = stats.door(":80")
    door.accepted = requests
    door.connections = in_flight
    door.refused["limit"] = 2
    stats.swaps = 1
    stats.access_log_dropped = 3
    return stats


def total(totals: Totals) -> Stats:
    result = Stats()
    totals.add_to(result)
    return result


def test_a_snapshot_replaces_the_one_before() -> None:
    totals = Totals()
    totals.update(counted(5, 2))
    totals.update(counted(7, 1))

    assert total(totals) == counted(7, 1)


def test_counters_of_dead_processes_stay_and_gauges_are_dropped() -> None:
    totals = Totals()
    totals.update(counted(5, 2))
    totals.retire()
    totals.update(counted(1, 1))
    totals.retire()

    seen = total(totals)

    route, backend, door = seen.routes["shop/cart"], seen.backends["cart"], seen.doors[":80"]
    assert route.responses == [0, 0, 6, 0, 0, 0]
    assert sum(route.durations) == 6
    assert (route.request_bytes, route.in_flight, route.calls) == (60, 0, {"14": 6})
    assert (backend.responses, sum(backend.durations), backend.calls) == ([0, 0, 6, 0, 0, 0], 6, {"14": 6})
    assert (backend.requests, backend.connections, backend.failures) == (6, 0, {"reset": 2})
    assert backend.mirrored == [0, 0, 0, 0, 0, 6]
    assert (door.accepted, door.connections, door.refused) == (6, 0, {"limit": 4})
    assert (seen.swaps, seen.access_log_dropped) == (2, 6)


def test_the_totals_of_several_slots_add_up() -> None:
    one, other = Totals(), Totals()
    one.update(counted(5, 2))
    other.update(counted(3, 1))
    result = Stats()
    for totals in (one, other):
        totals.add_to(result)

    assert result.routes["shop/cart"].responses[2] == 8
    assert result.routes["shop/cart"].in_flight == 3
    assert abs(result.routes["shop/cart"].duration_sum_s - 8 * 0.02) < 1e-9


def test_every_number_of_two_workers_is_added_up() -> None:
    route = RouteStats([1, 2, 3, 4, 5, 6], [*range(7, 22)], 0.5, in_flight=22, request_bytes=23, response_bytes=24)
    route.retries, route.calls = 25, {"14": 42}
    backend = BackendStats([*range(43, 49)], [*range(49, 64)], 1.5, {"2": 64}, requests=26, in_flight=27)
    backend.connections, backend.connections_opened, backend.ejections, backend.ejected = 28, 29, 30, 31
    backend.failures, backend.mirrored = {"reset": 32}, [*range(65, 71)]
    edge = EdgeStats(in_flight=33, requests=34, sent_bytes=35, received_bytes=36)
    stats = Stats({"shop": route}, {"cart": backend}, {":80": DoorStats(37, 38, {"tls": 39})}, {0: edge}, swaps=40)
    stats.access_log_dropped = 41
    result = Stats()

    for _ in range(2):
        add(result, stats)

    assert msgspec.to_builtins(result) == doubled(msgspec.to_builtins(stats))


def doubled(numbers: Any) -> Any:
    if isinstance(numbers, dict):
        return {name: doubled(number) for name, number in numbers.items()}
    return [2 * number for number in numbers] if isinstance(numbers, list) else 2 * numbers


def test_adding_up_does_not_change_the_summands() -> None:
    totals = Totals()
    totals.update(counted(5, 2))
    total(totals)

    assert total(totals) == counted(5, 2)
