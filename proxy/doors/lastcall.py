"""No new handshakes on a listening socket that is about to close, while those under way come to their end.

What the kernel has queued on a listening socket, or shakes hands for, is reset when it closes; between the last accept
and the close somebody may always come. So from here on the socket drops what opens a connection. Such a client tries
again a second later (RFC 6298, 2.1) and finds who listens then: with SO_REUSEPORT, the proxy that replaces this one.

A socket filter does it (socket(7), SO_ATTACH_FILTER), which needs no privilege. Where there is none, nothing changes.
"""

import contextlib
import ctypes
import socket
import struct
import sys
from typing import Final

_SO_ATTACH_FILTER: Final = 26

# Classic BPF on the TCP header: load the flags, and drop the segment where SYN is set and ACK is not.
_PROGRAM: Final = (
    (0x30, 0, 0, 13),
    (0x54, 0, 0, 0x12),
    (0x15, 0, 1, 0x02),
    (0x06, 0, 0, 0),
    (0x06, 0, 0, 0xFFFFFFFF),
)


def drop_new_handshakes(sock: socket.socket) -> None:
    if sys.platform != "linux" or sock.family not in (socket.AF_INET, socket.AF_INET6):
        return
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *instruction) for instruction in _PROGRAM))
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack("HP", len(_PROGRAM), ctypes.addressof(code)))
