"""What comes over TLS, as much of it at once as is worth taking: a record, or several when they are full.

The end of a connection, or an error, may come behind records that are full. They count first: the end is held and
comes with the next call, for which no event of the socket will ask (`holds_end`).
"""

import ssl

from daemonkit.tlssocket import TlsSocket
from proxy.loop.output import NOT_NOW, TLS_RECORD_BYTES


class TlsInput:
    __slots__ = ("_held_error", "_sock", "holds_end")

    def __init__(self, sock: ssl.SSLSocket | TlsSocket) -> None:
        """`sock` does not block, and its handshake is done."""
        self._sock = sock
        self._held_error: OSError | None = None
        self.holds_end = False

    @property
    def has_more(self) -> bool:
        """There is something to receive that no event will tell of."""
        return self.holds_end or bool(self._sock.pending())

    def receive(self, limit_bytes: int) -> bytes:
        """As `recv`: a record, and those behind it as long as they are full, since a large body is coming then."""
        if self._held_error is not None:
            raise self._held_error
        receive = self._sock.recv
        data = receive(TLS_RECORD_BYTES)
        if len(data) < TLS_RECORD_BYTES:
            return data + receive(TLS_RECORD_BYTES) if self._sock.pending() else data
        parts, received_bytes = [data], len(data)
        while received_bytes <= limit_bytes - TLS_RECORD_BYTES:
            try:
                data = receive(TLS_RECORD_BYTES)
            except NOT_NOW:
                break
            except OSError as error:
                self._held_error = error
                self.holds_end = True
                break
            if not data:
                # OpenSSL tells it again.
                self.holds_end = True
                break
            parts.append(data)
            received_bytes += len(data)
        return b"".join(parts)
