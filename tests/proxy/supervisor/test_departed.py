"""Metrics of removed routes, backends and doors: kept for a while, then dropped everywhere at once."""

from __future__ import annotations

from proxy.stats import MAX_SERIES, NO_ROUTE, OTHER, Stats
from proxy.supervisor.departed import LINGER_S, Departed
from proxy.supervisor.totals import Totals


def counted(**requests: int) -> Stats:
    stats = Stats()
    for name, count in requests.items():
        stats.route(name).responses[2] = count
        stats.backend(name).requests = count
    return stats


def shown(*slots: Totals) -> dict[str, tuple[int, int]]:
    """Requests by name of route and backend."""
    total = total_of(*slots)
    names = total.routes.keys() | total.backends.keys()
    return {name: (total.route(name).responses[2], total.backend(name).requests) for name in names}


def test_the_counts_of_a_removed_route_are_still_exported() -> None:
    one, other = Totals(), Totals()
    one.update(counted(shop=5, gone=7))
    other.update(counted(gone=2))

    one.update(counted(shop=6))

    assert shown(one, other) == {"shop": (6, 6), "gone": (9, 9)}


def test_the_counts_of_a_route_that_returns_continue() -> None:
    totals = Totals()
    totals.update(counted(gone=7))
    totals.update(counted())
    totals.update(counted(gone=1))

    assert shown(totals) == {"gone": (8, 8)}


def test_a_route_that_no_worker_counts_is_dropped_after_a_while() -> None:
    totals, departed = Totals(), Departed()
    totals.update(counted(shop=5, gone=7))
    totals.update(counted(shop=5))

    departed.forget([totals], 100.0)
    departed.forget([totals], 100.0 + LINGER_S - 0.1)
    assert shown(totals) == {"shop": (5, 5), "gone": (7, 7)}

    departed.forget([totals], 100.0 + LINGER_S)
    assert shown(totals) == {"shop": (5, 5)}


def test_a_route_is_not_dropped_while_any_worker_counts_it() -> None:
    one, other, departed = Totals(), Totals(), Departed()
    one.update(counted(download=7))
    other.update(counted(download=2))
    one.update(counted())

    for now_s in (0.0, LINGER_S, 2 * LINGER_S):
        departed.forget([one, other], now_s)
    assert shown(one, other) == {"download": (9, 9)}

    other.update(counted())
    departed.forget([one, other], 3 * LINGER_S)
    departed.forget([one, other], 4 * LINGER_S - 0.1)
    assert shown(one, other) == {"download": (9, 9)}

    departed.forget([one, other], 4 * LINGER_S)
    assert shown(one, other) == {}


def test_the_time_until_a_route_is_dropped_restarts_when_it_returns() -> None:
    totals, departed = Totals(), Departed()
    totals.update(counted(gone=1))
    totals.update(counted())
    departed.forget([totals], 0.0)
    totals.update(counted(gone=1))
    departed.forget([totals], LINGER_S / 2)
    totals.update(counted())
    departed.forget([totals], LINGER_S)
    departed.forget([totals], 2 * LINGER_S - 0.1)

    assert shown(totals) == {"gone": (2, 2)}


def test_the_counts_that_belong_to_no_route_are_never_dropped() -> None:
    totals, departed = Totals(), Departed()
    totals.update(counted(**{NO_ROUTE: 3, OTHER: 4}))
    totals.retire()
    for now_s in (0.0, LINGER_S):
        departed.forget([totals], now_s)

    assert shown(totals)[OTHER] == (4, 4)
    assert shown(totals)[NO_ROUTE][0] == 3


def test_the_names_of_several_workers_are_added_up_without_a_common_limit() -> None:
    """Otherwise a name would move to the series of the rest, and back, as others come and go."""
    one, other = Totals(), Totals()
    one.update(counted(**{f"one{n}": 1 for n in range(MAX_SERIES)}))
    other.update(counted(**{f"other{n}": 1 for n in range(MAX_SERIES)}))

    seen = shown(one, other)

    assert len(seen) == 2 * MAX_SERIES
    assert OTHER not in seen


def test_the_series_of_removed_routes_are_bounded() -> None:
    totals = Totals()
    for generation in range(3):
        totals.update(counted(**{f"{generation}-{n}": 1 for n in range(MAX_SERIES)}))
    totals.update(counted())

    seen = shown(totals)

    assert len(seen) == MAX_SERIES + 1
    assert sum(requests for requests, _ in seen.values()) == 3 * MAX_SERIES


def test_the_counts_of_a_closed_door_are_exported_for_a_while() -> None:
    totals, departed = Totals(), Departed()
    open_door, closed = Stats(), Stats()
    open_door.door(":80").accepted = 7
    totals.update(open_door)
    totals.update(closed)

    departed.forget([totals], 0.0)
    assert total_of(totals).doors[":80"].accepted == 7

    departed.forget([totals], LINGER_S)
    assert not total_of(totals).doors


def total_of(*slots: Totals) -> Stats:
    total = Stats()
    for slot in slots:
        slot.add_to(total)
    return total
