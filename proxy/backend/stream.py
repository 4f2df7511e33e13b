"""What an exchange and the backends know of each other: one request on its way to a backend, and its answer.

    stream = pool.request(head, end_stream, receiver, wish)     never None, never raises
    stream.send_data(...), send_trailers(...)                   once `is_open`; `on_backend_open` says when
    receiver.on_response_head(...), on_response_data(...), ...  the answer, in order
    stream.cancel()                                             no call to the receiver follows

Exactly one of these ends a stream: the response's end, `on_backend_failed`, or `cancel`; after it nobody is called but
for credit: `stream.release` by the receiver, `creditor.release` by the stream. Calls to the receiver may come from
within calls to the stream, `pool.request` excepted: what it starts is reported in a later call of the loop, but for
`is_open`, which is true at once where a connection was free.
"""

from enum import Enum
from typing import Final, Protocol

import msgspec

from proxy.heads import Fields, RequestHead, ResponseHead
from proxy.loop import Creditor
from proxy.routing import Backend


class Reason(Enum):
    """Why a request to a backend failed: the `reason` of metrics and logs. A closed set."""

    RESOLVE = "resolve"
    """The backend's name has no address."""
    REFUSED = "refused"
    UNREACHABLE = "unreachable"
    CONNECT_TIMEOUT = "connect_timeout"
    TLS = "tls"
    """The backend did not prove who it is, or the handshake broke."""
    RESET = "reset"
    """The connection, or the stream, broke before the end of the response."""
    PROTOCOL = "protocol"
    """The answer was not HTTP."""
    FIELDS_TOO_LARGE = "fields_too_large"
    """The answer was HTTP, but its fields were more, or larger, than we take."""
    UNSENDABLE = "unsendable"
    """The backend's protocol has no words for the request, or the backend has not enabled what it asks for."""
    OVERLOAD = "overload"
    """A limit of the circuit was reached: nothing was sent."""
    UNHEALTHY = "unhealthy"
    """No address of the backend may be asked now."""
    STOPPING = "stopping"


_NOT_OF_THE_ADDRESS: Final = frozenset(
    (Reason.OVERLOAD, Reason.UNHEALTHY, Reason.STOPPING, Reason.UNSENDABLE, Reason.FIELDS_TOO_LARGE)
)


class Failure(msgspec.Struct, frozen=True, gc=False):
    """A request that got no complete answer from a backend."""

    reason: Reason
    detail: str
    """For logs: what was seen, with the address; holds no field values."""
    is_unprocessed: bool
    """The backend certainly did nothing with the request: it was not sent, or was refused unread."""
    was_reused: bool = False
    """A kept connection broke before the first byte of an answer: perhaps it was closed while it was idle. Or its
    backend was taking it out of use."""
    was_connecting: bool = False
    """There was a connection, and it broke before anybody could use it."""
    error_code: int | None = None
    """Of HTTP/2, where the backend has reset the stream."""
    is_by_deadline: bool = False
    """The backend cancelled a call of gRPC that has a deadline, which is the client's choice."""
    wants_http_1: bool = False
    """The backend takes such a request over HTTP/1.1 only (RFC 9113, 7: HTTP_1_1_REQUIRED)."""

    @property
    def blames_address(self) -> bool:
        """The address is to blame, and not a lack of ours, the request, or bad timing."""
        is_excused = self.was_reused or self.wants_http_1 or self.is_by_deadline
        return self.reason not in _NOT_OF_THE_ADDRESS and not is_excused


class Wish(msgspec.Struct, frozen=True, gc=False):
    """Which address of the backend is wanted."""

    session_address: bytes | None = None
    """`fingerprint` of the address that a session is bound to; another is used only if this one cannot be."""
    avoid: tuple[str, ...] = ()
    """Addresses that earlier attempts failed at, in this order. They are used only when there is no other, and the last
    one only when there is no other at all."""
    needs_new_connection: bool = False
    """An earlier attempt broke on a kept connection."""


NO_WISH = Wish()


class Receiver(Protocol):
    """Who asked: gets the answer."""

    @property
    def client_connection(self) -> object | None:
        """Stands for the client's connection, if that carries the requests of this client only, one at a time.

        A backend's connection that such a client has authenticated is kept for its next request.
        """

    def on_backend_open(self) -> None:
        """The request head is on its way; `send_data` may begin. Not called where `request` returned it open."""

    def on_backend_writable(self) -> None:
        """After `send_data` took less than it was given: it would take more now."""

    def on_response_interim(self, head: ResponseHead) -> None:
        """A 1xx head other than 101."""

    def on_response_head(self, head: ResponseHead, end_stream: bool) -> None:
        """The final head; or 101 or, over HTTP/2, 2xx, to a request with `head.protocol`: both bodies are bytes of
        that protocol from here on."""

    def on_response_data(self, data: bytes | memoryview, end_stream: bool) -> None:
        """The receiver owes `stream.release(len(data))` once nothing of ours holds the bytes any more."""

    def on_response(self, head: ResponseHead, data: bytes | memoryview) -> None:
        """A whole response with a body that came at once, in place of the two calls; no credit is owed for it."""

    def on_response_trailers(self, fields: Fields) -> None:
        """The response has ended."""

    def on_backend_failed(self, failure: Failure) -> None:
        """No answer, or no more of it, will come."""

    def on_bug(self) -> None:
        """Another of these calls has raised: no further one will come."""


class BackendStream(Protocol):
    """One request at a backend. After its end all calls are ignored."""

    @property
    def is_open(self) -> bool:
        """The head is on its way, so the body may follow."""

    @property
    def address(self) -> str:
        """The chosen address as the document has it; empty if the request was refused before one was chosen."""

    def send_data(self, data: bytes | memoryview, end_stream: bool, creditor: Creditor) -> int:
        """Hand over body bytes; returns how many were taken. The end counts only when all were taken.

        Those are given back by `creditor.release` when the socket has taken them. A stream that has ended takes all and
        releases at once.
        """

    def progress_of(self, creditor: Creditor) -> int | None:
        """A number that rises as the backend reads, however slowly; None: nothing of `creditor` waits for it.

        Costs a system call.
        """

    def send_trailers(self, fields: Fields) -> None:
        """End the request after its body."""

    def release(self, size_bytes: int) -> None:
        """Credit for response bytes."""

    def cancel(self, *, timed_out: bool = False) -> None:
        """The answer is not wanted any more; `timed_out`: the backend was too slow; it counts against the address."""


class Pool(Protocol):
    """The connections of one worker to all backends."""

    def request(
        self, backend: Backend, head: RequestHead, end_stream: bool, receiver: Receiver, wish: Wish = NO_WISH
    ) -> BackendStream:
        """Send a request to a backend of the current table or of an earlier one, with the protocol it had there.

        `head` is complete, as it is to be sent (authority included). `address` is settled when this returns.

        If the head has a `protocol`, its method says which HTTP it needs. CONNECT goes over HTTP/2 only, and fails
        unprocessed where the backend has not enabled it; any other method goes over HTTP/1.1 only, even where TLS would
        offer HTTP/2.
        """
