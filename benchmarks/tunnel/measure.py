"""The measurements: each function makes the rows of one table.

Compared programs run beside each other, each with its own edge, and are loaded in turns, so that other load on the
machine affects them alike. Each figure is the median of its runs.
"""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from statistics import median

import msgspec

from benchmarks.comparison import Row
from benchmarks.proxy import programs
from benchmarks.tunnel.connectors import CONNECTIONS, USED_HOST, Cloudflared, Connector, Ours
from benchmarks.tunnel.edge import LoadEdge, Seen

SMALL_BYTES = len(programs.SMALL_BODY)
MIXES = ("repeating", "new")


class Plan(msgspec.Struct, frozen=True):
    repeats: int
    """Number of runs, of which the median counts."""
    closed_s: float
    """Length of a run with a fixed number of requests in flight."""
    steady_s: float
    """Length of a run at the fixed rate."""
    bulk_bytes: int
    drops_peer: bool
    """Break the peer's connections as well, and wait half a minute until it has them again."""
    routes: tuple[int, ...] = (1, 10_000)
    downloads: tuple[int, ...] = (1, 20)
    """Simultaneous downloads over a narrow line."""
    line_rate: int = 1_250_000
    """Its bytes per second: 10 Mbit/s."""
    rate: int = 2000
    in_flight: int = 64


