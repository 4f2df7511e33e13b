"""`make bench-proxy`: measure the proxy beside nginx and nghttpx, with one worker each and with two.

Prints tables and writes the same figures to benchmarks/results/. Nothing is judged here; docs/performance.md says what
the numbers mean and what the goals are. h2load generates the load; it shares the machine with proxy and backend.
"""

import argparse
import os
import platform
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks import comparison
from benchmarks.comparison import Row
from benchmarks.proxy import programs
from benchmarks.proxy.changes import changes
from benchmarks.proxy.measure import SHAPES, Bench, Plan, workplace

FULL = Plan(requests=60_000, rate_s=8, bulks=3, repeats=3, changes=200)
QUICK = Plan(requests=10_000, rate_s=2, bulks=1, repeats=1, changes=40)
TABLES = ("small", "bulk", "routes", "changes", "swap")


def main() -> None:
    options = _parser().parse_args()
    missing = programs.missing()
    if missing:
        sys.exit(
            f"benchmarks.proxy: {', '.join(missing)} not found; on Debian: apt install nghttp2 nginx-light openssl"
        )
    plan = QUICK if options.quick else FULL
    peers = () if options.no_peers else ("nghttpx", "nginx")
    print(
        f"{os.cpu_count()} CPUs, Python {platform.python_version()}; peers: {', '.join(peers) or 'none'}\n", flush=True
    )
    rows: dict[str, list[Row]] = {}
    with workplace() as directory:
        bench = Bench(plan, directory, peers)
        for title, measure in _tables(bench, plan, directory, options.only or TABLES, options.workers or (1, 2)):
            rows[title] = measure()
            comparison.show(title, rows[title])
    print(f"written: {comparison.write('proxy', rows, plan)}")


def _tables(
    bench: Bench, plan: Plan, directory: Path, only: tuple[str, ...], workers: tuple[int, ...]
) -> list[tuple[str, Callable[[], list[Row]]]]:
    found: list[tuple[str, Callable[[], list[Row]]]] = []
    if "small" in only:
        found += [
            (f"Small requests, {shape}, workers: {count}", partial(bench.small_requests, shape, count))
            for count in workers
            for shape in SHAPES
        ]
    if "bulk" in only:
        found += [(f"Bulk, {client}", partial(bench.bulk, client)) for client in ("h1", "h2")]
    if "routes" in only:
        found.append(("Routes", bench.routes))
    if "changes" in only:
        found.append(("One route changes", partial(changes, directory, plan.changes)))
    if "swap" in only:
        found.append(("Swap of 10,000 routes under load", bench.swap))
    return found


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.proxy", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer and shorter runs: does it work at all?")
    parser.add_argument("--only", action="append", choices=TABLES, help="only this table; may be repeated")
    parser.add_argument("--workers", action="append", type=int, help="only this number of workers; may be repeated")
    parser.add_argument("--no-peers", action="store_true", help="measure our proxy alone")
    return parser


if __name__ == "__main__":
    main()
