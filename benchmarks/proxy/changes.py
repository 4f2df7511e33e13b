"""Change one route of many: how long until every worker routes by it, and what that costs.

The whole document is put, as a controller does it. The client encodes it before the clock starts.
"""

from pathlib import Path

import msgspec

from benchmarks.comparison import OURS, Row
from benchmarks.proxy import programs
from benchmarks.proxy.programs import Tunnelgw

SIZES = (100, 1_000, 10_000)
_WARM_UP = 5


def changes(directory: Path, count: int) -> list[Row]:
    """`count` changes, one after another, for each size of the document; nothing else happens."""
    with programs.http_backend(directory) as backend:
        return [_changes(size, f"127.0.0.1:{backend.port}", directory, count) for size in SIZES]


def _changes(size: int, backend: str, directory: Path, count: int) -> Row:
    document = programs.document(programs.free_port(), backend, routes=size)
    with Tunnelgw(1, document, directory) as program:
        for number in range(_WARM_UP):
            program.put(_changed(document, size // 2, f"warm {number}"))
        before_s = program.cpu_s()
        took_s = sorted(program.put(_changed(document, size // 2, f"v{number}")) for number in range(count))
        values = {
            "live_p50_ms": took_s[count // 2] * 1000,
            "live_p99_ms": took_s[min(count - 1, int(0.99 * count))] * 1000,
            "change_cpu_ms": (program.cpu_s() - before_s) / count * 1000,
            "rss_bytes": program.rss_bytes(),
        }
    return Row(f"one route of {size:,}", OURS, values)


def _changed(document: dict[str, object], place: int, stamp: str) -> bytes:
    routes = document["routes"]
    assert isinstance(routes, list)
    routes[place]["rules"][0]["filters"]["requestHeaderModifier"]["set"][0]["value"] = stamp
    return msgspec.json.encode(document)