class Bench:
    def __init__(self, plan: Plan, directory: Path, edge_program: Path, *, has_peer: bool) -> None:
        self._plan = plan
        self._directory = directory
        self._edge_program = edge_program
        self._has_peer = has_peer

    # -- programs ----------------------------------------------------------------------------------------------------

    def _makers(self, backend: str, workers: tuple[int, ...], routes: int = 1) -> list[Callable[[LoadEdge], Connector]]:
        def ours(count: int) -> Callable[[LoadEdge], Connector]:
            return lambda edge: Ours(count, backend, self._directory, edge, routes)

        makers = [ours(count) for count in workers]
        if self._has_peer:
            makers.append(lambda edge: Cloudflared(backend, self._directory, edge, routes))
        return makers

    @contextmanager
    def _running(self, makers: list[Callable[[LoadEdge], Connector]]) -> Iterator[list[Connector]]:
        with ExitStack() as stack:
            connectors = []
            for make in makers:
                home = Path(tempfile.mkdtemp(dir=self._directory))
                edge = stack.enter_context(LoadEdge(self._edge_program, home))
                connectors.append(stack.enter_context(make(edge)))
            yield connectors

    # -- one run -----------------------------------------------------------------------------------------------------

    def _closed(self, connector: Connector, mix: str, duration_s: float | None = None) -> tuple[Seen, float]:
        """The results, and the CPU microseconds per request."""
        return _cost(
            connector,
            "closed",
            in_flight=self._plan.in_flight,
            duration_s=duration_s or self._plan.closed_s,
            mix=mix,
            path="/",
            body_bytes=SMALL_BYTES,
        )

    def _steady(self, connector: Connector) -> tuple[Seen, float]:
        return _cost(
            connector,
            "open",
            rate=self._plan.rate,
            duration_s=self._plan.steady_s,
            mix="repeating",
            path="/",
            body_bytes=SMALL_BYTES,
        )

    def _warm_up(self, connectors: list[Connector]) -> None:
        for connector in connectors:
            self._closed(connector, "repeating", min(1.0, self._plan.closed_s))

    def _in_turns(
        self, case: str, connectors: list[Connector], run: Callable[[Connector], dict[str, float]], repeats: int
    ) -> list[Row]:
        rows = [Row(case, each.name, run(each)) for _ in range(repeats) for each in connectors]
        return _medians(rows)

    # -- tables ------------------------------------------------------------------------------------------------------

    def small_requests(self, workers: tuple[int, ...]) -> list[Row]:
        """Saturated with both mixes of fields, then at the fixed rate."""
        plan = self._plan
        rows: list[Row] = []
        with ExitStack() as stack:
            backend = stack.enter_context(programs.http_backend(self._directory))
            connectors = stack.enter_context(self._running(self._makers(f"127.0.0.1:{backend.port}", workers)))
            self._warm_up(connectors)
            for mix in MIXES:
                case = f"{plan.in_flight} in flight, {mix} fields"
                rows += self._in_turns(case, connectors, partial(self._saturate, mix=mix), plan.repeats)
            case = f"{plan.rate:,} requests a second"
            rows += self._in_turns(case, connectors, self._hold, max(plan.repeats, 5) if plan.repeats > 1 else 1)
        return rows

    def _saturate(self, connector: Connector, mix: str) -> dict[str, float]:
        seen, cpu_us = self._closed(connector, mix)
        return {
            "per_s": seen.per_s,
            "cpu_us": cpu_us,
            "p50_ms": seen.p50_ms,
            "p99_ms": seen.p99_ms,
            "failed": seen.failed,
        }

    def _hold(self, connector: Connector) -> dict[str, float]:
        seen, cpu_us = self._steady(connector)
        return {"steady_cpu_us": cpu_us, "p50_ms": seen.p50_ms, "p99_ms": seen.p99_ms, "failed": seen.failed}

    def life(self, workers: tuple[int, ...]) -> list[Row]:
        """Start, memory, and recovery after the edge broke all connections."""
        rows = []
        with programs.http_backend(self._directory) as backend:
            for make in self._makers(f"127.0.0.1:{backend.port}", workers):
                with self._running([make]) as (connector,):
                    rows.append(self._life(connector))
        return rows

    def _life(self, connector: Connector) -> Row:
        at_s = connector.registered_at_s
        values = {
            "first_ms": (at_s[0] - connector.began_s) * 1000,
            "all_ms": (at_s[-1] - connector.began_s) * 1000,
            "idle_bytes": connector.rss_bytes(),
            "largest_bytes": connector.largest_rss_bytes(),
        }
        self._warm_up([connector])
        values["loaded_bytes"] = connector.rss_bytes()
        if isinstance(connector, Cloudflared) and not self._plan.drops_peer:
            return Row("start", connector.name, values)
        dropped_at_s = connector.edge.drop()
        again_at_s = connector.edge.wait_for_registered(CONNECTIONS)
        values["first_again_ms"] = (again_at_s[0] - dropped_at_s) * 1000
        values["all_again_ms"] = (again_at_s[-1] - dropped_at_s) * 1000
        return Row("start, then all connections dropped", connector.name, values)

    def bulk(self) -> list[Row]:
        """One large body, down and up, on one stream."""
        size_bytes = self._plan.bulk_bytes
        size = f"{size_bytes >> 20:,} MiB"
        rows: list[Row] = []
        with programs.http_backend(self._directory, bulk_bytes=size_bytes) as down, programs.sink() as up_port:
            for op, path, address in (("down", "/bulk", f"127.0.0.1:{down.port}"), ("up", "/", f"127.0.0.1:{up_port}")):
                with self._running(self._makers(address, (1,))) as connectors:
                    rows += self._in_turns(
                        f"{size} {op}",
                        connectors,
                        partial(self._move, op=op, path=path, size_bytes=size_bytes),
                        self._plan.repeats,
                    )
        return rows

    @staticmethod
    def _move(connector: Connector, op: str, path: str, size_bytes: int) -> dict[str, float]:
        before_bytes, before_s = connector.rss_bytes(), connector.cpu_s()
        connector.forget_peak_rss()
        seen = connector.edge.load(op, in_flight=1, mix="repeating", host=USED_HOST, path=path, body_bytes=size_bytes)
        gigabytes = seen.requests * size_bytes / 1e9
        return {
            "mb_per_s": gigabytes * 1000 / seen.wall_s,
            "cpu_s_per_gb": (connector.cpu_s() - before_s) / max(gigabytes, 1e-9),
            "growth_bytes": connector.peak_rss_bytes() - before_bytes,
            "failed": seen.failed,
        }

    def narrow(self) -> list[Row]:
        """Small requests beside downloads that arrive faster than the line of their connection can take them."""
        rows: list[Row] = []
        with programs.http_backend(self._directory, bulk_bytes=self._plan.bulk_bytes) as backend, ExitStack() as stack:
            connectors = stack.enter_context(self._running(self._makers(f"127.0.0.1:{backend.port}", (1,))))
            self._warm_up(connectors)
            for count in self._plan.downloads:
                case = f"beside {count} downloads" if count > 1 else "beside a download"
                repeats = min(self._plan.repeats, 3)
                rows += self._in_turns(case, connectors, partial(self._beside, downloads=count), repeats)
        return rows

    def _beside(self, connector: Connector, downloads: int) -> dict[str, float]:
        seen = connector.edge.load(
            "beside",
            in_flight=downloads,
            bulk_path="/bulk",
            line_rate=self._plan.line_rate,
            rate=20,
            duration_s=2 * self._plan.steady_s,
            mix="repeating",
            host=USED_HOST,
            path="/",
            body_bytes=SMALL_BYTES,
        )
        return {"p50_ms": seen.p50_ms, "p99_ms": seen.p99_ms, "failed": seen.failed}

    def routes(self) -> list[Row]:
        """The cost of a request by the number of routes in the configuration; the request uses the last one."""
        rows: list[Row] = []
        with programs.http_backend(self._directory) as backend, ExitStack() as stack:
            sizes = [
                stack.enter_context(self._running(self._makers(f"127.0.0.1:{backend.port}", (1,), count)))
                for count in self._plan.routes
            ]
            for connectors in sizes:
                self._warm_up(connectors)
            # One run of each number in turn: the goal is their ratio.
            runs: list[list[Row]] = [[] for _ in sizes]
            for _ in range(self._plan.repeats):
                for count, connectors, seen in zip(self._plan.routes, sizes, runs, strict=True):
                    seen.extend(self._in_turns(f"{count:,} routes", connectors, self._saturate_and_weigh, 1))
            for seen in runs:
                rows += _medians(seen)
        return rows

    def _saturate_and_weigh(self, connector: Connector) -> dict[str, float]:
        return {**self._saturate(connector, "repeating"), "rss_bytes": connector.rss_bytes()}


def _cost(connector: Connector, op: str, **how: object) -> tuple[Seen, float]:
    before_s = connector.cpu_s()
    seen = connector.edge.load(op, host=USED_HOST, **how)
    return seen, (connector.cpu_s() - before_s) / max(1, seen.requests) * 1e6


def _medians(runs: list[Row]) -> list[Row]:
    """One row for each program and case, in the order of their first runs."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in runs:
        groups.setdefault((row.case, row.who), []).append(row)
    return [
        Row(case, who, {key: _summary(key, [row.values[key] for row in group]) for key in group[0].values})
        for (case, who), group in groups.items()
    ]


def _summary(key: str, values: list[float]) -> float:
    return sum(values) if key == "failed" else max(values) if key == "growth_bytes" else median(values)


@contextmanager
def workplace() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="bench-tunnel-") as directory:
        yield Path(directory)
