"""Collect one head from pieces of any size, and refuse it at the first byte that cannot be part of one.

Lines end with CRLF and nothing else: RFC 9112, 2.2 lets a recipient take a bare LF for a line end, and a front end and
a back end that differ in this read different messages. Flaws are judged by their place in the byte stream and never by
how the bytes happened to arrive, so the answer does not depend on the cuts.

Lines of responses may also end with LF (`laxheads`). A response head that ends with two CRLFs is found as fast as that
of a request. If it had ended before, at LFs, its decoder notices, since no line may hold an LF.
"""

import re

from proxy.h1 import laxheads
from proxy.h1.errors import FIELDS_TOO_LARGE, RemoteProtocolError
from proxy.h1.limits import Limits

_END = b"\r\n\r\n"
BARE_LINE_END = re.compile(rb"\r(?!\n)|(?<!\r)\n")
_BARE_CR = re.compile(rb"\r(?!\n)")


class HeadBuffer:
    """`max_line_bytes` bounds the first line. `start` holds the bytes a head may begin with.

    `is_lax` lets lines end with LF alone. A short head that arrives in one piece is passed on unchecked: its decoder
    has to refuse everything that is refused here.
    """

    __slots__ = (
        "_bare_line_end",
        "_held",
        "_is_blank_line_allowed",
        "_is_lax",
        "_limits",
        "_max_line_bytes",
        "_short_bytes",
        "_skips_blank_line",
        "_start",
    )

    def __init__(
        self,
        limits: Limits,
        max_line_bytes: int,
        start: frozenset[int],
        *,
        is_blank_line_allowed: bool = False,
        is_lax: bool = False,
    ) -> None:
        self.limit(limits, max_line_bytes)
        self._held = bytearray()
        self._is_lax = is_lax
        self._bare_line_end = _BARE_CR if is_lax else BARE_LINE_END
        self._start = start
        # One empty line before a request is skipped: old clients send one after a body (RFC 9112, 2.2).
        self._is_blank_line_allowed = is_blank_line_allowed
        self._skips_blank_line = is_blank_line_allowed

    def limit(self, limits: Limits, max_line_bytes: int) -> None:
        """Apply these limits to what is taken from now on."""
        self._limits = limits
        self._max_line_bytes = max_line_bytes
        self._short_bytes = min(max_line_bytes, limits.max_head_bytes)

    def __len__(self) -> int:
        return len(self._held)

    def clear(self) -> None:
        self._held.clear()

    def take(self, data: bytes, start: int) -> tuple[bytes | None, int]:
        """Read on in `data` from `start`. Returns the head with its empty line, or None, and where reading ended."""
        if self._skips_blank_line:
            start = self._skip_blank_line(data, start)
        held = self._held
        if held:
            known = len(held)
            held += data[start:]
            stop = self._stop(held, max(known - 3, 0))
            if stop < 0:
                self._check(held, max(known - 1, 0))
                return None, len(data)
            head = self._whole(bytes(held[:stop]), max(known - 1, 0))
            held.clear()
            self._skips_blank_line = self._is_blank_line_allowed
            return head, start + stop - known
        # `stop` is 3 if there is none.
        stop = data.find(_END, start) + 4
        head = data[start:stop]
        if not 3 < stop <= start + self._short_bytes:
            stop = self._stop(data, start)
            if stop < 0:
                held += data[start:]
                if held:
                    self._check(held, 0)
                return None, len(data)
            head = self._whole(data[start:stop], 0)
        self._skips_blank_line = self._is_blank_line_allowed
        return head, stop

    def _stop(self, zone: bytes | bytearray, start: int) -> int:
        """Where the head ends, its empty line included; -1 if it is incomplete."""
        if self._is_lax:
            end = laxheads.END.search(zone, start)
            return -1 if end is None else end.end()
        end_at = zone.find(_END, start)
        return -1 if end_at < 0 else end_at + 4

    def _whole(self, head: bytes, known: int) -> bytes:
        self._check(head, known)
        return head if head.endswith(_END) else laxheads.plain(head)

    def _skip_blank_line(self, data: bytes, start: int) -> int:
        if self._held == b"\r":
            if data.startswith(b"\n", start):
                self._held.clear()
                start += 1
        elif data.startswith(b"\r\n", start):
            start += 2
        elif start == len(data) - 1 and data.endswith(b"\r"):
            # Perhaps half of an empty line: the next byte tells.
            return start
        self._skips_blank_line = False
        return start

    def _check(self, zone: bytes | bytearray, known: int) -> None:
        """Raise for the first flaw. What lies before `known` has been checked for bare line ends."""
        limits = self._limits
        if zone[0] not in self._start and not (zone == b"\r" and self._skips_blank_line):
            raise RemoteProtocolError(400, "not the start of an HTTP/1.1 message")
        line_end = zone.find(b"\r\n", 0, self._max_line_bytes + 2)
        is_line_long = line_end < 0 and len(zone) > self._max_line_bytes + 1
        is_head_long = len(zone) > limits.max_head_bytes
        line_feeds = zone.count(b"\n", known)
        if line_feeds == zone.count(b"\r\n", known) == zone.count(b"\r", known) and not (is_line_long or is_head_long):
            return
        # Each with the position of the byte that shows it; at the same position the smaller status code wins.
        flaws = []
        # The next byte tells what a CR at the end is.
        bare = self._bare_line_end.search(zone, known, len(zone) - zone.endswith(b"\r"))
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
