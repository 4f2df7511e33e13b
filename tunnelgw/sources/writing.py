"""Writing a status, and the possible outcomes; the same for both sources."""

from enum import StrEnum
from typing import NamedTuple, Protocol

from tunnelgw.model.kinds import Kind
from tunnelgw.model.meta import Object


class Outcome(StrEnum):
    """A closed set, for metrics."""

    WRITTEN = "written"
    CONFLICT = "conflict"
    """The object has changed since: it will be in a later snapshot, and its status will be made again."""
    GONE = "gone"
    """The object has been deleted since."""
    INVALID = "invalid"
    """Its content was refused by a CRD, or by a policy or webhook of the cluster. To be tried again, since those may
    change without our knowing."""
    FAILED = "failed"
    """It is unknown whether it was written. To be tried again."""


class Written(NamedTuple):
    outcome: Outcome
    error: str = ""
    is_general: bool = False
    """The cause has nothing to do with this object: any other write would have failed now too."""
    retry_after_s: float = 0.0
    """With `is_general`: how long the server asks us to wait before the next write."""


class Writer(Protocol):
    """Writes statuses. Never raises."""

    def write(self, kind: Kind, item: Object, status: bytes) -> Written: ...
