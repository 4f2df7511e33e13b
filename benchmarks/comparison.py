"""Rows of benchmarks that compare programs: shown as tables with ratios to each peer, and written as JSON."""

import os
import platform
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from rich import box
from rich.console import Console
from rich.table import Table

OURS = "tunnelgw-proxy"
RESULTS = Path(__file__).resolve().parent / "results"
_PIPE_WIDTH = 220
_MIB = 1 << 20


class Row(msgspec.Struct, frozen=True):
    """The result of one program in one case."""

    case: str
    who: str
    values: dict[str, float]


def _mib(value: float) -> str:
    return f"{value / _MIB:.1f}"


_UNITS: dict[str, tuple[str, Callable[[float], str], bool]] = {
    # key: title, format, whether ratios to the peers are shown
    "per_s": ("requests/s", "{:,.0f}".format, False),
    "cpu_us": ("CPU us a request", "{:.1f}".format, True),
    "steady_cpu_us": ("CPU us at 2,000/s", "{:.0f}".format, True),
    "p50_ms": ("p50 ms", "{:.2f}".format, False),
    "p99_ms": ("p99 ms", "{:.2f}".format, True),
    "p999_ms": ("p99.9 ms", "{:.2f}".format, False),
    "mb_per_s": ("MB/s", "{:,.0f}".format, False),
    "mb_per_core_s": ("MB per core second", "{:,.0f}".format, False),
    "cpu_s_per_gb": ("CPU s a GB", "{:.2f}".format, True),
    "growth_bytes": ("peak RSS growth MiB", _mib, False),
    "idle_bytes": ("RSS idle MiB", _mib, False),
    "largest_bytes": ("RSS idle of the largest process MiB", _mib, False),
    "loaded_bytes": ("RSS loaded MiB", _mib, False),
    "rss_bytes": ("RSS MiB", _mib, False),
    "swaps": ("swaps", "{:.0f}".format, False),
    "swap_ms": ("median swap ms", "{:.0f}".format, False),
    "first_ms": ("first registered after ms", "{:,.0f}".format, True),
    "all_ms": ("all registered after ms", "{:,.0f}".format, True),
    "first_again_ms": ("first again after ms", "{:,.0f}".format, True),
    "all_again_ms": ("all again after ms", "{:,.0f}".format, True),
    "live_p50_ms": ("live after p50 ms", "{:.1f}".format, False),
    "live_p99_ms": ("live after p99 ms", "{:.1f}".format, False),
    "change_cpu_ms": ("CPU ms a change", "{:.1f}".format, False),
    "failed": ("failed", "{:.0f}".format, False),
}


def show(title: str, rows: list[Row]) -> None:
    """Print a table: drawn on a terminal, plain text in a pipe."""
    is_terminal = sys.stdout.isatty()
    console = Console(width=None if is_terminal else _PIPE_WIDTH, highlight=False)
    keys = [key for key in _UNITS if any(key in row.values for row in rows)]
    table = Table(title=title, title_justify="left", box=box.ROUNDED if is_terminal else None, pad_edge=is_terminal)
    table.add_column("case")
    table.add_column("program")
    for key in keys:
        table.add_column(_UNITS[key][0], justify="right")
    table.add_column("of each peer")
    for row in rows:
        cells = [_UNITS[key][1](row.values[key]) if key in row.values else "-" for key in keys]
        table.add_row(row.case, row.who, *cells, _ratios(row, rows))
    console.print(table)
    console.print()


def _ratios(row: Row, rows: list[Row]) -> str:
    if not row.who.startswith(OURS):
        return ""
    parts = []
    for other in rows:
        if other.case != row.case or other.who.startswith(OURS):
            continue
        shares = [
            f"{title} {row.values[key] / other.values[key]:.2f}"
            for key, (title, _, is_compared) in _UNITS.items()
            if is_compared and row.values.get(key) and other.values.get(key)
        ]
        parts.append(f"{other.who}: {', '.join(shares)}")
    return "; ".join(parts)


def write(name: str, rows: dict[str, list[Row]], plan: object) -> Path:
    """Write all tables of a run, by title, to a new file."""
    RESULTS.mkdir(exist_ok=True)
    now = datetime.now(UTC)
    path = RESULTS / f"{name}-{now:%Y%m%dT%H%M%SZ}.json"
    content = {"at": now, "cpus": os.cpu_count(), "python": platform.python_version(), "plan": plan, "tables": rows}
    path.write_bytes(msgspec.json.format(msgspec.json.encode(content), indent=1))
    return path
