"""`make bench-tunnel`: measure the tunnel, beside cloudflared if that is on the PATH.

A load edge of ours accepts the connections and generates the load; it shares the machine with connector and backend.
Prints tables and writes the same figures to benchmarks/results/. Nothing is judged here; docs/performance.md says what
the numbers mean and what the goals are.
"""

import argparse
import os
import platform
import shutil
import sys
from collections.abc import Callable

from benchmarks import comparison
from benchmarks.comparison import Row
from benchmarks.tunnel import edge
from benchmarks.tunnel.measure import Bench, Plan, workplace

FULL = Plan(repeats=5, closed_s=3, steady_s=4, bulk_bytes=1 << 30, drops_peer=True)
QUICK = Plan(repeats=1, closed_s=0.7, steady_s=1, bulk_bytes=128 << 20, drops_peer=False, routes=(1, 1_000))
TABLES = ("small", "bulk", "narrow", "routes", "life")


def main() -> None:
    options = _parser().parse_args()
    missing = [name for name in ("go", "nginx") if shutil.which(name) is None]
    if missing:
        sys.exit(f"benchmarks.tunnel: {', '.join(missing)} not found; on Debian: apt install golang nginx-light")
    has_peer = shutil.which("cloudflared") is not None and not options.no_peers
    peers = "cloudflared" if has_peer else "none"
    print(f"{os.cpu_count()} CPUs, Python {platform.python_version()}; peers: {peers}\n", flush=True)
    plan = QUICK if options.quick else FULL
    rows: dict[str, list[Row]] = {}
    with workplace() as directory:
        bench = Bench(plan, directory, edge.build(), has_peer=has_peer)
        workers = tuple(options.workers or (1, 2))
        tables: dict[str, tuple[str, Callable[[], list[Row]]]] = {
            "small": ("Small requests through the tunnel", lambda: bench.small_requests(workers)),
            "bulk": ("One large body through the tunnel", bench.bulk),
            "narrow": ("Small requests beside downloads, over a line of 10 Mbit/s", bench.narrow),
            "routes": ("Routes", bench.routes),
            "life": ("Start, memory, reconnecting", lambda: bench.life(workers)),
        }
        for name in options.only or TABLES:
            title, measure = tables[name]
            rows[title] = measure()
            comparison.show(title, rows[title])
    print(f"written: {comparison.write('tunnel', rows, plan)}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tunnel", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer and shorter runs: does it work at all?")
    parser.add_argument("--only", action="append", choices=TABLES, help="only this table; may be repeated")
    parser.add_argument("--workers", action="append", type=int, help="only this number of workers; may be repeated")
    parser.add_argument("--no-peers", action="store_true", help="measure our proxy alone")
    return parser


if __name__ == "__main__":
    main()
