"""Transcripts in a document: commands for the reader with their output; parsed here, run and compared by tests.

A transcript is a fenced `console` block below a comment that names the set-up it was made in:

    <!-- transcript: v2 DOMAIN_FILTER=example.com -->     a new world (see `transcript_*_world`)
    <!-- transcript: continued fault=hangs -->            the world of the block above, after these changes

In the block, a line that begins with `$ ` is a command, which continues on lines indented by four; what follows is its
output. A `json` block below `<!-- log -->` contains lines that the daemon of that world has logged by then. A block
below `<!-- file: NAME -->` is a file for the reader to create; worlds that use files have it from the beginning.

The document shows addresses, dates and fingerprints as a reader would see them; `same` ignores them when comparing. A
console block without a comment is an error, so that nothing in the document is untested by accident.

    python -m tests.support.transcripts docs/dnswebhook.md     insert current output wherever it differs
"""

import re
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, Self

FENCE = "```"
_COMMENT = re.compile(r"<!-- (?:(?P<kind>log)|transcript: (?P<words>.+?)) -->")
_FILE = re.compile(r"<!-- file: (?P<name>\S+) -->")
CONTINUATION = " " * 4
CONTINUED = "continued"

_VOLATILE = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z", "TIME"),
        (r"valid until \d{4}-\d\d-\d\d \d\d:\d\d", "valid until DATE"),
        (r"(?i)\bdate: .*", "Date: DATE"),
        (r"\b[0-9a-f]{12}-[0-9a-f]+", "REQUEST_ID"),
        (r"_ms\":[0-9.]+", '_ms":DURATION'),
        (r"_seconds([{} ].*)? [0-9.e+-]+$", r"_seconds\1 NUMBER"),
        (r"\"pid\":\d+", '"pid":PID'),
        (r"(basket=)[A-Za-z0-9_-]{32}", r"\1TOKEN"),
        (r"sha256:[0-9a-f]{64}", "sha256:HASH"),
        (r"(X-Request-Id: |\"request_id\":\")[0-9a-f]{12}", r"\1ID"),
        (r"(?:[0-9A-F]{2}:){31}[0-9A-F]{2}", "FINGERPRINT"),
        (r"issued by [^;]+?(?=[;,] (?:valid|if that is)|; )", "issued by ISSUER"),
        (r"[a-z0-9-]+\.sqlite3(?=: )", "FILE"),
        (r"\d\.\d{3,}e\+09|\d{10}\.\d+", "UNIX_TIME"),
    )
)


@dataclass(frozen=True)
class Command:
    """`line` counts from 0, as `output_lines` does; the end of the output is exclusive."""

    line: int
    text: str
    output: tuple[str, ...]
    output_lines: tuple[int, int]


@dataclass(frozen=True)
class Block:
    """Contains either commands or lines of the log."""

    line: int
    words: tuple[str, ...]
    commands: tuple[Command, ...] = ()
    log: tuple[str, ...] = ()


