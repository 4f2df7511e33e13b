"""Mirrors: copies of requests to other backends, whose responses are dropped.

A mirror never slows down the exchange: it copies the body, up to a number of bytes, and is given up if its backend does
not keep pace. That counts as a failure of the backend, as does not taking any of the waiting bytes for IDLE_TIMEOUT_S,
or not answering a complete request for as long. While the exchange lasts, a backend for which no bytes wait has as much
time as the exchange. Afterwards a mirror lasts until its backend has answered; an endless response, such as an event
stream, does not keep it.
"""

import math
from typing import Final

from proxy.backend.stream import BackendStream, Failure
from proxy.exchange.relay import Data, Relay
from proxy.exchange.shared import Shared
from proxy.heads import Fields, RequestHead, ResponseHead
from proxy.routing import Backend

MAX_BEHIND_BYTES: Final = 4 * 1024 * 1024
"""How far a mirror's backend may be behind the client: as much as the kernel may hold for the exchange's own
backend."""
MAX_SHARED_BYTES: Final = 16 * 1024 * 1024
"""How far all mirrors of a worker together may be behind before those with more than OWN_BYTES are given up."""
OWN_BYTES: Final = 256 * 1024
"""How far each mirror may be behind even then."""
MAX_TOTAL_BYTES: Final = 64 * 1024 * 1024
"""How far all mirrors of a worker together may be behind at all. Beyond it, those whose backends have taken nothing for
longest are given up."""
BEHIND: Final = "mirror_behind"
"""A reason among the failures of a backend, in addition to those of `Reason`."""
IDLE_TIMEOUT_S: Final = 30.0


class Mirror:
    """One copy of a request: receives the response, and is the creditor of the body."""

    __slots__ = (
        "_behind_bytes",
        "_is_alone",
        "_is_answered",
        "_is_complete",
        "_is_over",
        "_key",
        "_relay",
        "_shared",
        "_stream",
        "active_s",
    )

    def __init__(self, shared: Shared, backend: Backend, head: RequestHead, end_stream: bool) -> None:
        self._shared = shared
        self._key = backend.key
        self._relay = Relay()
        self._behind_bytes = 0
        self._is_complete = end_stream
        self._is_alone = False
        """The exchange has ended."""
        self._is_answered = False
        self._is_over = False
        self.active_s = shared.loop.now_s
        # Expect is left to the exchange.
        fields = [field for field in head.fields if field[0] != b"expect"]
        copy = RequestHead(
            head.method, backend.scheme, head.authority, head.path, fields, never_indexed=head.never_indexed
        )
        shared.running.add(self)
        self._stream: BackendStream = shared.pools.request(backend, copy, end_stream, self)

    @property
    def idle_timeout_s(self) -> float:
        # A backend that has taken everything waits for the client, or may take as long as the exchange's own backend.
        return IDLE_TIMEOUT_S if self._is_alone or self._behind_bytes else math.inf

    def add(self, data: Data, end_stream: bool) -> None:
        """Copy a piece of the client's body."""
        if self._is_over:
            return
        self._is_complete = self._is_complete or end_stream
        if not self._behind_bytes:
            self.active_s = self._shared.loop.now_s
        self._fall_behind(len(data))
        if self._is_too_far_behind:
            self.leave_behind()
            return
        self._relay.add(bytes(data), end_stream, self)
        self._pump()
        self._shared.mirrors_behind.reduce(MAX_TOTAL_BYTES)

    def add_trailers(self, fields: Fields) -> None:
        if not self._is_over:
            self._is_complete = True
            self._relay.add_trailers(fields)
            self._pump()

    def on_exchange_ended(self) -> None:
        """No more of the request will come."""
        self._is_alone = True
        self.active_s = self._shared.loop.now_s
        if not self._is_complete and not self._is_over:
            self._give_up()

    def on_idle(self) -> None:
        if self._is_over:
            return
        if self._behind_bytes:
            self.leave_behind()
        else:
            self._give_up(timed_out=not self._is_answered)

    def release(self, size_bytes: int) -> None:
        self.active_s = self._shared.loop.now_s
        if not self._is_over:
            self._fall_behind(-size_bytes)

    def _fall_behind(self, size_bytes: int) -> None:
        """A negative size: the backend has taken that much."""
        before_bytes = self._behind_bytes
        self._behind_bytes += size_bytes
        self._shared.mirrors_behind.weigh(self, before_bytes, self._behind_bytes)

    @property
    def _is_too_far_behind(self) -> bool:
        behind_bytes = self._behind_bytes
        return behind_bytes > OWN_BYTES and (
            behind_bytes > MAX_BEHIND_BYTES or self._shared.mirrors_behind.held_bytes > MAX_SHARED_BYTES
        )

    def _pump(self) -> None:
        if self._stream.is_open:
            self._relay.pump(self._stream)

    def leave_behind(self) -> None:
        self._shared.stats.backend(self._key).count_failure(BEHIND)
        self._give_up()

    def _give_up(self, *, timed_out: bool = False) -> None:
        self._end()
        self._stream.cancel(timed_out=timed_out)

    def _end(self) -> None:
        if not self._is_over and not self._is_answered:
            self._shared.stats.backend(self._key).count_mirrored(0)
        self._is_over = True
        self._fall_behind(-self._behind_bytes)
        self._relay.drop()
        self._shared.running.discard(self)

    # -- what the backend does ---------------------------------------------------------------------------------------

    client_connection: Final = None

    def on_backend_open(self) -> None:
        self._pump()

    def on_backend_writable(self) -> None:
        self._pump()

    def on_response_interim(self, head: ResponseHead) -> None:
        """Nobody waits for a 1xx."""

    def on_response_head(self, head: ResponseHead, end_stream: bool) -> None:
        self._count(head)
        if end_stream:
            self._end()

    def on_response_data(self, data: Data, end_stream: bool) -> None:
        if not self._is_alone:
            self.active_s = self._shared.loop.now_s
        self._stream.release(len(data))
        if end_stream:
            self._end()

    def on_response(self, head: ResponseHead, data: Data) -> None:  # noqa: ARG002
        self._count(head)
        self._end()

    def _count(self, head: ResponseHead) -> None:
        self._is_answered = True
        self._shared.stats.backend(self._key).count_mirrored(head.status_code)

    def on_response_trailers(self, fields: Fields) -> None:  # noqa: ARG002
        self._end()

    def on_backend_failed(self, failure: Failure) -> None:  # noqa: ARG002
        self._end()

    def on_bug(self) -> None:
        self._end()


def mirrors_of(
    shared: Shared, backends: tuple[Backend, ...], head: RequestHead, end_stream: bool
) -> tuple[Mirror, ...]:
    """Send copies of a request whose head is `head` to `backends`."""
    return tuple(Mirror(shared, backend, head, end_stream) for backend in backends)
