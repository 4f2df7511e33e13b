"""`make bench-proxy`: measure the proxy beside nginx and nghttpx, with one worker each and with two.

Prints tables and writes the same figures to benchmarks/results/. Nothing is judged here; docs/performance.md says what
the numbers mean and what the goals are. h2load makes the load; it shares the machine with proxy and backend.
"""

import argparse
import os
import platform
import shutil
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import msgspec
from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.proxy import programs
from benchmarks.proxy.measure import OURS, SHAPES, Bench, Plan, Row, workplace

FULL = Plan(requests=60_000, rate_s=8, bulks=3, repeats=3)
QUICK = Plan(requests=10_000, rate_s=2, bulks=1, repeats=1)
RESULTS = Path(__file__).resolve().parents[1] / "results"
TABLES = ("small", "bulk", "routes", "swap")
_PIPE_WIDTH = 220

_UNITS: dict[str, tuple[str, Callable[[float], str], bool]] = {
    # key: title, format, is compared with the peers (smaller is better)
    "per_s": ("requests/s", "{:,.0f}".format, False),
    "cpu_us": ("CPU us a request", "{:.1f}".format, True),
    "steady_cpu_us": ("CPU us at 2,000/s", "{:.0f}".format, True),
    "p50_ms": ("p50 ms", "{:.2f}".format, False),
    "p99_ms": ("p99 ms", "{:.2f}".format, True),
    "p999_ms": ("p99.9 ms", "{:.2f}".format, False),
    "mb_per_s": ("MB/s", "{:,.0f}".format, False),
    "mb_per_core_s": ("MB per core second", "{:,.0f}".format, False),
    "cpu_s_per_gb": ("CPU s a GB", "{:.2f}".format, True),
    "growth_bytes": ("peak RSS growth MiB", lambda value: f"{value / (1 << 20):.1f}", False),
    "idle_bytes": ("RSS idle MiB", lambda value: f"{value / (1 << 20):.1f}", False),
    "loaded_bytes": ("RSS loaded MiB", lambda value: f"{value / (1 << 20):.1f}", False),
    "rss_bytes": ("RSS MiB", lambda value: f"{value / (1 << 20):.1f}", False),
    "swaps": ("swaps", "{:.0f}".format, False),
    "swap_ms": ("median swap ms", "{:.0f}".format, False),
    "failed": ("failed", "{:.0f}".format, False),
}


def main() -> None:
    options = _parser().parse_args()
    missing = programs.missing()
    if missing:
        sys.exit(
            f"benchmarks.proxy: {', '.join(missing)} not found; on Debian: apt install nghttp2 nginx-light openssl"
        )
    plan = QUICK if options.quick else FULL
    peers = () if options.no_peers else tuple(name for name in ("nghttpx", "nginx") if shutil.which(name))
    print(
        f"{os.cpu_count()} CPUs, Python {platform.python_version()}; peers: {', '.join(peers) or 'none'}\n", flush=True
    )
    rows: dict[str, list[Row]] = {}
    with workplace() as directory:
        bench = Bench(plan, directory, peers)
        for title, measure in _tables(bench, options.only or TABLES, options.workers or (1, 2)):
            rows[title] = measure()
            _show(title, rows[title])
    print(f"written: {_write(rows, plan)}")


def _tables(bench: Bench, only: tuple[str, ...], workers: tuple[int, ...]) -> list[tuple[str, Callable[[], list[Row]]]]:
    found: list[tuple[str, Callable[[], list[Row]]]] = []
    if "small" in only:
        found += [
            (
                f"Small requests, {shape}, workers: {count}",
                lambda shape=shape, count=count: bench.small_requests(shape, count),
            )
            for count in workers
            for shape in SHAPES
        ]
    if "bulk" in only:
        found += [(f"Bulk, {client}", partial(bench.bulk, client)) for client in ("h1", "h2")]
    if "routes" in only:
        found.append(("Routes", bench.routes))
    if "swap" in only:
        found.append(("Swap of 10,000 routes under load", bench.swap))
    return found


def _show(title: str, rows: list[Row]) -> None:
    is_terminal = sys.stdout.isatty()
    console = Console(width=None if is_terminal else _PIPE_WIDTH, highlight=False)
    keys = [key for key in _UNITS if any(key in row.values for row in rows)]
    table = Table(title=title, title_justify="left", box=box.ROUNDED if is_terminal else None, pad_edge=is_terminal)
    table.add_column("case")
    table.add_column("proxy")
    for key in keys:
        table.add_column(_UNITS[key][0], justify="right")
    table.add_column("of each peer")
    for row in rows:
        cells = [_UNITS[key][1](row.values[key]) if key in row.values else "-" for key in keys]
        table.add_row(row.case, row.who, *cells, _ratios(row, rows))
    console.print(table)
    console.print()


def _ratios(row: Row, rows: list[Row]) -> str:
    if row.who != OURS:
        return ""
    parts = []
    for other in rows:
        if other.case != row.case or other.who == OURS:
            continue
        shares = [
            f"{title} {row.values[key] / other.values[key]:.2f}"
            for key, (title, _, is_compared) in _UNITS.items()
            if is_compared and row.values.get(key) and other.values.get(key)
        ]
        parts.append(f"{other.who}: {', '.join(shares)}")
    return "; ".join(parts)


def _write(rows: dict[str, list[Row]], plan: Plan) -> Path:
    RESULTS.mkdir(exist_ok=True)
    now = datetime.now(UTC)
    path = RESULTS / f"proxy-{now:%Y%m%dT%H%M%SZ}.json"
    content = {"at": now, "cpus": os.cpu_count(), "python": platform.python_version(), "plan": plan, "tables": rows}
    path.write_bytes(msgspec.json.format(msgspec.json.encode(content), indent=1))
    return path


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.proxy", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer and shorter runs: does it work at all?")
    parser.add_argument("--only", action="append", choices=TABLES, help="only this table; may be repeated")
    parser.add_argument("--workers", action="append", type=int, help="only this number of workers; may be repeated")
    parser.add_argument("--no-peers", action="store_true", help="measure our proxy alone")
    return parser


if __name__ == "__main__":
    main()
