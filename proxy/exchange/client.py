"""The interface between an exchange and the doors: a client's request, and the way back for its response.

    exchange = services.begin(client, head, end_stream)     the door, for each request
    exchange.on_request_data(data, end_stream), on_request_trailers(fields), on_client_writable(), on_client_gone(...)
    client.send_headers(...), send_data(...), ...           the exchange, in answer

The exchange ends when it has sent the end of the response or called `reset`, or when `on_client_gone` was called. After
that neither side calls the other, except for credit: `client.release`, and `creditor.release` for what the socket takes
later. `stop_request` tells the door that the rest of the request's body is not wanted.
"""

from typing import Protocol

import msgspec

from proxy.heads import Fields, ResponseHead
from proxy.loop import Creditor


class Arrival(msgspec.Struct, frozen=True, gc=False):
    """How a client connected: the same for all requests of a connection."""

    door: str
    """Name of the door, for `decide`."""
    scheme: bytes
    """b"http" or b"https"."""
    address: str
    """The peer's, without port; "unix" for a local socket."""
    protocol: str
    """HTTP/1.0, HTTP/1.1 or HTTP/2, for logs."""
    is_trusted: bool
    """The peer is trusted to say who its client is: it is the edge, or one of the document's trusted proxies."""
    is_edge: bool = False
    """Came through the tunnel: the edge's own fields pass unchanged."""
    introduced_by: str = ""
    """The load balancer that named the client in a PROXY header; empty if there was none."""
    client_cert: bytes = b""
    """The certificate that the client had to present, in the form of Client-Cert (RFC 9440, 2.2); empty if it needed
    none."""


class ClientStream(Protocol):
    """The client's side of one exchange, created by a door."""

    arrival: Arrival

    def progress_of(self, creditor: Creditor | None) -> int | None:
        """A number that rises as the client reads, however slowly; None if nothing from `creditor` waits.

        But while the stream itself waits for its turn there is a number, also without a creditor. Costs a system call.
        """

    def send_interim(self, head: ResponseHead) -> None:
        """A 1xx head other than 101; dropped if the client cannot understand one."""

    def send_headers(self, head: ResponseHead, end_stream: bool) -> None:
        """The final head. If the request's `protocol` is accepted: 101 to an HTTP/1.1 client, 200 to an HTTP/2 one."""

    def send_data(self, data: bytes | memoryview, end_stream: bool, creditor: Creditor) -> int:
        """Hand over body bytes; returns how many were taken. After fewer, `on_client_writable` says when to go on.

        `end_stream` counts only if all were taken. `creditor.release` is called when the socket has taken them.
        """

    def send_response(self, head: ResponseHead, data: bytes | memoryview) -> int:
        """`send_headers` and `send_data` to the end of the response; `data` is not empty, and no credit is given for
        it."""

    def send_trailers(self, fields: Fields) -> None:
        """End the response after its body."""

    def reset(self, *, is_cancelled: bool = False) -> None:
        """The response cannot be completed: make sure that the client notices.

        `is_cancelled`: the backend has cancelled it, for which HTTP/2 has a separate error code.
        """

    def release(self, size_bytes: int) -> None:
        """Credit for request bytes."""

    def stop_request(self) -> None:
        """The rest of the request body is not wanted: receive and drop it, or stop reading, as suits the protocol."""


class ClientExchange(Protocol):
    """The exchange as its door sees it."""

    def on_request_data(self, data: bytes | memoryview, end_stream: bool) -> None:
        """The exchange owes `client.release(len(data))`."""

    def on_request_trailers(self, fields: Fields) -> None:
        """The request has ended."""

    def on_client_writable(self) -> None:
        """`send_data` took less than it was given, and would take more now."""

    def on_client_gone(self, reason: str) -> None:
        """The client has closed, reset, broken the protocol or been too slow; `reason` is for the log.

        It is empty if the client has the whole length that the response announced, and only its end was not sent.
        """
