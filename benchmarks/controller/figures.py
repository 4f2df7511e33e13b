"""The figures of a run as a table: one row each, with its goal and the published figure of the peer.

The peer is lexfrei's controller (v3.4.1), measured in November 2026 against a real API server with a simulated provider
and simulated proxies, also on two cores, but on another day; its limit of 1,000 rules was raised for the larger sizes.
It is not run here.
"""

import sys
from collections.abc import Callable, Mapping

import msgspec
from rich import box
from rich.console import Console
from rich.table import Table

_PIPE_WIDTH = 200


class Figure(msgspec.Struct, frozen=True):
    title: str
    shown: Callable[[float], str]
    goals: Mapping[int, str] = {}
    """By number of routes; 0 stands for all."""
    peer: Mapping[int, str] = {}


def _seconds(value: float) -> str:
    return f"{value:.2f} s"


def _ms(value: float) -> str:
    return f"{value:.1f} ms"


def _mib(value: float) -> str:
    return f"{value / (1 << 20):.0f} MiB"


def _percent(value: float) -> str:
    return f"{value:.1%}"


def _count(value: float) -> str:
    return f"{value:,.0f}"


FIGURES: Mapping[str, Figure] = {
    "first_configuration_s": Figure(
        "start to the first configuration", _seconds, {10_000: "10 s"}, {100: "1.4 s", 1_000: "1.7 s", 10_000: "13 s"}
    ),
    "statuses_s": Figure(
        "start to all statuses current",
        _seconds,
        {10_000: "60 s"},
        {100: "1.9 s", 1_000: "25.5 s", 10_000: "22 % after 120 s"},
    ),
    "start_cpu_s": Figure("CPU until then", _seconds, {}, {100: "0.8 s", 1_000: "36 s", 10_000: "195 s"}),
    "start_rss_bytes": Figure(
        "RSS then", _mib, {10_000: "256 MiB"}, {100: "99 MiB", 1_000: "140 MiB", 10_000: "470 MiB"}
    ),
    "peak_rss_bytes": Figure(
        "RSS at most", _mib, {10_000: "256 MiB"}, {100: "101 MiB", 1_000: "148 MiB", 10_000: "630 MiB"}
    ),
    "edit_p50_ms": Figure(
        "one edit live, p50", _ms, {1_000: "40 ms", 10_000: "100 ms"}, {100: "20 ms", 1_000: "125 ms"}
    ),
    "edit_p99_ms": Figure(
        "one edit live, p99", _ms, {1_000: "100 ms", 10_000: "250 ms"}, {100: "54 ms", 1_000: "155 ms"}
    ),
    "edit_cpu_ms": Figure("CPU an edit", _ms, {10_000: "3x of 100 routes"}, {100: "23 ms", 1_000: "210 ms"}),
    "edit_proxy_cpu_ms": Figure("the same of the proxy", _ms),
    "edit_provider_calls": Figure("provider calls for these edits", _count, {0: "0"}),
    "burst_200_s": Figure("200 edits at once: all live", _seconds, {1_000: "1.5 s"}, {100: "1.0 s", 1_000: "2.75 s"}),
    "burst_200_sent_s": Figure("of this until the last was sent", _seconds),
    "burst_200_cpu_s": Figure("CPU for it", _seconds, {}, {1_000: "36 s"}),
    "burst_1000_s": Figure("1,000 edits at once: all live", _seconds),
    "burst_1000_sent_s": Figure("of this until the last was sent", _seconds),
    "burst_1000_cpu_s": Figure("CPU for it", _seconds),
    "churn_50_p50_ms": Figure("50 endpoint changes a second: live, p50", _ms, {}, {100: "17 ms", 1_000: "186 ms"}),
    "churn_50_p99_ms": Figure("the same, p99", _ms, {}, {100: "41 ms", 1_000: "340 ms"}),
    "churn_50_cpu_share": Figure("CPU of a core meanwhile", _percent, {0: "25 %"}, {100: "100 %", 1_000: "158 %"}),
    "churn_50_proxy_cpu_share": Figure("the same of the proxy", _percent),
    "churn_100_p50_ms": Figure("100 endpoint changes a second: live, p50", _ms),
    "churn_100_p99_ms": Figure("the same, p99", _ms),
    "churn_100_cpu_share": Figure("CPU of a core meanwhile", _percent),
    "churn_100_proxy_cpu_share": Figure("the same of the proxy", _percent),
    "idle_cpu_share": Figure("CPU when idle", _percent, {0: "1 %"}),
    "idle_writes": Figure("writes to the API server when idle", _count, {0: "0"}),
    "idle_provider_calls": Figure("provider calls when idle", _count),
}


def show(cases: Mapping[int, Mapping[str, float]]) -> None:
    """Print the cases, by number of routes, as a table: drawn on a terminal, plain text in a pipe."""
    is_terminal = sys.stdout.isatty()
    console = Console(width=None if is_terminal else _PIPE_WIDTH, highlight=False)
    table = Table(title="The controller", title_justify="left", box=box.ROUNDED if is_terminal else None)
    table.add_column("")
    for routes in cases:
        table.add_column(f"{routes:,} routes", justify="right")
        table.add_column("goal", justify="right")
        table.add_column("peer, published", justify="right")
    for name, figure in FIGURES.items():
        if any(name in values for values in cases.values()):
            table.add_row(figure.title, *(cell for each in cases.items() for cell in _cells(name, figure, *each)))
    console.print(table)


def _cells(name: str, figure: Figure, routes: int, values: Mapping[str, float]) -> tuple[str, str, str]:
    found = figure.shown(values[name]) if name in values else "-"
    return found, figure.goals.get(routes, figure.goals.get(0, "")), figure.peer.get(routes, "")
