"""Descriptors for what the supervisor says and asks: clients and backends may take all others, never these.

Without one, a document would end the worker with all whom it serves, and a question for numbers would have no answer.
The kernel looks at the soft limit when one is opened, so that is lowered, and raised where these are needed.
"""

import contextlib
import resource
from collections.abc import Iterator
from typing import Final

_COUNT: Final = 64
_SHARE: Final = 4
"""At most this part of what there is, so that the rest is for traffic."""


class SpareFiles:
    def __init__(self) -> None:
        self._count = 0
        """0 until they are kept back."""

    def keep_back(self) -> None:
        """For the whole process, whose limit it lowers."""
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft != resource.RLIM_INFINITY:
            self._count = min(_COUNT, soft // _SHARE)
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft - self._count, hard))

    @contextlib.contextmanager
    def at_hand(self) -> Iterator[None]:
        """What is opened meanwhile may stay open."""
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
