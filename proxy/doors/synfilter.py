"""The end of a listening socket: TCP handshakes that have begun are completed, and no new ones begin.

When a listening socket is closed, the kernel resets queued connections and handshakes in progress, and between the last
accept and the close a client may always come. So the socket first drops every SYN. Such a client tries again a second
later (RFC 6298, 2.1) and reaches whoever listens then: with SO_REUSEPORT, the proxy that replaces this one. Handshakes
in progress need one more round trip, so the socket stays open for `HANDSHAKE_S`.

This is done by a socket filter (socket(7), SO_ATTACH_FILTER), which needs no privilege. Without filters nothing
changes.
"""

import ctypes
import socket
import struct
import sys
from typing import Final

HANDSHAKE_S: Final = 0.2
"""For the last acknowledgement of a handshake: a long round trip. A client dropped meanwhile connects a second late."""

_SO_ATTACH_FILTER: Final = 26

# Classic BPF on the TCP header: load the flags, and drop the segment if SYN is set and ACK is not.
_PROGRAM: Final = (
    (0x30, 0, 0, 13),
    (0x54, 0, 0, 0x12),
    (0x15, 0, 1, 0x02),
    (0x06, 0, 0, 0),
    (0x06, 0, 0, 0xFFFFFFFF),
)


def drop_new_handshakes(sock: socket.socket) -> bool:
    """Returns whether the socket drops them from now on."""
    if sys.platform != "linux" or sock.family not in (socket.AF_INET, socket.AF_INET6):
        return False
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *instruction) for instruction in _PROGRAM))
    try:
        sock.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack("HP", len(_PROGRAM), ctypes.addressof(code)))
    except OSError:
        return False
    return True
