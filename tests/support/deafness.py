"""A client that hears nothing: its handshake stays half done, as one does for the time of a round trip."""

import ctypes
import socket
import struct
import time
from pathlib import Path
from typing import Final

_WAIT_S: Final = 10.0
_SO_ATTACH_FILTER: Final = 26
_SO_DETACH_FILTER: Final = 27
_DROP_ALL: Final = struct.pack("HBBI", 0x06, 0, 0, 0)
_SYN_RECV: Final = "03"


def deaf_socket() -> socket.socket:
    """For IPv4; whatever comes is dropped before TCP sees it."""
    sock = socket.socket()
    code = ctypes.create_string_buffer(_DROP_ALL)
    sock.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack("HP", 1, ctypes.addressof(code)))
    return sock


def hear_again(sock: socket.socket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, _SO_DETACH_FILTER, 0)


def wait_for_handshake(port: int) -> None:
    """Until the kernel has answered a client of this port that has not acknowledged it (proc(5), /proc/net/tcp)."""
    end_s = time.monotonic() + _WAIT_S
    while time.monotonic() < end_s:
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
            _, local, _, state, *_ = line.split()
            if state == _SYN_RECV and int(local.rpartition(":")[2], 16) == port:
                return
    raise AssertionError(f"no handshake is under way on port {port}")
