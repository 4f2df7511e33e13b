"""Receive over TLS as much as is worth taking at once: a record, or several if they are full.

The end of the connection, or an error, may follow full records. The records are returned first; the end is held until
the next call, for which no event of the socket will ask (`holds_end`).
"""

import ssl

from daemonkit.tlssocket import TlsSocket
from proxy.loop.output import NOT_NOW, TLS_RECORD_BYTES


class TlsInput:
    __slots__ = ("_held_error", "_sock", "holds_end")

    def __init__(self, sock: ssl.SSLSocket | TlsSocket) -> None:
        """`sock` is non-blocking, and its handshake is done."""
        self._sock = sock
        self._held_error: OSError | None = None
        self.holds_end = False

    @property
    def has_more(self) -> bool:
        """There is something to receive that no event will announce."""
        return self.holds_end or bool(self._sock.pending())

    def receive(self, limit_bytes: int) -> bytes:
        """Like `recv`: a record, and those behind it as long as they are full: then a large body is arriving."""
        if self._held_error is not None:
            error, self._held_error = self._held_error, None
            try:
                raise error
            finally:
                del error  # its frames refer to this one
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
                self._held_error = error.with_traceback(None)  # its frames refer to this object, and to `parts`
                self.holds_end = True
                break
            if not data:
                # OpenSSL reports the end again.
                self.holds_end = True
                break
            parts.append(data)
            received_bytes += len(data)
        return b"".join(parts)
