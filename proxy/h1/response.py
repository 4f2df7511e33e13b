"""A response head with what its reader found out about the body that follows, and about the connection."""

from typing import Final

import msgspec

from proxy.heads import ResponseHead

CHUNKED: Final = -1
UNTIL_CLOSE: Final = -2


class Response(msgspec.Struct, eq=False):
    """`length_bytes` is 0 for no body, CHUNKED, or UNTIL_CLOSE. Shared by all equal heads, so nobody may change it."""

    head: ResponseHead
    length_bytes: int
    keeps_alive: bool
    timeout_s: int | None = None
    """The backend says that it closes the connection when it is unused for so long."""