@dataclass
class Story:
    """Blocks that share a world; the first one sets it up."""

    title: str
    blocks: list[Block] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The name in test reports."""
        return re.sub(r"\W+", "-", f"{self.title} {self.blocks[0].line + 1}".lower())


def stories(document: str) -> list[Story]:
    """Raises ValueError for a console block without a set-up."""
    found: list[Story] = []
    for title, comment, first, lines in _fenced_blocks(document):
        block = _block(comment, first, lines)
        if block is None:
            continue
        if block.words[:1] != (CONTINUED,) and not block.log:
            found.append(Story(title))
        if not found:
            raise ValueError(f"line {first}: the first block continues nothing")
        found[-1].blocks.append(block)
    return found


def files(document: str) -> dict[str, str]:
    """The files that the document has its readers create, by name."""
    found: dict[str, str] = {}
    for _, comment, _, lines in _fenced_blocks(document):
        match = _FILE.fullmatch(comment)
        if match is not None:
            found[match["name"]] = "".join(f"{line}\n" for line in lines[1:-1])
    return found


def files_of_manual(document: Path, daemon: str) -> dict[str, str]:
    """The files of the page itself, and those of its guide, which its readers have already created."""
    guide = document.with_name(f"{daemon}.md")
    return {name: text for page in (guide, document) for name, text in files(page.read_text(encoding="utf-8")).items()}


def _fenced_blocks(document: str) -> Iterator[tuple[str, str, int, list[str]]]:
    """Heading, the comment above, line number of the fence, and the block with both fences."""
    title, comment, opened = "", "", -1
    lines = document.splitlines()
    for number, line in enumerate(lines):
        if opened >= 0:
            if line == FENCE:
                yield title, comment, opened, lines[opened : number + 1]
                opened, comment = -1, ""
        elif line.startswith(FENCE):
            opened = number
        elif line.startswith("#"):
            title = line.lstrip("# ")
        elif line.startswith("<!-- "):
            comment = line
        elif line:
            comment = ""


def _block(comment: str, first: int, lines: list[str]) -> Block | None:
    language = lines[0].removeprefix(FENCE)
    match = _COMMENT.fullmatch(comment)
    if match is None:
        if language == "console":
            raise ValueError(f"line {first + 1}: a console block, want `<!-- transcript: ... -->` in the line above")
        return None
    content = lines[1:-1]
    if match["kind"] == "log":
        return Block(first, (), log=tuple(content))
    return Block(first, tuple(shlex.split(match["words"])), tuple(_commands(first + 1, content)))


def _commands(first: int, lines: Sequence[str]) -> Iterator[Command]:
    number = 0
    while number < len(lines):
        start = number
        if not lines[number].startswith("$ "):
            raise ValueError(f"line {first + number + 1}: output {lines[number]!r} before any command")
        number += 1
        while number < len(lines) and lines[number].startswith(CONTINUATION):
            number += 1
        text = "\n".join(lines[start:number]).removeprefix("$ ")
        output = number
        while number < len(lines) and not lines[number].startswith("$ "):
            number += 1
        yield Command(first + start, text, tuple(lines[output:number]), (first + output, first + number))


def same(documented: Sequence[str], seen: Sequence[str]) -> bool:
    return [_steady(line) for line in documented if line] == [_steady(line) for line in seen if line]


def is_logged(documented: str, entry: str) -> bool:
    return _steady(documented) == _steady(entry)


def _steady(line: str) -> str:
    """`line` without the parts that differ from run to run."""
    for pattern, replacement in _VOLATILE:
        line = pattern.sub(replacement, line)
    return line.rstrip()


class World(Protocol):
    """The environment in which a document's transcripts run: see the modules `transcript_*_world`."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def change(self, words: Sequence[str]) -> None: ...

    def run(self, command: str) -> list[str]: ...

    def wait_for_log(self, is_wanted: Callable[[str], bool]) -> None: ...


def world_of(document: Path) -> World:
    """A new world of the kind that this document is about."""
    if document.name.startswith("controller"):
        from tests.support.transcript_controller_world import ControllerWorld

        return ControllerWorld(files_of_manual(document, "controller"))
    if document.name.startswith("proxy"):
        from tests.support.transcript_proxy_world import ProxyWorld

        return ProxyWorld(files_of_manual(document, "proxy"))
    from tests.support import transcript_world

    return transcript_world.World()


def rewritten(path: Path) -> str:
    """The document with current output wherever it is not the `same`."""
    document = path.read_text(encoding="utf-8")
    lines: list[str | None] = list(document.splitlines())
    for story in stories(document):
        with world_of(path) as world:
            for block in story.blocks:
                world.change(block.words)
                for command in block.commands:
                    seen = world.run(command.text)
                    if not same(command.output, seen):
                        first, end = command.output_lines
                        lines[first - 1] = "\n".join([str(lines[first - 1]), *(line for line in seen if line)])
                        lines[first:end] = [None] * (end - first)
    return "\n".join(line for line in lines if line is not None) + "\n"


if __name__ == "__main__":
    for name in sys.argv[1:]:
        path = Path(name)
        path.write_text(rewritten(path), encoding="utf-8")
