"""Terms: limits and timeouts of client connections, taken from the document's limits.

Connections get those of each new document. Timeouts that the document turns off are infinite here, so they need no
special case: a deadline at infinity never expires. The caches serve all connections of the loop's thread.
"""

import math
from collections.abc import Callable
from typing import Final

import msgspec

from proxy import document, h1, h2
from proxy.document import seconds
from proxy.exchange.client import ClientExchange, ClientStream
from proxy.heads import RequestHead

Begin = Callable[[ClientStream, RequestHead, bool], ClientExchange]
"""Takes the stream, the head, and whether the request has no body. It is `Services.begin`, or the tunnel's wrapper."""

_LINE_REST_BYTES: Final = 64
"""Room in a request line for method and version; the length of the target is checked separately."""


class Caches(msgspec.Struct, frozen=True):
    """Caches of decoded and encoded fields."""

    of_h1: h1.Caches = msgspec.field(default_factory=h1.Caches)
    of_h2: h2.Caches = msgspec.field(default_factory=h2.Caches)


class Terms(msgspec.Struct, frozen=True):
    begin: Begin
    caches: Caches
    header_timeout_s: float
    """For a complete request head; before that, as long for a PROXY header, and again for the TLS handshake."""
    idle_timeout_s: float
    """Between two requests."""
    max_uri_bytes: int
    h1_limits: h1.Limits
    h2_settings: h2.Settings


def terms_of(limits: document.Limits, begin: Begin, caches: Caches) -> Terms:
    return Terms(
        begin=begin,
        caches=caches,
        header_timeout_s=seconds(limits.header_timeout) or math.inf,
        idle_timeout_s=seconds(limits.idle_timeout) or math.inf,
        max_uri_bytes=limits.max_uri_bytes,
        h1_limits=h1.Limits(
            max_request_line_bytes=limits.max_uri_bytes + _LINE_REST_BYTES, max_head_bytes=limits.max_header_bytes
        ),
        h2_settings=h2.Settings(max_header_list_bytes=limits.max_header_bytes),
    )
