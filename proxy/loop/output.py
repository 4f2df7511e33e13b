"""Output of a socket, plain or TLS: sent at once if the socket takes it, otherwise queued.

    output = Output(sock, unsent)
    output.debts.owe(creditor, size_bytes)      before the bytes are handed over
    is_done = output.send(buffers)              False: some wait, or have waited
    output.send_queued()                        when the socket can take more

The caller of `send` gives credit back: all that is owed if the result was True (`debts.settle`), otherwise what lies
before `sent_bytes` (`debts.repay`). Both sending calls raise OSError if the connection is broken.
"""

import contextlib
import fcntl
import socket
import ssl
import sys
import termios
from collections import deque
from typing import Final

from daemonkit.tlssocket import TlsSocket
from proxy.loop.debts import Debts
from proxy.loop.unsent import Unsent

TLS_RECORD_BYTES: Final = 16 * 1024
NOT_NOW = (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
_CORK_BYTES: Final = 2 * TLS_RECORD_BYTES
_JOIN_BYTES: Final = 32 * 1024
"""Up to this size buffers are joined; above, a plain socket gathers them itself."""
_MAX_JOINED_BYTES: Final = 252 * 1024
"""Enough for full TLS records. They are taken one at a time, and what is not taken at once has been copied in vain."""
_MAX_BUFFERS: Final = 1024
"""IOV_MAX."""
_MANY_BUFFERS: Final = 32
_SMALL_BUFFER_BYTES: Final = 512
_SMALL_OUTPUT_BYTES: Final = 2048
"""The output of a turn that is smaller is appended to the last piece that waits, unless that is larger."""
_INT_BYTES: Final = 4
_MAX_KEPT_ALIVE: Final = 8
"""How many times its own size a view may keep in memory while it waits."""

Buffer = bytes | memoryview


def lightened(data: Buffer) -> Buffer:
    """`data`, or a copy if it is a view that would keep many times its size in memory while it waits."""
    if isinstance(data, memoryview) and len(data) * _MAX_KEPT_ALIVE < len(data.obj):  # type: ignore[arg-type]
        return bytes(data)
    return data


class Output:
    __slots__ = ("_is_tls", "_sock", "_total_bytes", "_unsent", "debts", "queue", "sent_bytes")

    def __init__(self, sock: socket.socket, unsent: Unsent) -> None:
        """`sock` is non-blocking. What waits for it is counted in `unsent` too."""
        self._sock = sock
        self._unsent = unsent
        self._is_tls = isinstance(sock, ssl.SSLSocket | TlsSocket)
        self.queue: deque[Buffer] = deque()
        """What the socket has not taken. Other modules may only ask whether it is empty."""
        self._total_bytes = 0
        """Bytes ever put into `queue`. What the socket took at once does not count."""
        self.sent_bytes = 0
        """How many of those bytes the socket has taken."""
        self.debts = Debts()

    @property
    def queued_bytes(self) -> int:
        return self._total_bytes - self.sent_bytes

    @property
    def unacknowledged_bytes(self) -> int:
        """Queued bytes, and those that the peer's kernel has not acknowledged. Falls as the peer reads, however
        slowly."""
        return self.queued_bytes + self._kernel_bytes()

    @property
    def acknowledged_bytes(self) -> int:
        """How many of the bytes ever queued the peer's kernel has acknowledged. Rises while bytes are queued; otherwise
        it has no meaning."""
        return self.sent_bytes - self._kernel_bytes()

    def _kernel_bytes(self) -> int:
        with contextlib.suppress(OSError):
            return int.from_bytes(fcntl.ioctl(self._sock, termios.TIOCOUTQ, bytes(_INT_BYTES)), sys.byteorder)
        return 0

    def send(self, buffers: list[Buffer]) -> bool:
        """Send or queue `buffers`. True, the usual case: the socket has taken everything, and nothing is queued. False
        may also mean that some were queued for a moment."""
        size_bytes = sum(map(len, buffers))
        is_waiting = bool(self.queue)
        if is_waiting or size_bytes > _JOIN_BYTES:
            self._keep(list(map(lightened, buffers)) if is_waiting else buffers, size_bytes)
            if not is_waiting:
                self.send_queued()
                self._lighten()
            return False
        if size_bytes:
            data = buffers[0] if len(buffers) == 1 else b"".join(buffers)
            try:
                sent_bytes = self._sock.send(data)
            except NOT_NOW:
                sent_bytes = 0
            if sent_bytes != size_bytes:
                # OpenSSL wants exactly the bytes again that it has refused.
                self._keep([memoryview(data)[sent_bytes:] if sent_bytes else data], size_bytes - sent_bytes)
                self.send_queued()
                return False
        return True

    def send_queued(self) -> None:
        """Send as much as the socket takes now."""
        try:
            if self._is_tls and self.queued_bytes > _CORK_BYTES:
                self._send_corked()
            else:
                self._send_pieces()
        except NOT_NOW:
            return

    def _lighten(self) -> None:
        for place, piece in enumerate(self.queue):
            self.queue[place] = lightened(piece)

    def drop(self) -> None:
        """Nothing more will be sent."""
        self._unsent.size_bytes -= sum(map(len, self.queue))
        self.queue.clear()
        self.debts.forgive()

    def _keep(self, buffers: list[Buffer], size_bytes: int) -> None:
        # While small buffers wait, their objects would take more memory than their bytes: a hundred times as much if a
        # piece of some bytes comes in each turn.
        queue = self.queue
        if size_bytes < _SMALL_OUTPUT_BYTES and len(queue) > 1 and len(queue[-1]) < _SMALL_OUTPUT_BYTES:
            # Not to the first one, which TLS may have refused and wants again.
            buffers = [b"".join((queue.pop(), *buffers))]
        elif len(buffers) > _MANY_BUFFERS and size_bytes < len(buffers) * _SMALL_BUFFER_BYTES:
            buffers = [b"".join(buffers)]
        # No empty ones: sending them would make no progress, so the loop would never end.
        queue.extend(filter(None, buffers))
        self._total_bytes += size_bytes
        self._unsent.size_bytes += size_bytes
        self.debts.seal(self._total_bytes)

    def _send_corked(self) -> None:
        """OpenSSL writes each record separately. Corked, the kernel packs them into full segments, and the peer wakes
        up less often.
        """
        self._cork(True)
        try:
            self._send_pieces()
        finally:
            self._cork(False)

    def _cork(self, is_in: bool) -> None:
        # Unix sockets have no such option.
        with contextlib.suppress(OSError):
            self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, is_in)

    def _send_pieces(self) -> None:
        queue = self.queue
        while queue and self._send_some(queue):
            pass

    def _send_some(self, queue: deque[Buffer]) -> bool:
        """Returns False if the socket is full. A piece that TLS has refused is offered again unchanged, as OpenSSL
        wants."""
        if len(queue) == 1:
            size_bytes = self._sock.send(queue[0])
        elif self._is_tls or self.queued_bytes <= _JOIN_BYTES:
            _join(queue)
            size_bytes = self._sock.send(queue[0])
        else:
            size_bytes = self._sock.sendmsg([queue[n] for n in range(min(len(queue), _MAX_BUFFERS))])
        self.sent_bytes += size_bytes
        self._unsent.size_bytes -= size_bytes
        while size_bytes:
            first = queue[0]
            if size_bytes < len(first):
                queue[0] = memoryview(first)[size_bytes:]
                # Then a plain socket is full. TLS takes one record at a time, and may take another.
                return self._is_tls
            size_bytes -= len(first)
            queue.popleft()
        return True


def _join(queue: deque[Buffer]) -> None:
    """Join the first pieces, up to about _MAX_JOINED_BYTES."""
    pieces: list[Buffer] = []
    size_bytes = 0
    while queue and (not pieces or size_bytes + len(queue[0]) <= _MAX_JOINED_BYTES):
        pieces.append(queue.popleft())
        size_bytes += len(pieces[-1])
    queue.appendleft(b"".join(pieces))
