"""TLS over a socket, one record at a time.

OpenSSL reads from a socket until it has application data or nothing more is there. But records need not carry data:
37,000 key updates fit into a megabyte and take two seconds, and a single call would last for as long as they arrive. So
records are fetched here: a call ends after one record, or in a handshake after a few. Other connections get their turn,
and the socket stays readable if there is more. In TLS 1.2, a server may also request a handshake again and again during
one, and clients have to ignore that.
"""

import contextlib
import socket
import ssl
from typing import Any, Final

_HEAD_BYTES: Final = 5
_MAX_READ_BYTES: Final = 64 * 1024
_RECORD_BYTES: Final = 16 * 1024
_MAX_FETCHES: Final = 16
"""Per call, in a handshake; one has six records, and each takes a single fetch unless it arrives in pieces."""
_MAX_UNSENT_BYTES: Final = 64 * 1024
"""Room for one record of ours and for OpenSSL's replies, for example to key updates, while the peer reads none."""


class TlsSocket(socket.socket):
    """Arguments, results and exceptions are those of a non-blocking `ssl.SSLSocket`.

    Even with a timeout, `recv` may raise SSLWantReadError: for a record that arrives in pieces, or one without data.
    """

    def __init__(
        self,
        sock: socket.socket,
        context: ssl.SSLContext,
        server_name: str | None = None,
        session: ssl.SSLSession | None = None,
    ) -> None:
        """Take over `sock`: as the server, or as a client if `server_name`, the name to request, is given.

        For a client, an end of the connection without close_notify is an error, as with `suppress_ragged_eofs=False`.
        Raises ssl.SSLError and ValueError, with the socket closed.
        """
        super().__init__(sock.family, sock.type, sock.proto, sock.detach())
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._is_server = server_name is None
        try:
            self._tls = context.wrap_bio(
                self._incoming, self._outgoing, self._is_server, server_hostname=server_name, session=session
            )
        except BaseException:
            self.close()
            raise
        self._head = b""
        """The part received so far of the next record's header."""
        self._left_bytes = 0
        """Bytes of the current record's body that are yet to be received."""
        self._unsent: bytes | memoryview = b""
        """TLS records, or the rest of one, that the socket has not accepted yet."""
        self._unsaid_bytes = 0
        """Bytes passed to the `send` call that encrypted them; that call has not reported them as sent yet."""
        self._has_ended = False
        """The peer has sent close_notify; it may keep the connection open."""

    def do_handshake(self) -> None:
        left = _MAX_FETCHES
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                self._flush()
                if not left:
                    raise
                left -= 1
                self._fetch()
            except ssl.SSLError:
                # Send the alert if possible.
                self._flush_quietly()
                raise
            else:
                self._flush()
                return

    def recv(self, size_bytes: int, flags: int = 0) -> bytes:
        if flags:
            return super().recv(size_bytes, flags)
        if len(self._unsent) > _MAX_UNSENT_BYTES:
            raise ConnectionAbortedError("too many answers queued for a peer that does not read them")
        tls = self._tls
        try:
            if not tls.pending() and not self._has_ended:
                self._fetch()
            data = tls.read(size_bytes)
        except ssl.SSLZeroReturnError:
            data = b""
        except ssl.SSLEOFError:
            if self._is_server:
                return b""
            raise
        finally:
            if self._outgoing.pending:
                self._flush_quietly()
        self._has_ended = not data
        return data

    def send(self, data: Any, flags: int = 0) -> int:  # noqa: ARG002
        if self._unsent:
            self._flush()
        size_bytes, self._unsaid_bytes = self._unsaid_bytes, 0
        if size_bytes:
            return size_bytes
        # One record per call keeps the buffers in between small.
        size_bytes = self._tls.write(data if len(data) <= _RECORD_BYTES else memoryview(data)[:_RECORD_BYTES])
        self._unsaid_bytes = size_bytes
        self._flush()
        self._unsaid_bytes = 0
        return size_bytes

    def pending(self) -> int:
        return self._tls.pending()

    def unwrap(self) -> None:
        try:
            self._tls.unwrap()
        finally:
            self._flush()

    def close(self) -> None:
        super().close()
        # As an SSLSocket does: whoever still refers to this object, perhaps a cycle, must not keep 30 KiB of OpenSSL's
        # memory.
        with contextlib.suppress(AttributeError):
            del self._tls, self._incoming, self._outgoing
        self._unsent = b""

    def selected_alpn_protocol(self) -> str | None:
        return self._tls.selected_alpn_protocol()

    def peer_certificate(self) -> bytes | None:
        """The peer's certificate in DER; None if none was requested."""
        return self._tls.getpeercert(binary_form=True)

    @property
    def is_resumed(self) -> bool:
        """For a client: whether the session it was given was resumed. False once the socket is closed."""
        return self.fileno() >= 0 and bool(self._tls.session_reused)

    @property
    def session(self) -> ssl.SSLSession | None:
        """For a client: the session, to be resumed later; None once the socket is closed.

        Python before 3.12.8, and 3.13.0, copies 6 KB at each access and never frees it (CPython's gh-116810).
        """
        return self._tls.session if self.fileno() >= 0 else None

    def _fetch(self) -> None:
        """Pass to OpenSSL what has arrived of the next record."""
        if not self._left_bytes:
            self._head += self._received(_HEAD_BYTES - len(self._head))
            if len(self._head) < _HEAD_BYTES:
                return
            self._left_bytes = int.from_bytes(self._head[3:], "big")
            self._incoming.write(self._head)
            self._head = b""
            if not self._left_bytes:
                return
        data = self._received(min(self._left_bytes, _MAX_READ_BYTES))
        if data:
            self._left_bytes -= len(data)
            self._incoming.write(data)

    def _received(self, size_bytes: int) -> bytes:
        try:
            data = super().recv(size_bytes)
        except (BlockingIOError, InterruptedError):
            raise ssl.SSLWantReadError from None
        if not data:
            self._incoming.write_eof()
        return data

    def _flush(self) -> None:
        """Raises SSLWantWriteError if the socket does not accept everything."""
        if self._outgoing.pending:
            made = self._outgoing.read()
            self._unsent = b"".join((self._unsent, made)) if self._unsent else made
        while self._unsent:
            try:
                sent_bytes = super().send(self._unsent)
            except (BlockingIOError, InterruptedError):
                raise ssl.SSLWantWriteError from None
            self._unsent = b"" if sent_bytes == len(self._unsent) else memoryview(self._unsent)[sent_bytes:]

    def _flush_quietly(self) -> None:
        with contextlib.suppress(OSError):
            self._flush()
