"""What is to be sent over a socket, plain or TLS: handed to it at once where it takes it, else kept in order.

    output = Output(sock)
    output.debts.owe(creditor, size_bytes)      before the bytes are handed over
    is_done = output.send(buffers)              False: some wait, or have waited
    output.send_queued()                        when the socket can take more

Whoever has sent gives credit back: all that is owed after `send` was True (`debts.settle`), else what lies before
`sent_bytes` (`debts.repay`). Both calls raise OSError when the connection has broken.
"""

import contextlib
import fcntl
import socket
import ssl
import sys
import termios
from collections import deque
from typing import Final

from proxy.loop.debts import Debts
from proxy.loop.tlssocket import TlsSocket

TLS_RECORD_BYTES: Final = 16 * 1024
NOT_NOW = (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
_CORK_BYTES: Final = 2 * TLS_RECORD_BYTES
_JOIN_BYTES: Final = 32 * 1024
"""Up to here buffers are joined; above, a plain socket gathers them by itself."""
_MAX_JOINED_BYTES: Final = 252 * 1024
"""Just below what `daemonkit.memory` has served from mappings of their own."""
_MAX_BUFFERS: Final = 1024
"""IOV_MAX."""
_MANY_BUFFERS: Final = 32
_SMALL_BUFFER_BYTES: Final = 512
_INT_BYTES: Final = 4
_MAX_KEPT_ALIVE: Final = 8
"""How many times its own size a view may keep in memory while it waits."""

Buffer = bytes | memoryview


def lightened(data: Buffer) -> Buffer:
    """`data` as it may wait: a copy where a view would keep in memory many times its size, all that came with it."""
    if isinstance(data, memoryview) and len(data) * _MAX_KEPT_ALIVE < len(data.obj):  # type: ignore[arg-type]
        return bytes(data)
    return data


class Output:
    __slots__ = ("_is_tls", "_sock", "_total_bytes", "debts", "queue", "sent_bytes")

    def __init__(self, sock: socket.socket) -> None:
        """`sock` does not block."""
        self._sock = sock
        self._is_tls = isinstance(sock, ssl.SSLSocket | TlsSocket)
        self.queue: deque[Buffer] = deque()
        """What the socket has not taken; others only look whether there is any."""
        self._total_bytes = 0
        """Handed over since the beginning, less what was never kept here."""
        self.sent_bytes = 0
        """Of those, taken by the socket."""
        self.debts = Debts()

    @property
    def queued_bytes(self) -> int:
        return self._total_bytes - self.sent_bytes

    @property
    def unacknowledged_bytes(self) -> int:
        """Those, and what the kernel has that the peer's has not: they get fewer as the peer reads, however slowly."""
        return self.queued_bytes + self._kernel_bytes()

    @property
    def acknowledged_bytes(self) -> int:
        """Of those handed over: taken by the peer's kernel. Means something while bytes are queued, and rises then."""
        return self.sent_bytes - self._kernel_bytes()

    def _kernel_bytes(self) -> int:
        with contextlib.suppress(OSError):
            return int.from_bytes(fcntl.ioctl(self._sock, termios.TIOCOUTQ, bytes(_INT_BYTES)), sys.byteorder)
        return 0

    def send(self, buffers: list[Buffer]) -> bool:
        """True: nothing waited, and most often this is little: the socket has taken all of it."""
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
                # OpenSSL wants to be offered again what it has refused.
                self._keep([memoryview(data)[sent_bytes:] if sent_bytes else data], size_bytes - sent_bytes)
                self.send_queued()
                return False
        return True

    def send_queued(self) -> None:
        """As much as the socket takes now."""
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
        self.queue.clear()
        self.debts.forgive()

    def _keep(self, buffers: list[Buffer], size_bytes: int) -> None:
        if len(buffers) > _MANY_BUFFERS and size_bytes < len(buffers) * _SMALL_BUFFER_BYTES:
            # While they wait, what lies around them would cost more than they do.
            buffers = [b"".join(buffers)]
        # An empty one would never be taken: sending it makes no progress.
        self.queue.extend(filter(None, buffers))
        self._total_bytes += size_bytes
        self.debts.seal(self._total_bytes)

    def _send_corked(self) -> None:
        """OpenSSL hands over each record by itself: the kernel is to make full segments of them, and to wake the peer
        for those.
        """
        self._cork(True)
        try:
            self._send_pieces()
        finally:
            self._cork(False)

    def _cork(self, is_in: bool) -> None:
        # Sockets of the local system have none.
        with contextlib.suppress(OSError):
            self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, is_in)

    def _send_pieces(self) -> None:
        queue = self.queue
        while queue and self._send_some(queue):
            pass

    def _send_some(self, queue: deque[Buffer]) -> bool:
        """False when the socket is full. A piece that TLS refused is offered again as it was, as OpenSSL wants it."""
        if len(queue) == 1:
            size_bytes = self._sock.send(queue[0])
        elif self._is_tls or self.queued_bytes <= _JOIN_BYTES:
            _join(queue)
            size_bytes = self._sock.send(queue[0])
        else:
            size_bytes = self._sock.sendmsg([queue[n] for n in range(min(len(queue), _MAX_BUFFERS))])
        self.sent_bytes += size_bytes
        while size_bytes:
            first = queue[0]
            if size_bytes < len(first):
                queue[0] = memoryview(first)[size_bytes:]
                # TLS takes a record at a time when it is given more than one.
                return self._is_tls
            size_bytes -= len(first)
            queue.popleft()
        return True


def _join(queue: deque[Buffer]) -> None:
    """Make the first pieces one, of at most about _MAX_JOINED_BYTES."""
    pieces: list[Buffer] = []
    size_bytes = 0
    while queue and (not pieces or size_bytes + len(queue[0]) <= _MAX_JOINED_BYTES):
        pieces.append(queue.popleft())
        size_bytes += len(pieces[-1])
    queue.appendleft(b"".join(pieces))
