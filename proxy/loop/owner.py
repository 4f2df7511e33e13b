"""The owner of a transport: the connection, of whatever protocol, that it calls.

A transport that closes drops its owner; NOBODY takes its place for any calls that still follow.
"""

from typing import Final, Protocol

from proxy.loop.output import Buffer


class Owner(Protocol):
    """The connection that uses a transport."""

    def on_data(self, data: bytes) -> None:
        """`data` is never empty. Not called while reading is paused."""

    def on_eof(self) -> None:
        """The peer sends nothing more; it may still read. Called once."""

    def on_lost(self, error: OSError) -> None:
        """The connection broke. The last call; the transport is closed."""

    def buffers_to_send(self) -> list[Buffer]:
        """Hand over the output; fetched once after `flush_later`."""

    def on_drained(self) -> None:
        """Output had to wait, and now the socket has taken all of it."""

    def on_closed(self) -> None:
        """`finish` is done: the last call."""


class _Nobody:
    """The owner of a closed transport. The real one refers to the transport: the two would keep each other alive until
    the garbage collector runs."""

    def on_data(self, data: bytes) -> None: ...
    def on_eof(self) -> None: ...
    def on_lost(self, error: OSError) -> None: ...
    def buffers_to_send(self) -> list[Buffer]:
        return []

    def on_drained(self) -> None: ...
    def on_closed(self) -> None: ...


NOBODY: Final = _Nobody()
