"""What an edge has seen, for tests to read and wait on: connections, registrations, answers, and what was wrong.

Written by the loop's thread alone, under one condition; every wait has a deadline.
"""

from __future__ import annotations

import contextlib
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import msgspec

from proxy.tunnel.registration import ConnectionDetails, Refusal, Registration
from tests.support.edge.heads import Response

PATIENCE_S = 20.0
MAX_RESPONSES = 2000


class PushAnswer(msgspec.Struct, frozen=True, rename="camel"):
    """A connector's word on a configuration."""

    last_applied_version: int
    err: object
    """None: it is applied, or is not newer."""


@dataclass(eq=False)
class Record:
    """One connection of a connector, from accepting on."""

    number: int
    """Counted from one."""
    address: str
    """Of ours that it came to."""
    accepted_at_s: float
    source: str
    """The IP address that it came from."""
    server_name: str | None = None
    tls_version: str | None = None
    registrations: list[Registration] = field(default_factory=list)
    answers: list[ConnectionDetails | Refusal | str] = field(default_factory=list)
    """To the registrations; a text is the reason of an exception."""
    local_configurations: list[bytes] = field(default_factory=list)
    push_answers: list[PushAnswer] = field(default_factory=list)
    """To configurations that were pushed by the edge of its own accord."""
    is_registered: bool = False
    is_in_rotation: bool = False
    """Requests are sent over it."""
    is_unregistered: bool = False
    """The connector has asked for its end."""
    streams: int = 0
    """In flight, the control stream not counted."""
    max_streams: int = 0
    requests: int = 0
    pings_acked: int = 0
    goaways: list[int] = field(default_factory=list)
    """Error codes of the GOAWAYs that came."""
    abort_reason: str | None = None
    """The connector's last words on the control stream."""
    has_control_ended: bool = False
    """The connector has ended its side of the control stream."""
    closed: str | None = None
    """How it ended."""

    @property
    def registration(self) -> Registration:
        """The only one."""
        (registration,) = self.registrations
        return registration


class Ledger:
    def __init__(self) -> None:
        self._news = threading.Condition()
        self.records: list[Record] = []
        self.handshakes_failed: list[str] = []
        self.responses: deque[Response] = deque(maxlen=MAX_RESPONSES)
        """Final heads, as they came, the newest last."""
        self.requests = 0
        """Of the front door, forwarded or not."""
        self.answered: Counter[int] = Counter()
        """What the front door answered, by status code."""
        self.failures: list[str] = []
        """Requests of the front door that got no complete answer, and why."""
        self.violations: list[str] = []
        """What connectors did that the protocol does not allow."""

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        with self._news:
            yield
            self._news.notify_all()

    def wait_for(self, is_there: Callable[[], bool], what: str, timeout_s: float = PATIENCE_S) -> None:
        with self._news:
            assert self._news.wait_for(is_there, timeout_s), f"never came within {timeout_s:g} s: {what}; {self.tale}"

    @property
    def registered(self) -> list[Record]:
        """Those that are now."""
        return [record for record in self.records if record.is_registered]

    @property
    def open(self) -> list[Record]:
        return [record for record in self.records if record.closed is None]

    @property
    def in_flight(self) -> int:
        return sum(record.streams for record in self.open)

    @property
    def registrations(self) -> list[Registration]:
        """All that were ever asked for, connection by connection."""
        return [registration for record in self.records for registration in record.registrations]

    @property
    def unregistrations(self) -> int:
        return sum(record.is_unregistered for record in self.records)

    @property
    def tale(self) -> str:
        """For messages."""
        shown = [
            f"{record.number}: {len(record.registrations)} registrations, {record.closed or 'open'}"
            for record in self.records[-8:]
        ]
        return f"{len(self.records)} connections, the last {shown}; violations {self.violations[-3:]}"
