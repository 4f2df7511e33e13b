"""Field lines seen before, ready decoded or encoded: most fields of most messages repeat.

One `Caches` serves all connections of a thread. Bounded in entries and bytes; a flood of new lines ages out by itself.
Credentials are never entered, so that they do not outlive their message.
"""

from typing import Final

from proxy.h2.heads import Field
from proxy.h2.recent import Recent

ReceivedLine = tuple[int, Field]
"""A kind, by which the head's reader knows what concerns framing, and the field."""
SentLine = tuple[int, bytes]
"""A kind likewise, and the line with its CRLF."""

ORDINARY: Final = 0

MAX_LINE_BYTES: Final = 1024
_MAX_LINES: Final = 20_000
_MAX_BYTES: Final = 4 * 1024 * 1024
CREDENTIALS: Final = frozenset((b"authorization", b"proxy-authorization", b"cookie", b"set-cookie"))


class Caches:
    __slots__ = ("received", "sent")

    def __init__(self) -> None:
        self.received: Recent[bytes, ReceivedLine] = Recent(_MAX_LINES, _MAX_BYTES)
        self.sent: Recent[Field, SentLine] = Recent(_MAX_LINES, _MAX_BYTES)
