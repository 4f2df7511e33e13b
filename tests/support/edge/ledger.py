"""What an edge has seen, for tests to read and wait on: connections, registrations, answers, and violations.

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
    """A connector's answer to a pushed configuration."""

    last_applied_version: int
    err: object
    """None: the configuration is applied, or is not newer."""


@dataclass(eq=False)
class Record:
    """One connection of a connector, from accept on."""

    number: int
    """Counted from one."""
    address: str
    """Our address, to which it connected."""
    accepted_at_s: float
    source: str
    """The IP address that it came from."""
    server_name: str | None = None
    tls_version: str | None = None
    registrations: list[Registration] = field(default_factory=list)
    answers: list[ConnectionDetails | Refusal | str] = field(default_factory=list)
    """Answers to the registrations; a text is the reason of an exception."""
    local_configurations: list[bytes] = field(default_factory=list)
    push_answers: list[PushAnswer] = field(default_factory=list)
    """Answers to configurations that the edge pushed on its own."""
    is_registered: bool = False
    is_in_rotation: bool = False
    """Whether requests are sent over it."""
    is_unregistered: bool = False
    """Whether the connector has unregistered."""
    streams: int = 0
    """In flight, excluding the control stream."""
    max_streams: int = 0
    pings_acked: int = 0
    goaways: list[int] = field(default_factory=list)
    """Error codes of the GOAWAYs received."""
    abort_reason: str | None = None
    """The reason with which the connector aborted the RPC of the control stream."""
    has_control_ended: bool = False
    """Whether the connector has ended its side of the control stream."""
    closed: str | None = None
    """Why it ended."""

    @property
    def registration(self) -> Registration:
        """The registration; fails unless there is exactly one."""
        (registration,) = self.registrations
        return registration


class Ledger:
    def __init__(self) -> None:
        self._news = threading.Condition()
        self.records: list[Record] = []
        self.handshakes_failed: list[str] = []
        self.responses: deque[Response] = deque(maxlen=MAX_RESPONSES)
        """Final heads as received, the newest last."""
        self.requests = 0
        """Requests of the front door, forwarded or not."""
        self.answered: Counter[int] = Counter()
        """Responses of the front door, by status code."""
        self.failures: list[str] = []
        """Requests of the front door without a complete response, and why."""
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
        """The currently registered connections."""
        return [record for record in self.records if record.is_registered]

    @property
    def open(self) -> list[Record]:
        return [record for record in self.records if record.closed is None]

    @property
    def in_flight(self) -> int:
        return sum(record.streams for record in self.open)

    @property
    def registrations(self) -> list[Registration]:
        """All registrations ever requested, connection by connection."""
        return [registration for record in self.records for registration in record.registrations]

    @property
    def unregistrations(self) -> int:
        return sum(record.is_unregistered for record in self.records)

    @property
    def tale(self) -> str:
        """A summary for error messages."""
        shown = [
            f"{record.number}: {len(record.registrations)} registrations, {record.closed or 'open'}"
            for record in self.records[-8:]
        ]
        return f"{len(self.records)} connections, the last {shown}; violations {self.violations[-3:]}"
