"""The measurements for one number of routes; each function adds its figures to those of the case.

Latencies begin when the API server has responded to the write, and end with the first request through the proxy whose
response reflects it. CPU is that of the controller, and separately that of the proxy with its worker.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec

from benchmarks.controller import objects
from benchmarks.controller.world import Controller, Gone, Population, Probe, Proxy, World

POLL_S = 0.02
SELDOM_S = 0.25
"""Poll interval for requests that cost the controller something."""
START_S = 300.0
CANARY_EVERY = 10
"""One in this many endpoint changes is for the observed Service."""
Values = dict[str, float]


class Plan(msgspec.Struct, frozen=True):
    sizes: tuple[int, ...]
    edits: int
    """One after another, for latency; a third as many are paced, for CPU."""
    bursts: tuple[int, ...]
    churn_rates: tuple[int, ...]
    """Endpoint changes per second."""
    churn_s: float
    idle_s: float


class Case:
    """A controller with a given number of routes, from its start."""

    def __init__(self, plan: Plan, world: World, population: Population, proxy: Proxy, controller: Controller) -> None:
        self._plan = plan
        self._world = world
        self._population = population
        self._proxy = proxy
        self._controller = controller
        self._edit = 0

    def start(self, began_s: float) -> Values:
        """Times from the start of the process."""
        self._wait(self._proxy.holds_configuration, "a configuration in the proxy")
        first_s = time.monotonic() - began_s
        controller, routes = self._controller, self._population.routes
        self._wait(lambda: controller.written_routes() >= routes, "statuses", SELDOM_S)
        statuses_s = time.monotonic() - began_s
        self._settle()
        return {
            "first_configuration_s": first_s,
            "statuses_s": statuses_s,
            "start_cpu_s": controller.cpu_s(),
            "start_rss_bytes": controller.rss_bytes(),
        }

    def edits(self) -> Values:
        with self._probe() as probe:
            took_s = sorted(self._one_edit(probe) for _ in range(self._plan.edits))
        return {"edit_p50_ms": _quantile_ms(took_s, 0.5), "edit_p99_ms": _quantile_ms(took_s, 0.99), **self._paced()}

    def _one_edit(self, probe: Probe) -> float:
        route, wanted = self._write_next()
        written_s = time.monotonic()
        live_s = probe.wait_for_stamp(route, wanted) - written_s
        time.sleep(0.05)  # its status is written in the meantime
        return live_s

    def _paced(self) -> Values:
        """Four edits per second, with nobody polling: the cost of one edit."""
        self._settle()
        count = max(4, self._plan.edits // 3)
        provider = self._world.provider
        provider.wait_for("read", 2 * provider.calls["write"])  # what was written is read once more
        calls = self._world.provider.calls.total()
        before = self._controller.cpu_s(), self._proxy.cpu_s()
        route, wanted = 0, ""
        for _ in range(count):
            route, wanted = self._write_next()
            time.sleep(0.25)
        with self._probe() as probe:
            probe.wait_for_stamp(route, wanted)
        self._settle()
        return {
            "edit_cpu_ms": (self._controller.cpu_s() - before[0]) / count * 1000,
            "edit_proxy_cpu_ms": (self._proxy.cpu_s() - before[1]) / count * 1000,
            "edit_provider_calls": self._world.provider.calls.total() - calls,
        }

    def burst(self, count: int) -> Values:
        """Edits as fast as the API server accepts them; timed from the first one sent until all are live."""
        self._settle()
        first = self._edit + 1
        self._edit += count
        newest = {edit % self._population.routes: edit for edit in range(first, first + count)}
        before_s, began_s = self._controller.cpu_s(), time.monotonic()
        self._world.admin.side_by_side(self._write, range(first, first + count))
        sent_s = time.monotonic() - began_s
        with self._probe() as probe:
            live_s = max(probe.wait_for_stamp(route, objects.stamp(edit)) for route, edit in newest.items()) - began_s
        self._settle()
        return {
            f"burst_{count}_s": live_s,
            f"burst_{count}_sent_s": sent_s,
            f"burst_{count}_cpu_s": self._controller.cpu_s() - before_s,
        }

    def churn(self, rate: int) -> Values:
        """Endpoints of one Service after another move; those of route 0's Service come and go, and that is timed."""
        self._settle()
        calls = self._world.provider.calls.total()
        cpu = _Share(self._controller, self._proxy)
        stop = threading.Event()
        others = threading.Thread(target=self._churn_others, args=(rate * (CANARY_EVERY - 1) / CANARY_EVERY, stop))
        others.start()
        lags_s: list[float] = []
        try:
            with self._probe() as probe:
                end_s = time.monotonic() + self._plan.churn_s
                while time.monotonic() < end_s:
                    next_s = time.monotonic() + CANARY_EVERY / rate
                    lags_s.append(self._toggle(probe, is_there=len(lags_s) % 2 == 1))
                    time.sleep(max(0.0, next_s - time.monotonic()))
                if len(lags_s) % 2 == 1:
                    lags_s.append(self._toggle(probe, is_there=True))
        finally:
            stop.set()
            others.join()
        shares = cpu.shares()
        lags_s.sort()
        return {
            f"churn_{rate}_p50_ms": _quantile_ms(lags_s, 0.5),
            f"churn_{rate}_p99_ms": _quantile_ms(lags_s, 0.99),
            f"churn_{rate}_cpu_share": shares[0],
            f"churn_{rate}_proxy_cpu_share": shares[1],
            f"churn_{rate}_provider_calls": self._world.provider.calls.total() - calls,
        }

    def _toggle(self, probe: Probe, *, is_there: bool) -> float:
        members = [{"addresses": [objects.UNREACHABLE]}] if is_there else []
        self._world.admin.replace(self._population.slice(0), "/endpoints", members)
        written_s = time.monotonic()
        return probe.wait_for_address(0, wanted=is_there) - written_s

    def _churn_others(self, rate: float, stop: threading.Event) -> None:
        number, next_s = 0, time.monotonic()
        while not stop.is_set():
            number += 1
            service = number % (self._population.routes - 1) + 1
            self._world.admin.replace(self._population.slice(service), "/endpoints", objects.endpoints(service, number))
            next_s += 1 / rate
            stop.wait(max(0.0, next_s - time.monotonic()))

    def idle(self) -> Values:
        self._settle()
        writes, calls = self._world.writes(), self._world.provider.calls.total()
        cpu = _Share(self._controller, self._proxy)
        time.sleep(self._plan.idle_s)
        share = cpu.shares()[0]
        return {
            "idle_cpu_share": share,
            "idle_writes": self._world.writes() - writes,
            "idle_provider_calls": self._world.provider.calls.total() - calls,
            "peak_rss_bytes": self._controller.peak_rss_bytes(),
            "end_rss_bytes": self._controller.rss_bytes(),
        }

    # -- edits -------------------------------------------------------------------------------------------------------

    def _write_next(self) -> tuple[int, str]:
        """Make one more edit, to the next route; returns the route and the stamp to expect."""
        self._edit += 1
        self._write(self._edit)
        return self._edit % self._population.routes, objects.stamp(self._edit)

    def _write(self, edit: int) -> None:
        route = self._population.route(edit % self._population.routes)
        self._world.admin.replace(route, objects.STAMP_PLACE, objects.stamp(edit))

    def _settle(self) -> None:
        """Wait until all statuses are written."""
        self._wait(self._controller.is_quiet, "statuses", SELDOM_S)

    @contextmanager
    def _probe(self) -> Iterator[Probe]:
        probe = Probe(self._population.port)
        try:
            yield probe
        finally:
            probe.close()

    def _wait(self, is_there: Callable[[], bool], what: str, poll_s: float = POLL_S) -> None:
        end_s = time.monotonic() + START_S
        while not is_there():
            if time.monotonic() > end_s or not self._controller.is_running:
                raise Gone(f"{what}: not there after {START_S:g} s; the controller's log:\n{self._controller.tail}")
            time.sleep(poll_s)


