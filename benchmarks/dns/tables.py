"""Rows as tables: drawn on a terminal, plain aligned text in a pipe. Every ratio names its peer."""

import sys
from collections.abc import Callable, Sequence

import msgspec
from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.dns import stages
from benchmarks.dns.measure import Row

PIPE_WIDTH = 240

Format = Callable[[float], str]


def _ms(value: float) -> str:
    return f"{value:.1f} ms" if value < 100 else f"{value:.0f} ms"


def _s(value: float) -> str:
    return f"{value:.2f} s"


def _mib(value: float) -> str:
    return f"{value / (1 << 20):.1f} MiB"


def _count(value: float) -> str:
    return f"{value:,.0f}"


class Column(msgspec.Struct, frozen=True):
    key: str
    title: str
    shown: Format
    is_compared: bool = False
    """Smaller is better, and ratios to the peers are shown."""


CALLS = (
    Column("p50_ms", "p50", _ms, is_compared=True),
    Column("p99_ms", "p99", _ms),
    Column("cpu_ms", "CPU a call", _ms, is_compared=True),
    Column("body_bytes", "body", _mib),
    Column("calls", "calls", _count),
)
APPLIES = (
    Column("wall_s", "wall", _s, is_compared=True),
    Column("cpu_s", "CPU", _s, is_compared=True),
    Column("controller_calls", "controller calls", _count),
    Column("writes", "writes", _count),
    Column("gap_s", "longest gap", _s),
    Column("emptied", "names emptied", _count),
)
MEMORY = (
    Column("idle_bytes", "RSS idle", _mib),
    Column("listed_bytes", "after listings", _mib),
    Column("peak_bytes", "peak, 10 at once", _mib, is_compared=True),
)
START = (Column("p50_ms", "median", _ms, is_compared=True), Column("max_ms", "longest", _ms))
PHASES = (
    Column("wall_ms", "wall", _ms),
    Column("waiting_ms", "waiting", _ms),
    *(Column(name, name, _ms) for name in stages.NAMES),
)


class Tables:
    def __init__(self, peers: Sequence[str]) -> None:
        self._peers = peers
        self._is_terminal = sys.stdout.isatty()
        self._console = Console(width=None if self._is_terminal else PIPE_WIDTH, highlight=False)

    def show(self, title: str, columns: Sequence[Column], rows: Sequence[Row]) -> None:
        has_ratios = bool(self._peers) and any(column.is_compared for column in columns)
        table = Table(
            title=title,
            title_justify="left",
            box=box.ROUNDED if self._is_terminal else None,
            pad_edge=self._is_terminal,
        )
        table.add_column("case")
        table.add_column("webhook")
        for column in columns:
            table.add_column(column.title, justify="right")
        if has_ratios:
            table.add_column("of the better peer")
        case = None
        for row in rows:
            if case not in (None, row.case) and self._is_terminal:
                table.add_section()
            cells = [column.shown(row.values[column.key]) if column.key in row.values else "-" for column in columns]
            ratios = [self._ratios(row, columns, rows)] if has_ratios else []
            table.add_row(row.case if row.case != case or not self._is_terminal else "", row.webhook, *cells, *ratios)
            case = row.case
        self._console.print(table)
        self._console.print()

    def _ratios(self, row: Row, columns: Sequence[Column], rows: Sequence[Row]) -> str:
        if row.webhook in self._peers:
            return ""
        rivals = [other for other in rows if other.case == row.case and other.webhook in self._peers]
        parts = []
        for column in columns:
            figures = [(other.values[column.key], other.webhook) for other in rivals if column.key in other.values]
            if not column.is_compared or column.key not in row.values or not figures:
                continue
            best, name = min(figures)
            if best:
                parts.append(f"{column.title} {row.values[column.key] / best:.2f} ({name})")
        return ", ".join(parts)
