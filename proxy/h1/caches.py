"""Caches of decoded and encoded field lines: most fields of most messages repeat.

One `Caches` serves all connections of a thread. It is bounded in entries and bytes; a flood of new lines ages out by
itself. Credentials and cookies are never cached, so they do not outlive their message.
"""

from typing import Final

from proxy import heads
from proxy.h1.response import Response
from proxy.heads import Field
from proxy.recent import Recent

ReceivedLine = tuple[int, Field]
"""The line's kind, which tells the head's decoder whether it concerns framing, and the field."""

ORDINARY: Final = 0

MAX_LINE_BYTES: Final = 1024
MAX_HEAD_BYTES: Final = 2048
MAX_HEADS: Final = 1000
_MAX_LINES: Final = 20_000
_MAX_BYTES: Final = 4 * 1024 * 1024
UNCACHED_NAMES: Final = heads.UNCACHED_NAMES | {b"cookie"}


class Caches:
    __slots__ = ("heads", "received", "sent")

    def __init__(self) -> None:
        self.received: Recent[bytes, ReceivedLine] = Recent(_MAX_LINES, _MAX_BYTES)
        self.sent: Recent[Field, bytes] = Recent(_MAX_LINES, _MAX_BYTES)
        """Lines with their CRLF. Fields that concern framing are not cached: they are examined each time."""
        self.heads: dict[bytes, Response] = {}
        """Whole response heads of backends: apart from cookies, those of one resource are equal within a second."""
