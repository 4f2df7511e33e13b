"""Body bytes of one direction of an exchange that the other side has not taken yet.

Pieces are copied only if they are small, or keep a large buffer alive. A relay needs no limit of its own: every piece
has a creditor, its source, which stops sending if it gets no credit back, and it gets credit back only for what the
other side's socket has taken. `Upload` is for requests, whose beginning may have to be sent again.
"""

from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from proxy.heads import Fields
from proxy.loop import Creditor, lightened

Data = bytes | memoryview

_SMALL_BYTES: Final = 2048
MAX_KEPT_BYTES: Final = 128 * 1024 * 1024
"""While more than this is kept by all uploads together, no other body is kept, so those requests are not repeated."""


class Sink(Protocol):
    """The side that takes the bytes: a client's stream or a backend's."""

    def send_data(self, data: Data, end_stream: bool, creditor: Creditor) -> int: ...

    def send_trailers(self, fields: Fields) -> None: ...


class Nobody:
    """The creditor of bytes that are not owed to anyone: our own, and those sent a second time."""

    def release(self, size_bytes: int) -> None:
        """Nothing is owed."""


NOBODY: Final = Nobody()


class Copy(Protocol):
    """A receiver of a copy of the bytes."""

    def add(self, data: Data, end_stream: bool) -> None: ...

    def add_trailers(self, fields: Fields) -> None: ...


class Relay:
    __slots__ = ("_has_end", "_is_dropped", "_is_due", "_is_ended", "_is_pumping", "_pieces", "_trailers")

    def __init__(self) -> None:
        self._pieces: deque[tuple[Data, Creditor]] = deque()
        self._has_end = False
        self._trailers: Fields | None = None
        self._is_pumping = False
        self._is_due = False
        self._is_ended = False
        self._is_dropped = False

    def add(self, data: Data, end_stream: bool, creditor: Creditor) -> None:
        self._has_end = self._has_end or end_stream
        if self._is_dropped:
            creditor.release(len(data))
        elif self._pieces:
            self._add_behind(data, creditor)
        elif len(data):
            self._pieces.append((data, creditor))

    def _add_behind(self, data: Data, creditor: Creditor) -> None:
        """Add a piece that has to wait behind others. Credit limits only the bytes: tiny pieces, or views that keep a
        large buffer alive, could take a hundred times as much memory.
        """
        pieces = self._pieces
        size_bytes = len(data)
        last, last_creditor = pieces[-1]
        if size_bytes < _SMALL_BYTES and len(last) < _SMALL_BYTES and last_creditor is creditor:
            pieces[-1] = (b"".join((last, data)), creditor)
        elif size_bytes:
            pieces.append((lightened(data), creditor))

    def add_trailers(self, fields: Fields) -> None:
        self._has_end = True
        self._trailers = fields

    @property
    def held_bytes(self) -> int:
        return sum(len(data) for data, _ in self._pieces) if self._pieces else 0

    def pump(self, sink: Sink) -> bool:
        """Hand over what the sink takes. Returns True if that was the end."""
        # A sink may call `pump` again from within its own calls: then the outer call goes on.
        self._is_due = True
        if self._is_pumping:
            return False
        self._is_pumping = True
        while self._is_due and not self._is_ended and not self._is_dropped:
            self._is_due = False
            self._pump(sink)
        self._is_pumping = False
        return self._is_ended and not self._is_dropped

    def _pump(self, sink: Sink) -> None:
        pieces = self._pieces
        while pieces:
            data, creditor = pieces.popleft()
            is_last = self._has_end and self._trailers is None and not pieces
            taken = sink.send_data(data, is_last, creditor)
            if taken < len(data):
                rest = lightened(memoryview(data)[taken:])
                if self._is_dropped:
                    creditor.release(len(rest))
                else:
                    pieces.appendleft((rest, creditor))
                return
            self._is_ended = is_last
        if self._has_end and not self._is_ended and not self._is_dropped:
            self._is_ended = True
            if self._trailers is None:
                sink.send_data(b"", True, NOBODY)
            else:
                sink.send_trailers(self._trailers)

    def repeat_to(self, copy: Copy) -> None:
        """Give `copy` everything that has not been taken yet."""
        for data, _ in self._pieces:
            copy.add(data, False)
        if self._has_end and self._trailers is None:
            copy.add(b"", True)
        elif self._trailers is not None:
            copy.add_trailers(self._trailers)

    def lighten(self) -> None:
        """The pieces have to wait: do not let them keep a large buffer alive."""
        if self._pieces:
            data, creditor = self._pieces[0]
            self._pieces[0] = lightened(data), creditor

    def drop(self) -> None:
        """The rest is not wanted: give credit back for it, and for everything that still comes."""
        self._is_dropped = True
        pieces = self._pieces
        while pieces:
            data, creditor = pieces.popleft()
            creditor.release(len(data))


class Kept:
    """How much all uploads of a worker keep."""

    __slots__ = ("size_bytes",)

    def __init__(self) -> None:
        self.size_bytes = 0


class Upload(Relay):
    """A request's body. Up to `replay_bytes` of it are kept until the response begins, to be sent a second time."""

    __slots__ = ("_client", "_is_kept", "_is_rewind_due", "_kept", "_kept_by_all", "_replay_bytes", "_total_bytes")

    def __init__(self, client: Creditor, replay_bytes: int, kept_by_all: Kept) -> None:
        super().__init__()
        self._kept_by_all = kept_by_all
        self._client = client
        self._replay_bytes = replay_bytes
        self._kept = bytearray()
        self._is_kept = replay_bytes > 0
        """Everything that has arrived so far is in `_kept`."""
        self._total_bytes = 0
        self._is_rewind_due = False

    def add_data(self, data: Data, end_stream: bool) -> None:
        if self._is_kept:
            by_all = self._kept_by_all
            if len(self._kept) + len(data) > self._replay_bytes or by_all.size_bytes > MAX_KEPT_BYTES:
                self.forget()
            else:
                self._kept += data
                by_all.size_bytes += len(data)
        self._total_bytes += len(data)
        self.add(data, end_stream, self._client)

    @property
    def is_replayable(self) -> bool:
        return self._is_kept or self._owed_bytes == self._total_bytes

    def pump(self, sink: Sink) -> bool:
        is_ended = super().pump(sink)
        if self._is_rewind_due and not self._is_pumping:
            self.rewind()
        return is_ended

    def rewind(self) -> None:
        """Begin again, for the next attempt. No credit is given a second time for what has been sent before."""
        # Postponed if the sink has failed from within `pump`, which is still running.
        self._is_rewind_due = self._is_pumping
        if self._is_pumping:
            return
        sent_bytes = self._total_bytes - self._owed_bytes
        unsent = [piece for piece in self._pieces if piece[1] is self._client]
        self._pieces.clear()
        if sent_bytes:
            self._pieces.append((bytes(self._kept[:sent_bytes]), NOBODY))
        self._pieces.extend(unsent)
        self._is_ended = False

    def amend_trailers(self, amend: Callable[[Fields], Fields]) -> None:
        """Change trailers that have arrived but were not taken yet."""
        if self._trailers is not None:
            self._trailers = amend(self._trailers)

    def drop(self) -> None:
        super().drop()
        self.forget()

    def forget(self) -> None:
        """There will be no other attempt."""
        self._is_kept = False
        self._kept_by_all.size_bytes -= len(self._kept)
        self._kept = bytearray()

    @property
    def _owed_bytes(self) -> int:
        return sum(len(data) for data, creditor in self._pieces if creditor is self._client)
