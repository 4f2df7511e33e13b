"""What a routing decision costs, and what a change of 10,000 routes costs: python -m benchmarks.proxy_routing

One process, no sockets. The figures are CPU time of this process, the best of several runs, so other load on the
machine matters little. Each route of the document has a host of its own, two matches, a header modifier and two
backends; the requested one has four such rules. "longest slice" is the longest time for which a worker's loop stands
still while it takes in the document.
"""

import random
import time
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from itertools import cycle
from typing import cast

import msgspec
from rich.console import Console
from rich.table import Table as Grid

from proxy import document, routing
from proxy.document import handover
from proxy.worker.swap import Swapper

SIZES = (1, 10, 100, 10_000)
CALLS = 20_000
RUNS = 5


def main() -> None:
    console = Console()
    console.print(decision_costs())
    console.print(change_costs(10_000))


def configuration(routes: int) -> bytes:
    """A document with this many routes."""
    return msgspec.json.encode(
        {
            "listeners": [{"name": "web", "port": 8080, "hostname": "*.example.com"}, {"name": "rest", "port": 8080}],
            "routes": [_route(number, rules=3 if number == routes // 2 else 1) for number in range(routes)],
        }
    )


def _route(number: int, rules: int) -> dict[str, object]:
    backends: list[dict[str, object]] = [{"address": f"10.0.{number // 250}.{number % 250}:8080"}]
    if rules == 1:
        backends.append({"address": f"10.1.{number // 250}.{number % 250}:8080", "weight": 9})
    plain = [
        {
            "matches": [{"path": {"value": f"/area{rule}"}}, {"path": {"type": "Exact", "value": f"/exact{rule}"}}],
            "filters": {"requestHeaderModifier": {"set": [{"name": "X-Rule", "value": str(rule)}]}},
            "backends": backends,
        }
        for rule in range(rules)
    ]
    split = {
        "matches": [
            {"path": {"value": "/split"}, "headers": [{"name": "x-version", "value": "2"}]},
            {"path": {"type": "RegularExpression", "value": r"/v[0-9]+/items/[^/]+"}},
        ],
        "filters": {"urlRewrite": {"path": {"type": "ReplaceFullPath", "replaceFullPath": "/"}}},
        "backends": [*backends, {"address": "127.0.0.1:9000", "weight": 3}],
    }
    return {
        "name": f"ns/route-{number}",
        "hostnames": [f"app{number}.example.com"],
        "rules": plain if rules == 1 else [*plain, split],
    }


def heads(host: bytes) -> dict[str, routing.PlainHead]:
    fields = tuple((b"x-field-%d" % place, b"value") for place in range(18))
    version = (*fields, (b"x-version", b"2"))
    return {
        "prefix": routing.PlainHead(b"GET", host, b"/area1/users/12345?verbose=1", fields),
        "exact path": routing.PlainHead(b"GET", host, b"/exact2", fields),
        "host with port, long path": routing.PlainHead(b"GET", host + b":8080", b"/area1" + b"/element" * 20, fields),
        "header, weights, rewrite": routing.PlainHead(b"GET", host, b"/split/users", version),
        "regular expression": routing.PlainHead(b"GET", host, b"/v12/items/abcdefgh", fields),
        "percent-encoded path": routing.PlainHead(b"GET", host, b"/area1/a%20b%2fc", fields),
        "no route": routing.PlainHead(b"GET", host, b"/nowhere/at/all", fields),
    }


def decision_costs() -> Grid:
    grid = Grid("decide, us of CPU", *(f"{size:,} routes" for size in SIZES), "last / first")
    costs: dict[str, list[float]] = {}
    for size in SIZES:
        table = routing.compile_table(document.decode(configuration(size)))
        door = routing.socket_door("", 8080)
        for name, head in heads(b"app%d.example.com" % (size // 2)).items():
            call = partial(routing.decide, table, door, head, random.random)
            costs.setdefault(name, []).append(cost_us(call))
    for name, row in costs.items():
        grid.add_row(name, *(f"{cost:.2f}" for cost in row), f"{row[-1] / row[0]:.2f}")
    return grid


def cost_us(call: Callable[[], object]) -> float:
    """CPU time of one call, the best of RUNS runs."""
    runs = []
    for _ in range(RUNS):
        start = time.process_time()
        for _ in range(CALLS):
            call()
        runs.append((time.process_time() - start) / CALLS * 1e6)
    return min(runs)


def change_costs(routes: int) -> Grid:
    data = configuration(routes)
    grid = Grid(f"{routes:,} routes, {len(data) / 1e6:.1f} MB", "ms of CPU")
    reader = document.Reader()
    before, after = (reader.read(one).content for one in (data, data.replace(b"10.0.7.7:8080", b"10.0.7.8:8080")))
    texts = cycle([data, data.replace(b"10.0.7.7:8080", b"10.0.7.8:8080")])
    whole, change, back = handover.pack(None, before), handover.pack(before, after), handover.pack(after, before)
    swapper = swaps(whole)
    kept: list[Swapper] = []
    changes = cycle([change, back])
    jobs: dict[str, Callable[[], object]] = {
        "decode and check (supervisor)": lambda: document.decode(data),
        "the same after a change of one route (supervisor)": lambda: reader.read(next(texts)),
        "compare and pack that change (supervisor)": lambda: (
            before.says_the_same_as(after),
            handover.pack(before, after),
        ),
        "decode and compile (worker)": lambda: kept.append(swaps(whole)),
        "the change of one route (worker)": lambda: deque(steps_of(swapper, next(changes)), maxlen=0),
    }
    for name, call in jobs.items():
        grid.add_row(name, f"{min(_once_ms(call) for _ in range(4)):.2f}")
    slices = min((steps_ms(steps_of(swapper, whole)) for swapper in (Swapper(), Swapper(), Swapper())), key=max)
    grid.add_row("longest slice of a whole document (worker)", f"{max(slices):.2f}")
    grid.add_row("mean slice (worker)", f"{sum(slices) / len(slices):.2f}")
    last = swaps(whole)
    letting_go = steps_ms(cast("routing.Table", last.table).dismantle())
    grid.add_row("let go of a table (worker)", f"{sum(letting_go):.1f}")
    grid.add_row("longest step of it (worker)", f"{max(letting_go):.2f}")
    return grid


def swaps(*packed: bytes) -> Swapper:
    """A swapper that has taken in all of these."""
    swapper = Swapper()
    for one in packed:
        deque(steps_of(swapper, one), maxlen=0)
    return swapper


def steps_of(swapper: Swapper, packed: bytes) -> Iterator[None]:
    return swapper.swap(memoryview(packed), lambda _table: None, lambda _swap_s: None)


def steps_ms(steps: Iterator[None]) -> list[float]:
    spent = []
    running = True
    while running:
        start = time.thread_time()
        running = next(steps, "end") != "end"
        spent.append((time.thread_time() - start) * 1000)
    return spent


def _once_ms(call: Callable[[], object]) -> float:
    start = time.process_time()
    call()
    return (time.process_time() - start) * 1000


if __name__ == "__main__":
    main()
