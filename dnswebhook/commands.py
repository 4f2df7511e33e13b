"""The commands for people: `dnswebhook check` and `dnswebhook records`.

On a terminal they draw tables; in a pipe they print one tab-separated line per row, or JSON if requested.
"""

import sys
from collections.abc import Sequence

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from dnswebhook.deadline import Deadline
from dnswebhook.errors import StoreError
from dnswebhook.stores.base import Finding, Grade, Store

_TIMEOUT_S = 30.0
_STYLES = {Grade.OK: "green", Grade.WARNING: "yellow", Grade.FAILED: "bold red"}


def check(store: Store, *, as_json: bool) -> int:
    """Returns exit code 0 if nothing failed, else 1."""
    findings = list(store.check(Deadline.after(_TIMEOUT_S)))
    if as_json:
        _print_json(findings)
    elif sys.stdout.isatty():
        _draw_findings(findings)
    else:
        _print_rows([(finding.grade.value, finding.subject, finding.detail, finding.remedy) for finding in findings])
    return 1 if any(finding.grade is Grade.FAILED for finding in findings) else 0


def records(store: Store, *, where: str, as_json: bool) -> int:
    """Returns exit code 1 if the store cannot be read."""
    try:
        listing = store.list_records(Deadline.after(_TIMEOUT_S))
    except StoreError as error:
        print(f"dnswebhook records: {error}; `dnswebhook check` looks for the cause", file=sys.stderr)
        return 1
    rows = sorted(listing.records, key=lambda row: (row.name, row.type, row.value))
    if as_json:
        _print_json(rows)
        return 0
    lines = [
        (row.name, row.type, str(row.ttl_s or "auto"), row.value, row.origin.value if row.is_enabled else "disabled")
        for row in rows
    ]
    if sys.stdout.isatty():
        _draw_table(("name", "type", "TTL", "value", "state"), lines, f"{len(lines)} records in {where}")
    elif not lines:
        print(f"dnswebhook records: no records in {where}", file=sys.stderr)
    else:
        _print_rows(lines)
    return 0


def _print_json(items: Sequence[object]) -> None:
    print(msgspec.json.format(msgspec.json.encode(items), indent=2).decode())


def _print_rows(rows: Sequence[Sequence[str]]) -> None:
    for row in rows:
        print("\t".join(" ".join(cell.split()) for cell in row).rstrip("\t"))


def _draw_findings(findings: Sequence[Finding]) -> None:
    table = Table()
    for column in ("", "what", "seen", "what to do"):
        table.add_column(column, overflow="fold")
    for finding in findings:
        grade = Text(finding.grade.value, style=_STYLES[finding.grade])
        table.add_row(grade, Text(finding.subject), Text(finding.detail), Text(finding.remedy))
    Console().print(table)


def _draw_table(columns: Sequence[str], rows: Sequence[Sequence[str]], caption: str) -> None:
    table = Table(caption=caption)
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    Console().print(table)
