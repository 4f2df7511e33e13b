"""A response head, and what it says about the body that follows and about the connection."""

import msgspec

from proxy.heads import ResponseHead


class Response(msgspec.Struct, eq=False):
    """`length_bytes` is 0 without a body, else as in `bodies`. Shared by all equal heads, so it must not be changed."""

    head: ResponseHead
    length_bytes: int
    keeps_alive: bool
    timeout_s: int | None = None
    """How long the backend keeps the connection open while unused, if it says so."""
