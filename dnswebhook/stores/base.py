"""The only interface through which records are read and written, and the findings of a check.

Every method may be called from several threads at once. Each call that may wait takes the `Deadline` of the request it
serves, honours it, and raises only `dnswebhook.errors.StoreError`s. Stores never retry what is not safe to repeat:
after a create with an unclear outcome, they list and compare contents.
"""

from collections.abc import Iterator
from enum import Enum
from typing import Protocol

import msgspec

from dnswebhook.deadline import Deadline
from dnswebhook.model import Capabilities, Listing, Record, RecordSpec


class Grade(Enum):
    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"


class Finding(msgspec.Struct, frozen=True):
    """One line of `dnswebhook check`."""

    subject: str
    """What was checked: `address`, `TLS`, `credentials`, `site` ..."""
    grade: Grade
    detail: str
    """What was seen."""
    remedy: str = ""
    """What to do about it; empty if all is well."""


class Store(Protocol):
    def capabilities(self) -> Capabilities:
        """What can be held. Uses no network; raises CapabilitiesUnknown while this is not known."""

    def list_records(self, deadline: Deadline) -> Listing:
        """Every row at one moment, including disabled and derived ones."""

    def create(self, spec: RecordSpec, deadline: Deadline) -> Record:
        """Add a row. Raises AlreadyExists, Overlaps or RecordError for this record; otherwise systemic errors."""

    def update(self, record: Record, spec: RecordSpec, deadline: Deadline) -> Record:
        """Change `record` in place to `spec` (same name and type).

        Raises UpdateUnsupported if the store cannot do that, NotFound if the row is gone, and what `create` raises.
        """

    def delete(self, record: Record, deadline: Deadline) -> None:
        """Remove a row. Raises NotFound if it was already gone."""

    def probe(self, deadline: Deadline) -> None:
        """Prove cheaply that listing and writing could work now; raises the error if not."""

    def check(self, deadline: Deadline) -> Iterator[Finding]:
        """Check everything between us and the rows, step by step, for a person. Writes nothing and raises nothing."""

    def close(self) -> None:
        """Release sockets and files."""
