"""How many bytes a connection has carried, as the kernel counts them: nothing is counted on the way of requests."""

import contextlib
import socket
import struct
from typing import Final

_TCP_INFO_BYTES: Final = 148
# In struct tcp_info (linux/tcp.h).
_REPEATS_AT: Final = 2
_UNACKED_AT: Final = 24
_ACKED_AT: Final = 120
"""Of tcpi_bytes_acked and tcpi_bytes_received."""
_NOT_SENT_AT: Final = 144


class WireBytes:
    """What was carried since it was asked last."""

    __slots__ = ("_received_bytes", "_sent_bytes", "_sock", "has_more", "repeats")

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._sent_bytes = self._received_bytes = 0
        self.has_more = False
        """When it was asked last, the peer had not acknowledged all that the kernel was given."""
        self.repeats = 0
        """How often in a row the kernel had sent the same again by then, for want of an acknowledgement."""

    def growth(self) -> tuple[int, int]:
        """Acknowledged by the peer, and received; nothing once the socket is closed."""
        sent_bytes, received_bytes = self._sent_bytes, self._received_bytes
        with contextlib.suppress(OSError, struct.error):
            info = self._sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
            self._sent_bytes, self._received_bytes = struct.unpack_from("QQ", info, _ACKED_AT)
            (unacked,), (not_sent_bytes,) = (struct.unpack_from("I", info, at) for at in (_UNACKED_AT, _NOT_SENT_AT))
            self.has_more = bool(unacked or not_sent_bytes)
            self.repeats = info[_REPEATS_AT]
        return self._sent_bytes - sent_bytes, self._received_bytes - received_bytes
