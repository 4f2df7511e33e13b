"""Who speaks over a transport: the connection, of whatever protocol, that it calls.

When a transport closes it lets go of its owner, and NOBODY takes the owner's place for calls that are still to come.
"""

from typing import Final, Protocol

from proxy.loop.output import Buffer


class Owner(Protocol):
    """The connection that speaks over a transport."""

    def on_data(self, data: bytes) -> None:
        """Never empty; not called while reading is paused."""

    def on_eof(self) -> None:
        """The peer sends nothing more; it may still read. Called once."""

    def on_lost(self, error: OSError) -> None:
        """The connection broke. The last call; the transport is closed."""

    def buffers_to_send(self) -> list[Buffer]:
        """What is to be sent, taken over by the transport; fetched once after `flush_later`."""

    def on_drained(self) -> None:
        """All that was queued has been taken by the socket, after some of it had to wait."""

    def on_closed(self) -> None:
        """`finish` is done: the last call."""


class _Nobody:
    """Of a closed transport: its owner, which knows it, goes at once, and not only when garbage is looked for."""

    def on_data(self, data: bytes) -> None: ...
    def on_eof(self) -> None: ...
    def on_lost(self, error: OSError) -> None: ...
    def buffers_to_send(self) -> list[Buffer]:
        return []

    def on_drained(self) -> None: ...
    def on_closed(self) -> None: ...


NOBODY: Final = _Nobody()
