"""Collect one head from pieces of any size, and refuse it at the first byte that cannot be part of one.

Lines end with CRLF and nothing else: RFC 9112, 2.2 lets a recipient take a bare LF for a line end, and front and back
that differ in this read different messages. Flaws are judged by their place in the byte stream and never by how the
bytes happened to arrive, so that cutting differently never changes the answer.
"""

import re

from proxy.h1.errors import FIELDS_TOO_LARGE, RemoteProtocolError
from proxy.h1.limits import Limits

_END = b"\r\n\r\n"
BARE_LINE_END = re.compile(rb"\r(?!\n)|(?<!\r)\n")


class HeadBuffer:
    """`max_line_bytes` bounds the first line. `start` holds the bytes a head may begin with.

    A short head that comes in one piece is passed on unseen: its decoder has to refuse all that is refused here.
    """

    __slots__ = (
        "_held",
        "_is_blank_line_allowed",
        "_limits",
        "_max_line_bytes",
        "_short_bytes",
        "_skips_blank_line",
        "_start",
    )

    def __init__(self, limits: Limits, max_line_bytes: int, start: frozenset[int], is_blank_line_allowed: bool) -> None:
        self._held = bytearray()
        self._limits = limits
        self._max_line_bytes = max_line_bytes
        self._short_bytes = min(max_line_bytes, limits.max_head_bytes)
        self._start = start
        # One empty line before a request is skipped: old clients send one after a body (RFC 9112, 2.2).
        self._is_blank_line_allowed = is_blank_line_allowed
        self._skips_blank_line = is_blank_line_allowed

    def __len__(self) -> int:
        return len(self._held)

    def clear(self) -> None:
        self._held.clear()

    def take(self, data: bytes, start: int) -> tuple[bytes | None, int]:
        """Read on in `data` from `start`: the head with its empty line, or None; and how far `data` is used up."""
        if self._skips_blank_line:
            start = self._skip_blank_line(data, start)
        held = self._held
        if held:
            known = len(held)
            held += data[start:]
            end = held.find(_END, max(known - 3, 0))
            if end < 0:
                self._check(held, max(known - 1, 0), is_whole=False)
                return None, len(data)
            head = bytes(held[: end + 4])
            self._check(head, max(known - 1, 0), is_whole=True)
            held.clear()
            self._skips_blank_line = self._is_blank_line_allowed
            return head, start + end + 4 - known
        end = data.find(_END, start)
        if end < 0:
            held += data[start:]
            if held:
                self._check(held, 0, is_whole=False)
            return None, len(data)
        head = data[start : end + 4]
        if len(head) > self._short_bytes:
            self._check(head, 0, is_whole=True)
        self._skips_blank_line = self._is_blank_line_allowed
        return head, end + 4

    def _skip_blank_line(self, data: bytes, start: int) -> int:
        if self._held == b"\r":
            if data.startswith(b"\n", start):
                self._held.clear()
                start += 1
        elif data.startswith(b"\r\n", start):
            start += 2
        elif start == len(data) - 1 and data.endswith(b"\r"):
            # Half of it, perhaps: the next byte tells.
            return start
        self._skips_blank_line = False
        return start

    def _check(self, zone: bytes | bytearray, known: int, *, is_whole: bool) -> None:
        """Raise for the flaw that shows first; what lies before `known` has been checked for line ends."""
        limits = self._limits
        if zone[0] not in self._start and not (zone == b"\r" and self._skips_blank_line):
            raise RemoteProtocolError(400, "bytes that no HTTP/1.1 message starts with")
        line_end = zone.find(b"\r\n", 0, self._max_line_bytes + 2)
        is_line_long = line_end < 0 and len(zone) > self._max_line_bytes + 1
        is_head_long = len(zone) > limits.max_head_bytes
        line_feeds = zone.count(b"\n", known)
        if line_feeds == zone.count(b"\r\n", known) == zone.count(b"\r", known) and not (is_line_long or is_head_long):
            return
        # Each with the place of the byte at which it shows; of two at one place the smaller status code is told.
        flaws = []
        bare = BARE_LINE_END.search(zone, known, len(zone) - (not is_whole and zone.endswith(b"\r")))
        if bare is not None:
            noticed = bare.start() + (bare[0] == b"\r")
            flaws.append((noticed, 400, "line ends with a bare CR or LF, want CRLF"))
        if is_line_long:
            flaws.append((self._max_line_bytes + 1, 414, f"first line longer than {self._max_line_bytes} bytes"))
        if is_head_long:
            reason = f"head larger than {limits.max_head_bytes} bytes"
            flaws.append((limits.max_head_bytes, FIELDS_TOO_LARGE, reason))
        if flaws:
            _, status_code, reason = min(flaws)
            raise RemoteProtocolError(status_code, reason)
