"""`tunnelgw-proxy check`: lists what is wrong with documents."""

import sys
from collections.abc import Sequence

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from daemonkit.logformat import one_line
from proxy import document
from proxy.document import DocumentError, Problem, tls_parts
from proxy.supervisor.certificates import CertificateCheck


class Verdict(msgspec.Struct, frozen=True):
    """The result for one document."""

    file: str
    is_sound: bool
    problems: tuple[Problem, ...]
    listeners: int = 0
    routes: int = 0
    backends: int = 0
    """Backends that the document names."""


def check(documents: Sequence[tuple[str, bytes]], *, as_json: bool) -> bool:
    """Check and print. `documents` has the name and content of each. Returns whether all are sound."""
    verdicts = [judge(name, data) for name, data in documents]
    if as_json:
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(verdicts), indent=2).decode() + "\n")
    else:
        for verdict in verdicts:
            (_draw if sys.stdout.isatty() else _print)(verdict)
    return all(verdict.is_sound for verdict in verdicts)


def judge(name: str, data: bytes) -> Verdict:
    try:
        config = document.decode(data)
        CertificateCheck().check(tls_parts(config))
    except DocumentError as error:
        return Verdict(name, is_sound=False, problems=error.problems)
    return Verdict(name, True, (), len(config.listeners), len(config.routes), len(config.backends))


def _summary(verdict: Verdict) -> str:
    listeners = _count(verdict.listeners, "listener") + (
        "" if verdict.listeners else " (served through the tunnel only)"
    )
    others = f"{_count(verdict.routes, 'route')}, {_count(verdict.backends, 'backend')}"
    return f"{verdict.file}: sound; {listeners}, {others}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _print(verdict: Verdict) -> None:
    lines = [f"{verdict.file}: {problem}" for problem in verdict.problems] or [_summary(verdict)]
    sys.stdout.write("".join(f"{one_line(line)}\n" for line in lines))


def _draw(verdict: Verdict) -> None:
    if verdict.is_sound:
        Console().print(Text(_summary(verdict), style="green"))
        return
    table = Table(title=verdict.file, title_justify="left")
    table.add_column("where", overflow="fold", style="bold")
    table.add_column("what is wrong", overflow="fold")
    for problem in verdict.problems:
        table.add_row(Text(one_line(problem.path) or "(document)"), Text(one_line(problem.message)))
    Console().print(table)
