"""Shows a `Report`: as a table on a terminal, as plain lines in a pipe."""

from collections.abc import Iterator

from rich.console import Console
from rich.table import Table
from rich.text import Text

from daemonkit.logformat import one_line
from proxy.commands.report import Outcome, Report
from proxy.routing import BackendShare, MatchPlace, Miss


def lines_of(report: Report) -> Iterator[str]:
    """`label: text`, one fact per line."""
    for label, text in _facts(report):
        yield one_line(f"{label}: {text}")


def draw(report: Report) -> None:
    table = Table(show_header=False, title=f"door {report.door}", title_justify="left")
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    label_before = ""
    for label, text in _facts(report):
        style = ("green" if report.is_routed else "red") if label == "outcome" else ""
        table.add_row("" if label == label_before else label, Text(one_line(text), style=style))
        label_before = label
    Console().print(table)


def _facts(report: Report) -> Iterator[tuple[str, str]]:
    yield "door", report.door
    yield "host", report.host or "(none)"
    yield "path", report.path
    if report.listener is None:
        yield "listener", "none takes this host"
    else:
        hostname = report.listener_hostname or "every host"
        yield "listener", f"{report.listener or '(all routes)'} ({hostname})"
    for other in report.other_listeners:
        yield "not listener", other
    if report.winner is not None:
        yield "route", _place(report.winner)
        for condition in report.winner.conditions:
            yield "because", condition
    if report.runner_up is not None:
        yield "runner-up", f"{_place(report.runner_up)}, behind by {report.decided_by}"
    for filter_text in report.filters:
        yield "filter", filter_text
    for share in report.backends:
        yield "backend", _share(share)
    yield "outcome", " ".join(_outcome(report.outcome))
    for miss in report.misses:
        yield "near miss", _miss(miss)


def _place(place: MatchPlace) -> str:
    hostname = place.hostname or "every host"
    return f"{place.route} ({place.kind}), {place.rule}, match {place.match}, hostname {hostname}"


def _share(share: BackendShare) -> str:
    addresses = ", ".join(share.addresses)
    filters = "".join(f"; {text}" for text in share.filters)
    return f"{share.share:.1%} {share.backend}{f' ({addresses})' if addresses else ''}{filters}"


def _outcome(outcome: Outcome) -> Iterator[str]:
    if outcome.action == "redirect":
        yield f"redirect {outcome.status_code} to {outcome.location}"
        return
    if outcome.action == "answer":
        yield f"answer {outcome.status_code} ({outcome.reason}){f': {outcome.text}' if outcome.text else ''}"
        return
    yield f"forward to {outcome.backend} as {outcome.authority}{outcome.path}"
    for name in outcome.removed_headers:
        yield f"without {name}"
    for header in outcome.added_headers:
        yield f"with {header!r}"
    for mirror in outcome.mirrors:
        yield f"copied to {mirror}"


def _miss(miss: Miss) -> str:
    seen = "but was not sent" if miss.seen is None else f"seen {miss.seen!r}"
    return f"{_place(miss.place)}: {miss.criterion} wants {miss.wanted or 'any'!r}, {seen}"
