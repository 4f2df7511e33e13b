"""Tests that are too large for the tunnel's test suite: bodies of 1 GiB, and a minute of restarts under load.

    python -m benchmarks.tunnel_limits

Prints tables for docs/performance.md, and exits with code 1 if a body costs more than 16 MiB of memory or a request
fails. The edge is that of the tests; it runs in one Python process with the load and the backend of the restarts,
beside the proxies.
"""

import sys
import tempfile
from pathlib import Path

from benchmarks.proxy_limits import bodies
from tests.e2e.tunnel.connector import Connector
from tests.e2e.tunnel.rolling import Outcome, restart_in_turns
from tests.support.edge.edge import Edge

RATE_PER_S = 500
LOAD_S = 60.0
PROTOCOLS = {"HTTP/1.1": ("http", "--http1.1"), "HTTP/2": ("http", "--http2-prior-knowledge")}
"""Between client and edge; between edge and proxy it is always HTTP/2 over TLS."""


def main() -> int:
    with tempfile.TemporaryDirectory() as directory, Edge() as edge, Connector(edge) as proxy:
        proxy.serve()
        edge.wait_for_registered(1)
        is_fine = bodies(Path(directory), proxy, PROTOCOLS)
    return 0 if restarts() and is_fine else 1


def restarts() -> bool:
    outcome = restart_in_turns(RATE_PER_S, lambda so_far: so_far.took_s >= LOAD_S)
    print(f"\n| load, {RATE_PER_S} requests/s wanted | requests | restarts | failed | p50 / p99 / longest |")
    print("|---|---|---|---|---|")
    print(f"| {outcome.took_s:.0f} s | {_row(outcome)} |")
    for failure in outcome.failures[:10]:
        print(failure, file=sys.stderr)
    return not outcome.failures


def _row(outcome: Outcome) -> str:
    took_ms = [1000 * duration_s for duration_s in sorted(outcome.durations_s)]
    p50_ms, p99_ms = (took_ms[len(took_ms) * share // 100] for share in (50, 99))
    counts = f"{len(took_ms):,} | {outcome.restarts} | {len(outcome.failures)}"
    return f"{counts} | {p50_ms:.1f} / {p99_ms:.1f} / {took_ms[-1]:.0f} ms"


if __name__ == "__main__":
    sys.exit(main())
