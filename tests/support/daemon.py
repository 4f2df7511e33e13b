"""A daemon of this project as a real process, observed through its JSON log.

In tests, daemons bind port 0 and log the line `{"msg": "listening", "server": "api", "address": "127.0.0.1:34567"}` for
each server; from that line a test learns the address.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

from tests.support.process import Process

READY_S = 60.0

LogLine = Mapping[str, Any]


class Daemon(Process):
    """`python -m PACKAGE ARGUMENTS` with the interpreter of the tests."""

    def __init__(self, package: str, arguments: Sequence[str] = (), env: Mapping[str, str] | None = None) -> None:
        super().__init__(package, [sys.executable, "-m", package, *arguments], env)

    @classmethod
    def dnswebhook(cls, env: Mapping[str, str], arguments: Sequence[str] = ()) -> Self:
        """`dnswebhook run` on free loopback ports; the variables in `env` select its store."""
        addresses = ["--api-addr", "127.0.0.1:0", "--health-addr", "127.0.0.1:0"]
        return cls("dnswebhook", ["run", *addresses, *arguments], env)

    @property
    def log(self) -> tuple[LogLine, ...]:
        """Every line that is a JSON object, in order."""
        return tuple(entry for entry in map(_parse, self.lines) if entry)

    def lines_of(self, message: str) -> list[LogLine]:
        """Every line so far whose `msg` is `message`."""
        return [entry for entry in self.log if entry.get("msg") == message]

    def wait_for_log(self, is_wanted: Callable[[LogLine], bool], what: str, timeout_s: float = READY_S) -> LogLine:
        return _parse(self.wait_for_line(lambda line: is_wanted(_parse(line)), what, timeout_s))

    def wait_for_message(self, message: str, timeout_s: float = READY_S, **fields: object) -> LogLine:
        """The first line whose `msg` is `message` and that has these fields."""

        def is_wanted(entry: LogLine) -> bool:
            return entry.get("msg") == message and all(entry.get(name) == value for name, value in fields.items())

        return self.wait_for_log(is_wanted, f"{message!r} {fields or ''}".rstrip(), timeout_s)

    def address(self, server: str) -> str:
        """`host:port` of the server with this name in the log: `api`, `health` ..."""
        return str(self.wait_for_message("listening", server=server)["address"])

    def url(self, server: str) -> str:
        return f"http://{self.address(server)}"


def _parse(line: str) -> LogLine:
    """The line as a JSON object; empty for any other text (such as a traceback of the interpreter)."""
    try:
        entry = json.loads(line)
    except ValueError:
        return {}
    return entry if isinstance(entry, dict) else {}
