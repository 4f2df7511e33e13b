"""A response head with what its reader found out about the body that follows, and about the connection."""

import msgspec

from proxy.heads import ResponseHead


class Response(msgspec.Struct, eq=False):
    """`length_bytes` is 0 for no body, else as in `bodies`. Shared by all equal heads, so nobody may change it."""

    head: ResponseHead
    length_bytes: int
    keeps_alive: bool
    timeout_s: int | None = None
    """The backend says that it closes the connection when it is unused for so long."""
