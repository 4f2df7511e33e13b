"""Descriptors reserved for messages of the supervisor. Clients and backends may use up all others, but never these.

Without them a document would end the worker and all its connections, and a request for a report would have no answer.
The kernel checks the soft limit when a descriptor is opened, so the limit is lowered, and raised when these are needed.
"""

import contextlib
import resource
from collections.abc import Iterator
from typing import Final

_COUNT: Final = 64
_SHARE: Final = 4
"""At most one in so many of all descriptors is reserved, so that the rest is for traffic."""


class SpareFiles:
    def __init__(self) -> None:
        self._count = 0
        """How many are reserved; 0 before `keep_back`."""

    def keep_back(self) -> None:
        """Reserve them, by lowering the limit of the whole process."""
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft != resource.RLIM_INFINITY:
            self._count = min(_COUNT, soft // _SHARE)
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft - self._count, hard))

    @contextlib.contextmanager
    def at_hand(self) -> Iterator[None]:
        """Within this, the reserved ones may be used. What is opened may stay open."""
        if not self._count:
            yield
            return
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        raised = soft + self._count if hard == resource.RLIM_INFINITY else min(soft + self._count, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
