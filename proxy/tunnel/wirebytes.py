"""How many bytes a connection has carried, as the kernel counts them: nothing is counted on the way of requests."""

import contextlib
import socket
import struct
from typing import Final

_TCP_INFO_BYTES: Final = 136
_ACKED_AT: Final = 120
"""Of tcpi_bytes_acked and tcpi_bytes_received in struct tcp_info (linux/tcp.h)."""


class WireBytes:
    """What was carried since it was asked last."""

    __slots__ = ("_received_bytes", "_sent_bytes", "_sock")

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._sent_bytes = self._received_bytes = 0

    def growth(self) -> tuple[int, int]:
        """Acknowledged by the peer, and received; nothing once the socket is closed."""
        sent_bytes, received_bytes = self._sent_bytes, self._received_bytes
        with contextlib.suppress(OSError, struct.error):
            info = self._sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
            self._sent_bytes, self._received_bytes = struct.unpack_from("QQ", info, _ACKED_AT)
        return self._sent_bytes - sent_bytes, self._received_bytes - received_bytes
