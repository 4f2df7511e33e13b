"""How much a worker holds for peers that have not taken it yet.

Each connection and each body has a limit of its own, but a few clients that read nothing can have thousands of them.
"""

from typing import Final

LARGE_BYTES: Final = 64 * 1024 * 1024
"""From here on, sockets are read in small pieces, and less is read ahead of the peer that will take it."""


class Unsent:
    __slots__ = ("size_bytes",)

    def __init__(self) -> None:
        self.size_bytes = 0
        """What waits in the output of all sockets, and what exchanges hold: bodies of both directions, large heads."""

    @property
    def is_large(self) -> bool:
        return self.size_bytes > LARGE_BYTES
