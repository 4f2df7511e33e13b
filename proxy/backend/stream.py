"""The interface between an exchange and the backends: one request to a backend, and its response.

    stream = pool.request(backend, head, end_stream, receiver)  never None, never raises
    stream.send_data(...), send_trailers(...)                   once `is_open`; `on_backend_open` says when
    receiver.on_response_head(...), on_response_data(...), ...  the response, in order
    stream.cancel()                                             no call to the receiver follows

A stream ends in exactly one way: with the end of the response, `on_backend_failed`, or `cancel`. After that only credit
is passed on: the receiver calls `stream.release`, the stream calls `creditor.release`. The receiver may be called from
within calls to the stream, but not from within `pool.request`, whose outcome is reported in a later call of the loop;
only `is_open` is true at once if a connection was free.
"""

from enum import Enum
from typing import Final, Protocol

import msgspec

from proxy.heads import Fields, RequestHead, ResponseHead
from proxy.loop import Creditor
from proxy.routing import Backend


class Reason(Enum):
    """Why a request to a backend failed: the `reason` of metrics and logs. A closed set, of which `exchange.attempts`
    says which are worth a retry."""

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
    """The response was not valid HTTP."""
    FIELDS_TOO_LARGE = "fields_too_large"
    """The response was valid HTTP, but had more or larger fields than we accept."""
    UNSENDABLE = "unsendable"
    """The backend's protocol cannot express the request, or the backend has not enabled what the request needs."""
    OVERLOAD = "overload"
    """A limit of the circuit was reached; nothing was sent."""
    UNHEALTHY = "unhealthy"
    """No address of the backend may be used now."""
    STOPPING = "stopping"


CONNECTING: Final = frozenset((Reason.RESOLVE, Reason.REFUSED, Reason.UNREACHABLE, Reason.CONNECT_TIMEOUT, Reason.TLS))
"""Reasons of requests of which nothing was sent: they may go to another address, whatever their method."""
_NOT_OF_THE_ADDRESS: Final = frozenset(
    (Reason.OVERLOAD, Reason.UNHEALTHY, Reason.STOPPING, Reason.UNSENDABLE, Reason.FIELDS_TOO_LARGE)
)


class Failure(msgspec.Struct, frozen=True, gc=False):
    """Why a request got no complete response from a backend."""

    reason: Reason
    detail: str
    """For logs: what was observed, with the address; never contains field values."""
    is_unprocessed: bool
    """The backend certainly did not process the request: it was not sent, or was refused unread."""
    was_reused: bool = False
    """With RESET only: a reused connection broke before the first byte of a response, perhaps closed while it was idle;
    or the backend was taking it out of use."""
    was_connecting: bool = False
    """The connection was made but broke before it could carry a request, so nothing was processed."""
    error_code: int | None = None
    """The HTTP/2 error code if the backend has reset the stream."""
    is_by_deadline: bool = False
    """The backend cancelled a gRPC call that has a deadline, which the client chose."""
    wants_http_1: bool = False
    """The backend accepts such a request over HTTP/1.1 only (HTTP_1_1_REQUIRED: RFC 9113, 7)."""

    @property
    def blames_address(self) -> bool:
        """The address is to blame, not our own resources, the request, or bad timing."""
        is_excused = self.was_reused or self.wants_http_1 or self.is_by_deadline
        return self.reason not in _NOT_OF_THE_ADDRESS and not is_excused


class Wish(msgspec.Struct, frozen=True, gc=False):
    """Which address of the backend is wanted."""

    session_address: bytes | None = None
    """`fingerprint` of the address that the session is bound to; another is used only if this one cannot be."""
    avoid: tuple[str, ...] = ()
    """Addresses where earlier attempts failed, in order. They are used only if there is no other address, and the last
    of them only if it is the only one."""
    needs_new_connection: bool = False
    """An earlier attempt broke on a kept connection."""


NO_WISH = Wish()


class Receiver(Protocol):
    """The side that sent the request and gets the response."""

    @property
    def client_connection(self) -> object | None:
        """The identity of the client's connection if that carries requests of this client only, one at a time.

        A backend connection that such a client has authenticated is kept for the client's next request.
        """

    def on_backend_open(self) -> None:
        """The request head is on its way; `send_data` may begin. Not called if the stream was open from the start."""

    def on_backend_writable(self) -> None:
        """After `send_data` accepted less than it was given: it can accept more now."""

    def on_response_interim(self, head: ResponseHead) -> None:
        """A 1xx response other than 101."""

    def on_response_head(self, head: ResponseHead, end_stream: bool) -> None:
        """The final head. If it accepts a request with `head.protocol` (101, or 2xx over HTTP/2), both bodies carry
        that protocol from here on."""

    def on_response_data(self, data: bytes | memoryview, end_stream: bool) -> None:
        """The receiver owes `stream.release(len(data))` once we no longer hold the bytes."""

    def on_response(self, head: ResponseHead, data: bytes | memoryview) -> None:
        """A complete response whose body came at once, instead of the two calls; no credit is owed for it."""

    def on_response_trailers(self, fields: Fields) -> None:
        """The response has ended."""

    def on_backend_failed(self, failure: Failure) -> None:
        """No response, or no more of it, will come."""

    def on_bug(self) -> None:
        """One of the other calls has raised: none will follow."""


class BackendStream(Protocol):
    """One request to a backend. After its end all calls are ignored."""

    @property
    def is_open(self) -> bool:
        """The head is on its way, so the body may follow."""

    @property
    def address(self) -> str:
        """The chosen address as written in the document; empty if the request was refused before one was chosen."""

    def send_data(self, data: bytes | memoryview, end_stream: bool, creditor: Creditor) -> int:
        """Hand over body bytes; returns how many were accepted. `end_stream` counts only if all were accepted.

        `creditor.release` is called for them once the socket has taken them. A stream that has ended accepts all bytes
        and releases them at once.
        """

    def progress_of(self, creditor: Creditor) -> int | None:
        """A number that rises as the backend reads, however slowly; None if no bytes of `creditor` are waiting.

        Costs a system call.
        """

    def send_trailers(self, fields: Fields) -> None:
        """End the request after its body."""

    def release(self, size_bytes: int) -> None:
        """Give credit for response bytes."""

    def cancel(self, *, timed_out: bool = False) -> None:
        """The response is no longer wanted. `timed_out`: the backend was too slow, which counts against the address."""


class Pool(Protocol):
    """The connections of one worker to all backends."""

    def request(
        self, backend: Backend, head: RequestHead, end_stream: bool, receiver: Receiver, wish: Wish = NO_WISH
    ) -> BackendStream:
        """Send a request to a backend of the current or an earlier table, with the protocol that it has there.

        `head` is complete, as it is to be sent (authority included). The stream's `address` is set on return.

        If the head has a `protocol`, its method determines the HTTP version. CONNECT goes over HTTP/2 only, and fails
        unprocessed if the backend has not enabled it; any other method goes over HTTP/1.1 only, even if TLS could
        negotiate HTTP/2.
        """
