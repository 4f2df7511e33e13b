"""Descriptors reserved for the supervisor's messages: clients and backends may use up all others, but never these.

Without them, a document would end the worker with all its connections, and a request for a report would get no answer.
The kernel checks the soft limit when a descriptor is opened, so we lower the limit, and raise it when these are needed.
"""

import contextlib
import resource
from collections.abc import Iterator
from typing import Final

_COUNT: Final = 64
_SHARE: Final = 4
"""At most one in this many descriptors is reserved, so that the rest is left for traffic."""


class SpareFiles:
    def __init__(self) -> None:
        self._count = 0
        """How many are reserved; 0 before `keep_back`."""

    def keep_back(self) -> None:
        """Reserve the descriptors by lowering the limit of the process."""
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft != resource.RLIM_INFINITY:
            self._count = min(_COUNT, soft // _SHARE)
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft - self._count, hard))

    @contextlib.contextmanager
    def at_hand(self) -> Iterator[None]:
        """Within this context, the reserved descriptors may be used. What is opened may stay open."""
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
