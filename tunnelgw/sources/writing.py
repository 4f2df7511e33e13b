"""What comes of writing a status, whichever source the object is from."""

from enum import StrEnum
from typing import NamedTuple, Protocol

from tunnelgw.model.kinds import Kind
from tunnelgw.model.meta import Object


class Outcome(StrEnum):
    """A closed set, for metrics."""

    WRITTEN = "written"
    CONFLICT = "conflict"
    """The object has been written since: it will be in a later snapshot, and its status is made anew."""
    GONE = "gone"
    """The object has been deleted since."""
    INVALID = "invalid"
    """Refused for what it says, by a CRD, or by a policy or webhook of the cluster: to be tried again, since people may
    change these, and nothing tells us."""
    FAILED = "failed"
    """Nobody knows what became of it: to be tried again."""


class Written(NamedTuple):
    outcome: Outcome
    error: str = ""
    is_general: bool = False
    """It failed for a reason that has nothing to do with this object: any other would have failed now too."""
    retry_after_s: float = 0.0
    """With `is_general`: nothing should be written before, as the server asks."""


class Writer(Protocol):
    """Whoever writes statuses. Never raises."""

    def write(self, kind: Kind, item: Object, status: bytes) -> Written: ...
