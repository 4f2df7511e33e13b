"""Rows on a terminal, in a pipe, and as JSON."""

import sys
from collections.abc import Mapping, Sequence

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text


def as_json(content: object) -> None:
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(content), indent=2).decode() + "\n")


def rows(columns: Sequence[str], lines: Sequence[Sequence[str]], styles: Mapping[str, str]) -> None:
    """A table on a terminal, otherwise tab-separated lines. `styles`: by the text in a line's first column."""
    lines = [[_plain(text) for text in line] for line in lines]
    if not sys.stdout.isatty():
        sys.stdout.write("".join("\t".join(line) + "\n" for line in lines))
        return
    table = Table()
    for column in columns:
        table.add_column(column, overflow="fold")
    for line in lines:
        table.add_row(*map(Text, line), style=styles.get(line[0], ""))
    Console().print(table)


def _plain(text: str) -> str:
    """One line without control characters for a terminal: anybody may have written the messages."""
    return "".join(character if character.isprintable() else " " for character in text)


def note(text: str) -> None:
    """Print a note besides the answer, for people only."""
    sys.stdout.flush()  # if the answer cannot be written, no note follows
    sys.stderr.write(f"{text}\n")
