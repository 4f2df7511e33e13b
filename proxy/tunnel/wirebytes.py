"""How many bytes a connection has carried, as counted by the kernel, so that nothing has to be counted per request."""

import contextlib
import fcntl
import socket
import struct
import termios
from typing import Final

from proxy.tunnel.packetsize import SMALL_SEGMENT_BYTES

_TCP_INFO_BYTES: Final = 148
# Offsets in struct tcp_info (linux/tcp.h).
_RETRANSMITS_AT: Final = 2
_UNACKED_AT: Final = 24
_ACKED_AT: Final = 120
"""Of tcpi_bytes_acked, which tcpi_bytes_received follows."""
_NOT_SENT_AT: Final = 144
LOST_RETRANSMITS: Final = 3
"""How many retransmissions in a row count as a loss. The kernel waits for more than a round trip before the first, and
twice as long before each next one, so late acknowledgements do not lead to this."""


class WireBytes:
    """What a connection has carried since the last call of `growth`. The attributes are as of that call."""

    __slots__ = ("_received_bytes", "_sent_bytes", "_sock", "has_more", "is_stuck", "retransmits")

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._sent_bytes = self._received_bytes = 0
        self.has_more = False
        """The peer had not acknowledged all data given to the kernel."""
        self.retransmits = 0
        """How often in a row the kernel had retransmitted the same data without an acknowledgement."""
        self.is_stuck = False
        """The kernel was retransmitting in vain, with more data outstanding than one small packet holds: packet size
        may be the cause."""

    def growth(self) -> tuple[int, int]:
        """How many bytes the peer has acknowledged, and how many were received; 0 once the socket is closed."""
        sent_bytes, received_bytes = self._sent_bytes, self._received_bytes
        with contextlib.suppress(OSError, struct.error):
            info = self._sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
            self._sent_bytes, self._received_bytes = struct.unpack_from("QQ", info, _ACKED_AT)
            (unacked,), (not_sent_bytes,) = (struct.unpack_from("I", info, at) for at in (_UNACKED_AT, _NOT_SENT_AT))
            self.has_more = bool(unacked or not_sent_bytes)
            self.retransmits = info[_RETRANSMITS_AT]
            (open_bytes,) = struct.unpack("i", fcntl.ioctl(self._sock, termios.TIOCOUTQ, bytes(4)))
            self.is_stuck = self.retransmits >= LOST_RETRANSMITS and open_bytes > SMALL_SEGMENT_BYTES
        return self._sent_bytes - sent_bytes, self._received_bytes - received_bytes
