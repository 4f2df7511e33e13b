"""TLS over a socket, a record at a time.

OpenSSL reads a socket until it has data for us, or there is nothing more. What a peer sends may be no data: 37,000
changes of keys to a megabyte, two seconds of work, and one call would last as long as they come. So records are fetched
here, and a call ends with one, in a handshake with a few: others have their turn, and the socket tells when there is
more. A server may ask for a handshake again and again during one, which TLS 1.2 has clients ignore.
"""

import contextlib
import socket
import ssl
from typing import Any, Final

_HEAD_BYTES: Final = 5
_MAX_READ_BYTES: Final = 64 * 1024
_RECORD_BYTES: Final = 16 * 1024
_MAX_FETCHES: Final = 16
"""In a call, of a handshake; one has six records, each of which is fetched at once unless it comes in pieces."""
_MAX_UNSENT_BYTES: Final = 64 * 1024
"""A record of ours, and what OpenSSL has to answer, such as changes of keys, to who does not take the answers."""


class TlsSocket(socket.socket):
    """What calls take, give and raise is as with an `ssl.SSLSocket` that does not block.

    With a timeout, `recv` may still raise SSLWantReadError: of a record in pieces, or one without data.
    """

    def __init__(
        self,
        sock: socket.socket,
        context: ssl.SSLContext,
        server_name: str | None = None,
        session: ssl.SSLSession | None = None,
    ) -> None:
        """`sock` is this one's from now on. The side of a server; of a client where the `server_name` is given that it
        asks for, and there an end without close_notify is an error, as with `suppress_ragged_eofs=False`.

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
        """Of the record that is being received, as far as it has come."""
        self._left_bytes = 0
        """Of its body."""
        self._unsent: bytes | memoryview = b""
        """Records that the socket has not taken."""
        self._unsaid_bytes = 0
        """Of the call of `send` that made them."""
        self._has_ended = False
        """The peer has said so, and may keep the connection open."""

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
                # The alert is sent if it can be.
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
        # A record, so that the memory between stays small.
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
        # As an SSLSocket does: who still knows this one, a cycle perhaps, keeps no 30 KiB of OpenSSL's with it.
        with contextlib.suppress(AttributeError):
            del self._tls, self._incoming, self._outgoing
        self._unsent = b""

    def selected_alpn_protocol(self) -> str | None:
        return self._tls.selected_alpn_protocol()

    def peer_certificate(self) -> bytes | None:
        """In DER. None: the peer was not asked for one."""
        return self._tls.getpeercert(binary_form=True)

    @property
    def is_resumed(self) -> bool:
        """Of a client: the session that it was given was taken up. False when it is closed."""
        return self.fileno() >= 0 and bool(self._tls.session_reused)

    @property
    def session(self) -> ssl.SSLSession | None:
        """Of a client, to be taken up again; None when it is closed.

        Python before 3.12.8, and 3.13.0, makes a copy of 6 KB at each look that it never frees (CPython's gh-116810).
        """
        return self._tls.session if self.fileno() >= 0 else None

    def _fetch(self) -> None:
        """Give OpenSSL what has come of a record."""
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
        """Raises SSLWantWriteError when the socket does not take all."""
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
