"""How many bytes a connection has carried, as the kernel counts them, so that nothing is counted for each request."""

import contextlib
import fcntl
import socket
import struct
import termios
from typing import Final

from proxy.tunnel.packetsize import SMALL_SEGMENT_BYTES

_TCP_INFO_BYTES: Final = 148
# In struct tcp_info (linux/tcp.h).
_REPEATS_AT: Final = 2
_UNACKED_AT: Final = 24
_ACKED_AT: Final = 120
"""Of tcpi_bytes_acked and tcpi_bytes_received."""
_NOT_SENT_AT: Final = 144
VAIN_REPEATS: Final = 3
"""How many times the kernel has to resend before that is taken for a loss. Each time it waits twice as long, the first
time for more than a round trip, so late answers do not lead to this."""


class WireBytes:
    """What a connection has carried since this was asked last."""

    __slots__ = ("_received_bytes", "_sent_bytes", "_sock", "has_more", "is_stuck", "repeats")

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._sent_bytes = self._received_bytes = 0
        self.has_more = False
        """When this was asked last, the peer had not acknowledged everything that the kernel was given."""
        self.repeats = 0
        """How often in a row the kernel had resent the same data by then, since no acknowledgement came."""
        self.is_stuck = False
        """It resent more than one small packet holds, in vain: the size of the packet may be the cause."""

    def growth(self) -> tuple[int, int]:
        """How many bytes the peer has acknowledged, and how many have come; 0 once the socket is closed."""
        sent_bytes, received_bytes = self._sent_bytes, self._received_bytes
        with contextlib.suppress(OSError, struct.error):
            info = self._sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
            self._sent_bytes, self._received_bytes = struct.unpack_from("QQ", info, _ACKED_AT)
            (unacked,), (not_sent_bytes,) = (struct.unpack_from("I", info, at) for at in (_UNACKED_AT, _NOT_SENT_AT))
            self.has_more = bool(unacked or not_sent_bytes)
            self.repeats = info[_REPEATS_AT]
            (open_bytes,) = struct.unpack("i", fcntl.ioctl(self._sock, termios.TIOCOUTQ, bytes(4)))
            self.is_stuck = self.repeats >= VAIN_REPEATS and open_bytes > SMALL_SEGMENT_BYTES
        return self._sent_bytes - sent_bytes, self._received_bytes - received_bytes