class _Share:
    """Shares of a core from now on: the controller's, and that of the proxy with its worker."""

    def __init__(self, controller: Controller, proxy: Proxy) -> None:
        self._programs = controller, proxy
        self._began_s = time.monotonic()
        self._before_s = [program.cpu_s() for program in self._programs]

    def shares(self) -> list[float]:
        took_s = time.monotonic() - self._began_s
        used_s = [program.cpu_s() for program in self._programs]
        return [(after - before) / took_s for before, after in zip(self._before_s, used_s, strict=True)]


def _quantile_ms(sorted_s: list[float], share: float) -> float:
    return sorted_s[min(len(sorted_s) - 1, int(share * len(sorted_s)))] * 1000


def measure(plan: Plan, world: World, routes: int, only: tuple[str, ...]) -> Values:
    """All figures for one number of routes."""
    with world.populated(routes) as population, world.proxy() as proxy:
        began_s = time.monotonic()
        with world.controller(proxy) as controller:
            case = Case(plan, world, population, proxy, controller)
            values = case.start(began_s)
            if "edits" in only:
                values |= case.edits()
            for count in plan.bursts if "bursts" in only else ():
                values |= case.burst(count)
            for rate in plan.churn_rates if "churn" in only else ():
                values |= case.churn(rate)
            if "idle" in only:
                values |= case.idle()
    return values
