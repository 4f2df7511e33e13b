"""What exchanges hold until clients and backends take it: bodies, and large heads of requests. Limited in total.

Over HTTP/2 one client can have hundreds of responses wait, by windows that it does not open, and hundreds of requests,
for a backend that takes none or does not answer. (Over HTTP/1.1 responses wait in the connection's output.)
"""

from functools import partial
from typing import Final

from proxy.exchange.backlog import Backlog, Waiting
from proxy.heads import RequestHead
from proxy.loop import Loop

MAX_UNTAKEN_BYTES: Final = 256 * 1024 * 1024
"""How much all exchanges of a worker may hold together. Beyond it the kernel might end the worker, and everybody's
requests."""
LARGE_HEAD_FIELDS: Final = 100
"""A request with more fields than this counts, by its fields: few others are large, and counting takes time."""
FIELD_BYTES: Final = 170
"""About what the interpreter needs for a field of two short strings, four times as much as on the wire."""


def large_head_bytes(head: RequestHead) -> int:
    """What the fields of a head count for: 0 unless they are many."""
    count = len(head.fields)
    return count * FIELD_BYTES if count > LARGE_HEAD_FIELDS else 0


class Untaken(Backlog):
    """The total of a worker, which also counts as the loop's `unsent`."""

    __slots__ = ("_loop",)

    def __init__(self, loop: Loop) -> None:
        super().__init__()
        self._loop = loop

    def weigh(self, one: Waiting, before_bytes: int, now_bytes: int) -> None:
        super().weigh(one, before_bytes, now_bytes)
        self._loop.unsent.size_bytes += now_bytes - before_bytes
        if self.held_bytes > MAX_UNTAKEN_BYTES:
            # Later: this may be a call of any of them, or of its client or backend.
            self._loop.call_soon(partial(self.reduce, MAX_UNTAKEN_BYTES))
