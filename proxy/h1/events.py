"""What `receive` reports, in the order in which it arrived; shaped like the HTTP/2 codec's events, without stream ids.

A message is, in this order: one head (`RequestReceived`, or `InformationalReceived`* then `ResponseReceived`),
`DataReceived`*, at most one `TrailersReceived`. It ends with an event whose `end_stream` is true, or with
`TrailersReceived`. `ConnectionTerminated` may cut it short at any point, and nothing follows that.
After a switch of protocols (101) all bytes come as `DataReceived`.
"""

import msgspec

from proxy.heads import Fields, RequestHead, ResponseHead


class Event(msgspec.Struct, eq=False):
    """Base of all events, which are compared by identity."""


class RequestReceived(Event):
    """A client's request (server role). No body follows if `end_stream`.

    `head.protocol` is set if the client asks to switch to it: answer with 101 or with anything else.
    `is_http_10`: the client cannot read chunks, which the codec takes care of. Callers log it, and learn from it that
    closing the connection may be the only end of a body.
    """

    head: RequestHead
    end_stream: bool
    is_http_10: bool


class Http2PrefaceReceived(Event):
    """The client speaks HTTP/2 with prior knowledge: pass `data`, all that it has sent, to an HTTP/2 codec."""

    data: bytes


class InformationalReceived(Event):
    """A 1xx head other than 101; the final one is still to come (client role)."""

    head: ResponseHead


class ResponseReceived(Event):
    """The final head of a response, or 101 where a switch of protocols was asked for (client role)."""

    head: ResponseHead
    end_stream: bool


class DataReceived(Event):
    """Body bytes without framing: `bytes`, or a view into the `bytes` given to `receive`, which it keeps alive."""

    data: bytes | memoryview
    end_stream: bool


class TrailersReceived(Event):
    """The fields after a chunked body; the message has ended."""

    fields: Fields


class ConnectionTerminated(Event):
    """The peer broke the protocol. Where no response has begun, answer with `status_code`; then close in any case.

    `NOT_HTTP` in its place: close without an answer.
    """

    status_code: int
    reason: str
    are_fields_too_large: bool = False
    """A backend's head or trailers exceed a limit of ours, but may be valid HTTP all the same."""
